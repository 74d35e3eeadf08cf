//! What expressions say of the variables and of the results so far.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use formwork_expression::{Error, Expression};
use formwork_protocols::{
    Body, Escalation, TaskId, TaskName, TaskSpec,
    check::{CheckKind, CheckSpec, Phase, Verdict},
};
use serde_json::{Map, Value};

use super::{drive::Drive, output, work::failed_verdict};
use crate::{
    core::{Growth, Planted, TaskIndex, flatten},
    executor::AttemptEnd,
    results::Form,
};

/// What the core or a task asks, and what is answered at once.
#[derive(Debug)]
pub(super) enum Question {
    /// Whether the condition of a task holds.
    Condition(TaskIndex),
    /// For which items a task is done.
    Items(TaskIndex),
    /// Whether a result has the form that was asked for.
    Output { task: TaskIndex, index: u32 },
    /// Whether what a task waits for is there.
    Wait { task: TaskIndex, round: u64 },
    /// A check that could not be begun.
    Verdict { task: TaskIndex, phase: Phase, index: u32, verdict: Box<Verdict> },
    /// A command that surrounds attempts, and whose process has died over it.
    Lost { task: TaskIndex, phase: Phase, index: u32 },
    /// Such commands, all of which were made before.
    AllMade { task: TaskIndex, phase: Phase },
    /// An attempt that could not be begun.
    Failed { task: TaskIndex, end: AttemptEnd },
}

/// The expressions of a run, each parsed once. There are as many as its tasks have.
#[derive(Debug, Default)]
pub(super) struct Expressions(HashMap<String, Expression>);

impl Expressions {
    fn of(&mut self, source: &str) -> Result<Expression, Error> {
        if let Some(known) = self.0.get(source) {
            return Ok(known.clone());
        }
        let parsed = Expression::parse(source)?;
        self.0.insert(source.to_owned(), parsed.clone());
        Ok(parsed)
    }
}

impl Drive {
    /// Tells whether the condition of a task holds, or why nobody can tell.
    pub(super) fn judge(&mut self, task: TaskIndex) -> Result<bool, String> {
        let Some(source) = self.tree.state.spec(task).when.clone() else { return Ok(true) };
        let said = self.expressions.of(&source).and_then(|condition| {
            let known = self.known(task, &condition);
            condition.test(&known)
        });
        said.map_err(|error| format!("its condition {source:?} cannot be judged: {error}"))
    }

    /// Tells whether a condition holds of what was fired from outside.
    pub(super) fn holds_of(
        &mut self,
        task: TaskIndex,
        source: &str,
        data: &Value,
    ) -> Result<bool, Error> {
        let condition = self.expressions.of(source)?;
        let mut known = self.known(task, &condition);
        known.insert("data".to_owned(), data.clone());
        condition.test(&known)
    }

    /// Makes the items of a task, or says why there are none.
    pub(super) fn items(&mut self, task: TaskIndex) -> Result<Vec<Planted>, Escalation> {
        let none = |detail| Escalation::CannotBegin { detail };
        let spec = Arc::clone(self.tree.state.spec(task));
        let Body::ForEach(each) = &spec.body else { return Ok(Vec::new()) };
        let found = self.expressions.of(&each.items).and_then(|list| {
            let known = self.known(task, &list);
            list.evaluate(&known)
        });
        let list = match found {
            Ok(Value::Array(list)) => list,
            Ok(_) => return Err(none(format!("its items {:?} are no list", each.items))),
            Err(error) => {
                return Err(none(format!("its items {:?} cannot be had: {error}", each.items)));
            }
        };
        // Before any of them is made, because a list may be as long as it likes.
        let children = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let one = extent(&each.task);
        let tasks = children.saturating_mul(one.tasks);
        self.tree.state.room_for(task, Growth { children, tasks, ..one }).map_err(|refusal| {
            self.tell_refused(&refusal);
            Escalation::BudgetExhausted { detail: format!("it has {children} items: {refusal}") }
        })?;
        let mut planted = Vec::new();
        let mut names = BTreeSet::new();
        for (index, item) in list.into_iter().enumerate() {
            let mut one = each.task.clone();
            one.name = name_of(&item, index, &names);
            names.insert(one.name.clone());
            one.vars.insert("item".to_owned(), item);
            one.vars.insert("index".to_owned(), Value::from(index));
            let (clock, rng) = (&*self.scheduler.clock, &*self.scheduler.rng);
            planted.extend(flatten(one, || TaskId::generate(clock, rng)));
        }
        Ok(planted)
    }

    /// Judges the form of what a task hands over.
    pub(super) fn judge_output(&self, task: TaskIndex, index: u32) -> Verdict {
        let check = self.tree.state.spec(task).postchecks.get(index as usize);
        let claim = self.tree.of(task).and_then(|known| known.claim.as_deref());
        let output = claim.and_then(|claim| claim.output.as_ref());
        match check {
            Some(CheckSpec { name, kind: CheckKind::Output(check), .. }) => {
                output::judge(name, &check.schema, output)
            }
            _ => failed_verdict("output".to_owned(), "there is no such check"),
        }
    }

    /// Returns the variables of the workflow that decides a check and that a task is a part of.
    fn deciding_above(&self, task: TaskIndex) -> Option<&Map<String, Value>> {
        let state = &self.tree.state;
        let mut up = std::iter::successors(Some(task), |task| state.parent(*task));
        up.find(|task| state.is_deciding(*task)).map(|root| &state.spec(root).vars)
    }

    /// Collects what an expression of a task can look at: the variables, and of the results those it names.
    fn known(&self, task: TaskIndex, expression: &Expression) -> Map<String, Value> {
        let names = expression
            .references()
            .filter(|found| found.name() == "tasks")
            .filter_map(|found| found.field())
            .collect();
        let mut known = Map::new();
        let around = self.variables_of(task);
        let mut variables = Map::clone(&self.variables);
        // A workflow that decides a check has variables of its own.
        if let Some(own) = self.deciding_above(task) {
            variables.extend(own.clone());
        }
        variables.extend(self.outputs_of(task));
        known.insert("vars".to_owned(), Value::Object(variables));
        for name in ["item", "index"] {
            if let Some(value) = around.get(name) {
                known.insert(name.to_owned(), value.clone());
            }
        }
        let results = self.tree.results_of(task, names, Form::Numbers);
        known.insert("tasks".to_owned(), Value::Object(results));
        known
    }
}

/// Returns how much a task is with all below it.
fn extent(task: &TaskSpec) -> Growth {
    let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut growth = Growth { children: 1, widest: 0, tasks: 0, levels: 0 };
    let mut level: Vec<&TaskSpec> = vec![task];
    while !level.is_empty() {
        growth.tasks = growth.tasks.saturating_add(many(level.len()));
        growth.levels = growth.levels.saturating_add(1);
        // What is below an item of an item is not there yet.
        let below = level.into_iter().filter(|task| !matches!(task.body, Body::ForEach(_)));
        let below: Vec<&TaskSpec> = below.collect();
        let widths = below.iter().map(|task| many(task.body.below().len()));
        growth.widest = growth.widest.max(widths.max().unwrap_or(0));
        level = below.into_iter().flat_map(|task| task.body.below()).collect();
    }
    growth
}

/// Names the task of an item: after the item where that can be a name that nobody has, else by its place.
fn name_of(item: &Value, index: usize, taken: &BTreeSet<TaskName>) -> TaskName {
    let own = item.as_str().and_then(|text| TaskName::parse(text).ok());
    let by_place = || {
        // A text may be the name of another place.
        let mut name = format!("item-{}", index + 1);
        loop {
            let parsed = TaskName::parse(&name).expect("letters, dashes and digits are a name");
            if !taken.contains(&parsed) {
                return parsed;
            }
            name.push('x');
        }
    };
    own.filter(|name| !taken.contains(name)).unwrap_or_else(by_place)
}
