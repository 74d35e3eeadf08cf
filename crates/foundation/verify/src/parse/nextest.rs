//! `cargo nextest run`: one summary at the end.

use formwork_protocols::check::Counts;

use super::{Report, tally};

pub(super) fn read(text: &str) -> Option<Report> {
    let is_summary = |line: &str| line.trim_start().starts_with("Summary [");
    let summary = text.lines().rfind(|line| is_summary(line))?;
    let (_, said) = summary.split_once(']')?;
    let (ran, said) = said.split_once(':')?;
    // `5/8 tests run` where the first failure cancelled the rest.
    let number = ran.split_whitespace().next()?;
    let run = number.split('/').next()?.parse().ok()?;
    // What stands in brackets details what is counted before it.
    let outside: String = said.split(['(', ')']).step_by(2).collect();
    let failed = ["failed", "timed", "exec"];
    let counts = Counts {
        run,
        failed: tally::sum(&outside, &failed),
        skipped: tally::sum(&outside, &["skipped"]),
    };
    let fails = |line: &str| {
        line.trim_start().starts_with("FAIL [") || line.trim_start().starts_with("TIMEOUT [")
    };
    let failures = tally::between(text, fails, is_summary).unwrap_or_default();
    Some(Report::new(counts, failures.to_owned()))
}
