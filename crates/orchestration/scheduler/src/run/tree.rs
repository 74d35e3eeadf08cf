//! The state of the core, with what only the record knows of each task.

use std::sync::Arc;

use formwork_protocols::{
    AttemptId, Body, Cancellation, Claim, Ending, Escalation, OutcomeCode, Position, SessionId,
    Span, TaskName, TaskOutcome, Timestamp,
    budget::Cap,
    check::{AgentCheck, CheckKind, Fix, Phase, Verdict},
    overseer::Action,
    text,
};
use serde_json::{Map, Value, json};

use crate::{
    core::{State, TaskIndex},
    ledger::Accounts,
    path::TaskPath,
    results::{self, Ended, Form, Results},
};

/// How much an item says of itself in the result of all.
const ITEM_TEXT: usize = 2_000;

/// What the record knows of a task, beyond where it stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(super) attempt: Option<AttemptId>,
    pub(super) session: Option<SessionId>,
    pub(super) claim: Option<Arc<Claim>>,
    /// The verdicts of its last phase.
    pub(super) verdicts: Vec<Verdict>,
    /// The checks of its last phase, by their places, whose fixes are used up in it.
    pub(super) mended: Vec<u32>,
    /// Where a process before this one left the commands that surround attempts.
    pub(super) left: Option<Left>,
    /// When it began and ended, in time that the run was carried out.
    pub(crate) began: Option<Span>,
    pub(super) ended: Option<Span>,
    pub(super) files_changed: u64,
    /// How often each of its exit checks has failed, by their places.
    failures: Vec<(u32, u32)>,
    /// Of which lines of its caps was told that are found by what they count: at the limit, or below it.
    told: Vec<(Cap, bool)>,
    /// Since when it waits for somebody outside, whether its question was put, and what it has met.
    pub(super) waits_since: Option<Timestamp>,
    pub(super) was_asked: bool,
    pub(super) met: Option<Position>,
    /// Since when its budget is used up, in time that the run was carried out, and what was missing.
    pub(super) exhausted: Option<(Span, String)>,
    /// Whether its last attempt only could not reach its model.
    pub(super) goes_on: bool,
    /// Whether whoever made it was told how it ended.
    pub(super) was_told: bool,
    /// What whoever governs the run was asked about it and has not answered, until when; and what they said.
    pub(super) overseeing: Option<Timestamp>,
    /// What its next attempt is told by them.
    pub(super) advice: Option<String>,
    /// Whether they have given it up, and nobody else is asked.
    pub(super) is_settled: bool,
    /// The names from the root to it, once something below it was begun.
    path: Option<Arc<[TaskName]>>,
}

/// Where the commands were left that follow once a task has succeeded, or that come before another attempt. They have effects:
/// what has ended is not made again, and neither is what nobody knows the outcome of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) phase: Phase,
    /// The place of the next one among them.
    pub(super) index: u32,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing of it has happened, or it was stopped by a pause.
    Before,
    Begun,
    /// Its process has died over it.
    Lost,
}

impl Left {
    pub(super) const fn before(phase: Phase, index: u32) -> Self {
        Self { phase, index, standing: Standing::Before }
    }

    pub(super) const fn begun(phase: Phase, index: u32) -> Self {
        Self { phase, index, standing: Standing::Begun }
    }

    /// Takes note that somebody has taken the run up.
    pub(super) fn lost(&mut self) {
        if self.standing == Standing::Begun {
            self.standing = Standing::Lost;
        }
    }

    /// Takes note that the run was paused.
    pub(super) fn stopped(&mut self) {
        if self.standing == Standing::Begun {
            self.standing = Standing::Before;
        }
    }

    /// Tells whether nobody knows what came of it.
    pub(super) fn is_unknown(self) -> bool {
        self.standing != Standing::Before
    }
}

impl Progress {
    fn elapsed(&self) -> Span {
        let (Some(began), Some(ended)) = (self.began, self.ended) else { return Span::ZERO };
        Span::from_micros(ended.as_micros().saturating_sub(began.as_micros()))
    }

    /// Notes that the exit check at that place has failed once more.
    pub(super) fn count_failure(&mut self, index: u32) {
        match self.failures.iter_mut().find(|(place, _)| *place == index) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.failures.push((index, 1)),
        }
    }

    /// Returns how often the exit check at that place has failed.
    pub(super) fn failures(&self, index: u32) -> u32 {
        let found = self.failures.iter().find(|(place, _)| *place == index);
        found.map_or(0, |(_, count)| *count)
    }

    /// Notes that it is told of a line that a cap has crossed, and says whether it was not told of before.
    pub(super) fn tell(&mut self, cap: Cap, exhausted: bool) -> bool {
        match self.told.iter_mut().find(|(known, _)| *known == cap) {
            Some((_, told)) => exhausted && !std::mem::replace(told, exhausted),
            None => {
                self.told.push((cap, exhausted));
                true
            }
        }
    }

    /// Takes what whoever governs the run has decided.
    pub(super) fn heed(&mut self, action: &Action) {
        match action {
            Action::Retry { advice } => {
                self.advice = Some(advice.clone()).filter(|advice| !advice.trim().is_empty());
            }
            Action::Fail { .. } => self.is_settled = true,
            _ => {}
        }
    }

    /// Returns the place of the exit check that failed in the last phase, if one did.
    pub(super) fn failed_check(&self) -> Option<u32> {
        let place = self.verdicts.iter().position(|verdict| !verdict.passed)?;
        u32::try_from(place).ok()
    }
}

/// The tree of a run, with all that is known of its tasks.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) state: State,
    pub(crate) progress: Vec<Progress>,
    pub(crate) accounts: Arc<Accounts>,
}

impl Tree {
    pub(crate) fn of(&self, task: TaskIndex) -> Option<&Progress> {
        self.progress.get(task.position())
    }

    pub(super) fn of_mut(&mut self, task: TaskIndex) -> &mut Progress {
        let place = task.position();
        if self.progress.len() <= place {
            self.progress.resize_with(place + 1, Progress::default);
        }
        &mut self.progress[place]
    }

    /// Returns the outcome of a task that has ended.
    pub(super) fn outcome(&self, task: TaskIndex) -> Option<TaskOutcome> {
        let ending = self.state.ending(task)?;
        let known = self.of(task);
        let id = self.state.id(task);
        let spent = self.accounts.spent(id);
        Some(TaskOutcome {
            task: id,
            name: self.state.spec(task).name.clone(),
            ending,
            claim: known.and_then(|known| known.claim.as_deref().cloned()),
            verdicts: known.map(|known| known.verdicts.clone()).unwrap_or_default(),
            attempts: self.state.attempts(task),
            cost: spent.usd,
            usage: spent.usage,
            files_changed: self.files_changed(task),
            elapsed: known.map_or(Span::ZERO, Progress::elapsed),
        })
    }

    /// Returns what a task that has ended hands over: its output, or its words where it has none.
    pub(super) fn handed_over(&self, task: TaskIndex) -> Option<Value> {
        self.state.has_completed(task)?;
        let claim = self.of(task).and_then(|known| known.claim.as_deref());
        let output = claim.and_then(|claim| claim.output.clone());
        let words = || claim.map_or(String::new(), |claim| claim.summary.clone());
        Some(output.unwrap_or_else(|| Value::String(words())))
    }

    /// Returns of a task that has ended what others may use.
    fn ended(&self, task: TaskIndex) -> Option<Ended> {
        let passed = self.state.has_completed(task)?;
        let known = self.of(task);
        Some(Ended {
            name: self.state.spec(task).name.clone(),
            claim: known.and_then(|known| known.claim.clone()),
            passed,
            attempts: self.state.attempts(task),
            cost: self.accounts.spent(self.state.id(task)).usd,
            files_changed: self.files_changed(task),
            elapsed: known.map_or(Span::ZERO, Progress::elapsed),
        })
    }

    fn files_changed(&self, task: TaskIndex) -> u64 {
        let own = |task| self.of(task).map_or(0, |progress: &Progress| progress.files_changed);
        let mut sum = own(task);
        let mut open: Vec<TaskIndex> = self.state.children(task).collect();
        while let Some(task) = open.pop() {
            sum = sum.saturating_add(own(task));
            open.extend(self.state.children(task));
        }
        sum
    }

    /// Returns where a task stands.
    pub(super) fn path(&mut self, task: TaskIndex) -> TaskPath {
        let above = match self.state.parent(task) {
            None => Arc::from([]),
            Some(above) => self.path_to(above),
        };
        TaskPath::new(above, self.state.spec(task).name.clone())
    }

    /// Returns the names from the root to a task below which others stand.
    fn path_to(&mut self, task: TaskIndex) -> Arc<[TaskName]> {
        if let Some(known) = self.of(task).and_then(|known| known.path.as_ref()) {
            return Arc::clone(known);
        }
        let up = std::iter::successors(Some(task), |task| self.state.parent(*task));
        let mut path: Vec<TaskName> = up.map(|task| self.state.spec(task).name.clone()).collect();
        path.reverse();
        let path: Arc<[TaskName]> = path.into();
        self.of_mut(task).path = Some(Arc::clone(&path));
        path
    }

    /// Follows the first failure down to the task that began it.
    pub(super) fn cause(&self, task: TaskIndex) -> TaskIndex {
        std::iter::successors(Some(task), |task| {
            let is_childs = matches!(
                self.state.ending(*task),
                Some(Ending::Escalated { why: Escalation::ChildFailed { .. } })
            );
            if is_childs { self.state.failed_child(*task) } else { None }
        })
        .last()
        .unwrap_or(task)
    }

    /// Returns the code of a tree that has ended, and why in one line.
    pub(super) fn verdict(&self) -> (OutcomeCode, String) {
        let root = self.state.root();
        let cause = self.cause(root);
        let Some(ending) = self.state.ending(cause) else {
            let reason = "paused, and can be resumed".to_owned();
            return (OutcomeCode::Interrupted, reason);
        };
        let code = OutcomeCode::of(&ending);
        if ending == Ending::Completed {
            return (code, self.summary());
        }
        let reason = if cause == root {
            ending.to_string()
        } else {
            format!("task {}: {ending}", self.state.spec(cause).name)
        };
        (code, one_line(&reason))
    }

    /// Tells whether a task is part of what decides a check.
    pub(super) fn decides_above(&self, task: TaskIndex) -> bool {
        let mut up = std::iter::successors(Some(task), |task| self.state.parent(*task));
        up.any(|task| self.state.is_deciding(task))
    }

    fn summary(&self) -> String {
        let (mut tasks, mut skipped, mut checks) = (0_usize, 0_usize, 0_usize);
        for task in self.state.tasks() {
            let spec = self.state.spec(task);
            match self.state.ending(task) {
                // Those that decide a check count as the check.
                Some(_) if self.decides_above(task) => {}
                Some(Ending::Completed) => {
                    tasks +=
                        usize::from(!matches!(spec.body, Body::Subtasks { .. } | Body::ForEach(_)));
                    checks += spec.prechecks.len() + spec.postchecks.len();
                }
                Some(Ending::Cancelled { why: Cancellation::Skipped { .. } }) => skipped += 1,
                _ => {}
            }
        }
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let checked = match checks {
            0 => "nothing checked".to_owned(),
            checks => format!("{checks} check{} passed", plural(checks)),
        };
        let skipped = match skipped {
            0 => String::new(),
            skipped => format!("{skipped} skipped, "),
        };
        format!("{tasks} task{} done, {skipped}{checked}", plural(tasks))
    }

    /// Collects the results that a task may use: of what it depends on and of what its prompt names.
    pub(super) fn results(&self, task: TaskIndex) -> Results {
        let spec = self.state.spec(task);
        let mut names: Vec<&str> = spec.depends_on.iter().map(|name| name.as_str()).collect();
        if let Body::Agent { prompt, .. } = &spec.body {
            names.extend(named(prompt));
        }
        for check in spec.prechecks.iter().chain(&spec.postchecks) {
            if let CheckKind::Agent(AgentCheck { prompt, .. }) = &check.kind {
                names.extend(named(prompt));
            }
            if let Some(Fix::Agent { prompt, .. }) = &check.fix {
                names.extend(named(prompt));
            }
        }
        Results::of(self.ended_of(task, distinct(names)))
    }

    /// Collects the results that a text names.
    pub(super) fn results_in(&self, task: TaskIndex, text: &str) -> Map<String, Value> {
        self.results_of(task, named(text).collect(), Form::Texts)
    }

    /// Says what a task hands over whose children have done its work: of items the list of their results, of
    /// other children their outputs by name.
    pub(super) fn claim_of_parent(&self, task: TaskIndex) -> Option<Claim> {
        let is_items = match &self.state.spec(task).body {
            // Of the whole run its outcome tells.
            _ if task == self.state.root() => return None,
            Body::Subtasks { .. } => false,
            Body::ForEach(_) => true,
            _ => return None,
        };
        let (mut done, mut all) = (0_usize, 0_usize);
        let (mut items, mut outputs) = (Vec::new(), Map::new());
        for child in self.state.children(task).filter(|child| !self.state.is_deciding(*child)) {
            let Some(ending) = self.state.ending(child) else { continue };
            let is_skipped =
                matches!(ending, Ending::Cancelled { why: Cancellation::Skipped { .. } });
            all += usize::from(!is_skipped);
            done += usize::from(ending == Ending::Completed);
            let claim = self.of(child).and_then(|known| known.claim.as_deref());
            let output = claim.and_then(|claim| claim.output.as_ref());
            let spec = self.state.spec(child);
            if is_items {
                items.push(json!({
                    "item": spec.vars.get("item"),
                    "passed": ending == Ending::Completed,
                    "ending": one_line(&ending.to_string()),
                    "text": text::head(claim.map_or("", |claim| &claim.summary), ITEM_TEXT),
                    "output": output,
                }));
            } else if let Some(output) = output {
                outputs.insert(spec.name.to_string(), output.clone());
            }
        }
        let noun = if is_items { "items" } else { "tasks" };
        let output = match (is_items, outputs.is_empty()) {
            (true, _) => Some(Value::Array(items)),
            (false, true) => None,
            (false, false) => Some(Value::Object(outputs)),
        };
        Some(Claim { summary: format!("{done} of {all} {noun} done"), output })
    }

    /// Collects the results of the tasks of these names, beside a task or beside one of those above it; the
    /// nearest of a name counts. One that has not ended has none.
    pub(super) fn results_of(
        &self,
        task: TaskIndex,
        names: Vec<&str>,
        form: Form,
    ) -> Map<String, Value> {
        results::values(&self.ended_of(task, distinct(names)), form)
    }

    fn ended_of(&self, task: TaskIndex, names: Vec<&str>) -> Vec<Ended> {
        let mut found: Vec<TaskIndex> = Vec::new();
        let mut below = task;
        while let Some(above) = self.state.parent(below)
            && found.len() < names.len()
        {
            // Items stand beside each other without knowing of each other.
            let beside = !matches!(self.state.spec(above).body, Body::ForEach(_));
            let nearer = found.len();
            let is_unique = self.state.is_as_planned(above);
            for sibling in self.state.children(above).filter(|_| beside) {
                let name = &self.state.spec(sibling).name;
                if sibling == below
                    || !names.contains(&name.as_str())
                    || self.state.has_completed(sibling).is_none()
                {
                    continue;
                }
                // Of what was made under one name by several attempts the latest counts.
                match found.iter().position(|known| self.state.spec(*known).name == *name) {
                    Some(place) if place >= nearer => found[place] = sibling,
                    Some(_) => {}
                    None => found.push(sibling),
                }
                if is_unique && found.len() == names.len() {
                    break;
                }
            }
            below = above;
        }
        let mut ended = Vec::with_capacity(found.len());
        ended.extend(found.into_iter().filter_map(|task| self.ended(task)));
        ended
    }
}

/// Leaves out what stands in a list before.
fn distinct(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Lists the words that follow `tasks.` in a text: names of tasks, and now and then a word that is none.
fn named(prompt: &str) -> impl Iterator<Item = &str> {
    prompt.match_indices("tasks.").filter_map(|(at, found)| {
        let rest = prompt.get(at + found.len()..)?;
        let end = rest.find(|c: char| !matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
        rest.get(..end.unwrap_or(rest.len()))
    })
}

/// Puts a text into one line, as outcomes are shown.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
