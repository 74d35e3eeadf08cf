//! A typed LLM client: providers, streaming, usage, prices, retries, recordings.
//!
//! Start at [`Endpoint`] and [`Client`], or at the crate's examples, each of which shows one thing and needs no server.
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
//!
//! # Which type for what
//!
//! | to | use |
//! |---|---|
//! | say where a server is and how patiently it is asked | [`Endpoint`], [`Clocks`], [`RetryPolicy`] |
//! | call it, whichever wire it speaks | [`Client`], a [`Provider`] |
//! | answer without a model, in tests and demos | [`Scripted`] of a [`Script`], a [`Provider`] too |
//! | answer without a server, from what was recorded of one | [`Endpoint::record`], then [`Recorded`] |
//! | choose among several, with prices | [`Catalog`], which gives [`Model`]s |
//! | go on with another model where one gives up | [`fallback::Fallback`], or [`ModelOverride::fallback`] |
//! | get JSON that follows a schema | [`structured::OutputSchema`] |
//! | find servers on this machine, list and load models | [`discover`], [`Client::inspect`], [`InfoCache`], [`Client::ollama_pull`] |
//! | read an answer that came without this crate's HTTP | [`decode::Answer`] |
//! | know whether a provider takes an image or a document | [`media::check`] |
//! | read only events, calls or calls in prose | [`sse::Decoder`], [`assembly::Assembly`], [`text_calls`] |
//! | let a model call tools that has no calls of its own | [`text_calls::InText`], or [`ModelOverride::tool_calls`] |
//!
//! # The order of things
//!
//! 1. An [`Endpoint`] becomes a [`Client`]; [`Seams`] bring in secrets to hide, chance and the time. Nothing is sent yet.
//! 2. [`Provider::stream`] takes a [`ModelRequest`] and a [`Cancel`]. The request goes out when the stream is polled.
//! 3. [`ModelEvent::Started`] says who answers, then text, reasoning and pieces of tool calls come as they are.
//! 4. [`ModelEvent::Retrying`] makes void what came before it; a program that shows words takes them back.
//! 5. [`ModelEvent::Done`] holds the whole [`Completion`] and is the last. Only its tool calls may be executed: those of
//!    an answer that was cut, or that do not parse, are [`Malformed`] there, with the reason for the model.
//! 6. The message goes into the history as it is, each result behind it, and the next request begins.
//!
//! [`Provider::complete`] does 2 to 5 and returns the completion. Dropping the stream or raising the signal closes the
//! connection at once; a server may bill what it began.
//!
//! # Errors, by what can be done
//!
//! What cannot be set up is an [`Error`]; a call fails with a [`ProviderError`] whose [`ProviderFault`] says:
//!
//! | fault | what helps |
//! |---|---|
//! | `Throttled`, `Overloaded`, `Timeout`, `Transport`, `Server`, `Protocol` | waiting, or another model: the tries are used up, or the server asks for more patience than [`RetryPolicy::cap`] |
//! | `Auth`, `Quota` | a person: the key or the account |
//! | `ModelNotFound` | another model |
//! | `Endless` | another model, or a smaller limit of tokens: the answer went on past what it may have ([`limit`]) |
//! | `Overrun` | another server: this one does not keep to the cap of output tokens that it was given ([`limit`]) |
//! | `ContextOverflow` | a shorter conversation; the same one fails again |
//! | `Invalid` | a corrected request; the server's words are in the message and the body. An image or a document that does not fit ([`media`]) is refused before anything is sent |
//! | `Cancelled` | nothing: it was asked for |
//!
//! Status, code, request id and body are kept, with keys and known secrets taken out.
//!
//! # Retries
//!
//! They have one owner, the client: whoever calls it does not loop. [`RetryPolicy`] bounds tries and waits (full jitter);
//! what a server asks for is the floor of a wait. A connection that is refused is tried three times within a second, an
//! answer that cannot be understood twice, and so is one of which a part was lost before any word of it was handed over. [`Clocks`] bound the connection, the first token, and the time from content
//! to content, which pings do not stretch; there is none for a whole answer, whose bytes are bounded instead ([`limit`]).
//! Waits end at once on cancel.
//!
//! # Usage and money
//!
//! [`Usage`] has five disjoint classes, so that cached input is not counted twice; their sum is the provider's total.
//! Where a server tells none, half of one, or one that cannot be, it is estimated ([`usage::estimate`]), and the completion says so. [`Prices`] are a dated file of
//! what makers publish; a [`ModelOverride`] goes before it. A model without a price is refused ([`Error::NoPrice`])
//! before it is called: a model of one's own is free only by the operator's word, [`Price::LOCAL`]. A budget holds the most
//! that a call may cost, [`Model::ceiling`], which is the dearest of a chain, and is settled with what it did cost.
//!
//! A try that broke off is billed for what it had begun: [`ProviderError::used`] says how much, as the server told it or
//! estimated by what had come. A stream sends nothing more until it is polled again behind [`ModelEvent::Retrying`] and
//! [`ModelEvent::FellBack`], so a budget that cannot bear another try is kept by dropping it there;
//! [`Provider::complete`] adds all of it up ([`Completion::lost`]).
//!
//! # Whose reasoning is whose
//!
//! A [`Reasoning`] part keeps the provider and model that made it, and its signature unchanged. It is sent back to that
//! very model and to no other, so a conversation can move between providers: text, calls and results go along, with
//! ids and names that the new wire takes, and foreign thoughts stay in the history.
//!
//! # What has to be withstood
//!
//! `tests/FAULTS.md` lists what goes wrong with real servers, and the test that shows what becomes of each;
//! `tests/wire` holds the bytes that were captured or written from what makers publish, a cassette for each wire and
//! kind of answer, and `fuzz` the targets that try everything else.
//!
//! # Writing a dialect
//!
//! Most servers need none: a server that follows a known wire is an [`Endpoint`] of that [`ProviderKind`]. For another
//! wire, outside of this crate, implement [`Provider`]: frame the body with [`sse::Decoder`], put calls together with
//! [`assembly::Assembly`], fill in missing usage with [`usage::estimate`], and give it to [`Catalog::with_provider`].
//! Within the crate a wire is a module of two halves: one builds the request, the other reads an event at a time into
//! the draft that all wires share, so clocks, retries, assembly and errors are not written again. Three rules hold:
//! an unknown field or event is passed over, one that cannot be read is counted, and neither ends the answer; an answer is
//! whole only by its own end marker; and the same bytes mean the same however they are cut.
//!
//! [`Cancel`]: formwork_protocols::Cancel
//! [`Completion`]: formwork_protocols::Completion
//! [`Completion::lost`]: formwork_protocols::Completion::lost
//! [`Malformed`]: formwork_protocols::message::Arguments::Malformed
//! [`Model`]: formwork_protocols::Model
//! [`Model::ceiling`]: formwork_protocols::Model::ceiling
//! [`ModelEvent::Done`]: formwork_protocols::ModelEvent::Done
//! [`ModelEvent::FellBack`]: formwork_protocols::ModelEvent::FellBack
//! [`ModelEvent::Retrying`]: formwork_protocols::ModelEvent::Retrying
//! [`ModelEvent::Started`]: formwork_protocols::ModelEvent::Started
//! [`ModelRequest`]: formwork_protocols::ModelRequest
//! [`Price::LOCAL`]: formwork_protocols::Price::LOCAL
//! [`Provider`]: formwork_protocols::Provider
//! [`Provider::complete`]: formwork_protocols::Provider::complete
//! [`Provider::stream`]: formwork_protocols::Provider::stream
//! [`ProviderError`]: formwork_protocols::ProviderError
//! [`ProviderError::used`]: formwork_protocols::ProviderError::used
//! [`ProviderFault`]: formwork_protocols::ProviderFault
//! [`Reasoning`]: formwork_protocols::message::Reasoning
//! [`Usage`]: formwork_protocols::Usage

mod anthropic;
pub mod assembly; // Tool calls from their pieces; usable alone.
mod borrowed; // Values as they stand in the bytes of an event.
mod call_ids; // Ids of calls that move between providers.
mod cassette; // Recorded traffic.
mod catalog; // From endpoints to models that are ready to be called.
mod client; // A provider behind HTTP: clocks, retries, errors.
pub mod decode; // An answer from bytes, without HTTP; usable alone.
mod draft; // An answer while it grows, the same for every wire.
mod endpoint;
mod error;
pub mod fallback; // A chain of models, each asked where the one before gave up.
mod fault; // What a refusal means.
mod frames; // Events or lines from bytes.
mod google;
mod info; // What a server says of itself and its models.
pub mod limit; // How large an answer may become.
pub mod media; // Images and documents, looked at before they are sent.
mod mend; // JSON that is refused for half a character.
mod ollama;
mod openai_chat;
mod openai_responses;
mod prices;
mod recorded; // A provider that answers from recordings.
#[cfg(test)]
mod replay;
mod retry;
pub mod scripted; // A provider that answers from a script.
mod seams;
mod shape; // Events that differ from the one before in their text alone.
pub mod sse; // Server-sent events from bytes; usable alone.
mod stop; // Why an answer ended, by the words of servers.
pub mod structured; // Answers that follow a schema.
pub mod text_calls; // Tool calls that a model wrote as text; usable alone.
mod tool_names;
mod tool_schemas; // Schemas as wires take them; a tool without one is left out.
pub mod usage; // Estimates where a server tells nothing.
mod wire; // What every wire has to say for itself.

pub use {
    catalog::{Catalog, ModelOverride, connect},
    client::{Client, ollama::PullProgress},
    endpoint::{Clocks, Endpoint, ProviderKind, RetryPolicy},
    error::Error,
    info::{
        Discovered, InfoCache, LOOPBACK_PORTS, ListedModel, ProviderInfo, discover, discover_at,
    },
    prices::{PricedModel, Prices, Vendor},
    recorded::Recorded,
    scripted::{Script, Scripted},
    seams::Seams,
    tool_schemas::{Quarantined, quarantined},
};
