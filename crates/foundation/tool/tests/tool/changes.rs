//! The tools that change several files, or what a file is called and may do.

use std::{fs, os::unix::fs::PermissionsExt as _};

use formwork_protocols::{Cancel, EventBody, event::FileChange, message::Arguments};
use serde_json::json;

use crate::world::{Setup, World};

impl World {
    fn changes(&self) -> Vec<FileChange> {
        let bodies = self.log.bodies().into_iter();
        let changes = bodies.filter_map(|body| match body {
            EventBody::FileChanged(change) => Some(change),
            _ => None,
        });
        changes.collect()
    }
}

/// A change as one line: the path, whether it was and is there, and both modes.
fn line(change: &FileChange) -> String {
    let mode = |mode: Option<u32>| mode.map_or("-".to_owned(), |mode| format!("{mode:o}"));
    let (before, after) = (mode(change.before_mode), mode(change.after_mode));
    format!("{} {before} {after}", change.path)
}

#[tokio::test]
async fn several_edits_are_made_together() {
    let world = World::new();
    world.put("a.txt", "one\r\ntwo\r\n");
    world.put("b.txt", "one\n");
    let edits = json!([
        { "path": "a.txt", "old": "one", "new": "1" },
        { "path": "b.txt", "old": "one", "new": "uno" },
        { "path": "a.txt", "old": "1\ntwo", "new": "1\n2" },
    ]);

    let told = world.done("fs.multi_edit", json!({ "edits": edits })).await;

    assert_eq!(told, "changed a.txt (+2 -2)\nchanged b.txt (+1 -1)\n");
    assert_eq!(world.content("a.txt"), "1\r\n2\r\n");
    assert_eq!(world.content("b.txt"), "uno\n");
    assert_eq!(world.changes().len(), 2);
}

#[tokio::test]
async fn of_several_edits_none_is_made_where_one_misses() {
    let world = World::new();
    world.put("a.txt", "one\n");
    world.put("b.txt", "two\n");
    let edits = json!([
        { "path": "a.txt", "old": "one", "new": "1" },
        { "path": "b.txt", "old": "three", "new": "3" },
    ]);

    let told = world.fails("fs.multi_edit", json!({ "edits": edits })).await;

    assert!(told.contains(r#"edit 1 of "b.txt""#), "{told}");
    assert_eq!(world.content("a.txt"), "one\n");
    assert_eq!(world.changes(), []);
}

#[tokio::test]
async fn a_patch_of_either_form_is_applied_whole() {
    let world = World::new();
    world.put("a.txt", "one\ntwo\n");
    world.put("gone.txt", "gone\n");
    let v4a = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+2\n\
               *** Add File: new.txt\n+new\n*** Delete File: gone.txt\n*** End Patch\n";
    let unified = "--- a/new.txt\n+++ b/new.txt\n@@ -1 +1 @@\n-new\n+newer\n";

    let told = world.done("fs.apply_patch", json!({ "patch": v4a })).await;
    world.done("fs.apply_patch", json!({ "patch": unified })).await;

    assert_eq!(told, "changed a.txt (+1 -1)\ncreated new.txt (+1 -0)\ndeleted gone.txt (+0 -1)\n");
    assert_eq!(world.content("a.txt"), "one\n2\n");
    assert_eq!(world.content("new.txt"), "newer\n");
    assert!(!world.path("gone.txt").exists());
    assert_eq!(world.trash.list().unwrap()[0].reason, "a patch deletes it");
}

#[tokio::test]
async fn a_patch_says_what_may_be_run_and_makes_no_links() {
    let world = World::new();
    let patch = |mode: &str| {
        format!(
            "diff --git a/m b/m\nnew file mode {mode}\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+/etc/passwd\n"
        )
    };

    let link = world.fails("fs.apply_patch", json!({ "patch": patch("120000") })).await;
    assert!(!world.path("m").exists());
    let made = world.done("fs.apply_patch", json!({ "patch": patch("100755") })).await;
    let back = "diff --git a/m b/m\nold mode 100755\nnew mode 100644\n";
    let back = world.done("fs.apply_patch", json!({ "patch": back })).await;

    assert!(link.contains("found 120000, which is a link"), "{link}");
    assert_eq!(made, "created m (+1 -0), may be run\n");
    assert_eq!(back, "changed m (+0 -0), may no longer be run\n");
    assert_eq!(world.path("m").metadata().unwrap().permissions().mode() & 0o111, 0);
}

#[tokio::test]
async fn a_patch_is_refused_whole_where_one_of_its_files_is_protected() {
    let world = World::with(Setup { protected: &["tests"], ..Setup::default() });
    world.put("a.txt", "one\n");
    let patch = "*** Begin Patch\n*** Update File: a.txt\n-one\n+1\n\
                 *** Add File: tests/new.txt\n+new\n*** End Patch\n";

    let told = world.fails("fs.apply_patch", json!({ "patch": patch })).await;

    assert!(told.contains(r#""tests/new.txt" is protected"#), "{told}");
    assert_eq!(world.content("a.txt"), "one\n");
}

#[tokio::test]
async fn what_is_moved_copied_and_made_is_told_file_by_file() {
    let world = World::new();
    world.put("a/one.txt", "one\n");
    world.put("a/two.txt", "two\n");

    let moved = world.done("fs.move", json!({ "from": "a", "to": "b/c" })).await;
    let copied = world.done("fs.copy", json!({ "from": "b/c/one.txt", "to": "one.txt" })).await;
    let made = world.done("fs.mkdir", json!({ "path": "x/y" })).await;
    let again = world.done("fs.mkdir", json!({ "path": "x/y" })).await;

    assert_eq!(moved, "moved a to b/c, 2 files");
    assert_eq!(copied, "copied b/c/one.txt to one.txt");
    assert_eq!((made.as_str(), again.as_str()), ("made x/y", "is there already: x/y"));
    assert_eq!(world.content("b/c/two.txt"), "two\n");
    assert_eq!(world.content("one.txt"), "one\n");
    assert!(!world.path("a").exists());
    let lines: Vec<_> = world.changes().iter().map(line).collect();
    let expected = [
        "a/one.txt 100644 -",
        "a/two.txt 100644 -",
        "b/c/one.txt - 100644",
        "b/c/two.txt - 100644",
        "one.txt - 100644",
        "x - 40755",
        "x/y - 40755",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn nothing_is_moved_or_copied_over_something_or_beyond_the_rules() {
    let world = World::with(Setup { protected: &["tests"], ..Setup::default() });
    world.put("a.txt", "a\n");
    world.put("b.txt", "b\n");
    world.put("tests/t.txt", "t\n");

    for tool in ["fs.move", "fs.copy"] {
        let over = world.fails(tool, json!({ "from": "a.txt", "to": "b.txt" })).await;
        let away = world.fails(tool, json!({ "from": "a.txt", "to": "../a.txt" })).await;
        let into = world.fails(tool, json!({ "from": "a.txt", "to": "tests/a.txt" })).await;
        let git = world.fails(tool, json!({ "from": "a.txt", "to": ".git/a" })).await;

        assert!(over.contains("exists already"), "{over}");
        assert!(away.contains("does not stay below the root"), "{away}");
        assert!(into.contains("protected"), "{into}");
        assert!(git.contains("git's own folder"), "{git}");
    }
    let out = world.fails("fs.move", json!({ "from": "tests/t.txt", "to": "t.txt" })).await;
    assert!(out.contains("protected"), "{out}");
    assert_eq!(world.content("b.txt"), "b\n");
    assert_eq!(world.changes(), []);
}

#[tokio::test]
async fn a_copy_of_what_was_read_may_be_overwritten() {
    let world = World::new();
    world.put("a.txt", "a\n");
    world.done("fs.read", json!({ "path": "a.txt" })).await;

    world.done("fs.copy", json!({ "from": "a.txt", "to": "b.txt" })).await;
    world.done("fs.write", json!({ "path": "b.txt", "content": "b\n" })).await;

    assert_eq!(world.content("a.txt"), "a\n");
    assert_eq!(world.content("b.txt"), "b\n");
}

#[tokio::test]
async fn a_file_is_made_one_that_runs_and_none_again() {
    let world = World::new();
    world.put("run.sh", "#!/bin/sh\n");
    let mode = || fs::metadata(world.path("run.sh")).unwrap().permissions().mode() & 0o777;
    let set = |executable: bool| json!({ "path": "run.sh", "executable": executable });

    let told = world.done("fs.set_executable", set(true)).await;
    let runs = mode();
    world.done("fs.set_executable", set(false)).await;

    assert_eq!(told, "run.sh has mode 0755");
    assert_eq!((runs, mode()), (0o755, 0o644));
    let lines: Vec<_> = world.changes().iter().map(line).collect();
    assert_eq!(lines, ["run.sh 100644 100755", "run.sh 100755 100644"]);
}

#[tokio::test]
async fn two_files_are_compared() {
    let world = World::new();
    world.put("a.txt", "one\ntwo\n");
    world.put("b.txt", "one\n2\n");

    let differ = world.done("fs.diff", json!({ "from": "a.txt", "to": "b.txt" })).await;
    let same = world.done("fs.diff", json!({ "from": "a.txt", "to": "a.txt" })).await;
    let unread = world.fails("fs.write", json!({ "path": "a.txt", "content": "" })).await;

    assert_eq!(differ, "--- a/a.txt\n+++ b/b.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    assert_eq!(same, "a.txt and a.txt are the same");
    assert!(unread.contains("was not read"), "{unread}");
}

#[tokio::test]
async fn an_absolute_path_below_the_root_is_as_good_as_a_relative_one() {
    let world = World::with(Setup { protected: &["tests"], ..Setup::default() });
    let path = |below: &str| world.path(below).display().to_string();

    world.done("fs.write", json!({ "path": path("a.txt"), "content": "a\n" })).await;
    let refused = world.fails("fs.write", json!({ "path": path("tests/t"), "content": "" })).await;
    let outside = world.fails("fs.write", json!({ "path": "/etc/x", "content": "" })).await;

    assert_eq!(world.content("a.txt"), "a\n");
    assert!(refused.contains(r#""tests/t" is protected by "tests""#), "{refused}");
    assert!(outside.contains("does not stay below the root"), "{outside}");
}

#[tokio::test]
async fn the_record_of_a_change_names_its_paths_before_it_is_made() {
    let world = World::new();
    let edits = json!([{ "path": "x/../a.txt", "old": "", "new": "a" }]);

    world.done("fs.multi_edit", json!({ "edits": edits })).await;
    world.done("fs.read", json!({ "path": "a.txt" })).await;

    let paths: Vec<Vec<String>> = world
        .log
        .bodies()
        .into_iter()
        .filter_map(|body| match body {
            EventBody::ToolRequested(requested) => Some(requested.paths),
            _ => None,
        })
        .collect();
    assert_eq!(paths, [vec!["a.txt".to_owned()], Vec::new()]);
}

/// Says whether a file stands beside its place and is not in it yet.
fn is_staged(world: &World) -> bool {
    let names = fs::read_dir(world.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with(".formwork-tmp-"))
}

#[tokio::test]
async fn a_call_that_is_given_up_changes_nothing_later() {
    let world = World::new();
    let write = |path: &str| Arguments::Json(json!({ "path": path, "content": "late" }));
    let staged = async |wanted: bool| {
        while is_staged(&world) != wanted {
            tokio::task::yield_now().await;
        }
    };
    // Whoever keeps the folder has the call wait right before it puts the file in place.
    let folder = fs::File::open(world.folder()).unwrap();

    folder.lock().unwrap();
    let cancel = Cancel::new();
    let give_up = async {
        staged(true).await;
        cancel.cancel();
        // The call has to hear of it before the folder is free.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        folder.unlock().unwrap();
    };
    let call = world.call_with("fs.write", write("cancelled"), &cancel);
    let (told, ()) = tokio::join!(call, give_up);
    folder.lock().unwrap();
    let cancel = Cancel::new();
    tokio::select! {
        biased;
        _ = world.call_with("fs.write", write("dropped"), &cancel) => panic!("it did not wait"),
        () = staged(true) => {}
    }
    folder.unlock().unwrap();
    staged(false).await;

    assert!(told.text.starts_with("error (cancelled): "), "{}", told.text);
    assert!(!world.path("cancelled").exists() && !world.path("dropped").exists());
}
