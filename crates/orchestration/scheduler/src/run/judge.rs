//! What expressions say of the variables and of the results so far.

use std::collections::{BTreeSet, HashMap};

use formwork_expression::{Error, Expression};
use serde_json::{Map, Value};

use super::{drive::Drive, tree::Form};
use crate::core::TaskIndex;

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

    /// Collects what an expression of a task can look at: the variables, and of the results those it names.
    fn known(&self, task: TaskIndex, expression: &Expression) -> Map<String, Value> {
        let names: BTreeSet<&str> = expression
            .references()
            .filter(|found| found.name() == "tasks")
            .filter_map(|found| found.field())
            .collect();
        let mut known = Map::new();
        known.insert("vars".to_owned(), Value::Object(Map::clone(&self.variables)));
        let results = self.tree.results_of(task, &names, Form::Numbers);
        known.insert("tasks".to_owned(), Value::Object(results));
        known
    }
}
