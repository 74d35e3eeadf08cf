//! `pytest`: one summary at the end, with or without its frame.

use formwork_protocols::check::Counts;

use super::{Report, tally};

pub(super) fn read(text: &str) -> Option<Report> {
    let mut summaries = text.lines().filter_map(summary).peekable();
    summaries.peek()?;
    let said: Vec<_> = summaries.collect();
    let sum = |words: &[&str]| {
        said.iter().map(|line| tally::sum(line, words)).fold(0, u64::saturating_add)
    };
    let headed = |what: &str| {
        let heads = text.lines().filter(|line| line.starts_with('_') && line.contains(what));
        u64::try_from(heads.count()).unwrap_or(u64::MAX)
    };
    // A module that cannot be imported is no test; a fixture that fails is one that did not pass.
    let collecting = headed(" ERROR collecting ").max(interrupted(text));
    let errors = sum(&["error", "errors"]).saturating_sub(collecting);
    // A test whose teardown fails is counted once as passed and once as an error.
    let started = errors.saturating_sub(headed(" ERROR at teardown of "));
    let failed = sum(&["failed"]);
    let counts = Counts {
        run: sum(&["passed", "failed", "xfailed", "xpassed"]).saturating_add(started),
        failed: failed.saturating_add(errors),
        skipped: sum(&["skipped"]),
    };
    let heads = ["= ERRORS =", "= FAILURES =", "= short test summary info ="];
    let begins = |line: &str| line.starts_with('=') && heads.iter().any(|head| line.contains(head));
    let failures = tally::between(text, begins, |_| false).unwrap_or_default();
    Some(Report::new(counts, failures.to_owned()))
}

/// Returns what a summary says, without its frame: it ends with the time that the run took.
fn summary(line: &str) -> Option<&str> {
    let said = line.trim_matches(['=', ' ']);
    let (said, time) = said.rsplit_once(" in ")?;
    let seconds = time.split_whitespace().next()?.strip_suffix('s')?;
    seconds.parse::<f64>().ok()?;
    let words = [
        "passed",
        "failed",
        "skipped",
        "error",
        "errors",
        "xfailed",
        "xpassed",
        "deselected",
        "warning",
        "warnings",
    ];
    let counts = tally::pairs(said).any(|(_, word)| words.contains(&word));
    (counts || said == "no tests ran").then_some(said)
}

/// Returns how many modules could not be collected, where that ended the run.
fn interrupted(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("during collection !"));
    line.map_or(0, |line| tally::sum(line, &["error", "errors"]))
}
