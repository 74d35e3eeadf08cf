//! A verdict as JSON: the whole output, or its last line.

use formwork_protocols::check::{Counts, Issue, Severity};
use serde::Deserialize;

use super::Report;

#[derive(Deserialize)]
struct Verdict {
    passed: bool,
    #[serde(default)]
    run: Option<u64>,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    skipped: u64,
    #[serde(default)]
    issues: Vec<Issue>,
}

pub(super) fn read(text: &str) -> Option<Report> {
    let whole = text.trim();
    let last = whole.lines().last().unwrap_or_default();
    let verdict: Verdict =
        serde_json::from_str(whole).or_else(|_| serde_json::from_str(last)).ok()?;
    let Verdict { passed, run, failed, skipped, issues } = verdict;
    // A verdict that names no tests was not about tests; one that names failed ones was.
    let run = run.or((failed > 0).then_some(failed));
    let counts = run.map(|run| Counts { run, failed, skipped });
    // What has to be mended before it is done is not done.
    let graver = issues.iter().find(|issue| issue.severity >= Severity::Major);
    let fault = match (passed, graver) {
        (false, _) => Some("its verdict says that it failed".to_owned()),
        (true, Some(issue)) => {
            let issue = issue.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            Some(format!("its verdict says that it passed, and names an issue, {issue}"))
        }
        (true, None) => None,
    };
    let failures = if passed { String::new() } else { whole.to_owned() };
    Some(Report { counts, fault, issues, failures, ..Report::default() })
}
