//! What the output of a test command proves, format by format.
//!
//! A reader believes summaries and never infers success from silence: where it finds nothing that it
//! knows, there is no [`Report`].

use formwork_protocols::check::{Counts, Issue, Parser};

mod cargo_test;
mod go_test;
mod jest;
mod json;
mod junit;
mod names;
mod nextest;
mod pytest;
mod tally;
mod tap;
mod unittest;

pub(crate) use formwork_protocols::text::plain;

/// What an output says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The tests, counted; none where the output names no number.
    pub counts: Option<Counts>,
    /// Why the run failed whatever its counts say, in one line.
    pub fault: Option<String>,
    /// What it found besides tests.
    pub issues: Vec<Issue>,
    /// The part that says why tests failed, or nothing.
    pub failures: String,
    /// The names of the tests that failed, as far as the output tells them.
    pub failing: Vec<String>,
}

impl Report {
    /// Returns a report of counts and of the part that says why tests failed.
    fn new(counts: Counts, failures: String) -> Self {
        Self { counts: Some(counts), failures, ..Self::default() }
    }
}

/// What a command wrote to its two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Output<'a> {
    pub stdout: &'a str,
    pub stderr: &'a str,
}

/// Reads what an output says of its tests. Never panics, whatever the output.
///
/// Returns nothing where it holds nothing of that format: it then proves nothing.
pub fn parse(parser: Parser, output: Output<'_>) -> Option<Report> {
    // Each stream is read as a whole: interleaved, they would cut each other's lines.
    let both = || format!("{}\n{}", plain(output.stdout), plain(output.stderr));
    let mut report = counted(parser, output, &both)?;
    if report.counts.is_some_and(|counts| counts.failed > 0) {
        report.failing = names::failing(parser, &both());
    }
    Some(report)
}

fn counted(parser: Parser, output: Output<'_>, both: &dyn Fn() -> String) -> Option<Report> {
    match parser {
        Parser::CargoTest => cargo_test::read(&both()),
        Parser::Nextest => nextest::read(&both()),
        Parser::Pytest => pytest::read(&both()),
        Parser::Unittest => unittest::read(&both()),
        Parser::Jest => jest::read(&both()),
        Parser::GoTest => go_test::read(&both()),
        Parser::Junit => junit::read(output.stdout),
        Parser::Tap => tap::read(&plain(output.stdout)),
        Parser::Json => json::read(&plain(output.stdout)),
        // A format of a later version proves nothing to this one.
        _ => None,
    }
}

#[cfg(test)]
mod tests;
