//! From JSON to the values of the language, and back.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::Error;

/// The most bytes that an expression is given to look at, as [`size`] counts them.
pub(crate) const MAX_SEEN: usize = 1024 * 1024;

/// Returns about how many bytes a value takes, whatever it is nested in.
pub(crate) fn size(value: &Value) -> usize {
    let (mut open, mut sum) = (vec![value], 0_usize);
    while let Some(value) = open.pop() {
        sum = sum.saturating_add(8);
        match value {
            Value::String(text) => sum = sum.saturating_add(text.len()),
            Value::Array(items) => open.extend(items),
            Value::Object(map) => {
                for (key, value) in map {
                    sum = sum.saturating_add(key.len());
                    open.push(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    sum
}

/// A whole number is an `int` wherever one can hold it, so that `x + 1` needs no `u`.
pub(crate) fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(holds) => cel::Value::Bool(*holds),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => cel::Value::Int(int),
            (None, Some(uint)) => cel::Value::UInt(uint),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(text.clone().into()),
        Value::Array(items) => {
            cel::Value::List(items.iter().map(to_cel).collect::<Vec<_>>().into())
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (key.clone(), to_cel(value)));
            cel::Value::from(entries.collect::<HashMap<String, cel::Value>>())
        }
    }
}

/// # Errors
/// [`Error::NoValue`] where it is nothing that JSON can hold.
pub(crate) fn from_cel(value: &cel::Value) -> Result<Value, Error> {
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(holds) => Value::Bool(*holds),
        cel::Value::Int(int) => Value::from(*int),
        cel::Value::UInt(uint) => Value::from(*uint),
        cel::Value::Float(float) => match serde_json::Number::from_f64(*float) {
            Some(number) => Value::Number(number),
            None => {
                let reason = format!("{float} is no number that can be kept");
                return Err(Error::NoValue { reason });
            }
        },
        cel::Value::String(text) => Value::String(text.as_ref().clone()),
        cel::Value::List(items) => {
            Value::Array(items.iter().map(from_cel).collect::<Result<_, _>>()?)
        }
        cel::Value::Map(map) => {
            let entries =
                map.map.iter().map(|(key, value)| Ok((key.to_string(), from_cel(value)?)));
            Value::Object(entries.collect::<Result<Map<_, _>, Error>>()?)
        }
        _ => {
            let reason = "its value is nothing that can be kept: bytes, a type".to_owned();
            return Err(Error::NoValue { reason });
        }
    })
}

/// Names the type of a value for people.
pub(crate) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
