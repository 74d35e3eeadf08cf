//! How a check is decided: where it has to fail first, its runs, and what mends it in between.

mod by_workflow; // What a tree of tasks says of the work.
mod copy; // The workspace as it was, beside the one that is.
mod diff; // A diff as a reviewer is shown it.
mod review; // What an agent says of the work.
mod rounds; // What was before, and what is other since.
mod said; // What it says, read as a verdict.
mod share; // What a check may use of its task's budget.
pub(crate) mod sight; // What there is to look at.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use formwork_codebase::Codebase;
use formwork_protocols::{
    Append, Blob, BlobHash, Cancel, EventBody, OutcomeCode, PermissionMode, Position, StoreError,
    check::{
        CheckKind, CheckSpec, CheckStep, CommandCheck, Expect, Fix, NativeCheck, Phase,
        PlantedFailure, StepKind, Verdict,
    },
    event::{CheckMending, FileChange},
    store::Selection,
};
use formwork_sandbox::Protection;
use formwork_scheduler::CheckJob;
use formwork_verify::{Changes, Checked, Ground, Verifier};
use formwork_write_safety::WriteRules;

use crate::{
    Error, baseline::Began, bounds::Bounds, effects, error::chain, executor::Workshop, reach::Reach,
};

pub(crate) use {review::OnlyThis, share::Shares};

/// Why a fix is not applied that was begun before.
const BROKEN_OFF: &str = "it was broken off when it was applied before, and what of it took effect is unknown: \
    it is not applied again";

impl Workshop {
    /// Decides on a check. Whatever keeps it from being made is its verdict: what the work did is for the work to mend,
    /// and all else nobody can.
    ///
    /// # Errors
    /// What the log could not do, which is no matter of the check.
    pub(crate) async fn decided(
        &self,
        job: &CheckJob,
        cancel: &Cancel,
    ) -> Result<Verdict, StoreError> {
        match Box::pin(self.decide(job, cancel)).await {
            Ok(verdict) => Ok(verdict),
            Err(error) => {
                let error = error.beside_the_log()?;
                let not_run = error.code() != OutcomeCode::Refused;
                Ok(Verdict { not_run, ..Verdict::bare(&*job.check.name, false, chain(&error)) })
            }
        }
    }

    async fn decide(&self, job: &CheckJob, cancel: &Cancel) -> Result<Verdict, Error> {
        let began = match job.phase {
            Phase::Entry => self.baselines.enter(job.run, job.task, &job.spec, job.token).await?,
            _ => self.baselines.begun(job.run, job.task, &job.spec, job.token).await?,
        };
        let mut steps = Vec::new();
        if let Some(PlantedFailure::Revert(globs)) = &job.check.control
            // What is left beside the globs may have changed since, and it is that which fails there.
            && (!globs.is_empty() || !self.is_controlled(job).await?)
        {
            let (found, refusal) = self.control(job, &began, globs, cancel).await?;
            steps = found;
            if let Some(refusal) = refusal {
                return Ok(Verdict { steps, ..refusal });
            }
        }
        let mut verdict = self.once(job, &began, cancel).await?;
        // Where nobody has judged, nothing is found that could be mended; what could not be run, a command may set up, and
        // no model.
        let is_mendable = match &job.check.fix {
            Some(Fix::Agent { .. }) => !verdict.not_run,
            _ => true,
        };
        let is_found =
            !verdict.passed && !verdict.unjudged && is_mendable && !cancel.is_cancelled();
        if let Some(fix) = job.check.fix.as_ref().filter(|_| is_found) {
            let mended = match self.is_mending(job).await? {
                true => step(StepKind::Fix, &Verdict::bare("fix", false, BROKEN_OFF)),
                false => {
                    let CheckJob { phase, index, .. } = *job;
                    let begun = CheckMending { phase, index, check: job.check.name.clone() };
                    let begun = vec![EventBody::CheckMending(begun)];
                    let (task, token) = (Some(job.task), job.token);
                    self.baselines.append(job.run, task, token, begun, Vec::new()).await?;
                    self.mend(job, fix, &verdict, cancel).await?
                }
            };
            steps.push(CheckStep {
                what: StepKind::First,
                passed: false,
                reason: verdict.reason,
                evidence: verdict.evidence,
            });
            let tried = mended.passed;
            let why = mended.reason.clone();
            steps.push(mended);
            verdict = self.once(job, &began, cancel).await?;
            if !verdict.passed && !tried {
                verdict.reason = format!("{}; its fix failed as well: {why}", verdict.reason);
            }
        }
        // Its own steps, the proofs of a contract, come behind what was done before it.
        steps.append(&mut verdict.steps);
        verdict.steps = steps;
        Ok(verdict)
    }

    /// Tells whether a fix of the check was begun and never came to a verdict: a process died over it, or was
    /// stopped.
    async fn is_mending(&self, job: &CheckJob) -> Result<bool, Error> {
        let kinds = ["check.mending", "check.finished"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(job.run), task: Some(job.task), kinds };
        let place = (job.phase, job.index);
        let (mut is_open, mut after) = (false, Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(is_open) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::CheckMending(at) if (at.phase, at.index) == place => is_open = true,
                    EventBody::CheckFinished(at) if (at.phase, at.index) == place => {
                        is_open = false;
                    }
                    _ => {}
                }
            }
        }
    }

    /// Runs a check as it is, once.
    async fn once(&self, job: &CheckJob, began: &Began, cancel: &Cancel) -> Result<Verdict, Error> {
        let (within, mode) = ((job.run, job.task, job.token), self.setup.mode());
        let is_free = self.protection == Protection::None;
        if mode < PermissionMode::Edit && is_free && effects::runs_program(&job.check) {
            // A run that was begun in a wider mode.
            let mode = mode.as_str();
            let reason =
                format!("a run in mode {mode} runs nothing that nothing keeps from writing");
            return Ok(Verdict::bare(&*job.check.name, false, reason));
        }
        if let Some(label) = &job.spec.target {
            return self.check_there(job, label, cancel).await;
        }
        match &job.check.kind {
            CheckKind::Agent(check) => self.review(job, check, cancel).await,
            CheckKind::Suite(check) => self.suite(job, check, began, cancel).await,
            CheckKind::Progress => self.progress(job, began).await,
            CheckKind::Workflow(check) => self.by_workflow(job, check, cancel).await,
            CheckKind::Merged => self.merged(job, cancel).await,
            CheckKind::Graph(held) => self.judge_graph(job, held),
            CheckKind::Native(NativeCheck { function }) => {
                let deciding = self.natives.check(job.clone(), function, cancel);
                Ok(self.watched(within, Reach::Anywhere, deciding).await?)
            }
            kind => {
                let whose = self.of_task((job.run, job.task), &job.spec)?;
                let bounds = self.bounds(&self.program_rules(&job.spec)?, whose).await?;
                let verifier = self.verifier(self.root.path(), bounds.protection);
                let since = Since { workshop: self, job, failed: Mutex::default() };
                let ground = Ground { baseline: &began.checked, changes: &since };
                let checking = Box::pin(verifier.check(&job.check, ground, cancel));
                // The others only look.
                let checked = match kind {
                    CheckKind::Command(_) | CheckKind::Contract(_) => {
                        self.watched(within, bounds.reach, checking).await?
                    }
                    _ => checking.await,
                };
                if let Some(error) = since.log_failed() {
                    return Err(error.into());
                }
                self.kept(job, checked).await
            }
        }
    }

    pub(crate) fn verifier(&self, root: &std::path::Path, protection: Protection) -> Verifier {
        Verifier::new(Arc::clone(&self.sandbox), root, protection, Arc::clone(&self.scrub))
            .with_symbols(Arc::new(Codebase))
    }

    /// Keeps the output of a check that has decided, and returns its verdict.
    pub(crate) async fn kept(
        &self,
        job: &CheckJob,
        checked: Result<Checked, formwork_verify::Error>,
    ) -> Result<Verdict, Error> {
        let checked = checked.map_err(|error| Error::Checks { reason: chain(&error) })?;
        for output in checked.output.into_iter().chain(checked.outputs) {
            self.keep(job, Some(output)).await?;
        }
        Ok(checked.verdict)
    }

    /// Keeps the bytes that a verdict refers to.
    async fn keep(&self, job: &CheckJob, blob: Option<Blob>) -> Result<(), Error> {
        let Some(blob) = blob else { return Ok(()) };
        let batch =
            Append { run: job.run, token: job.token, events: Vec::new(), blobs: vec![blob] };
        self.store.append(batch).await?;
        Ok(())
    }

    /// Tells whether the check has failed where it has to before, at the same task: what it is held against
    /// is how the task began, and that stays.
    async fn is_controlled(&self, job: &CheckJob) -> Result<bool, Error> {
        let rows = self.store.checks(job.run).await?;
        Ok(rows.iter().any(|row| {
            let is_this = row.task == job.task && row.phase == job.phase && row.index == job.index;
            let control = row.verdict.steps.iter().find(|step| step.what == StepKind::Control);
            is_this && control.is_some_and(|step| step.passed)
        }))
    }

    /// Counts the calls of each tool that ended well in a task, and in the parts that were opened within it.
    async fn calls(&self, job: &CheckJob) -> Result<BTreeMap<String, u64>, Error> {
        let tasks = self.store.tasks(job.run).await?;
        let mut own = BTreeSet::from([job.task]);
        // A part is created after what it is a part of.
        for task in &tasks {
            if task.parent.is_some_and(|parent| own.contains(&parent)) {
                own.insert(task.task);
            }
        }
        let kinds = ["tool.requested", "tool.completed"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(job.run), task: None, kinds };
        let (mut open, mut ended) = (HashMap::new(), BTreeMap::new());
        let mut after = Position::default();
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(ended) };
            after = last.position;
            for event in events.into_iter().filter(|it| it.task.is_some_and(|it| own.contains(&it)))
            {
                match event.body {
                    EventBody::ToolRequested(made) => drop(open.insert(made.call, made.tool)),
                    EventBody::ToolCompleted(done) => {
                        if let Some(tool) = open.remove(&done.call) {
                            *ended.entry(tool).or_default() += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Runs a check where it has to fail. Returns what was done, and the verdict where its passing would prove nothing.
    async fn control(
        &self,
        job: &CheckJob,
        began: &Began,
        globs: &[String],
        cancel: &Cancel,
    ) -> Result<(Vec<CheckStep>, Option<Verdict>), Error> {
        let refused = |reason| Verdict::bare(&*job.check.name, false, reason);
        let Some(without) = copy::reverted(self, began, globs).await? else {
            let of =
                if globs.is_empty() { String::new() } else { format!(" of {}", globs.join(", ")) };
            let reason =
                format!("the task changed no file{of}, so there is nothing that it could prove");
            return Ok((Vec::new(), Some(refused(reason))));
        };
        let verdict = self.in_copy(job, &without, cancel).await?;
        let mut control = step(StepKind::Control, &verdict);
        if verdict.not_run {
            return Ok((vec![control], Some(Verdict { steps: Vec::new(), ..verdict })));
        }
        control.passed = !verdict.passed;
        if verdict.passed {
            let reason =
                format!("it cannot fail: without the work it passes as well ({})", verdict.reason);
            return Ok((vec![control], Some(refused(reason))));
        }
        // It may have failed because a copy is no place to run it in, or by a test that has nothing to do with the work.
        let with = copy::whole(self, began).await?;
        let verdict = self.in_copy(job, &with, cancel).await?;
        let proof = step(StepKind::Proof, &verdict);
        let refusal = (!verdict.passed).then(|| {
            control.passed = false;
            refused(format!(
                "its control proves nothing: in a copy with the work it fails as well ({})",
                verdict.reason
            ))
        });
        Ok((vec![control, proof], refusal))
    }

    /// Runs a check in a copy, which is all that it may write besides what builds make for themselves.
    async fn in_copy(
        &self,
        job: &CheckJob,
        copy: &copy::Copy,
        cancel: &Cancel,
    ) -> Result<Verdict, Error> {
        let rules = self.rules(&job.spec)?.narrowed(&WriteRules::nothing());
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let Bounds { mut protection, reach, .. } = self.bounds(&rules, whose).await?;
        if let Protection::Restricted(limits) = &mut protection {
            limits.write_roots.push(copy.path().to_owned());
        }
        let verifier = self.verifier(copy.path(), protection);
        let began = formwork_verify::Baseline::default();
        let ground = Ground { baseline: &began, changes: &() };
        let checking = Box::pin(verifier.check(&job.check, ground, cancel));
        // What is linked into it lies in the workspace.
        let within = (job.run, job.task, job.token);
        let checked = self.watched(within, reach, checking).await?;
        self.kept(job, checked).await
    }

    /// Applies a fix.
    async fn mend(
        &self,
        job: &CheckJob,
        fix: &Fix,
        found: &Verdict,
        cancel: &Cancel,
    ) -> Result<CheckStep, Error> {
        let mode = self.setup.mode();
        if mode < PermissionMode::Edit {
            let reason = format!("a run in mode {} changes nothing", mode.as_str());
            return Ok(step(StepKind::Fix, &Verdict::bare("fix", false, reason)));
        }
        let argv = match fix {
            Fix::Agent { agent, prompt } => {
                return self.mend_by_agent(job, (agent, prompt), found, cancel).await;
            }
            Fix::Command { argv } => argv.clone(),
            _ => {
                let verdict = Verdict::bare("fix", false, "this version does not know such a fix");
                return Ok(step(StepKind::Fix, &verdict));
            }
        };
        let kind = CheckKind::Command(CommandCheck { argv, parse: None, expect: Expect::Pass });
        let spec = CheckSpec::new("fix", kind, job.check.timeout);
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let bounds = self.bounds(&self.rules(&job.spec)?, whose).await?;
        let verifier = self.verifier(self.root.path(), bounds.protection);
        let began = formwork_verify::Baseline::default();
        let ground = Ground { baseline: &began, changes: &() };
        let running = Box::pin(verifier.check(&spec, ground, cancel));
        let within = (job.run, job.task, job.token);
        let checked = self.watched(within, bounds.reach, running).await?;
        Ok(step(StepKind::Fix, &self.kept(job, checked).await?))
    }
}

/// Tells of a verdict on the way to another one.
fn step(what: StepKind, verdict: &Verdict) -> CheckStep {
    let Verdict { passed, reason, evidence, .. } = verdict.clone();
    CheckStep { what, passed, reason, evidence }
}

/// What a task changed since it began.
struct Since<'a> {
    workshop: &'a Workshop,
    job: &'a CheckJob,
    /// What the log could not do meanwhile, which a check could tell in words alone.
    failed: Mutex<Option<StoreError>>,
}

impl Since<'_> {
    fn log_failed(&self) -> Option<StoreError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn told<T>(&self, found: Result<T, Error>) -> Result<T, String> {
        found.map_err(|error| {
            let told = chain(&error);
            if let Err(failed) = error.beside_the_log() {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
            }
            told
        })
    }
}

#[async_trait]
impl Changes for Since<'_> {
    async fn since_entry(&self) -> Result<Vec<FileChange>, String> {
        let Self { workshop, job, .. } = self;
        let within = (job.run, job.task, job.token);
        let changes = async {
            let own = workshop.own_paths((job.run, job.task), &job.spec).await?;
            workshop.baselines.changes(within, &job.spec, own).await
        };
        self.told(Box::pin(changes).await)
    }

    async fn content(&self, hash: &BlobHash) -> Result<Vec<u8>, String> {
        self.told(self.workshop.baselines.content(hash).await)
    }

    async fn calls(&self) -> Result<BTreeMap<String, u64>, String> {
        let Self { workshop, job, .. } = self;
        self.told(workshop.calls(job).await)
    }
}
