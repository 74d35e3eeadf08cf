//! A typed LLM client: providers, streaming, usage, prices, retries, recordings.
//!
//! Start at [`Endpoint`], which says where a provider is and how patiently it is asked. [`Client`] is such a provider
//! behind HTTP, whichever wire it speaks, and [`Scripted`] one that answers from a script; both are a
//! [`Provider`](formwork_protocols::Provider). A [`Catalog`] makes of endpoints and prices the
//! [`Model`](formwork_protocols::Model)s that can be called, and refuses one that nobody has priced.
//!
//! A call has one owner of its clocks and retries. It streams events, of which only the last,
//! [`Done`](formwork_protocols::ModelEvent::Done), holds tool calls to be executed: those of an answer that was cut,
//! or that do not parse, are marked as malformed there. Dropping the stream closes the connection.
//!
//! This crate runs no tools, keeps no history and holds no budget. It reads no environment and no configuration.
//!
//! ```
//! use formwork_protocols::{Cancel, Message, ModelRequest, Provider as _, Role};
//! use formwork_transport::{Script, Scripted};
//!
//! let script = Script::parse("demo.toml", "format_version = 1\n[[turns]]\ntext = 'Hello.'\n")?;
//! let provider = Scripted::new("demo".parse()?, "demo.toml", script);
//!
//! let request = ModelRequest::new("any".parse()?, vec![Message::text(Role::User, "Hi!")]);
//! let answer = futures::executor::block_on(provider.complete(request, Cancel::new()))?;
//!
//! assert_eq!(answer.message.to_text(), "Hello.");
//! assert_eq!(answer.served_by.endpoint, "scripted:demo.toml");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anthropic;
pub mod assembly; // Tool calls from their pieces; usable alone.
mod call_ids; // Ids of calls that move between providers.
mod catalog; // From endpoints to models that are ready to be called.
mod client; // A provider behind HTTP: clocks, retries, errors.
mod draft; // An answer while it grows, the same for every wire.
mod endpoint;
mod error;
mod fault; // What a refusal means.
mod frames; // Events or lines from bytes.
mod google;
mod info; // What a server says of itself and its models.
mod ollama;
mod openai_chat;
mod openai_responses;
mod prices;
#[cfg(test)]
mod replay;
mod retry;
pub mod scripted; // A provider that answers from a script.
mod seams;
pub mod sse; // Server-sent events from bytes; usable alone.
pub mod structured; // Answers that follow a schema.
pub mod text_calls; // Tool calls that a model wrote as text; usable alone.
mod tool_names;
mod tool_schemas; // Schemas as wires take them; a tool without one is left out.
pub mod usage; // Estimates where a server tells nothing.
mod wire; // What every wire has to say for itself.

pub use {
    catalog::{Catalog, ModelOverride, connect},
    client::{
        Client,
        ollama::{OllamaModel, PullProgress},
    },
    endpoint::{Clocks, Endpoint, ProviderKind, RetryPolicy},
    error::Error,
    info::{Discovered, LOOPBACK_PORTS, ListedModel, discover, discover_at},
    prices::{PricedModel, Prices, Vendor},
    scripted::{Script, Scripted},
    seams::Seams,
    tool_schemas::{Quarantined, quarantined},
};
