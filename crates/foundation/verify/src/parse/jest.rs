//! `jest` and `vitest`: a line of tests beside a line of files.

use formwork_protocols::check::Counts;

use super::{Report, tally};

pub(super) fn read(text: &str) -> Option<Report> {
    let mut counts = None;
    for line in text.lines() {
        let Some(said) = line.trim_start().strip_prefix("Tests") else { continue };
        let said = said.strip_prefix(':').unwrap_or(said);
        if tally::pairs(said).next().is_none() {
            continue;
        }
        let counts = counts.get_or_insert_with(Counts::default);
        let failed = tally::sum(said, &["failed"]);
        let passed = tally::sum(said, &["passed"]);
        counts.run = counts.run.saturating_add(passed).saturating_add(failed);
        counts.failed = counts.failed.saturating_add(failed);
        let skipped = tally::sum(said, &["skipped", "todo", "pending"]);
        counts.skipped = counts.skipped.saturating_add(skipped);
    }
    if counts.is_none() && (text.contains("No tests found") || text.contains("No test files found"))
    {
        counts = Some(Counts::default());
    }
    let begins = |line: &str| {
        let line = line.trim_start();
        line.starts_with('●') || line.starts_with("FAIL ") || line.contains(" Failed Tests ")
    };
    let failures = tally::between(text, begins, |_| false).unwrap_or_default();
    Some(Report::new(counts?, failures.to_owned()))
}
