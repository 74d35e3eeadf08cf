//! `notepad.*`: what the tasks of a run told each other.

use async_trait::async_trait;
use formwork_protocols::{
    EventBody, Position, Principal, RunId, TaskId, Timestamp, store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// Of which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {
    /// The run.
    pub run: RunId,
}

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The task that it was written in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Who wrote it.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
    /// What it says.
    pub text: String,
}

/// The notes of a run, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The run.
    pub run: RunId,
    /// The notes.
    pub notes: Vec<Note>,
}

/// `notepad.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "notepad.list";
    const DOC: &'static str = "Lists the notes that the tasks of a run left for each other.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let store = &*formwork.inner.store;
        let run = super::runs::named(store, params.run).await?.run;
        let kinds = vec!["note.added".to_owned()];
        let selection = Selection { run: Some(run), task: None, kinds };
        let (mut notes, mut after) = (Vec::new(), Position::default());
        loop {
            let events = store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(Listed { run, notes }) };
            after = last.position;
            for event in events {
                if let EventBody::NoteAdded(note) = event.body {
                    let (task, by, at) = (event.task, event.principal, event.at);
                    notes.push(Note { task, by, at, text: note.text });
                }
            }
        }
    }
}
