//! Tool calls from the pieces in which servers send them.
//!
//! Servers agree on little: ids come late, twice or never, indexes are missing or used again, names come in parts or
//! with every piece, arguments are a text, an object or null. This module holds what is true of all of them: a new
//! id opens a new call, whatever its index; and nothing is a call to be executed unless the whole answer ended well
//! and the arguments parse to an object.

mod twice;

use formwork_protocols::message::{Arguments, ToolCall};
use serde_json::{Map, Value};

use twice::key_twice;

/// One piece of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta<'a> {
    /// The call's place in the answer, where the server gave one.
    pub index: Option<i64>,
    /// The call's id, where the server gave one.
    pub id: Option<&'a str>,
    /// The tool's name, or a part of it.
    pub name: Option<&'a str>,
    /// More of the arguments, as JSON text.
    pub arguments: Option<&'a str>,
}

/// What a piece did, in the caller's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Step {
    /// A call's name is known and its arguments follow.
    Started { index: usize, id: String, name: String },
    /// The arguments of a call that has started grew.
    Grew { index: usize, text: String },
}

/// How the answer that the calls stand in ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By its own end marker.
    Whole,
    /// It met the limit of output tokens.
    ForLength,
    /// It ended without saying that it was whole.
    WithoutMarker,
    /// For a reason that nobody knows, which does not vouch that it is whole.
    ForUnknown,
    /// A part of it was lost or could not be read, which may have been a part of a call.
    WithLoss,
}

/// The calls of one answer while it streams.
#[derive(Debug)]
pub struct Assembly {
    /// What made ids begin with, so that the calls of two answers never share one.
    made: String,
    calls: Vec<Building>,
}

#[derive(Debug, Default)]
struct Building {
    index: Option<i64>,
    id: Option<String>,
    name: String,
    arguments: String,
    /// The id under which it was announced; it does not change any more.
    announced: Option<String>,
}

/// How a list of calls takes a piece.
enum Target {
    Open,
    Existing(usize),
    Nothing,
}

impl Assembly {
    /// Begins an answer. Calls for which the server gives no id are named `call_SALT_0`, `call_SALT_1` and so on.
    pub fn new(salt: impl std::fmt::Display) -> Self {
        Self { made: format!("call_{salt}_"), calls: Vec::new() }
    }

    /// Tells whether no call has begun.
    pub const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns how many calls have begun.
    pub const fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the arguments of the newest call at an index, as far as they came.
    pub(crate) fn arguments(&self, index: Option<i64>) -> Option<&str> {
        let found = self.calls.iter().rfind(|call| call.index == index);
        found.map(|call| call.arguments.as_str())
    }

    /// Takes a piece, and returns the index of the call that it belongs to and what is to be told of it.
    pub fn push(&mut self, delta: Delta<'_>) -> (Option<usize>, Vec<Step>) {
        let mut steps = Vec::new();
        let at = self.take(delta, &mut |step| steps.push(step));
        (at, steps)
    }

    /// Takes a piece and tells what it did, without a list in between.
    pub(crate) fn take(&mut self, delta: Delta<'_>, tell: &mut dyn FnMut(Step)) -> Option<usize> {
        let delta = Delta {
            id: delta.id.filter(|id| !id.is_empty()),
            name: delta.name.filter(|name| !name.is_empty()),
            ..delta
        };
        let at = match self.target(&delta) {
            Target::Nothing => return None,
            Target::Existing(at) => at,
            Target::Open => {
                self.announce_all(tell);
                self.calls.push(Building { index: delta.index, ..Building::default() });
                self.calls.len() - 1
            }
        };
        if let Some(call) = self.calls.get_mut(at) {
            call.index = call.index.or(delta.index);
            if call.id.is_none() {
                call.id = delta.id.map(str::to_owned);
            }
            // Some servers repeat the whole name with every piece, others send it in parts.
            if let Some(name) = delta.name
                && call.arguments.is_empty()
                && call.name != name
            {
                call.name.push_str(name);
            }
        }
        if let Some(text) = delta.arguments.filter(|text| !text.is_empty()) {
            self.announce(at, tell);
            if let Some(call) = self.calls.get_mut(at) {
                call.arguments.push_str(text);
            }
            tell(Step::Grew { index: at, text: text.to_owned() });
        }
        Some(at)
    }

    /// Announces the calls that have no arguments yet; to be called once no more pieces come.
    pub fn flush(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.announce_all(&mut |step| steps.push(step));
        steps
    }

    /// Returns the calls. Those of an answer that is not whole, and those whose arguments are no object, are malformed.
    pub fn finish(mut self, ended: Ended) -> Vec<ToolCall> {
        self.flush();
        let calls = self.calls.into_iter().map(|call| {
            let arguments = match ended {
                Ended::ForLength => malformed(
                    call.arguments,
                    "the answer met its limit of output tokens before the call was whole",
                ),
                Ended::WithoutMarker => malformed(
                    call.arguments,
                    "the answer ended without its end marker, so the call may be cut",
                ),
                Ended::ForUnknown => malformed(
                    call.arguments,
                    "the answer ended for a reason that is not known, so the call may be cut",
                ),
                Ended::WithLoss => malformed(
                    call.arguments,
                    "a part of the answer was lost on its way, so the call may lack a part",
                ),
                Ended::Whole if call.name.is_empty() => {
                    malformed(call.arguments, "the call names no tool")
                }
                Ended::Whole => parse_arguments(&call.arguments),
            };
            ToolCall { id: call.announced.unwrap_or_default(), name: call.name, arguments }
        });
        calls.collect()
    }

    fn target(&self, delta: &Delta<'_>) -> Target {
        let newest = |found: &dyn Fn(&Building) -> bool| self.calls.iter().rposition(found);
        if let Some(id) = delta.id {
            if let Some(at) = newest(&|call| call.id.as_deref() == Some(id)) {
                // Some servers give every call of an answer the same id; only the index tells them apart.
                let moved = self.calls.get(at).is_some_and(|call| {
                    delta.name.is_some() && delta.index.is_some() && call.index != delta.index
                });
                return if moved { self.at_index(delta) } else { Target::Existing(at) };
            }
            // The id of a call that began without one.
            let late = newest(&|call| call.index == delta.index)
                .filter(|&at| self.calls.get(at).is_some_and(|call| call.takes_late_id(delta)));
            return late.map_or(Target::Open, Target::Existing);
        }
        if delta.index.is_some() {
            return self.at_index(delta);
        }
        match self.calls.last() {
            None if delta.name.is_some() || delta.arguments.is_some() => Target::Open,
            None => Target::Nothing,
            Some(last) if delta.name.is_some_and(|name| last.is_done_before(name)) => Target::Open,
            Some(_) => Target::Existing(self.calls.len() - 1),
        }
    }

    /// Finds the call at the delta's index, which a server may use again for a later call.
    fn at_index(&self, delta: &Delta<'_>) -> Target {
        match self.calls.iter().rposition(|call| call.index == delta.index) {
            Some(at) => {
                let again = self.calls.get(at).is_some_and(|call| {
                    delta.name.is_some_and(|name| call.is_done_before(name))
                        && (call.id.is_none() || call.id.as_deref() != delta.id)
                });
                if again && delta.id.is_none_or(|id| !self.knows(id)) {
                    Target::Open
                } else {
                    Target::Existing(at)
                }
            }
            None if delta.name.is_some() => Target::Open,
            // The index of a call that began without one.
            None => match self.calls.last() {
                Some(last) if last.index.is_none() => Target::Existing(self.calls.len() - 1),
                _ if delta.arguments.is_some_and(|text| !text.is_empty()) => Target::Open,
                _ => Target::Nothing,
            },
        }
    }

    fn knows(&self, id: &str) -> bool {
        self.calls.iter().any(|call| call.id.as_deref() == Some(id))
    }

    fn announce_all(&mut self, tell: &mut dyn FnMut(Step)) {
        for at in 0..self.calls.len() {
            self.announce(at, tell);
        }
    }

    fn announce(&mut self, at: usize, tell: &mut dyn FnMut(Step)) {
        let Some(call) = self.calls.get(at).filter(|call| call.announced.is_none()) else { return };
        let is_taken = |id: &str| self.calls.iter().any(|c| c.announced.as_deref() == Some(id));
        // A result is paired by its call's id, so no two calls may share one; a server may give what is made here, too.
        let wanted = call.id.clone().unwrap_or_else(|| format!("{}{at}", self.made));
        let mut id = wanted.clone();
        let mut number = at;
        while is_taken(&id) {
            id = format!("{wanted}_{number}");
            number += 1; // As many are taken as there are calls, so this ends.
        }
        tell(Step::Started { index: at, id: id.clone(), name: call.name.clone() });
        if let Some(call) = self.calls.get_mut(at) {
            call.announced = Some(id);
        }
    }
}

impl Building {
    fn takes_late_id(&self, delta: &Delta<'_>) -> bool {
        self.id.is_none() && !delta.name.is_some_and(|name| self.is_done_before(name))
    }

    /// Tells whether a piece with `name` and without a telling id begins another call.
    fn is_done_before(&self, name: &str) -> bool {
        let whole = serde_json::from_str::<Map<String, Value>>(&self.arguments).is_ok();
        whole || (!self.arguments.is_empty() && self.name != name)
    }
}

fn malformed(text: String, error: impl Into<String>) -> Arguments {
    Arguments::Malformed { text, error: error.into() }
}

/// Reads the arguments of a whole call. No text, and null, are no arguments.
///
/// Two habits of servers are undone because nothing is guessed in doing so: an object inside a JSON text, and an
/// object that is sent twice or after an empty one. Whatever else does not parse to an object is malformed, and so is an
/// object that names one thing twice.
pub fn parse_arguments(text: &str) -> Arguments {
    match parse_object(text) {
        Arguments::Json(value) => match key_twice(text) {
            Some(key) => named_twice(text, &key),
            None => Arguments::Json(value),
        },
        malformed @ Arguments::Malformed { .. } => malformed,
    }
}

fn parse_object(text: &str) -> Arguments {
    if text.trim().is_empty() {
        return Arguments::Json(Value::Object(Map::new()));
    }
    let mut found: Option<Value> = None;
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value {
            Err(error) => {
                return malformed(text.to_owned(), format!("the arguments are not JSON: {error}"));
            }
            Ok(value) => match &found {
                Some(before) if *before == value || is_empty(&value) => {}
                Some(before) if !is_empty(before) => {
                    return malformed(
                        text.to_owned(),
                        "the arguments are more than one JSON value",
                    );
                }
                _ => found = Some(value),
            },
        }
    }
    match found {
        None | Some(Value::Null) => Arguments::Json(Value::Object(Map::new())),
        Some(Value::Object(object)) => Arguments::Json(Value::Object(object)),
        Some(Value::String(inner)) => match serde_json::from_str::<Map<String, Value>>(&inner) {
            Ok(object) => match key_twice(&inner) {
                Some(key) => named_twice(text, &key),
                None => Arguments::Json(Value::Object(object)),
            },
            Err(_) => wrong_kind(text, "a string"),
        },
        Some(Value::Array(_)) => wrong_kind(text, "an array"),
        Some(Value::Bool(_)) => wrong_kind(text, "a boolean"),
        Some(Value::Number(_)) => wrong_kind(text, "a number"),
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn named_twice(text: &str, key: &str) -> Arguments {
    malformed(text.to_owned(), format!("the arguments name {key:?} twice"))
}

fn wrong_kind(text: &str, found: &str) -> Arguments {
    malformed(text.to_owned(), format!("the arguments are {found}, expected a JSON object"))
}

#[cfg(test)]
mod tests;
