//! The funnel: whatever is recorded is scrubbed, checked and serialised here, in the caller's task.

use std::{borrow::Cow, collections::HashMap};

use formwork_protocols::{
    Append, Blob, EventBody, NewEvent, Principal, RunId, Scrub, StoreError, TaskId, Timestamp,
    canonical,
};
use serde_json::Value;

/// How deep data may be nested. `serde_json` reads up to 128 levels; what cannot be read again
/// must not be written.
const DEPTH: usize = 120;

/// How many characters a kind may have.
const KIND: usize = 200;

/// How many bytes an idempotency key may have; the index that holds it has a limit on PostgreSQL.
const KEY: usize = 1024;

/// An append that only lacks its place in the log.
pub(crate) struct Prepared {
    pub(crate) run: RunId,
    pub(crate) token: Option<u64>,
    pub(crate) events: Vec<Draft>,
    pub(crate) blobs: Vec<Blob>,
}

/// An event that only lacks its place in the log.
pub(crate) struct Draft {
    pub(crate) task: Option<TaskId>,
    pub(crate) principal: Principal,
    pub(crate) at: Timestamp,
    pub(crate) body: EventBody,
    /// The canonical text of the body's data.
    pub(crate) data: String,
    pub(crate) key: Option<String>,
}

/// Scrubs and serialises.
///
/// A blob whose text holds a secret gets another hash with its other content; events of the same
/// append then refer to the new one.
pub(crate) fn prepare(append: Append, scrub: &dyn Scrub) -> Result<Prepared, StoreError> {
    let mut renamed = HashMap::new();
    let blobs = append.blobs.into_iter().map(|blob| scrubbed(blob, scrub, &mut renamed)).collect();
    let events = append
        .events
        .into_iter()
        .map(|event| draft(event, scrub, &renamed))
        .collect::<Result<_, _>>()?;
    Ok(Prepared { run: append.run, token: append.token, events, blobs })
}

fn scrubbed(blob: Blob, scrub: &dyn Scrub, renamed: &mut HashMap<String, String>) -> Blob {
    let Ok(text) = std::str::from_utf8(blob.bytes()) else { return blob };
    match scrub.scrub_text(text) {
        Cow::Owned(clean) if clean != text => {
            let other = Blob::new(clean.into_bytes());
            renamed.insert(blob.hash().to_string(), other.hash().to_string());
            other
        }
        _ => blob,
    }
}

fn draft(
    event: NewEvent,
    scrub: &dyn Scrub,
    renamed: &HashMap<String, String>,
) -> Result<Draft, StoreError> {
    let NewEvent { task, principal, at, body, idempotency_key } = event;
    let kind = body.kind().to_owned();
    let invalid = |reason: String| StoreError::Invalid { kind: kind.clone(), reason };

    let length = kind.chars().count();
    if length == 0 || length > KIND || kind.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid(format!("a kind has 1 to {KIND} printable characters")));
    }
    let original = body.data().map_err(|error| invalid(error.to_string()))?;
    let mut data = original.clone();
    scrub.scrub_value(&mut data);
    settle(&mut data, renamed, DEPTH)
        .map_err(|TooDeep| invalid(format!("its data is nested deeper than {DEPTH} levels")))?;
    let body = match body {
        // A caller may give data of a known kind as if it were unknown.
        EventBody::Unknown { .. } => EventBody::from_parts(&kind, data.clone()),
        body if data == original => Ok(body),
        _ => EventBody::from_parts(&kind, data.clone()),
    }
    .map_err(|error| invalid(error.to_string()))?;
    let data = canonical::to_string(&data).map_err(|error| invalid(error.to_string()))?;
    let key = idempotency_key.map(|key| scrub.scrub_text(&key).into_owned());
    if let Some(key) = &key
        && (key.is_empty() || key.len() > KEY || key.contains('\0'))
    {
        return Err(invalid(format!("an idempotency key has 1 to {KEY} bytes and no NUL")));
    }
    Ok(Draft { task, principal, at, body, data, key })
}

struct TooDeep;

/// Replaces the hashes of blobs that were scrubbed, and measures the depth.
fn settle(
    value: &mut Value,
    renamed: &HashMap<String, String>,
    left: usize,
) -> Result<(), TooDeep> {
    let left = left.checked_sub(1).ok_or(TooDeep)?;
    match value {
        Value::String(text) => {
            if let Some(other) = renamed.get(text) {
                text.clone_from(other);
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| settle(item, renamed, left)),
        Value::Object(map) => map.values_mut().try_for_each(|value| settle(value, renamed, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
