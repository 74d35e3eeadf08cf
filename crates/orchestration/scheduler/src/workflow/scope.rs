//! What a task may write and what it may not, for it and all below it.

use formwork_protocols::{
    Body, Budget, TaskSpec,
    budget::OnExhausted,
    check::{CheckKind, CheckSpec, DiffCheck, UnchangedCheck},
};

use super::{check::TIMEOUT, document::TaskDocument, plan::tighten};

/// Gives to all tasks below what the tasks around them may write and may not. Those that do something
/// have what is protected checked when they end: a program that is run writes past every rule for tools,
/// and only the content tells.
pub fn handed_down(mut task: TaskSpec) -> TaskSpec {
    match &mut task.body {
        Body::Subtasks { tasks, .. } => {
            for below in std::mem::take(tasks) {
                tasks.push(handed_down(within(
                    below,
                    task.write_paths.as_ref(),
                    &task.protected_paths,
                )));
            }
        }
        Body::ForEach(each) => {
            let hollow =
                TaskSpec::new(each.task.name.clone(), Body::Inline { goal: String::new() });
            let below = std::mem::replace(&mut each.task, hollow);
            each.task =
                handed_down(within(below, task.write_paths.as_ref(), &task.protected_paths));
        }
        // What is protected elsewhere is held by the rules of tools and of the sandbox there, and its content is not seen here.
        _ if task.target.is_some() => {}
        _ => hold(&mut task),
    }
    cap_lines(&mut task);
    // Last of all: what the others find fault with is seen by nobody.
    if !task.isolation.is_none() {
        task.postchecks.push(CheckSpec::new("merged", CheckKind::Merged, TIMEOUT));
    }
    task
}

/// Adds the check that a task, with all below it, changed no more lines than its budget has, where it has none yet.
pub fn cap_lines(task: &mut TaskSpec) {
    let Some(cap) = lines_check(&task.budget) else { return };
    if !task.postchecks.contains(&cap) {
        task.postchecks.insert(0, cap);
    }
}

/// Lets the tighter of a task's budget and another hold, and its check of changed lines with it.
pub(super) fn cap(task: &mut TaskSpec, budget: &Budget) {
    let before = lines_check(&task.budget);
    tighten(&mut task.budget, budget);
    let found = task.postchecks.iter_mut().find(|check| Some(&**check) == before.as_ref());
    match found.zip(lines_check(&task.budget)) {
        Some((check, now)) => *check = now,
        None => cap_lines(task),
    }
}

/// Returns the check that compares what a task has changed with its budget, where that has a cap of it. One that stops nothing
/// counts and passes.
pub(crate) fn lines_check(budget: &Budget) -> Option<CheckSpec> {
    let lines = budget.diff_lines?;
    let is_told = budget.on_exhausted == Some(OnExhausted::Unlimited);
    let check = DiffCheck {
        max_lines: Some(lines).filter(|_| !is_told),
        max_files: None,
        allow_empty: true,
    };
    let name = match is_told {
        true => format!("more than {lines} changed lines are told of"),
        false => format!("at most {lines} changed lines"),
    };
    Some(CheckSpec::new(name, CheckKind::Diff(check), TIMEOUT))
}

/// Lets what holds around a task hold for it too.
fn within(mut task: TaskSpec, write: Option<&Vec<String>>, protected: &[String]) -> TaskSpec {
    if task.write_paths.is_none() {
        task.write_paths = write.cloned();
    }
    for glob in protected {
        if !task.protected_paths.contains(glob) {
            task.protected_paths.push(glob.clone());
        }
    }
    task
}

/// Adds the check that what is protected is unchanged, as far as no other check of the task says so: first, and
/// last as well where one in between can write.
fn hold(task: &mut TaskSpec) {
    let says = |check: &CheckSpec, glob: &String| matches!(&check.kind, CheckKind::Unchanged(unchanged) if unchanged.paths.contains(glob));
    let paths = |said: &dyn Fn(&String) -> bool| -> Vec<String> {
        task.protected_paths.iter().filter(|glob| !said(glob)).cloned().collect()
    };
    let first = paths(&|glob| task.postchecks.iter().any(|check| says(check, glob)));
    // Behind the last one that can write, whatever mends it included.
    let writes = task.postchecks.iter().rposition(|check| {
        let by_kind = matches!(
            check.kind,
            CheckKind::Command(_)
                | CheckKind::Native(_)
                | CheckKind::Suite(_)
                | CheckKind::Workflow(_)
        );
        by_kind || check.fix.is_some()
    });
    let behind = writes.map_or(&[][..], |at| task.postchecks.get(at + 1..).unwrap_or_default());
    let last = paths(&|glob| writes.is_none() || behind.iter().any(|check| says(check, glob)));
    let held = |paths: Vec<String>, when: &str| {
        let name = format!("unchanged {}{when}", paths.join(" "));
        CheckSpec::new(name, CheckKind::Unchanged(UnchangedCheck { paths }), TIMEOUT)
    };
    // It costs little, and the others may pass only because of what was changed.
    if !first.is_empty() {
        task.postchecks.insert(0, held(first, ""));
    }
    if !last.is_empty() {
        task.postchecks.push(held(last, ", after the checks"));
    }
    // What follows once the checks have passed can write as well.
    if !task.on_success.is_empty() && !task.protected_paths.is_empty() {
        task.on_success.push(held(task.protected_paths.clone(), ", after what follows"));
    }
}

/// Finds a task among these and below that says itself what it may write.
pub(super) fn scoped(tasks: &[TaskDocument]) -> Option<&TaskDocument> {
    tasks.iter().find_map(|task| {
        if task.write_paths.is_some() {
            return Some(task);
        }
        scoped(task.subtasks.as_deref().unwrap_or_default())
    })
}
