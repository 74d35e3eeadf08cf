//! `trash.*`: what agents have deleted, and how to get it back.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{Scrub, Span};
use formwork_write_safety::{Reads, Trashed, Workspace, WriteRules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    baseline::blocking,
    capability::{Caller, Effect, Operation, Scope},
};

/// Which entries to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Those of other workspaces as well.
    pub all: bool,
}

/// Something that was deleted, and how that came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Names it, in order of time.
    pub id: String,
    /// The workspace that it was deleted from.
    pub workspace: String,
    /// Its path from there.
    pub path: String,
    /// `file`, `folder` or `link`.
    pub kind: String,
    /// How many bytes it holds.
    pub bytes: u64,
    /// Why it was deleted, in words.
    pub reason: String,
    /// The run and the task that deleted it.
    pub run: String,
    /// The task.
    pub task: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl From<Trashed> for Entry {
    fn from(entry: Trashed) -> Self {
        let Trashed { id, root, path, kind, bytes, reason, run, task, at_ms, .. } = entry;
        Self { id, workspace: root, path, kind, bytes, reason, run, task, at_ms }
    }
}

impl Entry {
    /// Takes secrets out of what it says: names of files and reasons hold what they hold.
    fn told(self, scrub: &dyn Scrub) -> Self {
        let told = |text: &str| scrub.scrub_text(text).into_owned();
        Self { path: told(&self.path), reason: told(&self.reason), ..self }
    }
}

/// Entries, the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// `trash.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "trash.list";
    const DOC: &'static str = "Lists what agents have deleted in this workspace, the oldest first.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let trash = Arc::clone(&formwork.inner.trash);
        let found = blocking(move || trash.list()).await?;
        let here = formwork.workspace().to_string_lossy();
        let entries = found.into_iter().filter(|entry| params.all || entry.root == here);
        let scrub = formwork.scrub();
        let entries = entries.map(|entry| Entry::from(entry).told(scrub));
        Ok(Listed { entries: entries.collect() })
    }
}

/// Which entry to bring back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreParams {
    /// The entry's id.
    pub id: String,
}

/// `trash.restore`
pub struct Restore;

#[async_trait]
impl Operation for Restore {
    const NAME: &'static str = "trash.restore";
    const DOC: &'static str = "Brings back what was deleted, where nothing may be by now.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = RestoreParams;
    type Output = Entry;

    async fn run(formwork: &Formwork, _: &Caller, params: RestoreParams) -> Result<Entry, Error> {
        let inner = &formwork.inner;
        let (trash, root) = (Arc::clone(&inner.trash), Arc::clone(&inner.root));
        let id = params.id;
        let found = {
            let (trash, id) = (Arc::clone(&trash), id.clone());
            blocking(move || trash.get(&id)).await?
        };
        if std::path::Path::new(&found.root) != root.path() {
            return Err(Error::OtherTrash { id, workspace: found.root });
        }
        // A person asks for it: what binds agents does not bind them.
        let workspace = Workspace::new(root, WriteRules::everything(), Reads::new().session());
        let restored = blocking(move || workspace.restore(&trash, &id)).await?;
        Ok(Entry::from(restored).told(formwork.scrub()))
    }
}

/// What to remove for good: one entry, or all that are older than some time.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PurgeParams {
    /// This entry.
    pub id: Option<String>,
    /// Those of every workspace that were deleted longer ago.
    pub older_than: Option<Span>,
}

/// What was removed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Purged {
    /// How many entries.
    pub entries: usize,
}

/// `trash.purge`
pub struct Purge;

#[async_trait]
impl Operation for Purge {
    const NAME: &'static str = "trash.purge";
    const DOC: &'static str =
        "Removes one entry of the trash for good, or all that are old enough.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = PurgeParams;
    type Output = Purged;

    async fn run(formwork: &Formwork, _: &Caller, params: PurgeParams) -> Result<Purged, Error> {
        let trash = Arc::clone(&formwork.inner.trash);
        let now = u64::try_from(formwork.inner.clock.now().as_millis()).unwrap_or_default();
        let PurgeParams { id, older_than } = params;
        let entries = blocking(move || {
            let mut entries = 0;
            if let Some(id) = id {
                trash.purge(&id)?;
                entries += 1;
            }
            if let Some(age) = older_than {
                let age = u64::try_from(age.as_duration().as_millis()).unwrap_or(u64::MAX);
                entries += trash.purge_before(now.saturating_sub(age))?;
            }
            Ok(entries)
        })
        .await?;
        Ok(Purged { entries })
    }
}
