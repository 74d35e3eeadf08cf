//! Drives one conversation with a model: request, stream, tool calls, results, and again, until the
//! model ends its turn, a cap is met, or somebody stops it.
//!
//! Start at [`Session`]. [`Session::start`] begins a conversation and [`Session::resume`] takes one up
//! from the log; [`Session::run`] drives it to its next [`SessionEnd`]. A model that says it is done
//! has made a claim and nothing more: whoever runs the session checks it, and gives the evidence to
//! [`Session::answer`] or the last word to [`Session::close`].
//!
//! A conversation is a [`History`] of whole groups, so a call without its result, or a result without
//! its call, cannot be sent. Every model call is reserved before it is sent and settled after it; every
//! message is in the log before what follows from it is done.
//!
//! Before every model call the conversation is made to fit the window, by the steps of
//! [`formwork_context`]; what was done is an event, and done again by whoever takes the conversation up.
//!
//! This crate knows the seams and nothing behind them: no provider, no tool, no store, no checks.
//!
//! ```
//! use formwork_protocols::{Message, Part, Role, ToolCall, message::Arguments};
//! use formwork_session::{Answered, History, OpenTurn};
//!
//! let mut history = History::new("You mend code.");
//! history.say(Message::text(Role::User, "What is in src?"));
//!
//! let call = ToolCall {
//!     id: "call_1".to_owned(),
//!     name: "list_dir".to_owned(),
//!     arguments: Arguments::Json(serde_json::json!({ "path": "src" })),
//! };
//! let mut open = OpenTurn::new(Message { role: Role::Assistant, parts: vec![Part::ToolCall(call)] });
//! open.answer(0, Answered::ok("lib.rs"));
//! history.push(open.close().expect("its only call is answered"));
//!
//! assert_eq!(history.messages().count(), 4);
//! ```

mod error;
mod guard; // Whether the model goes round in circles.
mod heard; // Instructions on the way, and the word of people.
mod hold; // Money set aside for one model call.
mod record; // What is written into the log, and when.
mod session; // One model call, the calls of its answer, and again.
mod spec; // What a session is made of, and how it ends.

pub use formwork_context::{Answered, Group, History, HistoryError, OpenTurn, Turn};
pub use {
    error::Error,
    heard::{Alone, Guide, Heard, Inbox, Steering},
    session::{Carried, Session},
    spec::{Farewell, Instructed, Limits, Opening, Seams, SessionEnd, SessionSpec, Totals, Via},
};
