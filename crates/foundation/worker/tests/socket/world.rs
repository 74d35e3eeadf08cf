//! A hub behind a real socket, with a token check of its own; workers, honest ones and ones by hand; and a run's calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    extract::{State, ws::WebSocketUpgrade},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use formwork_protocols::{
    AgentName, CallId, Cancel, EventBody, Principal, Replay, RunId, SeededRng, SessionId,
    SystemClock, SystemRng, TaskId, Tool, ToolClass, ToolError, ToolName, ToolOutput, ToolSpec,
    message::ToolDefinition, tool::CallContext,
};
use formwork_worker::{
    Address, Announced, Answer, Bench, Bounds, FromWorker, Given, Guest, Hello, Hub, Identity,
    Lease, Near, PROTOCOL, Status, Tell, Times, ToWorker, Token, Worker, WorkerRow, decode, encode,
};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::{JoinHandle, JoinSet},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{ClientRequestBuilder, Message},
};

/// The token that the test's server knows, and one of somebody else.
pub(crate) const TOKEN: &str = "tok-ada";
pub(crate) const OTHERS: &str = "tok-bob";
/// One that is good for something else.
pub(crate) const NARROW: &str = "tok-reader";

/// Times so short that a test need not wait for what it waits for.
pub(crate) const QUICK: Times = Times {
    beat: Duration::from_millis(10),
    silence: Duration::from_secs(5),
    grace: Duration::from_millis(100),
    ending: Duration::from_millis(200),
};

/// A run's end of it.
pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) address: String,
    pub(crate) told: Arc<Log>,
    pub(crate) near: Arc<Near>,
    pub(crate) context: CallContext,
    _serving: JoinSet<()>,
}

/// What was told in the run.
#[derive(Default)]
pub(crate) struct Log {
    bodies: Mutex<Vec<EventBody>>,
    grown: Notify,
}

impl Log {
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.bodies.lock().unwrap().iter().map(|body| body.kind().to_owned()).collect()
    }

    /// Waits until something of a kind was told, and returns it in words.
    pub(crate) async fn of(&self, kind: &str) -> String {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            let found = self.bodies.lock().unwrap().iter().rev().find_map(|body| match body {
                EventBody::WorkerAwaited(it) if kind == body.kind() => Some(it.to_string()),
                EventBody::WorkerConnected(it) if kind == body.kind() => Some(it.to_string()),
                EventBody::WorkerLost(it) if kind == body.kind() => Some(it.to_string()),
                EventBody::WorkerRefused(it) if kind == body.kind() => Some(it.to_string()),
                _ => None,
            });
            if let Some(found) = found {
                return found;
            }
            grown.await;
        }
    }
}

#[async_trait]
impl Tell for Log {
    async fn tell(&self, _: TaskId, body: EventBody) {
        self.bodies.lock().unwrap().push(body);
        self.grown.notify_waiters();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(QUICK, Duration::from_secs(20)).await
    }

    pub(crate) async fn with(times: Times, wait: Duration) -> Self {
        let hub = Hub::new(times, Arc::new(SystemClock));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("ws://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/workers", any(enter)).with_state(hub.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let rng = SeededRng::new(7);
        let context = CallContext {
            run: RunId::generate(&SystemClock, &rng),
            task: TaskId::generate(&SystemClock, &rng),
            session: SessionId::generate(&SystemClock, &rng),
            call: CallId::generate(&SystemClock, &rng),
            agent: AgentName::parse("coder").unwrap(),
        };
        let told = Arc::new(Log::default());
        let near = near(&hub, &told, None, wait);
        Self { hub, address, told, near, context, _serving: serving }
    }

    /// Returns a tool of the run that is carried out by a worker.
    pub(crate) fn tool(&self, name: &str, replay: Replay) -> Arc<dyn Tool> {
        self.bounded(name, replay, Duration::from_secs(60))
    }

    pub(crate) fn bounded(&self, name: &str, replay: Replay, longest: Duration) -> Arc<dyn Tool> {
        self.near.tool(Arc::new(Named(spec(name, replay))), Arc::new(bounds()), longest)
    }

    pub(crate) async fn call(&self, tool: &str) -> Result<ToolOutput, ToolError> {
        let tool = self.tool(tool, Replay::Pure);
        tool.call(&self.context, json!({ "of": "it" }), &Cancel::new()).await
    }

    /// Begins a call, and leaves it to itself.
    pub(crate) fn begin(
        &self,
        tool: &str,
        replay: Replay,
    ) -> (JoinHandle<Result<ToolOutput, ToolError>>, Cancel) {
        let (tool, cancel, context) =
            (self.tool(tool, replay), Cancel::new(), self.context.clone());
        let stop = cancel.clone();
        let calling = async move { tool.call(&context, json!({ "of": "it" }), &stop).await };
        (spawn(calling), cancel)
    }

    /// Starts an honest worker.
    pub(crate) fn worker(&self, name: &str, bench: Arc<dyn Bench>, slots: u32) -> Working {
        self.worker_with(name, bench, slots, TOKEN)
    }

    pub(crate) fn worker_with(
        &self,
        name: &str,
        bench: Arc<dyn Bench>,
        slots: u32,
        token: &str,
    ) -> Working {
        let labels = vec!["gpu".parse().unwrap()];
        let identity = Identity { name: name.parse().unwrap(), labels, slots };
        let address: Address = self.address.parse().unwrap();
        let to = (address, Token::parse(token).unwrap());
        let worker = Worker::new(identity, to, bench, Arc::new(SystemRng));
        let (cancel, (says, said)) = (Cancel::new(), mpsc::unbounded_channel());
        let stop = cancel.clone();
        let done =
            spawn(async move { worker.run(&stop, &move |status| drop(says.send(status))).await });
        Working { cancel, done, said }
    }

    /// Waits until the list of workers is so.
    pub(crate) async fn until(
        &self,
        mut is_so: impl FnMut(&[WorkerRow]) -> bool,
    ) -> Vec<WorkerRow> {
        let mut moves = self.hub.moves();
        loop {
            moves.changed().await.unwrap();
            let rows = self.hub.workers();
            if is_so(&rows) {
                return rows;
            }
        }
    }

    /// Connects by hand.
    pub(crate) async fn hand(&self, token: &str) -> Hand {
        self.knock(token, PROTOCOL).await.unwrap()
    }

    pub(crate) async fn knock(&self, token: &str, protocol: &str) -> Result<Hand, u16> {
        let place = self.address.strip_prefix("ws://").unwrap();
        let tcp = TcpStream::connect(place).await.unwrap();
        let uri = format!("{}/workers", self.address).parse().unwrap();
        let request = ClientRequestBuilder::new(uri)
            .with_sub_protocol(protocol)
            .with_header("authorization", format!("Bearer {token}"));
        match client_async(request, tcp).await {
            Ok((socket, _)) => Ok(Hand(socket)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Connects by hand as a worker that has one tool and takes calls.
    pub(crate) async fn by_hand(&self, name: &str, instance: &str) -> Hand {
        let mut hand = self.hand(TOKEN).await;
        hand.say(&FromWorker::Hello(hello(name, instance))).await;
        assert!(matches!(hand.hear().await, ToWorker::Welcome { .. }));
        hand.say(&FromWorker::Pull { calls: 4 }).await;
        hand
    }
}

pub(crate) fn near(hub: &Hub, told: &Arc<Log>, before: Option<&str>, wait: Duration) -> Arc<Near> {
    let before = before.map(|name| name.parse().unwrap());
    let told = Arc::clone(told) as Arc<dyn Tell>;
    Arc::new(Near::new(hub.clone(), "gpu".parse().unwrap(), before, told, wait))
}

/// Lets something go on beside the test, which waits for it or does without.
#[expect(clippy::disallowed_methods, reason = "the handle is what a test waits by, or aborts")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

async fn enter(State(hub): State<Hub>, headers: HeaderMap, ws: WebSocketUpgrade) -> Response {
    let shown = headers.get("authorization").and_then(|it| it.to_str().ok());
    let who = |name: &str| Principal::parse(name).unwrap();
    let guest = match shown.and_then(|shown| shown.strip_prefix("Bearer ")) {
        Some(TOKEN) => Guest::new(who("service:ada"), ["worker"]),
        Some(OTHERS) => Guest::new(who("service:bob"), ["worker"]),
        Some(NARROW) => Guest::new(who("service:eve"), ["read", "run"]),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    hub.accept(ws, guest, Cancel::new())
}

pub(crate) fn hello(name: &str, instance: &str) -> Hello {
    Hello {
        name: name.parse().unwrap(),
        instance: instance.to_owned(),
        labels: vec!["gpu".parse().unwrap()],
        slots: 4,
        tools: vec![Announced::of(&spec("look", Replay::Pure).definition)],
    }
}

pub(crate) fn spec(name: &str, replay: Replay) -> ToolSpec {
    let definition = ToolDefinition {
        name: ToolName::parse(name).unwrap(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    };
    ToolSpec { definition, class: ToolClass::Exec, replay, tags: Vec::new() }
}

pub(crate) fn bounds() -> Bounds {
    Bounds { write: Vec::new(), network: None }
}

/// A tool that nobody calls here.
struct Named(ToolSpec);

#[async_trait]
impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &CallContext, _: Value, _: &Cancel) -> Result<ToolOutput, ToolError> {
        panic!("it was called at the near end")
    }
}

/// A worker that goes about its work.
pub(crate) struct Working {
    pub(crate) cancel: Cancel,
    pub(crate) done: JoinHandle<Result<(), formwork_worker::Error>>,
    pub(crate) said: mpsc::UnboundedReceiver<Status>,
}

/// Carries calls out by names: `look` at once, `wait` once it is let, `until` its end is asked for.
pub(crate) struct Tools {
    name: &'static str,
    let_go: Notify,
    pub(crate) begun: Mutex<BTreeMap<String, u32>>,
    pub(crate) begins: mpsc::UnboundedSender<String>,
}

impl Tools {
    pub(crate) fn new(name: &'static str) -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (begins, begun) = mpsc::unbounded_channel();
        let (let_go, counted) = (Notify::new(), Mutex::default());
        (Arc::new(Self { name, let_go, begun: counted, begins }), begun)
    }

    pub(crate) fn let_go(&self) {
        self.let_go.notify_one();
    }
}

#[async_trait]
impl Bench for Tools {
    fn tools(&self) -> Vec<Announced> {
        let names = ["look", "wait", "until", "break"];
        names.map(|name| Announced::of(&spec(name, Replay::Pure).definition)).to_vec()
    }

    async fn carry_out(&self, given: Given, cancel: &Cancel) -> Answer {
        let name = given.tool.name.as_str().to_owned();
        *self.begun.lock().unwrap().entry(name.clone()).or_default() += 1;
        let _ = self.begins.send(name.clone());
        match name.as_str() {
            "wait" => self.let_go.notified().await,
            "until" => {
                cancel.cancelled().await;
                let kind = formwork_protocols::ToolErrorKind::Cancelled;
                return Answer::failed(kind, "cancelled at the far end");
            }
            "break" => panic!("as it was asked to"),
            _ => {}
        }
        let text = format!("{name} by {} of {}", self.name, given.arguments["of"]);
        Answer::Completed { text, outside: None, changes: Vec::new(), pictures: Vec::new() }
    }
}

/// A connection by hand.
pub(crate) struct Hand(WebSocketStream<TcpStream>);

impl Hand {
    pub(crate) async fn say(&mut self, message: &FromWorker) {
        self.send(encode(message)).await;
    }

    pub(crate) async fn send(&mut self, frame: String) {
        // A hub may have ended it meanwhile, which is read of.
        let _ = self.0.send(Message::text(frame)).await;
    }

    pub(crate) async fn bytes(&mut self, bytes: Vec<u8>) {
        let _ = self.0.send(Message::binary(bytes)).await;
    }

    /// Returns what the hub says next besides that it is there.
    pub(crate) async fn hear(&mut self) -> ToWorker {
        self.next().await.expect("the connection was ended")
    }

    /// The same, or nothing where the connection ends.
    pub(crate) async fn next(&mut self) -> Option<ToWorker> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(frame))) => match decode(&frame).unwrap() {
                    ToWorker::Beat {} => {}
                    said => return Some(said),
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Takes the next call.
    pub(crate) async fn call(&mut self) -> Lease {
        match self.hear().await {
            ToWorker::Call { of, .. } => of,
            said => panic!("no call: {said:?}"),
        }
    }

    /// Answers a call.
    pub(crate) async fn answer(&mut self, of: Lease, text: &str) {
        let answer = Answer::Completed {
            text: text.to_owned(),
            outside: None,
            changes: Vec::new(),
            pictures: Vec::new(),
        };
        self.say(&FromWorker::Part { of, text: encode(&answer) }).await;
        self.say(&FromWorker::Done { of, parts: 1 }).await;
    }
}
