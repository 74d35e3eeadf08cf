//! What a source file declares: symbols with their signatures, in up to nine languages.
//!
//! Start at [`Codebase`], which is the seam [`Symbols`]: it tells the [language][`Symbols::language`] of a file by its
//! path and lists [what it declares][`Symbols::symbols`], each with its qualified name, its signature without body,
//! comments and layout, its line, and whether code elsewhere may use it.
//!
//! A text may come from a stranger, so everything is bounded: its size, the steps that parsing takes, how deep
//! declarations nest and how much is told of them. Beyond a bound, and where a text does not follow its grammar, it is
//! [`Unreadable`], never a hang, a panic or half a list. Nothing here reads a file.
//!
//! In C and C++ what a preprocessor sees is read over as far as it stands beside a declaration, where a text does not follow
//! its grammar otherwise.
//!
//! Each grammar is a feature; all but `cpp`, `ruby` and `tsx` are on by default. What each adds to a program is told in the manifest.
//!
//! ```
//! use formwork_codebase::Codebase;
//! use formwork_protocols::source::Symbols;
//!
//! let text = b"impl Circle { /// The area.\n pub fn area( &self )->f64 { todo() } fn secret(&self) {} }";
//! let found = Codebase.symbols("src/circle.rs", text)?;
//!
//! assert_eq!(found[0].name, "Circle::area");
//! assert_eq!(found[0].signature, "pub fn area(&self) -> f64");
//! assert!(found[0].exported && !found[1].exported);
//! # Ok::<(), formwork_protocols::source::Unreadable>(())
//! ```
//!
//! [`Symbols`]: formwork_protocols::source::Symbols
//! [`Symbols::language`]: formwork_protocols::source::Symbols::language
//! [`Symbols::symbols`]: formwork_protocols::source::Symbols::symbols
//! [`Unreadable`]: formwork_protocols::source::Unreadable

mod codebase; // A text to its symbols, within bounds.
mod grammar; // Which grammar a file follows.
mod languages; // What each language declares, and to whom.
mod reader; // What is found in a tree.
mod signature; // A declaration without what does not matter.

pub use codebase::{Codebase, MAX_BYTES};
