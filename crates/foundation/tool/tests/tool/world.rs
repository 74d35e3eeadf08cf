//! A session's tools over a temporary folder, and a log that remembers every append.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use formwork_policy::{
    CommandPatterns, Grants, HostPatterns, PathPatterns, Policy, Rules, Unattended,
};
use formwork_protocols::{
    AgentName, Append, Approver, Ask, Attachment, BlobHash, CallId, Cancel, Claim, Clock, Event,
    EventBody, EventStore, HoldId, Journal, Ledger, Live, NewEvent, OverBudget, PermissionMode,
    Position, Principal, RunId, SeededRng, SessionId, Span, StoreError, SystemClock, TaskId,
    TaskName, Timestamp, Tool, ToolCall, Toolbox, Usage, Usd,
    budget::{Cap, Crossing, Remaining},
    event::Delta,
    message::Arguments,
    store::{Audit, Lease, Recorded, Selection},
    tool::{CallContext, Control, TaskControl},
};
use formwork_sandbox::{Environment, Protection, Sandbox};
use formwork_secrets::{Registry as Secrets, SecretName};
use formwork_tool::{
    Around, Gate, HttpRules, Lookup, Parts, Pipeline, Registry,
    builtin::{self, Builtins},
};
use formwork_write_safety::{Reads, Root, Trash, Workspace, WriteRules};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;
use tempfile::TempDir;

/// Takes whatever begins and ends as a PNG for one of two pixels.
fn look_at(bytes: &[u8]) -> Result<(&'static str, (u32, u32)), String> {
    match bytes.starts_with(b"\x89PNG") && bytes.ends_with(b"IEND") {
        true => Ok(("image/png", (2, 1))),
        false => Err("it is no picture".to_owned()),
    }
}

/// What a test may say of the session that it wants.
pub(crate) struct Setup {
    pub(crate) mode: PermissionMode,
    pub(crate) write_paths: &'static [&'static str],
    pub(crate) protected: &'static [&'static str],
    pub(crate) commands: Option<&'static [&'static str]>,
    pub(crate) tool_calls: u32,
    pub(crate) exec_timeout: Duration,
    pub(crate) secret: Option<&'static str>,
    pub(crate) more: Vec<Arc<dyn Tool>>,
    pub(crate) deferred: &'static [&'static str],
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) around: Option<Arc<dyn Around>>,
    pub(crate) gate: Option<Arc<dyn Gate>>,
    pub(crate) hosts: Vec<String>,
    pub(crate) private: Vec<String>,
    pub(crate) secret_to: Vec<String>,
    /// The commands that secrets may stand in.
    pub(crate) secret_in: &'static [&'static str],
    pub(crate) sinks: &'static [&'static str],
    /// Folders of the workspace in which programs are looked for before those of the system.
    pub(crate) path: &'static [&'static str],
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mode: PermissionMode::Auto,
            write_paths: &["**"],
            protected: &[],
            commands: None,
            tool_calls: u32::MAX,
            exec_timeout: Duration::from_secs(30),
            secret: None,
            more: Vec::new(),
            deferred: &[],
            approver: Arc::new(Unattended),
            around: None,
            gate: None,
            hosts: Vec::new(),
            private: Vec::new(),
            secret_to: Vec::new(),
            secret_in: &[],
            sinks: &[],
            path: &[],
        }
    }
}

/// One session.
pub(crate) struct World {
    _home: TempDir,
    folder: PathBuf,
    pub(crate) trash: Arc<Trash>,
    pub(crate) log: Arc<Log>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) pipeline: Pipeline,
    pub(crate) context: CallContext,
}

/// What came of a call, as the model sees it.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    pub(crate) control: Control,
    pub(crate) attached: Vec<Attachment>,
}

impl World {
    /// Opens a session that may do all, in an empty folder.
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().canonicalize().unwrap().join("workspace");
        fs::create_dir(&folder).unwrap();
        Self::at(setup, home, folder)
    }

    /// Opens a session in `folder`, which the caller has filled.
    pub(crate) fn at(setup: Setup, home: TempDir, folder: PathBuf) -> Self {
        let rng = SeededRng::new(7);
        let context = CallContext {
            run: RunId::generate(&SystemClock, &rng),
            task: TaskId::generate(&SystemClock, &rng),
            session: SessionId::generate(&SystemClock, &rng),
            call: CallId::generate(&SystemClock, &rng),
            agent: AgentName::parse("coder").unwrap(),
        };
        let rules = WriteRules::parse(setup.write_paths, setup.protected).unwrap();
        let root = Arc::new(Root::open(&folder).unwrap());
        let workspace = Workspace::new(root, rules, Reads::new().session());
        let trash = Arc::new(Trash::open(home.path().join("trash")).unwrap());
        let log = Arc::new(Log::default());
        let tasks = Arc::new(Tasks::active());
        let own = setup.path.iter().map(|below| format!("{}:", folder.join(below).display()));
        let path = [("PATH", own.collect::<String>() + "/usr/local/bin:/usr/bin:/bin")];
        let sandbox = Arc::new(Sandbox::new(Environment::new(path.clone()), home.path()));

        let mut registry = Registry::new();
        let parts = Builtins {
            workspace,
            trash: Arc::clone(&trash),
            sandbox,
            protection: Protection::None,
            bounds: "a program may write all".to_owned(),
            exec_timeout: setup.exec_timeout,
            store: Arc::clone(&log) as _,
            control: Arc::clone(&tasks) as _,
            clock: Arc::new(Noon),
            makes: None,
            commits: None,
            http: HttpRules {
                hosts: Some(HostPatterns::parse(&setup.hosts).unwrap()),
                private: HostPatterns::parse(setup.private).unwrap(),
            },
            look_at,
        };
        builtin::register(&mut registry, parts).unwrap();
        for tool in setup.more {
            registry.add(tool).unwrap();
        }

        let mut policy = Rules::new(setup.mode);
        policy.commands = setup.commands.map(|list| CommandPatterns::parse(list).unwrap());
        policy.hosts = Some(HostPatterns::parse(&setup.hosts).unwrap());
        policy.secrets.insert("KEY".to_owned(), HostPatterns::parse(setup.secret_to).unwrap());
        for name in ["KEY", "KYE"] {
            let commands = CommandPatterns::parse(setup.secret_in).unwrap();
            policy.exec_secrets.insert(name.to_owned(), commands);
        }
        policy.sinks.ask = setup.sinks.iter().map(|name| name.parse().unwrap()).collect();
        policy.protected = PathPatterns::parse(setup.protected).unwrap();
        let mut secrets = Secrets::default();
        if let Some(value) = setup.secret {
            secrets.insert(SecretName::parse("KEY").unwrap(), value.into()).unwrap();
        }
        let scrub = Arc::new(secrets.scrubber());
        let pipeline = Pipeline::new(Parts {
            tools: registry.select(|_| true),
            deferred: setup.deferred.iter().map(|name| name.parse().unwrap()).collect(),
            loaded: Vec::new(),
            policy: Arc::new(Policy::new(policy)),
            approver: setup.approver,
            grants: Grants::default(),
            outside: Arc::default(),
            around: setup.around,
            gate: setup.gate,
            apart: false,
            control: Arc::clone(&tasks) as _,
            ledger: Arc::new(Calls(AtomicU32::new(setup.tool_calls))),
            secrets: Arc::new(secrets),
            scrub,
            clock: Arc::new(Noon),
            principal: Principal::agent(&context.agent),
            lookup: Lookup { path: path[0].1.clone().into(), roots: [folder.clone()].into() },
            look_at,
        })
        .unwrap();
        Self { _home: home, folder, trash, log, tasks, pipeline, context }
    }

    /// Returns the workspace, without links.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Puts a file there without any tool.
    pub(crate) fn put(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn content(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Told {
        self.call_with(tool, Arguments::Json(arguments), &Cancel::new()).await
    }

    pub(crate) async fn call_with(
        &self,
        tool: &str,
        arguments: Arguments,
        cancel: &Cancel,
    ) -> Told {
        let call = ToolCall { id: "call-1".to_owned(), name: tool.to_owned(), arguments };
        let journal = Journal::new(Arc::clone(&self.log) as _, self.context.run, None);
        let reply = self.pipeline.call(&self.context, &call, &journal, cancel).await;
        // A log that cannot be written has told so by the reply.
        let _ = journal.flush().await;
        assert_eq!((reply.result.call_id, reply.result.name), (call.id, call.name));
        let (text, is_error) = (reply.result.content, reply.result.is_error);
        let attached = reply.result.attached;
        Told { text, is_error, control: reply.control, attached }
    }

    /// Calls, and returns the text of an outcome that must be good.
    pub(crate) async fn done(&self, tool: &str, arguments: Value) -> String {
        let told = self.call(tool, arguments).await;
        assert!(!told.is_error, "{}", told.text);
        told.text
    }

    /// Calls, and returns the text of a failure that must be.
    pub(crate) async fn fails(&self, tool: &str, arguments: Value) -> String {
        let told = self.call(tool, arguments).await;
        assert!(told.is_error, "{}", told.text);
        told.text
    }
}

/// A clock that stands still.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_767_268_800_000_000)
    }
}

/// A budget of tool calls and of nothing else.
struct Calls(AtomicU32);

impl Ledger for Calls {
    fn reserve(&self, _: TaskId, _: HoldId, _: Ask) -> Result<(), OverBudget> {
        Ok(())
    }

    fn extend(&self, _: TaskId, _: HoldId, _: Ask) -> Result<(), OverBudget> {
        Ok(())
    }

    fn settle(&self, _: HoldId, _: &Usage, _: Usd) -> Vec<Crossing> {
        Vec::new()
    }

    fn count_tool_call(&self, task: TaskId) -> Result<Vec<Crossing>, OverBudget> {
        let less = |left: u32| left.checked_sub(1);
        let counted = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        let before = counted.map_err(|left| {
            let (limit, left, asked) = ("2".to_owned(), left.to_string(), "1".to_owned());
            OverBudget { task, cap: Cap::ToolCalls, limit, left, asked }
        })?;
        let used = u64::from(2_u32.saturating_sub(before));
        Ok(Crossing::of(task, Cap::ToolCalls, (used, used + 1), 2).collect())
    }

    fn remaining(&self, _: TaskId) -> Remaining {
        Remaining::default()
    }
}

/// Tasks that are all active or all not.
pub(crate) struct Tasks {
    pub(crate) active: AtomicBool,
    pub(crate) opened: Mutex<Vec<(TaskId, TaskName, String)>>,
}

impl Tasks {
    fn active() -> Self {
        Self { active: AtomicBool::new(true), opened: Mutex::default() }
    }
}

#[async_trait]
impl TaskControl for Tasks {
    fn is_active(&self, _: TaskId) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    async fn start(&self, parent: TaskId, name: TaskName, goal: String) -> Result<TaskId, String> {
        let mut opened = self.opened.lock().unwrap();
        if opened.iter().any(|(_, taken, _)| *taken == name) {
            return Err(format!("there is a task {name} already"));
        }
        opened.push((parent, name, goal));
        Ok(TaskId::generate(&Noon, &SeededRng::new(9)))
    }

    async fn end(&self, _: TaskId, _: Claim) -> Result<TaskId, String> {
        Err("the pipeline ends no task".to_owned())
    }
}

/// A log in memory, for what is appended and for the bytes under a hash.
#[derive(Default)]
pub(crate) struct Log {
    appended: Mutex<Vec<Append>>,
    /// How many of them were handed over without being waited for.
    pub(crate) posted: AtomicUsize,
    pub(crate) is_closed: AtomicBool,
}

impl Log {
    /// Returns the kinds of what was recorded, append by append.
    pub(crate) fn kinds(&self) -> Vec<Vec<String>> {
        let appended = self.appended.lock().unwrap();
        let kinds = |it: &Append| it.events.iter().map(|it| it.body.kind().to_owned()).collect();
        appended.iter().map(kinds).collect()
    }

    /// Returns what was recorded, in order.
    pub(crate) fn bodies(&self) -> Vec<EventBody> {
        let appended = self.appended.lock().unwrap();
        appended.iter().flat_map(|it| &it.events).map(|it| it.body.clone()).collect()
    }

    /// Returns who caused the events of a kind.
    pub(crate) fn principals(&self, kind: &str) -> Vec<String> {
        let appended = self.appended.lock().unwrap();
        let events = appended.iter().flat_map(|it| &it.events);
        events.filter(|it| it.body.kind() == kind).map(|it| it.principal.to_string()).collect()
    }

    /// Returns all that was recorded as one text, blobs included.
    pub(crate) fn text(&self) -> String {
        let bodies = serde_json::to_string(&self.bodies()).unwrap();
        let appended = self.appended.lock().unwrap();
        let blobs = appended.iter().flat_map(|it| &it.blobs);
        blobs.fold(bodies, |text, blob| text + &String::from_utf8_lossy(blob.bytes()))
    }
}

#[async_trait]
impl EventStore for Log {
    async fn post(&self, batch: Append) -> Result<(), StoreError> {
        self.posted.fetch_add(1, Ordering::SeqCst);
        self.append(batch).await.map(drop)
    }

    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        self.appended.lock().unwrap().push(batch);
        Ok(Vec::new())
    }

    async fn read(
        &self,
        after: Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let appended = self.appended.lock().unwrap();
        let all =
            appended.iter().flat_map(|batch| batch.events.iter().map(move |it| (batch.run, it)));
        let event = |(at, (run, it)): (u64, (RunId, &NewEvent))| Event {
            position: Position(at),
            run,
            seq: at,
            task: it.task,
            principal: it.principal.clone(),
            at: it.at,
            body: it.body.clone(),
            idempotency_key: None,
            hash: BlobHash::of(b""),
        };
        let is_wanted = |event: &Event| {
            let kinds = &selection.kinds;
            event.position > after && kinds.iter().any(|kind| event.body.kind() == kind)
        };
        Ok((1..).zip(all).map(event).filter(is_wanted).take(limit).collect())
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        stream::empty().boxed()
    }

    fn publish(&self, _: Delta) {}

    async fn head(&self) -> Result<Position, StoreError> {
        Ok(Position(0))
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        let appended = self.appended.lock().unwrap();
        let mut blobs = appended.iter().flat_map(|it| &it.blobs);
        Ok(blobs.find(|blob| blob.hash() == *hash).map(|blob| blob.bytes().to_vec()))
    }

    async fn acquire(&self, _: RunId, _: &str, _: Span) -> Result<Lease, StoreError> {
        Err(StoreError::Closed)
    }

    async fn renew(&self, _: &Lease, _: Span) -> Result<Lease, StoreError> {
        Err(StoreError::Closed)
    }

    async fn release(&self, _: &Lease) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    async fn audit(&self, _: RunId) -> Result<Audit, StoreError> {
        Err(StoreError::Closed)
    }
}
