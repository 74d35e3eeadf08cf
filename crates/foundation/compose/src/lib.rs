//! Composes prompts from fragments: includes, strict variables, priorities.
//!
//! Start at [`Library`]: it holds the [`Template`]s that others include as `{{> name}}` and renders a template with
//! variables. What was rendered becomes a [`Fragment`], and [`compose`] puts fragments together into a [`Prompt`].
//!
//! Substitution is strict both ways: a variable that the template names and nobody supplies is an error, and so is one
//! that is supplied and never named. All faults are reported at once, each with its place. A value is never read as a
//! template, so `{{x}}` inside a value stays as it is, and nothing is escaped for HTML. `{{secret:NAME}}` is left alone:
//! it is a placeholder for the tools, and a prompt never holds a secret.
//!
//! Reading files, choosing fragments and counting tokens are left to others.
//!
//! ```
//! use formwork_compose::{Fragment, Library, Priority, Template, compose};
//! use serde_json::json;
//!
//! let mut library = Library::default();
//! library.insert(Template::parse("rules", "Run the tests.")?)?;
//! let task = Template::parse("task", "Implement {{spec.title}}.\n{{> rules}}")?;
//! let variables = json!({ "spec": { "title": "a parser" } });
//!
//! let text = library.render(&task, variables.as_object().unwrap())?;
//! let prompt = compose([
//!     Fragment::stable("task", Priority::PROMPT, text),
//!     Fragment::stable("preamble", Priority::PREAMBLE, "You write Rust."),
//! ])?;
//!
//! assert_eq!(prompt.text(), "You write Rust.\n\nImplement a parser.\nRun the tests.");
//! # Ok::<(), formwork_compose::Error>(())
//! ```

mod error;
mod fragment;
mod library;
mod path;
mod render;
mod template;

pub use {
    error::{Error, Fault, Problem},
    fragment::{Fragment, Kind, Placed, Priority, Prompt, compose},
    library::Library,
    template::Template,
};
