//! A check by a workflow: its tasks are done below the task that is checked, and how they end is the verdict.

use std::collections::BTreeSet;

use formwork_protocols::{
    Body, Cancel, Ending, Escalation, PermissionMode, TaskId, TaskName, TaskOutcome, TaskSpec,
    check::{Evidence, Issue, Severity, Verdict, WorkflowCheck},
    spec::{CheckPlace, Made},
    store::TaskRow,
    text,
};
use formwork_scheduler::CheckJob;

use crate::{Error, executor::Workshop};

/// How many bytes of what its tasks found are kept with the verdict.
const EXCERPT_BYTES: usize = 8 * 1024;

/// How many failed tasks are told of one by one.
const MAX_ISSUES: usize = 20;

/// How long the name of a task may be.
const NAME_BYTES: usize = 64;

impl Workshop {
    /// Has a workflow decide.
    pub(super) async fn by_workflow(
        &self,
        job: &CheckJob,
        check: &WorkflowCheck,
        cancel: &Cancel,
    ) -> Result<Verdict, Error> {
        let bare = |passed, reason| Verdict::bare(&*job.check.name, passed, reason);
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(bare(false, "it was broken off".to_owned())),
            ended = job.control.probe(job.task, tree(job, check)) => ended,
        };
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(reason) => {
                let reason = format!("workflow {} cannot be run: {reason}", check.workflow);
                return Ok(Verdict::not_run(&*job.check.name, reason));
            }
        };
        let passed = outcome.ending == Ending::Completed;
        let claim = outcome.claim.as_ref().map_or("", |claim| claim.summary.as_str());
        let reason = match passed {
            true => format!("workflow {} completed: {claim}", check.workflow),
            false => format!("workflow {}: {}", check.workflow, outcome.ending),
        };
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let evidence =
            Evidence { elapsed: outcome.elapsed, task: Some(outcome.task), ..Evidence::default() };
        let verdict = Verdict { evidence, ..bare(passed, reason) };
        if passed {
            return Ok(verdict);
        }
        self.found_below(job, &outcome, verdict).await
    }

    /// Adds what the tasks found that failed.
    async fn found_below(
        &self,
        job: &CheckJob,
        outcome: &TaskOutcome,
        mut verdict: Verdict,
    ) -> Result<Verdict, Error> {
        let rows = self.store.tasks(job.run).await?;
        let mut below: BTreeSet<TaskId> = [outcome.task].into();
        // A task is created after the one that it is below.
        for row in &rows {
            if row.parent.is_some_and(|parent| below.contains(&parent)) {
                below.insert(row.task);
            }
        }
        let checks = self.store.checks(job.run).await?;
        let failed = rows.iter().filter(|row| below.contains(&row.task) && is_cause(row));
        let mut excerpt = String::new();
        for row in failed.take(MAX_ISSUES) {
            let Some(ending) = &row.ending else { continue };
            let told = format!("task {}: {ending}", row.name);
            verdict.issues.push(Issue::new(Severity::Major, told));
            // What could not be run has said nothing of the work.
            verdict.not_run |= matches!(
                ending,
                Ending::Escalated {
                    why: Escalation::CheckNotRun { .. } | Escalation::CannotBegin { .. }
                }
            );
            // Nor has whoever could not be asked.
            verdict.unjudged |= matches!(
                ending,
                Ending::Escalated {
                    why: Escalation::ProviderFailed { .. }
                        | Escalation::Unreachable { .. }
                        | Escalation::Unjudged { .. }
                }
            );
            let said = checks.iter().rfind(|check| check.task == row.task && !check.verdict.passed);
            if let Some(said) = said {
                excerpt.push_str(&said.verdict.for_model());
            }
        }
        verdict.evidence.excerpt = text::head(&excerpt, EXCERPT_BYTES).to_owned();
        Ok(verdict)
    }
}

/// Tells whether a task failed by itself, and not because another one did.
fn is_cause(row: &TaskRow) -> bool {
    match &row.ending {
        Some(Ending::PrecheckFailed { .. }) => true,
        Some(Ending::Escalated { why }) => !matches!(why, Escalation::ChildFailed { .. }),
        _ => false,
    }
}

/// Makes the tree that decides: its agents only look, and its commands write no more than the task may.
fn tree(job: &CheckJob, check: &WorkflowCheck) -> TaskSpec {
    let own = job.spec.made.as_deref().cloned().unwrap_or_default();
    let mut bound = Made { mode: Some(PermissionMode::Ask), decides: None, ..own };
    bound.within.extend(job.spec.write_paths.clone());
    let mut tasks = check.tasks.clone();
    for task in &mut tasks {
        bind(task, &bound, &job.spec.protected_paths);
    }
    let place = CheckPlace { phase: job.phase, index: job.index };
    let made = Made { decides: Some(place), ..bound };
    let body = Body::Subtasks { tasks, on_failure: check.on_failure };
    TaskSpec {
        description: format!("Decides the check {:?}.", job.check.name),
        vars: check.variables.clone(),
        budget: check.budget.clone(),
        timeout: Some(job.check.timeout),
        made: Some(Box::new(made)),
        ..TaskSpec::new(name(job, check), body)
    }
}

/// Binds a task and all below it.
fn bind(task: &mut TaskSpec, bound: &Made, protected: &[String]) {
    task.made = Some(Box::new(bound.clone()));
    for glob in protected {
        if !task.protected_paths.contains(glob) {
            task.protected_paths.push(glob.clone());
        }
    }
    task.body.below_mut().iter_mut().for_each(|task| bind(task, bound, protected));
}

/// Names the tree after the check that it decides.
fn name(job: &CheckJob, check: &WorkflowCheck) -> TaskName {
    let number = job.index.saturating_add(1);
    let whole = format!("{}-check-{number}-{}", job.phase.as_str(), check.workflow);
    TaskName::parse(text::head(&whole, NAME_BYTES))
        .expect("words and the name of a workflow, with dashes between them, are a name")
}
