//! Runs that are begun over HTTP: they go on in the server, under the name of whoever began them, and survive its end.

use formwork_api::Server;
use formwork_protocols::{
    Append, EventBody, NewEvent, Principal, RunId, RunState, Scope, Span, Timestamp,
};
use formwork_services::capability::Caller;
use formwork_testkit::postgres::Postgres;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::world::{Came, World, opened};

/// Waits for an event, and then leaves a file.
const WAITS: &str = "format_version = 1\nname = \"waits\"\n\
    [[tasks]]\nname = \"go\"\nwait_for = { event = \"go\", timeout = \"1h\" }\n\
    [[tasks]]\nname = \"left\"\ndepends_on = [\"go\"]\ncommand = [\"touch\", \"left\"]\n";

fn waits() -> Value {
    json!({ "work": { "workflow": { "source": "waits.toml", "text": WAITS } } })
}

async fn goes_on_in_the_server(world: World) {
    let bob = world.token("user:bob", &[Scope::Read, Scope::Run]).await;

    // It answers though the run waits for something that has not happened.
    let started = world.call_as(&bob, "runs.start", waits()).await;
    assert_eq!(started.status, 200, "{started:?}");
    let run = started.json()["run"].as_str().unwrap().to_owned();
    let mut stream = world.stream(&format!("/v1/runs/{run}/events"), "").await;
    let (_, created) = stream.event().await;
    let mut told = Value::Null;
    while told["kind"] != "task.suspended" {
        told = stream.event().await.1;
    }
    let fired = world.call("events.fire", json!({ "name": "go", "run": run })).await;
    while told["kind"] != "run.finished" {
        told = stream.event().await.1;
    }
    let shown = world.call("runs.get", json!({ "run": run })).await.json();

    assert_eq!(
        (&created["kind"], &created["principal"]),
        (&json!("run.created"), &json!("user:bob"))
    );
    assert_eq!(fired.json()["runs"], json!([run]));
    assert_eq!(told["data"]["outcome"]["code"], "completed", "{told:#}");
    assert_eq!(shown["run"]["state"], "completed", "{shown:#}");
    assert!(world.folder.path().join("left").exists());
    let again = world.call_as(&bob, "runs.resume", json!({ "run": run })).await;
    assert_eq!(again.problem().0, 409, "{again:?}");
    world.end().await;
}

#[tokio::test]
async fn behaviour_37_a_run_that_is_begun_over_http_goes_on_in_the_server() {
    goes_on_in_the_server(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_37_a_run_that_is_begun_over_http_goes_on_in_the_server() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    goes_on_in_the_server(World::with(Default::default(), Some(database.url())).await).await;
}

#[tokio::test]
async fn a_run_is_begun_though_whoever_asked_has_gone() {
    let world = World::new().await;
    let mut stream = world.stream("/v1/events?after=now&kind=run.created", "").await;
    assert!(matches!(stream.next().await, Came::Cursor(_)));
    let body = waits().to_string();
    let mut socket = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST /v1/runs.start HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        world.ada,
        body.len()
    );

    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    // It has read the whole of it by the time that it says so, and then nobody is there any more.
    let (_, created) = stream.event().await;
    drop(socket);
    let run = created["run"].clone();
    let stopped = world.call("runs.abort", json!({ "run": run, "wait": "10s" })).await;

    assert_eq!(stopped.json()["done"], true, "{stopped:?}");
    world.end().await;
}

#[tokio::test]
async fn a_run_that_is_under_way_at_the_end_of_the_server_is_resumed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("formwork.db").display());
    let world = World::with(Default::default(), Some(&url)).await;
    let run = world.call("runs.start", waits()).await.json()["run"].as_str().unwrap().to_owned();
    let mut stream = world.stream(&format!("/v1/runs/{run}/events?kind=task.suspended"), "").await;
    stream.event().await;

    let address = world.address;
    world.cancel.cancel();
    assert_eq!(stream.next().await, Came::End);
    let workspace = world.end_but_for_its_folder().await;
    let next = opened(workspace.path(), Some(&url)).await;
    let row = next.store().run(run.parse().unwrap()).await.unwrap().unwrap();

    assert_eq!(row.state, RunState::Paused);
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    let ada = Caller::owner(Principal::parse("user:ada").unwrap());
    next.invoke(&ada, "runs.resume", json!({ "run": run })).await.unwrap();
    next.invoke(&ada, "events.fire", json!({ "name": "go", "run": run })).await.unwrap();
    let outcome = next.wait(run.parse().unwrap()).await.unwrap();
    assert_eq!(outcome.code.exit_code(), 0, "{outcome:?}");
    next.close().await;
}

#[tokio::test]
async fn a_call_that_outlasts_the_server_is_told_so() {
    let leave = std::time::Duration::from_millis(50);
    let world = World::limited(formwork_api::Limits { leave, ..Default::default() }).await;
    let run: RunId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
    let created = json!({
        "name": "held", "workspace": world.folder.path(), "mode": "ask", "budget": {},
        "root": "00000000-0000-7000-8000-000000000002", "setup": {}, "version": "0.1.0",
    });
    let event = NewEvent {
        task: None,
        principal: Principal::system("test"),
        at: Timestamp::from_micros(1),
        body: EventBody::from_parts("run.created", created).unwrap(),
        idempotency_key: None,
    };
    let append = Append { run, token: None, events: vec![event], blobs: Vec::new() };
    let store = world.formwork.store();
    store.append(append).await.unwrap();
    // Whoever has it never answers.
    store.acquire(run, "somebody-else", Span::from_secs(3_600)).await.unwrap();
    let mut stream = world.stream("/v1/events?kind=run.pause_requested", "").await;

    let asked = world.call("runs.pause", json!({ "run": run, "wait": "1h" }));
    let ends = async {
        stream.event().await;
        world.cancel.cancel();
    };
    let (answer, ()) = tokio::join!(asked, ends);

    assert_eq!(answer.problem(), (503, "this server is about to end".to_owned()));
    assert!(answer.json()["hint"].as_str().unwrap().contains("the log tells how far it came"));
    world.end().await;
}

#[tokio::test]
async fn an_address_that_cannot_be_listened_on_is_told_with_what_to_do() {
    let world = World::new().await;

    let taken = Server::bind(world.address).await.unwrap_err();
    let elsewhere = Server::bind("192.0.2.1:4676".parse().unwrap()).await.unwrap_err();

    let address = world.address;
    assert_eq!(
        taken.to_string(),
        format!("cannot listen on {address}: something else listens there")
    );
    assert!(taken.hint().contains("port 0"));
    assert!(elsewhere.to_string().ends_with("it is no address of this machine"), "{elsewhere}");
    world.end().await;
}
