//! How what a source sends comes into the log: let in by its signature, named, recorded once, and told to who waits for it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::{
    Append, Event, EventBody, EventName, NewEvent, Position, Principal, RunId, Span, StoreError,
    Timestamp,
    event::{ExternalReceived, ExternalRefused},
    store::Selection,
};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{
    Found, Source,
    document::MAX_BYTES,
    mapping,
    signature::{Headers, Key, Unverified, as_if_signed, header},
};
use crate::{
    Error, Formwork,
    operations::events::{MAX_DATA, Waiting, tell_waiting},
    trust,
};

/// How often it is recorded at the most how many requests to a source were refused: whoever has no secret writes no more.
const TELL_REFUSED: Span = Span::from_secs(600);

/// A request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The last part of the address that it was sent to.
    pub slug: &'a str,
    /// Its headers.
    pub headers: Headers<'a>,
    /// Its body, byte for byte.
    pub body: &'a [u8],
    /// When it came.
    pub at: Timestamp,
}

/// What became of a request that was let in. It is recorded by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The event, by its place in the log.
    pub event: Position,
    /// Whether it had been let in before; the event is then the first one.
    pub duplicate: bool,
    /// The runs that were told, now or then.
    pub runs: Vec<RunId>,
}

/// Why a request was not let in. Each message may be told to whoever sent it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refusal {
    /// There is no such source, or the request has no signature: whoever has no secret is not told which.
    #[error("there is nothing here")]
    NotFound,
    /// The signature is not that of any secret of the source, or its time is not about now.
    #[error("the signature does not hold")]
    Signature,
    /// The body, or what would be kept of it, is too large.
    #[error("{what} has more than {limit} bytes")]
    TooLarge { what: &'static str, limit: usize },
    /// The body is said to be something else than JSON.
    #[error("the body is to be JSON, by its content type too")]
    MediaType,
    /// The body is no JSON, or nested too deeply.
    #[error("the body is no JSON")]
    NotJson,
    /// The source has no name for such an event.
    #[error("the source lets in no such event")]
    Unmapped,
    /// The log cannot hold what would be kept of it.
    #[error("what is kept of the body cannot be recorded")]
    Unfit,
    /// The log cannot be reached. Whoever sent it should send it again.
    #[error("nothing can be recorded now")]
    Away { source: StoreError },
}

impl Refusal {
    /// Returns the status that HTTP has for it.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Signature => 401,
            Self::TooLarge { .. } => 413,
            Self::MediaType => 415,
            Self::NotJson | Self::Unmapped | Self::Unfit => 422,
            Self::Away { .. } => 503,
        }
    }
}

/// A source that receives nothing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// Takes what sources send. The files and the secrets are those of the moment at which it was opened.
///
/// ```
/// use formwork_services::{Builder, sources::{Arrival, Receiver, Refusal}};
/// # use formwork_protocols::{Clock as _, SystemClock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workspace = tempfile::tempdir()?;
/// let formwork = Builder::new(workspace.path()).build().await?;
/// let receiver = Receiver::open(&formwork)?;
///
/// let at = SystemClock.now();
/// let arrival = Arrival { slug: "unknown", headers: &[], body: b"{}", at };
/// let refused = receiver.receive(arrival).await.unwrap_err();
///
/// assert_eq!(refused.status(), 404);
/// # formwork.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Receiver {
    formwork: Formwork,
    doors: HashMap<String, Door>,
    left_out: Vec<LeftOut>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("left_out", &self.left_out).finish_non_exhaustive()
    }
}

/// Where a source sends to.
struct Door {
    source: Source,
    log: RunId,
    keys: Vec<Key>,
    refused: Mutex<Refused>,
}

/// How many requests were refused that no event tells of yet.
#[derive(Default)]
struct Refused {
    counts: BTreeMap<String, u64>,
    since: Option<Timestamp>,
    told: Option<Timestamp>,
}

impl Refused {
    fn count(&mut self, why: &str, at: Timestamp) {
        *self.counts.entry(why.to_owned()).or_default() += 1;
        self.since.get_or_insert(at);
    }

    /// Takes what is to be told by now.
    fn due(&mut self, at: Timestamp) -> Option<(BTreeMap<String, u64>, Timestamp)> {
        let is_early = self.told.is_some_and(|told| at.since(told) < TELL_REFUSED);
        let since = self.since.filter(|_| !is_early)?;
        (self.since, self.told) = (None, Some(at));
        Some((std::mem::take(&mut self.counts), since))
    }
}

impl Receiver {
    /// Opens an address for each source of the workspace that has no fault, is trusted as it stands and whose secrets are there.
    ///
    /// # Errors
    /// [`Error::Documents`] when the sources cannot be read, and [`Error::Secret`] when a secret of the config cannot be had.
    pub fn open(formwork: &Formwork) -> Result<Self, Error> {
        let (mut doors, mut left_out) = (HashMap::new(), Vec::new());
        let found = super::read(formwork.workspace())?;
        if found.is_empty() {
            return Ok(Self { formwork: formwork.clone(), doors, left_out });
        }
        let workspace = formwork.workspace().to_str().ok_or_else(|| Error::WorkspaceName {
            workspace: formwork.workspace().display().to_string(),
        })?;
        // From here on they are taken out of whatever is recorded.
        let (keys, _) = formwork.models(&formwork.inner.config)?;
        for found in found {
            let name = found.name();
            let opened = open(formwork, found, &keys.registry).map(|(source, keys)| {
                let log = RunId::of_source(workspace, &source.name);
                Door { source, log, keys, refused: Mutex::default() }
            });
            match opened {
                Ok(door) => drop(doors.insert(door.source.slug.to_string(), door)),
                Err(why) => left_out.push(LeftOut { name, why }),
            }
        }
        Ok(Self { formwork: formwork.clone(), doors, left_out })
    }

    /// Returns the sources that receive nothing, and why.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the last parts of the addresses, in order.
    pub fn slugs(&self) -> Vec<&str> {
        let mut slugs: Vec<&str> = self.doors.keys().map(String::as_str).collect();
        slugs.sort_unstable();
        slugs
    }

    /// Returns how many bytes of a body are to be read at the most. A larger one is told by [`Receiver::overflowed`].
    pub fn limit(&self, slug: &str) -> usize {
        self.doors.get(slug).map_or(MAX_BYTES, |door| door.source.max_bytes)
    }

    /// Refuses a body that is larger than the limit, of which the rest was not read.
    pub async fn overflowed(&self, slug: &str, at: Timestamp) -> Refusal {
        let refusal = Refusal::TooLarge { what: "the body", limit: self.limit(slug) };
        if let Some(door) = self.doors.get(slug) {
            self.count(door, "too_large", at).await;
        }
        refusal
    }

    /// Takes a request. Once this returns that it was received, it is on the disk, and all runs that wait for it are told.
    ///
    /// Cancel safe: of a dropped future what was sent may be recorded, and not every run be told; whoever sends it again has the
    /// rest done.
    ///
    /// # Errors
    /// [`Refusal`] says why it was not let in. Nothing of what was sent is recorded then.
    pub async fn receive(&self, arrival: Arrival<'_>) -> Result<Received, Refusal> {
        let Arrival { slug, headers, body, at } = arrival;
        let Some(door) = self.doors.get(slug) else {
            if body.len() > MAX_BYTES {
                return Err(Refusal::TooLarge { what: "the body", limit: MAX_BYTES });
            }
            as_if_signed(body);
            return Err(Refusal::NotFound);
        };
        match self.admit(door, headers, body, at) {
            Ok(named) => {
                let received = self.record(door, named, at).await?;
                if received.duplicate {
                    self.count(door, "duplicate", at).await;
                }
                Ok(received)
            }
            Err((why, refusal)) => {
                self.count(door, why, at).await;
                Err(refusal)
            }
        }
    }

    /// Records what was counted and is not told of yet. To be called when nothing is received any more.
    pub async fn close(&self) {
        for door in self.doors.values() {
            lock(&door.refused).told = None;
            self.tell_refused(door, self.formwork.now()).await;
        }
    }

    /// Tells what a request says, if it is to be let in.
    fn admit(
        &self,
        door: &Door,
        headers: Headers<'_>,
        body: &[u8],
        at: Timestamp,
    ) -> Result<ExternalReceived, (&'static str, Refusal)> {
        let Source { name, max_bytes, scheme, mapping, .. } = &door.source;
        if body.len() > *max_bytes {
            let refusal = Refusal::TooLarge { what: "the body", limit: *max_bytes };
            return Err(("too_large", refusal));
        }
        scheme.verify(&door.keys, headers, body, at).map_err(|why| match why {
            Unverified::Unsigned => {
                as_if_signed(body);
                ("unsigned", Refusal::NotFound)
            }
            Unverified::Wrong => ("signature", Refusal::Signature),
            Unverified::Stale => ("stale", Refusal::Signature),
        })?;
        // Only what is signed is read.
        if !is_json(headers) {
            return Err(("media_type", Refusal::MediaType));
        }
        let read: Value =
            serde_json::from_slice(body).map_err(|_| ("not_json", Refusal::NotJson))?;
        let event = mapping.name(headers, &read).cloned().ok_or(("unmapped", Refusal::Unmapped))?;
        let delivery = mapping.delivery(headers, &read, body);
        let data = mapping.kept(read);
        if data.to_string().len() > MAX_DATA {
            let refusal = Refusal::TooLarge { what: "what is kept of the body", limit: MAX_DATA };
            return Err(("too_large", refusal));
        }
        Ok(ExternalReceived { source: name.clone(), name: event, delivery, data })
    }

    async fn record(
        &self,
        door: &Door,
        received: ExternalReceived,
        at: Timestamp,
    ) -> Result<Received, Refusal> {
        let store = &*self.formwork.inner.store;
        let key = mapping::key(&received.delivery);
        let (name, data) = (received.name.clone(), received.data.clone());
        let body = EventBody::ExternalReceived(received);
        let event = self.event(door, at, body, Some(key.clone()));
        let append = Append { run: door.log, token: None, events: vec![event], blobs: Vec::new() };
        let recorded = store.append(append).await.map_err(away)?;
        let first = recorded.into_iter().next().ok_or(Refusal::Unfit)?;
        let mut told: (EventName, Value, Timestamp) = (name, data, at);
        if first.duplicate {
            // What is told is what was recorded, whatever came under its name since.
            let before = Position(first.position.0.saturating_sub(1));
            let selection = Selection { run: Some(door.log), ..Selection::default() };
            let found = store.read(before, &selection, 1).await.map_err(away)?;
            if let Some(Event { body: EventBody::ExternalReceived(body), at, .. }) =
                found.into_iter().next()
            {
                told = (body.name, body.data, at);
            }
        }
        let (name, data, at) = told;
        let waiting = Waiting {
            name,
            data,
            by: Principal::source(&door.source.name),
            // The log of the source is in it, so that two sources are never taken for one.
            key: Some(format!("{}/{key}", door.log)),
            // One that began later waits for what happens from then on, and not for what is sent once more.
            begun_by: Some(at),
            workspace: Some(self.formwork.workspace().display().to_string()),
        };
        let runs = match tell_waiting(&self.formwork, waiting).await {
            Ok(runs) => runs,
            Err(Error::Store(source)) => return Err(away(source)),
            Err(_) => return Err(Refusal::Unfit),
        };
        Ok(Received { event: first.position, duplicate: first.duplicate, runs })
    }

    async fn count(&self, door: &Door, why: &str, at: Timestamp) {
        lock(&door.refused).count(why, at);
        self.tell_refused(door, at).await;
    }

    async fn tell_refused(&self, door: &Door, at: Timestamp) {
        let Some((counts, since)) = lock(&door.refused).due(at) else { return };
        let source = door.source.name.clone();
        let body = ExternalRefused { source, counts: counts.clone(), since };
        let event = self.event(door, at, EventBody::ExternalRefused(body), None);
        let append = Append { run: door.log, token: None, events: vec![event], blobs: Vec::new() };
        if self.formwork.inner.store.append(append).await.is_err() {
            // They are told of with the next.
            let mut refused = lock(&door.refused);
            for (why, count) in counts {
                *refused.counts.entry(why).or_default() += count;
            }
            refused.since = Some(since);
        }
    }

    fn event(
        &self,
        door: &Door,
        at: Timestamp,
        body: EventBody,
        idempotency_key: Option<String>,
    ) -> NewEvent {
        let principal = Principal::source(&door.source.name);
        NewEvent { task: None, principal, at, body, idempotency_key }
    }
}

/// Returns a source with its keys, or why it receives nothing.
fn open(
    formwork: &Formwork,
    found: Found,
    registry: &formwork_secrets::Registry,
) -> Result<(Source, Vec<Key>), String> {
    let brought = trust::of_source(&found);
    let source = match found.read {
        Ok(source) => source,
        Err(faults) => return Err(faults.to_string()),
    };
    if !brought.is_trusted(formwork.state(), formwork.workspace()) {
        return Err("it is not trusted as it stands".to_owned());
    }
    let key = |name: &String| {
        let secret = registry.get(name);
        let secret = secret
            .ok_or_else(|| format!("there is no secret {name} in [secrets] of the config"))?;
        let key = source.scheme.key(secret.expose_secret());
        key.map_err(|why| format!("secret {name} is of no use to it: {why}"))
    };
    let keys = source.secrets.iter().map(key).collect::<Result<_, _>>()?;
    Ok((source, keys))
}

/// Tells whether a request says that its body is JSON, or says nothing of it.
fn is_json(headers: Headers<'_>) -> bool {
    let Ok(said) = header(headers, "content-type") else { return false };
    let Some(said) = said else { return true };
    let of = said.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let of = of.to_ascii_lowercase();
    of == b"application/json" || (of.starts_with(b"application/") && of.ends_with(b"+json"))
}

/// Tells what the log cannot hold from a log that cannot be reached.
fn away(source: StoreError) -> Refusal {
    match source {
        StoreError::Invalid { .. } => Refusal::Unfit,
        source => Refusal::Away { source },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
