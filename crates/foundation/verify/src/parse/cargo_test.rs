//! `cargo test`: a summary of libtest for every binary, and one for the doctests.

use formwork_protocols::check::Counts;

use super::{Report, tally};

const SUMMARY: &str = "test result: ";

pub(super) fn read(text: &str) -> Option<Report> {
    let mut summaries = text.lines().filter(|line| line.starts_with(SUMMARY)).peekable();
    summaries.peek()?;
    let mut counts = Counts::default();
    for line in summaries {
        let failed = tally::sum(line, &["failed"]);
        // A benchmark that is measured is a test that ran.
        let passed = tally::sum(line, &["passed", "measured"]);
        counts.run = counts.run.saturating_add(passed).saturating_add(failed);
        counts.failed = counts.failed.saturating_add(failed);
        counts.skipped = counts.skipped.saturating_add(tally::sum(line, &["ignored"]));
    }
    Some(Report::new(counts, failures(text)))
}

/// Returns what each binary says of its failures, one after the other.
fn failures(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some(part) =
        tally::between(rest, |line| line == "failures:\n", |line| line.starts_with(SUMMARY))
    {
        found.push_str(part.trim_end());
        found.push('\n');
        let Some(at) = rest.find(part) else { break };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    found
}
