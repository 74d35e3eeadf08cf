//! A registry of secrets, their substitution in arguments, and one deterministic scrubber.
//!
//! Start at [`Registry`]. It takes secrets from their [`Source`]s, puts them where `{{secret:NAME}}` stands in the
//! arguments of a tool, at the last moment, and makes the [`Scrubber`] that takes them out of everything that is
//! recorded, shown or sent, in whatever common encoding they come back.
//!
//! A [`Scanner`] finds what nobody told it of: keys and personal data, by a set of rules that is data.
//!
//! This crate never reads the environment: who resolves sources hands in an [`Environment`]. When to substitute and
//! what to scrub is left to others.
//!
//! ```
//! use formwork_protocols::Scrub;
//! use formwork_secrets::{Registry, SecretName};
//! use serde_json::json;
//!
//! let mut registry = Registry::default();
//! registry.insert(SecretName::parse("API_KEY")?, "sk-very-secret".to_owned().into())?;
//! let mut arguments = json!({ "header": "Bearer {{secret:API_KEY}}" });
//!
//! registry.substitute(&mut arguments)?;
//! assert_eq!(arguments["header"], "Bearer sk-very-secret");
//!
//! let scrubber = registry.scrubber();
//! assert_eq!(scrubber.scrub_text("sent c2stdmVyeS1zZWNyZXQ="), "sent [secret:API_KEY]Q=");
//! # Ok::<(), formwork_secrets::Error>(())
//! ```

mod error;
mod forms;
mod keyring; // The one place that asks the kernel for a key.
mod name;
mod placeholder;
mod registry;
mod scan; // What looks like a secret, whoever knows it.
mod scrubber;
mod source;
mod stream;
mod wrapped; // Secrets broken over lines.

pub use {
    error::Error,
    name::SecretName,
    placeholder::placeholders,
    registry::Registry,
    scan::{Finding, Scanned, Scanner},
    scrubber::Scrubber,
    source::{Environment, Source},
    stream::Stream,
};
