//! The funnel: whatever is recorded is scrubbed, checked and serialised here, in the caller's task.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use formwork_protocols::{
    Append, Blob, EventBody, NewEvent, Principal, RunId, Scrub, StoreError, TaskId, Timestamp,
    canonical::{self, Scratch},
};
use serde_json::Value;

use crate::pack::Packed;

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
    pub(crate) blobs: Vec<Packed>,
}

impl Prepared {
    /// Tells whether there is nothing to write.
    pub(crate) const fn is_empty(&self) -> bool {
        self.events.is_empty() && self.blobs.is_empty()
    }

    /// Returns about how many bytes there are to write.
    pub(crate) fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| event.data.len());
        events.chain(self.blobs.iter().map(|blob| blob.bytes.len())).sum()
    }
}

/// An event that only lacks its place in the log.
pub(crate) struct Draft {
    pub(crate) task: Option<TaskId>,
    pub(crate) principal: Principal,
    pub(crate) at: Timestamp,
    pub(crate) body: EventBody,
    /// The canonical text of the body's data.
    pub(crate) data: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
}

/// Scrubs and serialises.
///
/// A blob whose text holds a secret gets another hash with its other content; events of the same
/// append then refer to the new one. The blobs are returned beside what else there is: they are yet to be
/// packed.
pub(crate) fn prepare(
    append: Append,
    scrub: &dyn Scrub,
) -> Result<(Prepared, Vec<Blob>), StoreError> {
    let mut renamed = HashMap::new();
    let blobs = append.blobs.into_iter().map(|blob| scrubbed(blob, scrub, &mut renamed)).collect();
    let mut scratch = Scratch::default();
    let events = append
        .events
        .into_iter()
        .map(|event| draft(event, scrub, &renamed, &mut scratch))
        .collect::<Result<_, _>>()?;
    Ok((Prepared { run: append.run, token: append.token, events, blobs: Vec::new() }, blobs))
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
    scratch: &mut Scratch,
) -> Result<Draft, StoreError> {
    let NewEvent { task, principal, at, body, idempotency_key } = event;
    let invalid =
        |kind: &str, reason: String| StoreError::Invalid { kind: kind.to_owned(), reason };

    named_well(body.kind(), None).map_err(|reason| invalid(body.kind(), reason))?;
    let (body, data) = clean(body, scrub, renamed, scratch)?;
    let key: Option<Arc<str>> = idempotency_key.map(|key| scrub.scrub_text(&key).into());
    named_well(body.kind(), key.as_deref()).map_err(|reason| invalid(body.kind(), reason))?;
    Ok(Draft { task, principal, at, body, data, key })
}

/// Checks the kind of an event and its key.
///
/// # Errors
/// In words, what is wrong with them.
pub(crate) fn named_well(kind: &str, key: Option<&str>) -> Result<(), String> {
    let length = kind.chars().count();
    if length == 0 || length > KIND || kind.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("a kind has 1 to {KIND} printable characters"));
    }
    if key.is_some_and(|key| key.is_empty() || key.len() > KEY || key.contains('\0')) {
        return Err(format!("an idempotency key has 1 to {KEY} bytes and no NUL"));
    }
    Ok(())
}

/// Returns the body as it is recorded, and the canonical text of its data.
///
/// Most data holds no secret, which is seen while its text is written; only what does is taken apart.
fn clean(
    body: EventBody,
    scrub: &dyn Scrub,
    renamed: &HashMap<String, String>,
    scratch: &mut Scratch,
) -> Result<(EventBody, Arc<str>), StoreError> {
    let mut is_clean = true;
    let canonical = body.write_data(scratch, &mut |text| {
        is_clean = is_clean
            && matches!(scrub.scrub_text(text), Cow::Borrowed(_))
            && (renamed.is_empty() || !renamed.contains_key(text));
    });
    let invalid = |kind: &str, error: serde_json::Error| StoreError::Invalid {
        kind: kind.to_owned(),
        reason: error.to_string(),
    };
    let canonical = canonical.map_err(|error| invalid(body.kind(), error))?;
    if canonical.depth > DEPTH {
        let reason = format!("its data is nested deeper than {DEPTH} levels");
        return Err(StoreError::Invalid { kind: body.kind().to_owned(), reason });
    }
    if is_clean {
        let body = match body {
            // A caller may give data of a known kind as if it were unknown.
            EventBody::Unknown { kind, data } if EventBody::is_known(&kind) => {
                EventBody::from_parts(&kind, data).map_err(|error| invalid(&kind, error))?
            }
            body => body,
        };
        return Ok((body, canonical.text.into()));
    }
    let kind = body.kind().to_owned();
    let mut data = body.data().map_err(|error| invalid(&kind, error))?;
    scrub.scrub_value(&mut data);
    settle(&mut data, renamed);
    let text = canonical::to_string(&data).map_err(|error| invalid(&kind, error))?;
    let body = EventBody::from_parts(&kind, data).map_err(|error| invalid(&kind, error))?;
    Ok((body, text.into()))
}

/// Replaces the hashes of blobs that were scrubbed.
fn settle(value: &mut Value, renamed: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(other) = renamed.get(text) {
                text.clone_from(other);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, renamed)),
        Value::Object(map) => map.values_mut().for_each(|value| settle(value, renamed)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
