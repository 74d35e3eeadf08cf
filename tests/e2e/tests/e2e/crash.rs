//! A process killed in the middle of a run, and another that takes the run up.

use std::path::Path;

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    answers::{calls, ending, ends, held},
    workflow::{states, three, work},
    world::{World, end_of, on_postgres, signal},
};

/// What a program does that does not end by itself: it leaves a mark, says that it has, and waits.
const STUCK: &str =
    "echo done >> stuck.marks\necho $$ > stuck.pid\necho up > up\nexec sleep 1000\n";

/// Prepares a task whose one call is a program that does not end by itself.
pub(crate) fn stuck(world: &World) -> &'static str {
    world.repo.write("stuck.sh", STUCK).unwrap();
    let made = std::process::Command::new("mkfifo").arg(world.path("up")).status().unwrap();
    assert!(made.success());
    world.agent("worker", "one");
    let call = ("exec", json!({ "command": ["sh", "stuck.sh"] }));
    world.server.reply(&World::chat("one"), calls(&[call]));
    world.workflow(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Run stuck.sh.\"\n\
         postchecks = [{ command = [\"grep\", \"-qx\", \"done\", \"stuck.marks\"] }]\n",
    )
}

/// Waits until the program that does not end by itself has left its mark.
pub(crate) async fn marked(world: &World) {
    let pipe = world.path("up");
    let said = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap());
    assert_eq!(said.await.unwrap(), "up\n");
}

/// Tells whether the program that does not end by itself still runs.
pub(crate) fn is_running(world: &World) -> bool {
    let pid = world.repo.read("stuck.pid").unwrap();
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    // One that was killed and not yet waited for is a zombie.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

async fn killed_while_the_models_think(world: World) {
    let workflow = three(&world);
    let (left, right) = (Gate::new(), Gate::new());
    for (provider, name, gate) in [("one", "left", &left), ("two", "right", &right)] {
        world.server.reply(&World::chat(provider), calls(&work(name, name)));
        world.server.reply(&World::chat(provider), held(gate, &ending("never heard")));
        world.server.reply(&World::chat(provider), ends(&name.to_uppercase()));
    }
    world.server.reply(&World::chat("three"), calls(&work("both", "left right")));
    world.server.reply(&World::chat("three"), ends("BOTH"));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    left.reached().await;
    right.reached().await;
    signal(&program, Signal::KILL);
    let killed = end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(killed.code, None, "{killed:#?}");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert!(resumed.last_line().starts_with("completed"), "{resumed:#?}");
    let shown = world.shown().await;
    assert_eq!(
        states(&shown),
        [
            ("work", "completed"),
            ("left", "completed"),
            ("right", "completed"),
            ("both", "completed")
        ]
    );
    for name in ["left", "right", "both"] {
        assert_eq!(world.repo.read(format!("{name}.marks")).unwrap(), "done\n", "{name}");
    }
    let last = world.server.requests().pop().unwrap();
    assert!(last.text().contains("Put LEFT and RIGHT together."), "{}", last.text());
    // What was on its way when the process died is known to have failed, and is paid for.
    assert_eq!(world.events("run.resumed").await.len(), 1);
    assert_eq!(world.events("model.failed").await.len(), 2);
    let (reserved, settled) =
        (world.events("budget.reserved").await, world.events("budget.settled").await);
    assert_eq!((reserved.len(), settled.len()), (8, 8));
    world.assert_sound().await;
}

async fn killed_while_a_program_runs(world: World) {
    let workflow = stuck(&world);
    world.server.reply(&World::chat("one"), ends("It had run."));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    marked(&world).await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(world.repo.read("stuck.marks").unwrap(), "done\n");
    assert!(!is_running(&world));
    // What it had changed by then is the run's and the task's, whoever finds it out.
    assert!(resumed.last_line().contains("2 files changed"), "{resumed:#?}");
    assert_eq!(world.shown().await["run"]["files_changed"], 2);
    let changed = world.events("file.changed").await;
    let named: Vec<_> =
        changed.iter().map(|event| (&event["data"]["path"], &event["task"])).collect();
    let attempts = world.events("attempt.started").await;
    let task = &attempts[0]["task"];
    assert!(task.is_string());
    assert_eq!(named, [(&json!("stuck.marks"), task), (&json!("stuck.pid"), task)]);
    assert_eq!(world.run(["replay"]).await.code, Some(0));
    // Nobody knows what the program had done, so the model is told and it is not run again.
    let failed = world.events("tool.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["data"]["error"], "outcome_unknown");
    let last = world.server.requests().pop().unwrap();
    assert!(last.text().contains("whether it took effect is unknown"), "{}", last.text());
    world.assert_sound().await;
}

/// Another machine has the same log and the same workspace, and a folder of state of its own.
async fn taken_up_elsewhere(world: World) {
    let workflow = stuck(&world);
    world.server.reply(&World::chat("one"), ends("It had run."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    marked(&world).await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let state = elsewhere.path().join("state");
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg("-a").args([world.state(), state.clone()]).status().unwrap().success());
    std::fs::remove_dir_all(state.join("snapshots")).unwrap();
    let before = world.events("").await.len();

    let mut there = world.formwork(["runs", "resume"]);
    let file = format!("sqlite://{}", world.state().join("formwork.db").display());
    if world.database().is_none() {
        there.args(["--database-url", &file]);
    }
    let refused = end_of(there.env("FORMWORK_STATE_DIR", &state).spawn().unwrap()).await;
    let after = world.events("").await.len();
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(refused.code, Some(3), "{refused:#?}");
    let folder = state.join("snapshots").display().to_string();
    assert!(refused.stderr.contains(&format!("are not in {folder}: ")), "{refused:#?}");
    assert!(refused.stderr.contains("hint: go on where it was begun, or copy"), "{refused:#?}");
    assert_eq!(before, after, "nothing is recorded");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(world.repo.read("stuck.marks").unwrap(), "done\n");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_whose_snapshots_are_elsewhere_is_refused_and_not_failed() {
    taken_up_elsewhere(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_whose_snapshots_are_elsewhere_is_refused_and_not_failed() {
    on_postgres(taken_up_elsewhere).await;
}

#[tokio::test]
async fn a_run_killed_while_models_think_ends_the_same_and_repeats_no_effect() {
    killed_while_the_models_think(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_killed_while_models_think_ends_the_same_and_repeats_no_effect() {
    on_postgres(killed_while_the_models_think).await;
}

#[tokio::test]
async fn a_program_that_ran_when_the_process_was_killed_ends_and_is_not_run_again() {
    killed_while_a_program_runs(World::new().await).await;
}

#[tokio::test]
async fn pg_a_program_that_ran_when_the_process_was_killed_ends_and_is_not_run_again() {
    on_postgres(killed_while_a_program_runs).await;
}

/// The state folder of one machine tells nothing of the processes of another.
#[tokio::test]
async fn a_run_whose_owner_lives_is_not_taken_over() {
    let world = World::new().await;
    let workflow = three(&world);
    let (left, right) = (Gate::new(), Gate::new());
    world.server.reply(&World::chat("one"), held(&left, &ending("LEFT")));
    world.server.reply(&World::chat("two"), held(&right, &ending("RIGHT")));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    left.reached().await;
    right.reached().await;
    let refused = world.run(["runs", "resume"]).await;
    drop(program);

    assert_eq!(refused.code, Some(3), "{refused:#?}");
    assert!(refused.stderr.contains("is owned by process-"), "{refused:#?}");
    assert!(refused.stderr.contains("another process works on it"), "{refused:#?}");
    assert_eq!(world.events("run.resumed").await.len(), 0);
}
