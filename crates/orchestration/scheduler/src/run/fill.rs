//! Words with variables in them.

use std::sync::Arc;

use formwork_compose::{Error, Library, Template};
use formwork_protocols::{Body, text};
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
        let outputs = self.outputs_of(task);
        if own.is_empty() && outputs.is_empty() {
            return Arc::clone(&self.variables);
        }
        let mut known = Map::clone(&self.variables);
        // What the tasks around it put in is their own, whatever others call their results.
        known.extend(outputs);
        for vars in own.into_iter().rev() {
            known.extend(vars.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        Arc::new(known)
    }

    /// Returns the results that tasks of its workflow give names to, beside a task and beside those around it.
    pub(super) fn outputs_of(&self, task: TaskIndex) -> Map<String, Value> {
        let mut found = Map::new();
        if !self.has_outputs {
            return found;
        }
        let state = &self.tree.state;
        let mut below = task;
        while let Some(above) = state.parent(below) {
            // What decides a check is of another workflow.
            if state.is_deciding(below) {
                break;
            }
            // Items stand beside each other without knowing of each other.
            let beside = !matches!(state.spec(above).body, Body::ForEach(_));
            for sibling in state.children(above).filter(|one| beside && *one != below) {
                if let Some(name) = &state.spec(sibling).output
                    && let Some(value) = self.tree.handed_over(sibling)
                {
                    found.entry(name.as_str()).or_insert(value);
                }
            }
            below = above;
        }
        found
    }

    /// Puts variables and results into the words of a command. A value is never read as a template, and stays
    /// one word, which is no option.
    pub(super) fn fill(&self, task: TaskIndex, argv: &mut [String]) -> Result<(), String> {
        let written = argv.to_vec();
        let failed = |why: String| format!("its command cannot be put together: {why}");
        all(self, task, argv).map_err(|error| failed(error.to_string()))?;
        option(&written, argv).map_or(Ok(()), |why| Err(failed(why)))
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

/// Says which word of a command has become an option by what was put into it. The workflow says which options there are; behind
/// its own `--` there are none, nor behind a text that a shell or Python is given to run, which takes the rest for its arguments.
fn option(written: &[String], filled: &[String]) -> Option<String> {
    let ends = written.iter().position(|word| word == "--");
    let code = arguments_from(written);
    let most = ends.into_iter().chain(code).min().unwrap_or(written.len());
    let mut words = written.iter().zip(filled).take(most).skip(1);
    let (_, word) = words.find(|(written, filled)| {
        // What the workflow begins itself, as in `--name={{x}}`, stays that.
        written.starts_with("{{") && filled.starts_with('-') && !is_number(filled)
    })?;
    let word = text::head(word.lines().next().unwrap_or_default(), TOLD);
    Some(format!(
        "{word:?} begins like an option, and is to be none: write `--` before it, or the option with it, as in \
         `--name={{{{x}}}}`"
    ))
}

/// The most bytes of a word that are told.
const TOLD: usize = 64;

/// Returns from where on the words of a command are arguments of a text that stands among them.
fn arguments_from(argv: &[String]) -> Option<usize> {
    const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
    let program = argv.first()?.rsplit('/').next().unwrap_or_default();
    let takes = SHELLS.contains(&program) || program.trim_end_matches(is_version) == "python";
    let is_text = |word: &String| {
        word.strip_prefix('-').is_some_and(|it| !it.starts_with('-') && it.ends_with('c'))
    };
    // The option, its text, and then what is handed to it.
    argv.iter().position(is_text).filter(|_| takes).map(|at| at + 2)
}

/// Tells whether the name of a program may end with it.
const fn is_version(letter: char) -> bool {
    letter.is_ascii_digit() || letter == '.'
}

fn is_number(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|digits| {
        digits.starts_with(|it: char| it.is_ascii_digit()) && digits.chars().all(is_version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a command, with what is put in the place of each `{{x}}`.
    fn refused(argv: &[&str], value: &str) -> Option<String> {
        let written: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let filled: Vec<String> = written.iter().map(|word| word.replace("{{x}}", value)).collect();
        option(&written, &filled)
    }

    #[test]
    fn a_value_that_would_become_an_option_is_refused_wherever_options_are_read() {
        let told = "\"--output=/etc/passwd\" begins like an option, and is to be none: write `--` before it, or the option \
                    with it, as in `--name={{x}}`";
        for argv in [
            &["git", "log", "{{x}}"][..],
            &["git", "log", "--oneline", "{{x}}", "--", "src"],
            &["rg", "{{x}}{{y}}"],
            &["sh", "script.sh", "{{x}}"],
        ] {
            let found = refused(argv, "--output=/etc/passwd");
            assert!(found.is_some(), "{argv:?}");
        }
        assert_eq!(refused(&["git", "log", "{{x}}"], "--output=/etc/passwd").unwrap(), told);
        assert!(refused(&["git", "commit", "-m", "{{x}}"], "- a list\n- of two").is_some());
        assert!(refused(&["cat", "{{x}}"], "-").is_some());
        assert!(refused(&["cut", "{{x}}"], "-.f1").is_some());
    }

    #[test]
    fn a_value_is_taken_as_it_is_where_it_can_be_no_option() {
        for argv in [
            &["git", "log", "--", "{{x}}"][..],
            &["git", "log", "--author={{x}}"],
            &["git", "commit", "--message={{x}}"],
            &["sh", "-c", "printf %s \"$1\"", "sh", "{{x}}"],
            &["bash", "-ec", "printf %s \"$1\"", "bash", "{{x}}"],
            &["/usr/bin/python3.11", "-c", "import sys", "{{x}}"],
            &["echo", "said: {{x}}"],
        ] {
            assert_eq!(refused(argv, "-x"), None, "{argv:?}");
        }
        assert_eq!(refused(&["git", "log", "{{x}}"], "main"), None);
        assert_eq!(refused(&["./add", "{{x}}"], "-3.5"), None);
        // The workflow's own words are what it says.
        assert_eq!(refused(&["git", "log", "--oneline"], ""), None);
    }
}
