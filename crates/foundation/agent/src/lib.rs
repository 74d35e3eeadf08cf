//! Agent and category definitions from TOML and Markdown.
//!
//! Start at [`Agents`]: the built-in ones, and those of a folder of TOML documents with their prompts next to them. An
//! [`Agent`] composes what its model is told first, and knows by its [version](Agent::version) whether anything that
//! shapes it has changed. It asks for a model or for a category of models; which model a category is, is the
//! configuration's to say.
//!
//! This crate calls no model and runs no tool, and it does not know which tools there are: who loads a folder says so
//! with [`Checks`].
//!
//! ```
//! use formwork_agent::{Agents, Checks};
//!
//! # let project = tempfile::tempdir()?;
//! # let folder = project.path();
//! std::fs::write(folder.join("writer.md"), "You write the guide.\n\n{{> tone}}")?;
//! std::fs::write(folder.join("tone.md"), "Be brief.")?;
//! std::fs::write(
//!     folder.join("writer.toml"),
//!     r#"
//!     format_version = 1
//!     name = "writer"
//!     category = "default"
//!     prompt = "writer.md"
//!     tools.allow = ["fs.*"]
//!     "#,
//! )?;
//!
//! let agents = Agents::load(folder, &Checks::default())?;
//!
//! let names: Vec<_> = agents.names().map(|name| name.as_str()).collect();
//! assert_eq!(names, ["adviser", "coder", "lead", "partner", "reader", "researcher", "reviewer", "tester", "writer"]);
//! let writer = agents.get(&"writer".parse()?).unwrap();
//! let prompt = writer.system_prompt(&serde_json::Map::new())?;
//! assert!(prompt.ends_with("You write the guide.\n\nBe brief."));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agent;
mod agents;
mod document;
mod error;
mod folder;
mod load;
mod markdown;

pub use {
    agent::{Agent, Source},
    agents::Agents,
    document::{AgentDocument, ExecRules, ModelChoice, PromptFile, Tools},
    error::Error,
    load::Checks,
};
