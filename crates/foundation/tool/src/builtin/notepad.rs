//! `notepad.add` and `notepad.read`: what the tasks of a run tell each other, in the log itself.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, EventBody, EventStore, Position, Replay, RunId, StoreError, Tool, ToolClass, ToolError,
    ToolErrorKind, ToolOutput, ToolSpec, store::Selection, tool::CallContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;

/// The most bytes of one note: a page, and no file.
const MAX_NOTE_BYTES: usize = 4 * 1024;

/// The most notes of one run. A model that writes more writes a diary.
const MAX_NOTES: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddArguments {
    /// What other tasks of this run should know.
    #[schemars(length(min = 1))]
    text: String,
}

/// Describes `notepad.add`.
pub(super) fn add_spec() -> ToolSpec {
    let text = "Add a note for the other tasks of this run. It cannot be changed or removed.";
    let (class, replay) = (ToolClass::Memory, Replay::Idempotent);
    super::spec::<AddArguments>("notepad.add", text, class, replay, &["notepad"])
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArguments {}

/// Describes `notepad.read`.
pub(super) fn read_spec() -> ToolSpec {
    let text = "Read the notes of this run, the oldest first.";
    // What this conversation has noted itself has to be in the log before it is read.
    let (class, replay) = (ToolClass::Read, Replay::Idempotent);
    let tags = &["readonly", "notepad"];
    super::spec::<ReadArguments>("notepad.read", text, class, replay, tags)
}

/// Returns the notes of a run and whose each is.
async fn notes(store: &dyn EventStore, run: RunId) -> Result<Vec<(String, String)>, StoreError> {
    let kinds = vec!["note.added".to_owned()];
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut notes, mut after) = (Vec::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(notes) };
        after = last.position;
        for event in events {
            if let EventBody::NoteAdded(note) = event.body {
                notes.push((event.principal.to_string(), note.text));
            }
        }
    }
}

fn failed(error: &StoreError) -> ToolError {
    ToolError::new(ToolErrorKind::Failed, format!("the notes cannot be read: {error}"))
}

pub(super) struct Add {
    spec: ToolSpec,
    store: Arc<dyn EventStore>,
}

impl Add {
    pub(super) fn new(store: Arc<dyn EventStore>) -> Self {
        Self { spec: add_spec(), store }
    }
}

#[async_trait]
impl Tool for Add {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let AddArguments { text } = schema::read(arguments)?;
        let invalid = |told| Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        if text.trim().is_empty() {
            return invalid("the note is empty".to_owned());
        }
        if text.len() > MAX_NOTE_BYTES {
            let has = text.len();
            return invalid(format!(
                "a note has at most {MAX_NOTE_BYTES} bytes, and this one {has}"
            ));
        }
        let there = notes(&*self.store, context.run).await.map_err(|error| failed(&error))?.len();
        if there >= MAX_NOTES {
            let told = format!("the run has {there} notes, and no more than {MAX_NOTES} are kept");
            return Err(ToolError::new(ToolErrorKind::Failed, told));
        }
        Ok(ToolOutput { notes: vec![text], ..ToolOutput::text("noted") })
    }
}

pub(super) struct Read {
    spec: ToolSpec,
    store: Arc<dyn EventStore>,
}

impl Read {
    pub(super) fn new(store: Arc<dyn EventStore>) -> Self {
        Self { spec: read_spec(), store }
    }
}

#[async_trait]
impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let ReadArguments {} = schema::read(arguments)?;
        let notes = notes(&*self.store, context.run).await.map_err(|error| failed(&error))?;
        if notes.is_empty() {
            return Ok(ToolOutput::text("[no notes yet]"));
        }
        let mut told = String::new();
        for (by, text) in notes {
            told.push_str(&format!("- {by}: {}\n", text.trim_end().replace('\n', "\n  ")));
        }
        Ok(ToolOutput::text(told))
    }
}
