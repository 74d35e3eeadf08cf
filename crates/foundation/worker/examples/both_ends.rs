//! Both ends in one process: a call of a run is carried out by a worker over a socket of this machine.
//!
//! ```sh
//! cargo run -p formwork-worker --example both_ends
//! ```

use std::{error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{Router, extract::ws::WebSocketUpgrade, http::HeaderMap, routing::any};
use formwork_protocols::{
    AgentName, CallId, Cancel, EventBody, Principal, Replay, RunId, SessionId, SystemClock,
    SystemRng, TaskId, Tool, ToolClass, ToolError, ToolOutput, ToolSpec, message::ToolDefinition,
    tool::CallContext,
};
use formwork_worker::{
    Announced, Answer, Bench, Bounds, Given, Guest, Hub, Identity, Near, Tell, Token, Worker,
};
use serde_json::{Value, json};

/// A tool that says where it is. The near end judges by it and the far end announces it.
struct Where(ToolSpec);

fn spec() -> Result<ToolSpec, Box<dyn Error>> {
    let parameters = json!({ "type": "object" });
    let description = "Says where it is carried out.".to_owned();
    let definition = ToolDefinition { name: "where".parse()?, description, parameters };
    Ok(ToolSpec { definition, class: ToolClass::Read, replay: Replay::Pure, tags: Vec::new() })
}

#[async_trait]
impl Tool for Where {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &CallContext, _: Value, _: &Cancel) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text("here"))
    }
}

/// What a worker works with: a pipeline of its own, in a product.
struct Workbench(ToolSpec);

#[async_trait]
impl Bench for Workbench {
    fn tools(&self) -> Vec<Announced> {
        vec![Announced::of(&self.0.definition)]
    }

    async fn carry_out(&self, _: Given, _: &Cancel) -> Answer {
        let (text, outside) = ("there".to_owned(), None);
        Answer::Completed { text, outside, changes: Vec::new(), pictures: Vec::new() }
    }
}

/// Where a run's events go: to its log, in a product.
struct Log;

#[async_trait]
impl Tell for Log {
    #[expect(clippy::print_stdout, reason = "an example shows what happens")]
    async fn tell(&self, _: TaskId, body: EventBody) {
        println!("{}", body.kind());
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what happens")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The near end, behind a check of tokens.
    let hub = Hub::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("ws://{}", listener.local_addr()?).parse()?;
    let (at, service) = (hub.clone(), Principal::parse("service:lab")?);
    let enter = async move |headers: HeaderMap, ws: WebSocketUpgrade| {
        let is_known = headers.get("authorization").is_some_and(|it| it == "Bearer secret");
        let scopes = if is_known { vec!["worker"] } else { Vec::new() };
        at.accept(ws, Guest::new(service.clone(), scopes), Cancel::new())
    };
    let router = Router::new().route("/workers", any(enter));
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move { axum::serve(listener, router).await.map_err(|it| it.to_string()) });

    // The far end, which dials.
    let identity = Identity { name: "lab".parse()?, labels: vec!["gpu".parse()?], slots: 1 };
    let to = (address, Token::parse("secret")?);
    let worker = Worker::new(identity, to, Arc::new(Workbench(spec()?)), Arc::new(SystemRng));
    let leave = Cancel::new();
    let stop = leave.clone();
    running.spawn(async move { worker.run(&stop, &|_| {}).await.map_err(|it| it.to_string()) });

    // A run, whose tool is carried out there.
    let near = Near::new(hub, "gpu".parse()?, None, Arc::new(Log), Duration::from_secs(10));
    let bounds = Bounds { write: Vec::new(), network: None };
    let own = Arc::new(Where(spec()?));
    let tool = Arc::new(near).tool(own, Arc::new(bounds), Duration::from_secs(10));
    let context = CallContext {
        run: RunId::generate(&SystemClock, &SystemRng),
        task: TaskId::generate(&SystemClock, &SystemRng),
        session: SessionId::generate(&SystemClock, &SystemRng),
        call: CallId::generate(&SystemClock, &SystemRng),
        agent: AgentName::parse("reader")?,
    };
    let done = tool.call(&context, json!({}), &Cancel::new()).await?;
    println!("{} by {}", done.text, done.worker.map_or_else(String::new, |it| it.to_string()));
    leave.cancel();
    Ok(())
}
