//! Ids of tool calls as a wire allows them.
//!
//! A history may hold calls of several providers: ids with characters that another refuses, ids that are too long, and
//! the same id in every turn. They are mapped in the order of the history, so that the ids of the turns before do
//! not change when a turn is added.

use std::collections::{BTreeMap, BTreeSet};

/// The ids of one history, while it is written.
#[derive(Debug)]
pub(crate) struct CallIds {
    longest: usize,
    used: BTreeSet<String>,
    newest: BTreeMap<String, String>,
}

impl CallIds {
    /// Begins a history of ids with at most `longest` characters of `a-z`, `A-Z`, `0-9`, `_` and `-`.
    pub(crate) const fn new(longest: usize) -> Self {
        Self { longest, used: BTreeSet::new(), newest: BTreeMap::new() }
    }

    /// Returns the id under which a call is sent; no other call of the history has it.
    pub(crate) fn call(&mut self, id: &str) -> String {
        let plain = self.allowed(id);
        let mut wire = plain.clone();
        let mut number = 2_u32;
        while self.used.contains(&wire) {
            wire = suffixed(&plain, &format!("_{number}"), self.longest);
            number += 1;
        }
        self.used.insert(wire.clone());
        self.newest.insert(id.to_owned(), wire.clone());
        wire
    }

    /// Returns the id of the call that a result belongs to: the last one before it with its id.
    pub(crate) fn result(&self, id: &str) -> String {
        self.newest.get(id).cloned().unwrap_or_else(|| self.allowed(id))
    }

    fn allowed(&self, id: &str) -> String {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !id.is_empty() && id.len() <= self.longest && id.chars().all(is_allowed) {
            return id.to_owned();
        }
        let plain: String = id.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
        // What was lost in the change would make two ids one.
        suffixed(&plain, &format!("_{:016x}", fnv(id.as_bytes())), self.longest)
    }
}

/// Returns `plain`, which is ASCII, with `suffix` behind it, cut in between to `longest` characters.
fn suffixed(plain: &str, suffix: &str, longest: usize) -> String {
    plain.chars().take(longest.saturating_sub(suffix.len())).collect::<String>() + suffix
}

/// Returns the FNV-1a hash, which is the same on every machine and in every version.
fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_that_every_turn_uses_again_is_numbered_and_its_results_follow() {
        let mut ids = CallIds::new(64);

        let first = (ids.call("call_0"), ids.result("call_0"));
        let second = (ids.call("call_0"), ids.result("call_0"));

        assert_eq!(first, ("call_0".to_owned(), "call_0".to_owned()));
        assert_eq!(second, ("call_0_2".to_owned(), "call_0_2".to_owned()));
    }

    proptest! {
        #[test]
        fn every_id_is_allowed_and_unlike_any_other(
            history in prop::collection::vec("[ab:./é]{0,50}", 0..20), longest in 24_usize..64,
        ) {
            let mut ids = CallIds::new(longest);

            let sent: Vec<String> = history.iter().map(|id| ids.call(id)).collect();

            for id in &sent {
                prop_assert!(!id.is_empty() && id.len() <= longest, "{}", id);
                prop_assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{}", id);
            }
            let unlike: BTreeSet<&String> = sent.iter().collect();
            prop_assert_eq!(unlike.len(), sent.len());
        }
    }
}
