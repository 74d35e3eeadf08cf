//! `sources.*`: who outside may tell of what happens, what came lately, and what was refused.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use formwork_protocols::{
    EventBody, EventName, Position, RunId, SourceName, Timestamp, document::nearest_hint,
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    sources::{self, Found},
    trust,
};

/// How many of what came last are shown.
const LATELY: usize = 10;

/// How many events are read at once: each may have as much data as is kept of a body.
const PAGE: usize = 200;

/// How a source stands, in a line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it sends to, below the address of the server; nothing where its file has a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many faults its file has; nothing is received while it has any.
    #[serde(default)]
    pub faults: usize,
    /// Whether it is trusted as it stands; nothing is received while it is not.
    pub trusted: bool,
    /// How much it has told of.
    pub received: u64,
    /// When it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// How much of that came again, as far as it is recorded.
    pub duplicates: u64,
    /// How much was refused, as far as it is recorded.
    pub refused: u64,
}

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The sources of the workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// In the order of their names.
    pub sources: Vec<Summary>,
}

/// `sources.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "sources.list";
    const DOC: &'static str = "Lists the sources of the workspace and how much came from each.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let mut summaries = Vec::new();
        for found in sources::read(formwork.workspace())? {
            // One whose file has no such name has received nothing.
            let name = SourceName::parse(found.name()).ok();
            let log = name.map(|name| log_of(formwork, &name));
            let history = History::read(formwork, log).await?;
            summaries.push(summary(formwork, &found, &history));
        }
        Ok(Listed { sources: summaries })
    }
}

/// Which source.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// Its name.
    pub name: SourceName,
}

/// Something that came.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Arrived {
    /// The event, by its place in the log.
    pub event: Position,
    /// When it came.
    pub at: Timestamp,
    /// What has happened.
    pub name: EventName,
    /// The name of the delivery.
    pub delivery: String,
}

/// A source, whole.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Detail {
    /// How it stands.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its file.
    pub file: String,
    /// The log of its own, by which `events` lists what came.
    pub log: RunId,
    /// How it signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The names of the secrets that it may sign with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What is wrong with its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What came last, in order.
    pub lately: Vec<Arrived>,
    /// How many requests were not recorded, by why.
    pub counts: BTreeMap<String, u64>,
}

/// `sources.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "sources.get";
    const DOC: &'static str =
        "Shows a source: how it signs, what came lately, and how much was refused and why.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Detail;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Detail, Error> {
        let all = sources::read(formwork.workspace())?;
        let known: Vec<String> = all.iter().map(Found::name).collect();
        let found = all.into_iter().find(|found| found.name() == params.name.as_str());
        let found = found.ok_or_else(|| {
            let hint = nearest_hint(params.name.as_str(), known.iter().map(String::as_str));
            Error::NoSuchSource { name: params.name.clone(), hint }
        })?;
        let log = log_of(formwork, &params.name);
        let history = History::read(formwork, Some(log)).await?;
        let errors = found.read.as_ref().err().into_iter().flatten().map(ToString::to_string);
        let source = found.read.as_ref().ok();
        Ok(Detail {
            summary: summary(formwork, &found, &history),
            file: found.path.display().to_string(),
            log,
            scheme: source.map(|source| source.scheme_name.as_str().to_owned()),
            secrets: source.map(|source| source.secrets.clone()).unwrap_or_default(),
            errors: errors.collect(),
            lately: history.lately.into(),
            counts: history.counts,
        })
    }
}

/// Returns the log of a source.
fn log_of(formwork: &Formwork, name: &SourceName) -> RunId {
    RunId::of_source(&formwork.workspace().display().to_string(), name)
}

fn summary(formwork: &Formwork, found: &Found, history: &History) -> Summary {
    let duplicates = history.counts.get("duplicate").copied().unwrap_or_default();
    let source = found.read.as_ref();
    Summary {
        name: found.name(),
        description: source.map(|it| it.description.clone()).unwrap_or_default(),
        path: source.ok().map(|source| format!("/incoming/events/{}", source.slug)),
        faults: source.err().map_or(0, formwork_protocols::document::Diagnostics::len),
        trusted: trust::of_source(found).is_trusted(formwork.state(), formwork.workspace()),
        received: history.received,
        last: history.lately.back().map(|arrived| arrived.at),
        duplicates,
        refused: history.counts.values().sum::<u64>() - duplicates,
    }
}

/// What the log of a source tells.
#[derive(Default)]
struct History {
    received: u64,
    lately: VecDeque<Arrived>,
    counts: BTreeMap<String, u64>,
}

impl History {
    async fn read(formwork: &Formwork, log: Option<RunId>) -> Result<Self, Error> {
        let (mut history, mut after) = (Self::default(), Position::default());
        let Some(log) = log else { return Ok(history) };
        let kinds = vec!["external.".to_owned()];
        let selection = Selection { run: Some(log), task: None, kinds };
        loop {
            let events = formwork.inner.store.read(after, &selection, PAGE).await?;
            let Some(last) = events.last() else { return Ok(history) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::ExternalReceived(received) => {
                        history.received += 1;
                        if history.lately.len() == LATELY {
                            history.lately.pop_front();
                        }
                        history.lately.push_back(Arrived {
                            event: event.position,
                            at: event.at,
                            name: received.name,
                            delivery: received.delivery,
                        });
                    }
                    EventBody::ExternalRefused(refused) => {
                        for (why, count) in refused.counts {
                            let counted = history.counts.entry(why).or_default();
                            *counted = counted.saturating_add(count);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
