//! What prompts and expressions refer to, and whether it is there by then.

use std::collections::BTreeSet;

use formwork_expression::{Error, Expression, Reference};
use formwork_protocols::{AgentName, Body, TaskName, document::nearest_hint};

use super::{document::TaskDocument, plan::Reader, prompt};

/// What is known of the result of a task.
const RESULT: [&str; 7] =
    ["output", "text", "passed", "attempts", "cost_usd", "files_changed", "duration"];

/// A task on the way from the root to the one that is read, with those beside it.
#[derive(Clone, Copy)]
pub(super) struct Level<'a> {
    pub(super) beside: &'a [TaskDocument],
    pub(super) task: &'a TaskDocument,
}

impl Level<'_> {
    /// Tells whether there is an item on this side of a task's own list.
    fn has_item(levels: &[Level<'_>], side: Side) -> bool {
        Self::lists(levels, side).next().is_some()
    }

    /// Returns the lists around this side of a task's own, outermost first.
    fn lists<'a>(levels: &'a [Level<'_>], side: Side) -> impl Iterator<Item = &'a str> {
        let around = levels.len() - usize::from(side == Side::Around && !levels.is_empty());
        levels.iter().take(around).filter_map(|level| level.task.for_each.as_deref())
    }
}

/// On which side of its own list something of a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// It is of the task as a whole.
    Around,
    /// It is of each item.
    Within,
}

/// The names of what an item puts in.
const ITEM: [&str; 2] = ["item", "index"];

impl Reader<'_> {
    pub(super) fn agent(
        &mut self,
        place: &str,
        task: &TaskDocument,
        agent: &AgentName,
        levels: &[Level<'_>],
    ) -> Option<Body> {
        if !self.known.agents.contains(agent) {
            let names = self.known.agents.iter().map(AgentName::as_str);
            let hint = nearest_hint(agent.as_str(), names);
            self.fault(&format!("{place}/agent"), format!("there is no agent {agent}"), hint);
        }
        let Some(text) = task.prompt.as_ref().filter(|text| !text.trim().is_empty()) else {
            self.fault(place, "an agent needs a prompt", None);
            return None;
        };
        self.template(&format!("{place}/prompt"), text, levels, Side::Within);
        Some(Body::Agent { agent: agent.clone(), prompt: text.clone() })
    }

    /// Finds names within a template that lead nowhere, or to what is not done by then.
    pub(super) fn template(&mut self, place: &str, text: &str, levels: &[Level<'_>], side: Side) {
        let found = match prompt::references(text) {
            Ok(found) => found,
            Err(error) => {
                self.fault(place, error.to_string(), None);
                return;
            }
        };
        for name in found.variables {
            if !(ITEM.contains(&name.as_str()) && Level::has_item(levels, side)) {
                self.variable(place, &name, levels);
            }
        }
        for name in found.tasks {
            self.result_of(place, &name, levels);
        }
    }

    /// Tells whether something is put into a text that the workflow does not say itself: a result, be it a model's word, an
    /// event's or a person's, an item of a list of those, or a variable that a check has set by one.
    pub(super) fn is_from_outside(&self, text: &str, levels: &[Level<'_>], side: Side) -> bool {
        let Ok(found) = prompt::references(text) else { return false };
        let mut lists = Level::lists(levels, side);
        let is_item = found.variables.contains(ITEM[0]) && Level::has_item(levels, side);
        found.results
            || found.variables.iter().any(|name| self.says_not_itself(name))
            || is_item && lists.any(|list| self.is_list_from_outside(list))
    }

    /// Tells whether what is put in by a name is not the workflow's own.
    fn says_not_itself(&self, name: &str) -> bool {
        self.known.outside.contains(name) || self.outputs.contains_key(name)
    }

    fn is_list_from_outside(&self, list: &str) -> bool {
        let Ok(parsed) = Expression::parse(list) else { return false };
        let has_any = !self.known.outside.is_empty() || !self.outputs.is_empty();
        parsed.references().any(|reference| match (reference.name(), reference.path().as_slice()) {
            ("tasks", _) => true,
            ("vars", [_, name, ..]) => self.says_not_itself(name),
            ("vars", _) => has_any,
            // The list around it is looked at for itself.
            _ => false,
        })
    }

    /// Parses an expression, and finds names within it that lead nowhere, or to what is not done by then.
    pub(super) fn expression(
        &mut self,
        place: &str,
        source: &str,
        levels: &[Level<'_>],
        side: Side,
    ) {
        self.expression_with(place, source, levels, side, &[]);
    }

    /// The same, where `more` names are known.
    pub(super) fn expression_with(
        &mut self,
        place: &str,
        source: &str,
        levels: &[Level<'_>],
        side: Side,
        more: &[&str],
    ) {
        let parsed = match Expression::parse(source) {
            Ok(parsed) => parsed,
            Err(error) => {
                let hint = match error {
                    Error::NoSuchFunction { .. } => Some(
                        "the functions of CEL, and lines(), split() and trim() of a text"
                            .to_owned(),
                    ),
                    _ => None,
                };
                self.fault(place, error.to_string(), hint);
                return;
            }
        };
        for reference in parsed.references() {
            let is_item = ITEM.contains(&reference.name()) && Level::has_item(levels, side);
            if !is_item && !more.contains(&reference.name()) {
                self.reference(place, reference, levels);
            }
        }
    }

    fn reference(&mut self, place: &str, reference: &Reference, levels: &[Level<'_>]) {
        match (reference.name(), reference.path().as_slice()) {
            ("vars", [_, name, ..]) => self.variable(place, name, levels),
            ("vars", _) => {}
            ("tasks", [_, name, rest @ ..]) => {
                let is_there = self.result_of(place, name, levels);
                if let Some(field) = rest.first().filter(|field| !RESULT.contains(*field))
                    && is_there
                {
                    let hint = nearest_hint(field, RESULT)
                        .unwrap_or_else(|| format!("a result has {}", RESULT.join(", ")));
                    let message = format!("the result of task {name} has no {field}");
                    self.fault(place, message, Some(hint));
                }
            }
            ("tasks", _) => {
                let hint = "name the task: tasks.NAME.passed".to_owned();
                self.fault(place, "tasks stands for no single task", Some(hint));
            }
            (name, _) => {
                let declared = &self.workflow.variables;
                let is_known = declared.keys().any(|known| known.as_str() == name)
                    || self.outputs.contains_key(name);
                let hint = if is_known {
                    Some(format!("write vars.{name}"))
                } else {
                    nearest_hint(name, ["vars", "tasks"])
                        .or_else(|| Some("an expression knows vars.NAME and tasks.NAME".to_owned()))
                };
                self.fault(place, format!("there is nothing named {name}"), hint);
            }
        }
    }

    fn variable(&mut self, place: &str, name: &str, levels: &[Level<'_>]) {
        let declared = &self.workflow.variables;
        if declared.keys().any(|known| known.as_str() == name) {
            return;
        }
        if let Some(task) = self.outputs.get(name).copied() {
            self.output_of(place, (name, task), levels);
            return;
        }
        let names = declared.keys().map(|known| known.as_str()).chain(self.outputs.keys().copied());
        let hint = nearest_hint(name, names);
        self.fault(place, format!("there is no variable {name}"), hint);
    }

    /// Says where the result that a task gives a name to may not be there by then.
    fn output_of(&mut self, place: &str, (name, task): (&str, &TaskName), levels: &[Level<'_>]) {
        let gives =
            |other: &TaskDocument| other.output.as_ref().is_some_and(|own| own.as_str() == name);
        let Some(level) = levels.iter().rev().find(|level| level.beside.iter().any(gives)) else {
            let message =
                format!("{name} is the output of task {task}, which is not beside or above it");
            self.fault(place, message, None);
            return;
        };
        let around = &level.task.name;
        if around == task {
            let message = format!("{name} is the output of task {task} itself");
            self.fault(place, message, None);
        } else if !waits_for(level.beside, level.task, task.as_str()) {
            let message =
                format!("{name} is the output of task {task}, which may not be done by then");
            let hint = format!("add {task} to the depends_on of {around}");
            self.fault(place, message, Some(hint));
        }
    }

    /// Finds the task of a name, the nearest first, and says where it may not be done by then. Tells whether
    /// there is one.
    fn result_of(&mut self, place: &str, name: &str, levels: &[Level<'_>]) -> bool {
        let has_it =
            |level: &&Level<'_>| level.beside.iter().any(|other| other.name.as_str() == name);
        let Some(level) = levels.iter().rev().find(has_it) else {
            let known: Vec<&str> = levels
                .iter()
                .flat_map(|level| level.beside.iter().map(|other| other.name.as_str()))
                .collect();
            // A name with a dash is a subtraction in an expression.
            let cut = known.iter().find(|known| known.starts_with(&format!("{name}-")));
            let hint = match cut {
                Some(whole) => {
                    Some(format!("write tasks[\"{whole}\"]: in an expression - takes away"))
                }
                None => nearest_hint(name, known.iter().copied()),
            };
            self.fault(place, format!("there is no task {name} beside or above it"), hint);
            return false;
        };
        let around = level.task;
        if !waits_for(level.beside, around, name) {
            let hint = format!("add {name} to the depends_on of {}", around.name);
            self.fault(place, format!("task {name} may not be done by then"), Some(hint));
        }
        true
    }
}

/// Tells whether `task` comes after the sibling `name`, however many lie between.
fn waits_for(siblings: &[TaskDocument], task: &TaskDocument, name: &str) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = task.depends_on.iter().map(TaskName::as_str).collect();
    while let Some(next) = open.pop() {
        if next == name {
            return true;
        }
        if seen.insert(next) {
            let found = siblings.iter().find(|sibling| sibling.name.as_str() == next);
            open.extend(
                found.into_iter().flat_map(|found| found.depends_on.iter().map(TaskName::as_str)),
            );
        }
    }
    false
}
