//! A conversation that goes on in a new one, word for word.

use formwork_context::{Answered, Group, History, OpenTurn};
use formwork_protocols::{EventStore, Message, Part, Role, RunId, SessionId};

use super::resume::{Found, edits_of, read_messages};
use crate::Error;

/// What stands in the place of an answer that never came.
const INTERRUPTED: &str = "(interrupted before an answer)";

/// What stands behind the beginning of an answer that was cut off.
const CUT_OFF: &str = "(interrupted here)";

/// What is said of a call that never ended.
const NOT_ENDED: &str =
    "interrupted: whether it took effect is unknown. Look before you repeat it.";

/// What was said in a conversation that has ended, as it was last sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// The conversation.
    pub session: SessionId,
    /// What its provider counted last: the measure of a request, and its tokens.
    pub counted: Option<(u64, u64)>,
    history: History,
}

impl Carried {
    /// Reads a conversation of any run from the log: what was left out of it is left out, and what was interrupted is
    /// said to be.
    ///
    /// # Errors
    /// [`Error`] when the log cannot be read, or is not that of a conversation.
    pub async fn read(
        store: &dyn EventStore,
        run: RunId,
        session: SessionId,
    ) -> Result<Self, Error> {
        let found = Found::read(store, run, session).await?;
        if found.messages.is_empty() {
            return Err(Error::NoSuchSession { run, session });
        }
        let messages = read_messages(store, &found.messages, session).await?;
        let folded = History::fold(messages).map_err(|source| Error::Damaged { session, source });
        let (mut history, open) = folded?;
        for &hash in &found.edits {
            history.apply(&edits_of(store, session, hash).await?);
        }
        let said = match found.cut_off {
            Some(hash) => {
                store.blob(&hash).await.map_err(|source| Error::Store { session, source })?
            }
            None => None,
        };
        let said = said.and_then(|bytes| String::from_utf8(bytes).ok());
        close(&mut history, open, said.as_deref());
        let counted = found.used.get(&session).and_then(|used| used.meter.counted());
        Ok(Self { session, counted, history })
    }

    /// Takes messages for those of a conversation.
    ///
    /// # Errors
    /// [`Error::Damaged`] when they are not.
    pub fn of(
        session: SessionId,
        messages: Vec<Message>,
        counted: Option<(u64, u64)>,
    ) -> Result<Self, Error> {
        let folded = History::fold(messages).map_err(|source| Error::Damaged { session, source });
        let (mut history, open) = folded?;
        close(&mut history, open, None);
        Ok(Self { session, counted, history })
    }

    /// Returns what was said, without the system message.
    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.history.groups().iter().flat_map(Group::messages)
    }
}

/// Answers what is open, so that something new can be said; `said` is what there is of an answer that was cut off.
fn close(history: &mut History, open: Option<OpenTurn>, said: Option<&str>) {
    if let Some(mut open) = open {
        open.answer_rest(&Answered::error(NOT_ENDED));
        if let Ok(turn) = open.close() {
            history.push(turn);
        }
    }
    // Some servers refuse two messages of one role in a row.
    if let Some(Group::User(_)) = history.groups().last() {
        let text = match said {
            Some(said) => format!("{}\n\n{CUT_OFF}", said.trim_end()),
            None => INTERRUPTED.to_owned(),
        };
        let parts = vec![Part::Text { text }];
        let message = Message { role: Role::Assistant, parts };
        if let Ok(turn) = OpenTurn::new(message).close() {
            history.push(turn);
        }
    }
}
