//! The one log: facts in order, each bound to the one before by its hash.

use std::{fmt, ops::Add, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    approval::{Approval, Cover},
    budget::{Budget, Cap, Crossing, Usage},
    canonical::{self, Canonical},
    check::{Phase, Verdict},
    context::{ContextCompacted, Purpose},
    id::{
        AgentName, AttemptId, CallId, EventName, HoldId, ModelRef, NameError, Principal, RunId,
        SessionId, TaskId, TaskName, WorkflowName,
    },
    message::{Attachment, Role},
    model::{ProviderError, ServedBy, StopReason},
    money::Usd,
    outcome::{Claim, Ending, RunOutcome},
    overseer::{Action, Choice},
    rules::SessionRule,
    spec::TaskSpec,
    state::{Escalation, FailureClass, TaskSignal, TaskState},
    time::{Span, Timestamp},
    tool::{PermissionMode, Replay, ToolClass, ToolErrorKind},
};

/// The BLAKE3 hash of some bytes; reads and writes as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobHash([u8; 32]);

impl BlobHash {
    /// Hashes some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Takes a hash that is already known.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl FromStr for BlobHash {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| NameError::NotAnId { what: "hash", text: text.to_owned() })
    }
}

impl TryFrom<String> for BlobHash {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<BlobHash> for String {
    fn from(hash: BlobHash) -> Self {
        hash.to_string()
    }
}

impl JsonSchema for BlobHash {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BlobHash".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

/// Where an event stands in the whole store; the cursor of every reader. The first is 1.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fact to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The task it belongs to, if it belongs to one.
    pub task: Option<TaskId>,
    /// Who caused it.
    pub principal: Principal,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub body: EventBody,
    /// A key under which a second write returns the first event instead.
    pub idempotency_key: Option<String>,
}

/// A recorded fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Where it stands in the store.
    pub position: Position,
    /// The run it belongs to.
    pub run: RunId,
    /// Where it stands in its run; the first is 1 and none is left out.
    pub seq: u64,
    /// The task it belongs to, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Who caused it.
    pub principal: Principal,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
    /// The key under which it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The hash of all of this and of the event before.
    pub hash: BlobHash,
}

/// What of an event is hashed, besides the hash of the one before.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields are those of an event")]
pub struct Link<'a> {
    pub run: RunId,
    pub seq: u64,
    pub task: Option<TaskId>,
    pub principal: &'a str,
    pub at: Timestamp,
    pub kind: &'a str,
    /// The canonical text of the data, as it is stored.
    pub data: &'a str,
    pub idempotency_key: Option<&'a str>,
}

impl Link<'_> {
    /// Returns the hash that binds this event to the one before: BLAKE3 over the previous hash and
    /// every field, each preceded by its length so that no two events have the same bytes.
    ///
    /// The first event of a run has 32 zero bytes before it.
    pub fn hash(&self, previous: &BlobHash) -> BlobHash {
        let mut hasher = blake3::Hasher::new();
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        field(previous.as_bytes());
        field(self.run.as_bytes());
        field(&self.seq.to_le_bytes());
        field(self.task.as_ref().map_or(&[], |task| task.as_bytes().as_slice()));
        field(self.principal.as_bytes());
        field(&self.at.as_micros().to_le_bytes());
        field(self.kind.as_bytes());
        field(self.data.as_bytes());
        field(self.idempotency_key.map_or(&[], str::as_bytes));
        BlobHash::from_bytes(*hasher.finalize().as_bytes())
    }
}

/// The hash before the first event of a run.
pub const GENESIS: BlobHash = BlobHash::from_bytes([0; 32]);

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident($data:ident) = $kind:literal,)*) => {
        /// What happened: a kind and its data.
        ///
        /// A kind that this version does not know is kept as it was written.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "Raw", into = "Raw")]
        #[schemars(with = "Raw")]
        #[non_exhaustive]
        #[allow(clippy::large_enum_variant, reason = "a task is created once, and events live shortly")]
        pub enum EventBody {
            $($(#[$doc])* $variant($data),)*
            /// A task moved; the kind names the state it came to, as in `task.active`.
            TaskMoved(TaskMoved),
            /// Something of a kind that this version does not know.
            #[expect(missing_docs, reason = "the sentence above names them")]
            Unknown { kind: String, data: Value },
        }

        impl EventBody {
            /// The kinds that this version knows, without those of a task's states.
            pub const KINDS: &'static [&'static str] = &[$($kind,)*];

            /// Returns the dotted name of the kind.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                    Self::TaskMoved(moved) => task_kind(moved.to),
                    Self::Unknown { kind, .. } => kind,
                }
            }

            /// Returns the canonical text of the data, as it is stored and hashed.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data cannot be JSON.
            pub fn data_text(&self) -> Result<String, serde_json::Error> {
                self.data_text_seen(&mut |_| {}).map(|canonical| canonical.text)
            }

            /// Returns the canonical text of the data, and shows each text, key and number of it to
            /// `see` meanwhile.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data cannot be JSON.
            pub fn data_text_seen(
                &self,
                see: &mut dyn FnMut(&str),
            ) -> Result<Canonical, serde_json::Error> {
                match self {
                    $(Self::$variant(data) => canonical::to_string_seen(data, see),)*
                    Self::TaskMoved(data) => canonical::to_string_seen(data, see),
                    Self::Unknown { data, .. } => canonical::to_string_seen(data, see),
                }
            }

            /// Tells whether this version knows the data of a kind.
            pub fn is_known(kind: &str) -> bool {
                Self::KINDS.contains(&kind) || is_task_kind(kind)
            }

            /// Returns the data as a value.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data cannot be JSON.
            pub fn data(&self) -> Result<Value, serde_json::Error> {
                match self {
                    $(Self::$variant(data) => serde_json::to_value(data),)*
                    Self::TaskMoved(data) => serde_json::to_value(data),
                    Self::Unknown { data, .. } => Ok(data.clone()),
                }
            }

            /// Reads what was stored. A kind that is not known is kept.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data is not JSON, or not that of a known kind.
            pub fn parse(kind: &str, data: &str) -> Result<Self, serde_json::Error> {
                match kind {
                    $($kind => serde_json::from_str(data).map(Self::$variant),)*
                    _ if is_task_kind(kind) => serde_json::from_str(data).map(Self::TaskMoved),
                    _ => Ok(Self::Unknown { kind: kind.to_owned(), data: serde_json::from_str(data)? }),
                }
            }

            /// Reads a kind and its data as a value.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data is not that of a known kind.
            pub fn from_parts(kind: &str, data: Value) -> Result<Self, serde_json::Error> {
                fn read<T: DeserializeOwned>(data: Value) -> Result<T, serde_json::Error> {
                    serde_json::from_value(data)
                }
                match kind {
                    $($kind => read(data).map(Self::$variant),)*
                    _ if is_task_kind(kind) => read(data).map(Self::TaskMoved),
                    _ => Ok(Self::Unknown { kind: kind.to_owned(), data }),
                }
            }
        }
    };
}

bodies! {
    /// A run was asked for.
    RunCreated(RunCreated) = "run.created",
    /// A process took the run up.
    RunStarted(RunStarted) = "run.started",
    /// New work stopped; the run can be resumed.
    RunPaused(RunPaused) = "run.paused",
    /// A process took the run up again.
    RunResumed(RunResumed) = "run.resumed",
    /// Somebody asks whoever works on the run to pause it.
    RunPauseRequested(RunRequested) = "run.pause_requested",
    /// Somebody asks whoever works on the run to end it for good.
    RunAbortRequested(RunRequested) = "run.abort_requested",
    /// The run goes on from a point of another one, whose events until then stand before this one.
    RunForked(RunForked) = "run.forked",
    /// What the run had changed was taken back, all of it.
    RunUndone(RunUndone) = "run.undone",
    /// The run ended.
    RunFinished(RunFinished) = "run.finished",
    /// A task was added to the tree.
    TaskCreated(TaskCreated) = "task.created",
    /// An attempt at a task began.
    AttemptStarted(AttemptStarted) = "attempt.started",
    /// An attempt at a task ended.
    AttemptEnded(AttemptEnded) = "attempt.ended",
    /// A check began.
    CheckStarted(CheckStarted) = "check.started",
    /// What is to mend a check that failed is about to be applied.
    CheckMending(CheckMending) = "check.mending",
    /// A check decided.
    CheckFinished(CheckFinished) = "check.finished",
    /// A conversation began.
    SessionStarted(SessionStarted) = "session.started",
    /// A message was added to a conversation.
    SessionMessage(SessionMessage) = "session.message",
    /// A conversation ended.
    SessionEnded(SessionEnded) = "session.ended",
    /// Instructions of the repository were told to a conversation.
    InstructionsLoaded(InstructionsLoaded) = "instructions.loaded",
    /// Somebody says something to the conversations of a run while they go on.
    RunSteered(RunSteered) = "run.steered",
    /// A conversation was told what somebody says.
    SessionSteered(SessionSteered) = "session.steered",
    /// A model was told that its conversation does not keep to a rule or a policy of its agent.
    SessionReprompted(SessionReprompted) = "session.reprompted",
    /// A conversation was made shorter so that it fits its model's window.
    ContextCompacted(ContextCompacted) = "context.compacted",
    /// A model call is about to be sent.
    ModelRequested(ModelRequested) = "model.requested",
    /// A try of a model call failed, and another follows.
    ModelRetried(ModelRetried) = "model.retried",
    /// A model gave up on a call, and another is asked in its place.
    ModelFellBack(ModelFellBack) = "model.fell_back",
    /// A model call ended well.
    ModelCompleted(ModelCompleted) = "model.completed",
    /// A model call failed.
    ModelFailed(ModelFailed) = "model.failed",
    /// Somebody is asked whether a tool may be called. Until the answer, nothing of the call is done.
    ToolAsked(ToolAsked) = "tool.asked",
    /// Somebody, or a hook, has decided on a call.
    ToolDecided(ToolDecided) = "tool.decided",
    /// A gate has answered about a call.
    ToolGated(ToolGated) = "tool.gated",
    /// A person has answered, from whatever process, whether a tool may be called.
    ToolAnswered(ToolAnswered) = "tool.answered",
    /// A tool is about to be called.
    ToolRequested(ToolRequested) = "tool.requested",
    /// A tool call ended well.
    ToolCompleted(ToolCompleted) = "tool.completed",
    /// A tool call failed or was refused.
    ToolFailed(ToolFailed) = "tool.failed",
    /// Something was added to the notepad of the run.
    NoteAdded(NoteAdded) = "note.added",
    /// A program that is told of events did not take one. Nothing was held up by it.
    HookFailed(HookFailed) = "hook.failed",
    /// A program wanted to connect to where it may not, and was not connected.
    NetworkRefused(NetworkRefused) = "network.refused",
    /// A file of the workspace was changed.
    FileChanged(FileChange) = "file.changed",
    /// What the run had changed was committed.
    CommitMade(CommitMade) = "commit.made",
    /// What the workspace held was kept, to be compared with and gone back to.
    WorkspaceSnapshot(WorkspaceSnapshot) = "workspace.snapshot",
    /// Somebody outside says that something has happened.
    ExternalFired(ExternalFired) = "external.fired",
    /// What a task waited for has happened.
    WaitMet(WaitMet) = "wait.met",
    /// A task asks a person.
    InboxAsked(InboxAsked) = "inbox.asked",
    /// A person has answered.
    InboxAnswered(InboxAnswered) = "inbox.answered",
    /// A person leaves the answer to whoever asked.
    InboxSkipped(InboxClosed) = "inbox.skipped",
    /// A person does not want what was asked about at all.
    InboxRejected(InboxClosed) = "inbox.rejected",
    /// Nobody has answered in time.
    InboxExpired(InboxExpired) = "inbox.expired",
    /// Whoever governs the run is asked about a task that would be given up.
    OverseerAsked(OverseerAsked) = "overseer.asked",
    /// They have decided, or nobody has in time.
    OverseerAnswered(OverseerAnswered) = "overseer.answered",
    /// A task could begin, and waits until another one gives back what both may write.
    TaskBlocked(TaskBlocked) = "task.blocked",
    /// Money was set aside for a model call.
    BudgetReserved(BudgetReserved) = "budget.reserved",
    /// What was set aside was replaced by what was used.
    BudgetSettled(BudgetSettled) = "budget.settled",
    /// Four fifths of a budget are used.
    BudgetWarned(Crossing) = "budget.warned",
    /// A budget cannot bear more.
    BudgetExhausted(BudgetExhausted) = "budget.exhausted",
}

impl EventBody {
    /// Tells whether only the owner of a run may record this.
    ///
    /// What somebody asks of a run comes from anybody, while its owner works on it and knows nothing of
    /// them: such a request changes nothing by itself.
    pub const fn needs_lease(&self) -> bool {
        !matches!(
            self,
            Self::RunPauseRequested(_)
                | Self::RunAbortRequested(_)
                | Self::RunSteered(_)
                | Self::ExternalFired(_)
                | Self::InboxAnswered(_)
                | Self::InboxSkipped(_)
                | Self::InboxRejected(_)
                | Self::HookFailed(_)
                | Self::NetworkRefused(_)
                | Self::ToolAnswered(_)
        )
    }
}

/// The form in which a body travels: its kind and its data side by side.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Raw {
    kind: String,
    data: Value,
}

impl TryFrom<Raw> for EventBody {
    type Error = serde_json::Error;

    fn try_from(raw: Raw) -> Result<Self, serde_json::Error> {
        Self::from_parts(&raw.kind, raw.data)
    }
}

impl From<EventBody> for Raw {
    fn from(body: EventBody) -> Self {
        let kind = body.kind().to_owned();
        // Every body is made of texts, numbers and lists, which are always JSON.
        let data = body.data().unwrap_or(Value::Null);
        Self { kind, data }
    }
}

/// Returns the kind of an event by which a task came to `state`.
pub const fn task_kind(state: TaskState) -> &'static str {
    match state {
        TaskState::Created => "task.recreated",
        TaskState::Prechecking => "task.prechecking",
        TaskState::Active => "task.active",
        TaskState::Suspended => "task.suspended",
        TaskState::Postchecking => "task.postchecking",
        TaskState::PostcheckFailed => "task.postcheck_failed",
        TaskState::Completed => "task.completed",
        TaskState::PrecheckFailed => "task.precheck_failed",
        TaskState::Escalated => "task.escalated",
        TaskState::Cancelled => "task.cancelled",
    }
}

fn is_task_kind(kind: &str) -> bool {
    TaskState::ALL.into_iter().any(|state| task_kind(state) == kind)
}

/// Data of `run.created`: all that a process needs in order to carry the run out, or to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCreated {
    /// The workflow's name, or that of a single task.
    pub name: WorkflowName,
    /// The root of the workspace on the machine that began the run.
    pub workspace: String,
    /// What the run may do.
    pub mode: PermissionMode,
    /// The caps of the whole run.
    pub budget: Budget,
    /// The root task.
    pub root: TaskId,
    /// Everything else that shapes the run, resolved: agents, models, prices, rules. Its meaning is
    /// that of whoever composed the run.
    pub setup: Value,
    /// The version of Formwork that began the run.
    pub version: String,
}

/// Data of `run.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunStarted {
    /// The process that works on it.
    pub owner: String,
}

/// Data of `run.paused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// Why.
    pub reason: String,
}

/// Data of `run.resumed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunResumed {
    /// The process that works on it now.
    pub owner: String,
}

/// Data of `run.pause_requested` and `run.abort_requested`; the event's principal is who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunRequested {
    /// Why, in the asker's words.
    pub reason: String,
}

/// Data of `run.forked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunForked {
    /// The run that it comes from.
    pub from: RunId,
    /// The last event that was taken over, by its place in that run.
    pub seq: u64,
    /// The hash of that event, which binds the two logs together.
    pub hash: BlobHash,
    /// Whether the files that the run had changed were made what they were then.
    pub rewound: bool,
}

/// Data of `run.undone`; the event's principal is who took it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunUndone {
    /// How many paths were made what they had been.
    pub paths: u64,
}

/// Data of `run.finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFinished {
    /// How it ended.
    pub outcome: RunOutcome,
}

/// Data of `task.created`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCreated {
    /// The parent; none for the root.
    pub parent: Option<TaskId>,
    /// What was asked. Of a tree, each task has its own event, and lists no children here.
    pub spec: TaskSpec,
}

/// Data of `task.*`: how a task came to another state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMoved {
    /// The state it was in.
    pub from: TaskState,
    /// What moved it.
    pub signal: TaskSignal,
    /// The state it came to.
    pub to: TaskState,
    /// How it ended, where the state is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// What its body claims, where it says that it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// Data of `attempt.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptStarted {
    /// The attempt.
    pub attempt: AttemptId,
    /// The first is 1.
    pub number: u32,
    /// The conversation that goes on in it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<SessionId>,
}

/// Data of `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whether the body says that it is done.
    pub claimed: bool,
    /// In one line, why it ended.
    pub reason: String,
    /// What kind of failure it was, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
}

/// Data of `check.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckStarted {
    /// When it runs.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// Its name.
    pub check: String,
}

/// Data of `check.mending`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckMending {
    /// When it runs.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// Its name.
    pub check: String,
}

/// Data of `check.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinished {
    /// When it ran.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// What it decided, and on what grounds.
    pub verdict: Verdict,
}

/// Data of `session.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStarted {
    /// The conversation.
    pub session: SessionId,
    /// Who speaks for the model.
    pub agent: AgentName,
    /// The model that is asked.
    pub model: ModelRef,
    /// The content hash of everything that shapes the agent.
    pub agent_version: String,
    /// The tools that are offered at its start.
    pub tools: Vec<String>,
    /// The conversation that goes on in this one, of this run or of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<SessionId>,
    /// How many messages were taken over from it, word for word. What is asked comes after them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried: u32,
    /// What its provider counted last: the measure of a request, and its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<(u64, u64)>,
    /// The tool call that it answers, where another conversation asks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// Data of `instructions.loaded`; the message that tells them comes next, or they stand in the system message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstructionsLoaded {
    /// The conversation.
    pub session: SessionId,
    /// The file, from the root of the workspace.
    pub path: String,
    /// The hash of its text with what it includes.
    pub hash: BlobHash,
    /// How many bytes that text has.
    pub bytes: u64,
    /// Whether only a part of it was told.
    pub cut: bool,
}

/// Data of `run.steered`; the event's principal is who says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSteered {
    /// What is said.
    pub text: String,
}

/// Data of `session.steered`: the message comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSteered {
    /// The conversation.
    pub session: SessionId,
    /// The event by which it was said, by its place in the run.
    pub request: u64,
    /// The place of the message in the conversation.
    pub index: u32,
}

/// Data of `session.reprompted`: the message comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReprompted {
    /// The conversation.
    pub session: SessionId,
    /// What it does not keep to.
    pub rule: SessionRule,
    /// What was found, in a few words.
    pub detail: String,
    /// Which reprompt it is, from 1.
    pub number: u32,
    /// How many there are at the most; none for a policy, which is told and not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// The place of the message in the conversation.
    pub index: u32,
}

impl fmt::Display for SessionReprompted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => {
                write!(f, "reprompted {} of {most}: {}: {}", self.number, self.rule, self.detail)
            }
            None => write!(f, "nudged: {}: {}", self.rule, self.detail),
        }
    }
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Data of `session.message`: the message itself is a blob, stored once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionMessage {
    /// The conversation.
    pub session: SessionId,
    /// Its place in the conversation, from 0.
    pub index: u32,
    /// Who speaks.
    pub role: Role,
    /// The canonical JSON of the message, by its hash.
    pub message: BlobHash,
    /// The bytes of the images and documents of the message, by their hashes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<BlobHash>,
}

/// Data of `session.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionEnded {
    /// The conversation.
    pub session: SessionId,
    /// In one line, why it ended.
    pub reason: String,
}

/// Data of `model.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// What it is told behind the conversation: what is left to its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that is asked.
    pub model: ModelRef,
    /// How many messages of the conversation are sent.
    pub messages: u32,
    /// How many tokens they are thought to have, never to be short of the truth.
    pub input_tokens_estimated: u64,
    /// The bare measure that the estimate was made from, by which later ones are calibrated.
    #[serde(default)]
    pub measure: u64,
    /// The most tokens that the answer may have.
    pub max_output_tokens: u32,
    /// What it is asked for.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
    /// How many images and documents of the conversation it was told of in words alone, because it takes none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen: u32,
}

/// Data of `model.retried`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRetried {
    /// The call.
    pub call: CallId,
    /// Which try failed, from 1.
    pub attempt: u32,
    /// How long the next one waits.
    pub wait: Span,
    /// How it failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What it used in vain. The call's reservation has grown by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
}

/// What tries of a model call used that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// The tokens.
    pub usage: Usage,
    /// What they cost, at the price of the model that was asked.
    pub cost: Usd,
    /// Whether any of it was estimated.
    pub estimated: bool,
}

impl Add for Lost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            usage: self.usage + other.usage,
            cost: self.cost.saturating_add(other.cost),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// Data of `model.fell_back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFellBack {
    /// The call.
    pub call: CallId,
    /// The model that gave up.
    pub from: ModelRef,
    /// The model that is asked in its place, by whose price the call is billed.
    pub to: ModelRef,
    /// How the first failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What its last try used in vain, at its own price. The call's reservation has grown by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
}

/// Data of `model.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCompleted {
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that was asked.
    pub model: ModelRef,
    /// Who really answered.
    pub served_by: ServedBy,
    /// Why the answer ended.
    pub stop: StopReason,
    /// What the answer used.
    pub usage: Usage,
    /// Whether the usage is an estimate.
    pub usage_estimated: bool,
    /// What the answer cost.
    pub cost: Usd,
    /// What the tries before it used in vain, besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// How many tries it took.
    pub tries: u32,
    /// The time to the first event with content.
    pub first_token: Option<Span>,
    /// The time to the end.
    pub elapsed: Span,
    /// How many events of the stream could not be read.
    pub undecodable: u32,
    /// What it was asked for.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
    /// The canonical JSON of the answer, by its hash, where it is no message of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<BlobHash>,
}

/// Data of `model.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that was asked.
    pub model: ModelRef,
    /// How it failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What all of its tries used in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Whether another try was to follow that no budget could bear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unaffordable: bool,
    /// What it had said before it was cancelled: a message, by its hash. It is no part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<BlobHash>,
}

/// Data of `tool.asked`: a question that is open until a `tool.decided` of the same call. One that its process
/// took to its grave is asked again under the same pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAsked {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name.
    pub tool: String,
    /// What the tool does to the world.
    pub class: ToolClass,
    /// The arguments, with placeholders where secrets go in. Long ones are cut for the record.
    pub arguments: Value,
    /// Why it is asked.
    pub why: String,
    /// What covers this very call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Cover>,
    /// What covers the calls like it, where there is a sensible bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<Cover>,
}

/// Data of `tool.answered`: what somebody says who is not at the terminal of the run. Whoever works on the run takes it
/// for the answer, which it records as `tool.decided`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAnswered {
    /// The call that was asked about.
    pub call: CallId,
    /// The answer.
    #[serde(flatten)]
    pub approval: Approval,
}

/// Data of `tool.decided`: the answer. The event's principal is whoever decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDecided {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// What was decided.
    #[serde(flatten)]
    pub approval: Approval,
}

/// Data of `tool.gated`: what one gate answered. The rules had not refused the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolGated {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name.
    pub tool: String,
    /// The gate: its program and the arguments of that.
    pub gate: String,
    /// What it answered.
    #[serde(flatten)]
    pub answer: GateAnswer,
    /// How long it took.
    pub elapsed: Span,
}

/// What a gate answers about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateAnswer {
    /// The call may be made.
    Allow,
    /// A person has to be asked.
    Ask {
        /// Why.
        reason: String,
    },
    /// The call may not be made: it said so, or it failed.
    Deny {
        /// Why.
        reason: String,
    },
    /// The call may be made with other arguments, if the rules allow those.
    Replace {
        /// The arguments, whole, by their hash.
        arguments: BlobHash,
    },
}

/// Data of `note.added`; the event's principal is whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteAdded {
    /// The call that added it.
    pub call: CallId,
    /// What it says.
    pub text: String,
}

/// Data of `hook.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookFailed {
    /// The program and its arguments.
    pub hook: String,
    /// What it was told of, such as `tool.after`.
    pub event: String,
    /// The event that it did not take, by its place in the run.
    pub seq: u64,
    /// What went wrong.
    pub reason: String,
}

/// Data of `network.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRefused {
    /// The program that was run. What it started is part of it.
    pub program: String,
    /// Where it wanted to connect to, as `host:port`; empty where it did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Why it may not.
    pub reason: String,
}

impl fmt::Display for NetworkRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to.as_str() {
            "" => write!(f, "{} was refused a connection: {}", self.program, self.reason),
            to => write!(f, "{} was refused a connection to {to}: {}", self.program, self.reason),
        }
    }
}

/// Data of `tool.requested`: the intent, durable before the effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequested {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// The arguments, with placeholders where secrets go in. Long ones are cut for the record.
    pub arguments: Value,
    /// What the tool does to the world; none where there is no such tool.
    pub class: Option<ToolClass>,
    /// What a crash in the middle of it means.
    pub replay: Replay,
    /// The paths of the workspace that it may change, from the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Whether it is carried out: the policy's decision and its reason.
    pub decision: Decided,
}

/// What the pipeline decided about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant names its field")]
pub enum Decided {
    /// It is carried out.
    Allowed,
    /// It is refused.
    Refused { reason: String },
}

/// Data of `tool.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCompleted {
    /// The call.
    pub call: CallId,
    /// What the model sees of the output.
    pub preview: String,
    /// The whole output, by its hash.
    pub output: BlobHash,
    /// How many bytes the whole output has.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Span,
    /// Where the output came from, where that is not this workspace: nobody vouches for what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The pictures that it shows the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
}

/// Data of `tool.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFailed {
    /// The call.
    pub call: CallId,
    /// What kind of failure it is.
    pub error: ToolErrorKind,
    /// What the model sees of it.
    pub message: String,
    /// How long it took.
    pub elapsed: Span,
    /// Where what is quoted came from, where that is not this workspace: nobody vouches for what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
}

/// Data of `file.changed`: a file, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The path from the root of the workspace, with `/` between its parts.
    pub path: String,
    /// The hash of its content before; none where it did not exist.
    pub before: Option<BlobHash>,
    /// The hash of its content after; none where it no longer exists.
    pub after: Option<BlobHash>,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What it was and its permission bits, as git writes them: `0o100644` for a file, `0o120000` for a
    /// link, `0o040755` for a folder, which has no content. None where it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_mode: Option<u32>,
    /// The same of what it is after; none where it no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_mode: Option<u32>,
    /// The call that changed it, where it was a tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Whether it lies in a workspace of the task's own: the run's has it once it is merged, which is told of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

/// Data of `commit.made`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommitMade {
    /// The id of the commit.
    pub commit: String,
    /// The paths that it changes, from the root of the workspace.
    pub paths: Vec<String>,
    /// Paths of the run that were left out, each with the reason behind a colon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Why git's index was not brought along, where it was not: git then shows these paths as staged back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_left: Option<String>,
    /// The call that made it, where it was a tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// Data of `workspace.snapshot`: what a run or a task began with, or what was there around a piece of work
/// whose changes nobody else tells, such as a program's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceSnapshot {
    /// The id of the snapshot of all files: the hash of all it says. None where only some were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<BlobHash>,
    /// The hashes of the files that the task's checks hold to what they were, as a blob of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BlobHash>,
    /// The piece of work that it was taken around: a call, or an id made for a command. The first of that
    /// id is what was there before, the second what was there after. None for what a run or a task began
    /// with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<CallId>,
}

/// Data of `external.fired`; the event's principal is who says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalFired {
    /// What has happened.
    pub name: EventName,
    /// What there is to know of it; null where nothing.
    #[serde(default)]
    pub data: Value,
}

/// Data of `wait.met`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitMet {
    /// The event that was waited for, by its place in the store.
    pub event: Position,
}

/// Data of `task.blocked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlocked {
    /// Whom it waits for.
    pub by: TaskId,
    /// The name of that task.
    pub name: TaskName,
    /// What the paths that both may write begin with; nothing where that is all.
    pub path: String,
}

impl std::fmt::Display for TaskBlocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "the workspace" } else { &self.path };
        write!(f, "waits for {} to release {path}", self.name)
    }
}

/// Data of `inbox.asked`; the item is named after the task that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxAsked {
    /// What is asked.
    pub question: String,
    /// What can be answered.
    pub options: Vec<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What is taken for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume: Option<String>,
    /// Whether it is about a task that was given up: the run has gone on by what is assumed, and an answer is kept for
    /// whoever takes the work up again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalation: bool,
}

/// What a person can say of a task that was given up in a run that nobody watches.
pub const ON_ESCALATION: [&str; 2] = ["leave it", "try again"];

/// Data of `inbox.answered`; the event's principal is who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxAnswered {
    /// One of the options.
    pub answer: String,
}

/// Data of `inbox.skipped` and `inbox.rejected`; the event's principal is who does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxClosed {
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Data of `inbox.expired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxExpired {
    /// What is taken for the answer, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
}

/// Data of `overseer.asked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverseerAsked {
    /// Why the task would be given up.
    pub why: Escalation,
    /// What can be done about it.
    pub options: Vec<Choice>,
    /// Until when.
    pub deadline: Timestamp,
}

/// Data of `overseer.answered`; the event's principal is who decides, the scheduler where nobody has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverseerAnswered {
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
}

/// The key under which an item of the inbox is resolved: whatever comes second returns the first.
pub fn inbox_key(task: TaskId) -> String {
    format!("inbox/{task}")
}

/// Data of `budget.reserved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetReserved {
    /// The reservation.
    pub hold: HoldId,
    /// The model call that it is for.
    pub call: CallId,
    /// The most that the call can cost.
    pub usd: Usd,
    /// The most tokens that the call can use.
    pub tokens: u64,
}

/// Data of `budget.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSettled {
    /// The reservation.
    pub hold: HoldId,
    /// The model call that it was for.
    pub call: CallId,
    /// What it cost, lost tries included.
    pub usd: Usd,
    /// What it used, lost tries included.
    pub usage: Usage,
}

/// Data of `budget.exhausted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExhausted {
    /// The task whose budget it is.
    pub task: TaskId,
    /// Which cap.
    pub cap: Cap,
    /// What is missing, in one line.
    pub detail: String,
}

/// What is streamed to those who watch and not stored: the words as they come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Delta {
    pub run: RunId,
    pub task: TaskId,
    pub session: SessionId,
    pub agent: AgentName,
    pub kind: DeltaKind,
    pub text: String,
}

/// What a delta is more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeltaKind {
    /// The answer.
    Text,
    /// The reasoning.
    Reasoning,
    /// The output of a tool that runs.
    ToolOutput,
}

/// The name of a task and where it hangs, for those who draw the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Placed {
    pub task: TaskId,
    pub parent: Option<TaskId>,
    pub name: TaskName,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_of_a_later_version_survives_a_round_trip() {
        let text = r#"{"kind":"weather.changed","data":{"sun":true}}"#;

        let body: EventBody = serde_json::from_str(text).unwrap();

        assert_eq!(body.kind(), "weather.changed");
        assert_eq!(serde_json::to_string(&body).unwrap(), text);
    }

    #[test]
    fn a_task_event_is_named_after_the_state_it_came_to() {
        let body = EventBody::TaskMoved(TaskMoved {
            from: TaskState::Prechecking,
            signal: TaskSignal::Pass,
            to: TaskState::Active,
            ending: None,
            claim: None,
        });

        let again = EventBody::parse(body.kind(), &body.data_text().unwrap()).unwrap();

        assert_eq!(body.kind(), "task.active");
        assert_eq!(again, body);
    }

    #[test]
    fn any_change_of_an_event_changes_its_hash() {
        let run = RunId::from_uuid(uuid::Uuid::nil());
        let link = Link {
            run,
            seq: 1,
            task: None,
            principal: "user:ada",
            at: Timestamp::from_micros(5),
            kind: "run.started",
            data: "{}",
            idempotency_key: None,
        };
        let hash = link.hash(&GENESIS);

        for other in [
            Link { seq: 2, ..link },
            Link { task: Some(TaskId::from_uuid(uuid::Uuid::nil())), ..link },
            Link { principal: "user:bob", ..link },
            Link { at: Timestamp::from_micros(6), ..link },
            Link { kind: "run.starte", data: "d{}", ..link },
            Link { data: "{ }", ..link },
            Link { idempotency_key: Some("k"), ..link },
        ] {
            assert_ne!(other.hash(&GENESIS), hash, "{other:?}");
        }
        assert_ne!(link.hash(&hash), hash);
    }

    #[test]
    fn data_of_a_known_kind_that_does_not_fit_is_an_error() {
        assert!(EventBody::from_parts("run.started", json!({ "owner": 5 })).is_err());
    }
}
