//! `python -m unittest`: how many ran, and a line of what became of them.

use formwork_protocols::check::Counts;

use super::{Report, tally};

pub(super) fn read(text: &str) -> Option<Report> {
    let mut counts = Counts::default();
    let mut found = false;
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("Ran ") {
            counts.run = counts.run.saturating_add(tally::sum(said, &["test", "tests"]));
            found = true;
        }
        let is_status = line.starts_with("OK (") || line.starts_with("FAILED (");
        if let Some((_, said)) = line.split_once('(').filter(|_| is_status) {
            let failed = ["failures", "errors", "unexpected successes"];
            counts.failed = counts.failed.saturating_add(named(said, &failed));
            counts.skipped = counts.skipped.saturating_add(named(said, &["skipped"]));
        }
    }
    if !found {
        return None;
    }
    // A module that cannot be imported stands in for its tests as a test that fails.
    let is_broken =
        |line: &&str| line.starts_with("ERROR: ") && line.contains("unittest.loader._FailedTest");
    let broken = u64::try_from(text.lines().filter(is_broken).count()).unwrap_or(u64::MAX);
    counts.run = counts.run.saturating_sub(counts.skipped).saturating_sub(broken);
    counts.failed = counts.failed.saturating_sub(broken);
    let begins = |line: &str| line.starts_with("======");
    let failures = tally::between(text, begins, |_| false).unwrap_or_default();
    Some(Report::new(counts, failures.to_owned()))
}

/// Returns the sum of what some names have in a list such as `failures=1, errors=2)`.
fn named(said: &str, wanted: &[&str]) -> u64 {
    let entries = said.trim_end_matches(')').split(',').filter_map(|entry| entry.split_once('='));
    entries
        .filter(|(name, _)| wanted.contains(&name.trim()))
        .filter_map(|(_, number)| number.trim().parse().ok())
        .fold(0, u64::saturating_add)
}
