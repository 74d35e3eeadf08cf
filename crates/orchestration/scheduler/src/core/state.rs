//! The tree in flat arrays.

use std::{collections::VecDeque, num::NonZeroUsize, sync::Arc};

use formwork_protocols::{
    Body, Ending, Escalation, Span, TaskId, TaskSpec, TaskState, budget::OnExhausted,
    spec::OnFailure,
};

use super::{claims::Claims, clock, made::Join};
use crate::ids::IdMap;

/// A task's place in the arrays of a [`State`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(pub(super) u32);

impl TaskIndex {
    /// Stands for no task in a link between nodes.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// Returns the place as a position in a list.
    pub const fn position(self) -> usize {
        self.0 as usize
    }

    pub(super) const fn get(self) -> Option<Self> {
        if self.0 == Self::NONE.0 { None } else { Some(self) }
    }
}

/// What of a task is under way outside the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing.
    Idle,
    /// The checks of its phase.
    Checks,
    /// An attempt at its body.
    Body,
}

/// How a body is carried out, as far as the core cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By attempts of an executor.
    Leaf,
    /// By its children.
    Parent(OnFailure),
    /// By somebody outside.
    Wait,
    /// Within the attempt of the task above.
    Inline,
}

impl Kind {
    pub(super) const fn of(body: &Body) -> Self {
        match body {
            Body::Subtasks { on_failure, .. } => Self::Parent(*on_failure),
            Body::ForEach(each) => Self::Parent(each.on_failure),
            Body::WaitFor(_) | Body::Decision(_) => Self::Wait,
            Body::Inline { .. } => Self::Inline,
            _ => Self::Leaf,
        }
    }
}

/// What is known of a task's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nobody was asked.
    Unknown,
    /// It was asked whether it holds.
    Asked,
    /// It holds, or there is none.
    Holds,
}

/// Whether the children of a task are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expansion {
    /// There will be one for each item of a list that nobody has been asked for.
    Unknown,
    /// The list was asked for.
    Asked,
    /// They are all there.
    Done,
}

/// A task and its links. One cache line and a half, so that a hundred thousand of them are cheap.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: TaskId,
    pub(super) spec: Arc<TaskSpec>,
    /// How it has to end as soon as nothing of it is under way any more.
    pub(super) stop: Option<Box<Ending>>,
    /// How it ended, where it did not complete.
    pub(super) ending: Option<Box<Ending>>,
    pub(super) parent: TaskIndex,
    pub(super) first_child: TaskIndex,
    pub(super) last_child: TaskIndex,
    pub(super) next_sibling: TaskIndex,
    /// The first child that failed.
    pub(super) failed_child: TaskIndex,
    /// Where its dependents begin in the state's edges, and how many they are.
    pub(super) edges: (u32, u32),
    /// Dependencies that have not ended well yet.
    pub(super) waiting: u32,
    pub(super) children: u32,
    /// Children that have not ended.
    pub(super) open: u32,
    /// How many of its children may be worked on at once, and how many are.
    pub(super) limit: u32,
    pub(super) running: u32,
    /// The first child whose turn has not come.
    pub(super) next_child: TaskIndex,
    /// Levels above.
    pub(super) depth: u32,
    /// Tasks of its subtree, itself included.
    pub(super) size: u32,
    /// The number of its latest attempt; 0 before the first.
    pub(super) attempt: u32,
    /// The attempt of its parent in which it was made; 0 where it was there from the beginning.
    pub(super) born: u32,
    /// Attempts that failed by what may pass by itself.
    pub(super) passing: u32,
    /// The exit check that failed last.
    pub(super) failed_check: u32,
    pub(super) state: TaskState,
    pub(super) kind: Kind,
    pub(super) work: Work,
    pub(super) condition: Condition,
    pub(super) expansion: Expansion,
    /// Whether it counts among the children that its parent works on.
    pub(super) released: bool,
    /// Whether what it waited for is there.
    pub(super) woken: bool,
    /// Whether it was let try again once because of the form of what it handed over.
    pub(super) repaired: bool,
    /// Whether its exit checks have passed, and what follows has begun.
    pub(super) follows: bool,
    /// Whether the latest attempt has not ended.
    pub(super) attempt_open: bool,
    /// Whether it occupies a place of the width.
    pub(super) holds_slot: bool,
    pub(super) queued: bool,
    /// Whether it decides a check of its parent, and is no part of what that does.
    pub(super) decides: bool,
    /// Whether the exit check that failed last has failed as often as it may.
    pub(super) is_last_round: bool,
}

/// The tree of a run and where each task of it stands.
#[derive(Debug)]
pub struct State {
    pub(super) nodes: Vec<Node>,
    /// The dependents of all tasks, one after the other.
    pub(super) edges: Vec<TaskIndex>,
    pub(super) index: IdMap<TaskId, TaskIndex>,
    pub(super) width: usize,
    pub(super) slots_used: usize,
    /// Tasks with work under way.
    pub(super) busy: usize,
    pub(super) paused: bool,
    /// Whether the end of the pause's last work was announced.
    pub(super) pause_told: bool,
    pub(super) ready: VecDeque<TaskIndex>,
    /// Tasks that ended and whose consequences are to be drawn.
    pub(super) ended: VecDeque<TaskIndex>,
    /// How bodies stand towards the tasks that they have made; few have any.
    pub(super) joins: IdMap<TaskIndex, Join>,
    pub(super) claims: Claims,
    /// Whether somebody governs the run, and how many tries were granted to tasks beyond their own; few have any.
    pub(super) is_overseen: bool,
    pub(super) granted: IdMap<TaskIndex, u32>,
    /// Kept between calls so that stopping a subtree allocates once.
    pub(super) scratch: Vec<TaskIndex>,
}

impl State {
    pub(super) const ROOT: TaskIndex = TaskIndex(0);

    pub(super) fn empty(width: NonZeroUsize) -> Self {
        Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            index: IdMap::default(),
            width: width.get(),
            slots_used: 0,
            busy: 0,
            paused: false,
            pause_told: false,
            ready: VecDeque::new(),
            ended: VecDeque::new(),
            joins: IdMap::default(),
            claims: Claims::default(),
            is_overseen: false,
            granted: IdMap::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns how many tasks there are, ended ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Tells whether there is no task; a state that was built has a root.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the root task.
    pub const fn root(&self) -> TaskIndex {
        Self::ROOT
    }

    /// Lists all tasks, parents before their children.
    pub fn tasks(&self) -> impl Iterator<Item = TaskIndex> + use<> {
        // A place is a u32, so the count of places is one too.
        (0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).map(TaskIndex)
    }

    /// Returns the task of that id.
    pub fn find(&self, id: TaskId) -> Option<TaskIndex> {
        self.index.get(&id).copied()
    }

    /// Returns a task's id.
    pub fn id(&self, task: TaskIndex) -> TaskId {
        self.node(task).id
    }

    /// Returns what was asked of a task.
    pub fn spec(&self, task: TaskIndex) -> &Arc<TaskSpec> {
        &self.node(task).spec
    }

    /// Returns the task above.
    pub fn parent(&self, task: TaskIndex) -> Option<TaskIndex> {
        self.node(task).parent.get()
    }

    /// Lists the children of a task in order.
    pub fn children(&self, task: TaskIndex) -> impl Iterator<Item = TaskIndex> + '_ {
        std::iter::successors(self.node(task).first_child.get(), |child| {
            self.node(*child).next_sibling.get()
        })
    }

    /// Returns where a task stands.
    pub fn state_of(&self, task: TaskIndex) -> TaskState {
        self.node(task).state
    }

    /// Returns how a task ended, if it did.
    pub fn ending(&self, task: TaskIndex) -> Option<Ending> {
        let node = self.node(task);
        match &node.ending {
            Some(ending) => Some((**ending).clone()),
            None => (node.state == TaskState::Completed).then_some(Ending::Completed),
        }
    }

    /// Tells whether a task does its work by children of which none was added since it began.
    pub fn is_as_planned(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        // What decides a check is added behind what was planned.
        let is_added = node.last_child.get().is_some_and(|last| self.is_deciding(last));
        matches!(node.kind, Kind::Parent(_)) && !is_added
    }

    /// Tells of a task that has ended whether it completed.
    pub fn has_completed(&self, task: TaskIndex) -> Option<bool> {
        let node = self.node(task);
        match &node.ending {
            Some(ending) => Some(**ending == Ending::Completed),
            None => (node.state == TaskState::Completed).then_some(true),
        }
    }

    /// Returns the first child that failed, for a parent that has one.
    pub fn failed_child(&self, task: TaskIndex) -> Option<TaskIndex> {
        self.node(task).failed_child.get()
    }

    /// Returns how many attempts a task has had.
    pub fn attempts(&self, task: TaskIndex) -> u32 {
        self.node(task).attempt
    }

    /// Returns how long a task may take, and why it is given up then: by its own time or its budget's with what the budget
    /// grants beyond it, whichever is shorter.
    pub fn deadline(&self, task: TaskIndex) -> Option<(Span, Escalation)> {
        let spec = self.spec(task);
        let timeout = spec.timeout.map(|after| (after, Escalation::TimedOut { after }));
        let wall = spec.budget.wall.and_then(|after| match spec.budget.on_exhausted {
            Some(OnExhausted::Unlimited) => None,
            Some(OnExhausted::Grace(grace)) => {
                let why = clock::grace_over(&clock::wall_told(after));
                Some((after.saturating_add(grace), why))
            }
            Some(OnExhausted::BlockNew | OnExhausted::CancelAll) | None => {
                Some((after, clock::wall_over(after)))
            }
        });
        match (timeout, wall) {
            (Some(timeout), Some(wall)) => Some(if wall.0 < timeout.0 { wall } else { timeout }),
            (timeout, wall) => timeout.or(wall),
        }
    }

    /// Tells whether a task's body may act now: it is active, and nobody has asked it to stop.
    pub fn is_acting(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        node.state == TaskState::Active && node.stop.is_none()
    }

    /// Tells whether the checks of a task are under way: it has begun, and nobody has asked it to stop.
    pub fn is_checking(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        node.work == Work::Checks && node.stop.is_none()
    }

    /// Tells whether a task works itself, and waits for nobody outside.
    pub fn is_leaf(&self, task: TaskIndex) -> bool {
        self.node(task).kind == Kind::Leaf
    }

    /// Tells whether a task was made to decide a check of the task above.
    pub fn is_deciding(&self, task: TaskIndex) -> bool {
        self.node(task).decides
    }

    /// Tells whether a task has been asked to stop and has not ended yet.
    pub fn is_stopping(&self, task: TaskIndex) -> bool {
        self.node(task).stop.is_some()
    }

    /// Returns how many tasks occupy a place of the width.
    pub const fn slots_used(&self) -> usize {
        self.slots_used
    }

    pub(super) fn node(&self, task: TaskIndex) -> &Node {
        &self.nodes[task.position()]
    }

    pub(super) fn node_mut(&mut self, task: TaskIndex) -> &mut Node {
        &mut self.nodes[task.position()]
    }

    /// Adds a task below its parent, which stands before it in the arrays.
    pub(super) fn push(&mut self, id: TaskId, parent: TaskIndex, spec: Arc<TaskSpec>) -> TaskIndex {
        let place = TaskIndex(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let (depth, born) = parent.get().map_or((0, 0), |parent| {
            let above = self.node(parent);
            (above.depth + 1, above.attempt)
        });
        let kind = Kind::of(&spec.body);
        let (limit, expansion) = match &spec.body {
            Body::ForEach(each) => {
                let limit = each.max_concurrency.map_or(u32::MAX, std::num::NonZeroU32::get);
                (limit, Expansion::Unknown)
            }
            _ => (u32::MAX, Expansion::Done),
        };
        let condition = if spec.when.is_some() { Condition::Unknown } else { Condition::Holds };
        let decides = spec.decides().is_some();
        self.nodes.push(Node {
            id,
            spec,
            stop: None,
            ending: None,
            parent,
            first_child: TaskIndex::NONE,
            last_child: TaskIndex::NONE,
            next_sibling: TaskIndex::NONE,
            failed_child: TaskIndex::NONE,
            edges: (0, 0),
            waiting: 0,
            children: 0,
            open: 0,
            depth,
            size: 1,
            attempt: 0,
            born,
            passing: 0,
            failed_check: 0,
            state: TaskState::Created,
            kind,
            work: Work::Idle,
            condition,
            expansion,
            released: false,
            woken: false,
            repaired: false,
            follows: false,
            limit,
            running: 0,
            next_child: TaskIndex::NONE,
            attempt_open: false,
            holds_slot: false,
            queued: false,
            decides,
            is_last_round: false,
        });
        self.index.insert(id, place);
        if let Some(parent) = parent.get() {
            match self.node(parent).last_child.get() {
                Some(last) => self.node_mut(last).next_sibling = place,
                None => self.node_mut(parent).first_child = place,
            }
            let above = self.node_mut(parent);
            above.last_child = place;
            above.children += 1;
            above.open += 1;
            let mut ancestor = Some(parent);
            while let Some(task) = ancestor {
                self.node_mut(task).size += 1;
                ancestor = self.node(task).parent.get();
            }
        }
        place
    }

    /// Tells whether what depends on a task may go on.
    pub(super) fn satisfies(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        match &node.ending {
            Some(ending) => ending.satisfies(),
            None => node.state == TaskState::Completed,
        }
    }
}
