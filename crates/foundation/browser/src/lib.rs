//! A browser that loads only what the rules for requests allow, as tools.
//!
//! Start at [`tools`](fn@tools), which returns the tools of one conversation; [`Browsers`] holds what they have started, and ends it.
//! Chromium is a program of the machine's: [`find`] looks for it, and it is started at the first call. It is spoken to
//! through two pipes of its own, so that it ends when whoever started it does, and nobody else can speak to it.
//!
//! Every request of a page goes through a proxy of this crate, which asks the rules of [`formwork_tool`] about each and
//! resolves a name only once they have said yes. This crate knows nothing of models or policies.
//!
//! ```
//! use formwork_browser::{Browsers, tools};
//! use formwork_tool::HttpRules;
//!
//! let browsers = Browsers::new(|| Err("there is no Chromium on this machine".to_owned()));
//! let tools = tools(&browsers, HttpRules::nothing()?);
//!
//! let names: Vec<_> = tools.iter().map(|tool| tool.spec().definition.name.as_str()).collect();
//! assert_eq!(
//!     names,
//!     ["browser.open", "browser.read", "browser.click", "browser.type", "browser.screenshot"]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod browser; // A page, as somebody in front of it uses it.
mod chromium; // The program: found, started, ended.
mod connection; // What is said to it, and what it answers.
mod proxy; // Where its requests may go.

mod tools;

mod error;

pub use {
    browser::Browsers,
    chromium::{Sandbox, find, own_sandbox},
    error::Error,
    tools::{specs, tools},
};
