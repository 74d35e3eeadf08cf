//! Counts denials, so that a model that keeps asking for what is refused is ended.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Decision;

/// Counts the denials of one task.
#[derive(Debug)]
pub struct Denials {
    most: u32,
    so_far: AtomicU32,
}

impl Denials {
    /// Tolerates fewer than `most` denials.
    pub fn new(most: u32) -> Self {
        Self { most, so_far: AtomicU32::new(0) }
    }

    /// Counts `decision` if it is a denial, and says why the task must end as refused, if it must.
    pub fn count(&self, decision: &Decision) -> Option<String> {
        let Decision::Deny { why } = decision else { return None };
        let denied = self.so_far.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (denied >= self.most).then(|| format!("{denied} calls were denied, the last because {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tolerated_denial_says_that_the_task_must_end() {
        let denials = Denials::new(3);
        let deny = Decision::Deny { why: "git push is not on the list".into() };
        let ask = Decision::Ask { why: "it is new".into() };

        let said = [&deny, &Decision::Allow, &deny, &ask, &deny].map(|it| denials.count(it));

        let last = "3 calls were denied, the last because git push is not on the list";
        assert_eq!(said, [None, None, None, None, Some(last.into())]);
    }
}
