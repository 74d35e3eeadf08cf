//! Checks that know what was before: tests held against how they were, and the workspace against its earlier states.

use std::{collections::BTreeSet, sync::Arc};

use formwork_protocols::{
    AttemptId, BlobHash, Cancel, EventBody, Position,
    check::{
        CheckKind, CheckSpec, CommandCheck, Compare, Counts, Evidence, Expect, Known, Phase,
        SuiteCheck, Verdict,
    },
    store::Selection,
};
use formwork_scheduler::CheckJob;
use formwork_verify::Ground;

use crate::{
    Error,
    baseline::{Began, blocking},
    checks::diff::one_line,
    executor::Workshop,
};

/// How many tests a reason names.
const NAMED: usize = 3;

impl Workshop {
    /// Runs a suite of tests. Before the task begins it only finds out; afterwards it is held against that.
    pub(super) async fn suite(
        &self,
        job: &CheckJob,
        check: &SuiteCheck,
        began: &Began,
        cancel: &Cancel,
    ) -> Result<Verdict, Error> {
        let SuiteCheck { argv, parse, compare } = check;
        let command = CommandCheck { argv: argv.clone(), parse: *parse, expect: Expect::Pass };
        let spec =
            CheckSpec::new(job.check.name.clone(), CheckKind::Command(command), job.check.timeout);
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let bounds = self.bounds(&self.program_rules(&job.spec)?, whose).await?;
        let verifier = self.verifier(self.root.path(), bounds.protection);
        let ground = Ground { baseline: &began.checked, changes: &() };
        let checking = Box::pin(verifier.check(&spec, ground, cancel));
        let within = (job.run, job.task, job.token);
        let checked = self.watched(within, bounds.reach, checking).await?;
        let verdict = self.kept(job, checked).await?;
        if job.phase == Phase::Entry {
            // A word that names nothing to run: nobody is paid to work towards that.
            let evidence = &verdict.evidence;
            let is_started =
                evidence.output.is_some() && !matches!(evidence.exit_code, Some(126 | 127));
            let why = match missing(argv, evidence) {
                Some(line) if is_started => format!("the suite cannot run: {line}"),
                _ => verdict.reason.clone(),
            };
            let passed = is_started && missing(argv, evidence).is_none();
            let reason = format!("before the first edit: {why}");
            return Ok(Verdict { passed, not_run: !passed, reason, ..verdict });
        }
        if verdict.not_run {
            return Ok(verdict);
        }
        // As it was written: what is put into it may be other by now.
        let written = |at: Option<&CheckSpec>| match at.map(|spec| &spec.kind) {
            Some(CheckKind::Suite(suite)) => Some(suite.argv.clone()),
            _ => None,
        };
        let own = written(job.spec.postchecks.get(job.index as usize));
        let before = self.store.checks(job.run).await?.into_iter().rfind(|row| {
            let of = written(job.spec.prechecks.get(row.index as usize));
            row.task == job.task && row.phase == Phase::Entry && own.is_some() && of == own
        });
        let before = before.map(|row| row.verdict.evidence);
        let (passed, reason) = held(&verdict, before.as_ref(), *compare, parse.is_some());
        Ok(Verdict { passed, reason, ..verdict })
    }

    /// Tells whether the workspace is in a state that it was in after an earlier attempt, or before the first.
    pub(super) async fn progress(&self, job: &CheckJob, began: &Began) -> Result<Verdict, Error> {
        let before = began.snapshot().cloned();
        let before = before.ok_or_else(|| Error::Checks {
            reason: "nobody knows what the workspace held before the task".to_owned(),
        })?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let (first, now) = blocking(move || {
            let now = snapshots.take_by(&root, &before)?;
            Ok((before.id(), now.id()))
        })
        .await?;
        let hash = |id: &[u8; 32]| BlobHash::from_bytes(*id);
        let (first, now) = (hash(first.as_bytes()), hash(now.as_bytes()));
        let earlier = self.states(job).await?;
        let repeats = earlier.iter().filter(|round| !round.passed).count();
        let found = match first == now {
            true => Some("nothing is other than it was before the first round".to_owned()),
            false => earlier.iter().rfind(|round| round.state == Some(now)).map(|round| {
                format!("all is as it was after round {}, which did not pass", round.number)
            }),
        };
        let (passed, reason) = match (found, repeats) {
            (None, _) => (true, "the workspace is in a state that it was not in before".to_owned()),
            (Some(same), 0) => {
                (false, format!("{same}: what was tried does not help, so make another plan"))
            }
            (Some(same), _) => (false, format!("{same}: it goes round in circles")),
        };
        let evidence = Evidence {
            known: Some(Box::new(Known { failing: Vec::new(), state: Some(now) })),
            ..Evidence::default()
        };
        Ok(Verdict { evidence, ..Verdict::bare(&*job.check.name, passed, reason) })
    }

    /// Lists what this check said after earlier attempts.
    async fn states(&self, job: &CheckJob) -> Result<Vec<Round>, Error> {
        let kinds = ["attempt.started", "check.finished"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(job.run), task: Some(job.task), kinds };
        let (mut rounds, mut after) = (Vec::<Round>::new(), Position::default());
        let mut current: Option<(AttemptId, u32)> = None;
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(rounds) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::AttemptStarted(started) => {
                        current = Some((started.attempt, started.number));
                    }
                    EventBody::CheckFinished(done)
                        if (done.phase, done.index) == (job.phase, job.index) =>
                    {
                        let Some((attempt, number)) = current else { continue };
                        if Some(attempt) == job.attempt {
                            continue;
                        }
                        // A check may run more than once after one attempt: its last word counts.
                        rounds.retain(|round| round.number != number);
                        let state = done.verdict.evidence.known.and_then(|known| known.state);
                        let passed = done.verdict.passed;
                        rounds.push(Round { number, passed, state });
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What programs write that find nothing to run, before and behind the word of their command that names it. Source: Python 3.11,
/// dash 0.5.12, Perl 5.36, GNU make 4.3, cargo 1.95, Node.js 20 and npm 11, 2026-11.
const MISSING: &[(&str, &str)] = &[
    ("No module named ", ""),
    ("can't open file '", "'"),
    ("can't find '__main__' module in '", "'"),
    ("cannot open ", ": "),
    ("Can't open perl script \"", "\""),
    ("No rule to make target '", "'"),
    ("No rule to make target `", "'"),
    ("no such command: `", "`"),
    ("no such subcommand: `", "`"),
    ("Cannot find module '", "'"),
    ("Missing script: \"", "\""),
];

/// Returns the line by which a program says that what its command names is not there: a module, a script, a target, another
/// program. Where a test was counted, it was.
fn missing(argv: &[String], evidence: &Evidence) -> Option<String> {
    if evidence.counts.is_some() || evidence.exit_code == Some(0) {
        return None;
    }
    let words: Vec<&str> = argv.iter().skip(1).map(|word| word.trim_start_matches("./")).collect();
    // Some name it by the whole path.
    let is_word = |found: &str| {
        words.iter().any(|word| {
            let above = found.strip_suffix(word).filter(|_| !word.is_empty());
            above.is_some_and(|above| above.is_empty() || above.ends_with('/'))
        })
    };
    let names = |line: &&str| {
        MISSING.iter().any(|(before, behind)| {
            let Some((_, rest)) = line.split_once(before) else { return false };
            let found = match behind.is_empty() {
                // A package without a part that can be run is named with that part.
                true => rest.split([';', ' ']).next().unwrap_or(rest),
                false => rest.split_once(behind).map_or("", |(found, _)| found),
            };
            is_word(found.strip_suffix(".__main__").unwrap_or(found))
        })
    };
    evidence.excerpt.lines().map(str::trim).find(names).map(one_line)
}

/// What was found after one attempt.
struct Round {
    number: u32,
    passed: bool,
    state: Option<BlobHash>,
}

/// Holds what a suite said against what it said before the first edit.
fn held(
    now: &Verdict,
    before: Option<&Evidence>,
    compare: Compare,
    is_read: bool,
) -> (bool, String) {
    let counts = now.evidence.counts;
    let known = before.and_then(|before| before.counts);
    if now.passed {
        if let (Some(now), Some(before)) = (counts, known)
            && now.run < before.run
        {
            let noun = if now.run == 1 { "test" } else { "tests" };
            let (now, before) = (now.run, before.run);
            let reason = format!(
                "{now} {noun} ran, and {before} did before the first edit: a test that is gone proves nothing"
            );
            return (false, reason);
        }
        return (true, now.reason.clone());
    }
    // What did not run has no test that failed, whatever failed before.
    let Some(counts) = counts.filter(|counts| counts.failed > 0) else {
        return match is_read {
            true => (false, format!("the suite cannot run: {}", now.reason)),
            false => (false, now.reason.clone()),
        };
    };
    let new = new_failures(counts, now.evidence.failing(), known, before);
    // What did not run before has no failure that could go on.
    let may_fail = compare == Compare::New && known.is_some();
    match new {
        New::Named(names) if names.is_empty() && may_fail => {
            let all = counts.failed;
            (true, format!("no new failure: {all} of {} tests fail as before", counts.run))
        }
        New::Counted(0) if may_fail => {
            (true, format!("no more failures than before: {} of {}", counts.failed, counts.run))
        }
        New::Named(names) if !names.is_empty() => {
            let told = told(&names);
            let verb = if names.len() == 1 { "passes" } else { "pass" };
            let reason = format!(
                "a regression: {told} did not fail before the first edit and no longer {verb} ({})",
                now.reason
            );
            (false, reason)
        }
        New::Counted(more) if more > 0 => (
            false,
            format!("a regression: {more} more fail than before the first edit ({})", now.reason),
        ),
        _ if before.is_some() => (false, format!("{}, as before the first edit", now.reason)),
        _ => (false, now.reason.clone()),
    }
}

/// What fails now and did not before.
enum New {
    /// By name.
    Named(Vec<String>),
    /// By number alone, where the output does not name each.
    Counted(u64),
}

fn new_failures(
    counts: Counts,
    failing: &[String],
    known: Option<Counts>,
    before: Option<&Evidence>,
) -> New {
    let is_named = |counts: Counts, failing: &[String]| failing.len() as u64 == counts.failed;
    // A suite that did not run before has no test that failed then.
    let empty = (Counts::default(), &[][..]);
    let then = before.map_or(empty, |it| (known.unwrap_or_default(), it.failing()));
    if is_named(counts, failing) && is_named(then.0, then.1) {
        let then: BTreeSet<&String> = then.1.iter().collect();
        let new = failing.iter().filter(|name| !then.contains(name));
        return match before {
            // Without a look before, nothing is known to be new.
            None => New::Counted(0),
            Some(_) if known.is_none() => New::Counted(0),
            Some(_) => New::Named(new.cloned().collect()),
        };
    }
    match known {
        Some(known) => New::Counted(counts.failed.saturating_sub(known.failed)),
        None => New::Counted(0),
    }
}

/// Names some tests.
fn told(names: &[String]) -> String {
    let some = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED).filter(|more| *more > 0) {
        Some(more) => format!("{some} and {more} more"),
        None => some,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(run: u64, failing: &[&str]) -> Evidence {
        let failed = failing.len() as u64;
        let failing = failing.iter().map(|name| (*name).to_owned()).collect();
        let counts = Some(Counts { run, failed, skipped: 0 });
        let known = Some(Box::new(Known { failing, state: None }));
        Evidence { counts, known, ..Evidence::default() }
    }

    fn said(evidence: Evidence) -> Verdict {
        let failed = evidence.counts.map_or(1, |counts| counts.failed);
        let reason = format!("{failed} failed");
        Verdict { evidence, ..Verdict::bare("suite", failed == 0, reason) }
    }

    fn judge(now: Evidence, before: Option<Evidence>, compare: Compare) -> (bool, String) {
        held(&said(now), before.as_ref(), compare, true)
    }

    #[test]
    fn behaviour_54_a_new_failure_is_a_regression_whatever_failed_before() {
        let before = || Some(evidence(3, &["a", "b"]));

        let same = judge(evidence(3, &["a", "b"]), before(), Compare::New);
        let new = judge(evidence(3, &["a", "c"]), before(), Compare::New);
        let green = judge(evidence(3, &[]), before(), Compare::All);
        let rest = judge(evidence(3, &["a"]), before(), Compare::All);

        assert_eq!(same, (true, "no new failure: 2 of 3 tests fail as before".to_owned()));
        let told =
            "a regression: c did not fail before the first edit and no longer passes (2 failed)";
        assert_eq!(new, (false, told.to_owned()));
        assert!(green.0);
        assert_eq!(rest, (false, "1 failed, as before the first edit".to_owned()));
    }

    #[test]
    fn behaviour_54_a_suite_that_cannot_run_is_never_green() {
        let broken = Evidence::default;
        for compare in [Compare::All, Compare::New] {
            for before in [None, Some(broken()), Some(evidence(3, &["a"]))] {
                let (passed, reason) = judge(broken(), before, compare);
                assert!(!passed && reason.starts_with("the suite cannot run"), "{reason}");
            }
        }
        // What failed to run before hides no failure now.
        for compare in [Compare::All, Compare::New] {
            assert!(!judge(evidence(3, &["a"]), Some(broken()), compare).0);
        }
    }

    #[test]
    fn a_runner_that_finds_nothing_to_run_is_known_by_what_it_says_of_its_own_words() {
        let found = |argv: &str, excerpt: &str| {
            let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
            let excerpt = format!("first\n{excerpt}\nlast\n");
            missing(&argv, &Evidence { exit_code: Some(1), excerpt, ..Evidence::default() })
        };
        for (argv, line) in [
            ("python3 -m pytest -q", "/usr/bin/python3: No module named pytest"),
            (
                "python3 -m tests",
                "python3: No module named tests.__main__; 'tests' is a package and cannot be directly executed",
            ),
            (
                "python3 ./run.py",
                "python3: can't open file '/w/run.py': [Errno 2] No such file or directory",
            ),
            ("sh test.sh", "sh: 0: cannot open test.sh: No such file"),
            ("make check", "make: *** No rule to make target 'check'.  Stop."),
            ("cargo nextest run", "error: no such command: `nextest`"),
            ("node test/all.js", "Error: Cannot find module '/w/test/all.js'"),
            ("npm test", "npm error Missing script: \"test\""),
        ] {
            assert_eq!(found(argv, line).as_deref(), Some(line), "{argv}");
        }
        // What the work itself lacks is the work's to mend.
        for (argv, line) in [
            ("python3 -m pytest", "ModuleNotFoundError: No module named 'calc'"),
            ("python3 -m pytest", "E   ModuleNotFoundError: No module named 'pytest_more'"),
            ("node test/all.js", "Error: Cannot find module './sum.js'"),
            ("make check", "make: *** No rule to make target 'sum.o', needed by 'check'.  Stop."),
            ("pytest tests", "ERROR: file or directory not found: tests"),
        ] {
            assert_eq!(found(argv, line), None, "{argv}");
        }
        let line = "python3: No module named pytest".to_owned();
        let argv = ["python3".to_owned(), "-m".to_owned(), "pytest".to_owned()];
        let ran = |evidence| Evidence { excerpt: line.clone(), ..evidence };
        assert_eq!(missing(&argv, &ran(evidence(1, &["a"]))), None);
        assert_eq!(missing(&argv, &ran(Evidence { exit_code: Some(0), ..<_>::default() })), None);
    }

    #[test]
    fn tests_that_are_gone_do_not_make_a_suite_green() {
        let (passed, reason) = judge(evidence(2, &[]), Some(evidence(3, &["a"])), Compare::All);

        assert!(!passed && reason.starts_with("2 tests ran, and 3 did"), "{reason}");
    }

    #[test]
    fn without_names_failures_are_compared_by_number() {
        let counted = |failed| {
            let counts = Some(Counts { run: 9, failed, skipped: 0 });
            Evidence { counts, ..Evidence::default() }
        };

        assert!(judge(counted(2), Some(counted(2)), Compare::New).0);
        let (passed, reason) = judge(counted(3), Some(counted(2)), Compare::New);
        assert!(!passed && reason.contains("1 more fail than before"), "{reason}");
    }
}
