//! A typed LLM client: providers, streaming, usage, prices, retries, recordings.

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
