//! `db.*`: the store itself: what it holds, whether it is whole, and making it smaller.

use std::{collections::BTreeMap, path::PathBuf};

use async_trait::async_trait;
use formwork_protocols::{Position, RunId, Span, StoreError, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    operations::audit::{Verified, VerifyParams, verified},
};

/// What to tell of the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatusParams {
    /// Whether to count the blobs that no run refers to, for which the whole log is read.
    pub orphans: bool,
}

/// What a store is and holds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Where it is, without credentials.
    pub at: String,
    /// `sqlite` or `postgres`.
    pub engine: String,
    /// The engine's own version.
    pub engine_version: String,
    /// The version of its tables.
    pub schema: i64,
    /// The position of the last event.
    pub head: Position,
    /// How many runs there are of each state.
    pub runs: BTreeMap<String, u64>,
    /// How many of those that have not ended are nobody's: they wait to be resumed.
    pub waiting: u64,
    /// How many events there are.
    pub events: u64,
    /// How many blobs there are.
    pub blobs: u64,
    /// How many bytes the blobs have as they are kept.
    pub blob_bytes: u64,
    /// How many bytes the blobs have when plain.
    pub plain_bytes: u64,
    /// The blobs that no run refers to, where they were counted.
    pub orphans: Option<Orphans>,
    /// How many runs were taken out into an archive.
    pub archived: u64,
    /// How many checkpoints there are.
    pub checkpoints: u64,
    /// How many bytes the store takes up.
    pub bytes: u64,
    /// How many of them a vacuum would give back at least.
    pub free: u64,
}

/// Blobs that no run refers to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields' names say it")]
pub struct Orphans {
    pub blobs: u64,
    /// As they are kept.
    pub bytes: u64,
}

impl From<formwork_trace::Orphans> for Orphans {
    fn from(found: formwork_trace::Orphans) -> Self {
        Self { blobs: found.blobs, bytes: found.bytes }
    }
}

/// `db.status`
pub struct GetStatus;

#[async_trait]
impl Operation for GetStatus {
    const NAME: &'static str = "db.status";
    const DOC: &'static str = "Tells what the store is, what it holds and how large it is.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = StatusParams;
    type Output = Status;

    async fn run(formwork: &Formwork, _: &Caller, params: StatusParams) -> Result<Status, Error> {
        let trace = formwork.trace();
        let found = trace.status(trace.time().await?).await?;
        let orphans = match params.orphans {
            true => Some(trace.orphans().await?.into()),
            false => None,
        };
        Ok(Status {
            at: found.at,
            engine: found.engine.to_owned(),
            engine_version: found.engine_version,
            schema: found.schema,
            head: found.head,
            runs: found.runs,
            waiting: found.waiting,
            events: found.events,
            blobs: found.blobs,
            blob_bytes: found.blob_bytes,
            plain_bytes: found.plain_bytes,
            orphans,
            archived: found.archived,
            checkpoints: found.checkpoints,
            bytes: found.size.bytes,
            free: found.size.free,
        })
    }
}

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoParams {}

/// Whether the store is whole.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Whole {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// What was found of the log; none where too little of it could be read.
    pub log: Option<Verified>,
    /// The views that are not what the log says.
    pub views: Vec<ViewFault>,
    /// What the engine says of its own pages.
    pub pages: Vec<String>,
    /// What could not be looked at, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// One hash over every row of every view: the same for the same log, on either engine. None where the views
    /// cannot be read.
    pub views_digest: Option<String>,
}

/// A view that is not what the log says.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ViewFault {
    /// Its name.
    pub view: String,
    /// How many rows are missing from it, or are other than they should be.
    pub missing: u64,
    /// How many rows it should not have, or are other than they should be.
    pub extra: u64,
}

/// `db.verify`
pub struct VerifyStore;

#[async_trait]
impl Operation for VerifyStore {
    const NAME: &'static str = "db.verify";
    const DOC: &'static str =
        "Checks the log, that the views are what it says, and the pages of the database.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = NoParams;
    type Output = Whole;

    async fn run(formwork: &Formwork, _: &Caller, NoParams {}: NoParams) -> Result<Whole, Error> {
        let trace = formwork.trace();
        let pages = trace.pages().await?;
        // A damaged page hides what stands in it, and nothing else.
        let mut unreadable = Vec::new();
        let log = verified(formwork, VerifyParams::default()).await;
        let log = as_far_as_read("the log", log, &mut unreadable)?;
        let views = trace.compare_views().await.map_err(Error::from);
        let views = as_far_as_read("the views", views, &mut unreadable)?.unwrap_or_default();
        let digest = trace.views_digest().await.map_err(Error::from);
        let digest = as_far_as_read("the digest of the views", digest, &mut unreadable)?;
        let views: Vec<_> = views
            .into_iter()
            .map(|fault| ViewFault {
                view: fault.view.to_owned(),
                missing: fault.missing,
                extra: fault.extra,
            })
            .collect();
        let sound = log.as_ref().is_some_and(|log| log.sound)
            && views.is_empty()
            && pages.is_empty()
            && unreadable.is_empty();
        let views_digest = digest.map(|digest| digest.to_string());
        Ok(Whole { sound, log, views, pages, unreadable, views_digest })
    }
}

/// Takes what was found, or notes what could not be looked at for damage.
fn as_far_as_read<T>(
    what: &str,
    found: Result<T, Error>,
    unreadable: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Store(StoreError::Corrupt { detail, .. })) => {
            unreadable.push(format!("{what}: {detail}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The views, made again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Rebuilt {
    /// The views that were not what the log says.
    pub mended: Vec<ViewFault>,
    /// One hash over every row of every view.
    pub views_digest: String,
}

/// `db.rebuild`
pub struct Rebuild;

#[async_trait]
impl Operation for Rebuild {
    const NAME: &'static str = "db.rebuild";
    const DOC: &'static str = "Makes every view again from the log.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = NoParams;
    type Output = Rebuilt;

    async fn run(formwork: &Formwork, _: &Caller, NoParams {}: NoParams) -> Result<Rebuilt, Error> {
        let trace = formwork.trace();
        let faults = trace.compare_views().await?;
        trace.rebuild().await?;
        let mended = faults
            .into_iter()
            .map(|fault| ViewFault {
                view: fault.view.to_owned(),
                missing: fault.missing,
                extra: fault.extra,
            })
            .collect();
        Ok(Rebuilt { mended, views_digest: trace.views_digest().await?.to_string() })
    }
}

/// What a vacuum gave back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Vacuumed {
    /// How many bytes the store took up before.
    pub before: u64,
    /// How many it takes up now.
    pub after: u64,
}

/// `db.vacuum`
pub struct Vacuum;

#[async_trait]
impl Operation for Vacuum {
    const NAME: &'static str = "db.vacuum";
    const DOC: &'static str = "Gives free space of the store back to the machine.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = NoParams;
    type Output = Vacuumed;

    async fn run(
        formwork: &Formwork,
        _: &Caller,
        NoParams {}: NoParams,
    ) -> Result<Vacuumed, Error> {
        let (before, after) = formwork.trace().vacuum().await?;
        Ok(Vacuumed { before: before.bytes, after: after.bytes })
    }
}

/// Which runs leave, and whereto.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveParams {
    /// Runs that ended, and were last written longer ago than this.
    pub older_than: Span,
    /// The folder for the file, on the machine where Formwork runs; `archive` in the folder of state where absent.
    #[serde(default)]
    pub folder: Option<PathBuf>,
}

/// What left.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedRuns {
    /// The file; none where nothing was old enough.
    pub file: Option<PathBuf>,
    /// The runs that are in it and no more in the store.
    pub runs: Vec<RunId>,
    /// The runs that are in it and in the store as well: they went on meanwhile.
    pub stayed: Vec<RunId>,
    /// How many events the file holds.
    pub events: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The blobs that no run referred to any more and that were removed; none while some process works on a run.
    pub pruned: Option<Orphans>,
}

/// `db.archive`
pub struct Archive;

#[async_trait]
impl Operation for Archive {
    const NAME: &'static str = "db.archive";
    const DOC: &'static str = "Takes old runs out of the store into a compressed file, and removes blobs that no run refers to.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = ArchiveParams;
    type Output = ArchivedRuns;

    async fn run(
        formwork: &Formwork,
        _: &Caller,
        params: ArchiveParams,
    ) -> Result<ArchivedRuns, Error> {
        let trace = formwork.trace();
        // Whoever works on a run does so by this time.
        let now = trace.time().await?;
        let age = i64::try_from(params.older_than.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp::from_micros(now.as_micros().saturating_sub(age));
        let folder = params.folder.unwrap_or_else(|| formwork.state().join("archive"));
        let left = trace.archive(before, now, &folder, formwork.scrub()).await?;
        let pruned = trace.prune(now).await?.map(Orphans::from);
        Ok(ArchivedRuns {
            file: left.file,
            runs: left.runs,
            stayed: left.stayed,
            events: left.counts.events,
            bytes: left.bytes,
            pruned,
        })
    }
}
