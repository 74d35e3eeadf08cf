//! `go test`, plain, `-v` or `-json`. A subtest counts as a test, and so does the test around it.

use formwork_protocols::check::Counts;
use serde::Deserialize;

use super::{Report, tally};

pub(super) fn read(text: &str) -> Option<Report> {
    read_json(text).or_else(|| read_plain(text))
}

fn read_plain(text: &str) -> Option<Report> {
    let mut named = Counts::default();
    let mut packages = 0_u64;
    let mut known = false;
    let mut verbose = false;
    for line in text.lines() {
        verbose |= line.starts_with("=== RUN") || line.trim_start().starts_with("--- PASS: ");
        match line.trim_start() {
            line if line.starts_with("--- PASS: ") => named.run = named.run.saturating_add(1),
            line if line.starts_with("--- FAIL: ") => {
                named.run = named.run.saturating_add(1);
                named.failed = named.failed.saturating_add(1);
            }
            line if line.starts_with("--- SKIP: ") => {
                named.skipped = named.skipped.saturating_add(1);
            }
            line if line.starts_with("ok  \t") => {
                known = true;
                if !line.ends_with("[no tests to run]") {
                    packages = packages.saturating_add(1);
                }
            }
            line if line.starts_with("FAIL\t") || line.starts_with("?   \t") => known = true,
            _ => {}
        }
    }
    if !known && named == Counts::default() {
        return None;
    }
    if !verbose {
        // Without -v no passed test is named: a package that says ok had one at least.
        named.run = named.run.saturating_add(packages);
    }
    let begins = |line: &str| line.trim_start().starts_with("--- FAIL: ") || line.starts_with("# ");
    let failures = tally::between(text, begins, |_| false).unwrap_or_default();
    Some(Report::new(named, failures.to_owned()))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line<'a> {
    action: &'a str,
    #[serde(default)]
    test: Option<String>,
    #[serde(default)]
    output: Option<String>,
}

fn read_json(text: &str) -> Option<Report> {
    let mut counts = Counts::default();
    let mut known = false;
    let mut said = String::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { continue };
        known = true;
        if let Some(output) = &line.output {
            said.push_str(output);
        }
        match (line.action, line.test) {
            ("pass", Some(_)) => counts.run = counts.run.saturating_add(1),
            ("fail", Some(_)) => {
                counts.run = counts.run.saturating_add(1);
                counts.failed = counts.failed.saturating_add(1);
            }
            ("skip", Some(_)) => counts.skipped = counts.skipped.saturating_add(1),
            _ => {}
        }
    }
    if !known {
        return None;
    }
    let failures =
        if counts.failed > 0 || said.contains("[build failed]") { said } else { String::new() };
    Some(Report::new(counts, failures))
}
