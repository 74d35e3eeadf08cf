//! The vocabulary of Formwork: ids, money, states, events, messages and the seams between its parts.
//!
//! Everything here is a value or a trait. Nothing reads a file, opens a socket or needs a runtime; the
//! one exception is [`SystemClock`], which reads the machine's clock so that nothing else has to.
//!
//! Start at [`spec::TaskSpec`] (what was asked), [`state::TaskState`] (where it stands),
//! [`event::Event`] (what happened) and the seams: [`model::Provider`], [`tool::Tool`],
//! [`store::EventStore`], [`budget::Ledger`].
//!
//! ```
//! use formwork_protocols::{TaskSignal, TaskState, Usd};
//!
//! let state = TaskState::Postchecking.after(TaskSignal::Fail)?;
//! assert_eq!(state, TaskState::PostcheckFailed);
//!
//! let price: Usd = "0.30".parse()?;
//! assert_eq!(price.per_million(1_000).to_string(), "0.0003");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod access; // Who may ask for what from outside.
pub mod approval; // Who is asked what the rules leave open.
pub mod budget; // What work may cost and did cost.
pub mod cancel;
pub mod canonical; // The one form whose bytes are hashed.
pub mod check; // What proves that work may begin or has ended.
pub mod context; // How a conversation is kept within its window.
pub mod contract; // What a task has to keep to.
pub mod document; // The one reader of every TOML document.
pub mod event; // What happened.
pub mod id;
pub mod journal; // Facts on their way into the log.
pub mod message; // What is said to and by a model.
pub mod model; // A model call.
pub mod money;
pub mod outcome; // How tasks and runs end.
pub mod overseer; // Who decides about what would be given up.
pub mod rules; // What a conversation has to keep to.
pub mod seam; // Time, chance, secrets.
pub mod source; // What source code declares.
pub mod spec; // What was asked.
pub mod state; // How things move.
pub mod store; // The log.
pub mod text;
pub mod time;
pub mod tool;

pub use {
    access::{Scope, TokenHash},
    approval::{Answer, Approval, ApprovalRequest, Approver, Cover},
    budget::{Ask, Budget, Ledger, OverBudget, Price, Usage},
    cancel::Cancel,
    context::{CompactionCause, ContextCompacted, ContextEdit, Purpose},
    event::{BlobHash, Event, EventBody, NewEvent, Position},
    id::{
        AgentName, AttemptId, CallId, CategoryName, CredentialId, EventName, HoldId, ItemId,
        ModelName, ModelRef, NameError, Principal, ProviderName, RunId, ServiceName, SessionId,
        SourceName, SubscriptionName, TaskId, TaskName, ToolName, VariableName, WorkerLabel,
        WorkerName, WorkflowName,
    },
    journal::Journal,
    message::{Attachment, Message, Part, Role, ToolCall, ToolResult},
    model::{Completion, Model, ModelEvent, ModelRequest, Provider, ProviderError, ProviderFault},
    money::Usd,
    outcome::{Claim, Ending, OutcomeCode, RunOutcome, TaskOutcome},
    rules::{SessionRules, StuckPattern},
    seam::{Clock, NoSecrets, Rng, Scrub, SeededRng, SystemClock, SystemRng},
    source::{Language, Symbol, SymbolKind, Symbols, Unreadable},
    spec::{Body, TaskSpec},
    state::{
        Cancellation, Escalation, FailureClass, InboxState, RunSignal, RunState, TaskSignal,
        TaskState,
    },
    store::{Append, Blob, EventStore, Live, Store, StoreError, Views},
    time::{Span, Timestamp},
    tool::{
        PermissionMode, Replay, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
        Toolbox,
    },
};
