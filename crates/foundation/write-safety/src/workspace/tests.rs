use super::*;
use crate::{edit::Reason, ledger::Reads};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

struct Place {
    _keep: tempfile::TempDir,
    base: PathBuf,
    run: Reads,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("ws")).unwrap();
        Self { _keep: keep, base, run: Reads::new() }
    }

    fn with(self, file: &str, text: &str) -> Self {
        let file = self.base.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        self
    }

    fn workspace(&self) -> Workspace {
        self.limited(WriteRules::everything())
    }

    fn limited(&self, rules: WriteRules) -> Workspace {
        let root = Arc::new(Root::open(self.base.join("ws")).unwrap());
        Workspace::new(root, rules, self.run.session())
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.base.join(file)).unwrap()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.base.join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn trash(&self) -> Trash {
        Trash::open(self.base.join("trash")).unwrap()
    }
}

fn removal() -> Removal {
    Removal {
        reason: "unused".into(),
        run: "run-1".into(),
        task: "tidy".into(),
        at_ms: 1_700_000_000_000,
    }
}

fn why<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused { why, .. }) => why,
        other => panic!("wanted a refusal, found {other:?}"),
    }
}

#[test]
fn a_new_file_is_written_with_its_folders() {
    let place = Place::new();

    let changed = place.workspace().write("a/b/c.txt", b"hi\n", Apply::Write).unwrap();

    assert_eq!(place.text("ws/a/b/c.txt"), "hi\n");
    assert_eq!(changed.path.to_string(), "a/b/c.txt");
    assert_eq!((changed.before, changed.after), (None, Some(blake3::hash(b"hi\n"))));
    assert_eq!(changed.diff, "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1 @@\n+hi\n");
    assert_eq!(place.names("ws/a/b"), ["c.txt"]);
}

#[test]
fn behaviour_21_overwriting_needs_a_read_of_the_content_that_is_there_now() {
    let place = Place::new().with("ws/f", "one\n");
    let workspace = place.workspace();

    assert!(matches!(workspace.write("f", b"x", Apply::Write), Err(Error::Unread { .. })));
    workspace.read("f").unwrap();
    std::fs::write(place.base.join("ws/f"), "two\n").unwrap();
    let stale = workspace.write("f", b"x", Apply::Write).unwrap_err();
    assert!(
        matches!(&stale, Error::Stale { diff, .. } if diff.contains("-one\n+two\n")),
        "{stale}"
    );
    assert_eq!(place.text("ws/f"), "two\n");
    workspace.read("f").unwrap();
    workspace.write("f", b"x", Apply::Write).unwrap();
    workspace.write("f", b"y", Apply::Write).unwrap(); // Its own write is known to it.
    assert_eq!(place.text("ws/f"), "y");
}

#[test]
fn a_session_sees_that_another_of_its_run_has_written() {
    let place = Place::new().with("ws/f", "one\n");
    let (a, b) = (place.workspace(), place.workspace());
    a.read("f").unwrap();
    b.read("f").unwrap();

    b.write("f", b"two\n", Apply::Write).unwrap();

    let stale = a.write("f", b"three\n", Apply::Write).unwrap_err().to_string();
    assert!(stale.starts_with("\"f\" was changed by another session of this run"), "{stale}");
}

#[test]
fn an_edit_of_what_was_not_read_whole_does_not_allow_to_overwrite_it() {
    let place = Place::new().with("ws/f", "one two\n");
    let workspace = place.workspace();

    workspace.edit("f", &[Edit::one("one", "1")], Apply::Write).unwrap();

    assert!(matches!(workspace.write("f", b"x", Apply::Write), Err(Error::Unread { .. })));
}

#[test]
fn a_dry_run_shows_the_diff_and_changes_nothing() {
    let place = Place::new().with("ws/f", "one\n");

    let changed = place.workspace().edit("f", &[Edit::one("one", "two")], Apply::DryRun).unwrap();

    assert_eq!(changed.diff, "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n");
    assert_eq!(place.text("ws/f"), "one\n");
    place.workspace().write("new/g", b"", Apply::DryRun).unwrap();
    assert_eq!(place.names("ws"), ["f"]);
}

#[test]
fn mode_attributes_and_links_stay() {
    let place = Place::new().with("ws/bin/run", "#!old\n");
    let file = place.base.join("ws/bin/run");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o751)).unwrap();
    let opened = std::fs::File::open(&file).unwrap();
    let kept = fs::fsetxattr(&opened, "user.note", b"kept", fs::XattrFlags::empty()).is_ok();
    symlink("bin/run", place.base.join("ws/link")).unwrap();
    symlink("link", place.base.join("ws/link2")).unwrap();

    place.workspace().edit("link2", &[Edit::one("old", "new")], Apply::Write).unwrap();

    assert_eq!(place.text("ws/bin/run"), "#!new\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(place.base.join("ws/link").symlink_metadata().unwrap().is_symlink());
    assert!(place.base.join("ws/link2").symlink_metadata().unwrap().is_symlink());
    if kept {
        let mut note = [0; 8];
        let opened = std::fs::File::open(&file).unwrap();
        let len = fs::fgetxattr(&opened, "user.note", note.as_mut_slice()).unwrap();
        assert_eq!(&note[..len], b"kept");
    }
}

#[test]
fn a_write_never_goes_through_a_hard_link() {
    let place = Place::new().with("outside", "secret\n");
    std::fs::hard_link(place.base.join("outside"), place.base.join("ws/f")).unwrap();
    let workspace = place.workspace();

    workspace.edit("f", &[Edit::one("secret", "mine")], Apply::Write).unwrap();
    assert_eq!((place.text("outside"), place.text("ws/f")), ("secret\n".into(), "mine\n".into()));

    std::fs::hard_link(place.base.join("outside"), place.base.join("ws/g")).unwrap();
    workspace.set_mode("g", 0o777).unwrap();
    let mode = |file: &str| std::fs::metadata(place.base.join(file)).unwrap().mode() & 0o777;
    assert_eq!(mode("ws/g"), 0o777);
    assert_ne!(mode("outside"), 0o777);
}

#[test]
fn no_write_of_any_kind_leaves_the_root_or_touches_git() {
    let place = Place::new().with("secret", "s").with("ws/.git/config", "c").with("ws/f", "f");
    let ws = place.base.join("ws");
    symlink("../secret", ws.join("out")).unwrap();
    symlink("..", ws.join("up")).unwrap();
    symlink("../nothing", ws.join("dangling")).unwrap();
    symlink(".git/config", ws.join("config")).unwrap();
    symlink(".git", ws.join("meta")).unwrap();
    symlink("/proc/self/root/tmp/x", ws.join("magic")).unwrap();
    let workspace = place.workspace();
    let trash = place.trash();

    for path in [
        "../secret",
        "out",
        "up/secret",
        "up/new",
        "dangling",
        "config",
        "meta/hooks/pre-commit",
        "magic",
        ".git/config",
        ".GIT/config",
        "sub/.git",
        ".git",
        "/etc/passwd",
        "up/up/x",
        ".",
    ] {
        let refused = [
            why(workspace.write(path, b"x", Apply::Write)),
            why(workspace.create(path, "x", Apply::Write)),
            why(workspace.edit(path, &[Edit::one("s", "x")], Apply::Write)),
            why(workspace.create_folder(path)),
            why(workspace.set_mode(path, 0o777)),
            why(workspace.check_write(path)),
        ];
        assert!(
            refused.iter().all(|why| {
                matches!(
                    why,
                    Refusal::Outside
                        | Refusal::LinkOutside { .. }
                        | Refusal::Git { .. }
                        | Refusal::RootItself
                )
            }),
            "{path}: {refused:?}"
        );
    }
    for path in ["../secret", "up/secret", "meta/config", ".git", ".Git/config", "/etc/passwd"] {
        why(workspace.delete(path, &trash, &removal()));
        why(workspace.rename("f", path));
        why(workspace.rename(path, "g"));
    }
    assert_eq!(place.text("secret"), "s");
    assert_eq!(place.text("ws/.git/config"), "c");
    assert_eq!(place.names("."), ["secret", "trash", "ws"]);
    assert!(trash.list().unwrap().is_empty());
}

#[test]
fn rules_bind_every_way_of_writing_and_all_that_lies_in_a_folder() {
    let place =
        Place::new().with("ws/src/a", "a").with("ws/src/keep/b", "b").with("ws/tests/t", "t");
    symlink("../tests/t", place.base.join("ws/src/alias")).unwrap();
    let rules = WriteRules::parse(&["src/**"], &["src/keep/**"]).unwrap();
    let workspace = place.limited(rules);
    let trash = place.trash();

    assert!(matches!(
        why(workspace.edit("tests/t", &[Edit::one("t", "x")], Apply::Write)),
        Refusal::NotWritable { .. }
    ));
    assert!(matches!(
        why(workspace.edit("src/alias", &[Edit::one("t", "x")], Apply::Write)),
        Refusal::NotWritable { .. }
    ));
    assert!(matches!(why(workspace.delete("src", &trash, &removal())), Refusal::Protected { .. }));
    assert!(matches!(why(workspace.rename("src", "src2")), Refusal::NotWritable { .. }));
    assert!(matches!(why(workspace.rename("src/a", "tests/a")), Refusal::NotWritable { .. }));
    assert!(matches!(why(workspace.create_folder("src/keep/x")), Refusal::Protected { .. }));
    assert!(matches!(why(workspace.set_executable("tests/t", true)), Refusal::NotWritable { .. }));
    workspace.rename("src/a", "src/deep/er/a").unwrap();
    assert_eq!(place.text("ws/src/deep/er/a"), "a");
}

#[test]
fn a_move_refuses_to_clobber_and_to_go_into_itself() {
    let place = Place::new().with("ws/a/f", "f").with("ws/b", "b");
    let workspace = place.workspace();

    assert!(matches!(workspace.rename("a/f", "b"), Err(Error::Exists { path }) if path == "b"));
    assert!(matches!(why(workspace.rename("a", "a/sub")), Refusal::IntoItself { .. }));
    assert!(
        matches!(workspace.rename("none", "c"), Err(Error::Missing { path }) if path == "none")
    );
    workspace.read("a/f").unwrap();
    workspace.rename("a", "c").unwrap();
    workspace.write("c/f", b"known under its new name", Apply::Write).unwrap();
    assert_eq!(place.text("ws/b"), "b");
}

#[test]
fn what_is_deleted_can_be_listed_and_brought_back_but_not_over_something() {
    let place = Place::new().with("ws/d/f", "f").with("ws/d/sub/g", "g");
    let workspace = place.workspace();
    let trash = place.trash();

    let record = workspace.delete("d", &trash, &removal()).unwrap();

    assert_eq!(place.names("ws"), Vec::<String>::new());
    assert_eq!(trash.list().unwrap(), std::slice::from_ref(&record));
    assert_eq!(
        (record.path.as_str(), record.kind.as_str(), record.bytes, record.reason.as_str()),
        ("d", "folder", 2, "unused")
    );
    std::fs::write(place.base.join("ws/d"), "in the way").unwrap();
    assert!(matches!(workspace.restore(&trash, &record.id), Err(Error::Exists { .. })));
    std::fs::remove_file(place.base.join("ws/d")).unwrap();
    workspace.restore(&trash, &record.id).unwrap();
    assert_eq!((place.text("ws/d/f"), place.text("ws/d/sub/g")), ("f".into(), "g".into()));
    assert!(trash.list().unwrap().is_empty());
}

#[test]
fn deleting_needs_a_reason_and_a_link_is_deleted_not_its_target() {
    let place = Place::new().with("ws/f", "f");
    symlink("f", place.base.join("ws/link")).unwrap();
    let (workspace, trash) = (place.workspace(), place.trash());

    let silent = Removal { reason: " ".into(), ..removal() };
    assert_eq!(why(workspace.delete("f", &trash, &silent)), Refusal::NoTrash);
    let record = workspace.delete("link", &trash, &removal()).unwrap();
    assert_eq!(record.kind, "link");
    assert_eq!(place.names("ws"), ["f"]);
    let damaged = place.base.join("trash").join(&record.id).join("content");
    std::fs::remove_file(&damaged).unwrap();
    symlink("/etc/passwd", &damaged).unwrap();
    assert!(matches!(workspace.restore(&trash, &record.id), Err(Error::Damaged { .. })));
    assert_eq!(trash.purge_before(removal().at_ms).unwrap(), 0);
    assert_eq!(trash.purge_before(removal().at_ms + 1).unwrap(), 1);
    assert!(matches!(trash.get("../ws"), Err(Error::Unknown { .. })));
}

#[test]
fn a_patch_changes_all_its_files_or_none() {
    let place = Place::new().with("ws/a", "1\n").with("ws/b", "2\n").with("ws/c", "3\n");
    let (workspace, trash, removal) = (place.workspace(), place.trash(), removal());
    let patch = |last: &str| {
        Patch::parse(&format!(
            "*** Begin Patch\n*** Update File: a\n-1\n+one\n*** Add File: new/n\n+n\n*** Update File: b\n*** Move to: moved/b\n-2\n+two\n*** Delete File: c\n*** Update File: a\n-{last}\n+ONE\n*** End Patch\n"
        ))
        .unwrap()
    };

    let refused = workspace.patch(&patch("nothing"), Some((&trash, &removal)), Apply::Write);
    assert!(matches!(refused, Err(Error::Miss { miss, .. }) if miss.reason == Reason::Different));
    assert_eq!(why(workspace.patch(&patch("one"), None, Apply::Write)), Refusal::NoTrash);
    workspace.patch(&patch("one"), Some((&trash, &removal)), Apply::DryRun).unwrap();
    assert_eq!(place.names("ws"), ["a", "b", "c"]);
    assert_eq!(place.text("ws/a"), "1\n");

    let changed = workspace.patch(&patch("one"), Some((&trash, &removal)), Apply::Write).unwrap();

    let paths: Vec<_> = changed.iter().map(|c| (c.path.to_string(), c.after.is_some())).collect();
    let there = |path: &str, there| (path.to_owned(), there);
    assert_eq!(
        paths,
        [
            there("a", true),
            there("new/n", true),
            there("moved/b", true),
            there("b", false),
            there("c", false)
        ]
    );
    assert_eq!(place.names("ws"), ["a", "moved", "new"]);
    assert_eq!((place.text("ws/a"), place.text("ws/moved/b")), ("ONE\n".into(), "two\n".into()));
    assert_eq!(trash.list().unwrap().len(), 1);
}

#[test]
fn a_patch_gives_and_takes_the_right_to_run_a_file() {
    let place = Place::new().with("ws/a", "1\n").with("ws/b", "2\n").with("ws/c", "\0binary\n");
    let runs = |file: &str| {
        let mode =
            std::fs::metadata(place.base.join("ws").join(file)).unwrap().permissions().mode();
        mode & 0o777
    };
    std::fs::set_permissions(place.base.join("ws/b"), PermissionsExt::from_mode(0o755)).unwrap();
    let patch = Patch::parse(
        "diff --git a/new b/new\nnew file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+#!/bin/sh\n\
         diff --git a/plain b/plain\nnew file mode 100644\n--- /dev/null\n+++ b/plain\n@@ -0,0 +1 @@\n+x\n\
         diff --git a/a b/a\nold mode 100644\nnew mode 100755\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n\
         diff --git a/b b/b\nold mode 100755\nnew mode 100644\n\
         diff --git a/c b/d\nold mode 100644\nnew mode 100755\nrename from c\nrename to d\n",
    )
    .unwrap();

    let changed = place.workspace().patch(&patch, None, Apply::Write).unwrap();

    assert_eq!(["new", "plain", "a", "b", "d"].map(runs), [0o755, 0o644, 0o755, 0o644, 0o755]);
    assert_eq!((place.text("ws/a"), place.text("ws/d")), ("one\n".into(), "\0binary\n".into()));
    let told: Vec<_> =
        changed.iter().map(|it| (it.path.to_string(), it.before_mode, it.after_mode)).collect();
    let told: Vec<_> = told.iter().map(|(path, old, new)| (path.as_str(), *old, *new)).collect();
    assert_eq!(
        told,
        [
            ("new", None, Some(FILE | 0o755)),
            ("plain", None, Some(FILE | 0o644)),
            ("a", Some(FILE | 0o644), Some(FILE | 0o755)),
            ("b", Some(FILE | 0o755), Some(FILE | 0o644)),
            ("d", None, Some(FILE | 0o755)),
            ("c", Some(FILE | 0o644), None),
        ]
    );
}

#[test]
fn a_patch_of_a_file_of_another_mode_changes_nothing() {
    let place = Place::new().with("ws/a", "1\n").with("ws/b", "2\n");
    std::fs::set_permissions(place.base.join("ws/b"), PermissionsExt::from_mode(0o755)).unwrap();
    let hunk = "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-2\n+two\n";
    let told = |patch: &str| {
        let patch = Patch::parse(patch).unwrap();
        let changed = place.workspace().patch(&patch, None, Apply::Write);
        changed.map(drop).map_err(|error| error.to_string())
    };

    let a = told("diff --git a/a b/a\nold mode 100755\nnew mode 100644\n");
    let moved =
        "diff --git a/a b/c\nold mode 100755\nnew mode 100644\nrename from a\nrename to c\n";
    let b = told(&format!("diff --git a/b b/b\nold mode 100644\nnew mode 100755\n{hunk}"));
    // Each is of what the one before leaves.
    let back = "diff --git a/b b/b\nold mode 100755\nnew mode 100644\n\
                diff --git a/b b/b\nold mode 100644\nnew mode 100755\n";

    let wrong = |path: &str, found: &str, wanted: &str| {
        Err(format!("\"{path}\" has mode {found}, and the patch is of one with mode {wanted}"))
    };
    assert_eq!(a, wrong("a", "100644", "100755"));
    assert_eq!(told(moved), wrong("a", "100644", "100755"));
    assert_eq!(b, wrong("b", "100755", "100644"));
    assert_eq!((place.text("ws/a"), place.text("ws/b")), ("1\n".into(), "2\n".into()));
    assert_eq!(told(back), Ok(()));
}

#[test]
fn many_files_are_edited_together_or_not_at_all() {
    let mut place = Place::new();
    for index in 0..20 {
        place = place.with(&format!("ws/d{}/f{index}", index % 3), "old\n");
    }
    let paths: Vec<_> = (0..20).map(|i| PathBuf::from(format!("d{}/f{i}", i % 3))).collect();
    let (good, bad) = ([Edit::one("old", "new")], [Edit::one("none of it", "new")]);
    let mut edits: Vec<(&Path, &[Edit])> = paths.iter().map(|p| (p.as_path(), &good[..])).collect();
    let workspace = place.workspace();

    edits[19].1 = &bad;
    assert!(workspace.edit_many(&edits, Apply::Write).is_err());
    assert_eq!(place.text("ws/d0/f0"), "old\n");
    edits[19].1 = &good;
    workspace.edit_many(&edits, Apply::Write).unwrap();
    assert!(paths.iter().all(|p| place.text(&format!("ws/{}", p.display())) == "new\n"));
    assert_eq!(place.names("ws/d0").len(), 7);
}

#[test]
fn behaviour_22_two_hundred_parallel_edits_of_several_sessions_lose_none() {
    let lines: String = (0..200).map(|i| format!("line {i};\n")).collect();
    let place = Place::new().with("ws/f", &lines);

    std::thread::scope(|scope| {
        for thread in 0..8 {
            let workspace = place.workspace();
            scope.spawn(move || {
                for i in (thread..200).step_by(8) {
                    let edit = Edit::one(format!("line {i};"), format!("done {i};"));
                    workspace.edit("f", &[edit], Apply::Write).unwrap();
                }
            });
        }
    });

    assert_eq!(place.text("ws/f"), lines.replace("line", "done"));
    assert_eq!(place.names("ws"), ["f"]);
}

#[test]
fn a_reader_meets_the_old_content_or_the_new_whole() {
    let (old, new) = ("o".repeat(100_000), "n".repeat(90_000));
    let place = Place::new().with("ws/f", &old);
    let workspace = place.workspace();
    let done = std::sync::atomic::AtomicBool::new(false);
    workspace.read("f").unwrap();

    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let text = place.text("ws/f");
                assert!(text == old || text == new);
                seen += 1;
            }
            seen
        });
        for _ in 0..10 {
            workspace.write("f", new.as_bytes(), Apply::Write).unwrap();
            workspace.write("f", old.as_bytes(), Apply::Write).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn a_link_swapped_in_while_files_are_written_never_leads_out() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Place::new().with("ws/d/f", "f").with("out/f", "secret");
    let (a, b) = (place.base.join("ws/d"), place.base.join("ws/e"));
    symlink("../out", &b).unwrap();
    let done = AtomicBool::new(false);
    let workspace = place.workspace();

    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::renameat_with(fs::CWD, &a, fs::CWD, &b, fs::RenameFlags::EXCHANGE).unwrap();
            }
        });
        for index in 0..300 {
            let _ = workspace.create(format!("d/n{index}"), "x", Apply::Write);
            let _ = workspace.edit("d/f", &[Edit::one("f", "f")], Apply::Write);
            let _ = workspace.set_mode("d/f", 0o600);
        }
        done.store(true, Ordering::Relaxed);
    });

    assert_eq!(place.names("out"), ["f"]);
    assert_eq!(place.text("out/f"), "secret");
}

#[test]
fn text_written_whole_keeps_the_files_encoding_and_endings() {
    let place = Place::new();
    let file = place.base.join("ws/f");
    std::fs::write(&file, b"\xff\xfea\0\r\0\n\0b\0\r\0\n\0").unwrap();
    let workspace = place.workspace();
    assert_eq!(workspace.read("f").unwrap().text().unwrap(), "a\r\nb\r\n");

    workspace.write_text("f", "a\nB\nc\n", Apply::Write).unwrap();

    let expected = b"\xff\xfea\0\r\0\n\0B\0\r\0\n\0c\0\r\0\n\0";
    assert_eq!(std::fs::read(&file).unwrap(), expected);
}

#[test]
fn a_copy_comes_whole_or_not_at_all_and_never_over_something() {
    let place = Place::new().with("ws/a/one", "1").with("ws/a/.git/config", "x").with("ws/b", "b");
    std::fs::create_dir(place.base.join("ws/a/empty")).unwrap();
    symlink("one", place.base.join("ws/a/link")).unwrap();
    let workspace = place.workspace();

    let git = why(workspace.copy("a", "c"));
    std::fs::remove_dir_all(place.base.join("ws/a/.git")).unwrap();
    let over = workspace.copy("a", "b");
    let within = why(workspace.copy("a", "a/b"));
    let changed = workspace.copy("a", "new/c").unwrap();

    assert!(matches!(git, Refusal::Git { .. }), "{git}");
    assert!(matches!(over, Err(Error::Exists { .. })), "{over:?}");
    assert!(matches!(within, Refusal::IntoItself { .. }), "{within}");
    let told: Vec<_> =
        changed.iter().map(|it| (it.path.to_string(), it.after_mode.unwrap())).collect();
    let expected =
        [("new/c/empty", FOLDER | 0o755), ("new/c/link", LINK), ("new/c/one", FILE | 0o644)];
    assert_eq!(told, expected.map(|(path, mode)| (path.to_owned(), mode)));
    assert_eq!(place.text("ws/new/c/one"), "1");
    assert_eq!(std::fs::read_link(place.base.join("ws/new/c/link")).unwrap(), Path::new("one"));
    assert_eq!(place.names("ws"), ["a", "b", "new"]);
}

#[test]
fn what_is_too_large_is_not_copied_and_nothing_of_it_is_written() {
    let place = Place::new().with("ws/d/small", "1").with("ws/d/e/half", "").with("ws/d/whole", "");
    let set_len = |file: &str, len: u64| {
        let file = std::fs::File::options().write(true).open(place.base.join(file)).unwrap();
        file.set_len(len).unwrap(); // Sparse: nothing is written.
    };
    set_len("ws/d/whole", MAX_KEPT + 1);
    set_len("ws/d/e/half", MAX_KEPT);
    let workspace = place.workspace();

    let file = workspace.copy("d/whole", "new/c").unwrap_err();
    std::fs::remove_file(place.base.join("ws/d/whole")).unwrap();
    let folder = workspace.copy("d", "new/c").unwrap_err();

    let told = [file, folder].map(|error| error.to_string());
    assert_eq!(
        told,
        [
            "\"d/whole\" has 268435457 bytes, wanted at most 268435456",
            "\"d\" has 268435457 bytes, wanted at most 268435456",
        ]
    );
    // Not even the folder that it was to stand in.
    assert_eq!(place.names("ws"), ["d"]);
}

#[test]
fn every_content_that_goes_or_comes_is_kept_where_that_is_asked_for() {
    let place = Place::new().with("ws/a", "old").with("ws/b", "going");
    let kept = Arc::new(Snapshots::open(place.base.join("kept")).unwrap());
    let workspace = place.workspace().keeping(Arc::clone(&kept));

    let changed = workspace.edit("a", &[Edit::one("old", "new")], Apply::Write).unwrap();
    workspace.delete("b", &place.trash(), &removal()).unwrap();

    assert_eq!(kept.kept(changed.before.unwrap()).unwrap(), b"old");
    assert_eq!(kept.kept(changed.after.unwrap()).unwrap(), b"new");
    assert_eq!(kept.kept(blake3::hash(b"going")).unwrap(), b"going");
    assert_eq!((changed.before_mode, changed.after_mode), (Some(FILE | 0o644), Some(FILE | 0o644)));
}

#[test]
fn a_file_that_a_session_cannot_hold_is_refused_by_its_size() {
    let place = Place::new().with("ws/f", "");
    let file = std::fs::File::options().write(true).open(place.base.join("ws/f")).unwrap();
    file.set_len(33 << 20).unwrap(); // Sparse: nothing is written.

    let refused = place.workspace().read("f").unwrap_err();

    assert!(matches!(refused, Error::TooLarge { limit: 0x200_0000, .. }), "{refused}");
}

#[test]
fn work_that_was_given_up_changes_nothing_any_more() {
    let place = Place::new().with("ws/f", "one\n").with("ws/d/g", "two\n");
    let wanted = Wanted::default();
    let workspace = place.workspace().while_wanted(wanted.clone());
    workspace.read("f").unwrap();
    let trashed = workspace.delete("d/g", &place.trash(), &removal()).unwrap().id;

    wanted.end();
    let edit = [Edit::one("one", "1")];
    let refused = [
        workspace.write("f", b"1\n", Apply::Write).map(drop),
        workspace.write("deep/new", b"1\n", Apply::Write).map(drop),
        workspace.edit("f", &edit, Apply::Write).map(drop),
        workspace.delete("f", &place.trash(), &removal()).map(drop),
        workspace.restore(&place.trash(), &trashed).map(drop),
        workspace.rename("f", "moved").map(drop),
        workspace.copy("f", "copied").map(drop),
        workspace.create_folder("made/deep").map(drop),
        workspace.set_mode("f", 0o600).map(drop),
    ];

    for (number, refused) in refused.iter().enumerate() {
        assert!(matches!(refused, Err(Error::Unwanted { .. })), "{number}: {refused:?}");
    }
    assert_eq!(place.names("ws"), ["d", "f"]);
    assert_eq!(place.text("ws/f"), "one\n");
    assert_eq!(workspace.read("f").unwrap().bytes, b"one\n");
}

#[test]
fn a_file_two_hundred_folders_deep_is_written_with_all_of_them() {
    let place = Place::new();
    let path = "d/".repeat(199) + "f";

    place.workspace().write(&path, b"deep\n", Apply::Write).unwrap();

    assert_eq!(place.text(&format!("ws/{path}")), "deep\n");
}

#[test]
fn a_copy_in_the_trash_is_an_entry_as_any_other_and_what_was_copied_stays() {
    let place = Place::new().with("ws/f", "mine");
    let (workspace, trash) = (place.workspace(), place.trash());
    std::os::unix::fs::symlink("f", place.base.join("ws/link")).unwrap();

    let file = workspace.copy_to_trash("f", &trash, &removal()).unwrap();
    let link = workspace.copy_to_trash("link", &trash, &removal()).unwrap();

    assert_eq!(trash.list().unwrap(), [file.clone(), link.clone()]);
    assert_eq!(place.names("ws"), ["f", "link"]);
    assert_eq!((file.kind.as_str(), link.kind.as_str()), ("file", "link"));
    assert!(matches!(workspace.restore(&trash, &file.id), Err(Error::Exists { .. })));
    for name in ["f", "link"] {
        std::fs::remove_file(place.base.join("ws").join(name)).unwrap();
    }
    workspace.restore(&trash, &file.id).unwrap();
    workspace.restore(&trash, &link.id).unwrap();
    assert_eq!(place.text("ws/link"), "mine");
    let gone = workspace.copy_to_trash("gone", &trash, &removal());
    assert!(matches!(gone, Err(Error::Missing { .. })), "{gone:?}");
}
