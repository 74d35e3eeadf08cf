//! Words with variables in them.

use std::sync::Arc;

use formwork_compose::{Error, Library, Template};
use serde_json::{Map, Value};

use super::drive::Drive;
use crate::core::TaskIndex;

impl Drive {
    /// Returns the variables of the workflow and what the tasks around a task, and it itself, put in.
    pub(super) fn variables_of(&self, task: TaskIndex) -> Arc<Map<String, Value>> {
        let up = std::iter::successors(Some(task), |task| self.tree.state.parent(*task));
        let own: Vec<_> = up
            .map(|task| &self.tree.state.spec(task).vars)
            .filter(|vars| !vars.is_empty())
            .collect();
        if own.is_empty() {
            return Arc::clone(&self.variables);
        }
        let mut known = Map::clone(&self.variables);
        for vars in own.into_iter().rev() {
            known.extend(vars.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        Arc::new(known)
    }

    /// Puts variables and results into the words of a command. A value is never read as a template, and stays
    /// one word.
    pub(super) fn fill(&self, task: TaskIndex, argv: &mut [String]) -> Result<(), String> {
        all(self, task, argv)
            .map_err(|error| format!("its command cannot be put together: {error}"))
    }
}

impl Drive {
    /// Puts variables and results into the texts among values.
    pub(super) fn fill_values(
        &self,
        task: TaskIndex,
        values: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for (name, value) in values {
            let Value::String(text) = value else { continue };
            all(self, task, std::slice::from_mut(text))
                .map_err(|error| format!("its variable {name} cannot be put together: {error}"))?;
        }
        Ok(())
    }
}

/// Puts variables and results into texts.
///
/// # Errors
/// What the template engine says of them.
pub(super) fn all(drive: &Drive, task: TaskIndex, texts: &mut [String]) -> Result<(), Error> {
    if texts.iter().all(|text| !text.contains("{{")) {
        return Ok(());
    }
    let mut known = Map::clone(&drive.variables_of(task));
    let results = drive.tree.results_in(task, &texts.join(" "));
    known.insert("tasks".to_owned(), Value::Object(results));
    for text in texts.iter_mut().filter(|text| text.contains("{{")) {
        *text = word(text, &known)?;
    }
    Ok(())
}

/// Puts what is known into a word.
///
/// # Errors
/// What the template engine says of it.
fn word(text: &str, known: &Map<String, Value>) -> Result<String, Error> {
    let template = Template::parse("command", text)?;
    let library = Library::default();
    // The engine is strict both ways, and no word names everything.
    let named = library.variables(&template)?;
    let wanted = known.iter().filter(|(name, _)| named.contains(*name));
    let wanted = wanted.map(|(name, value)| (name.clone(), value.clone())).collect();
    library.render(&template, &wanted)
}
