//! Whether the model goes round in circles.

use std::collections::{HashMap, VecDeque};

use formwork_protocols::{
    BlobHash, StuckPattern, ToolCall, canonical, message::Arguments, rules::StuckRules, text,
};

/// The call that is the last to be carried out without anything having changed; it is warned of.
const WARNED: u32 = 3;

/// How many refused repetitions end the session: the model has been told, and told again.
const MAX_REFUSED: u32 = 3;

/// The longest pattern of turns that is looked for: A-B-A-B has two, A-B-C-A-B-C three.
const LONGEST_PATTERN: usize = 3;

/// How often a pattern is seen before the session ends: as often as a single call before it is refused.
const PATTERN_SEEN: usize = 4;

/// How many answers in a row may hold nothing but calls that no tool could take.
const MAX_UNUSABLE: u32 = 4;

/// How many bytes of an error tell it from others.
const ERROR_BYTES: usize = 160;

/// Knows a call by its tool and its arguments.
pub(crate) type Key = BlobHash;

/// Remembers the calls of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    rules: StuckRules,
    /// How often each call was made since something else changed.
    made: HashMap<Key, u32>,
    /// What each of the last turns called.
    turns: VecDeque<Vec<Key>>,
    refused: u32,
    unusable: u32,
    /// Answers in a row without a call.
    words: u32,
    /// Turns with calls since one of them changed something.
    idle: u32,
    /// The error that is all that the last turns brought, and how many of them.
    error: Option<(Failed, u32)>,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is carried out.
    Pass,
    /// It is carried out, and the model told that it repeats itself.
    Warn,
    /// It is not carried out.
    Refuse,
}

/// What a conversation is stuck in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) pattern: StuckPattern,
    pub(crate) detail: String,
}

/// What came of a turn with calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// Whether any tool could take any of its calls.
    pub(crate) usable: bool,
    /// Whether one of them may have changed something.
    pub(crate) changed: bool,
    /// The error that each of them ended with, where it is the same for all.
    pub(crate) error: Option<Failed>,
}

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// By what it is the same error as another: numbers differ from try to try where the error does not.
    bare: String,
    /// As it was told.
    told: String,
}

impl Came {
    /// Takes in how a call ended.
    pub(crate) fn of<'a>(results: impl IntoIterator<Item = (&'a ToolCall, &'a str, bool)>) -> Self {
        let mut errors = results.into_iter().map(|(call, content, is_error)| {
            is_error.then(|| {
                let line = content.lines().next().unwrap_or_default();
                let bare: String = line.chars().filter(|it| !it.is_ascii_digit()).collect();
                let named =
                    |line: &str| format!("{}: {}", call.name, text::head(line, ERROR_BYTES));
                Failed { bare: named(&bare), told: named(line) }
            })
        });
        let first = errors.next().flatten();
        let error = first.filter(|first| {
            errors.all(|other| other.is_some_and(|other| other.bare == first.bare))
        });
        Self { usable: true, changed: false, error }
    }
}

impl Guard {
    /// Begins with nothing remembered.
    pub(crate) fn new(rules: StuckRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Judges a call that is about to be made, and counts it.
    pub(crate) fn judge(&mut self, call: &ToolCall) -> Judgement {
        let made = self.made.entry(key(call)).or_default();
        *made = made.saturating_add(1);
        match *made {
            made if made < WARNED => Judgement::Pass,
            WARNED => Judgement::Warn,
            _ => {
                self.refused = self.refused.saturating_add(1);
                Judgement::Refuse
            }
        }
    }

    /// Learns that a call may have changed what other calls would find. Its own count stands: the same
    /// write over and over is a circle too.
    pub(crate) fn changed(&mut self, call: &ToolCall) {
        let own = key(call);
        self.made.retain(|key, _| *key == own);
        self.refused = 0;
    }

    /// Learns how often the results of some calls can still be read: to look again at what was left out of the
    /// conversation is no repetition. Turns that were left out are no part of a pattern either.
    pub(crate) fn left_out(&mut self, calls: impl IntoIterator<Item = (Key, u32)>) {
        for (key, seen) in calls {
            if let Some(made) = self.made.get_mut(&key) {
                *made = (*made).min(seen);
            }
            if seen == 0 {
                self.turns.retain(|turn| !turn.contains(&key));
            }
        }
    }

    /// Closes an answer without a call; `could` tells whether it could have called anything. Returns what the model
    /// is stuck in, if it is stuck.
    pub(crate) fn close_words(&mut self, could: bool) -> Option<Stuck> {
        self.words = if could { self.words.saturating_add(1) } else { 0 };
        let most = self.rules.monologue?;
        (self.words >= most).then(|| Stuck {
            pattern: StuckPattern::Monologue,
            detail: format!("{} answers in a row called nothing", self.words),
        })
    }

    /// Closes a turn with all its calls. Returns what the model is stuck in, if it is stuck.
    pub(crate) fn close_turn(&mut self, calls: &[ToolCall], came: Came) -> Option<Stuck> {
        self.words = 0;
        self.turns.push_back(calls.iter().map(key).collect());
        if self.turns.len() > LONGEST_PATTERN * PATTERN_SEEN {
            self.turns.pop_front();
        }
        self.unusable = if came.usable { 0 } else { self.unusable.saturating_add(1) };
        self.idle = if came.changed { 0 } else { self.idle.saturating_add(1) };
        self.error = came.error.map(|error| match self.error.take() {
            Some((before, seen)) if before.bare == error.bare => (error, seen.saturating_add(1)),
            _ => (error, 1),
        });
        let first = calls.first().map_or("", |call| call.name.as_str());
        let stuck = |pattern, detail: String| Some(Stuck { pattern, detail });
        if self.unusable >= MAX_UNUSABLE {
            return stuck(
                StuckPattern::UnusableCalls,
                format!(
                    "{} answers in a row called only unknown tools or had unreadable arguments, the last one {first:?}",
                    self.unusable
                ),
            );
        }
        if self.refused >= MAX_REFUSED {
            return stuck(
                StuckPattern::RepeatedCall,
                format!(
                    "the call of {first:?} was repeated although it was refused {} times",
                    self.refused
                ),
            );
        }
        if let Some(pattern) = (2..=LONGEST_PATTERN).find(|&length| self.repeats(length)) {
            return stuck(
                StuckPattern::PingPong,
                format!(
                    "the same {pattern} turns were made {PATTERN_SEEN} times over, the last one with {first:?}"
                ),
            );
        }
        if let (Some((error, seen)), Some(most)) = (&self.error, self.rules.errors)
            && *seen >= most
        {
            return stuck(
                StuckPattern::RepeatedErrors,
                format!(
                    "{seen} turns in a row brought nothing but one error, the last time {}",
                    error.told
                ),
            );
        }
        let most = self.rules.no_artifact.filter(|most| self.idle >= *most)?;
        stuck(StuckPattern::NoArtifact, format!("{most} turns of calls have changed nothing"))
    }

    /// Returns how many turns with calls there were since one of them changed something.
    pub(crate) const fn idle(&self) -> u32 {
        self.idle
    }

    /// Tells whether the last turns are one pattern of that length over and over.
    fn repeats(&self, length: usize) -> bool {
        let Some(begin) = self.turns.len().checked_sub(length * PATTERN_SEEN) else { return false };
        let turns: Vec<_> = self.turns.iter().skip(begin).collect();
        turns.windows(length + 1).all(|window| window.first() == window.last())
    }
}

/// Returns the key of a call. Arguments that mean the same have the same key, in whatever order.
pub(crate) fn key(call: &ToolCall) -> Key {
    let arguments = match &call.arguments {
        Arguments::Json(value) => canonical::to_string(value).unwrap_or_default(),
        Arguments::Malformed { text, .. } => text.clone(),
    };
    // A tool's name holds no zero byte, so no two calls have the same bytes.
    BlobHash::of(format!("{}\0{arguments}", call.name).as_bytes())
}

#[cfg(test)]
mod tests;
