//! A provider that answers from recordings: for tests, demos and replays without a network.

use std::{
    collections::HashMap,
    fmt, fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use formwork_protocols::{
    Attachment, Cancel, ModelRequest, Provider, ProviderFault, ProviderName, model::ModelStream,
};

use crate::{
    Client, Endpoint, Error, ProviderKind, Seams,
    cassette::{Asked, Cassette, VERSION, differences},
    client::tape::Tape,
    fault::Fault,
};

/// How many differences of the nearest recording a miss tells.
const TOLD: usize = 3;

/// A provider that answers as one once did whose traffic was recorded ([`Endpoint::record`]).
///
/// An answer is found by its request: path and body, without secrets. Answers to the same request come in the order
/// in which they were recorded, the last of them as often as it is asked for. The bytes go through the same reader,
/// in the pieces in which they came; waits between tries are not waited.
#[derive(Clone)]
pub struct Recorded {
    client: Client,
    kind: ProviderKind,
}

/// The recordings of one provider, and which of them were played.
pub(crate) struct Deck {
    title: String,
    /// Each with its file's name.
    cassettes: Vec<(String, Cassette)>,
    played: Mutex<HashMap<String, usize>>,
}

impl Recorded {
    /// Reads the recordings of the provider of the endpoint's name, in the folder that is its base address.
    ///
    /// # Errors
    /// [`Error::Unreadable`] and [`Error::Recording`] when there are none, or one cannot be used.
    pub fn read(endpoint: Endpoint, seams: Seams) -> Result<Self, Error> {
        let folder = endpoint.base_url.clone();
        let (deck, kind, base_url) = Deck::read(&endpoint.name, Path::new(&folder))?;
        let endpoint = Endpoint {
            kind,
            base_url,
            api_key: None,
            headers: Vec::new(),
            record: None,
            ..endpoint
        };
        let client = Client::with_tape(endpoint, seams, Tape::Replay(deck))?;
        Ok(Self { client, kind })
    }

    /// Returns the kind of server whose traffic was recorded.
    pub const fn kind(&self) -> ProviderKind {
        self.kind
    }
}

impl Provider for Recorded {
    fn name(&self) -> &ProviderName {
        self.client.name()
    }

    fn refuses(&self, attachment: &Attachment) -> Option<String> {
        self.client.refuses(attachment)
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        self.client.stream(request, cancel)
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Deck {
    /// Reads the recordings of `provider`; returns the kind and the base address that they are of.
    fn read(provider: &ProviderName, folder: &Path) -> Result<(Self, ProviderKind, String), Error> {
        let wrong = |path: &Path, reason: String| Error::Recording {
            provider: provider.clone(),
            path: path.display().to_string(),
            reason,
        };
        let unreadable = |path: &Path, source| Error::Unreadable {
            provider: provider.clone(),
            path: path.display().to_string(),
            source,
        };
        let mut cassettes = Vec::new();
        let mut others = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
            let path = entry.map_err(|error| unreadable(folder, error))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = crate::scripted::read(&path).map_err(|error| unreadable(&path, error))?;
            let cassette: Cassette =
                serde_json::from_str(&text).map_err(|error| wrong(&path, error.to_string()))?;
            if cassette.format_version != VERSION {
                let found = cassette.format_version;
                return Err(wrong(
                    &path,
                    format!("expected format_version {VERSION}, found {found}"),
                ));
            }
            if let Some(error) = cassette.answer.chunks.iter().find_map(|chunk| chunk.bytes().err())
            {
                return Err(wrong(&path, format!("a chunk is not base64: {error}")));
            }
            if cassette.provider != *provider {
                others.push(cassette.provider.to_string());
                continue;
            }
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            cassettes.push((name.unwrap_or_default(), cassette));
        }
        cassettes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let Some((_, first)) = cassettes.first() else {
            others.sort();
            others.dedup();
            let there = if others.is_empty() { "nothing".to_owned() } else { others.join(", ") };
            let reason = format!("there is no recording of this provider; there is {there}");
            return Err(wrong(folder, reason));
        };
        let (kind, base) = (first.kind, first.endpoint.clone());
        if let Some((name, other)) =
            cassettes.iter().find(|(_, it)| (it.kind, &it.endpoint) != (kind, &base))
        {
            let reason = format!(
                "it is of {} at {}, and others are of {kind} at {base}; keep them in folders of their own",
                other.kind, other.endpoint
            );
            return Err(wrong(&folder.join(name), reason));
        }
        let title = folder
            .file_name()
            .map_or_else(|| folder.to_string_lossy(), |name| name.to_string_lossy())
            .into_owned();
        Ok((Self { title, cassettes, played: Mutex::default() }, kind, base))
    }

    /// Returns what stands in place of an address.
    pub(crate) fn label(&self) -> String {
        format!("recorded:{}", self.title)
    }

    /// Finds the answer that is next for a request.
    ///
    /// # Errors
    /// When there is none: what is nearest, and where it differs.
    pub(crate) fn play(&self, asked: &Asked) -> Result<&Cassette, Fault> {
        let same: Vec<_> = self.cassettes.iter().filter(|(_, it)| it.request == *asked).collect();
        if same.is_empty() {
            return Err(Fault::new(ProviderFault::Invalid, self.miss(asked)));
        }
        let name = asked.name().unwrap_or_default();
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let next = played.entry(name).or_default();
        let found = same.get(*next).or(same.last());
        *next = next.saturating_add(1);
        // It is not empty, so there is a last one.
        let missing = || Fault::new(ProviderFault::Invalid, self.miss(asked));
        found.map(|(_, cassette)| cassette).ok_or_else(missing)
    }

    fn miss(&self, asked: &Asked) -> String {
        let compared = self
            .cassettes
            .iter()
            .map(|(name, cassette)| (name, differences(&cassette.request, asked)));
        let Some((name, differences)) = compared.min_by_key(|(_, found)| found.len()) else {
            return format!("there is no recording in {}", self.title);
        };
        let more = match differences.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let told: Vec<_> = differences.into_iter().take(TOLD).collect();
        format!(
            "this request was not recorded; the nearest is {name}, which differs in {}{more}",
            told.join("; ")
        )
    }
}
