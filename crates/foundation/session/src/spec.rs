//! What a session is made of, and how it ends.

use std::sync::Arc;

use formwork_protocols::{
    AgentName, Attachment, BlobHash, CallId, Claim, Clock, EventStore, Ledger, Model, OverBudget,
    Principal, ProviderError, Rng, RunId, Scrub, SessionRules, Span, StuckPattern, TaskId, Toolbox,
    Usage, Usd, rules::SessionRule, tool::TaskControl,
};

use crate::heard::Heard;

/// What shapes a conversation from its beginning to its end.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// The run that it belongs to.
    pub run: RunId,
    /// The task that it works on.
    pub task: TaskId,
    /// Who speaks for the model.
    pub agent: AgentName,
    /// The content hash of everything that shapes the agent.
    pub agent_version: String,
    /// Who causes the events.
    pub principal: Principal,
    /// The model that is asked.
    pub model: Model,
    /// The model that sums up what no longer fits the window; the one that is asked where absent.
    pub summary: Option<Model>,
    /// What it has to keep to.
    pub rules: SessionRules,
    /// Where it stops.
    pub limits: Limits,
    /// The token of the run's lease, if it is leased.
    pub token: Option<u64>,
    /// The tool call that it answers, where another conversation asks it.
    pub call: Option<CallId>,
}

/// Where a session stops, besides the budgets of its tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The most model calls of the whole conversation; none where only budgets count.
    pub max_rounds: Option<u32>,
    /// The most tokens of one answer, within what the model can do.
    pub max_output_tokens: u32,
    /// How long one [`run`](crate::Session::run) may take.
    pub wall: Option<Span>,
    /// How freely the model chooses words; the provider's default where absent.
    pub temperature: Option<f32>,
    /// The seed of its choices, where the provider takes one.
    pub seed: Option<u64>,
}

impl Default for Limits {
    /// No cap on rounds or time, 8,192 tokens for an answer, the provider's own sampling.
    fn default() -> Self {
        Self {
            max_rounds: None,
            max_output_tokens: 8_192,
            wall: None,
            temperature: None,
            seed: None,
        }
    }
}

/// What a conversation begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The rules and the frame. It stays as it is to the end, so that providers can cache it.
    pub system: String,
    /// What is asked.
    pub user: String,
    /// The images and documents that are shown with it.
    pub attached: Vec<Attachment>,
    /// The instruction files whose text stands in the system message.
    pub instructions: Vec<Instructed>,
}

/// An instruction file that a conversation begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Instructed {
    pub path: String,
    pub hash: BlobHash,
    pub bytes: u64,
    pub cut: bool,
}

/// The world as a session sees it.
#[derive(Clone)]
pub struct Seams {
    /// The tools, behind the one pipeline.
    pub tools: Arc<dyn Toolbox>,
    /// Ends the tasks that were opened within the conversation.
    pub control: Arc<dyn TaskControl>,
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// The budgets of the run.
    pub ledger: Arc<dyn Ledger>,
    /// Tells when things happened.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub rng: Arc<dyn Rng>,
    /// Takes secrets out of what is said before it is recorded or sent.
    pub scrub: Arc<dyn Scrub>,
    /// What is heard besides the task.
    pub heard: Heard,
}

/// Why a session stopped. It can go on after each of these.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum SessionEnd {
    /// The model says that it is done. Whether it is, is for the checks to say.
    Claimed { claim: Claim, via: Via },
    /// The model declined, or kept asking for what its rules refuse.
    Refused { detail: String },
    /// It repeated itself without getting anywhere.
    Stuck { pattern: StuckPattern, detail: String },
    /// It did not keep to a rule of its agent, however often it was told.
    Unkept { rule: SessionRule, detail: String },
    /// It wrote its calls as text, in this many answers in a row, however often it was reminded.
    ProseCalls { answers: u32 },
    /// The next call may cost more than a budget on the path to the root still holds. It was not sent.
    OverBudget(OverBudget),
    /// An answer went on past the cap of its tokens, to which its server does not keep, and was read no further.
    Overrun(ProviderError),
    /// The model could not be reached or would not answer.
    ProviderFailed(ProviderError),
    /// The conversation no longer fits the model's window.
    ContextOverflow(ProviderError),
    /// The cap on model calls is used up.
    RoundsExhausted { rounds: u32 },
    /// The cap on time is used up.
    TimedOut { after: Span },
    /// It was stopped from outside.
    Cancelled,
}

/// How a model said that it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// By calling the tool that ends its task. The call is open until it is answered.
    EndTask,
    /// By stopping without a call.
    Text,
}

/// What a conversation has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Model calls that were sent.
    pub rounds: u32,
    /// Tokens, those of failed calls included.
    pub usage: Usage,
    /// What it cost.
    pub cost: Usd,
}

/// How a conversation is ended for good, and what is said to the call that is open in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell<'a> {
    /// What the model claimed was accepted.
    Accepted(&'a str),
    /// Nobody goes on with it.
    GivenUp(&'a str),
}
