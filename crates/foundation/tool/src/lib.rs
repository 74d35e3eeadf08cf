//! The tool registry, the one call pipeline, and the built-in tools.
//!
//! Start at [`Pipeline`]: it offers a session the tools that its agent may use and puts every call
//! through the same steps, so that there is one place where a call is judged and one where it is
//! recorded. [`Registry`] holds the tools that exist; [`builtin::register`] adds those of this crate,
//! which work on a
//! [`formwork_write_safety::Workspace`].
//!
//! This crate asks [`formwork_policy`] what is allowed, [`formwork_write_safety`] for files and
//! [`formwork_sandbox`] for processes. It knows nothing of models, prices or scheduling.
//!
//! ```
//! use std::sync::Arc;
//!
//! use formwork_tool::{Registry, builtin};
//! use formwork_write_safety::{Reads, Root, Workspace, WriteRules};
//!
//! let folder = tempfile::tempdir()?;
//! let root = Arc::new(Root::open(folder.path())?);
//! let workspace = Workspace::new(root, WriteRules::nothing(), Reads::new().session());
//! let mut registry = Registry::new();
//! builtin::register_files(&mut registry, &workspace, |_| Err("no pictures here".to_owned()))?;
//!
//! let names: Vec<_> = registry.specs().map(|spec| spec.definition.name.as_str()).collect();
//! assert_eq!(names, ["fs.diff", "fs.glob", "fs.grep", "fs.list_dir", "fs.read", "fs.stat"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod custom; // Tools that are written down as data.
mod deferred; // What is listed by name alone.
mod error;
mod fetch; // Requests over HTTP, for whatever tool sends them.
mod lookup; // Which file a program's name means.
mod pipeline; // The way of every call.
mod registry;
mod schema;
mod workspace;

pub mod builtin;

pub use {
    deferred::LOAD_TOOLS,
    error::Error,
    fetch::{HttpRules, Post, Ways},
    lookup::Lookup,
    pipeline::{Around, Gate, Outside, PREVIEW_BYTES, Parts, Pipeline, Weighed, unvouched},
    registry::Registry,
    schema::check as check_arguments,
};
