//! Tasks that work in a workspace of their own.

use std::path::PathBuf;

use formwork_testkit::http::Gate;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ending, ends, held},
    world::{World, on_postgres},
};

/// A task of one agent in a workspace of its own, with these lines besides.
fn task(isolation: &str, more: &str) -> String {
    format!(
        "[[tasks]]\nname = \"write\"\nagent = \"left\"\nprompt = \"Go.\"\nisolation = \"{isolation}\"\n{more}"
    )
}

fn writes(path: &str, text: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": path, "content": text }))
}

/// Returns the workspaces that tasks have of their own.
fn left(world: &World) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(world.state().join("apart"));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path().join("work")).collect()
}

async fn a_task_of_its_own(world: World) {
    world.agent("left", "one");
    for (number, isolation) in ["snapshot", "worktree"].into_iter().enumerate() {
        let made = format!("made-{number}.txt");
        world.repo.write("mine.txt", "not committed\n").unwrap();
        let main = world.path(&made).display().to_string();
        let check = format!(
            "[[tasks.postchecks]]\nname = \"apart\"\n\
             command = [\"sh\", \"-c\", \"grep -q work {made} && grep -q not mine.txt && ! test -e {main}\"]\n"
        );
        let workflow = world.workflow(&task(isolation, &check));
        let chat = World::chat("one");
        let exec = ("exec", json!({ "command": ["cp", "mine.txt", "program.txt"] }));
        world.server.reply(&chat, calls(&[writes(&made, "work\n"), exec]));
        world.server.reply(&chat, ends("It is there."));

        let ended = world.run(["run", workflow]).await;

        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(world.repo.read(&made).unwrap(), "work\n");
        assert_eq!(world.repo.read("program.txt").unwrap(), "not committed\n");
        assert_eq!(left(&world), [] as [PathBuf; 0]);
        assert_eq!(world.repo.git(&["worktree", "list"]).unwrap().trim().lines().count(), 1);
        // Its folder is gone, and so nobody goes on from the middle of it.
        let shown = world.shown().await;
        let run = shown["run"]["run"].as_str().unwrap();
        let asked = world.events("model.completed").await;
        let seq = asked.iter().rfind(|it| it["run"] == run).unwrap()["seq"].to_string();
        let forked = world.run(["runs", "fork", run, "--at", &seq]).await;
        assert_eq!(forked.code, Some(1), "{forked:#?}");
        assert!(forked.stderr.contains("at work in a workspace of its own"), "{forked:#?}");
        // What was merged is the run's, and is taken back with it.
        let undone = world.run(["undo", run]).await;
        assert_eq!(undone.code, Some(0), "{undone:#?}");
        assert!(!world.path(&made).exists() && !world.path("program.txt").exists());
        assert_eq!(world.repo.read("mine.txt").unwrap(), "not committed\n");
    }
    world.assert_sound().await;
}

#[tokio::test]
async fn what_a_task_does_in_a_workspace_of_its_own_comes_once_its_checks_have_passed() {
    a_task_of_its_own(World::new().await).await;
}

#[tokio::test]
async fn pg_what_a_task_does_in_a_workspace_of_its_own_comes_once_its_checks_have_passed() {
    on_postgres(a_task_of_its_own).await;
}

#[tokio::test]
async fn work_whose_checks_do_not_pass_stays_where_it_is_and_nothing_of_it_comes() {
    let world = World::new().await;
    world.agent("left", "one");
    let checks =
        "retries = { max = 0 }\n[[tasks.postchecks]]\nname = \"no\"\ncommand = [\"false\"]\n";
    let workflow = world.workflow(&task("snapshot", checks));
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[writes("made.txt", "work\n")]));
    world.server.reply(&chat, ends("It is there."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(!world.path("made.txt").exists());
    let [own] = &left(&world)[..] else { panic!("{:?}", left(&world)) };
    assert_eq!(std::fs::read_to_string(own.join("made.txt")).unwrap(), "work\n");
}

#[tokio::test]
async fn a_conflict_with_what_was_changed_meanwhile_is_resolved_in_the_task_before_anything_comes()
{
    let world = World::new().await;
    world.agent("left", "one");
    world.repo.write("list.txt", "one\ntwo\n").unwrap();
    world.repo.write("other.txt", "old\n").unwrap();
    let workflow = world.workflow(&task("snapshot", ""));
    let chat = World::chat("one");
    let edit =
        |old: &str, new: &str| ("fs.edit", json!({ "path": "list.txt", "old": old, "new": new }));
    let gate = Gate::new();
    world.server.reply(&chat, calls(&[edit("two", "ours"), writes("made.txt", "work\n")]));
    world.server.reply(&chat, held(&gate, &ending("It is done.")));
    let marked = "<<<<<<< this work\nours\n=======\ntheirs\n>>>>>>> the workspace";
    world.server.reply(&chat, calls(&[edit(marked, "both")]));
    world.server.reply(&chat, ends("It is done now."));

    let others = async {
        gate.reached().await;
        world.repo.write("list.txt", "one\ntheirs\n").unwrap();
        world.repo.write("other.txt", "new\n").unwrap();
        gate.open();
    };
    let run = ["run", workflow];
    let (ended, ()) = tokio::join!(world.run(run), others);

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.repo.read("list.txt").unwrap(), "one\nboth\n");
    assert_eq!(world.repo.read("other.txt").unwrap(), "new\n");
    assert_eq!(world.repo.read("made.txt").unwrap(), "work\n");
    let shown = world.shown().await;
    let verdicts = shown["checks"].as_array().unwrap().iter().map(|check| &check["verdict"]);
    let told: Vec<&str> = verdicts.map(|verdict| verdict["reason"].as_str().unwrap()).collect();
    assert!(
        told[0].contains("list.txt: both changed the same lines")
            && told[0].contains("nothing was merged"),
        "{told:?}"
    );
    assert_eq!(told[1], "2 paths merged into the workspace of the run");
}

async fn work_that_was_left_is_merged_or_given_up(world: World) {
    world.agent("left", "one");
    let checks =
        "retries = { max = 0 }\n[[tasks.postchecks]]\nname = \"no\"\ncommand = [\"false\"]\n";
    let workflow = world.workflow(&task("snapshot", checks));
    let chat = World::chat("one");
    for name in ["one.txt", "two.txt"] {
        world.server.reply(&chat, calls(&[writes(name, "work\n")]));
        world.server.reply(&chat, ends("It is there."));
        let ended = world.run(["run", workflow]).await;
        assert_eq!(ended.code, Some(2), "{ended:#?}");
    }
    // What no process made to its end is no work of a task.
    std::fs::create_dir_all(world.state().join("apart/half-made/work")).unwrap();
    let doctor = world.run(["doctor", "--offline"]).await;

    let all = world.json(["apart", "list"]).await;
    let named = |place: usize| all["apart"][place]["name"].as_str().unwrap().to_owned();
    let (first, second) = (named(0), named(1));
    let unclear = world.run(["apart", "merge", "write"]).await;
    let merged = world.json(["apart", "merge", &first]).await;
    let kept = world.run(["apart", "discard", "write"]).await;
    let given_up = world.json(["apart", "discard", "write", "--discard"]).await;

    assert!(
        doctor.stdout.contains("2 tasks have workspaces of their own; the runs of 2 are over")
            && doctor.stdout.contains("formwork apart merge NAME"),
        "{}",
        doctor.stdout
    );
    assert_eq!(all["apart"].as_array().unwrap().len(), 2, "{all:#}");
    assert_eq!(all["apart"][0]["paths"], json!(["one.txt"]));
    assert_eq!(all["apart"][0]["task"], "work/write");
    assert!(unclear.stderr.contains("several tasks have that name"), "{unclear:#?}");
    assert_eq!(merged["paths"], json!(["one.txt"]));
    assert_eq!(world.repo.read("one.txt").unwrap(), "work\n");
    assert_eq!(kept.code, Some(2), "{kept:#?}");
    assert!(kept.stderr.contains("--discard"), "{kept:#?}");
    assert_eq!((&given_up["name"], &given_up["paths"]), (&json!(second), &json!(["two.txt"])));
    assert!(!world.path("two.txt").exists());
    assert_eq!(world.json(["apart", "list"]).await["apart"], json!([]));
    // What was merged is the run's, and is taken back with it.
    let run = all["apart"][0]["run"].as_str().unwrap();
    let undone = world.json(["undo", run]).await;
    assert_eq!(undone["paths"], json!(["one.txt"]));
    assert!(!world.path("one.txt").exists());
    world.assert_sound().await;
}

#[tokio::test]
async fn work_apart_that_clashes_with_what_is_there_is_refused_as_a_gate_refuses() {
    let world = World::new().await;
    world.agent("left", "one");
    world.repo.write("list.txt", "one\ntwo\n").unwrap();
    let checks =
        "retries = { max = 0 }\n[[tasks.postchecks]]\nname = \"no\"\ncommand = [\"false\"]\n";
    let workflow = world.workflow(&task("snapshot", checks));
    let edit = ("fs.edit", json!({ "path": "list.txt", "old": "two", "new": "ours" }));
    world.server.reply(&World::chat("one"), calls(&[edit]));
    world.server.reply(&World::chat("one"), ends("It is done."));
    world.run(["run", workflow]).await;
    world.repo.write("list.txt", "one\ntheirs\n").unwrap();

    let clash = world.run(["apart", "merge", "write"]).await;

    assert_eq!(clash.code, Some(2), "{clash:#?}");
    let told = &clash.stderr;
    assert!(told.contains("cannot be merged: the workspace was changed as well"), "{told}");
    assert!(
        told.contains("hint: resolve it there and merge again, or `formwork apart discard"),
        "{told}"
    );
    assert_eq!(world.repo.read("list.txt").unwrap(), "one\ntheirs\n");
}

#[tokio::test]
async fn work_that_a_run_left_apart_is_merged_or_given_up_by_a_person() {
    work_that_was_left_is_merged_or_given_up(World::new().await).await;
}

#[tokio::test]
async fn pg_work_that_a_run_left_apart_is_merged_or_given_up_by_a_person() {
    on_postgres(work_that_was_left_is_merged_or_given_up).await;
}
