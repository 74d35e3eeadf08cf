use formwork_protocols::{Clock, Replay, SeededRng, SessionId, Timestamp, event::ToolRequested};
use formwork_write_safety::Which;
use serde_json::Value;

use super::*;

/// A workspace and the folder of its contents.
struct Place {
    _keep: tempfile::TempDir,
    ground: Ground,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let ws = keep.path().join("ws");
        std::fs::create_dir(&ws).unwrap();
        let ground = Ground {
            snapshots: Arc::new(Snapshots::open(keep.path().join("kept")).unwrap()),
            root: Arc::new(Root::open(&ws).unwrap()),
        };
        Self { _keep: keep, ground }
    }

    fn put(&self, file: &str, text: &str) {
        std::fs::write(self.ground.root.path().join(file), text).unwrap();
    }

    /// Tells of the workspace as it is now.
    fn snapshot(&self, around: Option<CallId>) -> EventBody {
        let taken = self.ground.snapshots.take(&self.ground.root, Which::NotIgnored).unwrap();
        EventBody::WorkspaceSnapshot(formwork_protocols::event::WorkspaceSnapshot {
            snapshot: Some(BlobHash::from_bytes(*taken.id().as_bytes())),
            baseline: None,
            around,
        })
    }

    fn resolve(&self, bodies: Vec<EventBody>) -> Changes {
        let mut reader = Reader::default();
        for (at, body) in (1..).zip(bodies) {
            reader.take(Position(at), None, body);
        }
        reader.finish().resolve(&self.ground).unwrap()
    }
}

/// A clock that stands still, so that one seed gives one id.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }
}

fn call(seed: u64) -> CallId {
    CallId::generate(&Noon, &SeededRng::new(seed))
}

fn wrote(path: &str, before: Option<&str>, after: Option<&str>) -> EventBody {
    let hash = |text: &str| BlobHash::of(text.as_bytes());
    EventBody::FileChanged(FileChange {
        path: path.to_owned(),
        before: before.map(hash),
        after: after.map(hash),
        added: 0,
        removed: 0,
        before_mode: before.map(|_| 0o100_644),
        after_mode: after.map(|_| 0o100_644),
        call: None,
        apart: false,
    })
}

fn asked(call: CallId, path: &str) -> EventBody {
    EventBody::ToolRequested(Box::new(ToolRequested {
        call,
        session: SessionId::generate(&Noon, &SeededRng::new(1)),
        pair: String::new(),
        tool: "fs.edit".to_owned(),
        arguments: Value::Null,
        class: None,
        replay: Replay::Once,
        paths: vec![path.to_owned()],
        decision: Decided::Allowed,
    }))
}

/// Names the paths that changed, and whether somebody else was there in between.
fn names(changes: &Changes) -> Vec<(String, bool)> {
    let nets = changes.net(Position::default()).into_iter();
    nets.map(|(path, net)| (path.to_string(), net.mixed)).collect()
}

#[test]
fn changes_of_one_path_are_joined_and_those_that_cancel_out_are_none() {
    let place = Place::new();

    let changes = place.resolve(vec![
        wrote("a", Some("1"), Some("2")),
        wrote("a", Some("2"), Some("3")),
        wrote("b", None, Some("1")),
        wrote("b", Some("1"), None),
        wrote("c", Some("1"), Some("2")),
        wrote("c", Some("theirs"), Some("3")),
    ]);

    assert_eq!(names(&changes), [("a".to_owned(), false), ("c".to_owned(), true)]);
    let net = &changes.net(Position::default())[&RelPath::parse("a").unwrap()];
    assert_eq!(net.before.unwrap().hash, Some(blake3::hash(b"1")));
    assert_eq!(net.after.unwrap().hash, Some(blake3::hash(b"3")));
    let later = changes.net(Position(1));
    assert_eq!(later[&RelPath::parse("a").unwrap()].before.unwrap().hash, Some(blake3::hash(b"2")));
}

#[test]
fn what_a_program_changed_is_what_differs_around_it_and_nothing_else() {
    let place = Place::new();
    let mut bodies = vec![place.snapshot(None)];
    place.put("theirs", "before");
    bodies.push(place.snapshot(Some(call(1))));
    place.put("made", "by the program");
    // The file is told of besides, for those who only look at files.
    let EventBody::FileChanged(change) = wrote("made", None, Some("by the program")) else {
        unreachable!("it tells of a file");
    };
    bodies.push(EventBody::FileChanged(FileChange { call: Some(call(1)), ..change }));
    bodies.push(place.snapshot(Some(call(1))));
    place.put("theirs", "after");

    let changes = place.resolve(bodies);

    assert_eq!(names(&changes), [("made".to_owned(), false)]);
    assert!(changes.open.is_empty());
}

#[test]
fn what_a_killed_process_left_open_is_found_by_looking() {
    let place = Place::new();
    place.put("a", "old");
    place.put("same", "old");
    let mut bodies = vec![
        place.snapshot(None),
        asked(call(2), "a"),
        asked(call(3), "same"),
        place.snapshot(Some(call(1))),
    ];
    place.put("a", "new");
    place.put("made", "by the program");

    let open = place.resolve(bodies.clone());
    bodies.push(EventBody::WorkspaceSnapshot(formwork_protocols::event::WorkspaceSnapshot {
        snapshot: None,
        baseline: None,
        around: Some(call(2)),
    }));
    let settled = place.resolve(bodies);

    assert_eq!(names(&open), [("a".to_owned(), false), ("made".to_owned(), false)]);
    assert_eq!(open.open.calls.len(), 2);
    let of_none = |call| Whose { call, task: None };
    assert_eq!(settled.open.calls, [(of_none(call(3)), vec!["same".to_owned()])]);
}
