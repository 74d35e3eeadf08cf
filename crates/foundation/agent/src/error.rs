//! Why an agent has no prompt.

use formwork_protocols::AgentName;

/// Why an agent has no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The prompt, what it includes and the variables do not fit together.
    #[error("the prompt of agent {agent} cannot be composed")]
    Prompt { agent: AgentName, source: formwork_compose::Error },
    /// The prompt says nothing.
    #[error("the prompt of agent {agent} is empty")]
    Empty { agent: AgentName },
}
