//! Whether the model goes round in circles.

use std::collections::{HashMap, VecDeque};

use formwork_protocols::{BlobHash, ToolCall, canonical, message::Arguments};

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

/// Knows a call by its tool and its arguments.
type Key = BlobHash;

/// Remembers the calls of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// How often each call was made since something else changed.
    made: HashMap<Key, u32>,
    /// What each of the last turns called.
    turns: VecDeque<Vec<Key>>,
    refused: u32,
    unusable: u32,
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

impl Guard {
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

    /// Closes a turn with all its calls; `usable` tells whether any tool could take any of them.
    /// Returns what the model is stuck in, if it is stuck.
    pub(crate) fn close_turn(&mut self, calls: &[ToolCall], usable: bool) -> Option<String> {
        self.turns.push_back(calls.iter().map(key).collect());
        if self.turns.len() > LONGEST_PATTERN * PATTERN_SEEN {
            self.turns.pop_front();
        }
        self.unusable = if usable { 0 } else { self.unusable.saturating_add(1) };
        let first = calls.first().map_or("", |call| call.name.as_str());
        if self.unusable >= MAX_UNUSABLE {
            return Some(format!(
                "{} answers in a row called only unknown tools or had unreadable arguments, the last one {first:?}",
                self.unusable
            ));
        }
        if self.refused >= MAX_REFUSED {
            return Some(format!(
                "the call of {first:?} was repeated although it was refused {} times",
                self.refused
            ));
        }
        let pattern = (2..=LONGEST_PATTERN).find(|&length| self.repeats(length))?;
        Some(format!(
            "the same {pattern} turns were made {PATTERN_SEEN} times over, the last one with {first:?}"
        ))
    }

    /// Tells whether the last turns are one pattern of that length over and over.
    fn repeats(&self, length: usize) -> bool {
        let Some(begin) = self.turns.len().checked_sub(length * PATTERN_SEEN) else { return false };
        let turns: Vec<_> = self.turns.iter().skip(begin).collect();
        turns.windows(length + 1).all(|window| window.first() == window.last())
    }
}

/// Returns the key of a call. Arguments that mean the same have the same key, in whatever order.
fn key(call: &ToolCall) -> Key {
    let arguments = match &call.arguments {
        Arguments::Json(value) => canonical::to_string(value).unwrap_or_default(),
        Arguments::Malformed { text, .. } => text.clone(),
    };
    // A tool's name holds no zero byte, so no two calls have the same bytes.
    BlobHash::of(format!("{}\0{arguments}", call.name).as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall {
            id: "id".to_owned(),
            name: name.to_owned(),
            arguments: Arguments::Json(arguments),
        }
    }

    fn read(path: &str) -> ToolCall {
        call("read", json!({ "path": path }))
    }

    #[test]
    fn the_third_identical_call_is_warned_and_the_fourth_refused() {
        let mut guard = Guard::default();

        let judged: Vec<_> = (0..5).map(|_| guard.judge(&read("a"))).collect();

        use Judgement::*;
        assert_eq!(judged, [Pass, Pass, Warn, Refuse, Refuse]);
        assert_eq!(guard.judge(&read("b")), Pass);
    }

    #[test]
    fn the_order_of_arguments_does_not_make_another_call() {
        let first = serde_json::from_str(r#"{"path":"a","limit":5}"#).unwrap();
        let second = serde_json::from_str(r#"{"limit":5,"path":"a"}"#).unwrap();

        assert_eq!(key(&call("read", first)), key(&call("read", second)));
    }

    #[test]
    fn a_change_lets_other_calls_begin_anew_and_not_itself() {
        let mut guard = Guard::default();
        let write = call("write", json!({ "path": "a", "content": "x" }));
        for _ in 0..3 {
            guard.judge(&read("a"));
            guard.judge(&write);
        }

        guard.changed(&write);

        assert_eq!(guard.judge(&read("a")), Judgement::Pass);
        assert_eq!(guard.judge(&write), Judgement::Refuse);
    }

    #[test]
    fn two_turns_in_turn_are_a_pattern_at_the_fourth_time() {
        let mut guard = Guard::default();
        let mut ends = Vec::new();

        for _ in 0..4 {
            ends.push(guard.close_turn(&[read("a")], true));
            ends.push(guard.close_turn(&[read("b")], true));
        }

        assert!(ends[..7].iter().all(Option::is_none), "{ends:?}");
        assert_eq!(
            ends[7].as_deref(),
            Some("the same 2 turns were made 4 times over, the last one with \"read\"")
        );
    }

    #[test]
    fn turns_that_differ_in_one_argument_are_no_pattern() {
        let mut guard = Guard::default();

        for round in 0..40 {
            assert_eq!(guard.close_turn(&[read(&round.to_string())], true), None);
            assert_eq!(guard.close_turn(&[read("b")], true), None);
        }
    }

    #[test]
    fn a_refused_call_that_is_made_again_and_again_ends_the_session() {
        let mut guard = Guard::default();
        let mut end = None;

        for _ in 0..6 {
            assert_eq!(end, None);
            guard.judge(&read("a"));
            // Another call beside it, so that the turns themselves are no pattern.
            end = guard.close_turn(&[read("a")], true);
        }

        assert_eq!(
            end.as_deref(),
            Some("the call of \"read\" was repeated although it was refused 3 times")
        );
    }

    #[test]
    fn calls_that_no_tool_could_take_end_the_session_after_a_few() {
        let mut guard = Guard::default();
        let unknown = |n: u32| [call(&format!("tool{n}"), json!({}))];

        assert_eq!(guard.close_turn(&unknown(1), false), None);
        assert_eq!(guard.close_turn(&[read("a")], true), None);
        for n in 2..5 {
            assert_eq!(guard.close_turn(&unknown(n), false), None);
        }

        assert_eq!(
            guard.close_turn(&unknown(5), false).as_deref(),
            Some(
                "4 answers in a row called only unknown tools or had unreadable arguments, the last one \"tool5\""
            )
        );
    }
}
