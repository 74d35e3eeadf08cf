//! Between the turns: what people say meanwhile, and the instructions of the folders that were come to.

use formwork_context::{Answered, outside};
use formwork_protocols::{
    EventBody, ToolCall,
    event::{InstructionsLoaded, SessionSteered},
    message::Arguments,
    tool::named_paths,
};

use super::Session;
use crate::Error;

impl Session {
    /// Takes in what people have said since, each at its place. A claim is answered by it: what they say may concern it.
    pub(super) async fn hear(&mut self) -> Result<(), Error> {
        loop {
            let inbox = std::sync::Arc::clone(&self.seams.heard.inbox);
            let said = inbox.take(self.steered, self.record.next()).await;
            let said = said.map_err(|source| self.record.failed(source))?;
            if said.is_empty() {
                return Ok(());
            }
            for said in said {
                let text = format!("[{} says while you work:]\n{}", said.by, outside(&said.text));
                let steered = SessionSteered {
                    session: self.id,
                    request: said.seq,
                    index: self.record.next(),
                };
                self.record.put(self.task(), EventBody::SessionSteered(steered));
                self.steered = said.seq;
                self.asked_to_end = false;
                match self.open.take() {
                    Some(mut open) if self.claim.take().is_some() => {
                        open.answer_rest(&Answered::error(text));
                        self.settle_turn(open)?;
                    }
                    open => {
                        self.open = open;
                        self.put_user(&text)?;
                    }
                }
            }
        }
    }

    /// Tells the model the instructions on the way to what its calls have named, where it was not told them.
    pub(super) fn guide(&mut self, calls: &[ToolCall]) -> Result<(), Error> {
        let arguments = calls.iter().filter_map(|call| match &call.arguments {
            Arguments::Json(value) => Some(value),
            Arguments::Malformed { .. } => None,
        });
        let paths: Vec<String> = arguments.flat_map(named_paths).collect();
        if paths.is_empty() {
            return Ok(());
        }
        for found in self.seams.heard.guide.on_the_way(&paths) {
            let loaded = InstructionsLoaded {
                session: self.id,
                path: found.path,
                hash: found.hash,
                bytes: found.bytes as u64,
                cut: found.cut,
            };
            self.record.put(self.task(), EventBody::InstructionsLoaded(loaded));
            self.put_user(&found.shown)?;
        }
        Ok(())
    }
}
