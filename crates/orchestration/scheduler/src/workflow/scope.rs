//! What a task may write and what it may not, for it and all below it.

use formwork_protocols::{
    Body, TaskSpec,
    check::{CheckKind, CheckSpec, DiffCheck, UnchangedCheck},
};

use super::{check::TIMEOUT, document::TaskDocument};

/// Gives to all tasks below what the tasks around them may write and may not. Those that do something
/// have what is protected checked when they end: a program that is run writes past every rule for tools,
/// and only the content tells.
pub(super) fn handed_down(mut task: TaskSpec) -> TaskSpec {
    match &mut task.body {
        Body::Subtasks { tasks, .. } => {
            for below in std::mem::take(tasks) {
                tasks.push(handed_down(within(below, &task.write_paths, &task.protected_paths)));
            }
        }
        Body::ForEach(each) => {
            let hollow =
                TaskSpec::new(each.task.name.clone(), Body::Inline { goal: String::new() });
            let below = std::mem::replace(&mut each.task, hollow);
            each.task = handed_down(within(below, &task.write_paths, &task.protected_paths));
        }
        _ => hold(&mut task),
    }
    cap_lines(&mut task);
    task
}

/// Adds the check that a task, with all below it, changed no more lines than its budget has.
fn cap_lines(task: &mut TaskSpec) {
    let Some(lines) = task.budget.diff_lines else { return };
    let check = DiffCheck { max_lines: Some(lines), max_files: None, allow_empty: true };
    let name = format!("at most {lines} changed lines");
    task.postchecks.insert(0, CheckSpec::new(name, CheckKind::Diff(check), TIMEOUT));
}

/// Lets what holds around a task hold for it too.
fn within(mut task: TaskSpec, write: &[String], protected: &[String]) -> TaskSpec {
    if task.write_paths.is_empty() {
        task.write_paths = write.to_vec();
    }
    for glob in protected {
        if !task.protected_paths.contains(glob) {
            task.protected_paths.push(glob.clone());
        }
    }
    task
}

/// Adds the check that what is protected is unchanged, as far as no other check of the task says so.
fn hold(task: &mut TaskSpec) {
    let said = |glob: &String| {
        task.postchecks.iter().any(|check| {
            matches!(&check.kind, CheckKind::Unchanged(unchanged) if unchanged.paths.contains(glob))
        })
    };
    let paths: Vec<String> =
        task.protected_paths.iter().filter(|glob| !said(glob)).cloned().collect();
    if paths.is_empty() {
        return;
    }
    let name = format!("unchanged {}", paths.join(" "));
    let kind = CheckKind::Unchanged(UnchangedCheck { paths });
    // It costs little, and the others may pass only because of what was changed.
    task.postchecks.insert(0, CheckSpec::new(name, kind, TIMEOUT));
}

/// Finds a task among these and below that says itself what it may write.
pub(super) fn scoped(tasks: &[TaskDocument]) -> Option<&TaskDocument> {
    tasks.iter().find_map(|task| {
        if !task.write_paths.is_empty() {
            return Some(task);
        }
        scoped(task.subtasks.as_deref().unwrap_or_default())
    })
}
