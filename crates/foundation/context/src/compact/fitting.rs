//! The steps by which a conversation is made to fit, in their order.

use formwork_protocols::{Blob, ContextEdit, ToolCall};

use super::{Look, Protected, Stretch, oldest, spilled, superseded};
use crate::{history::History, room::Room};

/// How many summaries one fitting makes at the most: what lies before the task, and what lies behind it.
const MAX_SUMMARIES: u32 = 2;

/// What is to be done next so that a conversation fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Later results say the same: these edits leave the older ones out.
    Supersede(Vec<ContextEdit>),
    /// These edits show less of long results; the bytes are to be kept.
    Spill(Vec<(ContextEdit, Option<Blob>)>),
    /// A summary is to stand for these groups.
    Summarise(Stretch),
    /// A new conversation is to go on with a brief of this one.
    HandOver,
    /// There is nothing more to do.
    Done,
}

/// Makes a conversation fit, step by step, until it has what the room aims at.
#[derive(Debug, Clone)]
pub struct Fitting {
    room: Room,
    stage: Stage,
    summaries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Supersede,
    Spill,
    Summarise,
    HandOver,
    Done,
}

impl Fitting {
    /// Begins to make a conversation fit a room.
    pub const fn new(room: Room) -> Self {
        Self { room, stage: Stage::Supersede, summaries: 0 }
    }

    /// Returns the next step for a conversation that now has so many `tokens`, of which `fixed` are those of the
    /// system message, the tools and the task, which every conversation about it has.
    pub fn next(
        &mut self,
        history: &History,
        protected: &Protected,
        (tokens, fixed): (u64, u64),
        look: &dyn Fn(&ToolCall) -> Option<Look>,
    ) -> Step {
        if tokens <= self.room.aim {
            self.stage = Stage::Done;
        }
        loop {
            match self.stage {
                Stage::Supersede => {
                    self.stage = Stage::Spill;
                    let edits = superseded(history, protected, look);
                    if !edits.is_empty() {
                        return Step::Supersede(edits);
                    }
                }
                Stage::Spill => {
                    self.stage = Stage::Summarise;
                    let edits = spilled(history, protected);
                    if !edits.is_empty() {
                        return Step::Spill(edits);
                    }
                }
                Stage::Summarise => match oldest(history, protected) {
                    Some(stretch) if self.summaries < MAX_SUMMARIES => {
                        self.summaries += 1;
                        return Step::Summarise(stretch);
                    }
                    _ => self.stage = Stage::HandOver,
                },
                Stage::HandOver => {
                    self.stage = Stage::Done;
                    // What no new conversation would be without is no reason to begin one, while it fits.
                    let would_help = fixed.saturating_mul(2) <= tokens;
                    if tokens > self.room.most || (tokens > self.room.full && would_help) {
                        return Step::HandOver;
                    }
                }
                Stage::Done => return Step::Done,
            }
        }
    }
}
