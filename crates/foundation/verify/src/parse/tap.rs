//! The Test Anything Protocol, versions 12 to 14. Every test point counts, at whatever depth.

use formwork_protocols::check::Counts;

use super::Report;

pub(super) fn read(text: &str) -> Option<Report> {
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.take(line);
    }
    if !reader.known {
        return None;
    }
    let fault = reader.fault();
    Some(Report { fault, ..Report::new(reader.counts, reader.failures) })
}

#[derive(Default)]
struct Reader {
    counts: Counts,
    known: bool,
    /// Test points without indentation, and how many of them were planned.
    points: u64,
    planned: Option<u64>,
    bailed: Option<String>,
    failures: String,
    /// Whether the lines belong to a test point that failed.
    failing: bool,
}

impl Reader {
    fn take(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(reason) = trimmed.strip_prefix("Bail out!") {
            self.known = true;
            self.bailed = Some(reason.trim().to_owned());
        } else if let Some(rest) = point(trimmed, "not ok") {
            self.count(line, is_directive(rest), false);
        } else if let Some(rest) = point(trimmed, "ok") {
            self.count(line, is_directive(rest), true);
        } else if let Some(planned) = plan(line) {
            self.known = true;
            self.planned = Some(self.planned.unwrap_or(0).saturating_add(planned));
            self.failing = false;
        } else if trimmed.starts_with("# Subtest") {
            self.failing = false;
        }
        if self.failing {
            self.failures.push_str(line);
            self.failures.push('\n');
        }
    }

    fn count(&mut self, line: &str, left_out: bool, passed: bool) {
        self.known = true;
        self.failing = !passed && !left_out;
        if !line.starts_with([' ', '\t']) {
            self.points = self.points.saturating_add(1);
        }
        let counts = &mut self.counts;
        if left_out {
            counts.skipped = counts.skipped.saturating_add(1);
        } else {
            counts.run = counts.run.saturating_add(1);
            counts.failed = counts.failed.saturating_add(u64::from(!passed));
        }
    }

    fn fault(&self) -> Option<String> {
        if let Some(reason) = &self.bailed {
            return Some(format!("the run bailed out: {reason}"));
        }
        let planned = self.planned?;
        (planned != self.points)
            .then(|| format!("{planned} tests were planned and {} reported", self.points))
    }
}

/// Returns what follows the status of a test point.
fn point<'a>(line: &'a str, status: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(status)?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some(rest)
}

/// Tells whether a test point is to be skipped or still to be done.
pub(super) fn is_directive(rest: &str) -> bool {
    rest.rsplit_once('#').is_some_and(|(_, directive)| {
        let word: String = directive.trim_start().chars().take(4).collect();
        word.eq_ignore_ascii_case("skip") || word.eq_ignore_ascii_case("todo")
    })
}

/// Reads a plan such as `1..5`; those of subtests are indented and do not count.
fn plan(line: &str) -> Option<u64> {
    line.strip_prefix("1..")?.split_whitespace().next()?.parse().ok()
}
