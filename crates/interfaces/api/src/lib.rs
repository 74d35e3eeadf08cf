//! The HTTP interface: every capability by its name, the log as a stream, and a router to mount.
//!
//! Start at [`Api`]: it makes an axum [`Router`](axum::Router) of a [`Formwork`](formwork_services::Formwork), for a server of
//! one's own or for [`Server`], which is what `formwork serve` runs. There is one rule: `POST /v1/NAME` asks for the capability
//! NAME with its parameters as a JSON object, and answers what it returns, or a problem with the words that the command line
//! has. Nothing is decided here that another interface would decide otherwise.
//!
//! Every request needs a token, but for whether the server is there. Names that a page of somebody else could have made a
//! browser use are refused by `Host` and `Origin`.
//!
//! ```
//! use formwork_api::{Api, Server};
//! use formwork_protocols::Cancel;
//! use formwork_services::Builder;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let workspace = tempfile::tempdir()?;
//! let formwork = Builder::new(workspace.path()).build().await?;
//! let api = Api::new(formwork.clone());
//! let server = Server::bind("127.0.0.1:0".parse()?).await?;
//! assert!(server.address().ip().is_loopback());
//!
//! let cancel = Cancel::new();
//! cancel.cancel(); // As Ctrl-C does, some time later.
//! server.run(&api, &cancel).await;
//! formwork.close().await;
//! # Ok(())
//! # }
//! ```

mod api; // What is put together, and the router of it.
mod hosts; // Under which names it is asked for.
mod seats; // How much goes on at once.

mod calls; // Capabilities.
mod door; // Who comes in.
mod events; // The log.
mod health; // Whether it is there.
mod incoming; // What sources send.
mod openapi; // What there is.
mod problem; // How a request fails.

mod server; // A socket that it is served on.

pub use {
    api::{Api, Limits},
    hosts::{Hosts, Refused},
    incoming::incoming,
    openapi::document,
    problem::Problem,
    server::{BindError, Server},
};
