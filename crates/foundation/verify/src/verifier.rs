//! A check, and a phase of checks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use formwork_protocols::{
    Blob, Cancel, Scrub, Span, Symbols,
    check::{CheckKind, CheckSpec, Evidence, Issue, Verdict},
};
use formwork_sandbox::{Protection, Sandbox};

use crate::{
    Baseline, Changes, Error, changes,
    command::{self, Ran, Shop},
    contract,
    exports::{self, Held},
};

/// Runs checks over one workspace. Checks may overlap.
#[derive(Clone)]
pub struct Verifier {
    sandbox: Arc<Sandbox>,
    root: PathBuf,
    protection: Protection,
    scrub: Arc<dyn Scrub>,
    symbols: Option<Arc<dyn Symbols>>,
}

/// What a task stands on: how it found its workspace, and what it made of it.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// What must stay as it was.
    pub baseline: &'a Baseline,
    /// What was changed since.
    pub changes: &'a dyn Changes,
}

/// A check that has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What it decided, and on what grounds.
    pub verdict: Verdict,
    /// The whole output that the evidence names by its hash, scrubbed, to be kept with it.
    pub output: Option<Blob>,
    /// The outputs that its steps name, likewise.
    pub outputs: Vec<Blob>,
    /// Where its commands were connected to, as `host:port`: nobody vouches for what came from there.
    pub reached: Vec<String>,
}

/// What a check decided, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) passed: bool,
    pub(crate) reason: String,
    pub(crate) issues: Vec<Issue>,
    pub(crate) evidence: Evidence,
    /// Whether it could not be run at all, through no fault of the work.
    pub(crate) not_run: bool,
}

impl Decision {
    pub(crate) fn pass(reason: impl Into<String>) -> Self {
        Self {
            passed: true,
            reason: reason.into(),
            issues: Vec::new(),
            evidence: Evidence::default(),
            not_run: false,
        }
    }

    pub(crate) fn fail(reason: impl Into<String>) -> Self {
        Self { passed: false, ..Self::pass(reason) }
    }

    pub(crate) fn not_run(reason: impl Into<String>) -> Self {
        Self { not_run: true, ..Self::fail(reason) }
    }
}

impl Verifier {
    /// Runs checks over the workspace at `root`: commands in `sandbox` under `protection`, their outputs
    /// scrubbed before anybody sees them.
    pub fn new(
        sandbox: Arc<Sandbox>,
        root: impl Into<PathBuf>,
        protection: Protection,
        scrub: Arc<dyn Scrub>,
    ) -> Self {
        Self { sandbox, root: root.into(), protection, scrub, symbols: None }
    }

    /// Gives it somebody who knows what source code declares, without whom it cannot judge that.
    pub fn with_symbols(self, symbols: Arc<dyn Symbols>) -> Self {
        Self { symbols: Some(symbols), ..self }
    }

    /// Returns the root of the workspace, as [`Baseline::take`] needs it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Runs one check. Whatever keeps it from passing is its verdict, and whatever keeps it from being run.
    ///
    /// When `cancel` is raised, what it started is ended first.
    ///
    /// # Errors
    /// [`Error::Cancelled`] and no other: then there is no verdict.
    pub async fn check(
        &self,
        spec: &CheckSpec,
        ground: Ground<'_>,
        cancel: &Cancel,
    ) -> Result<Checked, Error> {
        let begun = Instant::now();
        let cancelled = || Error::Cancelled { check: spec.name.clone() };
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        if let Some(reason) = ground.baseline.changed_script(&self.root, &spec.kind) {
            return Ok(Checked {
                verdict: Verdict::bare(&*spec.name, false, reason),
                output: None,
                outputs: Vec::new(),
                reached: Vec::new(),
            });
        }
        let (mut steps, mut outputs, mut reached) = (Vec::new(), Vec::new(), Vec::new());
        let (mut decision, output) = match &spec.kind {
            CheckKind::Command(check) => {
                let Self { sandbox, root, protection, scrub, .. } = self;
                let shop = Shop { sandbox, root, protection, scrub };
                let ran = command::run(&shop, check, spec.timeout, cancel).await;
                let Ran { decision, output, reached: by_command } = ran.ok_or_else(cancelled)?;
                reached = by_command;
                (decision, output)
            }
            CheckKind::Contract(contract) => {
                let Self { sandbox, root, protection, scrub, .. } = self;
                let shop = Shop { sandbox, root, protection, scrub };
                let held =
                    contract::hold(&shop, contract, ground.changes, spec.timeout, cancel).await;
                let held = held.ok_or_else(cancelled)?;
                (steps, outputs, reached) = (held.steps, held.outputs, held.reached);
                (held.decision, None)
            }
            CheckKind::Unchanged(check) => {
                let check = check.clone();
                (self.compare(ground, move |taken, root| taken.judge(root, &check)).await, None)
            }
            CheckKind::NoNewDependencies => {
                (self.compare(ground, Baseline::judge_dependencies).await, None)
            }
            CheckKind::Diff(_) | CheckKind::NewFiles(_) => {
                let changes = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return Err(cancelled()),
                    changes = ground.changes.since_entry() => changes,
                };
                let decision = match &spec.kind {
                    CheckKind::Diff(check) => changes::judge(check, changes),
                    CheckKind::NewFiles(check) => changes::judge_new(check, changes),
                    _ => Decision::fail("this check compares no changes"),
                };
                (decision, None)
            }
            CheckKind::NoRemovedExports | CheckKind::NoChangedSignatures => {
                let held = match &spec.kind {
                    CheckKind::NoRemovedExports => Held::There,
                    _ => Held::Alike,
                };
                let judged = async {
                    let Some(symbols) = &self.symbols else {
                        return Decision::not_run("nobody here knows what source code declares");
                    };
                    match exports::read(ground.changes, symbols).await {
                        Ok(read) => exports::judge(held, read),
                        Err(reason) => {
                            Decision::fail(format!("cannot tell what was changed: {reason}"))
                        }
                    }
                };
                let decision = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return Err(cancelled()),
                    decision = judged => decision,
                };
                (decision, None)
            }
            CheckKind::Agent(_) | CheckKind::Native(_) | CheckKind::Workflow(_) => {
                (Decision::not_run("such a check needs more than a workspace to run"), None)
            }
            _ => (Decision::not_run("this version does not know such a check"), None),
        };
        if decision.evidence.elapsed == Span::ZERO {
            decision.evidence.elapsed = Span::from(begun.elapsed());
        }
        let Decision { passed, reason, issues, evidence, not_run } = decision;
        let bare = Verdict::bare(&*spec.name, passed, reason);
        let verdict = Verdict { issues, evidence, steps, not_run, ..bare };
        Ok(Checked { verdict, output, outputs, reached })
    }

    /// Compares the workspace with its baseline, on a thread where blocking is fine.
    async fn compare(
        &self,
        ground: Ground<'_>,
        judge: impl FnOnce(&Baseline, &Path) -> Decision + Send + 'static,
    ) -> Decision {
        let (baseline, root) = (ground.baseline.clone(), self.root.clone());
        let judged = tokio::task::spawn_blocking(move || judge(&baseline, &root)).await;
        judged.unwrap_or_else(|_| Decision::fail("the files could not be read"))
    }

    /// Runs checks in order until one fails. Returns those that decided: all passed, but for the last.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when `cancel` was raised before the last one decided.
    pub async fn run_phase(
        &self,
        checks: &[CheckSpec],
        ground: Ground<'_>,
        cancel: &Cancel,
    ) -> Result<Vec<Checked>, Error> {
        let mut decided = Vec::with_capacity(checks.len());
        for spec in checks {
            let checked = self.check(spec, ground, cancel).await?;
            let passed = checked.verdict.passed;
            decided.push(checked);
            if !passed {
                break;
            }
        }
        Ok(decided)
    }
}
