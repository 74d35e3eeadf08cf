//! What was posted: it waits for a commit that it can share, and what becomes of it is told by the next append.

use std::collections::HashMap;

use formwork_protocols::{RunId, StoreError, store::BATCHED_WITHIN, store::Recorded};
use tokio::time::Instant;

use crate::{prepare::Prepared, writer::Reply};

/// How many may wait before they are written: as many as one commit takes.
const MOST: usize = 2048;

/// How many bytes of events and blobs may wait: a commit of more takes longer than the disk.
const MOST_BYTES: usize = 1 << 20;

/// What the writer is asked to write, and who waits for it; nobody where it was posted.
pub(crate) struct Ask {
    pub(crate) draft: Prepared,
    pub(crate) reply: Option<Reply<Vec<Recorded>>>,
}

impl Ask {
    pub(crate) fn apart(self) -> (Prepared, Option<Reply<Vec<Recorded>>>) {
        (self.draft, self.reply)
    }

    /// Answers whoever waits. They may have gone: then the answer is nobody's.
    pub(crate) fn tell(self, answer: Result<Vec<Recorded>, StoreError>) {
        if let Some(reply) = self.reply {
            let _ = reply.send(answer);
        }
    }
}

/// What was posted and is not written yet, and what was lost of it.
#[derive(Default)]
pub(crate) struct Posted {
    waiting: Vec<Ask>,
    bytes: usize,
    /// When the first that waits has to be written.
    due: Option<Instant>,
    /// What a posted fact of a run failed of, under which token. Later facts of that owner do not stand without it.
    lost: HashMap<RunId, (Option<u64>, StoreError)>,
}

impl Posted {
    /// Takes up what was posted.
    pub(crate) fn put(&mut self, draft: Prepared) {
        self.due.get_or_insert_with(|| Instant::now() + BATCHED_WITHIN.as_duration());
        self.bytes = self.bytes.saturating_add(draft.bytes());
        self.waiting.push(Ask { draft, reply: None });
    }

    /// Moves all that waits into a commit.
    pub(crate) fn take(&mut self, into: &mut Vec<Ask>) {
        into.append(&mut self.waiting);
        (self.bytes, self.due) = (0, None);
    }

    /// Tells when what waits has to be written.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Tells whether what waits has to be written now.
    pub(crate) fn is_due(&self) -> bool {
        self.waiting.len() >= MOST
            || self.bytes >= MOST_BYTES
            || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Lets pass what may be written. What stands behind a lost fact is answered by what that one failed of.
    pub(crate) fn pass(&mut self, ask: Ask) -> Option<Ask> {
        let run = ask.draft.run;
        let Some((token, error)) = self.lost.get(&run) else { return Some(ask) };
        if *token != ask.draft.token {
            // Somebody else, who began with what the log says.
            return Some(ask);
        }
        let is_told = ask.reply.is_some();
        let error = error.clone();
        ask.tell(Err(error));
        // Without a lease there is no owner who could begin anew.
        if is_told && token.is_none() {
            self.lost.remove(&run);
        }
        None
    }

    /// Answers what was not written, or keeps what it failed of until somebody asks.
    pub(crate) fn answer(&mut self, ask: Ask, answer: Result<Vec<Recorded>, StoreError>) {
        if let (None, Err(error)) = (&ask.reply, &answer) {
            self.lose(ask.draft.run, ask.draft.token, error.clone());
        }
        ask.tell(answer);
    }

    /// Takes note that a posted fact was not written.
    pub(crate) fn lose(&mut self, run: RunId, token: Option<u64>, error: StoreError) {
        tracing::debug!(%run, %error, "what was posted could not be written");
        self.lost.insert(run, (token, error));
    }

    /// Forgets what was lost of a run that is taken up or given back.
    pub(crate) fn forgive(&mut self, run: RunId) {
        self.lost.remove(&run);
    }
}
