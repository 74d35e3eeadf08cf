//! Checks as they are written, and as they are run.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use formwork_protocols::{
    AgentName, Body, Budget, Span, WorkflowName,
    check::{
        AgentCheck, CheckKind, CheckSpec, CommandCheck, Expect, Fix, NativeCheck, NewFilesCheck,
        Parser, Phase, PlantedFailure, Severity, SuiteCheck, UnchangedCheck, WorkflowCheck,
    },
    document::{Diagnostic, Document, nearest_hint},
    text,
};
use globset::Glob;

use super::{
    Known,
    document::{CheckDocument, Constraint, ControlDocument, FixDocument},
    plan::{Plan, WrittenWorkflow},
};

/// How long a check may take unless it says otherwise: a cold build and a long suite fit.
pub(super) const TIMEOUT: Span = Span::from_secs(600);

/// What a check is read with.
pub(super) struct Around<'a> {
    pub(super) document: &'a Document,
    pub(super) known: &'a Known,
    pub(super) phase: Phase,
    /// The variables that the check sets by what the workflow does not say itself.
    pub(super) outside: BTreeSet<String>,
}

/// Turns a check into what is run, or says what is wrong with it. Its prompts are for the caller to read.
pub(super) fn check(
    around: &Around<'_>,
    place: &str,
    written: &CheckDocument,
    faults: &mut Vec<Diagnostic>,
) -> Option<CheckSpec> {
    let kinds = [
        ("command", written.command.is_some()),
        ("agent", written.agent.is_some()),
        ("workflow", written.workflow.is_some()),
        ("suite", written.suite.is_some()),
        ("progress", written.progress),
        ("native", written.native.is_some()),
        ("unchanged", written.unchanged.is_some()),
        ("diff", written.diff.is_some()),
        ("constraint", written.constraint.is_some()),
        ("no_new_files_outside", written.no_new_files_outside.is_some()),
    ];
    let given: Vec<&str> =
        kinds.iter().filter(|(_, given)| *given).map(|(kind, _)| *kind).collect();
    if given.len() != 1 {
        let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        let message = format!(
            "a check is exactly one of command, agent, workflow, suite, progress, native, unchanged, diff, constraint and \
             no_new_files_outside; found {found}"
        );
        faults.push(around.document.diagnostic(place, message));
        return None;
    }
    belongs(around, place, written, faults);
    let (kind, called) = kind(around, place, written, faults)?;
    let fix = written.fix.as_ref().and_then(|fix| self::fix(around, place, fix, faults));
    let control = control(around, place, written, &kind, faults);
    Some(CheckSpec {
        fix,
        control,
        max_rounds: written.max_rounds,
        budget: written.budget.clone().unwrap_or_default(),
        ..CheckSpec::new(
            written.name.clone().unwrap_or(called),
            kind,
            written.timeout.unwrap_or(TIMEOUT),
        )
    })
}

/// Says which keys stand beside a kind of check that has no use for them.
fn belongs(
    around: &Around<'_>,
    place: &str,
    written: &CheckDocument,
    faults: &mut Vec<Diagnostic>,
) {
    let (command, agent) = (written.command.is_some(), written.agent.is_some());
    let tests = written.constraint == Some(Constraint::TestsPass)
        || written.constraint == Some(Constraint::LintClean);
    let workflow = written.workflow.is_some();
    let is_mended = written.fix.as_ref().is_some_and(|fix| fix.agent.is_some());
    let asks = agent || workflow || is_mended;
    let is_exit = around.phase == Phase::Exit;
    let compares = written.no_new_files_outside.is_some()
        || written.constraint.is_some_and(Constraint::compares);
    let misplaced = [
        (
            "parse",
            written.parse.is_some() && !command && written.suite.is_none(),
            "belongs to a check by command or a suite",
        ),
        (
            "compare",
            written.compare.is_some() && (written.suite.is_none() || !is_exit),
            "belongs to a suite that is an exit check",
        ),
        (
            "progress",
            written.progress && !is_exit,
            "compares rounds with each other: it belongs to an exit check",
        ),
        ("expect", written.expect != Expect::Pass && !command, "belongs to a check by command"),
        ("prompt", written.prompt.is_some() && !agent, "belongs to a check by an agent"),
        ("block", written.block.is_some() && !agent, "belongs to a check by an agent"),
        ("anchored", written.anchored && !agent, "belongs to a check by an agent"),
        ("looks_at", written.looks_at.is_some() && !agent, "belongs to a check by an agent"),
        (
            "anchored",
            written.anchored && agent && !is_exit && written.looks_at.is_none(),
            "needs something that was changed: before a task began there is nothing",
        ),
        (
            "budget",
            written.budget.is_some() && !asks,
            "belongs to a check that an agent or a workflow makes or an agent mends",
        ),
        (
            "budget",
            written.budget.is_some() && workflow && is_mended,
            "of a check by a workflow does not bound the agent that mends it: give one to the workflow itself",
        ),
        ("vars", written.vars.is_some() && !workflow, "belongs to a check by a workflow"),
        (
            "budget",
            written.budget.as_ref().is_some_and(bounds_more),
            "of a check bounds usd, tokens, rounds and tool_calls; its time is its timeout, and it has no tree",
        ),
        (
            "control",
            written.control.is_some() && !(command || tests),
            "belongs to a check by command",
        ),
        (
            "control",
            written.control.is_some() && !is_exit,
            "belongs to an exit check: before a task began there is nothing to take back",
        ),
        ("max_rounds", written.max_rounds.is_some() && !is_exit, "belongs to an exit check"),
        (
            "constraint",
            compares && written.constraint.is_some() && !is_exit,
            "compares with how the task began: it belongs to an exit check",
        ),
        (
            "no_new_files_outside",
            compares && written.constraint.is_none() && !is_exit,
            "compares with how the task began: it belongs to an exit check",
        ),
    ];
    for (key, is_wrong, message) in misplaced {
        if is_wrong {
            let message = format!("{key} {message}");
            faults.push(around.document.diagnostic(&format!("{place}/{key}"), message));
        }
    }
}

/// Reads what a check does, and what it is called unless somebody names it.
fn kind(
    around: &Around<'_>,
    place: &str,
    written: &CheckDocument,
    faults: &mut Vec<Diagnostic>,
) -> Option<(CheckKind, String)> {
    let document = around.document;
    if let Some(argv) = &written.command {
        argv_is_sound(document, &format!("{place}/command"), argv, faults).then_some(())?;
        let check =
            CommandCheck { argv: argv.clone(), parse: written.parse, expect: written.expect };
        return Some((CheckKind::Command(check), argv.join(" ")));
    }
    if let Some(agent) = &written.agent {
        agent_is_known(around, &format!("{place}/agent"), agent, faults);
        let Some(prompt) = written.prompt.as_ref().filter(|text| !text.trim().is_empty()) else {
            faults.push(document.diagnostic(place, "an agent needs a prompt"));
            return None;
        };
        let block = written.block.unwrap_or(Severity::Major);
        let check = AgentCheck {
            agent: agent.clone(),
            prompt: prompt.clone(),
            block,
            anchored: written.anchored,
            looks_at: written.looks_at.clone(),
        };
        return Some((CheckKind::Agent(check), format!("review by {agent}")));
    }
    if let Some(argv) = &written.suite {
        argv_is_sound(document, &format!("{place}/suite"), argv, faults).then_some(())?;
        let suite = SuiteCheck {
            argv: argv.clone(),
            parse: written.parse.or_else(|| Parser::of(argv)),
            compare: written.compare.unwrap_or_default(),
        };
        return Some((CheckKind::Suite(suite), format!("suite {}", argv.join(" "))));
    }
    if written.progress {
        return Some((CheckKind::Progress, "progress".to_owned()));
    }
    if let Some(name) = &written.workflow {
        return Some((workflow(around, place, name, written, faults)?, format!("workflow {name}")));
    }
    if let Some(function) = &written.native {
        if !around.known.native_checks.contains(function) {
            let names = around.known.native_checks.iter().map(String::as_str);
            let hint = nearest_hint(function, names);
            let message = format!("there is no native check {function}");
            let fault = document.diagnostic(&format!("{place}/native"), message);
            faults.push(Diagnostic { hint, ..fault });
        }
        let check = NativeCheck { function: function.clone() };
        return Some((CheckKind::Native(check), function.clone()));
    }
    if let Some(paths) = &written.unchanged {
        some_globs(document, &format!("{place}/unchanged"), "unchanged", paths, faults);
        let called = format!("unchanged {}", paths.join(" "));
        return Some((CheckKind::Unchanged(UnchangedCheck { paths: paths.clone() }), called));
    }
    if let Some(paths) = &written.no_new_files_outside {
        let place = format!("{place}/no_new_files_outside");
        some_globs(document, &place, "no_new_files_outside", paths, faults);
        let called = format!("no new files outside {}", paths.join(" "));
        return Some((CheckKind::NewFiles(NewFilesCheck { within: paths.clone() }), called));
    }
    if let Some(diff) = &written.diff {
        return Some((CheckKind::Diff(diff.clone()), "diff".to_owned()));
    }
    let (found, called, example) = match written.constraint? {
        Constraint::NoNewDependencies => {
            return Some((CheckKind::NoNewDependencies, "no new dependencies".to_owned()));
        }
        Constraint::NoRemovedExports => {
            return Some((CheckKind::NoRemovedExports, "no removed exports".to_owned()));
        }
        Constraint::NoChangedSignatures => {
            return Some((CheckKind::NoChangedSignatures, "no changed signatures".to_owned()));
        }
        Constraint::TestsPass => {
            (&around.known.project.tests, "tests pass", "[\"cargo\", \"test\"]")
        }
        Constraint::LintClean => {
            (&around.known.project.lint, "lint clean", "[\"cargo\", \"clippy\"]")
        }
    };
    let Some(command) = found else {
        let message = "no command for it is known by the manifests at the root of the workspace";
        let hint = Some(format!("name one, as in command = {example}"));
        let fault = document.diagnostic(&format!("{place}/constraint"), message);
        faults.push(Diagnostic { hint, ..fault });
        return None;
    };
    Some((CheckKind::Command(command.clone()), called.to_owned()))
}

/// How many workflows may decide one check, all the way down: their tasks are all made beforehand.
const MOST_WORKFLOWS: usize = 32;

/// Reads the workflow that a check names. What is wrong with it is told at its own place.
fn workflow(
    around: &Around<'_>,
    place: &str,
    name: &WorkflowName,
    written: &CheckDocument,
    faults: &mut Vec<Diagnostic>,
) -> Option<CheckKind> {
    let (document, known) = (around.document, around.known);
    let place = format!("{place}/workflow");
    let Some(WrittenWorkflow { file, text }) = known.workflows.get(name) else {
        let names = known.workflows.keys().map(WorkflowName::as_str);
        let hint = nearest_hint(name.as_str(), names);
        let fault = document.diagnostic(&place, format!("there is no workflow {name}"));
        faults.push(Diagnostic { hint, ..fault });
        return None;
    };
    if known.within.contains(name) {
        let way: Vec<&str> = known.within.iter().chain([name]).map(WorkflowName::as_str).collect();
        let message = format!("workflows check each other in a circle: {}", way.join(" → "));
        faults.push(document.diagnostic(&place, message));
        return None;
    }
    // Each that names two doubles what is read below it.
    let read = match known.within.is_empty() {
        true => Arc::default(),
        false => Arc::clone(&known.read),
    };
    if read.fetch_add(1, Ordering::Relaxed) >= MOST_WORKFLOWS {
        let message = format!("a check leads to more than {MOST_WORKFLOWS} workflows");
        faults.push(document.diagnostic(&place, message));
        return None;
    }
    let mut within = known.within.clone();
    within.push(name.clone());
    let outside = around.outside.clone();
    let inner = Known { within, read, outside, ..known.clone() };
    let values = written.vars.clone().unwrap_or_default();
    let plan = match Plan::parse(file, text, &inner, &values) {
        Ok(plan) => plan,
        Err(found) => {
            faults.extend(found);
            return None;
        }
    };
    if let Some((task, check)) = plan.mended() {
        let message = format!(
            "workflow {name} mends what it finds (check {:?} of task {}), and a check only looks",
            check.name, task.name
        );
        let hint = "give the fix to the check that names the workflow".to_owned();
        faults.push(Diagnostic { hint: Some(hint), ..document.diagnostic(&place, message) });
    }
    if let Some(service) = plan.root().services.first() {
        let message = format!(
            "workflow {name} needs service {}, and a check starts none: name it in this workflow",
            service.name
        );
        faults.push(document.diagnostic(&place, message));
    }
    let (budget, variables) = (plan.root().budget.clone(), plan.variables().clone());
    let Body::Subtasks { tasks, on_failure } = plan.root().body.clone() else { return None };
    let workflow = plan.name().clone();
    Some(CheckKind::Workflow(Box::new(WorkflowCheck {
        workflow,
        tasks,
        on_failure,
        variables,
        budget,
    })))
}

fn fix(
    around: &Around<'_>,
    place: &str,
    written: &FixDocument,
    faults: &mut Vec<Diagnostic>,
) -> Option<Fix> {
    let place = format!("{place}/fix");
    let fault = |faults: &mut Vec<Diagnostic>, place: &str, message: &str| {
        faults.push(around.document.diagnostic(place, message));
    };
    match (&written.command, &written.agent) {
        (Some(argv), None) => {
            if written.prompt.is_some() {
                fault(faults, &format!("{place}/prompt"), "a prompt needs an agent");
            }
            let sound = argv_is_sound(around.document, &format!("{place}/command"), argv, faults);
            sound.then(|| Fix::Command { argv: argv.clone() })
        }
        (None, Some(agent)) => {
            let prompt = written.prompt.as_ref().filter(|text| !text.trim().is_empty());
            if prompt.is_none() {
                fault(faults, &place, "an agent needs a prompt");
            }
            agent_is_known(around, &format!("{place}/agent"), agent, faults);
            prompt.map(|prompt| Fix::Agent { agent: agent.clone(), prompt: prompt.clone() })
        }
        _ => {
            fault(faults, &place, "a fix is exactly one of command and agent");
            None
        }
    }
}

fn control(
    around: &Around<'_>,
    place: &str,
    written: &CheckDocument,
    kind: &CheckKind,
    faults: &mut Vec<Diagnostic>,
) -> Option<PlantedFailure> {
    if let (Some(_), CheckKind::Command(CommandCheck { expect: Expect::Fail, .. })) =
        (&written.control, kind)
    {
        let message = "a check that has to fail is its own control";
        faults.push(around.document.diagnostic(&format!("{place}/control"), message));
    }
    Some(PlantedFailure::Revert(match written.control.as_ref()? {
        ControlDocument::Word(_) => Vec::new(),
        ControlDocument::Some { revert } => {
            let place = format!("{place}/control/revert");
            some_globs(around.document, &place, "revert", revert, faults);
            revert.clone()
        }
    }))
}

/// Returns the agents that a check asks for.
pub(super) fn agents(check: &CheckSpec) -> impl Iterator<Item = &AgentName> {
    let judge = match &check.kind {
        CheckKind::Agent(asked) => Some(&asked.agent),
        _ => None,
    };
    let mender = match &check.fix {
        Some(Fix::Agent { agent, .. }) => Some(agent),
        _ => None,
    };
    judge.into_iter().chain(mender)
}

fn agent_is_known(
    around: &Around<'_>,
    place: &str,
    agent: &AgentName,
    faults: &mut Vec<Diagnostic>,
) {
    if !around.known.agents.contains(agent) {
        let names = around.known.agents.iter().map(AgentName::as_str);
        let hint = nearest_hint(agent.as_str(), names);
        let fault = around.document.diagnostic(place, format!("there is no agent {agent}"));
        faults.push(Diagnostic { hint, ..fault });
    }
}

/// Says whether an argument vector names a program.
pub(super) fn argv_is_sound(
    document: &Document,
    place: &str,
    argv: &[String],
    faults: &mut Vec<Diagnostic>,
) -> bool {
    let message = match argv.first() {
        None => "a command names a program, found an empty list",
        Some(program) if program.trim().is_empty() => {
            "a command names a program, found an empty text"
        }
        Some(_) if argv.iter().any(|word| word.contains('\0')) => "an argument cannot hold a NUL",
        Some(_) => return true,
    };
    faults.push(document.diagnostic(place, message));
    false
}

fn some_globs(
    document: &Document,
    place: &str,
    key: &str,
    paths: &[String],
    faults: &mut Vec<Diagnostic>,
) {
    if paths.is_empty() {
        faults.push(document.diagnostic(place, format!("{key} names no path")));
    }
    globs(document, place, paths, faults);
}

/// Says which globs do not parse.
pub(super) fn globs(
    document: &Document,
    place: &str,
    globs: &[String],
    faults: &mut Vec<Diagnostic>,
) {
    for (at, glob) in globs.iter().enumerate() {
        let message = match Glob::new(glob) {
            Err(error) => format!("{glob:?} is not a glob: {}", error.kind()),
            Ok(_) if text::leads_out(glob) => {
                format!("{glob:?} leads out of the workspace: globs begin at its root")
            }
            Ok(_) => continue,
        };
        faults.push(document.diagnostic(&format!("{place}/{at}"), message));
    }
}

/// Tells whether a budget says something that no check heeds.
const fn bounds_more(budget: &Budget) -> bool {
    let Budget {
        usd: _,
        tokens: _,
        rounds: _,
        tool_calls: _,
        wall,
        diff_lines,
        tree,
        on_exhausted,
    } = budget;
    wall.is_some() || diff_lines.is_some() || tree.is_some() || on_exhausted.is_some()
}
