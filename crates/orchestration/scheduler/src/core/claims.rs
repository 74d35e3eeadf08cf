//! What tasks write, claimed while they work: two that may write the same do not work at once.
//!
//! The uppermost task with `write_paths` on the way from the root claims them, from its start to its end, for
//! itself and all below it. A task without any claims nothing, and neither does one that only waits. Whether two
//! claims overlap is decided by what their globs begin with, literally: `src/**` and `src/core/*.rs` do,
//! `src/**` and `docs/**` do not. That is coarse and never misses an overlap.
//!
//! Whoever has to wait is passed by nobody that it overlaps with, so that it waits for a bounded time, and only
//! for tasks that were there before it. A claim is held by a task whose own work needs no other claim, so nobody
//! waits in a circle.

use std::collections::VecDeque;

use formwork_protocols::TaskState;

use super::{
    decide::Command,
    state::{Kind, State, TaskIndex},
};

/// What is claimed, and who waits for a claim.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: Vec<TaskIndex>,
    /// In the order in which they came, each with whom it waits for.
    waiting: VecDeque<(TaskIndex, TaskIndex)>,
}

/// Returns what a glob begins with before its first special character.
fn literal(glob: &str) -> &str {
    let special = |c: char| matches!(c, '*' | '?' | '[' | '{' | '!' | '\\');
    let glob = glob.trim_start_matches("./").trim_start_matches('/');
    glob.find(special).and_then(|end| glob.get(..end)).unwrap_or(glob)
}

/// Returns what two lists of globs both may name, as far as their literal beginnings tell, if they do.
pub(crate) fn overlap<'a>(one: &'a [String], other: &'a [String]) -> Option<&'a str> {
    one.iter().find_map(|a| {
        let a = literal(a);
        other.iter().map(|b| literal(b)).find_map(|b| match (a.starts_with(b), b.starts_with(a)) {
            (true, _) => Some(a),
            (_, true) => Some(b),
            _ => None,
        })
    })
}

impl State {
    /// Returns what a task claims while it works.
    pub(crate) fn claimed(&self, task: TaskIndex) -> &[String] {
        let node = self.node(task);
        // What is written in a workspace of its own meets nobody.
        let is_apart = !node.spec.isolation.is_none();
        let Some(globs) = &node.spec.write_paths else { return &[] };
        if node.kind == Kind::Wait || is_apart {
            return &[];
        }
        let mut above = node.parent.get();
        while let Some(ancestor) = above {
            if self.node(ancestor).spec.write_paths.is_some() {
                return &[];
            }
            above = self.node(ancestor).parent.get();
        }
        globs
    }

    /// Claims what a task writes that is about to begin. Tells whether it has to wait instead.
    pub(super) fn must_wait(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> bool {
        if self.claimed(task).is_empty() {
            return false;
        }
        let place = self.claims.waiting.iter().position(|(waiting, _)| *waiting == task);
        // Those that came before it go before it.
        let before = self.claims.waiting.iter().take(place.unwrap_or(usize::MAX));
        let others = self.claims.held.iter().copied().chain(before.map(|(waiting, _)| *waiting));
        let mut found = None;
        for other in others {
            if let Some(path) = overlap(self.claimed(task), self.claimed(other)) {
                found = Some((other, path.to_owned()));
                break;
            }
        }
        let Some((by, path)) = found else {
            if let Some(place) = place {
                self.claims.waiting.remove(place);
            }
            self.claims.held.push(task);
            return false;
        };
        let known = place.and_then(|place| self.claims.waiting.get_mut(place));
        let is_told = match known {
            Some((_, before)) => std::mem::replace(before, by) == by,
            None => {
                self.claims.waiting.push_back((task, by));
                false
            }
        };
        if !is_told {
            out.push(Command::Blocked { task, by, path });
        }
        true
    }

    /// Gives back what a task has claimed, or what it waited for, and lets those go on that waited for it.
    pub(super) fn give_back(&mut self, task: TaskIndex) {
        if self.node(task).spec.write_paths.is_none() {
            return;
        }
        let claims = &mut self.claims;
        let (held, waiting) = (claims.held.len(), claims.waiting.len());
        claims.held.retain(|holder| *holder != task);
        claims.waiting.retain(|(waiting, _)| *waiting != task);
        if claims.held.len() == held && claims.waiting.len() == waiting {
            return;
        }
        let waiting: Vec<TaskIndex> = claims.waiting.iter().map(|(waiting, _)| *waiting).collect();
        for task in waiting {
            self.enqueue(task);
        }
    }

    /// Finds who holds what, when a run is taken up. Whoever waits asks anew.
    pub(super) fn reclaim(&mut self) {
        self.claims = Claims::default();
        let begun = |state: TaskState| !state.is_terminal() && state != TaskState::Created;
        let held = self
            .tasks()
            .filter(|task| begun(self.state_of(*task)) && !self.claimed(*task).is_empty());
        self.claims.held = held.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(one: &[&str], other: &[&str]) -> Option<String> {
        let owned =
            |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        let (one, other) = (owned(one), owned(other));
        let there = overlap(&one, &other).map(str::to_owned);
        assert_eq!(there.is_some(), overlap(&other, &one).is_some(), "whoever is asked first");
        there
    }

    #[test]
    fn globs_overlap_whose_literal_beginnings_may_lead_to_one_file() {
        assert_eq!(both(&["src/**"], &["src/core/*.rs"]).as_deref(), Some("src/core/"));
        assert_eq!(both(&["docs/a.md", "src/a.rs"], &["src/a.rs"]).as_deref(), Some("src/a.rs"));
        assert_eq!(both(&["**/a.rs"], &["docs/**"]).as_deref(), Some("docs/"));
        assert_eq!(both(&["./src/x"], &["/src/*"]).as_deref(), Some("src/x"));
        assert_eq!(both(&["src/a*"], &["src/{a,b}.rs"]).as_deref(), Some("src/a"));
    }

    #[test]
    fn globs_that_part_before_anything_special_do_not_overlap() {
        assert_eq!(both(&["src/**"], &["docs/**"]), None);
        assert_eq!(both(&["src/a.rs"], &["src/b.rs"]), None);
        assert_eq!(both(&[], &["**"]), None);
        assert_eq!(both(&["日本/**"], &["日誌/**"]), None);
    }
}
