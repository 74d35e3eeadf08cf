//! The promises, held against books that know nothing of how the core keeps its.

use formwork_protocols::{
    Body, Cancellation, Ending, Span, TaskName, TaskSignal, TaskState,
    budget::TreeCaps,
    check::{CheckKind, Phase},
    spec::OnFailure,
};

use super::{Kept, purse::Purses};
use crate::{
    core::{Command, State, TaskIndex, claims::overlap},
    ledger::Accounts,
};

/// What of a task is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Check(Phase),
    Body,
}

/// A task as its commands tell it.
#[derive(Debug)]
struct Seen {
    parent: Option<TaskIndex>,
    children: Vec<TaskIndex>,
    depends_on: Vec<TaskIndex>,
    state: TaskState,
    ending: Option<Ending>,
    /// How it has to end, since somebody asked for it.
    asked: Option<Ending>,
    attempts: u32,
    /// How often it was to rest after what may pass by itself.
    rests: u32,
    /// The attempt after which it was to rest last.
    rested_after: u32,
    /// What was last said of its condition.
    judged: Option<Result<bool, ()>>,
    work: Option<Work>,
    /// What its body waits for, which it has made.
    waits: Option<Vec<TaskIndex>>,
    /// Tasks below it, itself included, and levels above it.
    size: u32,
    depth: u32,
}

/// All tasks of a run as their commands tell them.
#[derive(Debug)]
pub(super) struct Watch {
    tasks: Vec<Seen>,
    width: usize,
    working: usize,
    is_paused: bool,
    is_finished: bool,
    pub(super) purses: Purses,
}

impl Watch {
    /// Takes note of a tree before anything happens to it.
    pub(super) fn begin(state: &State, width: usize) -> Self {
        let mut watch = Self {
            tasks: Vec::new(),
            width,
            working: 0,
            is_paused: false,
            is_finished: false,
            purses: Purses::default(),
        };
        for task in state.tasks() {
            watch.add(state, task);
        }
        watch
    }

    fn add(&mut self, state: &State, task: TaskIndex) {
        let spec = state.spec(task);
        let parent = state.parent(task);
        let siblings = parent.into_iter().flat_map(|parent| state.children(parent));
        let depends_on = if spec.depends_on.is_empty() {
            Vec::new()
        } else {
            let siblings: Vec<TaskIndex> = siblings.filter(|other| *other != task).collect();
            // What several attempts have made under one name: the latest is meant.
            let latest =
                |name: &TaskName| siblings.iter().rev().find(|it| state.spec(**it).name == *name);
            spec.depends_on.iter().filter_map(latest).copied().collect()
        };
        let depth = parent.map_or(0, |parent| self.of(parent).depth + 1);
        let mut above = parent;
        while let Some(ancestor) = above {
            self.of_mut(ancestor).size += 1;
            above = self.of(ancestor).parent;
        }
        if let Some(parent) = parent {
            self.of_mut(parent).children.push(task);
        }
        self.purses.open(parent, &spec.budget);
        self.tasks.push(Seen {
            parent,
            children: Vec::new(),
            depends_on,
            state: TaskState::Created,
            ending: None,
            asked: None,
            attempts: 0,
            rests: 0,
            rested_after: 0,
            judged: None,
            work: None,
            waits: None,
            size: 1,
            depth,
        });
    }

    fn of(&self, task: TaskIndex) -> &Seen {
        &self.tasks[task.position()]
    }

    fn of_mut(&mut self, task: TaskIndex) -> &mut Seen {
        &mut self.tasks[task.position()]
    }

    /// Takes note of what was said of a condition.
    pub(super) fn judged(&mut self, task: TaskIndex, holds: &Result<bool, String>) {
        self.of_mut(task).judged = Some(holds.clone().map_err(drop));
    }

    /// Takes note that work came back.
    pub(super) fn landed(&mut self, task: TaskIndex) {
        self.of_mut(task).work = None;
        if self.of_mut(task).waits.take().is_none() {
            self.working -= 1;
        }
    }

    /// Takes note that a body waits for what it has made, in no place of the width.
    pub(super) fn waits(&mut self, task: TaskIndex, on: Vec<TaskIndex>) {
        self.of_mut(task).waits = Some(on);
        self.working -= 1;
    }

    /// Takes note that it does not, because it may not.
    pub(super) fn waits_no_more(&mut self, task: TaskIndex) {
        self.of_mut(task).waits = None;
        self.working += 1;
    }

    fn rejoins(&mut self, task: TaskIndex) -> Kept {
        kept(!self.is_paused, || format!("{task:?} goes on during a pause"))?;
        let waited = self.of_mut(task).waits.take();
        let Some(on) = waited else { return Err(format!("{task:?} goes on, and did not wait")) };
        let open = on.iter().find(|one| !self.of(**one).state.is_terminal());
        kept(open.is_none(), || format!("{task:?} goes on, and {open:?} has not ended"))?;
        self.working += 1;
        kept(self.working <= self.width, || {
            format!("{} tasks are at work, of at most {}", self.working, self.width)
        })
    }

    /// Takes note that somebody ends a task.
    pub(super) fn asked(&mut self, task: TaskIndex, ending: Ending, was_stopping: bool) {
        if !was_stopping {
            self.of_mut(task).asked = Some(ending);
        }
    }

    /// Takes note of a pause, or of its end.
    pub(super) const fn paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Forgets what only the process knew that died.
    pub(super) fn crashed(&mut self) {
        self.is_paused = false;
        self.is_finished = false;
        self.working = 0;
        for task in &mut self.tasks {
            task.work = None;
            task.waits = None;
            task.asked = None;
        }
    }

    /// Holds the next command against what came before.
    pub(super) fn command(&mut self, state: &State, command: &Command) -> Kept {
        kept(!self.is_finished, || format!("{command:?} comes after the end"))?;
        match command {
            Command::Create { task } => {
                self.add(state, *task);
                self.grown(state, *task)
            }
            Command::Move { task, from, signal, to, ending } => {
                self.moved(state, *task, (*from, *signal, *to), ending.as_ref())
            }
            Command::Judge { task } => {
                let may_ask = state.spec(*task).when.is_some() && !self.is_paused;
                kept(may_ask, || format!("{task:?} is judged, and has nothing to be judged by"))?;
                self.may_begin(state, *task)
            }
            Command::Rest { task, after } => {
                let seen = self.of_mut(*task);
                // A crash may make it rest after the same attempt again.
                if seen.rested_after != seen.attempts {
                    seen.rested_after = seen.attempts;
                    seen.rests += 1;
                }
                let (most, found) = (state.spec(*task).retries.outage, (seen.rests, seen.work));
                // Each rest is a quarter of a second at least.
                let holds = most.is_some_and(|most| {
                    *after <= most && Span::from_millis(u64::from(found.0) * 250) <= most
                });
                kept(holds && found.1.is_none(), || {
                    format!("{task:?} rests {after}, {found:?}, of at most {most:?}")
                })
            }
            Command::Blocked { task, by, .. } => {
                let is_new = self.of(*task).state == TaskState::Created;
                let is_there = !self.of(*by).state.is_terminal();
                kept(is_new && is_there && self.both_write(state, *task, *by), || {
                    format!("{task:?} waits for what {by:?} writes, and need not")
                })
            }
            Command::Oversee { task, .. } => {
                let seen = self.of(*task);
                let is_open = matches!(seen.state, TaskState::Active | TaskState::PostcheckFailed);
                kept(is_open && seen.work.is_none(), || {
                    format!("{task:?} is asked about while it is {}", seen.state)
                })
            }
            Command::Wait { task } => {
                let waits = self.of(*task).state == TaskState::Suspended;
                kept(waits, || format!("{task:?} is to wait, and is {}", self.of(*task).state))
            }
            Command::Expand { task } => {
                let seen = self.of(*task);
                let may_ask = matches!(state.spec(*task).body, Body::ForEach(_))
                    && seen.state == TaskState::Active
                    && seen.children.is_empty();
                kept(may_ask, || format!("{task:?} is asked for its items"))
            }
            Command::Timer { task } => {
                let is_limited =
                    state.deadline(*task).is_some() || state.spec(*task).budget.wall.is_some();
                kept(is_limited, || format!("{task:?} has a timer and no time limit"))
            }
            Command::Check { task, phase } => {
                let wanted = match phase {
                    Phase::Entry => TaskState::Prechecking,
                    Phase::Exit | Phase::Success => TaskState::Postchecking,
                    // After a failed check, or after a body that gave up.
                    Phase::Retry if self.of(*task).state == TaskState::Active => TaskState::Active,
                    Phase::Retry => TaskState::PostcheckFailed,
                };
                self.launched(*task, Work::Check(*phase), wanted)
            }
            Command::Attempt { task, number, continues } => {
                let before = self.of(*task).attempts;
                let wanted = if *continues { before } else { before + 1 };
                let spec = state.spec(*task);
                let can_repair =
                    spec.postchecks.iter().any(|check| matches!(check.kind, CheckKind::Output(_)));
                let others = u32::from(can_repair) + state.granted(*task);
                let most = spec.retries.max + 1 + others + self.of(*task).rests;
                kept(*number == wanted && *number <= most, || {
                    format!("attempt {number} of {task:?} comes after {before}, of at most {most}")
                })?;
                let open = seen_open(&self.tasks, &self.of(*task).children).filter(|_| !*continues);
                kept(open.is_none(), || {
                    format!("attempt {number} of {task:?} begins, and {open:?} goes on")
                })?;
                self.of_mut(*task).attempts = *number;
                self.launched(*task, Work::Body, TaskState::Active)
            }
            Command::Rejoin { task } => self.rejoins(*task),
            Command::Interrupt { task } => kept(self.of(*task).work.is_some(), || {
                format!("{task:?} is told to stop and has nothing under way")
            }),
            Command::Paused => kept(self.is_paused && self.working == 0, || {
                format!("paused with {} tasks at work", self.working)
            }),
            Command::Finish => {
                self.is_finished = true;
                let open = state.tasks().find(|task| !self.of(*task).state.is_terminal());
                kept(open.is_none(), || format!("the run has ended, and {open:?} has not"))
            }
        }
    }

    fn launched(&mut self, task: TaskIndex, work: Work, wanted: TaskState) -> Kept {
        let is_paused = self.is_paused;
        let seen = self.of_mut(task);
        kept(!is_paused, || format!("{work:?} of {task:?} begins during a pause"))?;
        kept(seen.state == wanted, || {
            format!("{work:?} of {task:?} begins while it is {}", seen.state)
        })?;
        let before = seen.work.replace(work);
        kept(before.is_none(), || format!("{work:?} of {task:?} begins beside {before:?}"))?;
        self.working += 1;
        kept(self.working <= self.width, || {
            format!("{} tasks are at work, of at most {}", self.working, self.width)
        })
    }

    fn moved(
        &mut self,
        state: &State,
        task: TaskIndex,
        (from, signal, to): (TaskState, TaskSignal, TaskState),
        ending: Option<&Ending>,
    ) -> Kept {
        let seen = self.of(task);
        kept(seen.state == from && from.after(signal) == Ok(to), || {
            format!("{task:?} is {} and moves from {from} by {signal:?} to {to}", seen.state)
        })?;
        kept(ending.is_some() == to.is_terminal(), || {
            format!("{task:?} moves to {to} with the ending {ending:?}")
        })?;
        if signal == TaskSignal::Start {
            self.may_begin(state, task)?;
            let judged = self.of(task).judged;
            let is_wanted =
                state.spec(task).when.is_none() || matches!(judged, Some(Ok(true) | Err(())));
            kept(is_wanted, || format!("{task:?} begins, and its condition is {judged:?}"))?;
            // One whose condition cannot be judged ends at once.
            let beside = self.writes_beside(state, task).filter(|_| judged != Some(Err(())));
            kept(beside.is_none(), || {
                format!("{task:?} begins, and {beside:?} may write the same")
            })?;
        }
        if let Some(ending) = ending {
            self.may_end(state, task, ending)?;
        }
        let seen = self.of_mut(task);
        seen.state = to;
        seen.ending = ending.cloned();
        Ok(())
    }

    fn may_begin(&self, state: &State, task: TaskIndex) -> Kept {
        let seen = self.of(task);
        let unmet = seen.depends_on.iter().find(|before| !self.ended_well(**before));
        kept(unmet.is_none(), || format!("{task:?} begins, and {unmet:?} is not done"))?;
        let Some(parent) = seen.parent else { return Ok(()) };
        let above = self.of(parent);
        kept(above.state == TaskState::Active, || {
            format!("{task:?} begins below {parent:?}, which is {}", above.state)
        })?;
        if let Body::ForEach(each) = &state.spec(parent).body
            && let Some(limit) = each.max_concurrency
        {
            let begun = above.children.iter().filter(|child| {
                let child = self.of(**child);
                child.state != TaskState::Created && !child.state.is_terminal()
            });
            kept(begun.count() < limit.get() as usize, || {
                format!("{task:?} begins beside {limit} others, and no more may")
            })?;
        }
        if matches!(on_failure(state, parent), Some(OnFailure::Halt | OnFailure::AbortAll)) {
            let failed = above.children.iter().find(|child| self.failed_by_itself(**child));
            kept(failed.is_none(), || format!("{task:?} begins, and {failed:?} failed beside it"))?;
        }
        Ok(())
    }

    /// Returns what a task claims: the first on the way from the root that says what it writes.
    fn claimed<'a>(&self, state: &'a State, task: TaskIndex) -> &'a [String] {
        let mut above = self.of(task).parent;
        while let Some(ancestor) = above {
            if state.spec(ancestor).write_paths.is_some() {
                return &[];
            }
            above = self.of(ancestor).parent;
        }
        let spec = state.spec(task);
        if matches!(spec.body, Body::WaitFor(_)) {
            &[]
        } else {
            spec.write_paths.as_deref().unwrap_or_default()
        }
    }

    fn both_write(&self, state: &State, one: TaskIndex, other: TaskIndex) -> bool {
        overlap(self.claimed(state, one), self.claimed(state, other)).is_some()
    }

    /// Finds a task at work that may write what this one may.
    fn writes_beside(&self, state: &State, task: TaskIndex) -> Option<TaskIndex> {
        if self.claimed(state, task).is_empty() {
            return None;
        }
        state.tasks().find(|other| {
            let seen = self.of(*other);
            let is_at_work = !seen.state.is_terminal() && seen.state != TaskState::Created;
            is_at_work && *other != task && self.both_write(state, task, *other)
        })
    }

    fn may_end(&self, state: &State, task: TaskIndex, ending: &Ending) -> Kept {
        let seen = self.of(task);
        kept(seen.work.is_none(), || format!("{task:?} ends while {:?} is under way", seen.work))?;
        let open = seen.children.iter().find(|child| !self.of(**child).state.is_terminal());
        kept(open.is_none(), || format!("{task:?} ends before {open:?} below it"))?;
        let is_skipped = matches!(ending, Ending::Cancelled { why: Cancellation::Skipped { .. } });
        kept(!is_skipped || seen.judged == Some(Ok(false)), || {
            format!("{task:?} is skipped, and its condition was {:?}", seen.judged)
        })?;
        if let Some(asked) = &seen.asked {
            kept(asked == ending, || format!("{task:?} ends as {ending}, wanted {asked}"))?;
        }
        if *ending == Ending::Completed
            && on_failure(state, task).is_some_and(|policy| policy != OnFailure::Ignore)
        {
            let bad = seen.children.iter().find(|child| !self.ended_well(**child));
            kept(bad.is_none(), || format!("{task:?} completes, and {bad:?} below it did not"))?;
        }
        Ok(())
    }

    fn ended_well(&self, task: TaskIndex) -> bool {
        self.of(task).ending.as_ref().is_some_and(Ending::satisfies)
    }

    fn failed_by_itself(&self, task: TaskIndex) -> bool {
        let because_of_another = |ending: &Ending| {
            matches!(
                ending,
                Ending::Cancelled {
                    why: Cancellation::DependencyFailed { .. } | Cancellation::ParentEnded
                }
            )
        };
        let ending = self.of(task).ending.as_ref();
        ending.is_some_and(|ending| !ending.satisfies() && !because_of_another(ending))
    }

    /// Holds a tree that has grown against every cap above the new task.
    fn grown(&self, state: &State, task: TaskIndex) -> Kept {
        let new = self.of(task);
        let fan_out = new.parent.map_or(0, |parent| self.of(parent).children.len());
        let mut above = new.parent;
        while let Some(ancestor) = above {
            let seen = self.of(ancestor);
            let own = state.spec(ancestor).budget.tree;
            let caps = own.or_else(|| seen.parent.is_none().then(TreeCaps::default));
            // What was written down below a task that has not begun came with it.
            let is_new = seen.state == TaskState::Created;
            if let Some(TreeCaps { depth, fan_out: most, tasks }) = caps.filter(|_| !is_new) {
                let holds = new.depth - seen.depth <= depth
                    && fan_out <= most as usize
                    && seen.size <= tasks;
                kept(holds, || format!("{task:?} grows beyond the caps of {ancestor:?}"))?;
            }
            above = seen.parent;
        }
        Ok(())
    }

    /// Holds what is cheap to see against the state, after each step.
    pub(super) fn step(&self, state: &State) -> Kept {
        let used = state.slots_used();
        kept(self.working <= used && used <= self.width, || {
            format!("{used} places are taken by {} tasks, of {}", self.working, self.width)
        })
    }

    /// Holds every task against the state and the accounts.
    pub(super) fn all(&self, state: &State, accounts: &Accounts) -> Kept {
        kept(state.len() == self.tasks.len(), || {
            format!("{} tasks are there, wanted {}", state.len(), self.tasks.len())
        })?;
        for (task, seen) in state.tasks().zip(&self.tasks) {
            let found = (state.parent(task), state.state_of(task), state.attempts(task));
            let wanted = (seen.parent, seen.state, seen.attempts);
            kept(found == wanted, || format!("{task:?} is {found:?}, wanted {wanted:?}"))?;
            let ending = state.ending(task);
            kept(ending == seen.ending, || {
                format!("{task:?} ended as {ending:?}, wanted {:?}", seen.ending)
            })?;
            let (found, wanted) = (accounts.spent(state.id(task)), self.purses.spent(task));
            kept(found == wanted, || format!("{task:?} spent {found:?}, wanted {wanted:?}"))?;
        }
        Ok(())
    }

    /// Looks for a task that could begin, while there is room for it.
    pub(super) fn none_waits_for_nothing(&self, state: &State) -> Kept {
        if self.is_paused || self.is_finished || state.slots_used() >= self.width {
            return Ok(());
        }
        // Whoever overlaps with one at work waits, and whoever overlaps with one that waits may.
        let is_waiting = |task: TaskIndex| {
            let claims = !self.claimed(state, task).is_empty();
            claims && state.tasks().any(|other| self.writes_beside(state, other).is_some())
        };
        let waits = state.tasks().find(|task| {
            let seen = self.of(*task);
            let is_limited = seen.parent.is_some_and(|parent| {
                matches!(&state.spec(parent).body, Body::ForEach(each) if each.max_concurrency.is_some())
            });
            seen.state == TaskState::Created
                && !is_limited
                && !state.is_stopping(*task)
                && seen.depends_on.iter().all(|before| self.ended_well(*before))
                && seen.parent.is_none_or(|parent| state.is_acting(parent))
                && !is_waiting(*task)
        });
        kept(waits.is_none(), || format!("{waits:?} is ready, and there is room for it"))
    }
}

/// Returns what becomes of the children of a task beside one that failed, of a task that lives by its children.
fn on_failure(state: &State, task: TaskIndex) -> Option<OnFailure> {
    match &state.spec(task).body {
        Body::Subtasks { on_failure, .. } => Some(*on_failure),
        Body::ForEach(each) => Some(each.on_failure),
        _ => None,
    }
}

/// Finds one of these that has not ended.
fn seen_open(tasks: &[Seen], these: &[TaskIndex]) -> Option<TaskIndex> {
    let is_open =
        |it: &&TaskIndex| tasks.get(it.position()).is_some_and(|it| !it.state.is_terminal());
    these.iter().find(is_open).copied()
}

fn kept(holds: bool, promise: impl FnOnce() -> String) -> Kept {
    if holds { Ok(()) } else { Err(promise()) }
}
