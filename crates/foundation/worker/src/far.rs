//! A call at the far end: through the one pipeline, and what came of it back in one piece.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use formwork_protocols::{
    Append, Attachment, Blob, BlobHash, Cancel, Event, EventBody, EventStore, Journal, Live,
    Position, RunId, Span, StoreError, ToolCall, ToolErrorKind, Toolbox as _,
    event::Delta,
    message::Arguments,
    store::{Audit, Lease, Recorded, Selection},
};
use formwork_tool::Pipeline;
use futures::{StreamExt as _, stream::BoxStream};

use crate::message::{Announced, Answer, Given, Picture};

/// Where calls are carried out. They overlap.
#[async_trait]
pub trait Bench: Send + Sync {
    /// Lists the tools that there are.
    fn tools(&self) -> Vec<Announced>;

    /// Carries out a call, within what the run lets it do and what this place does.
    ///
    /// When `cancel` is raised it returns soon, with everything that it has started ended.
    async fn carry_out(&self, given: Given, cancel: &Cancel) -> Answer;
}

/// Puts a call through a pipeline, and returns what came of it, whole. Nothing is recorded: the record is the run's.
pub async fn through(pipeline: &Pipeline, given: &Given, cancel: &Cancel) -> Answer {
    let journal = Journal::new(Arc::new(Nowhere), given.context.run, None);
    let call = ToolCall {
        id: given.context.call.to_string(),
        name: given.tool.name.as_str().to_owned(),
        arguments: Arguments::Json(given.arguments.clone()),
    };
    let _ = pipeline.call(&given.context, &call, &journal, cancel).await;
    let (events, blobs) = journal.take();
    let mut changes = Vec::new();
    for event in events {
        match event.body {
            EventBody::FileChanged(change) => changes.push(change),
            EventBody::ToolCompleted(done) => {
                let Some(text) = text(&blobs, &done.output) else { break };
                let (text, pictures) = parted(text, &done.attached, &blobs);
                return Answer::Completed { text, outside: done.outside, changes, pictures };
            }
            EventBody::ToolFailed(failed) => {
                let (kind, outside) = (failed.error, failed.outside);
                let message = match &outside {
                    Some(from) => {
                        let mark = formwork_tool::unvouched(from);
                        failed.message.strip_prefix(&mark).unwrap_or(&failed.message).to_owned()
                    }
                    None => failed.message,
                };
                return Answer::Failed { kind, message, outside };
            }
            _ => {}
        }
    }
    Answer::failed(ToolErrorKind::OutcomeUnknown, "what came of the call was lost")
}

fn bytes<'a>(blobs: &'a [Blob], hash: &BlobHash) -> Option<&'a [u8]> {
    blobs.iter().find(|blob| blob.hash() == *hash).map(Blob::bytes)
}

fn text(blobs: &[Blob], hash: &BlobHash) -> Option<String> {
    Some(String::from_utf8_lossy(bytes(blobs, hash)?).into_owned())
}

/// Parts what a call has shown from the words about it, which whoever keeps it says anew.
fn parted(mut text: String, attached: &[Attachment], blobs: &[Blob]) -> (String, Vec<Picture>) {
    let mut pictures = Vec::new();
    for it in attached.iter().rev() {
        let Some(bytes) = bytes(blobs, &it.blob) else { continue };
        let told = format!("\n[{}, {} bytes, kept as {}]", it.media_type, bytes.len(), it.blob);
        if let Some(before) = text.strip_suffix(&told) {
            text.truncate(before.len());
        }
        let (media_type, name) = (it.media_type.clone(), it.name.clone());
        pictures.push(Picture { media_type, name, base64: STANDARD.encode(bytes) });
    }
    pictures.reverse();
    (text, pictures)
}

/// A log that keeps nothing: a call at the far end is recorded at the near one.
struct Nowhere;

#[async_trait]
impl EventStore for Nowhere {
    async fn append(&self, _: Append) -> Result<Vec<Recorded>, StoreError> {
        Ok(Vec::new())
    }

    async fn read(&self, _: Position, _: &Selection, _: usize) -> Result<Vec<Event>, StoreError> {
        Ok(Vec::new())
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        futures::stream::pending().boxed()
    }

    fn publish(&self, _: Delta) {}

    async fn head(&self) -> Result<Position, StoreError> {
        Ok(Position::default())
    }

    async fn blob(&self, _: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    async fn acquire(&self, _: RunId, _: &str, _: Span) -> Result<Lease, StoreError> {
        Err(StoreError::Closed)
    }

    async fn renew(&self, _: &Lease, _: Span) -> Result<Lease, StoreError> {
        Err(StoreError::Closed)
    }

    async fn release(&self, _: &Lease) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    async fn audit(&self, _: RunId) -> Result<Audit, StoreError> {
        Err(StoreError::Closed)
    }
}
