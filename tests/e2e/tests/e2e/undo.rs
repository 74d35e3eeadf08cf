//! Whoever works with uncommitted changes has them back to the byte, however a run ended.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt},
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    answers::{self, calls, ending, ends, held, says},
    crash::{marked, stuck},
    world::{Ended, World, end_of, on_postgres, pipe, signal, waits_at},
};

/// What is at each path, git's own folder included: kind and bits, and the content.
type Tree = BTreeMap<String, (u32, Vec<u8>)>;

fn tree(folder: &Path) -> Tree {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        found.insert(name, (metadata.permissions().mode(), content));
        if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Names the paths at which two trees differ.
fn differing(one: &Tree, other: &Tree) -> Vec<String> {
    let names = one.keys().chain(other.keys());
    let mut names: Vec<_> =
        names.filter(|name| one.get(*name) != other.get(*name)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

/// A repository in the midst of somebody's work: staged, unstaged, new, ignored, deleted, renamed.
async fn dirty() -> World {
    let world = World::new().await;
    let repo = &world.repo;
    for (file, text) in [
        ("src/lib.rs", "one\r\ntwo\r\n"),
        ("src/staged.rs", "committed\n"),
        ("gone.txt", "committed\n"),
        ("docs/a.md", "a\n"),
        ("docs/deep/b.md", "b\n"),
        (".gitignore", "*.log\n"),
    ] {
        repo.write(file, text).unwrap();
    }
    repo.commit("tree: a little of everything").unwrap();
    repo.write("src/lib.rs", "one\r\ntwo, mine\r\n").unwrap();
    repo.write("src/staged.rs", "staged\n").unwrap();
    repo.git(&["add", "src/staged.rs"]).unwrap();
    repo.write("src/staged.rs", "staged, and more\n").unwrap();
    fs::remove_file(world.path("gone.txt")).unwrap();
    repo.write("mine.txt", "not yet added\n").unwrap();
    repo.write("run.sh", "#!/bin/sh\n").unwrap();
    fs::set_permissions(world.path("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
    repo.write("keep.log", "ignored\n").unwrap();
    repo.write("docs/draft.log", "ignored as well\n").unwrap();
    std::os::unix::fs::symlink("mine.txt", world.path("link")).unwrap();
    fs::create_dir(world.path("empty")).unwrap();
    let script = "echo x > by-exec\necho more >> src/staged.rs\nrm link\nln -s nowhere link\nrmdir empty\n\
                  mkdir left\nchmod 755 run.sh\n";
    repo.write("work.sh", script).unwrap();
    repo.write("check.sh", "echo checked >> by-check\nfalse\n").unwrap();
    world
}

/// Every way to change something, in one answer: among them what is the user's own and not committed.
fn work() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("load_tools", json!({ "names": ["fs.move", "fs.copy", "fs.mkdir", "fs.set_executable"] })),
        ("fs.edit", json!({ "path": "src/lib.rs", "old": "one", "new": "1" })),
        ("fs.edit", json!({ "path": "src/lib.rs", "old": "1", "new": "uno" })),
        ("fs.write", json!({ "path": "new/deep/file.txt", "content": "new\n" })),
        ("fs.delete", json!({ "path": "docs", "reason": "in the way" })),
        ("fs.write", json!({ "path": "docs/a.md", "content": "another\n" })),
        ("fs.delete", json!({ "path": "keep.log", "reason": "in the way" })),
        ("fs.move", json!({ "from": "mine.txt", "to": "moved/mine.txt" })),
        ("fs.copy", json!({ "from": "run.sh", "to": "copy.sh" })),
        ("fs.mkdir", json!({ "path": "made/by" })),
        ("fs.set_executable", json!({ "path": "src/staged.rs", "executable": true })),
        ("exec", json!({ "command": ["sh", "work.sh"] })),
    ]
}

/// Writes an agent that is told of some tools by name alone.
fn agent(world: &World) {
    world.agent("worker", "one");
    let file = ".formwork/agents/worker.toml";
    let deferred = "deferred = [\"fs.move\", \"fs.copy\", \"fs.mkdir\", \"fs.set_executable\"]\n";
    let text = world.repo.read(file).unwrap() + deferred;
    world.repo.write(file, text).unwrap();
}

async fn run_of(world: &World) -> String {
    world.shown().await["run"]["run"].as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_undone(world: &World, before: &Tree, undone: &Ended) {
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(differing(before, &tree(world.repo.path())), [] as [String; 0], "{undone:#?}");
}

#[tokio::test]
async fn a_run_that_went_well_is_taken_back_to_the_byte() {
    let world = dirty().await;
    agent(&world);
    // Git refreshes its index when it is asked; from here on nobody but the run does anything.
    let status = world.repo.git(&["status", "--porcelain", "--ignored"]).unwrap();
    let before = tree(world.repo.path());
    world.server.reply(&World::chat("one"), calls(&work()));
    world.server.reply(&World::chat("one"), ends("Changed what there was."));

    let ended = world.run(["run", "-m", "Change a lot.", "--agent", "worker"]).await;
    let changed = tree(world.repo.path());
    let run = run_of(&world).await;
    let shown = world.run(["undo", &run, "--dry-run"]).await;
    let untouched = tree(world.repo.path());
    let undone = world.run(["undo", &run]).await;
    let again = world.run(["undo", &run]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.events("tool.failed").await, [] as [serde_json::Value; 0]);
    // Only what the run named has changed: all other work of the user is where it was.
    let named = differing(&before, &changed);
    let expected = [
        "",
        "by-exec",
        "copy.sh",
        "docs",
        "docs/a.md",
        "docs/deep",
        "docs/deep/b.md",
        "docs/draft.log",
        "empty",
        "keep.log",
        "left",
        "link",
        "made",
        "made/by",
        "mine.txt",
        "moved",
        "moved/mine.txt",
        "new",
        "new/deep",
        "new/deep/file.txt",
        "run.sh",
        "src/lib.rs",
        "src/staged.rs",
    ];
    let others: Vec<_> = named.iter().filter(|name| !expected.contains(&name.as_str())).collect();
    assert_eq!(others, [] as [&String; 0]);
    assert_eq!(changed["src/lib.rs"].1, b"uno\r\ntwo, mine\r\n");
    assert!(
        shown.stdout.contains("+one") && shown.stdout.contains("would take back src/lib.rs"),
        "{shown:#?}"
    );
    assert_eq!(untouched, changed);
    assert_undone(&world, &before, &undone);
    assert_eq!(world.repo.git(&["status", "--porcelain", "--ignored"]).unwrap(), status);
    assert!(again.stdout.contains("nothing of run"), "{again:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_failed_is_taken_back_to_the_byte() {
    let world = dirty().await;
    agent(&world);
    world.repo.git(&["status"]).unwrap();
    let before = tree(world.repo.path());
    world.server.reply(&World::chat("one"), calls(&work()));
    for _ in 0..8 {
        world.server.reply(&World::chat("one"), ends("Changed what there was."));
    }

    let check = "sh check.sh";
    let ended =
        world.run(["run", "-m", "Change a lot.", "--agent", "worker", "--check", check]).await;
    let run = run_of(&world).await;
    let by_check = world.path("by-check").exists();
    let undone = world.run(["undo", &run]).await;

    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(by_check);
    assert_undone(&world, &before, &undone);
}

#[tokio::test]
async fn a_run_that_was_interrupted_or_killed_is_taken_back_to_the_byte() {
    for how in [Signal::INT, Signal::KILL] {
        let world = dirty().await;
        agent(&world);
        world.repo.git(&["status"]).unwrap();
        let before = tree(world.repo.path());
        let gate = Gate::new();
        world.server.reply(&World::chat("one"), calls(&work()));
        world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));

        let program =
            world.formwork(["run", "-m", "Change a lot.", "--agent", "worker"]).spawn().unwrap();
        gate.reached().await;
        signal(&program, how);
        let ended = end_of(program).await;
        let run = run_of(&world).await;
        let undone = world.run(["undo", &run]).await;

        assert_ne!(ended.code, Some(0), "{ended:#?}");
        assert_undone(&world, &before, &undone);
    }
}

/// How a run ends that was not taken back.
#[derive(Debug, Clone, Copy)]
enum How {
    Well,
    Failed,
    Aborted,
    Signalled(Signal),
}

#[tokio::test]
async fn a_dirty_tree_is_left_as_it_was_but_for_what_the_run_named_however_it_ends() {
    let ways = [
        How::Well,
        How::Failed,
        How::Aborted,
        How::Signalled(Signal::INT),
        How::Signalled(Signal::TERM),
        How::Signalled(Signal::KILL),
    ];
    for how in ways {
        let world = dirty().await;
        world.repo.git(&["status"]).unwrap();
        let before = tree(world.repo.path());
        let calls = [
            ("fs.write", json!({ "path": "made.txt", "content": "made\n" })),
            ("git", json!({ "arguments": ["status"] })),
            ("git", json!({ "arguments": ["diff", "HEAD"] })),
            ("exec", json!({ "command": ["git", "status"] })),
            ("exec", json!({ "command": ["sh", "-c", "cat src/*.rs > /dev/null"] })),
        ];
        world.server.reply(&World::chat("one"), answers::calls(&calls));
        let gate = Gate::new();
        match how {
            How::Well => world.server.reply(&World::chat("one"), ends("Made it.")),
            How::Failed => (0..8).for_each(|_| {
                world.server.reply(&World::chat("one"), ends("Made it."));
            }),
            How::Aborted | How::Signalled(_) => {
                world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));
            }
        }
        let check = if matches!(how, How::Failed) { "test -e no-such" } else { "test -e made.txt" };

        let program = world.formwork(["run", "-m", "Make it.", "--check", check]).spawn().unwrap();
        match how {
            How::Well | How::Failed => {}
            How::Aborted => {
                gate.reached().await;
                let aborted = world.run(["runs", "abort", &run_of(&world).await]).await;
                assert_eq!(aborted.code, Some(0), "{aborted:#?}");
            }
            How::Signalled(with) => {
                gate.reached().await;
                signal(&program, with);
            }
        }
        let ended = end_of(program).await;

        assert_eq!(ended.code == Some(0), matches!(how, How::Well), "{how:?}: {ended:#?}");
        assert_eq!(differing(&before, &tree(world.repo.path())), ["made.txt"], "{how:?}");
    }
}

#[tokio::test]
async fn what_a_program_had_written_when_all_was_killed_is_taken_back_as_well() {
    for resumed in [false, true] {
        let world = World::new().await;
        let workflow = stuck(&world);
        let before = tree(world.repo.path());
        world.server.reply(&World::chat("one"), ends("It had run."));

        let program = world.formwork(["run", workflow]).spawn().unwrap();
        marked(&world).await;
        signal(&program, Signal::KILL);
        end_of(program).await;
        if resumed {
            let resumed = world.run(["runs", "resume"]).await;
            assert_eq!(resumed.code, Some(0), "{resumed:#?}");
        }
        let run = run_of(&world).await;
        let undone = world.run(["undo", &run]).await;

        assert_undone(&world, &before, &undone);
    }
}

#[tokio::test]
async fn what_somebody_changed_since_is_not_taken_back_unless_told() {
    let world = World::new().await;
    world.repo.write("a.txt", "old\n").unwrap();
    world.repo.write("b.txt", "old\n").unwrap();
    let edit = |path: &str| ("fs.edit", json!({ "path": path, "old": "old", "new": "new" }));
    world.server.reply(&World::chat("one"), calls(&[edit("a.txt"), edit("b.txt")]));
    world.server.reply(&World::chat("one"), ends("Both are new."));

    world.run(["run", "-m", "Change both."]).await;
    world.repo.write("a.txt", "mine\n").unwrap();
    world.repo.write("other.txt", "mine\n").unwrap();
    let run = run_of(&world).await;
    let refused = world.run(["undo", &run]).await;
    let kept = (world.repo.read("a.txt").unwrap(), world.repo.read("b.txt").unwrap());
    let forced = world.run(["undo", &run, "--force"]).await;

    assert_eq!(refused.code, Some(2), "{refused:#?}");
    assert!(refused.stderr.contains("-new") && refused.stderr.contains("+mine"), "{refused:#?}");
    assert!(refused.stderr.contains("--force"), "{refused:#?}");
    assert_eq!(kept, ("mine\n".to_owned(), "new\n".to_owned()));
    assert_eq!(forced.code, Some(0), "{forced:#?}");
    assert_eq!(world.repo.read("a.txt").unwrap(), "old\n");
    assert_eq!(world.repo.read("other.txt").unwrap(), "mine\n");
}

#[tokio::test]
async fn a_run_is_taken_back_to_one_of_its_steps() {
    let world = World::new().await;
    // A run before it, so that the places in the run and in the log differ.
    world.server.reply(&World::chat("one"), ends("Nothing to do."));
    world.run(["ask", "What is there to count?"]).await;
    world.repo.write("a.txt", "1\n").unwrap();
    let edit =
        |old: &str, new: &str| ("fs.edit", json!({ "path": "a.txt", "old": old, "new": new }));
    let all = [edit("1", "2"), edit("2", "3"), edit("3", "4")];
    world.server.reply(&World::chat("one"), calls(&all));
    world.server.reply(&World::chat("one"), ends("Counted to four."));

    world.run(["run", "-m", "Count."]).await;
    let run = run_of(&world).await;
    let changes = world.events("file.changed").await;
    let beyond = world.run(["undo", &run, "--to", "9999"]).await;
    let foreign = world.run(["undo", &run, "--to", "@1"]).await;
    let to = changes[1]["seq"].to_string();
    let first = world.run(["undo", &run, "--to", &to]).await;
    let third = world.repo.read("a.txt").unwrap();
    let to = format!("@{}", changes[0]["position"]);
    let undone = world.run(["undo", &run, "--to", &to]).await;
    let step = world.repo.read("a.txt").unwrap();
    let listed = world.run(["events", &run, "--kind", "file.changed"]).await;
    world.run(["undo", &run]).await;

    assert!(beyond.stderr.contains("events, and no event 9999"), "{beyond:#?}");
    assert!(foreign.stderr.contains("no event of it is at @1 of the log"), "{foreign:#?}");
    assert_eq!((first.code, third.as_str()), (Some(0), "3\n"), "{first:#?}");
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(step, "2\n");
    // Of one run each event is shown with its place there, which fork and rewind take, and with that in the log.
    let places: Vec<_> = listed.stdout.lines().map(|it| it.split_whitespace().take(2)).collect();
    let places: Vec<Vec<&str>> = places.into_iter().map(Iterator::collect).collect();
    let wanted: Vec<_> = changes
        .iter()
        .map(|it| vec![it["seq"].to_string(), format!("@{}", it["position"])])
        .collect();
    assert_eq!(&places[..3], &wanted[..]);
    assert_eq!(world.repo.read("a.txt").unwrap(), "1\n");
}

#[tokio::test]
async fn a_folder_that_a_run_made_is_gone_whatever_became_of_what_was_in_it() {
    let world = World::new().await;
    let write = |path: &str| ("fs.write", json!({ "path": path, "content": "x" }));
    let exec = |command: &[&str]| ("exec", json!({ "command": command }));
    world.repo.write("there/one", "1\n").unwrap();
    let before = tree(world.repo.path());
    let all = [
        write("neu/deep/n.txt"),
        ("fs.delete", json!({ "path": "neu/deep/n.txt", "reason": "not wanted" })),
        write("gone/n.txt"),
        exec(&["rm", "gone/n.txt"]),
        write("moved/n.txt"),
        exec(&["mv", "moved", "moved2"]),
        write("whole/n.txt"),
        ("fs.delete", json!({ "path": "whole", "reason": "not wanted" })),
        write("there/two"),
        exec(&["rm", "-r", "there"]),
    ];
    world.server.reply(&World::chat("one"), calls(&all));
    world.server.reply(&World::chat("one"), ends("Made and taken away."));

    let ended = world.run(["run", "-m", "Make and take away."]).await;
    let run = run_of(&world).await;
    let undone = world.run(["undo", &run]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_undone(&world, &before, &undone);
}

#[tokio::test]
async fn a_program_that_changes_more_files_than_are_told_one_by_one_is_told_as_such() {
    let world = World::new().await;
    world.repo.write("many.sh", "seq 1 1003 | sed s/^/f/ | xargs touch\n").unwrap();
    let exec = ("exec", json!({ "command": ["sh", "many.sh"] }));
    world.server.reply(&World::chat("one"), calls(&[exec]));
    world.server.reply(&World::chat("one"), ends("Made."));

    let ended = world.run(["run", "-m", "Make many."]).await;
    let json = world.json(["runs", "list"]).await;
    let shown = world.run(["runs", "show"]).await;
    let run = run_of(&world).await;
    let undone = world.run(["undo", &run, "--dry-run"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains(" · 1000 and more files changed · "), "{}", ended.stdout);
    let row = &json["runs"][0];
    assert_eq!((&row["files_changed"], &row["more_files"]), (&json!(1_000), &json!(true)));
    assert!(shown.stdout.contains("1000 and more files"), "{}", shown.stdout);
    // The snapshots around the program have all.
    let taken = undone.stdout.lines().filter(|line| line.starts_with("would take back f")).count();
    assert_eq!(taken, 1_003);
    let told = world.events("workspace.snapshot").await;
    assert!(told.iter().any(|event| event["data"]["untold"] == 3), "{told:#?}");
    assert_eq!(world.events("file.changed").await.len(), 1_000);
}

#[tokio::test]
async fn a_run_that_somebody_works_on_is_not_taken_back() {
    let world = World::new().await;
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));

    let program = world.formwork(["run", "-m", "Think."]).spawn().unwrap();
    gate.reached().await;
    let run = run_of(&world).await;
    let refused = world.run(["undo", &run]).await;
    drop(program);

    assert_eq!(refused.code, Some(3), "{refused:#?}");
    assert!(refused.stderr.contains("is owned by"), "{refused:#?}");
}

#[tokio::test]
async fn behaviour_27_what_was_deleted_is_listed_restored_and_removed_for_good() {
    let world = World::new().await;
    let delete = |path: &str| ("fs.delete", json!({ "path": path, "reason": "it is old" }));
    world.repo.write("a.txt", "a\n").unwrap();
    world.repo.write("d/b.txt", "b\n").unwrap();
    world.server.reply(&World::chat("one"), calls(&[delete("a.txt"), delete("d")]));
    world.server.reply(&World::chat("one"), says("Both are gone."));
    world.server.reply(&World::chat("one"), ends("Both are gone."));

    world.run(["run", "-m", "Delete both."]).await;
    let listed = world.json(["trash", "list"]).await;
    let ids: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let shown = world.run(["trash", "list"]).await;
    let restored = world.run(["trash", "restore", ids[1]]).await;
    let again = world.run(["trash", "restore", ids[1]]).await;
    let purged = world.run(["trash", "purge", ids[0]]).await;
    let empty = world.run(["trash", "list"]).await;

    assert_eq!(ids.len(), 2);
    assert!(shown.stdout.contains("a.txt") && shown.stdout.contains("it is old"), "{shown:#?}");
    assert_eq!(restored.stdout, "restored folder d\n", "{restored:#?}");
    assert_eq!(world.repo.read("d/b.txt").unwrap(), "b\n");
    assert_eq!(again.code, Some(3), "{again:#?}");
    assert_eq!(purged.stdout, "removed 1 entry for good\n", "{purged:#?}");
    assert_eq!(empty.stdout, "the trash is empty\n", "{empty:#?}");
}

#[tokio::test]
async fn a_folder_that_a_program_replaced_by_a_link_out_is_taken_back_and_one_of_somebody_else_is_named()
 {
    let world = World::with("[permissions]\nmode = \"auto\"\n").await;
    let outside = world.path("..").canonicalize().unwrap();
    world.repo.write("dir/f", "kept\n").unwrap();
    world.repo.write("other/f", "kept\n").unwrap();
    let script = format!("rm -r dir\nln -s {} dir\necho new > other/f\n", outside.display());
    world.repo.write("link.sh", &script).unwrap();
    let before = tree(world.repo.path());
    world
        .server
        .reply(&World::chat("one"), calls(&[("exec", json!({ "command": ["sh", "link.sh"] }))]));
    world.server.reply(&World::chat("one"), ends("Linked."));

    let ended = world.run(["run", "-m", "Link it."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(world.path("dir").is_symlink(), "{ended:#?}");
    let run = run_of(&world).await;
    fs::rename(world.path("other"), world.path("moved")).unwrap();
    std::os::unix::fs::symlink(&outside, world.path("other")).unwrap();
    let undone = world.run(["undo", &run, "--force"]).await;
    assert!(undone.stderr.contains("other/f") || undone.stdout.contains("other/f"), "{undone:#?}");
    assert_eq!(world.repo.read("dir/f").unwrap(), "kept\n");
    fs::remove_file(world.path("other")).unwrap();
    fs::rename(world.path("moved"), world.path("other")).unwrap();
    let undone = world.run(["undo", &run]).await;
    assert_undone(&world, &before, &undone);
}

#[tokio::test]
async fn a_large_file_that_was_deleted_comes_back_from_the_trash_or_is_told_as_left() {
    let world = World::new().await;
    world.agent("worker", "one");
    let len = (256 << 20) + 1;
    for name in ["kept.bin", "purged.bin"] {
        let file = fs::File::create(world.path(name)).unwrap();
        file.set_len(len).unwrap();
    }
    let delete = |path: &str| ("fs.delete", json!({ "path": path, "reason": "large" }));
    world.server.reply(&World::chat("one"), calls(&[delete("kept.bin"), delete("purged.bin")]));
    world.server.reply(&World::chat("one"), ends("Gone."));
    let ended = world.run(["run", "-m", "Delete them.", "--agent", "worker"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let trash = world.json(["trash", "list"]).await;
    let entries = trash["entries"].as_array().unwrap();
    let purged = entries.iter().find(|entry| entry["path"] == "purged.bin").unwrap();
    world.run(["trash", "purge", purged["id"].as_str().unwrap()]).await;

    let undone = world.run(["undo", &run_of(&world).await, "--json"]).await.json();

    assert_eq!(undone["paths"], json!(["kept.bin"]), "{undone:#}");
    assert_eq!(undone["left"][0]["path"], "purged.bin", "{undone:#}");
    assert_eq!(fs::metadata(world.path("kept.bin")).unwrap().len(), len);
    assert!(!world.path("purged.bin").exists());
    let changed = world.events("file.changed").await;
    let back = changed.iter().filter(|event| event["data"]["call"].is_null());
    let back: Vec<_> = back.map(|event| event["data"]["path"].clone()).collect();
    assert_eq!(back, ["kept.bin"]);
    assert_eq!(world.events("run.undone").await.len(), 0);
}

#[tokio::test]
async fn what_a_dead_process_was_writing_is_gone_with_what_is_taken_back() {
    let world = World::new().await;
    world.server.reply(
        &World::chat("one"),
        calls(&[("fs.write", json!({ "path": "deep/new.txt", "content": "new\n" }))]),
    );
    world.server.reply(&World::chat("one"), ends("Written."));
    let ended = world.run(["run", "-m", "Write it."]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = format!("deep/.formwork-tmp-{}-0", dead.id());
    world.repo.write(&left, "half").unwrap();

    let undone = world.run(["undo", &run_of(&world).await]).await;

    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(!world.path("deep").exists(), "{undone:#?}");
}

#[tokio::test]
async fn no_run_begins_in_a_workspace_whose_path_the_log_cannot_hold() {
    use std::os::unix::ffi::OsStrExt as _;

    let world = World::new().await;
    let odd = world.path(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();

    let arguments =
        ["-C".as_ref(), odd.as_os_str(), "run".as_ref(), "-m".as_ref(), "Do it.".as_ref()];
    let refused = world.run(arguments).await;

    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("is not UTF-8"), "{refused:#?}");
    assert_eq!(world.server.requests().len(), 0);
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
}

#[tokio::test]
async fn a_program_that_leaves_a_large_file_hides_nothing_of_what_it_did() {
    let world = World::new().await;
    agent(&world);
    world.repo.write("mine.txt", "not yet added\n").unwrap();
    world.repo.write("a.txt", "one\n").unwrap();
    let script = "truncate -s 40M big; echo other > a.txt; rm mine.txt";
    world
        .server
        .reply(&World::chat("one"), calls(&[("exec", json!({ "command": ["sh", "work.sh"] }))]));
    world.repo.write("work.sh", script).unwrap();
    world.server.reply(&World::chat("one"), ends("Done."));

    let ended = world.run(["run", "-m", "Work.", "--agent", "worker"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("3 files changed"), "{ended:#?}");
    // A run begins where such a file is.
    world.server.reply(&World::chat("one"), ends("Nothing to do."));
    let next = world.run(["run", "-m", "Look.", "--agent", "worker"]).await;
    assert_eq!(next.code, Some(0), "{next:#?}");
    let run = world.json(["runs", "list"]).await["runs"][1]["run"].as_str().unwrap().to_owned();
    let undone = world.run(["undo", &run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(!world.path("big").exists());
    assert_eq!(world.repo.read("mine.txt").unwrap(), "not yet added\n");
    assert_eq!(world.repo.read("a.txt").unwrap(), "one\n");
}

#[tokio::test]
async fn a_run_whose_workspace_was_moved_is_told_of_with_the_folder_that_was() {
    let world = World::new().await;
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));
    let was = world.repo.path().canonicalize().unwrap();
    let there = was.with_file_name("moved-elsewhere");

    let program = world.formwork(["run", "-m", "Work."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let run = run_of(&world).await;
    let there_flag = there.display().to_string();
    std::fs::rename(&was, &there).unwrap();
    // The tests' programs are begun in the folder of the repository.
    std::fs::create_dir(&was).unwrap();
    let beside = world.run(["undo", &run, "-C", &there_flag]).await;
    let from = async |arguments: &[&str]| {
        let mut command = world.formwork(arguments.iter().chain(&["-C", there_flag.as_str()]));
        command.current_dir(&there);
        std::fs::remove_dir(&was).unwrap();
        let ended = end_of(command.spawn().unwrap()).await;
        std::fs::create_dir(&was).unwrap();
        ended
    };
    let undo = from(&["undo", &run]).await;
    let resume = from(&["runs", "resume", &run]).await;
    let unnamed = from(&["runs", "resume"]).await;
    std::fs::remove_dir(&was).unwrap();
    std::fs::rename(&there, &was).unwrap();

    assert!(beside.stderr.contains("or pass -C "), "{beside:#?}");
    let was = was.display();
    for ended in [&undo, &resume] {
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        let told =
            format!("run {run} belongs to the workspace {was}, which is not there any more\n");
        assert!(ended.stderr.contains(&told), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("move that back to {was}")), "{ended:#?}");
    }
    let told = format!("run {run} waits in {was}, which is not there any more");
    assert!(unnamed.stderr.contains(&told), "{unnamed:#?}");
}

#[tokio::test]
async fn what_was_committed_stays_when_a_run_is_taken_back_and_is_named() {
    let world = World::new().await;
    let write = ("fs.write", json!({ "path": "made.txt", "content": "made\n" }));
    world.server.reply(&World::chat("one"), calls(&[write]));
    world.server.reply(&World::chat("one"), ends("It is made."));

    let ended = world.run(["run", "-m", "Make it.", "--commit"]).await;
    let run = run_of(&world).await;
    let shown = world.run(["undo", &run, "--dry-run"]).await;
    let undone = world.run(["undo", &run]).await;
    let again = world.json(["undo", &run]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(!world.path("made.txt").exists());
    let head = world.repo.git(&["rev-parse", "HEAD"]).unwrap().trim().to_owned();
    let told = format!("commit {} stays: ", &head[..12]);
    assert!(shown.stdout.contains(&told) && undone.stdout.contains(&told), "{undone:#?}");
    assert_eq!(again["commits"], json!([head]));
}

#[tokio::test]
async fn what_cannot_be_read_or_gone_back_to_is_told_by_its_own_words() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), ends("Nothing to do."));
    world.run(["run", "-m", "Work."]).await;
    let run = run_of(&world).await;

    let rewound = world.run(["runs", "rewind", &run, "--to", "9999"]).await;
    let forked = world.run(["runs", "fork", &run, "--at", "9999"]).await;
    let imported = world.run(["runs", "import", "no-such.jsonl"]).await;

    assert!(rewound.stderr.contains("cannot be rewound there: it has "), "{rewound:#?}");
    assert!(forked.stderr.contains("cannot be forked there: it has "), "{forked:#?}");
    assert_eq!(imported.code, Some(3), "{imported:#?}");
    let told = &imported.stderr;
    assert!(
        told.contains("cannot read ") && told.contains("/no-such.jsonl: No such file"),
        "{told}"
    );
}

/// A task by command that may write below `src`, waits, and writes there; it tries to write beside it as well.
fn waiting(world: &World) -> &'static str {
    world.repo.write("src/a.txt", "one\n").unwrap();
    world.repo.write("notes.txt", "first\n").unwrap();
    world.repo.commit("tree: what there is").unwrap();
    pipe(world, "go");
    let script = "read go < go; echo two > src/a.txt; echo x > beside.txt; true";
    world.workflow(&format!(
        "[[tasks]]\nname = \"work\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\nwrite_paths = [\"src/**\"]\n"
    ))
}

/// Goes on with one's own work: changes a file and makes one.
fn types(world: &World) {
    world.repo.write("notes.txt", "first\nsecond, mine\n").unwrap();
    world.repo.write("mine.txt", "mine\n").unwrap();
}

fn typed(world: &World) -> [String; 2] {
    ["notes.txt", "mine.txt"].map(|file| world.repo.read(file).unwrap())
}

const TYPED: [&str; 2] = ["first\nsecond, mine\n", "mine\n"];

#[tokio::test]
async fn what_a_person_writes_while_a_confined_program_runs_is_neither_committed_nor_taken_back() {
    let world = World::new().await;
    let workflow = waiting(&world);

    let program = world.formwork(["run", workflow, "--sandbox", "on", "--commit"]).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    types(&world);
    drop(go);
    let ended = end_of(program).await;
    let committed = world.repo.git(&["show", "--format=%s", "--name-only", "HEAD"]).unwrap();
    let undone = world.run(["undo", &run_of(&world).await]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.path("beside.txt").exists(), "{ended:#?}");
    assert!(ended.last_line().contains("1 file changed"), "{ended:#?}");
    assert_eq!(committed.trim(), "work\n\nsrc/a.txt");
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(undone.stdout.contains("took back src/a.txt\n"), "{undone:#?}");
    assert_eq!(world.repo.read("src/a.txt").unwrap(), "one\n");
    assert_eq!(typed(&world), TYPED, "{undone:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_check_of_a_run_that_only_looks_has_changed_nothing_whatever_differs_around_it() {
    let world = World::with("[permissions]\nmode = \"ask\"\n").await;
    waiting(&world);
    world.agent("left", "one");
    world.server.reply(&World::chat("one"), ends("Looked."));
    world.repo.write("check.sh", "read go < go\ntrue\n").unwrap();
    let workflow = world.workflow(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nretries = { max = 0 }\n\
         postchecks = [{ command = [\"sh\", \"check.sh\"] }]\n",
    );

    let program = world.formwork(["run", workflow, "--sandbox", "on"]).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    types(&world);
    drop(go);
    let ended = end_of(program).await;
    let undone = world.run(["undo", &run_of(&world).await]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.events("file.changed").await, [] as [serde_json::Value; 0]);
    assert!(undone.stdout.contains("nothing of run"), "{undone:#?}");
    assert_eq!(typed(&world), TYPED);
}

#[tokio::test]
async fn what_is_known_from_around_a_program_alone_is_in_the_trash_once_it_is_taken_back() {
    let world = World::new().await;
    let workflow = waiting(&world);

    let program = world.formwork(["run", workflow, "--sandbox", "off"]).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    types(&world);
    drop(go);
    let ended = end_of(program).await;
    let run = run_of(&world).await;
    let shown = world.run(["undo", &run, "--dry-run"]).await;
    let undone = world.run(["undo", &run]).await;
    let taken_back = (world.path("mine.txt").exists(), world.repo.read("notes.txt").unwrap());
    let listed = world.json(["trash", "list"]).await;
    let entries = listed["entries"].as_array().unwrap();
    let id = |path: &str| {
        let entry = entries.iter().find(|entry| entry["path"] == path).unwrap();
        entry["id"].as_str().unwrap().to_owned()
    };
    let restored = world.run(["trash", "restore", &id("mine.txt")]).await;
    let in_the_way = world.run(["trash", "restore", &id("notes.txt")]).await;
    fs::remove_file(world.path("notes.txt")).unwrap();
    world.run(["trash", "restore", &id("notes.txt")]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(shown.stdout.contains("what is at mine.txt now would go to the trash"), "{shown:#?}");
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(taken_back, (false, "first\n".to_owned()));
    let told = format!("what was at mine.txt is in the trash: {}\n", id("mine.txt"));
    assert!(undone.stdout.contains(&told), "{undone:#?}");
    assert!(undone.stdout.contains("formwork trash restore ID"), "{undone:#?}");
    assert_eq!((restored.code, in_the_way.code), (Some(0), Some(3)), "{in_the_way:#?}");
    assert_eq!(typed(&world), TYPED);
    world.assert_sound().await;
}

/// Begins the run of a task whose check writes, says so and does not end, and kills it there. Once `again` is there, the
/// check ends.
async fn killed_in_a_check(world: &World, rules: &str, sandbox: &str) -> Ended {
    world.repo.write("src/a.txt", "one\n").unwrap();
    world.repo.write("notes.txt", "first\n").unwrap();
    let script =
        "echo checked >> src/by-check\n[ -e again ] || { read go < go; exec sleep 1000; }\n";
    world.repo.write("check.sh", script).unwrap();
    world.repo.commit("tree: what there is").unwrap();
    pipe(world, "go");
    world.agent("worker", "one");
    world.server.reply(&World::chat("one"), ends("Done."));
    let workflow = world.workflow(&format!(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Go.\"\n{rules}\n\
         postchecks = [{{ command = [\"sh\", \"check.sh\"] }}]\n"
    ));
    let asked = ["run", workflow, "--sandbox", sandbox, "--commit"];
    let program = world.formwork(asked).spawn().unwrap();
    let go = waits_at(world, "go").await;
    signal(&program, Signal::KILL);
    drop(go);
    end_of(program).await
}

#[tokio::test]
async fn what_a_person_writes_after_a_kill_is_theirs_where_the_program_could_not_write() {
    for resumed in [false, true] {
        let world = World::new().await;
        killed_in_a_check(&world, "write_paths = [\"src/**\"]", "on").await;
        types(&world);
        world.repo.write("docs/d.md", "mine\n").unwrap();
        if resumed {
            world.repo.write("again", "").unwrap();
            let resumed = world.run(["runs", "resume"]).await;
            assert_eq!(resumed.code, Some(0), "{resumed:#?}");
            let committed = world.repo.git(&["show", "--format=%s", "--name-only", "HEAD"]);
            assert_eq!(committed.unwrap().trim(), "work\n\nsrc/by-check", "{resumed:#?}");
        }
        let undone = world.run(["undo", &run_of(&world).await]).await;

        assert_eq!(undone.code, Some(0), "{undone:#?}");
        let (taken, rest) = undone.stdout.split_once('\n').unwrap();
        assert_eq!(taken, "took back src/by-check", "{undone:#?}");
        assert!(!rest.contains("took back"), "{undone:#?}");
        assert!(rest.contains("what was at src/by-check is in the trash"), "{undone:#?}");
        assert!(!world.path("src/by-check").exists());
        assert_eq!(typed(&world), TYPED, "{undone:#?}");
        assert_eq!(world.repo.read("docs/d.md").unwrap(), "mine\n");
        world.assert_sound().await;
    }
}

/// Writes a file as somebody does who comes long after the kill: the clock of the file system has moved on, and the mark of
/// the run is as old as what the run wrote last.
fn comes_later(world: &World, run: &str, file: &str) {
    let changed = |file: &str| {
        let found = world.path(file).metadata().unwrap();
        Duration::new(found.ctime().try_into().unwrap(), found.ctime_nsec().try_into().unwrap())
    };
    let last = changed("src/by-check");
    loop {
        world.repo.write(file, "mine\n").unwrap();
        if changed(file) > last {
            break;
        }
    }
    let mark = fs::File::options().write(true).open(world.state().join("working").join(run));
    // What follows for three seconds is taken for the run's: it is ended once it is noticed that nobody waits for it.
    mark.unwrap().set_modified(UNIX_EPOCH + last - Duration::from_secs(3)).unwrap();
}

#[tokio::test]
async fn what_came_long_after_a_kill_is_a_conflict_to_undo_and_is_not_committed() {
    for resumed in [false, true] {
        let world = World::new().await;
        killed_in_a_check(&world, "", "off").await;
        let run = run_of(&world).await;
        comes_later(&world, &run, "src/chapter.txt");
        if resumed {
            world.repo.write("again", "").unwrap();
            let resumed = world.run(["runs", "resume"]).await;
            assert_eq!(resumed.code, Some(0), "{resumed:#?}");
            let committed = world.repo.git(&["show", "--format=%s", "--name-only", "HEAD"]);
            assert_eq!(committed.unwrap().trim(), "work\n\nsrc/by-check", "{resumed:#?}");
            let left = "left out src/chapter.txt: it was changed after the process had ended";
            assert!(resumed.stdout.contains(left), "{resumed:#?}");
        }
        let refused = world.run(["undo", &run]).await;
        let again = world.run(["undo", &run]).await;
        let kept = world.repo.read("src/chapter.txt").unwrap();
        fs::rename(world.path("src/chapter.txt"), world.path("elsewhere.txt")).unwrap();
        if resumed {
            fs::remove_file(world.path("again")).unwrap();
        }
        let undone = world.run(["undo", &run]).await;

        for refused in [refused, again] {
            assert_eq!(refused.code, Some(2), "{refused:#?}");
            let told = "src/chapter.txt: changed after the process had ended";
            assert!(refused.stderr.contains(told), "{refused:#?}");
        }
        assert_eq!(kept, "mine\n");
        // Out of the way, it is in nobody's.
        assert_eq!(undone.code, Some(0), "{undone:#?}");
        assert!(!world.path("src/by-check").exists(), "{undone:#?}");
        assert_eq!(world.repo.read("elsewhere.txt").unwrap(), "mine\n");
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn behaviour_61_two_runs_at_once_neither_mix_nor_hide_each_others_changes() {
    let world = World::new().await;
    let workflow = waiting(&world);
    let write = json!({ "path": "b.txt", "content": "by the other\n" });
    world.server.reply(&World::chat("one"), calls(&[("fs.write", write)]));
    world.server.reply(&World::chat("one"), ends("Written."));

    let program = world.formwork(["run", workflow, "--sandbox", "on"]).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    let one = run_of(&world).await;
    let beside = world.run(["run", "-m", "Write it.", "--sandbox", "on", "--commit"]).await;
    let other = run_of(&world).await;
    drop(go);
    let ended = end_of(program).await;
    let committed = world.repo.git(&["show", "--format=%s", "--name-only", "HEAD"]).unwrap();
    let one = world.run(["undo", &one]).await;
    let hidden = world.path("b.txt").exists();
    let other = world.run(["undo", &other]).await;

    assert_eq!((ended.code, beside.code), (Some(0), Some(0)), "{ended:#?}{beside:#?}");
    assert!(ended.last_line().contains("1 file changed"), "{ended:#?}");
    assert!(beside.last_line().contains("1 file changed"), "{beside:#?}");
    assert_eq!(committed.trim(), "Write it.\n\nb.txt");
    assert!(one.stdout.starts_with("took back src/a.txt\nwhat was"), "{one:#?}");
    assert!(hidden, "{one:#?}");
    assert!(other.stdout.starts_with("took back b.txt\ncommit "), "{other:#?}");
    assert_eq!(other.stdout.lines().count(), 2, "{other:#?}");
    assert!(!world.path("b.txt").exists());
}

async fn each_of_two_tasks_is_judged_by_its_own(world: World) {
    pipe(&world, "go");
    world.repo.write("a/kept.txt", "a\n").unwrap();
    world.repo.write("b/kept.txt", "b\n").unwrap();
    world.repo.write("b/lib.rs", "pub fn f() {}\n").unwrap();
    world.agent("judge", "two");
    world.server.reply(&World::chat("two"), says(r#"{"verdict": "pass", "issues": []}"#));
    // The first is judged after the second and the person have written.
    let workflow = world.workflow(
        "[[tasks]]\nname = \"a\"\nwrite_paths = [\"a/**\"]\n\
         command = [\"sh\", \"-c\", \"echo new > a/new.txt; read go < go; true\"]\n\
         [[tasks.postchecks]]\nno_new_files_outside = [\"a/**\"]\n\
         [[tasks.postchecks]]\ndiff = { max_files = 1 }\n\
         [[tasks.postchecks]]\nconstraint = \"no_removed_exports\"\n\
         [[tasks.postchecks]]\nagent = \"judge\"\nprompt = \"Judge it.\"\n\
         [[tasks]]\nname = \"b\"\nwrite_paths = [\"b/**\"]\n\
         command = [\"sh\", \"-c\", \"rm b/lib.rs; echo new > b/new.txt\"]\n",
    );

    let program = world.formwork(["run", workflow, "--sandbox", "on"]).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    while !world.path("b/new.txt").exists() {
        tokio::task::yield_now().await;
    }
    world.repo.write("mine.txt", "mine\n").unwrap();
    drop(go);
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let asked = world.server.requests().pop().unwrap().text();
    assert!(asked.contains("a/new.txt"), "{asked}");
    assert!(!asked.contains("b/new.txt") && !asked.contains("mine.txt"), "{asked}");
}

#[tokio::test]
async fn a_task_is_not_judged_by_what_it_could_not_write() {
    each_of_two_tasks_is_judged_by_its_own(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_is_not_judged_by_what_it_could_not_write() {
    on_postgres(each_of_two_tasks_is_judged_by_its_own).await;
}

#[tokio::test]
async fn settings_of_git_that_start_nothing_are_a_persons_to_change_while_a_run_works() {
    for (name, value, code) in [
        ("user.name", "zoe", 0),
        ("remote.o.url", "../o", 0),
        ("core.editor", "vim", 0),
        ("core.fsmonitor", "./evil", 2),
    ] {
        let world = World::new().await;
        let workflow = waiting(&world);

        let program = world.formwork(["run", workflow, "--sandbox", "on"]).spawn().unwrap();
        let go = waits_at(&world, "go").await;
        world.repo.git(&["config", name, value]).unwrap();
        drop(go);
        let ended = end_of(program).await;

        assert_eq!(ended.code, Some(code), "{name}: {ended:#?}");
    }
}
