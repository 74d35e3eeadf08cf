//! Programs that run while tasks work: real ones, with all that they start.

use std::path::Path;

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{ending, ends, held},
    world::{World, end_of, on_postgres, pipe, signal},
};

/// A service that starts another process, and ends badly once somebody writes into the pipe.
const SERVE: &str = "sleep 1000 &\necho $! > child.pid\necho $$ > db.pid\necho up >> db.starts\necho listening\n\
                     cat die > /dev/null\necho out of memory\nexit 7\n";

const SERVICE: &str = "[[services]]\nname = \"db\"\ncommand = [\"sh\", \"serve.sh\"]\n";

const READY: &str = "ready = { command = [\"test\", \"-e\", \"db.pid\"], timeout = \"1m\" }\n";

fn served(world: &World, more: &str) -> &'static str {
    world.repo.write("serve.sh", SERVE).unwrap();
    pipe(world, "die");
    world.workflow(&format!("{SERVICE}{READY}{more}"))
}

/// Tells whether any process of the service that was started last runs.
fn is_running(world: &World) -> bool {
    ["db.pid", "child.pid"].into_iter().any(|file| {
        let pid = world.repo.read(file).unwrap();
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
        // One that was killed and not yet waited for is a zombie.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    })
}

fn starts(world: &World) -> usize {
    world.repo.read("db.starts").unwrap().lines().count()
}

async fn told(world: &World) -> Vec<String> {
    let events = world.events("service.").await;
    events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

async fn stays(world: World) {
    let workflow = served(
        &world,
        "[[tasks]]\nname = \"use\"\ncommand = [\"cp\", \"db.pid\", \"used\"]\noutput = \"said\"\n\
         [[tasks]]\nname = \"after\"\ndepends_on = [\"use\"]\ncommand = [\"echo\", \"it said {{said}}\"]\n",
    );

    let planned = world.run(["workflows", "plan", workflow]).await;
    let ended = world.run(["run", workflow]).await;
    let running = is_running(&world);
    let shown = world.shown().await;
    let text = world.run(["runs", "show"]).await.stdout;
    let replayed = world.json(["replay"]).await;

    let line = "service db: sh serve.sh, ready once test -e db.pid ends well, within 1m, started again once\n";
    assert!(planned.stdout.contains(line), "{planned:#?}");
    assert!(
        planned.stdout.contains("use: command cp db.pid used, as said, 1 attempt"),
        "{planned:#?}"
    );
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.repo.read("used").unwrap(), world.repo.read("db.pid").unwrap());
    assert!(!running, "the service goes on without its run");
    assert_eq!(told(&world).await, ["service.started", "service.ready", "service.stopped"]);
    let row = &shown["services"][2];
    assert_eq!(row["told"], "service db is stopped: ended as asked", "{shown:#}");
    let output = world.run(["blob", row["output"].as_str().unwrap()]).await;
    assert_eq!(output.stdout, "listening\n", "{output:#?}");
    assert!(text.contains("\nservices\n  service db is started: sh serve.sh\n"), "{text}");
    assert!(ended.stderr.contains("service db is ready"), "{ended:#?}");
    assert_eq!(replayed["divergence"], Value::Null, "{replayed:#}");
    assert_eq!(starts(&world), 1, "a replay starts nothing");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_service_runs_while_tasks_work_and_no_longer() {
    stays(World::new().await).await;
}

#[tokio::test]
async fn pg_a_service_runs_while_tasks_work_and_no_longer() {
    on_postgres(stays).await;
}

async fn never_comes(world: World) {
    world.repo.write("serve.sh", SERVE).unwrap();
    pipe(&world, "die");
    let task = "[[tasks]]\nname = \"use\"\ncommand = [\"touch\", \"used\"]\n";
    let ready =
        "ready = { command = [\"sh\", \"-c\", \"echo no response; exit 2\"], timeout = \"1s\" }\n";
    let slow = world.workflow(&format!("{SERVICE}{ready}{task}"));
    let late = world.run(["run", slow]).await;
    let running = is_running(&world);
    let service = "[[services]]\nname = \"db\"\ncommand = [\"sh\", \"-c\", \"echo no such folder; exit 4\"]\n";
    let broken = world.workflow(&format!("{service}{READY}{task}").replace("db.pid", "db.never"));
    let gone = world.run(["run", broken]).await;

    assert_eq!(late.code, Some(3), "{late:#?}");
    let why = "setup: service db was not ready after 1s: sh -c echo no response; exit 2 ended with exit code 2: no response; \
               it said: listening";
    assert!(late.last_line().starts_with(why), "{late:#?}");
    assert!(!running, "the service goes on without its run");
    assert_eq!(gone.code, Some(3), "{gone:#?}");
    let why =
        "setup: service db has ended (exit code 4) before it was ready; it said: no such folder";
    assert!(gone.last_line().starts_with(why), "{gone:#?}");
    assert!(!world.path("used").exists(), "no task was begun");
    assert_eq!(world.shown().await["run"]["state"], "failed");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], Value::Null, "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_service_that_never_is_ready_ends_the_run_as_setup_with_what_it_said() {
    never_comes(World::new().await).await;
}

#[tokio::test]
async fn pg_a_service_that_never_is_ready_ends_the_run_as_setup_with_what_it_said() {
    on_postgres(never_comes).await;
}

async fn dies(world: World) {
    let tasks = "[[tasks]]\nname = \"kill\"\ncommand = [\"sh\", \"-c\", \"echo x > die\"]\n\
                 [[tasks]]\nname = \"wait\"\ndepends_on = [\"kill\"]\ncommand = [\"sh\", \"-c\", \"cat gate > seen\"]\n";
    let workflow = served(&world, tasks);
    pipe(&world, "gate");
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    // What is begun later finds a service that is ready.
    while starts_or_none(&world) < 2 {
        tokio::task::yield_now().await;
    }
    let opened = world.path("gate");
    let open = move || std::fs::write(opened, "go\n").unwrap();
    tokio::task::spawn_blocking(open).await.unwrap();
    let again = end_of(program).await;
    let told = told(&world).await;
    let for_good = world.workflow(&format!(
        "{SERVICE}{READY}restarts = 0\n[[tasks]]\nname = \"kill\"\n\
         command = [\"sh\", \"-c\", \"echo x > die; cat gate\"]\n\
         [[tasks]]\nname = \"after\"\ndepends_on = [\"kill\"]\ncommand = [\"true\"]\n"
    ));
    let ended = world.run(["run", for_good]).await;

    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_eq!(
        told,
        [
            "service.started",
            "service.ready",
            "service.failed",
            "service.started",
            "service.ready",
            "service.stopped",
        ]
    );
    assert!(again.stderr.contains("while tasks needed it; it is started again"), "{again:#?}");
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let why = "service db has ended (exit code 7) while tasks needed it; it said: listening out of memory";
    assert!(ended.last_line().contains(why), "{ended:#?}");
    let shown = world.shown().await;
    let reasons: Vec<&Value> = shown["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["ending"]["why"]["reason"])
        .collect();
    assert_eq!(reasons, ["service_failed", "service_failed", "parent_ended"]);
    let row = shown["services"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&row["kind"], &row["excerpt"]),
        (&json!("service.failed"), &json!("listening\nout of memory\n"))
    );
    assert!(!is_running(&world));
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], Value::Null, "{replayed:#}");
    world.assert_sound().await;
}

fn starts_or_none(world: &World) -> usize {
    world.repo.read("db.starts").map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn a_service_that_dies_is_started_again_and_then_fails_what_needs_it() {
    dies(World::new().await).await;
}

#[tokio::test]
async fn pg_a_service_that_dies_is_started_again_and_then_fails_what_needs_it() {
    on_postgres(dies).await;
}

async fn left(world: World) {
    world.agent("left", "one");
    let workflow =
        served(&world, "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Think.\"\n");
    for (by, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let _ = std::fs::remove_file(world.path("db.starts"));
        let gate = Gate::new();
        world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));
        world.server.reply(&World::chat("one"), ends("I have thought."));

        let program = world.formwork(["run", workflow]).spawn().unwrap();
        gate.reached().await;
        let before = is_running(&world);
        signal(&program, by);
        let ended = end_of(program).await;
        // Whoever was killed tells nobody: what watches over its programs finds out.
        while by == Signal::KILL && is_running(&world) {
            tokio::task::yield_now().await;
        }
        let after = is_running(&world);
        let resumed = world.run(["runs", "resume"]).await;

        assert_eq!(ended.code, code, "{ended:#?}");
        assert_eq!((before, after), (true, false), "{by:?}");
        assert_eq!(resumed.code, Some(0), "{resumed:#?}");
        assert_eq!(starts(&world), 2);
        assert!(!is_running(&world));
    }
    world.assert_sound().await;
}

#[tokio::test]
async fn a_service_goes_with_a_run_that_is_stopped_or_killed_and_is_started_anew_with_it() {
    left(World::new().await).await;
}

#[tokio::test]
async fn pg_a_service_goes_with_a_run_that_is_stopped_or_killed_and_is_started_anew_with_it() {
    on_postgres(left).await;
}

#[tokio::test]
async fn a_service_that_may_not_run_or_is_not_there_begins_no_run() {
    let world = World::new().await;
    let workflow = served(&world, "[[tasks]]\nname = \"use\"\ncommand = [\"true\"]\n");
    let looks = world.run(["run", workflow, "--mode", "plan"]).await;
    let missing = world.workflow(
        "[[services]]\nname = \"db\"\ncommand = [\"no-such-program\"]\n[[tasks]]\nname = \"use\"\ncommand = [\"true\"]\n",
    );
    let gone = world.run(["run", missing]).await;
    let wrong = world.workflow(
        "[[services]]\nname = \"db\"\ncomand = [\"db\"]\n[[tasks]]\nname = \"use\"\ncommand = [\"true\"]\n",
    );
    let invalid = world.run(["validate"]).await;
    let refused = world.run(["run", wrong]).await;

    assert_eq!(looks.code, Some(3), "{looks:#?}");
    assert!(looks.stderr.contains("service db runs sh serve.sh"), "{looks:#?}");
    assert_eq!(gone.code, Some(3), "{gone:#?}");
    assert!(gone.stderr.contains("service db cannot be started"), "{gone:#?}");
    assert!(gone.stderr.contains("no-such-program"), "{gone:#?}");
    assert_eq!((invalid.code, refused.code), (Some(3), Some(3)), "{invalid:#?} {refused:#?}");
    let told = format!("{}{}", invalid.stdout, invalid.stderr);
    assert!(
        told.contains("work.toml:5:1") && told.contains("nearest is \"command\""),
        "{invalid:#?}"
    );
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
}
