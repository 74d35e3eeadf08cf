//! Conditions in CEL: compiled once, with names known beforehand, and bounded whatever they say.
//!
//! Start at [`Expression`]: it is parsed where a document is read, tells what it [refers to](Expression::references),
//! and is evaluated over values of JSON as often as wanted. The language is the
//! [Common Expression Language](https://github.com/google/cel-spec): no loops, no effects, no clock.
//!
//! An expression may come of a stranger's repository, so everything is bounded: how long and how deep it is, how much
//! it is given to look at, how many steps it takes and how much it makes. Beyond a bound it is an [`Error`], never a
//! hang, a panic or an overflow of the stack. What its names mean is up to whoever evaluates it.
//!
//! ```
//! use formwork_expression::Expression;
//! use serde_json::json;
//!
//! let condition = Expression::parse("tasks.build.attempts > 1 && 'rust' in vars.languages")?;
//! let known = json!({
//!     "tasks": { "build": { "attempts": 2 } },
//!     "vars": { "languages": ["rust", "zig"] },
//! });
//!
//! assert!(condition.test(known.as_object().unwrap())?);
//! assert_eq!(condition.references().next().unwrap().path(), ["tasks", "build", "attempts"]);
//! # Ok::<(), formwork_expression::Error>(())
//! ```

mod error;
mod expression;
mod fuel; // How many steps, and how much is made.
mod functions; // What can be called.
mod value; // From JSON and back.
mod walk; // What stands in an expression.

pub use {
    error::Error,
    expression::{Expression, MAX_BYTES},
    walk::Reference,
};
