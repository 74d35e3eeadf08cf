//! How large the tree is that is written down, held to the caps that are said of it before anything runs.

use formwork_protocols::{
    Body, TaskName, TaskSpec,
    budget::{Cap, TreeCaps},
    document::{self, Diagnostic, Diagnostics},
};

use super::{
    document::{TaskDocument, WorkflowDocument},
    plan::Reader,
};

/// How large what is written down below a task is. The items of a list are known once it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Levels below it.
    levels: u64,
    /// The most children that it or one below has.
    widest: u64,
    /// Tasks altogether, itself included.
    tasks: u64,
}

impl Extent {
    /// Measures what is below a task.
    fn of<T>(tasks: &[T], below: fn(&T) -> &[T]) -> Self {
        let mut own = Self { levels: 0, widest: tasks.len() as u64, tasks: 1 };
        for task in tasks {
            let part = Self::of(below(task), below);
            own.levels = own.levels.max(part.levels + 1);
            own.widest = own.widest.max(part.widest);
            own.tasks += part.tasks;
        }
        own
    }

    /// Lists the caps that do not hold it, each with what is written down and what is allowed. What stands alone grows by
    /// nothing.
    fn beyond(self, caps: TreeCaps) -> impl Iterator<Item = (Cap, u64, u32)> {
        let Self { levels, widest, tasks } = self;
        let caps = [
            (Cap::Depth, levels, caps.depth),
            (Cap::FanOut, widest, caps.fan_out),
            (Cap::Tasks, tasks, caps.tasks),
        ];
        caps.into_iter().filter(move |(_, found, limit)| tasks > 1 && *found > u64::from(*limit))
    }
}

/// A plan that its caps do not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task {task} has {found} {what} written down, and may have {limit}", what = cap.unit())]
#[expect(missing_docs, reason = "the message names its fields")]
pub struct Beyond {
    pub task: TaskName,
    pub cap: Cap,
    pub found: u64,
    pub limit: u32,
}

/// Finds a task with more written down below it than the caps that it says allow.
pub(super) fn beyond(root: &TaskSpec) -> Option<Beyond> {
    let mut open = vec![root];
    while let Some(task) = open.pop() {
        let below = task.body.below();
        open.extend(below.iter().rev());
        let Some(caps) = task.budget.tree else { continue };
        let extent = Extent::of(subtasks(task), subtasks);
        if let Some((cap, found, limit)) = extent.beyond(caps).next() {
            return Some(Beyond { task: task.name.clone(), cap, found, limit });
        }
    }
    None
}

/// Returns what a task has others do from its beginning on.
fn subtasks(task: &TaskSpec) -> &[TaskSpec] {
    match &task.body {
        Body::Subtasks { tasks, .. } => tasks,
        _ => &[],
    }
}

/// Returns what is written down below a task. What is done for each item is there once the items are known.
pub(super) fn written(task: &TaskDocument) -> &[TaskDocument] {
    match &task.for_each {
        Some(_) => &[],
        None => task.subtasks.as_deref().unwrap_or_default(),
    }
}

impl Reader<'_> {
    /// Holds what is written down below a task against the caps of its tree.
    pub(super) fn tree(&mut self, place: &str, caps: Option<TreeCaps>, below: &[TaskDocument]) {
        let Some(caps) = caps else { return };
        for (cap, found, limit) in Extent::of(below, written).beyond(caps) {
            let key = match cap {
                Cap::Depth => "depth",
                Cap::FanOut => "fan_out",
                _ => "tasks",
            };
            let hint = counted(cap);
            self.fault(&format!("{place}/budget/tree/{key}"), told(cap, found, limit), hint);
        }
    }
}

/// Holds what a workflow writes down against caps of a tree that are said elsewhere.
pub fn beyond_caps(source: &str, text: &str, caps: TreeCaps) -> Diagnostics {
    let mut faults = Diagnostics::default();
    let Some(parsed) = document::salvage::<WorkflowDocument>(source, text) else { return faults };
    for (cap, found, limit) in Extent::of(&parsed.value.tasks, written).beyond(caps) {
        let message = format!("{} by budget.tree of the config", told(cap, found, limit));
        let fault = parsed.diagnostic("/tasks", message);
        faults.merge([Diagnostic { hint: counted(cap), ..fault }]);
    }
    faults
}

fn told(cap: Cap, found: u64, limit: u32) -> String {
    format!("{found} {what} are written down, and {limit} are allowed", what = cap.unit())
}

/// Says what is counted that nobody sees at once.
fn counted(cap: Cap) -> Option<String> {
    (cap == Cap::Tasks).then(|| "the one around them is one of them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_how_deep_how_wide_and_how_many() {
        // Each list is a task, and holds those below it.
        #[derive(Default)]
        struct Node(Vec<Node>);
        let leaf = Node::default;
        let tree = [leaf(), Node(vec![leaf(), leaf(), leaf()]), Node(vec![Node(vec![leaf()])])];

        let extent = Extent::of(&tree, |node| &node.0);

        assert_eq!(extent, Extent { levels: 3, widest: 3, tasks: 9 });
        let caps = TreeCaps { depth: 2, fan_out: 3, tasks: 8 };
        let beyond: Vec<_> = extent.beyond(caps).collect();
        assert_eq!(beyond, [(Cap::Depth, 3, 2), (Cap::Tasks, 9, 8)]);
        let none = TreeCaps { depth: 0, fan_out: 0, tasks: 0 };
        assert_eq!(Extent::of(&[] as &[Node], |node| &node.0).beyond(none).count(), 0);
    }
}
