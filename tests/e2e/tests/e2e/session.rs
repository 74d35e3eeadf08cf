//! A conversation over the real call pipeline, the real log and the real account book.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use formwork_policy::{Grants, Policy, Rules, Unattended};
use formwork_protocols::{
    AgentName, Budget, Cancel, Claim, CompactionCause, Completion, EventBody, EventStore, Ledger,
    Message, Model, ModelEvent, ModelRequest, NoSecrets, Part, PermissionMode, Position, Price,
    Principal, Provider, ProviderError, ProviderFault, ProviderName, Role, RunId, SessionRules,
    StuckPattern, SystemClock, SystemRng, TaskId, TaskName, Tool, ToolCall, ToolClass, ToolError,
    ToolName, ToolOutput, ToolSpec, Usage,
    message::{Arguments, ToolDefinition},
    model::{ModelInfo, ModelStream, ServedBy, StopReason, ToolCalls},
    store::{Live, Selection},
    tool::{CallContext, Control, Kept, Replay, TaskControl},
};
use formwork_scheduler::Accounts;
use formwork_session::{
    Error, Farewell, Group, Heard, Limits, Opening, Seams, Session, SessionEnd, SessionSpec, Via,
};
use formwork_tool::{Lookup, Parts, Pipeline};
use formwork_trace::{Options, Trace};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};

use crate::watched::{self, Watched};

/// Answers in order, and keeps what it was asked.
struct Script {
    name: ProviderName,
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<ModelRequest>>,
}

/// What the model does at one turn.
enum Answer {
    Says(Vec<Part>, StopReason),
    /// Says something, and counts this much of it.
    Counts(Usage),
    /// Streams these events and then nothing more.
    Hangs(Vec<ModelEvent>),
    Fails(ProviderFault),
}

impl Provider for Script {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn stream(&self, request: ModelRequest, _: Cancel) -> ModelStream {
        let model = request.model.to_string();
        self.asked.lock().unwrap().push(request);
        let answer = self.answers.lock().unwrap().pop_front().expect("the script has a turn");
        let mut usage = Usage { input: 100, output: 10, ..Usage::default() };
        let answer = match answer {
            Answer::Counts(counted) => {
                usage = counted;
                says("hello")
            }
            answer => answer,
        };
        match answer {
            Answer::Counts(_) => unreachable!("it says something"),
            Answer::Says(parts, stop) => {
                let message = Message { role: Role::Assistant, parts };
                let text = ModelEvent::Text { text: message.to_text() };
                let done = ModelEvent::Done(Box::new(Completion {
                    message,
                    stop,
                    usage,
                    usage_estimated: false,
                    usage_doubted: None,
                    served_by: ServedBy {
                        provider: self.name.clone(),
                        endpoint: "scripted:test".to_owned(),
                        model,
                        request_id: None,
                    },
                    first_token: None,
                    elapsed: Duration::from_millis(5),
                    tries: 1,
                    undecodable: 0,
                    lost: None,
                }));
                stream::iter([Ok(text), Ok(done)]).boxed()
            }
            Answer::Hangs(events) => {
                stream::iter(events.into_iter().map(Ok)).chain(stream::pending()).boxed()
            }
            Answer::Fails(fault) => stream::iter([Err(self.error(fault))]).boxed(),
        }
    }
}

impl Script {
    fn error(&self, fault: ProviderFault) -> ProviderError {
        ProviderError {
            fault,
            message: "as the script says".to_owned(),
            provider: self.name.clone(),
            endpoint: "scripted:test".to_owned(),
            status: None,
            code: None,
            request_id: None,
            body: None,
            retry_after: None,
            tries: 1,
            used: None,
        }
    }
}

fn text(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

fn call(id: &str, name: &str, arguments: Value) -> Part {
    let (id, name) = (id.to_owned(), name.to_owned());
    Part::ToolCall(ToolCall { id, name, arguments: Arguments::Json(arguments) })
}

fn calls(parts: impl IntoIterator<Item = Part>) -> Answer {
    Answer::Says(parts.into_iter().collect(), StopReason::ToolUse)
}

fn says(words: &str) -> Answer {
    Answer::Says(vec![text(words)], StopReason::EndTurn)
}

fn ends(summary: &str) -> Answer {
    calls([call("end", "end_task", json!({ "summary": summary }))])
}

type Does = Box<dyn Fn(&Value) -> Result<ToolOutput, ToolError> + Send + Sync>;

/// A tool of one test: counts its calls, waits where told to, and does something small.
struct Small {
    spec: ToolSpec,
    called: Arc<AtomicU32>,
    waits: Option<Arc<tokio::sync::Barrier>>,
    hangs: bool,
    does: Does,
}

#[async_trait]
impl Tool for Small {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        self.called.fetch_add(1, Ordering::SeqCst);
        if let Some(barrier) = &self.waits {
            barrier.wait().await;
        }
        if self.hangs {
            cancel.cancelled().await;
            return Err(ToolError::new(
                formwork_protocols::ToolErrorKind::Cancelled,
                "ended with the run",
            ));
        }
        (self.does)(&arguments)
    }
}

fn tool(name: &str, class: ToolClass, replay: Replay, does: Does) -> Small {
    let definition = ToolDefinition {
        name: ToolName::parse(name).unwrap(),
        description: "A tool of a test.".to_owned(),
        parameters: json!({ "type": "object" }),
    };
    Small {
        spec: ToolSpec { definition, class, replay, tags: Vec::new() },
        called: Arc::default(),
        waits: None,
        hangs: false,
        does,
    }
}

fn read() -> Small {
    let does: Does = Box::new(|arguments| Ok(ToolOutput::text(format!("read {arguments}"))));
    tool("read", ToolClass::Read, Replay::Pure, does)
}

fn note() -> Small {
    let does: Does = Box::new(|_| Ok(ToolOutput::text("noted")));
    tool("note", ToolClass::Memory, Replay::Once, does)
}

fn end_task() -> Small {
    let does: Does = Box::new(|arguments| {
        let claim: Claim = serde_json::from_value(arguments.clone()).unwrap_or_default();
        Ok(ToolOutput { control: Control::End(claim), ..ToolOutput::text("the checks run") })
    });
    tool("end_task", ToolClass::Lifecycle, Replay::Idempotent, does)
}

/// Takes all for pictures of one pixel.
fn look_at(_: &[u8]) -> Result<(&'static str, (u32, u32)), String> {
    Ok(("image/png", (1, 1)))
}

/// Every task is active, and none is opened within a conversation.
struct OneTask;

#[async_trait]
impl TaskControl for OneTask {
    fn is_active(&self, _: TaskId) -> bool {
        true
    }

    async fn start(&self, _: TaskId, _: TaskName, _: String) -> Result<TaskId, String> {
        Err("not in this test".to_owned())
    }

    async fn end(&self, _: TaskId, _: Claim) -> Result<TaskId, String> {
        Err("not in this test".to_owned())
    }
}

/// The world of one test.
struct World {
    trace: Trace,
    watched: Arc<Watched>,
    script: Arc<Script>,
    spec: SessionSpec,
    tools: Vec<Arc<dyn Tool>>,
    accounts: Arc<Accounts>,
}

impl World {
    async fn new(answers: impl IntoIterator<Item = Answer>, tools: Vec<Small>) -> Self {
        let script = Arc::new(Script {
            name: ProviderName::parse("test").unwrap(),
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
        });
        let price = Price {
            input: "1".parse().unwrap(),
            output: "10".parse().unwrap(),
            ..Price::default()
        };
        let info = ModelInfo {
            model: "test/model".parse().unwrap(),
            context_tokens: None,
            max_output_tokens: None,
            price: Some(price),
            tool_calls: ToolCalls::Native,
            images: None,
            scripted: true,
        };
        let task = TaskId::generate(&SystemClock, &SystemRng);
        let accounts = Arc::new(Accounts::new());
        accounts.open(task, None, &Budget::default());
        let trace = Trace::open("sqlite::memory:", Options::default()).await.unwrap();
        Self {
            watched: watched::open(trace.clone()),
            trace,
            spec: SessionSpec {
                run: RunId::generate(&SystemClock, &SystemRng),
                task,
                agent: AgentName::parse("coder").unwrap(),
                agent_version: "v1".to_owned(),
                principal: Principal::system("test"),
                model: Model { info, price, ceiling: price, provider: Arc::clone(&script) as _ },
                summary: None,
                rules: SessionRules::default(),
                limits: Limits::default(),
                token: None,
                call: None,
            },
            script,
            tools: tools.into_iter().map(|tool| Arc::new(tool) as _).collect(),
            accounts,
        }
    }

    fn seams(&self) -> Seams {
        let store: Arc<dyn EventStore> = Arc::clone(&self.watched) as _;
        let ledger: Arc<dyn Ledger> = Arc::clone(&self.accounts) as _;
        let pipeline = Pipeline::new(Parts {
            tools: self.tools.clone(),
            deferred: Default::default(),
            loaded: Vec::new(),
            policy: Arc::new(Policy::new(Rules::new(PermissionMode::Auto))),
            approver: Arc::new(Unattended),
            grants: Grants::default(),
            around: None,
            gate: None,
            outside: Arc::default(),
            apart: false,
            control: Arc::new(OneTask),
            ledger: Arc::clone(&ledger),
            secrets: Arc::default(),
            scrub: Arc::new(NoSecrets),
            clock: Arc::new(SystemClock),
            principal: Principal::system("test"),
            lookup: Lookup::default(),
            look_at,
        })
        .unwrap();
        Seams {
            tools: Arc::new(pipeline),
            control: Arc::new(OneTask),
            store,
            ledger,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            scrub: Arc::new(NoSecrets),
            heard: Heard::default(),
        }
    }

    fn start(&self) -> Session {
        self.start_with("Mend it.")
    }

    fn start_with(&self, user: &str) -> Session {
        let opening = Opening {
            system: "You mend code.".to_owned(),
            user: user.to_owned(),
            attached: Vec::new(),
            instructions: Vec::new(),
        };
        Session::start(self.spec.clone(), &opening, self.seams()).unwrap()
    }

    async fn run(&self, session: &mut Session) -> SessionEnd {
        session.run(&Cancel::new()).await.unwrap()
    }

    async fn kinds(&self) -> Vec<String> {
        let events = self.events().await;
        events.iter().map(|body| body.kind().to_owned()).collect()
    }

    async fn events(&self) -> Vec<EventBody> {
        let events = self.trace.read(Position(0), &Selection::default(), 1_000).await.unwrap();
        events.into_iter().map(|event| event.body).collect()
    }

    fn asked(&self) -> Vec<Vec<Message>> {
        self.script.asked.lock().unwrap().iter().map(|asked| asked.messages.clone()).collect()
    }

    async fn assert_sound(&self) {
        assert_eq!(self.trace.audit(self.spec.run).await.unwrap().faults, []);
    }
}

/// Returns what the model was told of its calls at the last turn.
fn results(session: &Session) -> Vec<(String, bool)> {
    let mut turns = session.history().groups().iter().filter_map(|group| match group {
        Group::Turn(turn) if !turn.results().is_empty() => Some(turn),
        _ => None,
    });
    let last = turns.next_back().expect("something was called");
    last.results().iter().map(|result| (result.content.clone(), result.is_error)).collect()
}

fn claimed(summary: &str, via: Via) -> SessionEnd {
    let claim = Claim { summary: summary.to_owned(), output: None };
    SessionEnd::Claimed { claim, via }
}

#[tokio::test]
async fn a_turn_waits_for_the_log_twice_however_much_it_has_to_say() {
    let answers = [
        calls([call("1", "read", json!({ "path": "a" })), call("2", "read", json!({}))]),
        calls([call("3", "note", json!({}))]),
        ends("done"),
    ];
    let world = World::new(answers, vec![read(), note(), end_task()]).await;
    let mut session = world.start();

    world.run(&mut session).await;

    let asks = ["budget.reserved", "model.requested"];
    let answers = ["model.completed", "budget.settled", "session.message"];
    let opening = ["session.started", "session.message", "session.message"];
    assert_eq!(
        world.watched.between.appends(),
        [
            [&opening[..], &asks].concat(),
            [&answers[..], &["tool.requested", "tool.requested"]].concat(),
            [&["tool.completed", "tool.completed", "session.message"][..], &asks].concat(),
            [&answers[..], &["tool.requested"]].concat(),
            [&["tool.completed", "session.message"][..], &asks].concat(),
            [&answers[..], &["tool.requested"]].concat(),
            vec!["tool.completed"],
        ]
    );
}

#[tokio::test]
async fn behaviour_3_a_failed_check_answers_the_open_call_and_the_conversation_goes_on() {
    let answers =
        [calls([call("1", "read", json!({ "path": "a" }))]), ends("done"), ends("now it is")];
    let world = World::new(answers, vec![read(), end_task()]).await;
    let mut session = world.start();

    let first = world.run(&mut session).await;
    let again = world.run(&mut session).await;
    session.answer("check \"tests\" failed: 1 of 3 tests failed").unwrap();
    let second = world.run(&mut session).await;
    let totals = session.close(Farewell::Accepted("completed")).await.unwrap();

    assert_eq!(first, claimed("done", Via::EndTask));
    assert_eq!(again, first, "a claim stands until it is answered, and costs nothing");
    assert_eq!(second, claimed("now it is", Via::EndTask));
    assert_eq!(
        (totals.rounds, totals.usage.input, totals.cost.to_string().as_str()),
        (3, 300, "0.0006")
    );
    let asked = world.asked();
    assert_eq!(
        asked[2].last().unwrap().parts,
        [Part::ToolResult(formwork_protocols::ToolResult {
            call_id: "end".to_owned(),
            name: "end_task".to_owned(),
            content: "check \"tests\" failed: 1 of 3 tests failed".to_owned(),
            is_error: true,
            attached: Vec::new(),
        })]
    );
    for pair in asked.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0][..], "a request begins with the one before");
    }
    let turn = ["budget.reserved", "model.requested", "model.completed", "budget.settled"];
    let kinds = world.kinds().await;
    let of_first: Vec<_> = kinds.iter().skip(3).take(4).map(String::as_str).collect();
    assert_eq!(kinds[..3], ["session.started", "session.message", "session.message"]);
    assert_eq!(of_first, turn);
    assert_eq!(kinds[7..10], ["session.message", "tool.requested", "tool.completed"]);
    assert_eq!(kinds.last().unwrap(), "session.ended");
    world.assert_sound().await;
}

#[tokio::test]
async fn after_a_crash_a_pure_call_is_made_again_and_one_that_may_count_twice_is_not() {
    let both = calls([call("1", "note", json!({})), call("2", "read", json!({ "path": "a" }))]);
    let mut hanging = note();
    hanging.waits = Some(Arc::new(tokio::sync::Barrier::new(2)));
    let noted = Arc::clone(&hanging.called);
    let reader = read();
    let reads = Arc::clone(&reader.called);
    let world = World::new([both, ends("done")], vec![hanging, reader, end_task()]).await;
    let mut session = world.start();
    let id = session.id();

    // The process dies while the first call runs: its intent is recorded and its outcome is not.
    let cancel = Cancel::new();
    {
        let mut run = Box::pin(session.run(&cancel));
        while noted.load(Ordering::SeqCst) == 0 {
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    drop(session);
    let mut session =
        Session::resume(world.spec.clone(), id, Vec::new(), world.seams()).await.unwrap();
    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("done", Via::EndTask));
    assert_eq!((noted.load(Ordering::SeqCst), reads.load(Ordering::SeqCst)), (1, 1));
    let told = results(&session);
    assert!(told[0].1 && told[0].0.contains("whether it took effect is unknown"), "{told:?}");
    assert_eq!(told[1], ("read {\"path\":\"a\"}".to_owned(), false));
    let failed = world.events().await.into_iter().find_map(|body| match body {
        EventBody::ToolFailed(failed) => Some(failed.error.as_str()),
        _ => None,
    });
    assert_eq!(failed, Some("outcome_unknown"));
    assert_eq!(session.totals().rounds, 2);
    world.assert_sound().await;
}

#[tokio::test]
async fn an_end_that_is_called_again_after_a_crash_asks_no_model() {
    let mut ender = end_task();
    // Who is dropped while it waits has been counted, so that the second call meets the first.
    ender.waits = Some(Arc::new(tokio::sync::Barrier::new(2)));
    let called = Arc::clone(&ender.called);
    let world = World::new([ends("done")], vec![ender]).await;
    let mut session = world.start();
    let id = session.id();
    let cancel = Cancel::new();
    {
        let mut run = Box::pin(session.run(&cancel));
        while called.load(Ordering::SeqCst) == 0 {
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    drop(session);

    let mut session =
        Session::resume(world.spec.clone(), id, Vec::new(), world.seams()).await.unwrap();
    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("done", Via::EndTask));
    assert_eq!((called.load(Ordering::SeqCst), session.totals().rounds), (2, 1));
    world.assert_sound().await;
}

#[tokio::test]
async fn a_resumed_conversation_sends_the_same_bytes_and_keeps_its_claim() {
    let world = World::new(
        [calls([call("1", "read", json!({ "b": 1, "a": 2 }))]), ends("done"), says("sorry")],
        vec![read(), end_task()],
    )
    .await;
    let mut session = world.start();
    let id = session.id();
    world.run(&mut session).await;
    let totals = session.totals();
    drop(session);

    let mut session =
        Session::resume(world.spec.clone(), id, Vec::new(), world.seams()).await.unwrap();
    let end = world.run(&mut session).await;
    assert_eq!((end, session.totals()), (claimed("done", Via::EndTask), totals));
    session.answer("not yet").unwrap();
    world.script.answers.lock().unwrap().push_back(says("I cannot"));
    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("I cannot", Via::Text));
    let asked = world.asked();
    assert_eq!(asked[2][..asked[1].len()], asked[1][..]);
    let indexes = world.events().await.into_iter().filter_map(|body| match body {
        EventBody::SessionMessage(said) => Some(said.index),
        _ => None,
    });
    assert_eq!(indexes.collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    world.assert_sound().await;
}

#[tokio::test]
async fn a_model_call_that_was_on_its_way_at_a_crash_is_settled_when_resumed() {
    let world = World::new([Answer::Hangs(vec![]), says("here")], vec![read()]).await;
    let mut session = world.start();
    let id = session.id();
    let cancel = Cancel::new();
    {
        let mut run = Box::pin(session.run(&cancel));
        while world.script.asked.lock().unwrap().is_empty() {
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    drop(session);

    let mut session =
        Session::resume(world.spec.clone(), id, Vec::new(), world.seams()).await.unwrap();
    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("here", Via::Text));
    assert_eq!(session.totals().rounds, 2);
    assert!(session.totals().usage.input > 100, "the lost call counts as well");
    let kinds = world.kinds().await;
    let count = |wanted| kinds.iter().filter(|kind| *kind == wanted).count();
    assert_eq!((count("budget.reserved"), count("budget.settled")), (2, 2));
    assert_eq!((count("model.failed"), count("model.completed")), (1, 1));
}

/// A tool that brings a picture, another one for each number.
fn shoot() -> Small {
    let does: Does = Box::new(|arguments| {
        let bytes = arguments["n"].to_string().into_bytes();
        let (media_type, name) = ("image/png".to_owned(), "the page".to_owned());
        let kept = vec![Kept { media_type, name, bytes }];
        Ok(ToolOutput { kept, ..ToolOutput::text("a picture") })
    });
    tool("shoot", ToolClass::Network, Replay::Pure, does)
}

#[tokio::test]
async fn pictures_are_sent_by_their_bytes_and_the_oldest_go_before_there_are_too_many() {
    let shots = (0..21).map(|n| calls([call(&format!("c{n}"), "shoot", json!({ "n": n }))]));
    let world = World::new(shots.chain([Answer::Hangs(vec![]), says("seen")]), vec![shoot()]).await;
    let mut session = world.start();
    let id = session.id();
    let cancel = Cancel::new();
    {
        let mut run = Box::pin(session.run(&cancel));
        while world.script.asked.lock().unwrap().len() < 22 {
            assert!((&mut run).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    drop(session);

    let mut resumed =
        Session::resume(world.spec.clone(), id, Vec::new(), world.seams()).await.unwrap();
    let end = world.run(&mut resumed).await;

    assert_eq!(end, claimed("seen", Via::Text));
    let asked = world.asked();
    let sent = |at: usize| -> Vec<String> {
        let attached = asked[at].iter().flat_map(Message::attachments);
        let bytes = attached.map(|it| it.content.as_deref().unwrap().to_vec());
        bytes.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    };
    let numbers = |range: std::ops::Range<u32>| range.map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!((sent(20), sent(21)), (numbers(0..20), numbers(11..21)));
    assert_eq!(asked[22], asked[21], "whoever takes it up sends the same");
    let compacted: Vec<_> = world
        .events()
        .await
        .into_iter()
        .filter_map(|body| match body {
            EventBody::ContextCompacted(done) => Some((done.cause, done.spilled)),
            _ => None,
        })
        .collect();
    assert_eq!(compacted, [(CompactionCause::Pictures, 11)]);
}

#[tokio::test]
async fn a_call_that_a_budget_cannot_bear_is_not_sent() {
    let mut world = World::new([], vec![read()]).await;
    world.accounts = Arc::new(Accounts::new());
    let budget = Budget { usd: Some("0.01".parse().unwrap()), ..Budget::default() };
    world.accounts.open(world.spec.task, None, &budget);
    let mut session = world.start();

    let end = world.run(&mut session).await;

    assert!(
        matches!(&end, SessionEnd::OverBudget(over) if over.task == world.spec.task),
        "{end:?}"
    );
    assert!(world.asked().is_empty());
    assert_eq!(world.kinds().await.last().unwrap(), "budget.exhausted");
}

#[tokio::test]
async fn cancelling_leaves_a_stream_and_settles_what_was_used() {
    let begun = vec![ModelEvent::Text { text: "I will".to_owned() }];
    let world = World::new([Answer::Hangs(begun), says("again")], vec![read()]).await;
    let mut session = world.start();
    let cancel = Cancel::new();
    let mut live = world.trace.watch();

    let stop = async {
        while let Some(live) = live.next().await {
            if let Live::Delta(delta) = live {
                assert_eq!(delta.text, "I will");
                break;
            }
        }
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(session.run(&cancel), stop);

    assert_eq!(end.unwrap(), SessionEnd::Cancelled);
    assert!(session.totals().usage.output > 0);
    let kinds = world.kinds().await;
    assert_eq!(kinds[kinds.len() - 2..], ["model.failed", "budget.settled"]);
    assert_eq!(world.run(&mut session).await, claimed("again", Via::Text), "it can go on");
}

#[tokio::test]
async fn cancelling_during_tools_answers_every_call() {
    let mut slow = note();
    slow.hangs = true;
    let begun = Arc::clone(&slow.called);
    let answer = calls([call("1", "note", json!({})), call("2", "note", json!({ "n": 2 }))]);
    let world = World::new([answer], vec![slow]).await;
    let mut session = world.start();
    let cancel = Cancel::new();

    let stop = async {
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(session.run(&cancel), stop);

    assert_eq!(end.unwrap(), SessionEnd::Cancelled);
    let told = results(&session);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, is_error)| *is_error), "{told:?}");
    assert_eq!(told[1].0, "cancelled before it was begun");
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert_eq!(world.kinds().await.last().unwrap(), "session.message");
}

#[tokio::test]
async fn reads_of_one_turn_run_beside_each_other_and_answer_in_order() {
    let mut reader = read();
    // Neither returns before both have begun.
    reader.waits = Some(Arc::new(tokio::sync::Barrier::new(2)));
    let answer = calls([call("1", "read", json!("a")), call("2", "read", json!("b"))].map(
        |part| match part {
            Part::ToolCall(mut call) => {
                call.arguments = Arguments::Json(json!({ "path": call.id }));
                Part::ToolCall(call)
            }
            other => other,
        },
    ));
    let world = World::new([answer, ends("done")], vec![reader, end_task()]).await;
    let mut session = world.start();

    world.run(&mut session).await;

    let told: Vec<_> = results(&session).into_iter().map(|(content, _)| content).collect();
    assert_eq!(told, ["read {\"path\":\"1\"}", "read {\"path\":\"2\"}"]);
}

#[tokio::test]
async fn the_fourth_identical_call_is_refused_and_the_sixth_ends_the_session() {
    let same = || calls([call("1", "read", json!({ "path": "a" }))]);
    let reader = read();
    let reads = Arc::clone(&reader.called);
    let world = World::new((0..6).map(|_| same()), vec![reader]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::Stuck { pattern: StuckPattern::RepeatedCall, detail } = end else {
        panic!("{end:?}")
    };
    assert_eq!(detail, "the call of \"read\" was repeated although it was refused 3 times");
    assert_eq!(reads.load(Ordering::SeqCst), 3);
    assert!(results(&session)[0].0.starts_with("refused: "));
    let refused = world.events().await.into_iter().filter(
        |body| matches!(body, EventBody::ToolFailed(failed) if failed.error.as_str() == "denied"),
    );
    assert_eq!(refused.count(), 3);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_model_that_stops_in_words_is_asked_once_to_end_its_task() {
    let world = World::new([says("All done!"), says("Really.")], vec![end_task()]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("Really.", Via::Text));
    let asked = world.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].last().unwrap().to_text().contains("call end_task"));
}

#[tokio::test]
async fn words_are_the_answer_where_no_task_can_be_ended() {
    let world = World::new([says("Three files.")], vec![read()]).await;
    let mut session = world.start();

    assert_eq!(world.run(&mut session).await, claimed("Three files.", Via::Text));
}

#[tokio::test]
async fn a_call_of_a_cut_answer_is_never_made() {
    let cut =
        || Answer::Says(vec![call("1", "note", json!({ "text": "half" }))], StopReason::Length);
    let writer = note();
    let noted = Arc::clone(&writer.called);
    let world = World::new([cut(), cut(), cut()], vec![writer]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let detail = "3 answers in a row were cut before their end".to_owned();
    assert_eq!(end, SessionEnd::Stuck { pattern: StuckPattern::CutAnswers, detail });
    assert_eq!(noted.load(Ordering::SeqCst), 0);
    assert!(results(&session)[0].0.starts_with("not called: your answer was cut"));
}

#[tokio::test]
async fn what_a_part_is_missing_of_is_neither_called_nor_claimed() {
    for (stop, what) in [(StopReason::Gap, "a part"), (StopReason::Missing, "the end")] {
        let writer = note();
        let noted = Arc::clone(&writer.called);
        let whole = call("1", "note", json!({ "text": "half" }));
        let answers = [
            Answer::Says(vec![whole], stop),
            Answer::Says(vec![text("It is done.")], stop),
            Answer::Says(vec![text("It is done.")], stop),
        ];
        let world = World::new(answers, vec![writer]).await;
        let mut session = world.start();

        let end = world.run(&mut session).await;

        let SessionEnd::ProviderFailed(error) = end else { panic!("{end:?}") };
        let told = format!("of the last 3 answers, none came whole: {what} of it is missing");
        assert_eq!((error.fault, error.message), (ProviderFault::Protocol, told));
        assert_eq!(noted.load(Ordering::SeqCst), 0);
        assert!(results(&session)[0].0.starts_with("not called: "), "{stop:?}");
        let last = world.asked().last().unwrap().last().unwrap().to_text();
        assert!(last.contains("Give it again, whole."), "{last}");
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn unknown_tools_and_unreadable_arguments_go_back_to_the_model() {
    let malformed = Part::ToolCall(ToolCall {
        id: "2".to_owned(),
        name: "read".to_owned(),
        arguments: Arguments::Malformed { text: "{\"path".to_owned(), error: "cut".to_owned() },
    });
    let answer = calls([call("1", "raed", json!({})), malformed]);
    let world = World::new([answer, says("sorry")], vec![read()]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    assert_eq!(end, claimed("sorry", Via::Text));
    let told = results(&session);
    assert!(told[0].1 && told[0].0.contains("did you mean read?"), "{told:?}");
    assert!(told[1].1 && told[1].0.contains("not whole JSON"), "{told:?}");
}

#[tokio::test]
async fn caps_and_failures_end_the_session_by_their_name() {
    let mut world = World::new(
        [calls([call("1", "read", json!({}))]), Answer::Fails(ProviderFault::Auth)],
        vec![read()],
    )
    .await;
    world.spec.limits.max_rounds = Some(2);
    let mut session = world.start();

    let auth = world.run(&mut session).await;
    let rounds = world.run(&mut session).await;

    assert!(
        matches!(auth, SessionEnd::ProviderFailed(error) if error.fault == ProviderFault::Auth)
    );
    assert_eq!(rounds, SessionEnd::RoundsExhausted { rounds: 2 });
    // What failed before its first event has cost nothing.
    assert_eq!(session.totals().usage.input, 100);
}

#[tokio::test]
async fn a_task_that_alone_is_too_long_for_the_server_ends_the_session_by_that_name() {
    let world = World::new([Answer::Fails(ProviderFault::ContextOverflow)], vec![]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::ContextOverflow(error) = end else { panic!("{end:?}") };
    let told = " are sent, because the server refused about ";
    assert!(error.message.contains(told), "{}", error.message);
    assert_eq!(world.script.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_task_that_is_too_long_for_its_window_is_told_what_takes_the_rest_of_it() {
    let mut world = World::new([], vec![]).await;
    world.spec.model.info.context_tokens = Some(128);
    world.spec.limits.max_output_tokens = 1_000;
    let mut session = world.start_with(&"word ".repeat(1_000));

    let end = world.run(&mut session).await;

    let SessionEnd::ContextOverflow(error) = end else { panic!("{end:?}") };
    let told = "of the window of 128 there is room for 94: 32 are kept for the answer, and 2 for what the server adds; \
                nothing more of it can be left out";
    assert!(error.message.ends_with(told), "{}", error.message);
}

#[tokio::test]
async fn an_answer_that_no_amount_can_pay_is_an_error_and_not_the_largest_amount() {
    let many = Usage { input: 100, output: 1_000_000_000_000_000, ..Usage::default() };
    let world = World::new([Answer::Counts(many)], vec![]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::ProviderFailed(error) = end else { panic!("{end:?}") };
    assert_eq!(
        error.message,
        "the answer is counted at 1000000000000100 tokens, which at its price cost more than 9223372036.854775807, the largest amount that is counted"
    );
    assert!(session.totals().cost < "0.01".parse().unwrap(), "{:?}", session.totals());
}

#[tokio::test]
async fn words_that_end_for_a_reason_nobody_knows_are_the_answer() {
    let answers = [Answer::Says(vec![text("done")], StopReason::Other)];
    let world = World::new(answers, vec![]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::Claimed { claim, .. } = end else { panic!("{end:?}") };
    assert_eq!(claim.summary, "done");
}

#[tokio::test]
async fn calls_that_end_for_a_reason_nobody_knows_are_not_made_and_not_asked_for_again() {
    let arguments = Arguments::Malformed {
        text: "{\"path\":\"a\"}".to_owned(),
        error: "the answer ended for \"because\", which is no reason that is known".to_owned(),
    };
    let cut = ToolCall { id: "a".to_owned(), name: "read".to_owned(), arguments };
    let answers = [Answer::Says(vec![Part::ToolCall(cut)], StopReason::Other)];
    let world = World::new(answers, vec![read()]).await;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::ProviderFailed(error) = end else { panic!("{end:?}") };
    assert_eq!(
        error.message,
        "no call of an answer is made: the answer ended for \"because\", which is no reason that is known"
    );
    assert_eq!(world.script.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_that_no_amount_can_pay_is_not_sent() {
    let mut world = World::new([says("hello")], vec![]).await;
    world.spec.model.ceiling.output = formwork_protocols::Usd::MAX;
    world.spec.limits.max_output_tokens = 2_000_000;
    let mut session = world.start();

    let end = world.run(&mut session).await;

    let SessionEnd::ProviderFailed(error) = end else { panic!("{end:?}") };
    assert!(error.message.starts_with("at its price, a call of "), "{}", error.message);
    assert_eq!(world.script.asked.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_session_whose_time_is_over_says_so() {
    let mut world = World::new([Answer::Hangs(vec![])], vec![read()]).await;
    let after = formwork_protocols::Span::from_millis(20);
    world.spec.limits.wall = Some(after);
    let mut session = world.start();

    assert_eq!(world.run(&mut session).await, SessionEnd::TimedOut { after });
}

#[tokio::test]
async fn what_is_no_conversation_of_the_run_is_not_resumed() {
    let world = World::new([], vec![read()]).await;
    let other = World::new([], vec![read()]).await.start().id();

    let error =
        Session::resume(world.spec.clone(), other, Vec::new(), world.seams()).await.unwrap_err();

    assert!(matches!(error, Error::NoSuchSession { session, .. } if session == other));
}
