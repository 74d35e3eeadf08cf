//! What kind a failure is decides what happens next.

use super::*;

/// Lets the only attempt at a task fail so, and says what follows.
fn follows(why: Escalation, retries: Retries) -> String {
    let mut tree = Tree::begin(TaskSpec { retries, ..leaf("only") }, 1);
    let task = tree.named("only");
    tree.take("only");
    tree.input(Input::Ended { task, end: BodyEnd::Failed(why) }).unwrap();
    match tree.under_way.pop() {
        Some((_, Command::Attempt { number, .. })) => format!("attempt {number}"),
        Some((_, Command::Rest { after, .. })) => format!("rests {after}"),
        Some((_, other)) => format!("{other:?}"),
        None => tree.ending("only"),
    }
}

#[test]
fn each_kind_of_failure_decides_what_happens_next() {
    let retries = Retries { max: 1, outage: Some(Span::from_secs(10)), ..Retries::default() };
    let detail = || "why".to_owned();
    let after = Span::from_secs(1);
    let child = name("child");
    let kinds = [
        Escalation::Unreachable { detail: detail() },
        Escalation::BodyFailed { detail: detail() },
        Escalation::Stuck { pattern: None, detail: detail() },
        Escalation::BudgetExhausted { detail: detail() },
        Escalation::TimedOut { after },
        Escalation::Refused { detail: detail() },
        Escalation::ProviderFailed { detail: detail() },
        Escalation::CannotBegin { detail: detail() },
        Escalation::CheckNotRun { check: "suite".to_owned(), detail: detail() },
        Escalation::ChildFailed { child },
        Escalation::OutcomeUnknown { detail: detail() },
    ];

    let told = kinds.map(|why| {
        let class = serde_json::to_value(why.class()).unwrap();
        format!("{}: {}", class.as_str().unwrap(), follows(why, retries))
    });

    assert_eq!(
        told,
        [
            "passing: rests 250ms",
            "work: attempt 2",
            "model: stuck: why",
            "budget: budget exhausted: why",
            "budget: timed out after 1s",
            "policy: why",
            "setup: model call failed: why",
            "setup: why",
            "setup: check \"suite\" could not be run: why; no work mends that: install what is missing, or set the check right",
            "child: task child failed",
            "unknown: outcome unknown: why",
        ]
    );
}

#[test]
fn an_outage_is_waited_for_no_longer_than_the_task_says_and_uses_no_attempt_up() {
    let retries = Retries { max: 1, outage: Some(Span::from_secs(1)), ..Retries::default() };
    let mut tree = Tree::begin(TaskSpec { retries, ..leaf("only") }, 1);
    let task = tree.named("only");
    let out = |tree: &mut Tree| {
        tree.take("only");
        let detail = "refused the connection".to_owned();
        let end = BodyEnd::Failed(Escalation::Unreachable { detail });
        tree.input(Input::Ended { task, end }).unwrap();
        assert_eq!(tree.state.slots_used(), 0, "who rests takes no place of the width");
    };

    for number in [2, 3] {
        out(&mut tree);
        let (_, rest) = tree.under_way.pop().unwrap();
        assert!(matches!(rest, Command::Rest { .. }), "{rest:?}");
        tree.input(Input::Rested { task }).unwrap();
        assert_eq!(tree.state.attempts(task), number);
        assert!(tree.input(Input::Rested { task }).is_err());
    }
    tree.fail("only");
    assert_eq!(tree.state.attempts(task), 4);
    out(&mut tree);

    // A quarter and a half of a second are over; another whole one would be too long.
    assert_eq!(tree.ending("only"), "model call failed: refused the connection");
}

#[test]
fn what_has_come_into_the_workspace_of_the_run_is_done_whatever_was_to_end_it_meanwhile() {
    let ends = |kind: CheckKind| {
        let check = CheckSpec::new("last".to_owned(), kind, Span::from_secs(1));
        let mut tree = Tree::begin(TaskSpec { postchecks: vec![check], ..leaf("only") }, 1);
        tree.pass("only");
        let task = tree.named("only");
        let why = Escalation::TimedOut { after: Span::from_secs(1) };
        let mut out = Vec::new();
        decide(&mut tree.state, Input::TimedOut { task, why }, &mut out).unwrap();
        let passed = Input::Checked { task, phase: Phase::Exit, failed: None };
        decide(&mut tree.state, passed, &mut out).unwrap();
        tree.ending("only")
    };

    assert_eq!(ends(CheckKind::Merged), "completed");
    assert_eq!(ends(CheckKind::Diff(DiffCheck::default())), "timed out after 1s");
}
