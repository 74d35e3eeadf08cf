//! What an expression can call: the functions of the language, and three more for texts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use cel::{Context, ExecutionError, Value, extractors::This};
use regex::{Regex, RegexBuilder};

use crate::fuel::{FUEL, Fuel, MATCHES, TICK};

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
    let (meter, of_lines, of_split) = (fuel.clone(), fuel.clone(), fuel.clone());
    let patterns = Patterns { fuel: fuel.clone(), read: Mutex::default() };
    let added = [
        context.add_function(TICK, move |made: Value| meter.burn(made)),
        context.add_function(MATCHES, move |This(text): This<Arc<String>>, by: Arc<String>| {
            patterns.matches(&text, &by)
        }),
        context.add_function("lines", move |This(text): This<Arc<String>>| lines(&text, &of_lines)),
        context.add_function("split", move |This(text): This<Arc<String>>, by: Arc<String>| {
            split(&text, &by, &of_split)
        }),
        context.add_function("trim", trim),
    ];
    debug_assert!(added.iter().all(Result::is_ok), "no name is taken by the language");
    fuel
}

/// The most bytes that a pattern may take once it is read; a class of letters takes some thousand, and so as often as it is
/// repeated.
const PATTERN_BYTES: usize = 256 * 1024;

/// What it costs to read a pattern, in turns.
const PATTERN_COST: u64 = 1_000;

/// The patterns of one evaluation, each read once.
struct Patterns {
    fuel: Fuel,
    read: Mutex<HashMap<Arc<String>, Regex>>,
}

impl Patterns {
    fn matches(&self, text: &str, by: &Arc<String>) -> Result<bool, ExecutionError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = read.get(by) {
            return Ok(pattern.is_match(text));
        }
        self.fuel.pay(PATTERN_COST)?;
        let pattern = RegexBuilder::new(by).size_limit(PATTERN_BYTES).build().map_err(|error| {
            let reason = format!("{by:?} is no pattern: {error}");
            ExecutionError::function_error("matches", &reason)
        })?;
        let is_match = pattern.is_match(text);
        read.insert(Arc::clone(by), pattern);
        Ok(is_match)
    }
}

/// Makes a list of texts, paid for before it is made: many small ones take far more room than the one they came from.
fn list<'a>(
    texts: impl Iterator<Item = &'a str> + Clone,
    fuel: &Fuel,
) -> Result<Value, ExecutionError> {
    let count = texts.clone().take(usize::try_from(FUEL).unwrap_or(usize::MAX)).count();
    fuel.pay(count as u64)?;
    let texts = texts.map(|text| Value::String(text.to_owned().into()));
    Ok(Value::List(texts.collect::<Vec<_>>().into()))
}

/// Returns the lines of a text that are not empty, without the space around them.
fn lines(text: &str, fuel: &Fuel) -> Result<Value, ExecutionError> {
    list(text.lines().map(str::trim).filter(|line| !line.is_empty()), fuel)
}

fn split(text: &str, separator: &str, fuel: &Fuel) -> Result<Value, ExecutionError> {
    if separator.is_empty() {
        return Err(ExecutionError::function_error("split", "the separator is empty"));
    }
    list(text.split(separator), fuel)
}

fn trim(This(text): This<Arc<String>>) -> Value {
    Value::String(text.trim().to_owned().into())
}
