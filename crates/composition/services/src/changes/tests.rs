use formwork_protocols::{
    Blob, Clock, Principal, Replay, SeededRng, SessionId, event::ToolRequested,
};
use formwork_sandbox::{Limits, Protection};
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
            alive: Alive::new(keep.path()),
        };
        Self { _keep: keep, ground }
    }

    fn put(&self, file: &str, text: &str) {
        std::fs::write(self.ground.root.path().join(file), text).unwrap();
    }

    /// Tells of the workspace as it is now.
    fn snapshot(&self, around: Option<CallId>) -> EventBody {
        let taken = self.ground.snapshots.take(&self.ground.root, Which::NotIgnored).unwrap();
        let snapshot = Some(BlobHash::from_bytes(*taken.id().as_bytes()));
        let taken = WorkspaceSnapshot { snapshot, around, ..WorkspaceSnapshot::default() };
        EventBody::WorkspaceSnapshot(taken)
    }

    /// Tells of it before a program that is held to some paths.
    fn before(&self, work: CallId, granted: &[&str]) -> (EventBody, Reaches) {
        let EventBody::WorkspaceSnapshot(taken) = self.snapshot(Some(work)) else {
            unreachable!("it is one");
        };
        let top = self.ground.root.path();
        let limits = Limits::new([""; 0], granted.iter().map(|path| top.join(path)));
        let reach = Reach::of(&Protection::Restricted(limits), top);
        let hash = reach
            .blob(&formwork_secrets::Registry::default().scrubber())
            .unwrap()
            .as_ref()
            .map(Blob::hash);
        let taken = WorkspaceSnapshot { within: hash, ..taken };
        (EventBody::WorkspaceSnapshot(taken), hash.map(|hash| (hash, reach)).into_iter().collect())
    }

    fn resolve(&self, bodies: Vec<EventBody>) -> Changes {
        self.resolve_by(bodies, (&Reaches::new(), i128::MAX))
    }

    /// The same, where programs are held and their process lived no longer than said.
    fn resolve_by(&self, bodies: Vec<EventBody>, (reaches, until): (&Reaches, i128)) -> Changes {
        let mut reader = Reader::default();
        for (at, body) in (1..).zip(bodies) {
            reader.take(Event {
                position: Position(at),
                run: RunId::generate(&Noon, &SeededRng::new(1)),
                seq: at,
                task: None,
                principal: Principal::system("tests"),
                at: Noon.now(),
                body,
                idempotency_key: None,
                hash: formwork_protocols::event::GENESIS,
            });
        }
        reader.finish().resolve(&self.ground, (reaches, Some(until))).unwrap()
    }

    /// Writes a file again and again until the file system's clock has moved on from when that of `earlier` was changed.
    fn put_after(&self, earlier: &str, file: &str, text: &str) -> i128 {
        let place = |file: &str| RelPath::parse(file).unwrap();
        let bound = changed_at(&self.ground.root, &place(earlier));
        loop {
            self.put(file, text);
            if changed_at(&self.ground.root, &place(file)) > bound {
                return bound;
            }
        }
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
    bodies.push(EventBody::WorkspaceSnapshot(WorkspaceSnapshot {
        around: Some(call(2)),
        ..WorkspaceSnapshot::default()
    }));
    let settled = place.resolve(bodies);

    assert_eq!(names(&open), [("a".to_owned(), false), ("made".to_owned(), false)]);
    assert_eq!(open.open.calls.len(), 2);
    let left: Vec<_> = settled.open.calls.into_iter().map(|it| (it.call, it.paths)).collect();
    assert_eq!(left, [(call(3), vec!["same".to_owned()])]);
}

#[test]
fn what_differs_beyond_where_a_program_could_write_is_not_its_doing() {
    let place = Place::new();
    std::fs::create_dir(place.ground.root.path().join("src")).unwrap();
    let mut bodies = vec![place.snapshot(None)];
    let (before, reaches) = place.before(call(1), &["src"]);
    bodies.push(before);
    place.put("src/a", "by the program");
    place.put("theirs", "typed meanwhile");

    let open = place.resolve_by(bodies.clone(), (&reaches, i128::MAX));
    bodies.push(place.snapshot(Some(call(1))));
    let ended = place.resolve_by(bodies, (&reaches, i128::MAX));

    assert_eq!(names(&open), [("src/a".to_owned(), false)]);
    assert_eq!(names(&ended), [("src/a".to_owned(), false)]);
}

#[test]
fn what_came_after_a_process_had_died_is_nobodys_for_sure() {
    let place = Place::new();
    place.put("both", "old");
    let began = place.snapshot(None);
    let bodies = vec![began, place.snapshot(Some(call(1))), asked(call(2), "named")];
    place.put("made", "by the program");
    place.put("both", "by the program");
    let bound = place.put_after("both", "both", "by the program and by them");
    place.put_after("made", "named", "theirs");
    place.put_after("made", "chapter", "theirs");

    let found = place.resolve_by(bodies, (&Reaches::new(), bound));

    let mut wanted = vec![("both", true), ("chapter", true), ("made", false), ("named", true)];
    wanted.sort_unstable();
    let wanted: Vec<_> = wanted.into_iter().map(|(name, mixed)| (name.to_owned(), mixed)).collect();
    assert_eq!(names(&found), wanted);
    let nets = found.net(Position::default());
    let known = |name: &str| nets[&RelPath::parse(name).unwrap()].known;
    assert_eq!((known("made"), known("both")), (Known::Around, Known::Late));
    let Found { after, late, .. } = &found.found[0].1;
    let late: Vec<_> = late.iter().map(|it| it.path.to_string()).collect();
    assert_eq!(late, ["both", "chapter", "named"]);
    assert!(after.entries().contains_key(&RelPath::parse("made").unwrap()));
    assert!(!after.entries().contains_key(&RelPath::parse("chapter").unwrap()));
}
