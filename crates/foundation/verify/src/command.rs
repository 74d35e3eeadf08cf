//! A check by a command: run in the sandbox, judged by its exit and by what its output proves.

use std::{path::Path, sync::Arc};

use formwork_protocols::{
    Blob, Cancel, Scrub, Span,
    check::{CommandCheck, Counts, Evidence, Expect, Known, Parser},
    text,
};
use formwork_sandbox::{Caps, Captured, Command, Error, Exit, Finished, Protection, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::{Output, Report, parse, verifier::Decision};

/// How many bytes of an output the evidence shows. Enough for several failures, little in a window.
const EXCERPT_BYTES: usize = 4 * 1024;

/// How many bytes of an output are shown where nothing failed.
const PASSED_BYTES: usize = 512;

/// How many of the last lines of an output a reason quotes, and how many bytes of each: a line of a
/// terminal or two, enough for what a toolchain says that does not start.
const LAST_LINES: usize = 2;
const LINE_BYTES: usize = 160;

/// What commands of checks run in.
#[derive(Clone)]
pub(crate) struct Shop<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) root: &'a Path,
    pub(crate) protection: &'a Protection,
    pub(crate) scrub: &'a Arc<dyn Scrub>,
}

/// A command that was judged.
pub(crate) struct Ran {
    pub(crate) decision: Decision,
    /// Its whole output, scrubbed.
    pub(crate) output: Option<Blob>,
    /// Where it was connected to.
    pub(crate) reached: Vec<String>,
}

impl Ran {
    /// Tells of one that has no output.
    const fn bare(decision: Decision) -> Self {
        Self { decision, output: None, reached: Vec::new() }
    }
}

/// Runs the command of a check and judges it. Returns nothing when it was cancelled.
pub(crate) async fn run(
    shop: &Shop<'_>,
    check: &CommandCheck,
    timeout: Span,
    cancel: &Cancel,
) -> Option<Ran> {
    let mut command = Command::new(check.argv.clone(), shop.root, shop.protection.clone());
    command.timeout = timeout.as_duration();
    command.caps = CAPS;
    let token = CancellationToken::new();
    let mut running = Box::pin(shop.sandbox.run(command, token.clone(), None));
    let finished = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            token.cancel();
            // The sandbox returns once the whole tree has ended.
            let _ = running.await;
            return None;
        }
        finished = &mut running => finished,
    };
    let finished = match finished {
        Ok(finished) if finished.exit == Exit::Cancelled => return None,
        Ok(finished) => finished,
        Err(error) => {
            let argv = check.argv.iter().map(|word| shop.scrub.scrub_text(word).into_owned());
            let evidence = Evidence { argv: argv.collect(), ..Evidence::default() };
            let not_run = !is_of_the_work(&error, &check.argv, shop.root);
            let reason = shop.scrub.scrub_text(&told(&error)).into_owned();
            let decision = Decision { evidence, not_run, ..Decision::fail(reason) };
            return Some(Ran::bare(decision));
        }
    };
    let reached = finished.reached.clone();
    // Reading a large output back from its file is no work for a runtime's thread.
    let (check, scrub) = (check.clone(), Arc::clone(shop.scrub));
    let judged =
        tokio::task::spawn_blocking(move || judge(&check, timeout, finished, &*scrub)).await;
    // A task that blocks is neither cancelled nor does it panic.
    let judged =
        judged.unwrap_or_else(|_| (Decision::not_run("its output could not be read"), None));
    let (decision, output) = judged;
    Some(Ran { decision, output, reached })
}

/// How much of an output is kept: of more than that its beginning and its end are judged, where test runners sum up. It is held
/// as text, several times, and a run has to leave in a bundle with it.
const CAPS: Caps = Caps { head: 64 << 10, tail: 1 << 20, whole: 32 << 20 };

/// Judges a command that has ended.
fn judge(
    check: &CommandCheck,
    timeout: Span,
    mut finished: Finished,
    scrub: &dyn Scrub,
) -> (Decision, Option<Blob>) {
    let whole = |captured: &mut Captured| scrub.scrub_text(&read(captured)).into_owned();
    let mut combined = whole(&mut finished.combined);
    let report = check.parse.and_then(|parser| {
        let (stdout, stderr) = (whole(&mut finished.stdout), whole(&mut finished.stderr));
        parse(parser, Output { stdout: &stdout, stderr: &stderr })
    });
    let (passed, mut reason) = decide(check, finished.exit, timeout, report.as_ref());
    if !passed && needs_words(check, finished.exit, report.as_ref()) {
        reason = with_last_words(reason, &combined);
    }
    // Behind what it wrote itself, by which it was judged.
    for refusal in &finished.refused {
        combined.push_str(&format!("\n[{}]\n", scrub.scrub_text(&refusal.to_string())));
    }
    let report = report.unwrap_or_default();
    let blob = Blob::new(combined.clone().into_bytes());
    let evidence = Evidence {
        argv: check.argv.iter().map(|word| scrub.scrub_text(word).into_owned()).collect(),
        exit_code: match finished.exit {
            Exit::Code(code) => Some(code),
            _ => None,
        },
        elapsed: Span::from(finished.duration),
        counts: report.counts,
        output: Some(blob.hash()),
        excerpt: excerpt(&report.failures, &combined, passed),
        known: (!report.failing.is_empty())
            .then(|| Box::new(Known { failing: report.failing, state: None })),
        ..Evidence::default()
    };
    let issues = report.issues;
    (Decision { passed, reason, issues, evidence, not_run: false }, Some(blob))
}

/// Tells whether a command could not be run for what the work made or left out: its program is named by a path in the
/// workspace. All else is how things are set up.
fn is_of_the_work(error: &Error, argv: &[String], root: &Path) -> bool {
    let is_program = matches!(error, Error::ProgramNotFound { .. } | Error::NotStarted { .. });
    let is_below = |program: &String| {
        let path = Path::new(program);
        let below = path.strip_prefix(root).unwrap_or(path);
        let climbs = below.components().any(|part| part == std::path::Component::ParentDir);
        program.contains('/') && below.is_relative() && !climbs
    };
    is_program && argv.first().is_some_and(is_below)
}

/// Reads a whole stream as text; of one too long to be kept, its beginning and end.
fn read(captured: &mut Captured) -> String {
    match captured.whole.read() {
        Ok(bytes) => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Err(_) => captured.preview(),
    }
}

/// Tells whether a failure is only explained by what the command wrote last: no test is known to have
/// failed, and the output names no fault of its own.
fn needs_words(check: &CommandCheck, exit: Exit, report: Option<&Report>) -> bool {
    match (exit, check.expect) {
        (Exit::Code(0), Expect::Fail) => false,
        (Exit::Code(code), _) => report.is_none_or(|report| {
            let failed = report.counts.is_some_and(|counts| counts.failed > 0);
            code != 0 && !failed && report.fault.is_none()
        }),
        _ => true,
    }
}

/// Adds the last lines of an output to a reason: why a toolchain did not start stands nowhere else.
fn with_last_words(reason: String, combined: &str) -> String {
    let plain = parse::plain(combined);
    let squeeze = |line: &str| {
        let words = line.split(|c: char| c.is_whitespace() || c.is_control());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut last: Vec<String> =
        plain.lines().rev().map(squeeze).filter(|line| !line.is_empty()).take(LAST_LINES).collect();
    last.reverse();
    if last.is_empty() {
        return reason;
    }
    for line in &mut last {
        if line.len() > LINE_BYTES {
            *line = format!("{}…", text::head(line, LINE_BYTES));
        }
    }
    format!("{reason}; it ended with: {}", last.join(" / "))
}

/// Decides whether a command did what it had to, and says why in one line.
fn decide(
    check: &CommandCheck,
    exit: Exit,
    timeout: Span,
    report: Option<&Report>,
) -> (bool, String) {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::TimedOut => return (false, format!("timed out after {timeout}")),
        Exit::Signal(signal) => return (false, format!("killed by signal {signal}")),
        Exit::OverLimit(resource) => {
            return (false, format!("killed over its limit of {resource}"));
        }
        other => return (false, other.to_string()),
    };
    match check.expect {
        Expect::Pass => decide_pass(check.parse, code, report),
        Expect::Fail => decide_fail(check.parse, code, report),
    }
}

fn decide_pass(parser: Option<Parser>, code: i32, report: Option<&Report>) -> (bool, String) {
    let Some(parser) = parser else { return (code == 0, format!("exit code {code}")) };
    let Some(report) = report else {
        return (false, format!("exit code {code}, and its output holds no {}", name(parser)));
    };
    let failed = report.counts.filter(|counts| counts.failed > 0).map(|counts| of(&counts));
    match (code, &report.fault, failed) {
        (0, None, None) => match report.counts {
            Some(Counts { run: 0, skipped, .. }) => (false, no_test(skipped)),
            Some(counts) => (true, format!("{} passed", tests(counts.run))),
            None => (true, "its verdict says that it passed".to_owned()),
        },
        (0, Some(fault), _) => (false, fault.clone()),
        (0, None, Some(failed)) => (false, format!("exit code 0, although {failed} failed")),
        (_, _, Some(failed)) => (false, format!("{failed} failed")),
        (code, Some(fault), None) => (false, format!("exit code {code}: {fault}")),
        (code, None, None) => match report.counts {
            Some(Counts { run: 0, skipped, .. }) => {
                (false, format!("exit code {code}: {}", no_test(skipped)))
            }
            _ => (false, format!("exit code {code}, although no test failed")),
        },
    }
}

fn decide_fail(parser: Option<Parser>, code: i32, report: Option<&Report>) -> (bool, String) {
    if code == 0 {
        return (false, "it succeeded, and had to fail".to_owned());
    }
    let Some(parser) = parser else {
        return (true, format!("fails as it has to: exit code {code}"));
    };
    let Some(report) = report else {
        let name = name(parser);
        return (
            false,
            format!(
                "exit code {code}, and its output holds no {name}: it did not fail, it did not run"
            ),
        );
    };
    // What does not compile has failed no test.
    match report.counts {
        Some(counts) if counts.failed > 0 => {
            (true, format!("fails as it has to: {} failed", of(&counts)))
        }
        None if report.fault.is_some() => (true, format!("fails as it has to: exit code {code}")),
        _ => (
            false,
            format!("exit code {code}, and no test failed: it did not fail, it did not run"),
        ),
    }
}

fn tests(count: u64) -> String {
    format!("{count} {}", if count == 1 { "test" } else { "tests" })
}

fn of(counts: &Counts) -> String {
    format!("{} of {}", counts.failed, tests(counts.run))
}

fn no_test(skipped: u64) -> String {
    match skipped {
        0 => "no test was run".to_owned(),
        skipped => format!("no test was run, {skipped} skipped"),
    }
}

/// Returns what a parser looks for, for messages.
const fn name(parser: Parser) -> &'static str {
    match parser {
        Parser::CargoTest => "summary of cargo test",
        Parser::Nextest => "summary of cargo nextest",
        Parser::Pytest => "summary of pytest",
        Parser::Unittest => "summary of unittest",
        Parser::Jest => "summary of jest or vitest",
        Parser::GoTest => "result of go test",
        Parser::Junit => "JUnit XML",
        Parser::Tap => "TAP",
        Parser::Json => "verdict as JSON",
        _ => "format that is known",
    }
}

/// Returns the part of an output that says most: its failures, else its end.
fn excerpt(failures: &str, combined: &str, passed: bool) -> String {
    if !failures.is_empty() {
        return text::preview(failures, EXCERPT_BYTES).into_owned();
    }
    let plain = parse::plain(combined);
    text::tail(plain.trim_end(), if passed { PASSED_BYTES } else { EXCERPT_BYTES }).to_owned()
}

/// Returns an error with its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
