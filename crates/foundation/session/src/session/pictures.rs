//! Images and documents: the log holds their hashes, a conversation what is known of them, and a request their bytes.

use std::sync::Arc;

use formwork_context::message_tokens;
use formwork_protocols::{Attachment, Cancel, ModelRequest, model::TAKES_NO_IMAGES};

use super::Session;
use crate::Error;

/// What is said of an image whose bytes are not in the log any more.
const GONE: &str = "its bytes are gone from the log";

impl Session {
    /// Puts a line in the place of each image and document that the model does not take. The log keeps them: another model
    /// that goes on with the conversation may see them.
    pub(super) async fn see(&mut self, stop: &Cancel) {
        if self.history.attachments().next().is_none() {
            return;
        }
        let model = &self.spec.model;
        if self.sight.is_none() && self.history.attachments().any(Attachment::is_image) {
            let sight = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                sight = model.takes_images() => sight,
            };
            // Where nobody knows, the server says so itself.
            self.sight = Some(sight.unwrap_or(true));
        }
        let sees = self.sight.unwrap_or(true);
        let why = |attachment: &Attachment| match attachment.is_image() && !sees {
            true => Some(TAKES_NO_IMAGES.to_owned()),
            false => model.provider.refuses(attachment),
        };
        let masked = self.history.mask(&why);
        if masked > 0 {
            self.unseen = self.unseen.saturating_add(masked);
            self.tokens = self.history.messages().map(|message| message_tokens(&message)).sum();
        }
    }

    /// Puts the bytes of what is attached into a request. What the request refers to is durable by then.
    pub(super) async fn load(&self, request: &mut ModelRequest) -> Result<(), Error> {
        for message in &mut request.messages {
            let mut is_gone = false;
            for attachment in message.attachments_mut() {
                let blob = self.seams.store.blob(&attachment.blob).await;
                attachment.content =
                    blob.map_err(|source| self.record.failed(source))?.map(Arc::from);
                is_gone |= attachment.content.is_none();
            }
            if is_gone {
                message.mask(&|attachment| attachment.content.is_none().then(|| GONE.to_owned()));
            }
        }
        Ok(())
    }
}
