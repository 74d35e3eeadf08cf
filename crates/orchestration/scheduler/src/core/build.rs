//! From what was asked, or what was recorded, to a state.

use std::{
    collections::{HashMap, hash_map::Entry},
    num::NonZeroUsize,
    sync::Arc,
};

use formwork_protocols::{Body, Ending, Escalation, TaskId, TaskName, TaskSpec, TaskState};

use super::{
    made::Join,
    state::{Expansion, State, TaskIndex},
};

/// Why specs do not make a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BuildError {
    /// There is no task at all.
    #[error("a tree needs a root task, found none")]
    Empty,
    /// A second task has no parent.
    #[error("task {task} has no parent, and the tree has a root already")]
    SecondRoot { task: TaskId },
    /// The parent of a task is not among those before it.
    #[error("task {task} is below {parent}, which is not there")]
    NoSuchParent { task: TaskId, parent: TaskId },
    /// Two tasks have one id.
    #[error("task {task} is there twice")]
    SameId { task: TaskId },
    /// Two children of one task have one name.
    #[error("two tasks beside each other are named {name}")]
    SameName { name: TaskName },
    /// A dependency is not among the siblings.
    #[error("task {task} depends on {wanted}, which is not beside it")]
    NoSuchDependency { task: TaskName, wanted: TaskName },
    /// Tasks wait for each other.
    #[error("task {task} waits for itself by way of what it depends on")]
    Cycle { task: TaskName },
    /// A task that is not the root names programs of the run.
    #[error("task {task} has services, and only the root of a run has them")]
    Services { task: TaskName },
    /// There are more tasks than places.
    #[error("a tree holds at most {} tasks", u32::MAX - 1)]
    TooMany,
}

/// A task with its id and its parent's, its children told apart from it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Planted {
    pub id: TaskId,
    pub parent: Option<TaskId>,
    /// A body of children lists none here; each stands for itself.
    pub spec: Arc<TaskSpec>,
}

/// Gives every task of a nested spec its id and lists them, parents before their children.
pub fn flatten(root: TaskSpec, mut next_id: impl FnMut() -> TaskId) -> Vec<Planted> {
    let mut planted = Vec::new();
    // A list instead of recursion, because an embedder may nest as deep as it likes.
    let mut level = vec![(None, root)];
    while !level.is_empty() {
        let mut below = Vec::new();
        for (parent, mut spec) in level {
            let id = next_id();
            if let Body::Subtasks { tasks, .. } = &mut spec.body {
                below.extend(std::mem::take(tasks).into_iter().map(|child| (Some(id), child)));
            }
            planted.push(Planted { id, parent, spec: Arc::new(spec) });
        }
        level = below;
    }
    planted
}

/// Where a task stood when its run was left.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Standing {
    pub state: TaskState,
    /// How it ended, if it did.
    pub ending: Option<Ending>,
    /// The number of its latest attempt; 0 before the first.
    pub attempt: u32,
    /// Whether that attempt has not ended.
    pub attempt_open: bool,
    /// The attempt of its parent in which it was made; 0 where it was there from the beginning.
    pub born: u32,
    /// How many attempts failed by what may pass by itself, and whether the latest did.
    pub passing: u32,
    #[expect(missing_docs, reason = "said above")]
    pub rests: bool,
    /// The place of the exit check that failed last.
    pub failed_check: u32,
    /// Whether what it handed over did not follow its schema once.
    pub repaired: bool,
    /// Whether its exit checks have passed, and what follows was begun.
    pub follows: bool,
    /// How many tries were granted to it beyond its own, and why it would be given up where nobody has decided about that yet.
    pub granted: u32,
    #[expect(missing_docs, reason = "said above")]
    pub overseen: Option<Escalation>,
}

/// Collects tasks and where they stand, and makes a [`State`] of them.
#[derive(Debug)]
pub struct Builder {
    state: State,
}

impl Builder {
    /// Begins with no task; at most `width` leaves will be at work at once.
    pub fn new(width: NonZeroUsize) -> Self {
        Self { state: State::empty(width) }
    }

    /// Adds a task below one that was added before; the first has no parent.
    ///
    /// # Errors
    /// [`BuildError`] when it cannot be part of the tree.
    pub fn add(
        &mut self,
        id: TaskId,
        parent: Option<TaskId>,
        spec: Arc<TaskSpec>,
    ) -> Result<TaskIndex, BuildError> {
        if self.state.find(id).is_some() {
            return Err(BuildError::SameId { task: id });
        }
        if self.state.len() >= TaskIndex::NONE.position() {
            return Err(BuildError::TooMany);
        }
        // They would be neither started nor missed.
        let named = parent.and(Some(&*spec).filter(|own| !own.services.is_empty()));
        if let Some(named) = named.or_else(|| with_services(spec.body.below())) {
            return Err(BuildError::Services { task: named.name.clone() });
        }
        let parent = match parent {
            None if self.state.is_empty() => TaskIndex::NONE,
            None => return Err(BuildError::SecondRoot { task: id }),
            Some(parent) => {
                self.state.find(parent).ok_or(BuildError::NoSuchParent { task: id, parent })?
            }
        };
        Ok(self.state.push(id, parent, spec))
    }

    /// Returns the task of that id, if it was added.
    pub fn find(&self, id: TaskId) -> Option<TaskIndex> {
        self.state.find(id)
    }

    /// Returns the task that was added at that place.
    pub fn at(&self, place: usize) -> Option<TaskIndex> {
        u32::try_from(place).ok().filter(|_| place < self.state.len()).map(TaskIndex)
    }

    /// Puts a task where it stood; tasks are [created](TaskState::Created) otherwise.
    pub fn stand(&mut self, task: TaskIndex, standing: Standing) {
        let node = self.state.node_mut(task);
        node.state = standing.state;
        node.ending = standing.ending.filter(|end| *end != Ending::Completed).map(Box::new);
        node.attempt = standing.attempt;
        node.attempt_open = standing.attempt_open;
        node.born = standing.born;
        node.passing = standing.passing;
        node.failed_check = standing.failed_check;
        node.repaired = standing.repaired;
        node.follows = standing.follows;
        let is_open = matches!(node.state, TaskState::Active | TaskState::PostcheckFailed);
        if standing.granted > 0 {
            self.state.granted.insert(task, standing.granted);
        }
        if let Some(why) = standing.overseen.filter(|_| is_open && !standing.attempt_open) {
            self.state.joins.insert(task, Join::Overseen(why));
            return;
        }
        let node = self.state.node_mut(task);
        if standing.rests && !standing.attempt_open && standing.state == TaskState::Active {
            // Whether it rests after that attempt is decided once more.
            node.passing = node.passing.saturating_sub(1);
            let detail = "its last attempt could not reach its model".to_owned();
            let why = Escalation::Unreachable { detail };
            self.state.joins.insert(task, Join::Over(why));
        }
    }

    /// Links dependencies and counts what is open.
    ///
    /// # Errors
    /// [`BuildError`] when there is no task, or when dependencies lead nowhere or in a circle.
    pub fn build(self) -> Result<State, BuildError> {
        let mut state = self.state;
        if state.is_empty() {
            return Err(BuildError::Empty);
        }
        link(&mut state)?;
        refuse_cycles(&state)?;
        count(&mut state);
        // Tasks may end before the run is taken up, as those whose time is over.
        for task in state.tasks() {
            if state.node(task).limit != u32::MAX {
                state.count_released(task);
            }
        }
        state.reclaim();
        Ok(state)
    }
}

/// Finds one of these tasks, or of those written down below them, that has services.
fn with_services(tasks: &[TaskSpec]) -> Option<&TaskSpec> {
    let mut open: Vec<&TaskSpec> = tasks.iter().collect();
    while let Some(task) = open.pop() {
        if !task.services.is_empty() {
            return Some(task);
        }
        open.extend(task.body.below());
    }
    None
}

/// Turns dependencies by name into lists of dependents.
fn link(state: &mut State) -> Result<(), BuildError> {
    let mut pairs = Vec::new();
    for parent in state.tasks() {
        pairs_below(state, parent, &mut pairs)?;
    }
    write_edges(state, pairs);
    Ok(())
}

/// The same for the tasks that were added behind the first so many: those below each other.
pub(super) fn link_from(state: &mut State, first: usize) -> Result<(), BuildError> {
    let mut pairs = Vec::new();
    for parent in state.tasks().skip(first) {
        pairs_below(state, parent, &mut pairs)?;
    }
    pairs.sort_unstable();
    pairs.dedup();
    for (_, after) in &pairs {
        state.node_mut(*after).waiting += 1;
    }
    write_edges(state, pairs);
    Ok(())
}

/// Finds who waits for whom among the children of a task, each pair once.
fn pairs_below(
    state: &State,
    parent: TaskIndex,
    pairs: &mut Vec<(TaskIndex, TaskIndex)>,
) -> Result<(), BuildError> {
    let mut names: HashMap<&TaskName, TaskIndex> = HashMap::new();
    let is_written = matches!(state.spec(parent).body, Body::Subtasks { .. } | Body::ForEach(_));
    // Nobody depends on a part of a conversation, and a finished one leaves its name to a later one.
    let is_part = |child: &TaskIndex| {
        matches!(state.spec(*child).body, Body::Inline { .. }) || state.is_deciding(*child)
    };
    for child in state.children(parent).filter(|child| !is_part(child)) {
        match names.entry(&state.spec(child).name) {
            // What was made in an attempt leaves its name to what a later attempt makes.
            Entry::Occupied(mut taken) if !is_written => {
                taken.insert(child);
            }
            Entry::Occupied(_) => {
                return Err(BuildError::SameName { name: state.spec(child).name.clone() });
            }
            Entry::Vacant(free) => {
                free.insert(child);
            }
        }
    }
    for child in state.children(parent) {
        let spec = state.spec(child);
        for wanted in &spec.depends_on {
            let &before = names.get(wanted).ok_or_else(|| BuildError::NoSuchDependency {
                task: spec.name.clone(),
                wanted: wanted.clone(),
            })?;
            pairs.push((before, child));
        }
    }
    Ok(())
}

fn write_edges(state: &mut State, mut pairs: Vec<(TaskIndex, TaskIndex)>) {
    pairs.sort_unstable();
    pairs.dedup();
    let mut start = u32::try_from(state.edges.len()).unwrap_or(u32::MAX);
    for group in pairs.chunk_by(|one, other| one.0 == other.0) {
        let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
        if let Some((before, _)) = group.first() {
            state.node_mut(*before).edges = (start, count);
        }
        start = start.saturating_add(count);
    }
    state.edges.extend(pairs.into_iter().map(|(_, after)| after));
}

/// Has a task wait for another one that was there before it.
pub(super) fn add_edge(state: &mut State, before: TaskIndex, after: TaskIndex) {
    let (start, count) = state.node(before).edges;
    let here = state.edges.len();
    let is_last = count > 0 && start as usize + count as usize == here;
    let start = if is_last {
        start
    } else {
        // The group moves behind all others, where there is room; its old place is used no more.
        state.edges.extend_from_within(start as usize..start as usize + count as usize);
        u32::try_from(here).unwrap_or(u32::MAX)
    };
    state.edges.push(after);
    let node = state.node_mut(before);
    node.edges = (start, count + 1);
    state.node_mut(after).waiting += 1;
}

fn refuse_cycles(state: &State) -> Result<(), BuildError> {
    let mut before = vec![0_u32; state.len()];
    for after in &state.edges {
        before[after.position()] += 1;
    }
    let mut free: Vec<TaskIndex> =
        state.tasks().filter(|task| before[task.position()] == 0).collect();
    while let Some(task) = free.pop() {
        for &after in state.dependents(task) {
            before[after.position()] -= 1;
            if before[after.position()] == 0 {
                free.push(after);
            }
        }
    }
    match state.tasks().find(|task| before[task.position()] > 0) {
        Some(task) => Err(BuildError::Cycle { task: state.spec(task).name.clone() }),
        None => Ok(()),
    }
}

fn count(state: &mut State) {
    for task in state.tasks() {
        let met = state.satisfies(task);
        let (start, count) = state.node(task).edges;
        for edge in start..start + count {
            let after = state.edges[edge as usize];
            state.node_mut(after).waiting += u32::from(!met);
        }
        if state.children(task).any(|child| !state.is_deciding(child)) {
            state.node_mut(task).expansion = Expansion::Done;
        }
        if state.node(task).state.is_terminal()
            && let Some(parent) = state.parent(task)
        {
            let is_part = !state.is_deciding(task);
            let failed = !met && is_part && state.is_cause(task) && state.minds(parent);
            let above = state.node_mut(parent);
            above.open -= 1;
            if failed && above.failed_child.get().is_none() {
                above.failed_child = task;
            }
        }
    }
}
