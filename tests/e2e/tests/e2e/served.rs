//! A workspace served over HTTP by the real program: who is let in, that it answers as the command line does, and how it ends.

use std::os::unix::fs::PermissionsExt as _;

use formwork_protocols::{EventStore as _, RunId, Span};
use formwork_services::trust::{self, Kind};
use formwork_trace::{Options, Trace};
use ring::hmac;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::Child,
};

use crate::world::{World, end_of, on_postgres, signal};

/// A program that serves.
struct Served {
    program: Child,
    told: Value,
    address: String,
    token: String,
}

/// Starts the program on a port that is free, and reads where that is.
async fn served(world: &World, more: &[&str]) -> Served {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let mut command = world.formwork(arguments.iter().chain(more));
    let mut program = command.env("HOOK_TOKEN", SECRET).spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).await.unwrap();
    program.stdout = Some(out.into_inner());
    let told: Value = serde_json::from_str(&line).unwrap();
    let address = told["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let file = told["token_file"].as_str().unwrap();
    let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
    Served { program, told, address, token }
}

impl Served {
    async fn call(&self, name: &str, params: Value) -> (u16, Value) {
        let bearer = format!("authorization: Bearer {}\r\n", self.token);
        let (status, body) = self.post(&format!("/v1/{name}"), &bearer, &params.to_string()).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Sends a body with some headers, each with its end of line.
    async fn post(&self, path: &str, headers: &str, body: &str) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{headers}connection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut socket = TcpStream::connect(&self.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// Trusts what says how the forge signs, and lets the program have its secret.
fn with_forge(world: &World) {
    world.repo.write(".formwork/sources/forge.toml", FORGE).unwrap();
    let workspace = world.repo.path().canonicalize().unwrap();
    for file in trust::brought(&workspace, &[]).unwrap() {
        if file.kind == Kind::Source {
            trust::trust(&world.state(), &workspace, &file).unwrap();
        }
    }
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let secret = "[secrets]\nHOOK = { env = \"HOOK_TOKEN\" }\n";
    std::fs::write(world.config_file(), config + secret).unwrap();
}

const SECRET: &str = "hook-secret-of-the-forge";

const FORGE: &str = r#"
format_version = 1
name = "forge"
description = "What the forge tells."
slug = "forge-7f3a"
secrets = ["{{secret:HOOK}}"]
scheme = "github"
max_bytes = 1000

[event]
names = { push = "go" }
"#;

async fn lets_in_what_is_signed(world: World) {
    with_forge(&world);
    let served = served(&world, &[]).await;
    let work = json!({ "workflow": { "source": "waits.toml", "text": WAITS } });
    let (status, started) = served.call("runs.start", json!({ "work": work })).await;
    assert_eq!(status, 200, "{started:#}");
    while world.events("task.suspended").await.is_empty() {}
    let body = r#"{"ref":"refs/heads/main"}"#;
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    let hex = |tag: &[u8]| tag.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let send = async |slug: &str, signature: &str, body: &str| {
        let headers = format!(
            "x-github-event: push\r\nx-github-delivery: 72d3\r\nx-hub-signature-256: sha256={signature}\r\n"
        );
        served.post(&format!("/incoming/events/{slug}"), &headers, body).await
    };
    let signature = hex(tag.as_ref());
    let forged = signature.replace(|_| true, "0");

    let none = served.post("/incoming/events/forge-7f3a", "", body).await;
    let wrong = send("forge-7f3a", &forged, body).await;
    let elsewhere = send("forge", &signature, body).await;
    let long = send("forge-7f3a", &signature, &" ".repeat(1001)).await;
    let first = send("forge-7f3a", &signature, body).await;
    let again = send("forge-7f3a", &signature, body).await;
    while world.events("run.finished").await.is_empty() {}
    signal(&served.program, Signal::INT);
    let ended = end_of(served.program).await;

    let statuses = [&none, &wrong, &elsewhere, &long, &first, &again].map(|(status, _)| *status);
    assert_eq!(statuses, [404, 401, 404, 413, 202, 202]);
    assert_eq!(none.1, elsewhere.1);
    let [first, again] =
        [first, again].map(|(_, body)| serde_json::from_str::<Value>(&body).unwrap());
    assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["event"], again["event"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.shown().await["run"]["state"], "completed");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_38_a_server_answers_202_to_what_is_signed_and_lets_nothing_else_in() {
    lets_in_what_is_signed(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_38_a_server_answers_202_to_what_is_signed_and_lets_nothing_else_in() {
    on_postgres(lets_in_what_is_signed).await;
}

#[tokio::test]
async fn behaviour_37_a_client_of_mcp_is_answered_at_mcp_with_what_its_token_is_good_for() {
    let world = World::new().await;
    let served = served(&world, &[]).await;
    let give = json!({ "to": "user:bob", "scopes": ["read"] });
    let bob = served.call("credentials.add", give).await.1["token"].as_str().unwrap().to_owned();
    let begin = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "e2e", "version": "1" },
        },
    });
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let ask = async |token: &str, message: &Value| {
        let headers = format!(
            "authorization: Bearer {token}\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2025-06-18\r\n"
        );
        served.post("/mcp", &headers, &message.to_string()).await
    };

    let (begun, answer) = ask(&bob, &begin).await;
    let (listed, tools) = ask(&bob, &list).await;
    let (refused, _) = ask("formwork_guessed", &list).await;

    assert_eq!((begun, listed, refused), (200, 200, 401), "{answer} {tools}");
    let tools: Value = serde_json::from_str(&tools).unwrap();
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"runs_list") && !names.contains(&"runs_start"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("credentials")), "{names:?}");
}

const THERE: &str = "format_version = 1\nname = \"there\"\n[[tasks]]\nname = \"make\"\n\
    command = [\"touch\", \"made\"]\ntarget = \"gpu\"\n";

async fn has_workers(world: World) {
    let served = served(&world, &["--mode", "auto"]).await;
    let give = json!({ "to": "service:lab", "scopes": ["worker"] });
    let token = served.call("credentials.add", give).await.1["token"].as_str().unwrap().to_owned();
    let far = tempfile::Builder::new().prefix("formwork-far-").tempdir().unwrap();
    let given = far.path().join("given.toml");
    let config = "format_version = 1\nsandbox = \"off\"\n[permissions]\nmode = \"auto\"\n";
    std::fs::write(&given, config).unwrap();
    let address = format!("ws://{}", served.address);
    let mut command = world.bare(["worker", "--connect", &address, "--label", "gpu"]);
    command.arg("-C").arg(far.path()).arg("--config").arg(given);
    command.env("FORMWORK_STATE_DIR", far.path().join(".state"));
    let worker = command.env("FORMWORK_WORKER_TOKEN", &token).spawn().unwrap();

    let work = json!({ "workflow": { "source": "there.toml", "text": THERE } });
    let (status, started) = served.call("runs.start", json!({ "work": work })).await;
    assert_eq!(status, 200, "{started:#}");
    while world.events("run.finished").await.is_empty() {}
    signal(&worker, Signal::INT);
    let left = end_of(worker).await;
    signal(&served.program, Signal::INT);
    let ended = end_of(served.program).await;

    assert_eq!((left.code, ended.code), (Some(0), Some(0)), "{left:#?} {ended:#?}");
    assert_eq!(world.shown().await["run"]["state"], "completed");
    assert!(far.path().join("made").exists() && !world.path("made").exists());
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_39_a_server_has_workers_by_a_token_that_is_good_for_nothing_else() {
    has_workers(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_39_a_server_has_workers_by_a_token_that_is_good_for_nothing_else() {
    on_postgres(has_workers).await;
}

const WAITS: &str = "format_version = 1\nname = \"waits\"\n\
    [[tasks]]\nname = \"go\"\nwait_for = { event = \"go\", timeout = \"1h\" }\n";

async fn answers_as_the_command_line(world: World) {
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    world.run(["run", work]).await;
    let run = world.shown().await["run"]["run"].clone();
    let served = served(&world, &[]).await;
    let text = run.as_str().unwrap();

    for (name, params, words) in [
        ("agents.list", json!({}), vec!["agents"]),
        ("workflows.list", json!({}), vec!["workflows", "list"]),
        ("tasks.list", json!({ "run": run }), vec!["tasks", "list", text]),
        ("inbox.list", json!({}), vec!["inbox", "list"]),
        ("credentials.list", json!({}), vec!["auth", "list"]),
        (
            "events.list",
            json!({ "run": run, "limit": 100 }),
            vec!["events", text, "--limit", "100"],
        ),
        ("audit.verify", json!({ "run": run }), vec!["audit", "verify", text]),
    ] {
        let (status, there) = served.call(name, params).await;
        let mut here = world.json(words).await;
        here.as_object_mut().unwrap().remove("version");

        assert_eq!((status, &there), (200, &here), "{name}");
    }
    let (status, there) = served.call("runs.resume", json!({ "run": run })).await;
    let here = world.run(["runs", "resume", text, "--json"]).await.json();
    assert_eq!((status, &there["errors"], &there["hint"]), (409, &here["errors"], &here["hint"]));
    assert_eq!(there["code"], here["outcome"]["code"]);
    signal(&served.program, Signal::INT);
    assert_eq!(end_of(served.program).await.code, Some(0));
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_37_a_capability_answers_the_same_at_the_command_line_and_over_http() {
    answers_as_the_command_line(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_37_a_capability_answers_the_same_at_the_command_line_and_over_http() {
    on_postgres(answers_as_the_command_line).await;
}

async fn ends_as_a_run_does(world: World) {
    let first = served(&world, &["--mode", "edit"]).await;
    let work = json!({ "workflow": { "source": "waits.toml", "text": WAITS } });
    let (status, started) = first.call("runs.start", json!({ "work": work })).await;
    assert_eq!(status, 200, "{started:#}");
    while world.events("task.suspended").await.is_empty() {}

    signal(&first.program, Signal::INT);
    let ended = end_of(first.program).await;
    let paused = world.shown().await;
    let again = served(&world, &[]).await;
    let fired = again.call("events.fire", json!({ "name": "go", "run": started["run"] })).await;
    let resumed = again.call("runs.resume", json!({ "run": started["run"] })).await;
    while world.events("run.finished").await.is_empty() {}
    signal(&again.program, Signal::TERM);
    let last = end_of(again.program).await;

    assert_eq!((ended.code, last.code), (Some(0), Some(0)), "{ended:#?} {last:#?}");
    assert_eq!(paused["run"]["state"], "paused", "{paused:#}");
    assert_eq!((fired.0, resumed.0), (200, 200), "{fired:?} {resumed:?}");
    assert_eq!(world.shown().await["run"]["state"], "completed");
    let created = &world.events("run.created").await[0];
    assert_eq!(created["principal"], "user:ada");
    // The token of the first is the token of the second, and is told once.
    assert!(first.told["token"].is_string() && again.told["token"].is_null());
    assert_eq!(first.token, again.token);
    let mode = std::fs::metadata(world.state().join("serve.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_server_that_is_interrupted_pauses_its_runs_and_the_next_goes_on() {
    ends_as_a_run_does(World::new().await).await;
}

#[tokio::test]
async fn pg_a_server_that_is_interrupted_pauses_its_runs_and_the_next_goes_on() {
    on_postgres(ends_as_a_run_does).await;
}

#[tokio::test]
async fn a_server_that_is_interrupted_twice_ends_at_once() {
    let world = World::new().await;
    let served = served(&world, &[]).await;
    let work = json!({ "workflow": { "source": "waits.toml", "text": WAITS } });
    let (_, started) = served.call("runs.start", json!({ "work": work })).await;
    while world.events("task.suspended").await.is_empty() {}
    let (_, _) = served.call("runs.abort", json!({ "run": started["run"], "wait": "1m" })).await;
    // A run of which somebody else has the lease, and never answers.
    let held = started["run"].as_str().unwrap().parse::<RunId>().unwrap();
    let url = format!("sqlite://{}", world.state().join("formwork.db").display());
    let log = Trace::open(&url, Options::default()).await.unwrap();
    let forked = served.call("runs.fork", json!({ "run": held })).await.1;
    let forked = forked["run"].as_str().unwrap().parse::<RunId>().unwrap();
    log.acquire(forked, "somebody-else", Span::from_secs(3_600)).await.unwrap();
    log.close().await;
    let abort = served.call("runs.abort", json!({ "run": forked, "wait": "1h" }));
    let interrupts = async {
        while world.events("run.abort_requested").await.len() < 2 {}
        signal(&served.program, Signal::INT);
        // It takes no connection any more: it has heard the first.
        while TcpStream::connect(&served.address).await.is_ok() {}
        signal(&served.program, Signal::INT);
    };

    tokio::select! {
        aborted = abort => panic!("nobody answers: {aborted:?}"),
        () = interrupts => {}
    }
    let ended = end_of(served.program).await;

    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(world.run(["runs", "list"]).await.code, Some(0));
}

#[tokio::test]
async fn a_server_is_not_begun_where_others_could_reach_it_and_nobody_has_a_credential() {
    let world = World::new().await;

    let wide = world.run(["serve", "--listen", "0.0.0.0:0"]).await;
    let first = served(&world, &[]).await;
    let taken = world.run(["serve", "--listen", &first.address]).await;
    let given = world.run(["auth", "bootstrap"]).await;
    let mut now_wide = world.formwork(["serve", "--listen", "0.0.0.0:0"]).spawn().unwrap();
    let mut out = BufReader::new(now_wide.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).await.unwrap();
    now_wide.stdout = Some(out.into_inner());
    signal(&now_wide, Signal::INT);
    let wide_ended = end_of(now_wide).await;
    signal(&first.program, Signal::INT);
    end_of(first.program).await;

    assert_eq!((wide.code, taken.code), (Some(3), Some(3)), "{wide:#?} {taken:#?}");
    assert!(wide.stderr.contains("others could reach 0.0.0.0:0"), "{wide:#?}");
    assert!(wide.stderr.contains("hint: `formwork auth bootstrap`"), "{wide:#?}");
    assert!(taken.stderr.contains("something else listens there"), "{taken:#?}");
    assert!(taken.stderr.contains("hint: take another port"), "{taken:#?}");
    assert_eq!(given.code, Some(0), "a token of this machine alone is not the first: {given:#?}");
    assert!(line.starts_with("listening on http://0.0.0.0:"), "{line}");
    // Somebody has a credential, so none is made.
    assert!(!wide_ended.stderr.contains("token"), "{wide_ended:#?}");
}
