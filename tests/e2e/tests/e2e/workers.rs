//! Tasks that work elsewhere: the real program as a worker, in a folder of its own, killed and lied to.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{State, ws::WebSocketUpgrade},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use formwork_protocols::{Cancel, Principal, RunId, RunOutcome, SystemClock};
use formwork_services::{
    Builder, Formwork,
    capability::Caller,
    config::{Layer, Layers, Origin},
    operations::{
        runs::{Abort, Start, StartParams, StopParams, Work},
        workers::{List, ListParams},
    },
};
use formwork_worker::{Guest, Hub, Times};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, process::Child, task::JoinSet};

use crate::{
    answers::{calls, ends},
    world::{Ended, World, end_of, on_postgres, signal},
};

const TOKEN: &str = "tok-of-the-lab-4711";

/// What takes long where a worker is: it says that it has begun, and leaves a process behind that would go on.
const LONG: &str =
    "echo begun >> begun.log\nsleep 1000 &\necho $! > child.pid\nmv child.pid child\nwait\n";

/// A run's process with a hub, and folders of workers.
struct Lab {
    world: World,
    hub: Hub,
    address: String,
    formwork: Formwork,
    _serving: JoinSet<()>,
}

/// A worker: the program in a folder of its own.
struct Far {
    folder: TempDir,
    child: Child,
}

impl Far {
    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

impl Lab {
    async fn new(world: World) -> Self {
        let times = Times {
            beat: Duration::from_millis(50),
            silence: Duration::from_secs(20),
            grace: Duration::from_millis(200),
            ending: Duration::from_secs(5),
        };
        let hub = Hub::new(times, Arc::new(SystemClock));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("ws://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/workers", any(enter)).with_state(hub.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = std::fs::read_to_string(world.config_file()).unwrap();
        let at =
            world.database().map(|url| format!("database_url = {url:?}\n")).unwrap_or_default();
        let mut layers = Layers::new();
        let origin = Origin::Flag { flag: "the test".to_owned() };
        let config = config.replace("sandbox = \"auto\"", "sandbox = \"off\"");
        layers.push(Layer::parse(origin, &format!("{at}{config}")).unwrap());
        world.agent("smith", "one");
        world.trust();
        let formwork = Builder::new(world.repo.path())
            .state(world.state())
            .config(layers.merge().unwrap().config)
            .environment([("PATH", "/usr/local/bin:/usr/bin:/bin")])
            .workers(hub.clone())
            .build()
            .await
            .unwrap();
        Self { world, hub, address, formwork, _serving: serving }
    }

    /// Starts a worker with label `gpu` that may do all, and waits until it is there.
    async fn worker(&self, name: &str, more: &str) -> Far {
        let folder = tempfile::Builder::new().prefix("formwork-far-").tempdir().unwrap();
        let config = format!(
            "format_version = 1\nsandbox = \"off\"\n[permissions]\nmode = \"auto\"\n{more}"
        );
        let given = folder.path().join("given.toml");
        std::fs::write(&given, config).unwrap();
        let mut command = self.world.bare([
            "worker",
            "--connect",
            &self.address,
            "--label",
            "gpu",
            "--name",
            name,
            "--slots",
            "1",
        ]);
        command.arg("-C").arg(folder.path()).arg("--config").arg(given);
        command.env("FORMWORK_STATE_DIR", folder.path().join(".state"));
        command.env("FORMWORK_WORKER_TOKEN", TOKEN).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut moves = self.hub.moves();
        let is_there = |hub: &Hub| {
            hub.workers().iter().any(|row| row.worker.as_str() == name && row.connected)
        };
        while !is_there(&self.hub) {
            moves.changed().await.unwrap();
        }
        let far = Far { folder, child };
        std::fs::write(far.path("long.sh"), LONG).unwrap();
        far
    }

    async fn begin(&self, tasks: &str) -> (Caller, RunId) {
        let caller = Caller::owner(Principal::parse("user:ada").unwrap());
        let text = format!("format_version = 1\nname = \"work\"\n{tasks}");
        let work = Work::Workflow { source: "work.toml".to_owned(), text };
        let params: StartParams = serde_json::from_value(json!({ "work": work })).unwrap();
        let run = self.formwork.call::<Start>(&caller, params).await.unwrap().run;
        (caller, run)
    }

    async fn run(&self, tasks: &str) -> RunOutcome {
        let (_, run) = self.begin(tasks).await;
        self.formwork.wait(run).await.unwrap()
    }

    fn says(&self, call: &str, arguments: Value) {
        self.world.server.reply(&World::chat("one"), calls(&[(call, arguments)]));
    }

    fn ends(&self) {
        self.world.server.reply(&World::chat("one"), ends("done"));
    }

    /// Waits until something is there, which somebody else makes.
    async fn appears(path: PathBuf) {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while !path.exists() {
            looks.tick().await;
        }
    }
}

async fn enter(State(hub): State<Hub>, headers: HeaderMap, ws: WebSocketUpgrade) -> Response {
    let shown = headers.get("authorization").and_then(|it| it.to_str().ok());
    if shown != Some(&format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let guest = Guest::new(Principal::parse("service:lab").unwrap(), ["worker"]);
    hub.accept(ws, guest, Cancel::new())
}

const TASK: &str =
    "[[tasks]]\nname = \"there\"\nagent = \"smith\"\nprompt = \"Work.\"\ntarget = \"gpu\"\n";

async fn works_there(world: World) {
    let lab = Lab::new(world).await;
    let far = lab.worker("lab", "").await;
    lab.world.repo.write("here.txt", "of the run\n").unwrap();
    lab.says("fs_write", json!({ "path": "made.txt", "content": "made there\n" }));
    lab.says("exec", json!({ "command": ["grep", "-r", "made", "."] }));
    lab.ends();

    let outcome = lab
        .run(&format!(
            "{TASK}[[tasks.postchecks]]\ncommand = [\"test\", \"-f\", \"made.txt\"]\n\
             [[tasks]]\nname = \"after\"\ndepends_on = [\"there\"]\ncommand = [\"cat\", \"made.txt\"]\ntarget = \"gpu\"\n\
             [[tasks.postchecks]]\ncommand = [\"test\", \"-f\", \"made.txt\"]\n"
        ))
        .await;
    let listed = lab.formwork.call::<List>(&caller(), ListParams {}).await.unwrap();
    lab.formwork.clone().close().await;

    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert_eq!(std::fs::read_to_string(far.path("made.txt")).unwrap(), "made there\n");
    assert!(!lab.world.path("made.txt").exists() && !far.path("here.txt").exists());
    let done = lab.world.events("tool.completed").await;
    let by: Vec<_> = done.iter().map(|it| &it["data"]["worker"]).collect();
    // To say that a task is done is of the run.
    assert_eq!(by, [&json!("lab"), &json!("lab"), &Value::Null], "{done:#?}");
    let preview = done[1]["data"]["preview"].as_str().unwrap();
    assert!(preview.contains("made there") && !preview.contains("here.txt"), "{preview}");
    let checks = lab.world.events("check.finished").await;
    let reasons: Vec<_> = checks.iter().map(|it| &it["data"]["verdict"]["reason"]).collect();
    assert_eq!(reasons, ["exit code 0 (at worker lab)"; 2]);
    let connected = lab.world.events("worker.connected").await;
    assert_eq!(connected.len(), 1, "one worker for all that a run does under a label");
    let text = lab.world.run(["runs", "show"]).await.stdout;
    assert!(text.contains("worker lab answers for label gpu"), "{text}");
    assert_eq!((listed.takes_workers, listed.workers.len()), (true, 1));
    let replayed = lab.world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], Value::Null, "{replayed:#}");
    lab.world.assert_sound().await;
}

fn caller() -> Caller {
    Caller::owner(Principal::parse("user:ada").unwrap())
}

#[tokio::test]
async fn behaviour_39_a_task_with_a_target_works_and_is_checked_where_its_worker_is() {
    works_there(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_39_a_task_with_a_target_works_and_is_checked_where_its_worker_is() {
    on_postgres(works_there).await;
}

#[tokio::test]
async fn behaviour_39_what_is_done_here_is_no_proof_of_what_was_to_be_done_there() {
    let lab = Lab::new(World::new().await).await;
    let _far = lab.worker("lab", "").await;
    lab.world.repo.write("made.txt", "made here\n").unwrap();
    lab.ends();

    let outcome = lab
        .run(&format!(
            "{TASK}retries = {{ max = 0 }}\n[[tasks.postchecks]]\ncommand = [\"test\", \"-f\", \"made.txt\"]\n"
        ))
        .await;

    assert_eq!(outcome.code.exit_code(), 2, "{outcome}");
    lab.formwork.close().await;
}

async fn killed(world: World) {
    let lab = Lab::new(world).await;
    let mut far = lab.worker("one", "").await;
    lab.says("exec", json!({ "command": ["sh", "long.sh"] }));
    lab.says("fs_list_dir", json!({}));
    lab.ends();
    let (_, run) = lab.begin(TASK).await;
    Lab::appears(far.path("child")).await;
    let other = lab.worker("two", "").await;

    far.child.start_kill().unwrap();

    let outcome = lab.formwork.wait(run).await.unwrap();
    lab.formwork.clone().close().await;
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    let failed = lab.world.events("tool.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(
        (&failed[0]["data"]["error"], &failed[0]["data"]["worker"]),
        (&json!("outcome_unknown"), &json!("one"))
    );
    // It was not made again, and what comes after goes to another, which is said.
    assert_eq!(std::fs::read_to_string(far.path("begun.log")).unwrap(), "begun\n");
    assert!(!other.path("begun.log").exists());
    let done = lab.world.events("tool.completed").await;
    assert!(
        done[0]["data"]["preview"]
            .as_str()
            .unwrap()
            .starts_with("[worker one was lost: two answers")
    );
    assert_eq!(lab.world.events("worker.lost").await.len(), 1);
    lab.world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_39_a_worker_killed_in_the_middle_of_a_call_is_settled_as_unknown() {
    killed(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_39_a_worker_killed_in_the_middle_of_a_call_is_settled_as_unknown() {
    on_postgres(killed).await;
}

#[tokio::test]
async fn behaviour_39_the_end_of_a_run_ends_its_processes_at_the_worker() {
    let lab = Lab::new(World::new().await).await;
    let far = lab.worker("lab", "").await;
    let (caller, run) = lab
        .begin(
            "[[tasks]]\nname = \"long\"\ntarget = \"gpu\"\n\
             command = [\"sh\", \"long.sh\"]\n",
        )
        .await;
    Lab::appears(far.path("child")).await;

    let params = StopParams { run, reason: None, wait: None };
    lab.formwork.call::<Abort>(&caller, params).await.unwrap();
    lab.formwork.wait(run).await.unwrap();

    let mut moves = lab.hub.moves();
    while lab.hub.workers()[0].at_work > 0 {
        moves.changed().await.unwrap();
    }
    let pid = std::fs::read_to_string(far.path("child")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    assert!(stat.as_ref().is_ok_and(|it| it.contains(") Z ")) || stat.is_err(), "{stat:?}");
    lab.formwork.close().await;
}

#[tokio::test]
async fn behaviour_39_a_worker_lets_a_call_do_what_both_ends_let() {
    let lab = Lab::new(World::new().await).await;
    let far = lab.worker("lab", "scope = [\"src\"]\nexec = [\"true\"]\n").await;
    for path in ["docs/a.txt", "src/b.txt", "src/keep/c.txt"] {
        lab.says("fs_write", json!({ "path": path, "content": "x\n" }));
    }
    lab.says("exec", json!({ "command": ["touch", "src/d.txt"] }));
    lab.says("exec", json!({ "command": ["true"] }));
    lab.says("run_tests", json!({}));
    lab.ends();

    let outcome = lab
        .run(&format!(
            "{TASK}write_paths = [\"src/**\", \"docs/**\"]\nprotected_paths = [\"src/keep/**\"]\n"
        ))
        .await;
    lab.formwork.clone().close().await;

    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    let failed = lab.world.events("tool.failed").await;
    let kinds: Vec<_> = failed.iter().map(|it| it["data"]["error"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["denied"; 3], "{failed:#?}");
    assert!(far.path("src/b.txt").exists());
    for path in ["docs/a.txt", "src/keep/c.txt", "src/d.txt"] {
        assert!(!far.path(path).exists(), "{path}");
    }
}

#[tokio::test]
async fn behaviour_39_a_run_in_a_process_without_workers_is_refused_before_anything_is_spent() {
    let world = World::new().await;
    world.agent("smith", "one");
    let workflow = world.workflow(TASK);

    let planned = world.run(["workflows", "plan", workflow]).await;
    let ended = world.run(["run", workflow]).await;

    assert!(planned.stdout.contains("agent smith at a worker with label gpu"), "{planned:#?}");
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(
        ended.stderr.contains("this process takes no workers: `formwork serve` does"),
        "{ended:#?}"
    );
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test]
async fn behaviour_39_what_cannot_hold_elsewhere_is_refused_by_name() {
    let world = World::new().await;
    world.agent("smith", "one");
    let workflow = world.workflow(&format!(
        "{TASK}isolation = \"snapshot\"\nbudget = {{ diff_lines = 10 }}\n\
         [[tasks.postchecks]]\ncommand = [\"true\"]\ncontrol = \"revert\"\n\
         [[tasks.postchecks]]\nagent = \"smith\"\nprompt = \"Look.\"\n\
         [[tasks]]\nname = \"wait\"\ntarget = \"gpu\"\nwait_for = {{ event = \"x\" }}\n"
    ));

    let ended = world.run(["workflows", "validate", workflow]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    for told in [
        "a task with a target has no isolation",
        "a task with a target has no budget/diff_lines",
        "a check of a task with a target has no control",
        "a check of a task with a target is a command",
        "target belongs to a task by an agent or a command",
    ] {
        assert!(ended.stdout.contains(told) || ended.stderr.contains(told), "{told}: {ended:#?}");
    }
}

async fn worker_says(world: &World, more: &[&str], token: Option<&str>) -> Ended {
    let mut command = world.bare(["worker", "--label", "gpu"]);
    command.args(more);
    if let Some(token) = token {
        command.env("FORMWORK_WORKER_TOKEN", token);
    }
    end_of(command.spawn().unwrap()).await
}

#[tokio::test]
async fn behaviour_39_a_worker_says_what_it_lacks_and_shows_its_token_to_nobody_else() {
    let lab = Lab::new(World::new().await).await;
    let here = ["--connect", lab.address.as_str()];

    let without = worker_says(&lab.world, &here, None).await;
    let wrong = worker_says(&lab.world, &here, Some("tok-guessed-0815")).await;
    let open = worker_says(&lab.world, &["--connect", "ws://hub.example"], Some(TOKEN)).await;

    assert_eq!((without.code, wrong.code, open.code), (Some(3), Some(3), Some(64)));
    assert!(without.stderr.contains("there is no token to show"), "{without:#?}");
    assert!(wrong.stderr.contains("it does not know the token"), "{wrong:#?}");
    assert!(open.stderr.contains("use wss://"), "{open:#?}");
    for ended in [without, wrong, open] {
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains("0815") && !said.contains("4711"), "{said}");
    }
}

#[tokio::test]
async fn behaviour_39_a_worker_that_is_told_to_leave_ends_its_call_and_says_what_it_was() {
    let lab = Lab::new(World::new().await).await;
    let far = lab.worker("lab", "").await;
    lab.says("exec", json!({ "command": ["sh", "long.sh"] }));
    lab.ends();
    let (_, run) = lab.begin(TASK).await;
    Lab::appears(far.path("child")).await;

    signal(&far.child, Signal::INT);

    let ended = end_of(far.child).await;
    let outcome = lab.formwork.wait(run).await.unwrap();
    lab.formwork.clone().close().await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let first = ended.stdout.lines().next().unwrap();
    assert!(first.starts_with("connected to ws://127.0.0.1:"), "{ended:#?}");
    assert!(first.contains("worker lab with label gpu: 1 call at once in mode auto"), "{first}");
    assert!(ended.stdout.ends_with("leaves: 1 call ended\nworker lab has left\n"), "{ended:#?}");
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    let failed = lab.world.events("tool.failed").await;
    assert_eq!(failed[0]["data"]["error"], "cancelled");
}
