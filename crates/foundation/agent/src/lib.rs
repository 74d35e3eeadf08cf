//! Agent and category definitions from TOML and Markdown.

mod document;

pub use document::{AgentDocument, ExecRules, ModelChoice, PromptFile, Tools};
