//! Decides on a tool call: allow, ask or refuse, and why.
//!
//! Start at [`Policy::decide`]. A policy is made of [`Rules`]: a mode, an allow-list of tools,
//! [`CommandPatterns`] for programs and [`PathPatterns`] for files; [`Policy::narrow`] adds a
//! child's rules, which can only take away. [`Hooks`] ask programs of the operator, and fail closed;
//! a [`TrustStore`] remembers which of a repository's own files may have an effect at all.
//!
//! What the rules leave open is asked: [`Grants`] know what was approved, an [`ApprovalBook`] keeps what is
//! approved for good, and [`Unattended`] refuses where nobody can be asked.
//!
//! This crate decides and does nothing: it keeps no files but these two of the user's, runs no process but
//! the hooks, and leaves asking a person to others.
//!
//! ```
//! use formwork_policy::{Call, CommandPatterns, Decision, Policy, Rules};
//! use formwork_protocols::{PermissionMode, ToolClass, ToolName};
//!
//! let mut rules = Rules::new(PermissionMode::Edit);
//! rules.commands = Some(CommandPatterns::parse(["cargo test *", "git status"])?);
//! let policy = Policy::new(rules);
//! let exec = ToolName::parse("exec")?;
//! let decide = |argv: &[&str]| {
//!     let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
//!     let call = Call { argv: Some(&argv), ..Call::new(&exec, ToolClass::Exec) };
//!     policy.decide(&call)
//! };
//!
//! assert_eq!(decide(&["cargo", "test", "--lib"]), Decision::Allow);
//! assert!(matches!(decide(&["git", "push"]), Decision::Deny { .. }));
//! assert!(matches!(decide(&["env", "rm", "-rf", "."]), Decision::Deny { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod policy; // What is decided, and in which order.

mod command; // The kinds of rules.
mod host;
mod path;
mod tools;

mod approvals; // What surrounds decisions.
mod denials;
mod hook;
mod named;
mod trust;

mod kept; // A file of the user's own.

mod error;

pub use {
    approvals::{ApprovalBook, Grants, Unattended, alike, elsewhere, exact},
    command::{CommandPatterns, Meaning},
    denials::Denials,
    error::Error,
    hook::{Answer, Hook, HookCall, HookFault, Hooks, Said},
    host::HostPatterns,
    named::{
        Hashes, hash_of_file, instead_of_modules, named_files, named_modules, run_files, uncached,
    },
    path::PathPatterns,
    policy::{Call, Decision, Policy, Rules, Sinks},
    tools::ToolPatterns,
    trust::{Trust, TrustStore},
};
