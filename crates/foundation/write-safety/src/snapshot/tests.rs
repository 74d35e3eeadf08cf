use super::*;
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

struct Place {
    _keep: tempfile::TempDir,
    ws: PathBuf,
    store: PathBuf,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        Self { ws: base.join("ws"), store: base.join("store"), _keep: keep }
    }

    fn put(&self, file: &str, text: &str) {
        let file = self.ws.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn mode(&self, file: &str, mode: u32) {
        fs::set_permissions(self.ws.join(file), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn root(&self) -> Root {
        Root::open(&self.ws).unwrap()
    }

    fn snapshots(&self) -> Snapshots {
        Snapshots::open(&self.store).unwrap()
    }

    /// Everything that is there: path to kind, mode and content.
    fn state(&self) -> BTreeMap<String, String> {
        fn visit(top: &Path, dir: &Path, out: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                let name = path.strip_prefix(top).unwrap().display().to_string();
                let mode = meta.permissions().mode() & 0o7777;
                let text = if meta.is_symlink() {
                    format!("link {}", fs::read_link(&path).unwrap().display())
                } else if meta.is_dir() {
                    visit(top, &path, out);
                    format!("folder {mode:o}")
                } else {
                    format!("file {mode:o} {}", fs::read_to_string(&path).unwrap())
                };
                out.insert(name, text);
            }
        }
        let mut out = BTreeMap::new();
        visit(&self.ws, &self.ws, &mut out);
        out
    }
}

#[test]
fn a_folder_that_becomes_a_link_and_back_is_looked_at_without_a_failure() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};

    let place = Place::new();
    place.put("moving/deep/file", "kept\n");
    symlink("/nowhere", place.ws.join("other")).unwrap();
    let (root, snapshots) = (place.root(), place.snapshots());
    let (one, other) = (place.ws.join("moving"), place.ws.join("other"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let failed = (0..1_000).find_map(|_| snapshots.take(&root, Which::All).err());
        is_over.store(true, Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn a_file_larger_than_a_session_reads_is_kept_and_comes_back() {
    let place = Place::new();
    let large = vec![7; 33 << 20];
    fs::write(place.ws.join("large"), &large).unwrap();
    let (root, snapshots) = (place.root(), place.snapshots());
    let path = |name: &str| RelPath::parse(name).unwrap();
    let began = snapshots.take(&root, Which::All).unwrap();

    fs::write(place.ws.join("large"), "short\n").unwrap();
    fs::write(place.ws.join("new"), &large).unwrap();
    let changed = snapshots.compare(&began, &snapshots.take(&root, Which::All).unwrap()).unwrap();
    assert_eq!(changed.len(), 2);
    let wanted = changed.iter().map(|it| (it.path.clone(), it.before)).collect();
    let mut back = snapshots.revert(&root, &wanted).unwrap();
    back.sort();

    assert_eq!(back, [path("large"), path("new")]);
    assert!(fs::read(place.ws.join("large")).unwrap() == large);
    assert!(!place.ws.join("new").exists());
    fs::write(place.ws.join("large"), &large[1..]).unwrap();
    assert_eq!(snapshots.restore(&root, &began).unwrap().left, [] as [RelPath; 0]);
    assert!(fs::read(place.ws.join("large")).unwrap() == large);
}

/// Does something as a user who may not read everything, whoever runs the tests.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::{process::Uid, thread::set_thread_res_uid};
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // Of this thread alone, and of those that it starts.
                let nobody = Uid::from_raw(65_534);
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            work()
        });
        working.join().unwrap()
    })
}

#[test]
fn what_may_not_be_read_hides_nothing_of_all_else() {
    let place = Place::new();
    for (file, text) in [("a", "one\n"), ("closed", "secret\n"), ("b", "two\n")] {
        place.put(file, text);
        place.mode(file, 0o666);
    }
    for folder in [place.ws.as_path(), place.ws.parent().unwrap()] {
        fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    }
    place.mode("closed", 0);
    let path = |name: &str| RelPath::parse(name).unwrap();

    let (undone, left, again) = as_nobody(|| {
        let (root, snapshots) = (place.root(), place.snapshots());
        let began = snapshots.take(&root, Which::All).unwrap();
        assert!(began.entries()[&path("closed")].is_unread());
        assert_eq!(snapshots.take(&root, Which::All).unwrap().id(), began.id());

        fs::write(place.ws.join("a"), "other\n").unwrap();
        fs::remove_file(place.ws.join("b")).unwrap();
        fs::write(place.ws.join("new"), "new\n").unwrap();
        place.mode("new", 0);
        let after = snapshots.take(&root, Which::All).unwrap();
        let changes = snapshots.diff(&began, &after).unwrap();
        let told: Vec<_> = changes.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(told, ["a", "b", "new"]);
        assert!(changes[2].diff.ends_with("File new differs, and could not be read\n"));

        let wanted: BTreeMap<_, _> = snapshots
            .compare(&began, &after)
            .unwrap()
            .into_iter()
            .map(|it| (it.path, it.before))
            .collect();
        let undone = snapshots.revert(&root, &wanted).unwrap();
        let is_kept = snapshots.keeps(&snapshots.state(&root, &path("new")).unwrap().unwrap());
        (undone, is_kept, snapshots.restore(&root, &began).unwrap().left)
    });

    assert_eq!(undone, [path("a"), path("b")]);
    assert!(!left, "nobody has its content");
    assert_eq!(again, [path("new")]);
    assert_eq!(fs::read_to_string(place.ws.join("b")).unwrap(), "two\n");
}

#[test]
fn what_is_too_large_to_be_kept_is_known_by_its_hash_and_left_alone() {
    let place = Place::new();
    place.put("small", "one\n");
    place.put("sub/large", "");
    let large = fs::OpenOptions::new().write(true).open(place.ws.join("sub/large")).unwrap();
    large.set_len(MAX_KEPT + 1).unwrap();
    let (root, snapshots) = (place.root(), place.snapshots());
    let path = |name: &str| RelPath::parse(name).unwrap();
    let began = snapshots.take(&root, Which::All).unwrap();
    assert!(!began.entries()[&path("sub/large")].is_kept());
    let unread = snapshots.content(&began, &path("sub/large"));
    assert!(matches!(unread, Err(Error::TooLarge { found, .. }) if found == MAX_KEPT + 1));
    assert!(!snapshots.keeps(&snapshots.state(&root, &path("sub/large")).unwrap().unwrap()));

    // Another content of the same size is another one.
    std::os::unix::fs::FileExt::write_all_at(&large, b"x", 9).unwrap();
    place.put("small", "two\n");
    place.put("new", "");
    fs::copy(place.ws.join("sub/large"), place.ws.join("new")).unwrap();
    let after = snapshots.take(&root, Which::All).unwrap();
    let changed: Vec<_> = snapshots
        .diff(&began, &after)
        .unwrap()
        .into_iter()
        .map(|change| (change.path.to_string(), change.added, change.diff))
        .collect();
    let said = |before: u64, after: u64, path: &str| {
        format!("Large file {path} differs: {before} bytes, then {after}\n")
    };
    let len = MAX_KEPT + 1;
    let new = format!("new file mode 100644\n{}", said(0, len, "new"));
    assert_eq!(changed[0], ("new".to_owned(), 0, new));
    assert_eq!((changed[1].0.as_str(), changed[1].1), ("small", 1));
    assert_eq!(changed[2], ("sub/large".to_owned(), 0, said(len, len, "sub/large")));

    let restored = snapshots.restore(&root, &began).unwrap();
    assert_eq!(restored.paths, [path("small")]);
    assert_eq!(restored.left, [path("new"), path("sub/large")]);
    assert_eq!(fs::read_to_string(place.ws.join("small")).unwrap(), "one\n");
    assert_eq!(large.metadata().unwrap().len(), len);
    // One that is gone does not come back, and says so.
    fs::remove_file(place.ws.join("sub/large")).unwrap();
    let restored = snapshots.restore(&root, &began).unwrap();
    assert_eq!((restored.paths.len(), restored.left), (0, vec![path("new"), path("sub/large")]));
}

#[test]
fn going_back_restores_exactly_and_can_itself_be_undone() {
    let place = Place::new();
    place.put("src/a", "a\n");
    place.put("src/run", "#!\n");
    place.mode("src/run", 0o755);
    place.put("gone/deep/b", "b\n");
    place.put(".git/HEAD", "ref\n");
    fs::create_dir(place.ws.join("empty")).unwrap();
    symlink("src/a", place.ws.join("link")).unwrap();
    symlink("/nowhere", place.ws.join("was-link")).unwrap();
    let (root, snapshots) = (place.root(), place.snapshots());
    let then = place.state();
    let snapshot = snapshots.take(&root, Which::All).unwrap();

    place.put("src/a", "changed\n");
    place.mode("src/run", 0o600);
    fs::remove_dir_all(place.ws.join("gone")).unwrap();
    fs::write(place.ws.join("gone"), "a file now").unwrap();
    fs::remove_dir(place.ws.join("empty")).unwrap();
    fs::remove_file(place.ws.join("link")).unwrap();
    symlink("elsewhere", place.ws.join("link")).unwrap();
    fs::remove_file(place.ws.join("was-link")).unwrap();
    place.put("was-link/inside", "x");
    place.put("new/file", "new\n");
    place.put(".git/HEAD", "ref other\n");
    let now = place.state();
    let restored = snapshots.restore(&root, &snapshot).unwrap();

    let mut wanted = then;
    wanted.insert(".git/HEAD".into(), now[".git/HEAD"].clone());
    assert_eq!(place.state(), wanted);
    assert!(restored.left.is_empty());
    assert_eq!(snapshots.take(&root, Which::All).unwrap().id(), snapshot.id());
    snapshots.restore(&root, &restored.before).unwrap();
    assert_eq!(place.state(), now);
}

#[test]
fn going_back_overwrites_nothing_that_came_after_the_look() {
    let place = Place::new();
    for path in ["written", "gone", "link"] {
        place.put(path, "then");
    }
    let (root, snapshots) = (place.root(), place.snapshots());
    let then = snapshots.take(&root, Which::All).unwrap();

    for (path, what) in [("written", "their"), ("new", "their"), ("link", "their")] {
        place.put("written", "now");
        place.put("gone", "then");
        let _ = fs::remove_file(place.ws.join("new"));
        let _ = fs::remove_file(place.ws.join("link"));
        place.put("link", "now");
        if path == "new" {
            place.put("new", "now");
        }
        let looked = snapshots.take_by(&root, &then).unwrap();
        place.put(path, what);
        let raced = restore::restore(&root, &snapshots.blobs, looked, &then);

        assert!(matches!(&raced, Err(Error::Raced { path: at }) if at == path), "{raced:?}");
        assert_eq!(fs::read_to_string(place.ws.join(path)).unwrap(), what);
    }
}

#[test]
fn ignored_files_are_neither_taken_nor_touched_even_if_the_rules_change() {
    let place = Place::new();
    place.put(".gitignore", "target/\n*.env\n!keep.env\n");
    place.put(".git/info/exclude", "mine\n");
    place.put("target/out", "1");
    place.put("secret.env", "s");
    place.put("keep.env", "k");
    place.put("mine", "m");
    place.put("sub/.gitignore", "local\n");
    place.put("sub/local", "l");
    place.put("a", "a");
    let (root, snapshots) = (place.root(), place.snapshots());
    let snapshot = snapshots.take(&root, Which::NotIgnored).unwrap();
    let held: Vec<_> = snapshot.entries().keys().map(ToString::to_string).collect();
    assert_eq!(held, [".gitignore", "a", "keep.env", "sub", "sub/.gitignore"]);
    let then = place.state();

    place.put(".gitignore", "");
    place.put(".git/info/exclude", "");
    place.put("hidden/.gitignore", "*\n");
    place.put("hidden/new", "n");
    fs::remove_file(place.ws.join("sub/.gitignore")).unwrap();
    snapshots.restore(&root, &snapshot).unwrap();

    let mut now = place.state();
    now.insert(".git/info/exclude".into(), then[".git/info/exclude"].clone());
    assert_eq!(now, then);
}

#[test]
fn what_is_there_is_not_gone_because_a_rule_came_nor_new_because_one_went() {
    let place = Place::new();
    place.put("sub/.gitignore", "*.log\n");
    place.put("sub/a.log", "ignored");
    place.put("other/f", "one");
    let (root, snapshots) = (place.root(), place.snapshots());
    let before = snapshots.take(&root, Which::NotIgnored).unwrap();
    place.put(".gitignore", "other/\nbuilt/\n");
    place.put("other/f", "two");
    place.put("other/new", "ignored by now");
    place.put("built/g", "ignored by now");
    place.put("h", "new");
    fs::remove_file(place.ws.join("sub/.gitignore")).unwrap();

    let after = snapshots.take_since(&root, &before).unwrap();

    let changes = snapshots.diff(&before, &after).unwrap();
    let names: Vec<_> =
        changes.iter().map(|it| (it.path.to_string(), it.after.is_some())).collect();
    let named = |name: &str, is_there| (name.to_owned(), is_there);
    let expected = [
        named(".gitignore", true),
        named("h", true),
        named("other/f", true),
        named("sub/.gitignore", false),
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_new_folder_with_ignored_files_is_left_and_named() {
    let place = Place::new();
    place.put(".gitignore", "*.o\n");
    let (root, snapshots) = (place.root(), place.snapshots());
    let snapshot = snapshots.take(&root, Which::NotIgnored).unwrap();

    place.put("build/x.o", "o");
    place.put("build/x.c", "c");
    let restored = snapshots.restore(&root, &snapshot).unwrap();

    assert_eq!(restored.left, [RelPath::parse("build").unwrap()]);
    assert!(place.ws.join("build/x.o").exists());
    assert!(!place.ws.join("build/x.c").exists());
}

#[test]
fn a_diff_names_what_was_added_removed_and_changed() {
    let place = Place::new();
    place.put("a", "1\n2\n");
    place.put("b", "b\n");
    place.put("run", "#!\n");
    place.mode("run", 0o644);
    let (root, snapshots) = (place.root(), place.snapshots());
    let before = snapshots.take(&root, Which::All).unwrap();

    place.put("a", "1\n3\n");
    fs::remove_file(place.ws.join("b")).unwrap();
    place.put("c", "-- c\n");
    place.mode("c", 0o640);
    place.mode("run", 0o755);
    let after = snapshots.take(&root, Which::All).unwrap();
    let changes = snapshots.diff(&before, &after).unwrap();

    let shown: Vec<_> =
        changes.iter().map(|c| (c.path.to_string(), c.added, c.removed, c.diff.as_str())).collect();
    let row = |path: &str, added, removed, diff| (path.to_owned(), added, removed, diff);
    assert_eq!(
        shown,
        [
            row("a", 1, 1, "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"),
            row("b", 0, 1, "deleted file mode 100644\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"),
            row("c", 1, 0, "new file mode 100640\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+-- c\n"),
            row("run", 0, 0, "old mode 100644\nnew mode 100755\n"),
        ]
    );
    let loaded = snapshots.load(&before.id().to_string()).unwrap();
    assert_eq!(loaded, before);
    assert_eq!(snapshots.content(&loaded, &RelPath::parse("b").unwrap()).unwrap(), b"b\n");
}

#[test]
fn a_change_within_one_tick_of_the_clock_is_seen() {
    let place = Place::new();
    let (root, snapshots) = (place.root(), place.snapshots());

    for round in 0..30 {
        place.put("f", &format!("{round:04}"));
        let snapshot = snapshots.take(&root, Which::All).unwrap();
        let content = snapshots.content(&snapshot, &RelPath::parse("f").unwrap()).unwrap();
        assert_eq!(content, format!("{round:04}").as_bytes());
    }
}

#[test]
fn an_unchanged_old_file_is_not_read_again_and_a_look_that_finds_nothing_new_writes_nothing() {
    let place = Place::new();
    place.put("f", "old");
    let (root, snapshots) = (place.root(), place.snapshots());
    let last = snapshots.take(&root, Which::All).unwrap();
    let old = crate::Stat::of(&rustix::fs::stat(place.ws.join("f")).unwrap());
    let fake = snapshots.blobs.put(b"what the cache says").unwrap();
    let read = [(RelPath::parse("f").unwrap(), old, fake)];
    let known = snapshots.cache.load(root.path());
    snapshots.cache.store(root.path(), &known, (&read, Some(i128::MAX)), &last).unwrap();
    fs::remove_dir_all(place.store.join("stat-cache")).unwrap();

    let snapshot = snapshots.take(&root, Which::All).unwrap();
    let again = snapshots.take(&root, Which::All).unwrap();

    let content = snapshots.content(&snapshot, &RelPath::parse("f").unwrap()).unwrap();
    assert_eq!(content, b"what the cache says");
    assert_eq!(again, snapshot);
    assert!(Arc::ptr_eq(&again.entries, &snapshot.entries));
}

#[test]
fn a_snapshot_that_somebody_removed_is_written_again() {
    let place = Place::new();
    let (root, snapshots) = (place.root(), place.snapshots());
    let first = snapshots.take(&root, Which::All).unwrap();
    fs::remove_file(place.store.join("trees").join(first.id().to_string())).unwrap();

    let again = snapshots.take(&root, Which::All).unwrap();

    assert_eq!(again, first);
    assert_eq!(snapshots.load(&first.id().to_string()).unwrap(), first);
}

#[test]
fn a_damaged_store_is_noticed_before_anything_changes() {
    let place = Place::new();
    place.put("a", "a\n");
    place.put("b", "b\n");
    let (root, snapshots) = (place.root(), place.snapshots());
    let snapshot = snapshots.take(&root, Which::All).unwrap();
    place.put("a", "A\n");
    place.put("b", "B\n");
    let hash = blake3::hash(b"b\n").to_string();
    fs::write(place.store.join("blobs").join(&hash[..2]).join(&hash[2..]), "x\n").unwrap();

    let failed = snapshots.restore(&root, &snapshot);

    assert!(matches!(failed, Err(Error::Damaged { what: "content", .. })), "{failed:?}");
    assert_eq!(fs::read_to_string(place.ws.join("a")).unwrap(), "A\n");
    let tree = place.store.join("trees").join(snapshot.id().to_string());
    fs::write(tree, "formwork tree 1 all\nF 644 x").unwrap();
    let id = snapshot.id().to_string();
    assert!(matches!(snapshots.load(&id), Err(Error::Damaged { what: "snapshot", .. })));
    assert!(matches!(snapshots.load("../x"), Err(Error::Unknown { .. })));
}

#[test]
fn a_manifest_that_leads_out_or_to_git_is_refused() {
    let id = blake3::hash(b"");
    for path in ["../x", "/etc/x", ".git/hooks/x", "a/.GIT/x", "."] {
        let bytes = format!("formwork tree 1 all\nL {path}\0target\0");

        assert!(manifest::read(bytes.as_bytes(), id).is_err(), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_state_can_be_gone_back_to_from_any_other(
        first in prop::collection::btree_map("[ab](/[ab]){0,2}", 0..4_usize, 0..6),
        second in prop::collection::btree_map("[ab](/[ab]){0,2}", 0..4_usize, 0..6),
    ) {
        let place = Place::new();
        let build = |state: &BTreeMap<String, usize>| {
            for entry in fs::read_dir(&place.ws).unwrap() {
                let path = entry.unwrap().path();
                if path.symlink_metadata().unwrap().is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
            for (path, kind) in state {
                let path = place.ws.join(path);
                // A path below a file cannot be made; then it is not.
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = match kind {
                    0 => symlink("../target", &path),
                    1 => fs::create_dir(&path),
                    2 => fs::write(&path, "two"),
                    _ => fs::write(&path, "three").and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(0o700))),
                };
            }
        };
        let (root, snapshots) = (place.root(), place.snapshots());
        build(&first);
        let wanted = place.state();
        let snapshot = snapshots.take(&root, Which::All).unwrap();
        build(&second);

        let restored = snapshots.restore(&root, &snapshot).unwrap();

        prop_assert_eq!(place.state(), wanted);
        prop_assert!(restored.left.is_empty());
    }
}

#[test]
fn some_paths_are_made_what_they_were_and_all_others_are_left() {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path().canonicalize().unwrap();
    let ws = base.join("ws");
    std::fs::create_dir_all(ws.join("d/e")).unwrap();
    std::fs::write(ws.join("a"), "old").unwrap();
    std::fs::write(ws.join("d/e/f"), "deep").unwrap();
    std::os::unix::fs::symlink("a", ws.join("link")).unwrap();
    let root = Root::open(&ws).unwrap();
    let kept = Snapshots::open(base.join("kept")).unwrap();
    let path = |text: &str| RelPath::parse(text).unwrap();
    let names = ["a", "d", "d/e", "d/e/f", "link", "new", "n", "n/x"];
    let wanted: BTreeMap<_, _> =
        names.iter().map(|name| (path(name), kept.state(&root, &path(name)).unwrap())).collect();

    std::fs::write(ws.join("a"), "new").unwrap();
    std::fs::remove_dir_all(ws.join("d")).unwrap();
    std::fs::write(ws.join("d"), "a file now").unwrap();
    std::fs::remove_file(ws.join("link")).unwrap();
    std::fs::write(ws.join("new"), "new").unwrap();
    std::fs::create_dir(ws.join("n")).unwrap();
    std::fs::write(ws.join("n/x"), "new").unwrap();
    std::fs::write(ws.join("others"), "stays").unwrap();
    let mut changed = kept.revert(&root, &wanted).unwrap();
    let again = kept.revert(&root, &wanted).unwrap();

    changed.sort();
    changed.dedup();
    assert_eq!(
        changed,
        names.map(path).into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    assert_eq!(again, []);
    assert_eq!(std::fs::read(ws.join("a")).unwrap(), b"old");
    assert_eq!(std::fs::read(ws.join("d/e/f")).unwrap(), b"deep");
    assert_eq!(std::fs::read_link(ws.join("link")).unwrap(), Path::new("a"));
    assert!(!ws.join("new").exists() && !ws.join("n").exists());
    assert_eq!(std::fs::read(ws.join("others")).unwrap(), b"stays");
}

#[test]
fn nothing_is_reverted_where_one_content_is_not_kept() {
    let temp = tempfile::tempdir().unwrap();
    let ws = temp.path().canonicalize().unwrap().join("ws");
    std::fs::create_dir(&ws).unwrap();
    std::fs::write(ws.join("new"), "new").unwrap();
    let root = Root::open(&ws).unwrap();
    let kept = Snapshots::open(temp.path().join("kept")).unwrap();
    let lost = State { hash: Some(blake3::hash(b"lost")), mode: 0o100_644 };
    let path = |text: &str| RelPath::parse(text).unwrap();
    let wanted = BTreeMap::from([(path("gone"), Some(lost)), (path("new"), None)]);

    let failed = kept.revert(&root, &wanted);

    assert!(matches!(failed, Err(Error::Damaged { .. })), "{failed:?}");
    assert!(ws.join("new").exists());
}

#[test]
fn what_a_dead_process_was_writing_is_swept_by_the_next_look_and_what_a_living_one_writes_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let (workspace, kept) = (temp.path().join("ws"), temp.path().join("kept"));
    std::fs::create_dir_all(workspace.join("a/b")).unwrap();
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = workspace.join(format!("a/b/.formwork-tmp-{}-3", dead.id()));
    let own = workspace.join(format!("a/b/.formwork-tmp-{}-3", std::process::id()));
    for file in [&left, &own, &workspace.join("a/f")] {
        std::fs::write(file, "x").unwrap();
    }
    let root = Root::open(&workspace).unwrap();

    let taken = Snapshots::open(kept).unwrap().take(&root, Which::NotIgnored).unwrap();

    let names: Vec<String> = taken.entries().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "a/b", "a/f"]);
    assert_eq!((left.exists(), own.exists()), (false, true));
}

#[test]
fn what_was_there_is_kept_with_some_of_its_changes_and_the_folders_that_they_lie_in() {
    let temp = tempfile::tempdir().unwrap();
    let ws = temp.path().join("ws");
    std::fs::create_dir(&ws).unwrap();
    for file in ["gone", "both", "theirs"] {
        std::fs::write(ws.join(file), "old").unwrap();
    }
    let root = Root::open(&ws).unwrap();
    let kept = Snapshots::open(temp.path().join("kept")).unwrap();
    let before = kept.take(&root, Which::NotIgnored).unwrap();
    std::fs::remove_file(ws.join("gone")).unwrap();
    std::fs::create_dir_all(ws.join("new/deep")).unwrap();
    for file in ["both", "theirs", "new/deep/f", "other"] {
        std::fs::write(ws.join(file), "new").unwrap();
    }
    let after = kept.take(&root, Which::NotIgnored).unwrap();
    let path = |text: &str| RelPath::parse(text).unwrap();

    let own = ["gone", "both", "new/deep/f"].map(path);
    let part = kept.keep_changes(&before, &after, &own).unwrap();

    let loaded = kept.load(&part.id().to_string()).unwrap();
    assert_eq!(loaded.entries(), part.entries());
    let differing = |from: &Snapshot, to: &Snapshot| -> Vec<String> {
        kept.compare(from, to).unwrap().into_iter().map(|it| it.path.to_string()).collect()
    };
    assert_eq!(differing(&before, &part), ["both", "gone", "new", "new/deep", "new/deep/f"]);
    assert_eq!(differing(&part, &after), ["other", "theirs"]);
    let shown = kept.diff_of(&before, &after, &|it| own.contains(it)).unwrap();
    let shown: Vec<String> = shown.into_iter().map(|it| it.path.to_string()).collect();
    assert_eq!(shown, ["both", "gone", "new/deep/f"]);
}
