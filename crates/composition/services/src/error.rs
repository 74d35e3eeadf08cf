//! Why a capability could not do what it was asked.

use std::path::PathBuf;

use formwork_protocols::{
    AgentName, BlobHash, CategoryName, EventName, ItemId, ModelRef, OutcomeCode, PermissionMode,
    Principal, ProviderError, ProviderFault, RunId, RunState, ServiceName, SourceName, StoreError,
    SubscriptionName, TaskName, ToolName, WorkerLabel, document::Diagnostics,
};

use crate::capability::Scope;

/// What kind of fault an error is, for interfaces whose protocol has classes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// What was asked for does not fit, and never will as it stands.
    Unfit,
    /// What was named is not there.
    Missing,
    /// A rule says no.
    Denied,
    /// It cannot be done as things stand.
    Conflict,
    /// Something that is needed is away for now.
    Away,
    /// Anything else, which whoever asked can do nothing about.
    Failed,
}

/// Why a capability could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// Documents have faults. Nothing was recorded or sent.
    #[error("{0}")]
    Documents(Diagnostics),
    /// The caller may not ask for it.
    #[error("{principal} lacks the scope {scope} that {capability} needs")]
    Scope { principal: Principal, capability: &'static str, scope: Scope },
    /// The caller may begin runs, and not in a mode that the config does not give. Nothing was recorded.
    #[error("{principal} lacks the scope admin that a run in mode {} needs where the config says {}", mode.as_str(), most.as_str())]
    Mode { principal: Principal, mode: PermissionMode, most: PermissionMode },
    /// There is no such operation.
    #[error("there is no capability {name:?}")]
    NoSuchCapability { name: String },
    /// The parameters or the result are not of the operation's shape.
    #[error("the parameters of {capability} do not fit")]
    Parameters { capability: &'static str, source: serde_json::Error },
    /// There is no such agent.
    #[error("there is no agent {agent}; there is {known}")]
    NoSuchAgent { agent: AgentName, known: String },
    /// There is no such tool.
    #[error("there is no tool {name}{}", hint.as_ref().map_or(String::new(), |hint| format!("; {hint}")))]
    NoSuchTool { name: ToolName, hint: Option<String> },
    /// There is no such subscription.
    #[error("there is no subscription {name} below .formwork/subscriptions{}", hint.as_ref().map_or(String::new(), |hint| format!("; {hint}")))]
    NoSuchSubscription { name: SubscriptionName, hint: Option<String> },
    /// There is no such source.
    #[error("there is no source {name} below .formwork/sources{}", hint.as_ref().map_or(String::new(), |hint| format!("; {hint}")))]
    NoSuchSource { name: SourceName, hint: Option<String> },
    /// Nothing of a subscription was changed.
    #[error("subscription {name} is left as it is: {reason}")]
    Subscription { name: SubscriptionName, reason: String },
    /// A tool is not called by hand. Nothing was recorded.
    #[error("{tool} is not called: {reason}")]
    Uncallable { tool: ToolName, reason: String, code: OutcomeCode },
    /// An agent asks for a category that nothing is mapped to.
    #[error("agent {agent} asks for the category {category}, and no model is mapped to it")]
    NoSuchCategory { agent: AgentName, category: CategoryName },
    /// A model cannot be used, as `source` says.
    #[error("model {model} cannot be used")]
    Model { model: ModelRef, source: Box<formwork_transport::Error> },
    /// A model was to be recorded that is none.
    #[error("model {model} cannot be recorded: its words come from a script or a recording")]
    NotRecordable { model: ModelRef },
    /// A model is asked for that cannot be reached.
    #[error(
        "model {model} cannot be reached: its provider is neither configured, nor found on this machine, nor known with a key in the environment"
    )]
    NoModel { model: ModelRef },
    /// No provider of that name is configured.
    #[error("no provider {name:?} is configured; there is {known}")]
    NoProvider { name: String, known: String },
    /// The kind of server fetches no models on request.
    #[error("model {model} cannot be pulled: a server of kind {kind} fetches none on request")]
    CannotPull { model: ModelRef, kind: formwork_transport::ProviderKind },
    /// A server could not be asked, as `source` says.
    #[error(transparent)]
    Provider { source: Box<ProviderError> },
    /// A provider cannot be set up, as `source` says.
    #[error("a provider cannot be set up")]
    Transport { source: Box<formwork_transport::Error> },
    /// A key cannot be had.
    #[error("{what} cannot be had: {reason}")]
    Key { what: String, reason: String },
    /// A secret that tools may be given cannot be had.
    #[error("a secret cannot be had: {reason}")]
    Secret { reason: String },
    /// The key that checkpoints are signed with cannot be had.
    #[error("{what} cannot be had: {reason}")]
    SigningKey { what: String, reason: String },
    /// The workspace cannot be used, as `source` says.
    #[error("the workspace cannot be used")]
    Workspace { source: Box<formwork_write_safety::Error> },
    /// The message of a commit holds a secret, or what looks like one. Nothing was committed.
    #[error("nothing is committed with this message: {reason}")]
    UncleanMessage { reason: String },
    /// What looks like a secret could not be looked for. Nothing is known to be clean.
    #[error("the scan for secrets could not run: {reason}")]
    Scan { reason: String },
    /// A folder or file of Formwork's own cannot be used, as `source` says.
    #[error("cannot {action} {path}")]
    State { action: &'static str, path: PathBuf, source: std::io::Error },
    /// A protection was asked for that this machine does not have.
    #[error("processes cannot be confined here: {reason}")]
    Protection { reason: String },
    /// Programs cannot be held to the hosts that the config lists.
    #[error("programs cannot be held to the hosts of [permissions.network] here: {reason}")]
    Network { reason: String },
    /// What is trusted cannot be told or remembered.
    #[error("what is trusted cannot be told or remembered: {reason}")]
    Trust { reason: String },
    /// The rules for tools do not parse, as `source` says.
    #[error("the permissions cannot be used: {reason}")]
    Rules { reason: String },
    /// A plan has more tasks written down than the caps of its tree allow. Nothing was recorded.
    #[error("the caps of the tree do not hold the plan: {reason}")]
    Caps { reason: String },
    /// Something of a task writes, or may, and the run may not.
    #[error("{what}, and a run in mode {} changes nothing", mode.as_str())]
    ReadOnly { what: String, mode: PermissionMode },
    /// A file that came with the workspace would have an effect, and nobody has trusted it as it stands. Nothing was run.
    #[error("{} is not trusted as it stands, and {why}", path.display())]
    Untrusted { path: PathBuf, why: String },
    /// A task is to be worked on by a worker, and this process takes none. Nothing was recorded.
    #[error(
        "task {task} has target {label}, and this process takes no workers: `formwork serve` does"
    )]
    NoWorkers { task: TaskName, label: WorkerLabel },
    /// The same, of a run that goes on.
    #[error(
        "a worker with label {label} is asked for, and this process takes no workers: `formwork serve` does"
    )]
    NoHub { label: WorkerLabel },
    /// What is changed at a worker was to be committed. Nothing was recorded.
    #[error(
        "task {task} has target {label}, and what is changed at a worker is not committed here: leave --commit out, or have \
         the task commit there"
    )]
    NotCommitted { task: TaskName, label: WorkerLabel },
    /// The store failed, as `source` says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Runs cannot be taken out into a file or in from one, as `source` says.
    #[error(transparent)]
    Bundle { source: formwork_trace::BundleError },
    /// Nothing was signed, as `source` says.
    #[error(transparent)]
    Checkpoint { source: formwork_trace::CheckpointError },
    /// The run cannot be resumed as it stands.
    #[error("run {run} is {state} and cannot be resumed")]
    NotResumable { run: RunId, state: RunState },
    /// A run has no such task, or several of that name.
    #[error("run {run} has no task {task:?} that could be meant: {reason}")]
    NoSuchTask { run: RunId, task: String, reason: String },
    /// A question of a run cannot be resolved so.
    #[error("item {item} {reason}")]
    Inbox { item: ItemId, reason: String },
    /// A question of a run is resolved, and that happens once.
    #[error("item {item} {how}")]
    Settled { item: ItemId, how: String, is_assumed: bool },
    /// What was to be fired cannot be recorded.
    #[error("event {name} cannot be fired: {reason}")]
    Fired { name: EventName, reason: String },
    /// The workspace has no such workflow.
    #[error("there is no workflow {name:?} below .formwork/workflows")]
    NoSuchWorkflow { name: String },
    /// The run came from a file. What it was set up with, and what it says that it did, was chosen elsewhere.
    #[error(
        "run {run} was imported and cannot be {wanted}: what it was set up with is not this machine's"
    )]
    Imported { run: RunId, wanted: &'static str },
    /// The run has ended before.
    #[error("run {run} is {state} and cannot be {wanted}")]
    Over { run: RunId, state: RunState, wanted: &'static str },
    /// The path of the workspace cannot be written in the log, so that no run of it could be taken up or back.
    #[error("the path of the workspace {workspace} is not UTF-8")]
    WorkspaceName { workspace: String },
    /// A contract that a task is to be held to cannot be read.
    #[error("the contract {path} cannot be read: {reason}")]
    Contract { path: String, reason: String },
    /// A file that was to be shown with what is said cannot be.
    #[error("{path} cannot be attached: {reason}")]
    Attached { path: String, reason: String },
    /// What was to be said is nothing, or a book.
    #[error("what is said to a run has 1 to {most} bytes, this has {bytes}")]
    Steering { bytes: usize, most: usize },
    /// The run has no such point to go on from, or back to.
    #[error("run {run} cannot be {wanted} there: {reason}")]
    NotForkable { run: RunId, wanted: &'static str, reason: String },
    /// Somebody changed what the run had changed. Nothing was taken back.
    #[error("{paths} of the paths that run {run} changed are not as it left them:\n{diff}")]
    NotAsLeft { run: RunId, paths: usize, diff: String },
    /// What was deleted belongs to another workspace.
    #[error("{id} was deleted from the workspace {workspace}")]
    OtherTrash { id: String, workspace: String },
    /// The run belongs to another workspace, which may be gone.
    #[error(
        "run {run} belongs to the workspace {workspace}{}",
        if *is_gone { ", which is not there any more" } else { "" }
    )]
    OtherWorkspace { run: RunId, workspace: String, is_gone: bool },
    /// A run goes on from snapshots that are kept in another folder of state. Nothing was recorded.
    #[error(
        "run {run} goes on from snapshots that are not in {}: {first}{}", folder.display(),
        if *missing > 1 { format!(" and {} more", missing - 1) } else { String::new() }
    )]
    Elsewhere { run: RunId, missing: usize, first: BlobHash, folder: PathBuf },
    /// What was recorded of a run cannot be read, as `source` says.
    #[error("what run {run} was set up with cannot be read")]
    Setup { run: RunId, source: serde_json::Error },
    /// The run could not be carried on; what is in the log stands.
    #[error("run {run} stopped: {reason}")]
    Stopped { run: RunId, reason: String },
    /// What the checks of a task compare with cannot be had.
    #[error("what the checks compare with cannot be had: {reason}")]
    Checks { reason: String },
    /// There can be no rounds of that.
    #[error("no loop is begun: {reason}")]
    Rounds { reason: String },
    /// A program that the tasks need while they work is not there.
    #[error("service {service} cannot be started: {reason}")]
    Service { service: ServiceName, reason: String },
    /// There can be no plan of that.
    #[error("no goal is begun: {reason}")]
    Goal { reason: String },
    /// What a task did in a workspace of its own cannot be merged or given up so.
    #[error("the work apart {name:?} is left as it is: {reason}")]
    Apart { name: String, reason: String },
    /// What a task did in a workspace of its own clashes with what is there. Nothing was merged.
    #[error("the work apart {name:?} cannot be merged: {reason}")]
    Clash { name: String, reason: String },
    /// There is no such change to be looked at.
    #[error("there is nothing to review: {reason}")]
    Unreviewable { reason: String },
    /// A prompt cannot be composed.
    #[error("the prompt cannot be composed: {reason}")]
    Prompt { reason: String },
    /// The tree of tasks cannot be carried out.
    #[error(transparent)]
    Scheduler(formwork_scheduler::Error),
    /// A conversation cannot go on, as `source` says.
    #[error(transparent)]
    Session(#[from] formwork_session::Error),
    /// A credential cannot be given, changed or taken, as `source` says.
    #[error(transparent)]
    Credential { source: formwork_auth::Error },
    /// Nothing here does such work.
    #[error("nothing here runs a body of kind {body}")]
    Body { body: &'static str },
    /// A part of the program stopped where it never should.
    #[error("{what} stopped before it was done: {reason}")]
    Panicked { what: &'static str, reason: String },
    /// Two things that the embedder added have one name.
    #[error("the tools cannot be put together")]
    Tools { source: formwork_tool::Error },
}

impl Error {
    /// Returns the code of a program that fails so.
    pub fn code(&self) -> OutcomeCode {
        match self {
            Self::Store(StoreError::NoSuchRun { .. }) => OutcomeCode::Failed,
            Self::Workspace { source }
                if matches!(**source, formwork_write_safety::Error::Unclean { .. }) =>
            {
                OutcomeCode::Refused
            }
            Self::Workspace { source }
                if matches!(**source, formwork_write_safety::Error::Unmerged { .. }) =>
            {
                OutcomeCode::Refused
            }
            Self::UncleanMessage { .. } | Self::Scan { .. } => OutcomeCode::Refused,
            Self::Credential { source: formwork_auth::Error::NoSuch { .. } } => OutcomeCode::Failed,
            Self::Credential { source: formwork_auth::Error::NoScope } => OutcomeCode::Usage,
            Self::Credential { .. } => OutcomeCode::Refused,
            Self::Uncallable { code, .. } => *code,
            Self::Documents(_)
            | Self::NoSuchAgent { .. }
            | Self::NoSuchTool { .. }
            | Self::NoSuchSubscription { .. }
            | Self::NoSuchSource { .. }
            | Self::NoSuchCategory { .. }
            | Self::Model { .. }
            | Self::NoModel { .. }
            | Self::NoProvider { .. }
            | Self::CannotPull { .. }
            | Self::NotRecordable { .. }
            | Self::Transport { .. }
            | Self::Key { .. }
            | Self::Secret { .. }
            | Self::SigningKey { .. }
            | Self::Workspace { .. }
            | Self::State { .. }
            | Self::Protection { .. }
            | Self::Network { .. }
            | Self::Service { .. }
            | Self::Trust { .. }
            | Self::Rules { .. }
            | Self::Caps { .. }
            | Self::ReadOnly { .. }
            | Self::Untrusted { .. }
            | Self::NoWorkers { .. }
            | Self::NoHub { .. }
            | Self::NotCommitted { .. }
            | Self::Tools { .. }
            | Self::Contract { .. }
            | Self::Elsewhere { .. }
            | Self::Store(_) => OutcomeCode::Setup,
            Self::Scope { .. }
            | Self::Mode { .. }
            | Self::NotAsLeft { .. }
            | Self::Imported { .. }
            | Self::Clash { .. } => OutcomeCode::Refused,
            Self::NoSuchCapability { .. }
            | Self::Parameters { .. }
            | Self::Steering { .. }
            | Self::Rounds { .. }
            | Self::Goal { .. }
            | Self::Unreviewable { .. } => OutcomeCode::Usage,
            Self::Bundle { source: formwork_trace::BundleError::Io(_) } => OutcomeCode::Setup,
            // What was asked for would make a record of what was not written.
            Self::Bundle { .. } | Self::Checkpoint { .. } => OutcomeCode::Refused,
            Self::NotResumable { .. }
            | Self::NoSuchTask { .. }
            | Self::Inbox { .. }
            | Self::Settled { .. }
            | Self::Fired { .. }
            | Self::Subscription { .. }
            | Self::NoSuchWorkflow { .. }
            | Self::Over { .. }
            | Self::Attached { .. }
            | Self::Apart { .. }
            | Self::NotForkable { .. }
            | Self::OtherWorkspace { .. }
            | Self::WorkspaceName { .. }
            | Self::OtherTrash { .. }
            | Self::Setup { .. }
            | Self::Stopped { .. }
            | Self::Prompt { .. }
            | Self::Checks { .. }
            | Self::Provider { .. }
            | Self::Session(_)
            | Self::Scheduler(_)
            | Self::Body { .. }
            | Self::Panicked { .. } => OutcomeCode::Failed,
        }
    }

    /// Returns what kind of fault it is.
    pub fn class(&self) -> Class {
        use formwork_auth::Error as Auth;
        match self {
            Self::Store(error) => match error {
                StoreError::NoSuchRun { .. } => Class::Missing,
                StoreError::NotOwner { .. } => Class::Conflict,
                StoreError::Open { .. } | StoreError::Unavailable { .. } | StoreError::Closed => {
                    Class::Away
                }
                _ => Class::Failed,
            },
            Self::Provider { source } => match source.fault {
                ProviderFault::Transport => Class::Away,
                _ => Class::Failed,
            },
            Self::NoSuchCapability { .. }
            | Self::NoSuchAgent { .. }
            | Self::NoSuchTool { .. }
            | Self::NoSuchSubscription { .. }
            | Self::NoSuchSource { .. }
            | Self::NoSuchWorkflow { .. }
            | Self::NoSuchTask { .. }
            | Self::NoProvider { .. }
            | Self::Credential { source: Auth::NoSuch { .. } } => Class::Missing,
            Self::Scope { .. }
            | Self::Mode { .. }
            | Self::Untrusted { .. }
            | Self::ReadOnly { .. }
            | Self::Imported { .. }
            | Self::UncleanMessage { .. }
            | Self::Scan { .. }
            | Self::Uncallable { code: OutcomeCode::Refused, .. }
            | Self::Credential { source: Auth::Beyond { .. } | Auth::Reserved { .. } } => {
                Class::Denied
            }
            Self::Workspace { source }
                if matches!(**source, formwork_write_safety::Error::Unclean { .. }) =>
            {
                Class::Denied
            }
            Self::Workspace { source }
                if matches!(**source, formwork_write_safety::Error::Unmerged { .. }) =>
            {
                Class::Conflict
            }
            Self::NotResumable { .. }
            | Self::Inbox { .. }
            | Self::Settled { .. }
            | Self::Over { .. }
            | Self::Subscription { .. }
            | Self::NotForkable { .. }
            | Self::NotAsLeft { .. }
            | Self::OtherTrash { .. }
            | Self::OtherWorkspace { .. }
            | Self::Elsewhere { .. }
            | Self::Apart { .. }
            | Self::Clash { .. }
            | Self::Bundle { .. }
            | Self::Checkpoint { .. }
            | Self::Credential { .. } => Class::Conflict,
            Self::Documents(_)
            | Self::NoWorkers { .. }
            | Self::NoHub { .. }
            | Self::NotCommitted { .. }
            | Self::Parameters { .. }
            | Self::Uncallable { .. }
            | Self::NoSuchCategory { .. }
            | Self::Model { .. }
            | Self::NotRecordable { .. }
            | Self::NoModel { .. }
            | Self::CannotPull { .. }
            | Self::Caps { .. }
            | Self::Fired { .. }
            | Self::Contract { .. }
            | Self::Attached { .. }
            | Self::Steering { .. }
            | Self::Rounds { .. }
            | Self::Goal { .. }
            | Self::Unreviewable { .. }
            | Self::Prompt { .. } => Class::Unfit,
            Self::Transport { .. }
            | Self::Key { .. }
            | Self::Secret { .. }
            | Self::SigningKey { .. }
            | Self::Workspace { .. }
            | Self::State { .. }
            | Self::Protection { .. }
            | Self::Network { .. }
            | Self::Trust { .. }
            | Self::Rules { .. }
            | Self::WorkspaceName { .. }
            | Self::Setup { .. }
            | Self::Stopped { .. }
            | Self::Checks { .. }
            | Self::Service { .. }
            | Self::Scheduler(_)
            | Self::Session(_)
            | Self::Body { .. }
            | Self::Panicked { .. }
            | Self::Tools { .. } => Class::Failed,
        }
    }

    /// Returns what is wrong as lines of plain text, as the program tells it: each fault of documents, or the error with its causes.
    pub fn told(&self) -> Vec<String> {
        match self {
            Self::Documents(faults) => faults.iter().map(ToString::to_string).collect(),
            other => vec![chain(other)],
        }
    }

    /// Passes on what lies in anything but the log.
    ///
    /// # Errors
    /// What the log could not do, where that is what this came of: nobody knows then how much of it is recorded.
    pub(crate) fn beside_the_log(self) -> Result<Self, StoreError> {
        match self {
            Self::Store(error)
            | Self::Session(formwork_session::Error::Store { source: error, .. }) => Err(error),
            error => Ok(error),
        }
    }

    /// Says what the reader can do about it, where something can be said.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSuchCategory { category, .. } => format!(
                "map it in the config, as in [categories] {category} = \"provider/model\", or name one with --model"
            ),
            Self::Model { source, .. }
                if matches!(**source, formwork_transport::Error::NoPrice { .. }) =>
            {
                "say what it costs in the config: [models.\"provider/model\"] price = \"local\" or { input = \"3\", output = \"15\" } USD per million tokens".to_owned()
            }
            Self::Uncallable { code: OutcomeCode::Refused, .. } => {
                "pass --mode edit or --mode auto, or call it as another agent with --agent".to_owned()
            }
            Self::Uncallable { tool, code: OutcomeCode::Usage, .. } => {
                format!("`formwork tools show {tool}` tells what it is given")
            }
            Self::Caps { .. } => {
                "raise `tree` in the budget that says it, of the config or of the workflow, or write down fewer tasks".to_owned()
            }
            Self::ReadOnly { .. } => {
                "pass --mode edit, or say mode = \"edit\" below [permissions] in the config".to_owned()
            }
            Self::Mode { .. } => {
                "whoever owns the config says mode below [permissions] in it, or --mode to the program that serves".to_owned()
            }
            Self::Untrusted { .. } => {
                "read the file, then run `formwork trust`; any later change needs it again".to_owned()
            }
            Self::CannotPull { kind, .. } => how_to_fetch(*kind).to_owned(),
            Self::NoProvider { .. } => {
                "name it in the config, as in [providers.local] kind = \"ollama\" and its base_url".to_owned()
            }
            Self::Provider { source } if source.fault == ProviderFault::Transport => {
                "check that the server runs and that base_url is right".to_owned()
            }
            Self::Protection { .. } => {
                "set sandbox = \"off\" in the config, or pass --sandbox off, to run processes unconfined".to_owned()
            }
            Self::Network { .. } => {
                "take the list out of the config: then programs open no connection".to_owned()
            }
            Self::Workspace { source }
                if matches!(**source, formwork_write_safety::Error::Unmerged { .. }) =>
            {
                "`formwork apart merge` brings it in; --discard gives it up, and keeps a snapshot of it".to_owned()
            }
            Self::Workspace { source } => return usable(source),
            Self::State { path, source, .. } => return writable(path, source),
            Self::Apart { .. } => "`formwork apart list` lists them".to_owned(),
            Self::Clash { name, .. } => {
                format!("resolve it there and merge again, or `formwork apart discard {name}` gives it up")
            }
            Self::NotAsLeft { .. } => {
                "what was changed since would be lost; keep it elsewhere, and pass --force".to_owned()
            }
            Self::OtherWorkspace { run, workspace, is_gone: true } => format!(
                "a run is known by its folder: move that back to {workspace}, and go on there; `formwork runs show {run}` and `formwork runs transcript {run}` tell of it from anywhere"
            ),
            Self::OtherWorkspace { workspace, .. } | Self::OtherTrash { workspace, .. } => {
                format!("go there, or pass -C {workspace}")
            }
            Self::Elsewhere { .. } => {
                "go on where it was begun, or copy the folder `snapshots` of the folder of state there to this place; FORMWORK_STATE_DIR says which folder of state is meant".to_owned()
            }
            Self::WorkspaceName { .. } => {
                "work in a folder whose path is UTF-8, or move this one there".to_owned()
            }
            Self::Imported { .. } => {
                "it can be shown, audited, compared and replayed; begin a run of your own to go on".to_owned()
            }
            Self::NoSuchTask { run, .. } => {
                format!("`formwork tasks list {run}` lists them; a path as in build/test names one exactly")
            }
            Self::Settled { item, is_assumed: true, .. } => format!(
                "`formwork inbox answer {item} OPTION` says what the answer is instead, and the run is told"
            ),
            Self::Settled { item, .. } => format!(
                "a question is resolved once: `formwork inbox get {item}` shows it, and `formwork runs steer` tells a run that goes on what it should know"
            ),
            Self::Credential { source: formwork_auth::Error::Bootstrapped { .. } } => {
                "`formwork auth list` lists the credentials, and `formwork auth add` gives another".to_owned()
            }
            Self::Credential { source: formwork_auth::Error::NoSuch { .. } } => {
                "`formwork auth list --all` lists them".to_owned()
            }
            Self::Credential { source: formwork_auth::Error::Over { .. } } => {
                "`formwork auth add` gives another".to_owned()
            }
            Self::NoSuchSubscription { .. } => "`formwork subscriptions list` lists them".to_owned(),
            Self::NoSuchSource { .. } => "`formwork sources list` lists them".to_owned(),
            Self::Subscription { name, .. } => {
                format!("`formwork subscriptions show {name}` tells what it has given up")
            }
            Self::Inbox { .. } => "`formwork inbox list` lists what waits".to_owned(),
            Self::NotForkable { run, .. } => {
                format!("`formwork events {run}` lists its events with their places in the log, and `@PLACE` takes one")
            }
            Self::Key { .. } => "set it where api_key in the config says it comes from".to_owned(),
            Self::Secret { .. } => {
                "set it where [secrets] in the config says it comes from, or take it out there: no run begins without it".to_owned()
            }
            Self::Bundle { source: formwork_trace::BundleError::Unsound { run, .. } } => {
                format!("`formwork audit verify {run}` tells what is wrong with it")
            }
            Self::Bundle { source: formwork_trace::BundleError::TooLarge { run, blob, .. } } => {
                format!(
                    "such a run stays in its log: `formwork blob {blob}` prints the blob by itself, `formwork runs show {run}` tells of the run"
                )
            }
            Self::Bundle { source: formwork_trace::BundleError::Forged { .. } } => {
                "nothing of it was recorded; get the file again from whoever made it".to_owned()
            }
            Self::Bundle { source: formwork_trace::BundleError::TooNew { .. } } => {
                "use the version of Formwork that wrote it, or a later one".to_owned()
            }
            Self::Checkpoint { .. } => "`formwork audit verify` tells what is wrong".to_owned(),
            Self::Store(StoreError::NotOwner { owner, .. }) if owner == formwork_trace::NOBODY => {
                "nobody works on it; `formwork runs resume` takes it up".to_owned()
            }
            Self::Store(StoreError::NotOwner { .. }) => {
                "another process works on it; wait until that ends, or one that died on another machine is waited for until its lease lapses, for a minute at the most".to_owned()
            }
            Self::Store(StoreError::TooNew { .. }) => {
                "use the version of Formwork that wrote it, or another --database-url".to_owned()
            }
            Self::Store(StoreError::NoSuchRun { .. }) => "`formwork runs list` lists them".to_owned(),
            Self::Store(StoreError::Corrupt { .. }) => {
                "`formwork db verify` tells what is damaged; put the newest copy in its place, or name another with --database-url".to_owned()
            }
            Self::Store(StoreError::Open { at, .. }) if at.starts_with("postgres:") => {
                "check that the server runs, and the address, the user and the password of database_url".to_owned()
            }
            Self::Store(error @ StoreError::Unavailable { at, .. })
                if at.starts_with("postgres:") && !formwork_trace::passes(error) =>
            {
                "the server is there: give the user of database_url the right, or name another user; a run that stopped by this is taken up by `formwork runs resume`".to_owned()
            }
            Self::Store(StoreError::Unavailable { at, .. }) if at.starts_with("postgres:") => {
                "check that the server runs and is reached; a run that stopped by this is taken up by `formwork runs resume`".to_owned()
            }
            Self::Store(StoreError::Unavailable { reason, .. })
                if reason == formwork_trace::LOCKED =>
            {
                "wait until that is done, such as a copy or an archive; a run that stopped by this is taken up by `formwork runs resume`".to_owned()
            }
            Self::Store(StoreError::Open { reason, .. } | StoreError::Unavailable { reason, .. })
                if reason.starts_with("no more ") =>
            {
                "raise the limit (`ulimit -n` for files, `ulimit -u` for threads), or end other programs".to_owned()
            }
            Self::Store(StoreError::Unavailable { .. }) => {
                "check the disk and the rights of the file, or name another with --database-url; a run that stopped by this is taken up by `formwork runs resume`".to_owned()
            }
            Self::Store(_) => "check the disk and the rights of the file, or name another with --database-url".to_owned(),
            _ => return None,
        })
    }
}

/// Says what to do about a place of Formwork's own that cannot be written.
fn writable(path: &std::path::Path, error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind;

    let path = path.display();
    Some(match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            "what it lies on is read-only: have it mounted to be written, or name another folder of state with FORMWORK_STATE_DIR".to_owned()
        }
        ErrorKind::PermissionDenied => format!(
            "{path}, or a folder above it, is another user's or closed: work as whoever owns it, or name another folder of state with FORMWORK_STATE_DIR"
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => format!(
            "something else stands at {path}: move it away, or name another folder of state with FORMWORK_STATE_DIR"
        ),
        _ => return None,
    })
}

/// Says what to do about a place that cannot be used.
fn usable(error: &formwork_write_safety::Error) -> Option<String> {
    use std::io::ErrorKind;

    use formwork_write_safety::Error as Fault;
    let in_the_way = |path: &str| {
        format!(
            "something else stands at {path}: move it away, or say by -C and FORMWORK_STATE_DIR where else to look"
        )
    };
    Some(match error {
        Fault::Io { path, source, .. } => match source.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => in_the_way(path),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk".to_owned(),
            _ => format!(
                "see that {path} is there and that you may read and write it, or say by -C and FORMWORK_STATE_DIR where else to look"
            ),
        },
        Fault::Exists { path } | Fault::Kind { path, .. } => in_the_way(path),
        Fault::Unknown { what: "trash entry", .. } => {
            "`formwork trash list --all` lists what is there".to_owned()
        }
        Fault::Busy { .. } => "wait until that ends, and try again".to_owned(),
        Fault::Damaged { .. } => {
            "what is kept there was changed by others; nothing was taken from it".to_owned()
        }
        _ => return None,
    })
}

impl Error {
    /// A run is asked for in another workspace than its own.
    pub(crate) fn elsewhere(run: RunId, workspace: String) -> Self {
        let is_gone = !std::path::Path::new(&workspace).is_dir();
        Self::OtherWorkspace { run, workspace, is_gone }
    }

    /// A server could not be asked.
    pub(crate) fn provider(source: ProviderError) -> Self {
        Self::Provider { source: Box::new(source) }
    }

    /// A provider cannot be set up.
    pub(crate) fn transport(source: formwork_transport::Error) -> Self {
        match source {
            formwork_transport::Error::Document(faults) => Self::Documents(faults),
            source => Self::Transport { source: Box::new(source) },
        }
    }
}

impl From<formwork_auth::Error> for Error {
    fn from(error: formwork_auth::Error) -> Self {
        match error {
            formwork_auth::Error::Store(source) => Self::Store(source),
            source => Self::Credential { source },
        }
    }
}

impl From<formwork_trace::BundleError> for Error {
    fn from(error: formwork_trace::BundleError) -> Self {
        match error {
            formwork_trace::BundleError::Store(source) => Self::Store(source),
            source => Self::Bundle { source },
        }
    }
}

impl From<Diagnostics> for Error {
    fn from(faults: Diagnostics) -> Self {
        Self::Documents(faults)
    }
}

impl From<formwork_write_safety::Error> for Error {
    fn from(source: formwork_write_safety::Error) -> Self {
        Self::Workspace { source: Box::new(source) }
    }
}

/// Says how a server of that kind comes to a model.
const fn how_to_fetch(kind: formwork_transport::ProviderKind) -> &'static str {
    use formwork_transport::ProviderKind::{LlamaCpp, LmStudio, Recorded, Scripted, Vllm};
    match kind {
        LlamaCpp => {
            "start llama-server with the model, as in `llama-server -m FILE` or `llama-server -hf REPOSITORY`"
        }
        LmStudio => "fetch it with `lms get MODEL` or in the program's own window",
        Vllm => "start the server with the model, as in `vllm serve MODEL`",
        Scripted | Recorded => "its words come from a file; there is nothing to fetch",
        _ => {
            "its models are there already: `formwork models` lists them; only Ollama fetches on request"
        }
    }
}

/// Joins an error and its causes; a cause that its effect already tells is left out.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}

impl From<formwork_scheduler::Error> for Error {
    fn from(error: formwork_scheduler::Error) -> Self {
        match error {
            formwork_scheduler::Error::Store { source, .. } => Self::Store(source),
            error => Self::Scheduler(error),
        }
    }
}
