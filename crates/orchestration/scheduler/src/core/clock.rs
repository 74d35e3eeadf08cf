//! Ends that a clock brings about, and how they are told from others by what is recorded of them.

use formwork_protocols::{Escalation, Span};

/// What stands around the time of a budget that is over, and what behind what was missing once its grace is.
const WALL: (&str, &str) = ("its time of ", " is over");
const GRACE: &str = ", and its grace is over";

/// Says that the time of a budget is over.
pub(crate) fn wall_over(after: Span) -> Escalation {
    Escalation::BudgetExhausted { detail: wall_told(after) }
}

/// Says what is over.
pub(crate) fn wall_told(after: Span) -> String {
    format!("{}{after}{}", WALL.0, WALL.1)
}

/// Says that the grace is over of a budget that was used up.
pub(crate) fn grace_over(missing: &str) -> Escalation {
    Escalation::BudgetExhausted { detail: format!("{missing}{GRACE}") }
}

/// Says that a task was without a sign of life for too long.
pub(crate) fn nothing_happened(idle: Span) -> Escalation {
    Escalation::Stuck { pattern: None, detail: format!("nothing happened for {idle}") }
}

/// Tells whether a task was given up because of the time: another run of the same course may end otherwise.
pub fn is_by_clock(why: &Escalation) -> bool {
    match why {
        Escalation::TimedOut { .. } => true,
        // What goes in circles does so by a pattern.
        Escalation::Stuck { pattern, .. } => pattern.is_none(),
        Escalation::BudgetExhausted { detail } => {
            detail.ends_with(GRACE) || (detail.starts_with(WALL.0) && detail.ends_with(WALL.1))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_by_the_clock_is_told_from_one_by_what_was_used() {
        let span = Span::from_secs(90);
        let by_clock = [
            Escalation::TimedOut { after: span },
            wall_over(span),
            grace_over("2 of 2 used"),
            grace_over(&wall_told(span)),
            nothing_happened(span),
        ];
        let detail = "2 of 2 used".to_owned();
        let others = [
            Escalation::BudgetExhausted { detail },
            Escalation::BodyFailed { detail: "x".to_owned() },
        ];

        assert!(by_clock.iter().all(is_by_clock), "{by_clock:?}");
        assert!(!others.iter().any(is_by_clock), "{others:?}");
    }
}
