//! Events that wait for others before anything is done.

use std::collections::BTreeMap;

use formwork_protocols::{Position, Timestamp};

use crate::Accumulate;

/// The most events that one key waits with: with so many there is something to be done whatever time says.
const MOST_TOGETHER: usize = 1_000;

/// The most keys that events wait under. The one that has waited longest is let go of for another.
const MOST_KEYS: usize = 1_000;

/// An event that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Its place in the store.
    pub event: Position,
    /// When it happened.
    pub at: Timestamp,
}

/// What becomes of events when another one comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Those that have waited long enough before it came, without it.
    pub before: Option<Vec<Position>>,
    /// The key that is let go of for it.
    pub let_go: Option<String>,
    /// Those that are together with it.
    pub full: Option<Vec<Position>>,
}

/// The events that wait, by what they have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    by_key: BTreeMap<String, Vec<Held>>,
}

impl Gathered {
    /// Returns how many events wait.
    pub fn len(&self) -> usize {
        self.by_key.values().map(Vec::len).sum()
    }

    /// Tells whether none waits.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Has an event wait.
    pub fn hold(&mut self, key: &str, held: Held) {
        let waiting = self.by_key.entry(key.to_owned()).or_default();
        waiting.push(held);
        // So many that none of them can matter any more: a rule asks for no more of them.
        let spare = waiting.len().saturating_sub(MOST_TOGETHER);
        waiting.drain(..spare);
    }

    /// Lets go of what waits under a key.
    pub fn clear(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// Tells what becomes of those that wait under a key when an event comes. Changes nothing.
    pub fn take(&self, rule: &Accumulate, key: &str, new: Held) -> Taken {
        let waiting = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let mut taken = Taken::default();
        if waiting.is_empty() && self.by_key.len() >= MOST_KEYS {
            let first = |held: &Vec<Held>| held.first().map(|held| held.event);
            let longest = self.by_key.iter().min_by_key(|(_, held)| first(held));
            taken.let_go = longest.map(|(key, _)| key.clone());
        }
        let positions = |held: &[Held]| held.iter().map(|held| held.event).collect::<Vec<_>>();
        let is_apart =
            |earlier: &Held| rule.within.is_some_and(|span| earlier.at.after(span) < new.at);
        let (beside, most) = match (rule.count, rule.within) {
            // A window that moves: what lies behind it does not count any more.
            (Some(count), _) => {
                let old = waiting.iter().take_while(|held| is_apart(held)).count();
                (waiting.get(old..).unwrap_or_default(), count)
            }
            // A window that begins with its first event.
            (None, _) if waiting.first().is_some_and(is_apart) => {
                taken.before = Some(positions(waiting));
                (&[][..], MOST_TOGETHER)
            }
            (None, _) => (waiting, MOST_TOGETHER),
        };
        if beside.len() + 1 >= most {
            let mut together = positions(beside);
            together.push(new.event);
            taken.full = Some(together);
        }
        taken
    }

    /// Returns what has waited long enough by now, by its key: all of it where nothing is to wait any more.
    pub fn due(&self, rule: Option<&Accumulate>, now: Timestamp) -> Vec<(String, Vec<Position>)> {
        let within = match rule.map(|rule| (rule.count, rule.within)) {
            None => None,
            Some((None, Some(within))) => Some(within),
            Some(_) => return Vec::new(),
        };
        let is_due = |held: &[Held]| {
            let first = held.first().map(|held| held.at);
            first.is_some_and(|at| within.is_none_or(|within| at.after(within) <= now))
        };
        let due = self.by_key.iter().filter(|(_, held)| is_due(held));
        due.map(|(key, held)| (key.clone(), held.iter().map(|it| it.event).collect())).collect()
    }

    /// Returns when the next of them has waited long enough.
    pub fn next_due(&self, rule: &Accumulate) -> Option<Timestamp> {
        let (None, Some(within)) = (rule.count, rule.within) else { return None };
        self.by_key.values().filter_map(|held| Some(held.first()?.at.after(within))).min()
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::Span;
    use proptest::prelude::*;

    use super::*;

    fn held(second: i64) -> Held {
        let event = Position(u64::try_from(second).unwrap() + 1);
        Held { event, at: Timestamp::from_micros(second * 1_000_000) }
    }

    fn rule(count: Option<usize>, seconds: Option<u64>) -> Accumulate {
        Accumulate { count, within: seconds.map(Span::from_secs), key: None }
    }

    /// Gives events to a rule, one after the other, and returns what was together.
    fn given(rule: &Accumulate, seconds: &[i64]) -> Vec<Vec<u64>> {
        let mut gathered = Gathered::default();
        let mut found = Vec::new();
        for second in seconds {
            let taken = gathered.take(rule, "", held(*second));
            if let Some(before) = taken.before {
                gathered.clear("");
                found.push(before);
            }
            gathered.hold("", held(*second));
            if let Some(full) = taken.full {
                gathered.clear("");
                found.push(full);
            }
        }
        found.into_iter().map(|it| it.into_iter().map(|it| it.0 - 1).collect()).collect()
    }

    #[test]
    fn so_many_are_together_and_then_the_next_so_many() {
        assert_eq!(given(&rule(Some(2), None), &[1, 2, 3, 900, 901]), [vec![1, 2], vec![3, 900]]);
    }

    #[test]
    fn what_is_too_old_does_not_count_any_more() {
        let found = given(&rule(Some(3), Some(10)), &[0, 8, 15, 17, 18, 100]);

        assert_eq!(found, [vec![8, 15, 17]]);
    }

    #[test]
    fn all_that_come_soon_after_the_first_are_together() {
        let rule = rule(None, Some(10));
        let mut gathered = Gathered::default();
        gathered.hold("", held(3));
        gathered.hold("", held(13));

        assert_eq!(given(&rule, &[0, 5, 10, 11, 30]), [vec![0, 5, 10], vec![11]]);
        assert_eq!(gathered.next_due(&rule), Some(held(13).at));
        assert_eq!(gathered.due(Some(&rule), held(12).at), []);
        let (first, last) = (held(3).event, held(13).event);
        let all = [(String::new(), vec![first, last])];
        assert_eq!(gathered.due(Some(&rule), held(13).at), all);
        assert_eq!(gathered.due(None, held(3).at), all, "the document gathers no more");
    }

    #[test]
    fn the_key_that_has_waited_longest_is_let_go_of_when_there_are_too_many() {
        let mut gathered = Gathered::default();
        for second in 0..1_000 {
            gathered.hold(&format!("{}", 999 - second), held(second));
        }

        let another = gathered.take(&rule(Some(2), None), "new", held(2_000));
        let known = gathered.take(&rule(Some(2), None), "7", held(2_000));

        assert_eq!(another.let_go.as_deref(), Some("999"));
        assert_eq!((known.let_go, known.full.map(|it| it.len())), (None, Some(2)));
    }

    proptest! {
        #[test]
        fn by_count_alone_every_event_is_given_once_and_in_order(
            count in 1_usize..5, gaps in prop::collection::vec(0_i64..100, 0..40),
        ) {
            let seconds: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap + 1; Some(*at) }).collect();
            let found = given(&rule(Some(count), None), &seconds);
            prop_assert!(found.iter().all(|it| it.len() == count));
            let flat: Vec<u64> = found.concat();
            let wanted: Vec<u64> = seconds.iter().map(|it| u64::try_from(*it).unwrap()).collect();
            prop_assert_eq!(&flat[..], &wanted[..wanted.len() / count * count]);
        }
    }
}
