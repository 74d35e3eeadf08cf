//! The program as a server of MCP: what a client of another maker sees of it.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use crate::world::{DEADLINE, Ended, World, end_of, pipe, signal, waits_at};

/// A client with a server of its own.
struct Client {
    child: Child,
    write: Option<ChildStdin>,
    read: Lines<BufReader<ChildStdout>>,
    asked: u32,
}

impl Client {
    async fn start(world: &World, arguments: &[&str]) -> Self {
        let words = ["mcp"].iter().chain(arguments);
        let mut child = world.formwork(words).stdin(Stdio::piped()).spawn().unwrap();
        let (write, read) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, write, read: read.lines(), asked: 0 };
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let greeted = client.ask("initialize", params).await;
        assert_eq!(greeted["result"]["serverInfo"]["name"], "formwork", "{greeted:#}");
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    async fn say(&mut self, message: &Value) {
        let write = self.write.as_mut().unwrap();
        write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Asks, and returns what is answered to that. Every line is a message.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let line = tokio::time::timeout(DEADLINE, self.read.next_line()).await;
            let line = line.expect("an answer comes before the deadline").unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// Calls a tool that does what it is asked, and returns what comes of it.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        assert_eq!(answer["result"]["isError"], false, "{answer:#}");
        answer["result"]["structuredContent"].clone()
    }

    /// Goes, and returns how the server ended and what else it had said.
    async fn leave(mut self) -> Ended {
        drop(self.write.take());
        let mut rest = String::new();
        while let Some(line) = self.read.next_line().await.unwrap() {
            rest += &line;
        }
        Ended { stdout: rest, ..end_of(self.child).await }
    }
}

async fn begun(client: &mut Client, world: &World, tasks: &str) -> String {
    world.workflow(tasks);
    world.trust();
    let source = ".formwork/workflows/work.toml";
    let text = world.repo.read(source).unwrap();
    let work = json!({ "workflow": { "source": source, "text": text } });
    let started = client.call("runs_start", json!({ "work": work, "headless": true })).await;
    started["run"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn behaviour_37_a_client_of_mcp_begins_a_run_and_sees_what_the_command_line_sees() {
    let world = World::new().await;
    pipe(&world, "gate");
    let mut client = Client::start(&world, &[]).await;

    // It answers while the task still waits.
    let tasks = "[[tasks]]\nname = \"one\"\ncommand = [\"cat\", \"gate\"]\n";
    let run = begun(&mut client, &world, tasks).await;
    let gate = waits_at(&world, "gate").await;
    let running = client.call("runs_get", json!({ "run": run })).await;
    drop(gate);
    let mut over = Value::Null;
    while over["run"]["code"].is_null() {
        over = client.call("runs_get", json!({ "run": run })).await;
    }
    let listed = client.call("runs_list", json!({})).await;
    let left = client.leave().await;
    let told = world.json(["runs", "list"]).await;

    assert_eq!(running["run"]["state"], "running", "{running:#}");
    assert_eq!(over["run"]["code"], "completed", "{over:#}");
    assert_eq!(listed["runs"], told["runs"], "{listed:#}");
    assert_eq!((left.code, left.stdout.as_str()), (Some(0), ""), "{left:#?}");
    assert_eq!(world.events("run.created").await[0]["principal"], "user:ada");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_37_a_client_of_mcp_that_goes_leaves_its_run_to_be_taken_up() {
    for goes in ["its input ends", "a signal"] {
        let world = World::new().await;
        pipe(&world, "gate");
        let mut client = Client::start(&world, &[]).await;
        let tasks = "[[tasks]]\nname = \"one\"\ncommand = [\"sh\", \"-c\", \"cat gate; echo done > made\"]\n";
        let run = begun(&mut client, &world, tasks).await;
        let gate = waits_at(&world, "gate").await;

        let ended = match goes {
            "a signal" => {
                signal(&client.child, Signal::TERM);
                end_of(client.child).await
            }
            _ => client.leave().await,
        };
        drop(gate);
        std::fs::remove_file(world.path("gate")).unwrap();
        world.repo.write("gate", "").unwrap();
        let state = world.shown().await["run"]["state"].clone();
        let resumed = world.run(["runs", "resume", &run]).await;

        assert_eq!(state, "paused", "{goes}: {ended:#?}");
        assert_eq!(resumed.code, Some(0), "{goes}: {resumed:#?}");
        assert_eq!(world.repo.read("made").unwrap(), "done\n");
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn behaviour_37_a_client_of_mcp_is_offered_what_its_scope_covers() {
    let world = World::new().await;
    let names = |listed: &Value| -> Vec<String> {
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut offered = Vec::new();
    for scope in ["read", "run", "admin"] {
        let mut client = Client::start(&world, &["--scope", scope]).await;
        offered.push(names(&client.ask("tools/list", json!({})).await));
        if scope == "read" {
            let start = json!({ "name": "runs_start", "arguments": {} });
            let refused = client.ask("tools/call", start).await;
            let told = refused["result"]["content"][0]["text"].as_str().unwrap();
            assert!(told.contains("user:ada lacks the scope run"), "{refused:#}");
        }
        assert_eq!(client.leave().await.code, Some(0));
    }
    let mut without = Client::start(&world, &[]).await;
    let usual = names(&without.ask("tools/list", json!({})).await);
    without.leave().await;

    let has = |at: usize, name: &str| offered[at].iter().any(|it| it == name);
    assert!(has(0, "runs_list") && !has(0, "runs_start") && !has(0, "trash_purge"));
    assert!(has(1, "runs_list") && has(1, "runs_start"));
    assert!(offered[2].len() > offered[1].len() && offered[1].len() > offered[0].len());
    assert_eq!(usual, offered[1]);
}

#[tokio::test]
async fn behaviour_37_a_client_of_mcp_has_no_run_do_more_than_the_config_lets_it() {
    let world = World::with("[permissions]\nmode = \"ask\"\n").await;
    let text = "format_version = 1\nname = \"theirs\"\n[[tasks]]\nname = \"one\"\ncommand = [\"touch\", \"made\"]\n";
    let work = json!({ "workflow": { "source": "theirs.toml", "text": text } });
    let start =
        |mode: &str| json!({ "name": "runs_start", "arguments": { "work": work, "mode": mode } });
    let told = |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();

    let mut client = Client::start(&world, &[]).await;
    let asked = client.ask("tools/call", start("ask")).await;
    let more = client.ask("tools/call", start("auto")).await;
    client.leave().await;
    let mut owner = Client::start(&world, &["--scope", "admin"]).await;
    let given = owner.ask("tools/call", start("auto")).await;
    let run = given["result"]["structuredContent"]["run"].clone();
    let mut over = Value::Null;
    while over["run"]["code"].is_null() {
        over = owner.call("runs_get", json!({ "run": run })).await;
    }
    owner.leave().await;

    assert!(told(&asked).contains("a run in mode ask changes nothing"), "{asked:#}");
    assert!(
        told(&more).contains("user:ada lacks the scope admin that a run in mode auto"),
        "{more:#}"
    );
    assert_eq!(over["run"]["code"], "completed", "{over:#}");
    assert_eq!(world.events("run.created").await.len(), 1);
    assert!(world.path("made").exists());
}

#[tokio::test]
async fn a_server_of_mcp_says_nothing_to_who_says_nothing_and_ends() {
    let world = World::new().await;

    let ended = world.run(["mcp"]).await;

    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:#?}");
    assert_eq!(ended.stderr, "");
}
