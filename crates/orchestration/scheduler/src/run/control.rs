//! Tasks within a conversation, asked for from outside the loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use formwork_protocols::{
    Body, Claim, Ending, TaskId, TaskName, TaskOutcome, TaskSpec, Usd, spec::CheckPlace,
    tool::TaskControl,
};
use tokio::sync::{mpsc, oneshot};

use super::{drive::Drive, work::Effect};
use crate::{
    core::{Input, State, TaskIndex, flatten},
    ids::IdSet,
    workflow::tighten,
};

/// Requests that may wait for the loop: each comes of an attempt that waits for its answer, and no
/// run is that wide by default.
pub(super) const WAITING: usize = 64;

/// How long the name of a task may be.
const LONGEST: usize = 64;

/// What an attempt asks of the loop.
pub(super) enum Request {
    Open { parent: TaskId, name: TaskName, goal: String, reply: Reply },
    Close { task: TaskId, claim: Claim, reply: Reply },
    Make { parent: TaskId, spec: Box<TaskSpec>, reply: Reply },
    Await { task: TaskId, names: Vec<TaskName>, reply: Reply<Vec<TaskOutcome>> },
    Probe { task: TaskId, spec: Box<TaskSpec>, reply: Reply<Vec<TaskOutcome>> },
    MayEnd { task: TaskId, reply: Reply<()> },
}

pub(super) type Reply<T = TaskId> = oneshot::Sender<Result<T, String>>;

/// Who waits for which tasks, and where they are told of.
#[derive(Debug)]
pub(super) struct Awaited {
    on: Vec<TaskIndex>,
    reply: Reply<Vec<TaskOutcome>>,
}

/// The tasks that may call tools now.
#[derive(Debug, Default)]
pub(super) struct Active(Mutex<IdSet<TaskId>>);

impl Active {
    pub(super) fn add(&self, task: TaskId) {
        self.lock().insert(task);
    }

    pub(super) fn remove(&self, task: TaskId) {
        self.lock().remove(&task);
    }

    fn lock(&self) -> MutexGuard<'_, IdSet<TaskId>> {
        // A set of ids is whole after every call, whoever panicked meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle that attempts hold.
pub(super) struct Control {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) active: Arc<Active>,
}

impl Control {
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, String> {
        let over = || "the run takes no more tasks, it is ending".to_owned();
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| over())?;
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

#[async_trait]
impl TaskControl for Control {
    fn is_active(&self, task: TaskId) -> bool {
        self.active.lock().contains(&task)
    }

    async fn start(&self, parent: TaskId, name: TaskName, goal: String) -> Result<TaskId, String> {
        self.ask(|reply| Request::Open { parent, name, goal, reply }).await
    }

    async fn end(&self, task: TaskId, claim: Claim) -> Result<TaskId, String> {
        self.ask(|reply| Request::Close { task, claim, reply }).await
    }

    async fn make(&self, parent: TaskId, spec: TaskSpec) -> Result<TaskId, String> {
        self.ask(|reply| Request::Make { parent, spec: Box::new(spec), reply }).await
    }

    async fn results(
        &self,
        task: TaskId,
        names: Vec<TaskName>,
    ) -> Result<Vec<TaskOutcome>, String> {
        self.ask(|reply| Request::Await { task, names, reply }).await
    }

    async fn probe(&self, task: TaskId, spec: TaskSpec) -> Result<TaskOutcome, String> {
        let spec = Box::new(spec);
        let outcomes = self.ask(|reply| Request::Probe { task, spec, reply }).await?;
        outcomes.into_iter().next().ok_or_else(|| "it ended without an outcome".to_owned())
    }

    async fn may_end(&self, task: TaskId) -> Result<(), String> {
        self.ask(|reply| Request::MayEnd { task, reply }).await
    }
}

impl Drive {
    pub(super) fn answer(&mut self, request: Request) {
        let gone = |task: TaskId| format!("there is no task {task}");
        let (reply, answer) = match request {
            Request::Open { parent, name, goal, reply } => {
                let id = TaskId::generate(&*self.scheduler.clock, &*self.scheduler.rng);
                let spec = Arc::new(TaskSpec::new(name, Body::Inline { goal }));
                let answer = match self.tree.state.find(parent) {
                    None => Err(gone(parent)),
                    Some(parent) => self
                        .decide(Input::Open { parent, id, spec })
                        .map(|()| id)
                        .map_err(|refusal| refusal.to_string()),
                };
                (reply, answer)
            }
            Request::Close { task, claim, reply } => {
                let answer = match self.tree.state.find(task) {
                    None => Err(gone(task)),
                    Some(index) => self.close(index, claim),
                };
                (reply, answer)
            }
            Request::Make { parent, spec, reply } => {
                let answer = match self.tree.state.find(parent) {
                    None => Err(gone(parent)),
                    Some(parent) => self.make(parent, *spec),
                };
                (reply, answer)
            }
            Request::Await { task, names, reply } => {
                let waits = match self.tree.state.find(task) {
                    None => Err(gone(task)),
                    Some(task) => self.named(task, &names).map(|on| (task, on)),
                };
                match waits {
                    Ok((task, on)) => self.await_all(task, Awaited { on, reply }),
                    // One that no longer listens has been broken off.
                    Err(reason) => drop(reply.send(Err(reason))),
                }
                return;
            }
            Request::Probe { task, spec, reply } => {
                let begun = match self.tree.state.find(task) {
                    None => Err(gone(task)),
                    Some(task) => self.probe(task, *spec).map(|root| (task, root)),
                };
                match begun {
                    Ok((task, root)) => self.await_all(task, Awaited { on: vec![root], reply }),
                    Err(reason) => drop(reply.send(Err(reason))),
                }
                return;
            }
            Request::MayEnd { task, reply } => {
                let found = self.tree.state.find(task);
                let answer = found.ok_or_else(|| gone(task)).and_then(|task| self.may_end(task));
                drop(reply.send(answer));
                return;
            }
        };
        self.effects.push(Effect::Answer(reply, answer));
    }

    /// Makes a task with all below it. What was made already, as by a call whose outcome a crash has swallowed, is
    /// not made again.
    fn make(&mut self, parent: TaskIndex, spec: TaskSpec) -> Result<TaskId, String> {
        let state = &self.tree.state;
        if let Some(before) = state.made_as(parent, &spec.name)
            && is_made_of(state, before, &spec)
        {
            return Ok(state.id(before));
        }
        let (clock, rng) = (&*self.scheduler.clock, &*self.scheduler.rng);
        let tree = flatten(spec, || TaskId::generate(clock, rng));
        let root = tree.first().map(|root| root.id);
        self.decide(Input::Make { parent, tree }).map_err(|refusal| refusal.to_string())?;
        root.ok_or_else(|| "it has no task".to_owned())
    }

    /// Begins a tree that decides a check of a task, or finds the one that was begun for it and has told nobody yet.
    fn probe(&mut self, task: TaskIndex, mut spec: TaskSpec) -> Result<TaskIndex, String> {
        let state = &self.tree.state;
        let place = spec.decides().ok_or("it names no check that it decides")?;
        let told = |root: TaskIndex| self.tree.of(root).is_some_and(|known| known.was_told);
        if let Some(begun) = state.deciding(task, place).find(|root| !told(*root)) {
            return Ok(begun);
        }
        // Each run of the check is a task of its own, in the order in which they were made.
        let mut number = 1_usize;
        let base = spec.name.clone();
        while state.made_as(task, &spec.name).is_some() {
            number += 1;
            spec.name = numbered(&base, number);
        }
        self.within_share(task, place, &mut spec);
        let id = || TaskId::generate(&*self.scheduler.clock, &*self.scheduler.rng);
        let tree = flatten(spec, id);
        let root = tree.first().map(|root| root.id);
        self.decide(Input::Probe { parent: task, tree }).map_err(|refusal| refusal.to_string())?;
        root.and_then(|id| self.tree.state.find(id)).ok_or_else(|| "it has no task".to_owned())
    }

    /// Takes from the budget of a check what its earlier runs have used of it, at all attempts together.
    fn within_share(&self, task: TaskIndex, place: CheckPlace, spec: &mut TaskSpec) {
        let state = &self.tree.state;
        let own = state.spec(task);
        let Some(check) = own.checks(place.phase).get(place.index as usize) else { return };
        let mut left = check.budget.clone();
        for before in state.children(task) {
            if state.spec(before).decides() != Some(place) {
                continue;
            }
            let spent = self.tree.accounts.spent(state.id(before));
            left.usd = left.usd.map(|usd| usd.saturating_sub(spent.usd).max(Usd::ZERO));
            left.tokens = left.tokens.map(|tokens| tokens.saturating_sub(spent.usage.total()));
            left.rounds = left.rounds.map(|rounds| rounds.saturating_sub(spent.rounds));
            left.tool_calls = left.tool_calls.map(|calls| calls.saturating_sub(spent.tool_calls));
        }
        tighten(&mut spec.budget, &left);
    }

    /// Finds what a task has made, by name; all of it where nothing is named.
    fn named(&self, task: TaskIndex, names: &[TaskName]) -> Result<Vec<TaskIndex>, String> {
        let state = &self.tree.state;
        let made: Vec<TaskIndex> = state.made(task).collect();
        let known = || {
            let names: Vec<&str> =
                made.iter().map(|made| state.spec(*made).name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let own = &state.spec(task).name;
        if names.is_empty() && made.is_empty() {
            return Err(format!("task {own} has made no task that could be waited for"));
        }
        if names.is_empty() {
            return Ok(made);
        }
        let find = |name: &TaskName| {
            state.made_as(task, name).ok_or_else(|| {
                format!(
                    "task {own} has made no task {name}, and waits only for its own: {}",
                    known()
                )
            })
        };
        // Whoever is named twice is told of once, in the place where it is named first.
        let mut found: Vec<TaskIndex> = Vec::with_capacity(names.len());
        for task in names.iter().map(find) {
            let task = task?;
            if !found.contains(&task) {
                found.push(task);
            }
        }
        Ok(found)
    }

    fn await_all(&mut self, task: TaskIndex, awaited: Awaited) {
        let host = self.tree.state.host(task);
        let on = awaited.on.clone();
        // It may be told at once.
        self.awaited.insert(host, awaited);
        if let Err(refusal) = self.decide(Input::Await { task, on })
            && let Some(awaited) = self.awaited.remove(&host)
        {
            drop(awaited.reply.send(Err(refusal.to_string())));
        }
    }

    /// Has those go on who no longer listen to what they waited for, in a place of the width once there is one.
    pub(super) fn let_go_on(&mut self) {
        let left =
            |(host, awaited): (&TaskIndex, &Awaited)| awaited.reply.is_closed().then_some(*host);
        let left: Vec<TaskIndex> = self.awaited.iter().filter_map(left).collect();
        for task in left {
            self.awaited.remove(&task);
            self.decide_late(Input::Await { task, on: Vec::new() });
        }
    }

    /// Tells a body what came of the tasks that it has waited for.
    pub(super) fn rejoin(&mut self, host: TaskIndex) {
        let Some(Awaited { on, reply }) = self.awaited.remove(&host) else { return };
        let mut outcomes = Vec::new();
        for &task in &on {
            outcomes.extend(self.tree.outcome(task));
            // A tree says nothing of itself: its parts do.
            if matches!(self.tree.state.spec(task).body, Body::Subtasks { .. }) {
                let parts = self.tree.state.children(task);
                outcomes.extend(parts.filter_map(|part| self.tree.outcome(part)));
            }
        }
        for task in on {
            self.tree.of_mut(task).was_told = true;
        }
        self.effects.push(Effect::Told(reply, Ok(outcomes)));
    }

    /// Tells whether a body may say that it is done: what it has made has ended, and it knows of what failed.
    fn may_end(&self, task: TaskIndex) -> Result<(), String> {
        let state = &self.tree.state;
        let mut untold = Vec::new();
        for made in state.made(task) {
            let name = &state.spec(made).name;
            match state.ending(made) {
                None => untold.push(format!("{name} is {}", state.state_of(made))),
                Some(Ending::Completed) => {}
                Some(_) if self.tree.of(made).is_some_and(|known| known.was_told) => {}
                Some(ending) => untold.push(format!("{name} ended: {ending}")),
            }
        }
        if untold.is_empty() {
            return Ok(());
        }
        Err(format!(
            "task {} has made tasks that it does not know the end of: {}. Wait for them with await_tasks first.",
            state.spec(task).name,
            super::tree::one_line(&untold.join("; "))
        ))
    }

    pub(super) fn close(&mut self, task: TaskIndex, claim: Claim) -> Result<TaskId, String> {
        let before = self.tree.of_mut(task).claim.replace(Arc::new(claim));
        match self.decide(Input::Close { task }) {
            Ok(()) => {
                let state = &self.tree.state;
                let parent = state.parent(task).map(|parent| state.id(parent));
                Ok(parent.unwrap_or_else(|| state.id(task)))
            }
            Err(refusal) => {
                self.tree.of_mut(task).claim = before;
                Err(refusal.to_string())
            }
        }
    }
}

/// Tells whether a task that was made is what is wanted, with all that is below it.
fn is_made_of(state: &State, task: TaskIndex, wanted: &TaskSpec) -> bool {
    let mut open = vec![(task, wanted)];
    while let Some((task, wanted)) = open.pop() {
        let children: Vec<TaskIndex> = match wanted.body {
            Body::Subtasks { .. } => state.children(task).collect(),
            // What it has made itself is nothing that was asked for.
            _ => Vec::new(),
        };
        let below = wanted.body.below();
        let mut own = wanted.clone();
        if let Body::Subtasks { tasks, .. } = &mut own.body {
            tasks.clear();
        }
        if **state.spec(task) != own || children.len() != below.len() {
            return false;
        }
        open.extend(children.into_iter().zip(below));
    }
    true
}

/// Puts a number behind a name, within what a name may have.
fn numbered(base: &TaskName, number: usize) -> TaskName {
    let tail = format!("-{number}");
    let room = LONGEST.saturating_sub(tail.len());
    let head: String = base.as_str().chars().take(room).collect();
    TaskName::parse(format!("{head}{tail}")).expect("a name with a number behind it is one")
}
