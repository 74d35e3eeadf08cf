//! The one log: facts in order, each bound to the one before by its hash.

mod budget;
mod credential;
mod dispatch;
mod live;
mod model;
mod run;
mod service;
mod session;
mod task;
mod tool;
mod wait;
mod worker;
mod workspace;

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    budget::Crossing,
    canonical::{self, Canonical, Scratch},
    context::ContextCompacted,
    id::{NameError, Principal, RunId, TaskId},
    message::Attachment,
    state::TaskState,
    time::Timestamp,
};

pub use self::{
    budget::{BudgetExhausted, BudgetReserved, BudgetSettled, crossed},
    credential::{CredentialIssued, CredentialOrigin, CredentialRevoked, CredentialRotated},
    dispatch::{
        DispatchCollected, DispatchDead, DispatchDelivered, DispatchDone, DispatchFailed,
        DispatchMatched, DispatchPassed, DispatchRetried, DispatchStarted, DispatchStopped,
        DispatchSubscribed,
    },
    live::{Delta, DeltaKind, Placed},
    model::{Lost, ModelCompleted, ModelFailed, ModelFellBack, ModelRequested, ModelRetried},
    run::{
        RunCreated, RunFinished, RunForked, RunPaused, RunRequested, RunResumed, RunStarted,
        RunUndone,
    },
    service::{ServiceFailed, ServiceReady, ServiceStarted, ServiceStopped},
    session::{
        InstructionsLoaded, RunSteered, SessionEnded, SessionMessage, SessionReprompted,
        SessionStarted, SessionSteered,
    },
    task::{
        AttemptEnded, AttemptStarted, CheckFinished, CheckMending, CheckStarted, TaskCreated,
        TaskMoved,
    },
    tool::{
        Decided, GateAnswer, HookFailed, NetworkRefused, NoteAdded, ToolAnswered, ToolAsked,
        ToolCompleted, ToolDecided, ToolFailed, ToolGated, ToolRequested,
    },
    wait::{
        ExternalFired, ExternalReceived, ExternalRefused, InboxAnswered, InboxAsked, InboxClosed,
        InboxContradicted, InboxExpired, ON_ESCALATION, OverseerAnswered, OverseerAsked,
        TaskBlocked, WaitMet, contradiction_key, inbox_key,
    },
    worker::{WorkerAwaited, WorkerConnected, WorkerLost, WorkerRefused},
    workspace::{CommitMade, FileChange, TOLD_ONE_BY_ONE, WorkspaceSnapshot},
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
            .map_err(|_| NameError::NotAHash { text: text.to_owned() })
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

/// How many bytes of an event are put into one piece before they are hashed: as many as one chunk of BLAKE3 has.
const PIECE: usize = 1024;

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
        let (seq, at) = (self.seq.to_le_bytes(), self.at.as_micros().to_le_bytes());
        let fields = [
            previous.as_bytes().as_slice(),
            self.run.as_bytes(),
            &seq,
            self.task.as_ref().map_or(&[], |task| task.as_bytes().as_slice()),
            self.principal.as_bytes(),
            &at,
            self.kind.as_bytes(),
            self.data.as_bytes(),
            self.idempotency_key.map_or(&[], str::as_bytes),
        ];
        // Most events are short, and what lies in one piece is hashed in half the time.
        if fields.iter().map(|field| 8 + field.len()).sum::<usize>() <= PIECE {
            let (mut piece, mut length) = ([0; PIECE], 0);
            let mut put = |part: &[u8]| {
                piece[length..length + part.len()].copy_from_slice(part);
                length += part.len();
            };
            for field in fields {
                put(&(field.len() as u64).to_le_bytes());
                put(field);
            }
            return BlobHash::of(&piece[..length]);
        }
        let mut hasher = blake3::Hasher::new();
        for field in fields {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        BlobHash::from_bytes(*hasher.finalize().as_bytes())
    }
}

/// The hash before the first event of a run.
pub const GENESIS: BlobHash = BlobHash::from_bytes([0; 32]);

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident($data:ty) = $kind:literal,)*) => {
        /// What happened: a kind and its data.
        ///
        /// A kind that this version does not know is kept as it was written.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "Raw", into = "Raw")]
        #[schemars(with = "Raw")]
        #[non_exhaustive]
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
                match self {
                    $(Self::$variant(data) => canonical::to_string(data),)*
                    Self::TaskMoved(data) => canonical::to_string(data),
                    Self::Unknown { data, .. } => canonical::to_string(data),
                }
            }

            /// Writes the canonical text of the data into `scratch`, and shows each text, key and number of it
            /// to `see` meanwhile.
            ///
            /// # Errors
            /// [`serde_json::Error`] when the data cannot be JSON.
            pub fn write_data<'s>(
                &self,
                scratch: &'s mut Scratch,
                see: &mut dyn FnMut(&str),
            ) -> Result<Canonical<'s>, serde_json::Error> {
                match self {
                    $(Self::$variant(data) => scratch.write(data, see),)*
                    Self::TaskMoved(data) => scratch.write(data, see),
                    Self::Unknown { data, .. } => scratch.write(data, see),
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
    RunCreated(Box<RunCreated>) = "run.created",
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
    CheckFinished(Box<CheckFinished>) = "check.finished",
    /// A conversation began.
    SessionStarted(Box<SessionStarted>) = "session.started",
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
    ModelRetried(Box<ModelRetried>) = "model.retried",
    /// A model gave up on a call, and another is asked in its place.
    ModelFellBack(Box<ModelFellBack>) = "model.fell_back",
    /// A model call ended well.
    ModelCompleted(Box<ModelCompleted>) = "model.completed",
    /// A model call failed.
    ModelFailed(Box<ModelFailed>) = "model.failed",
    /// Somebody is asked whether a tool may be called. Until the answer, nothing of the call is done.
    ToolAsked(Box<ToolAsked>) = "tool.asked",
    /// Somebody, or a hook, has decided on a call.
    ToolDecided(ToolDecided) = "tool.decided",
    /// A gate has answered about a call.
    ToolGated(Box<ToolGated>) = "tool.gated",
    /// A person has answered, from whatever process, whether a tool may be called.
    ToolAnswered(ToolAnswered) = "tool.answered",
    /// A tool is about to be called.
    ToolRequested(Box<ToolRequested>) = "tool.requested",
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
    /// A source has sent something, and it was let in.
    ExternalReceived(ExternalReceived) = "external.received",
    /// A source was sent what was not let in, or had been before.
    ExternalRefused(ExternalRefused) = "external.refused",
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
    /// A person answers otherwise than was assumed, once that was acted on.
    InboxContradicted(InboxContradicted) = "inbox.contradicted",
    /// Whoever governs the run is asked about a task that would be given up.
    OverseerAsked(OverseerAsked) = "overseer.asked",
    /// They have decided, or nobody has in time.
    OverseerAnswered(OverseerAnswered) = "overseer.answered",
    /// A task could begin, and waits until another one gives back what both may write.
    TaskBlocked(TaskBlocked) = "task.blocked",
    /// A program that the tasks need while they work is started.
    ServiceStarted(ServiceStarted) = "service.started",
    /// It is ready for them.
    ServiceReady(ServiceReady) = "service.ready",
    /// It has ended by itself, or was not ready in time.
    ServiceFailed(Box<ServiceFailed>) = "service.failed",
    /// It was ended, since the tasks need it no more.
    ServiceStopped(Box<ServiceStopped>) = "service.stopped",
    /// A task waits for a worker: none with its label is connected, or none has room.
    WorkerAwaited(WorkerAwaited) = "worker.awaited",
    /// A worker is there that answers the calls of the run under a label from here on.
    WorkerConnected(WorkerConnected) = "worker.connected",
    /// The worker that answered calls of the run is gone.
    WorkerLost(WorkerLost) = "worker.lost",
    /// A worker answered a call that it did not hold, and was not heard.
    WorkerRefused(WorkerRefused) = "worker.refused",
    /// Money was set aside for a model call.
    BudgetReserved(BudgetReserved) = "budget.reserved",
    /// What was set aside was replaced by what was used.
    BudgetSettled(BudgetSettled) = "budget.settled",
    /// Four fifths of a budget are used.
    BudgetWarned(Crossing) = "budget.warned",
    /// A budget cannot bear more.
    BudgetExhausted(BudgetExhausted) = "budget.exhausted",
    /// A subscription began.
    DispatchSubscribed(DispatchSubscribed) = "dispatch.subscribed",
    /// An event is for a subscription, and waits for others.
    DispatchCollected(DispatchCollected) = "dispatch.collected",
    /// A subscription has something to do.
    DispatchMatched(DispatchMatched) = "dispatch.matched",
    /// An action of a subscription is about to be done.
    DispatchStarted(DispatchStarted) = "dispatch.started",
    /// An action was broken off, and is to be done again.
    DispatchStopped(DispatchStopped) = "dispatch.stopped",
    /// An action ended well.
    DispatchDone(DispatchDone) = "dispatch.done",
    /// An attempt at an action failed.
    DispatchFailed(DispatchFailed) = "dispatch.failed",
    /// An action is given up until somebody wants it tried again.
    DispatchDead(DispatchDead) = "dispatch.dead",
    /// Every action of a delivery was done.
    DispatchDelivered(DispatchDelivered) = "dispatch.delivered",
    /// Somebody wants a delivery taken up again that was given up.
    DispatchRetried(DispatchRetried) = "dispatch.retried",
    /// A subscription has nothing to do by the events until here.
    DispatchPassed(DispatchPassed) = "dispatch.passed",
    /// Somebody may ask from outside.
    CredentialIssued(CredentialIssued) = "credential.issued",
    /// A credential has another token.
    CredentialRotated(CredentialRotated) = "credential.rotated",
    /// A credential is no longer taken.
    CredentialRevoked(CredentialRevoked) = "credential.revoked",
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
                | Self::ExternalReceived(_)
                | Self::ExternalRefused(_)
                | Self::InboxAnswered(_)
                | Self::InboxSkipped(_)
                | Self::InboxRejected(_)
                | Self::InboxContradicted(_)
                | Self::HookFailed(_)
                | Self::NetworkRefused(_)
                | Self::ToolAnswered(_)
                | Self::WorkerAwaited(_)
                | Self::WorkerConnected(_)
                | Self::WorkerLost(_)
                | Self::WorkerRefused(_)
                | Self::DispatchRetried(_)
                | Self::CredentialIssued(_)
                | Self::CredentialRotated(_)
                | Self::CredentialRevoked(_)
        )
    }
}

impl EventBody {
    /// Lists the blobs that this cannot do without: whoever reads it needs their bytes, by these hashes.
    ///
    /// Not among them are hashes that name no blob: of another event, of a file as it was, of a snapshot.
    pub fn blobs(&self) -> Vec<BlobHash> {
        // Without an arm for the rest: whoever adds a kind has to say what it needs.
        match self {
            Self::SessionMessage(data) => {
                [data.message].into_iter().chain(data.attached.iter().copied()).collect()
            }
            Self::ContextCompacted(data) => data.edits.into_iter().collect(),
            Self::ModelCompleted(data) => data.answer.into_iter().collect(),
            Self::ModelFailed(data) => data.said.into_iter().collect(),
            Self::ToolGated(data) => match &data.answer {
                GateAnswer::Replace { arguments } => vec![*arguments],
                GateAnswer::Allow | GateAnswer::Ask { .. } | GateAnswer::Deny { .. } => Vec::new(),
            },
            Self::ToolCompleted(data) => {
                [data.output].into_iter().chain(attached(&data.attached)).collect()
            }
            Self::TaskCreated(data) => attached(&data.spec.attached).collect(),
            Self::CheckFinished(data) => {
                let steps = data.verdict.steps.iter().map(|step| &step.evidence);
                let left = [&data.verdict.evidence].into_iter().chain(steps);
                left.filter_map(|evidence| evidence.output).collect()
            }
            Self::ServiceFailed(data) => data.output.into_iter().collect(),
            Self::ServiceStopped(data) => data.output.into_iter().collect(),
            Self::WorkspaceSnapshot(data) => data.baseline.into_iter().chain(data.within).collect(),
            Self::RunCreated(_)
            | Self::RunStarted(_)
            | Self::RunPaused(_)
            | Self::RunResumed(_)
            | Self::RunPauseRequested(_)
            | Self::RunAbortRequested(_)
            | Self::RunForked(_)
            | Self::RunUndone(_)
            | Self::RunFinished(_)
            | Self::TaskMoved(_)
            | Self::AttemptStarted(_)
            | Self::AttemptEnded(_)
            | Self::CheckStarted(_)
            | Self::CheckMending(_)
            | Self::SessionStarted(_)
            | Self::SessionEnded(_)
            | Self::InstructionsLoaded(_)
            | Self::RunSteered(_)
            | Self::SessionSteered(_)
            | Self::SessionReprompted(_)
            | Self::ModelRequested(_)
            | Self::ModelRetried(_)
            | Self::ModelFellBack(_)
            | Self::ToolAsked(_)
            | Self::ToolDecided(_)
            | Self::ToolAnswered(_)
            | Self::ToolRequested(_)
            | Self::ToolFailed(_)
            | Self::NoteAdded(_)
            | Self::HookFailed(_)
            | Self::NetworkRefused(_)
            | Self::FileChanged(_)
            | Self::CommitMade(_)
            | Self::ExternalFired(_)
            | Self::ExternalReceived(_)
            | Self::ExternalRefused(_)
            | Self::WaitMet(_)
            | Self::InboxAsked(_)
            | Self::InboxAnswered(_)
            | Self::InboxSkipped(_)
            | Self::InboxRejected(_)
            | Self::InboxExpired(_)
            | Self::InboxContradicted(_)
            | Self::OverseerAsked(_)
            | Self::OverseerAnswered(_)
            | Self::TaskBlocked(_)
            | Self::ServiceStarted(_)
            | Self::ServiceReady(_)
            | Self::WorkerAwaited(_)
            | Self::WorkerConnected(_)
            | Self::WorkerLost(_)
            | Self::WorkerRefused(_)
            | Self::BudgetReserved(_)
            | Self::BudgetSettled(_)
            | Self::BudgetWarned(_)
            | Self::BudgetExhausted(_)
            | Self::DispatchSubscribed(_)
            | Self::DispatchCollected(_)
            | Self::DispatchMatched(_)
            | Self::DispatchStarted(_)
            | Self::DispatchStopped(_)
            | Self::DispatchDone(_)
            | Self::DispatchFailed(_)
            | Self::DispatchDead(_)
            | Self::DispatchDelivered(_)
            | Self::DispatchRetried(_)
            | Self::DispatchPassed(_)
            | Self::CredentialIssued(_)
            | Self::CredentialRotated(_)
            | Self::CredentialRevoked(_)
            | Self::Unknown { .. } => Vec::new(),
        }
    }
}

fn attached(attached: &[Attachment]) -> impl Iterator<Item = BlobHash> {
    attached.iter().map(|attachment| attachment.blob)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::TaskSignal;

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
    fn an_event_has_the_hash_of_its_parts_however_long_it_is() {
        for length in (0..2_000).step_by(7).chain(600..1_000) {
            let data = "x".repeat(length);
            let link = Link {
                run: RunId::from_uuid(uuid::Uuid::nil()),
                seq: 7,
                task: Some(TaskId::from_uuid(uuid::Uuid::max())),
                principal: "user:ada",
                at: Timestamp::from_micros(-5),
                kind: "run.started",
                data: &data,
                idempotency_key: Some("key"),
            };
            let mut parts = blake3::Hasher::new();
            let mut part = |bytes: &[u8]| {
                parts.update(&(bytes.len() as u64).to_le_bytes());
                parts.update(bytes);
            };
            part(&[0; 32]);
            part(&[0; 16]);
            part(&7_u64.to_le_bytes());
            part(&[0xff; 16]);
            part(b"user:ada");
            part(&(-5_i64).to_le_bytes());
            part(b"run.started");
            part(data.as_bytes());
            part(b"key");

            assert_eq!(link.hash(&GENESIS).as_bytes(), parts.finalize().as_bytes(), "{length}");
        }
    }

    #[test]
    fn an_event_is_small_whatever_its_kind() {
        assert!(size_of::<NewEvent>() <= 224, "{}", size_of::<NewEvent>());
    }

    #[test]
    fn data_of_a_known_kind_that_does_not_fit_is_an_error() {
        assert!(EventBody::from_parts("run.started", json!({ "owner": 5 })).is_err());
    }
}
