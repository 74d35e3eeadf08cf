//! `loops.get`: the rounds of a loop, and which of them is kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use formwork_protocols::{
    EventBody, OutcomeCode, Position, RunId, Store, TaskId,
    check::{Counts, Phase, Verdict},
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::undo::{InTrash, TAKEN_BACK};
use crate::{
    Error, Formwork,
    baseline::blocking,
    capability::{Caller, Effect, Operation, Scope},
};

/// Which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
}

/// What a check said in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Said {
    pub check: String,
    pub passed: bool,
    pub reason: String,
}

/// One round: an attempt, and the checks that followed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// The first is 1.
    pub number: u32,
    /// The checks that ran, in order; none where the attempt itself came to no end.
    pub checks: Vec<Said>,
    /// The tests, counted, where the suite ran.
    pub tests: Option<Counts>,
    /// How many tests fail that did not fail before the first edit, as far as they are named.
    pub new_failures: u64,
    /// Where in the log it ended.
    pub at: Position,
}

/// The rounds of a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loop {
    /// The run.
    pub run: RunId,
    /// What the suite said before the first edit.
    pub before: Option<Said>,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// Whether the last round passed.
    pub passed: bool,
    /// The best round, where none passed and what the suite says tells them apart.
    pub best: Option<u32>,
    /// The paths that were made what they were after the best round.
    pub taken_back: Vec<String>,
    /// What was there of those that nobody told were the loop's: it is in the trash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trashed: Vec<InTrash>,
}

/// `loops.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "loops.get";
    const DOC: &'static str = "Returns the rounds of a loop, and which of them is kept.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Loop;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Loop, Error> {
        let (store, run) = (&formwork.inner.store, params.run);
        super::runs::named(&**store, run).await?;
        let course = Course::read(&**store, run).await?;
        let best = course.best().map(|best| best.number);
        let Course { before, rounds, passed, taken_back, .. } = course;
        let before = before.map(|verdict| said(&verdict));
        let (trash, of) = (Arc::clone(&formwork.inner.trash), run.to_string());
        let entries = match taken_back.is_empty() {
            true => Vec::new(),
            false => blocking(move || trash.list()).await?,
        };
        let put = entries.into_iter().filter(|it| it.run == of && it.task == TAKEN_BACK);
        let scrub = formwork.scrub();
        let put = put.map(|it| InTrash { path: scrub.scrub_text(&it.path).into(), id: it.id });
        let (trashed, taken_back) = (put.collect(), taken_back.into_iter().collect());
        Ok(Loop { run, before, rounds, passed, best, taken_back, trashed })
    }
}

/// What the log tells of a loop.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The task that is worked on in rounds.
    task: Option<TaskId>,
    before: Option<Verdict>,
    rounds: Vec<Round>,
    passed: bool,
    /// Whether the suite passed in each round that it ran in, by the numbers of the rounds.
    suites: BTreeMap<u32, bool>,
    taken_back: BTreeSet<String>,
}

impl Course {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) async fn read(store: &dyn Store, run: RunId) -> Result<Self, Error> {
        let kinds = ["run.", "attempt.started", "check.finished", "file.changed"];
        let kinds = kinds.map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let (mut course, mut after) = (Self::default(), Position::default());
        loop {
            let events = store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(course) };
            after = last.position;
            for event in events {
                course.take(event.position, event.task, event.body);
            }
        }
    }

    fn take(&mut self, at: Position, task: Option<TaskId>, body: EventBody) {
        match body {
            EventBody::RunCreated(created) => self.task = Some(created.root),
            EventBody::RunFinished(finished) => {
                self.passed = finished.outcome.code == OutcomeCode::Completed;
            }
            // What a tool or a program changes is told with its call.
            EventBody::FileChanged(change) if task.is_none() && change.call.is_none() => {
                self.taken_back.insert(change.path);
            }
            EventBody::AttemptStarted(started) if task == self.task => {
                // A rewind came before it goes on.
                self.taken_back.clear();
                let (number, checks) = (started.number, Vec::new());
                let is_known = self.rounds.last().is_some_and(|last| last.number == number);
                if !is_known {
                    let round = Round { number, checks, tests: None, new_failures: 0, at };
                    self.rounds.push(round);
                }
            }
            EventBody::CheckFinished(done) if task == self.task => match done.phase {
                Phase::Entry => self.before = Some(done.verdict),
                Phase::Exit => self.checked(at, &done.verdict),
                Phase::Success | Phase::Retry => {}
            },
            _ => {}
        }
    }

    fn checked(&mut self, at: Position, verdict: &Verdict) {
        let before = self.before.as_ref().map(|before| &before.evidence);
        let Some(round) = self.rounds.last_mut() else { return };
        round.at = at;
        if verdict.check == super::runs::SUITE {
            self.suites.insert(round.number, verdict.passed);
        }
        // After a fix all of them run again.
        round.checks.retain(|said| said.check != verdict.check);
        round.checks.push(said(verdict));
        if let Some(counts) = verdict.evidence.counts {
            let known: BTreeSet<&String> =
                before.map(|before| before.failing().iter().collect()).unwrap_or_default();
            let is_known = before.is_some_and(|before| before.counts.is_some());
            let new = verdict.evidence.failing().iter().filter(|name| !known.contains(name));
            round.new_failures = if is_known { new.count() as u64 } else { 0 };
            // What is gone proves nothing.
            let is_proof = verdict.passed || counts.failed > 0;
            round.tests = Some(counts).filter(|counts| counts.run > 0 && is_proof);
        }
    }

    /// Returns the best round of a loop that did not pass: the one whose suite ran with the fewest new failures,
    /// then the fewest failures; the last of those that are as good. Where nobody can count what the suite says, the
    /// last of those in which it passed, if it did in any: nothing else tells them apart.
    pub(crate) fn best(&self) -> Option<&Round> {
        if self.rounds.iter().all(|round| round.tests.is_none()) {
            let has_passed =
                |round: &&Round| self.suites.get(&round.number).is_some_and(|passed| *passed);
            return self.rounds.iter().rfind(has_passed);
        }
        let ran = self.rounds.iter().filter_map(|round| round.tests.map(|tests| (round, tests)));
        let rank = |(round, tests): &(&Round, Counts)| {
            (round.new_failures, tests.failed, std::cmp::Reverse(round.number))
        };
        ran.min_by_key(rank).map(|(round, _)| round)
    }
}

fn said(verdict: &Verdict) -> Said {
    let (check, passed) = (verdict.check.clone(), verdict.passed);
    Said { check, passed, reason: verdict.reason.clone() }
}
