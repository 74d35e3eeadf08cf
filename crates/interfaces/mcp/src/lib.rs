//! The capabilities of Formwork as tools of an MCP server, over streams and HTTP.
//!
//! Start at [`serve`], which speaks over a pair of streams until the client goes, or at [`Mounted`], which answers requests of HTTP that
//! somebody else has received. Both offer what [`tools::list`] returns: each capability that a caller may ask for is a tool, with the schemas
//! of the capability. Nothing is done here that another interface could not do: a call is a call of
//! [`Formwork::invoke`](formwork_services::Formwork::invoke), and an error is told in the words of the command line.
//!
//! ```
//! use formwork_mcp::tools;
//! use formwork_protocols::Principal;
//! use formwork_services::capability::{Caller, Scope};
//!
//! let reader = Caller::new(Principal::parse("user:ada")?, [Scope::Read]);
//! let names: Vec<String> = tools::list(&reader).into_iter().map(|tool| tool.name).collect();
//!
//! assert!(names.contains(&"runs_list".to_owned()));
//! assert!(!names.contains(&"runs_start".to_owned()));
//! # Ok::<(), formwork_protocols::NameError>(())
//! ```

pub mod tools; // What is offered to whom.

mod message; // What is said, by the rules of JSON-RPC.
mod revision; // Which of them a client speaks.
mod server; // What is answered, whoever asks.

mod lines; // Messages out of a stream.
mod mounted; // Over HTTP.
mod streams; // Over a pair of streams.

mod error;

pub use {
    error::Error,
    mounted::{LARGEST, Mounted},
    streams::serve,
};
