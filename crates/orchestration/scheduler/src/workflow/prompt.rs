//! The names that a prompt puts in.

use std::collections::BTreeSet;

use formwork_compose::{Error, Library, Template};

/// What a prompt refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    /// Variables of the workflow.
    pub(super) variables: BTreeSet<String>,
    /// Tasks, by name.
    pub(super) tasks: BTreeSet<String>,
    /// Whether it refers to the results of tasks at all, whichever.
    pub(super) results: bool,
}

/// The name under which the results of tasks stand.
const TASKS: &str = "tasks";

/// Reads what a prompt refers to.
///
/// # Errors
/// What the template engine says of it, with the line and column within the prompt.
pub(super) fn references(prompt: &str) -> Result<References, Error> {
    let template = Template::parse("prompt", prompt)?;
    let mut variables = Library::default().variables(&template)?;
    let mut tasks = BTreeSet::new();
    let results = variables.remove(TASKS);
    if results {
        // The engine tells top names only; those of tasks are cut out of the tags.
        for tag in prompt.split("{{").skip(1) {
            let tag = tag.split("}}").next().unwrap_or_default();
            for (at, _) in tag.match_indices("tasks.") {
                let name = tag.get(at + TASKS.len() + 1..).unwrap_or_default();
                let end = name.find(|c: char| !matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
                tasks.insert(name.get(..end.unwrap_or(name.len())).unwrap_or_default().to_owned());
            }
        }
    }
    Ok(References { variables, tasks, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_tasks_are_told_apart() {
        let found = references("Do {{spec}} as {{#if x}}{{tasks.plan-it.text}}{{/if}}.").unwrap();

        assert_eq!(found.variables, BTreeSet::from(["spec".to_owned(), "x".to_owned()]));
        assert_eq!(found.tasks, BTreeSet::from(["plan-it".to_owned()]));
        assert!(found.results);
    }
}
