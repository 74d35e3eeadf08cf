//! What an expression can call: the functions of the language, and three more for texts.

use cel::{Context, ExecutionError, Value, extractors::This};

use crate::fuel::{Fuel, TICK};

/// The functions of the language and ours. Its operators and macros are none of them.
const KNOWN: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "lines",
    "matches",
    "size",
    "split",
    "startsWith",
    "string",
    "trim",
    "type",
    "uint",
];

/// Tells whether there is a function of that name. Operators have names that nobody can write.
pub(crate) fn is_known(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_alphabetic()) || KNOWN.contains(&name)
}

/// Adds what the language lacks, and returns what an evaluation may use up.
pub(crate) fn add(context: &mut Context<'_, '_>) -> Fuel {
    let fuel = Fuel::full();
    let meter = fuel.clone();
    let tick = move |made: Value| meter.burn(made);
    let added = [
        context.add_function(TICK, tick),
        context.add_function("lines", lines),
        context.add_function("split", split),
        context.add_function("trim", trim),
    ];
    debug_assert!(added.iter().all(Result::is_ok), "no name is taken by the language");
    fuel
}

fn list(texts: impl Iterator<Item = String>) -> Value {
    Value::List(texts.map(|text| Value::String(text.into())).collect::<Vec<_>>().into())
}

/// Returns the lines of a text that are not empty, without the space around them.
fn lines(This(text): This<std::sync::Arc<String>>) -> Value {
    list(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned))
}

fn split(
    This(text): This<std::sync::Arc<String>>,
    separator: std::sync::Arc<String>,
) -> Result<Value, ExecutionError> {
    if separator.is_empty() {
        return Err(ExecutionError::function_error("split", "the separator is empty"));
    }
    Ok(list(text.split(separator.as_str()).map(str::to_owned)))
}

fn trim(This(text): This<std::sync::Arc<String>>) -> Value {
    Value::String(text.trim().to_owned().into())
}
