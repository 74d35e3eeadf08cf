//! Where a task stands in its tree, by names.

use std::{fmt, sync::Arc};

use formwork_protocols::TaskName;

/// The names from the root to a task, itself included. Reads as `root/child/task`.
///
/// What is above is shared by all who stand there, so that a task of a deep tree costs no more than one of a flat one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskPath {
    above: Arc<[TaskName]>,
    own: TaskName,
}

impl TaskPath {
    /// Returns the place of a task that stands below others, the root first.
    pub const fn new(above: Arc<[TaskName]>, own: TaskName) -> Self {
        Self { above, own }
    }

    /// Lists the names, that of the root first.
    pub fn iter(&self) -> impl Iterator<Item = &TaskName> {
        self.above.iter().chain([&self.own])
    }
}

impl fmt::Display for TaskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &*self.above {
            write!(f, "{name}/")?;
        }
        self.own.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_from_the_root_to_the_task() {
        let name = |text: &str| TaskName::parse(text).unwrap();
        let root = TaskPath::new([].into(), name("root"));
        let leaf = TaskPath::new([name("root"), name("group")].into(), name("leaf"));

        assert_eq!(root.to_string(), "root");
        assert_eq!(leaf.to_string(), "root/group/leaf");
        assert_eq!(
            leaf.iter().map(|it| it.as_str()).collect::<Vec<_>>().join("/"),
            "root/group/leaf"
        );
    }
}
