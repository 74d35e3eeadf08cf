//! Tools that are written down as data: a request, or a program with its arguments.
//!
//! They pass the same pipeline as every other tool. What a document says can only narrow: the host of a request and
//! the program of a command are fixed by it, and the rules judge both as if the model had written them out.

mod document; // What a person writes.
mod template; // Where arguments go in.
mod tool; // What is made of it.

pub use {
    document::{
        CommandExecution, Execution, Head, HttpExecution, Output, Param, ParamType, ToolDocument,
    },
    tool::{CustomTool, Seams},
};
