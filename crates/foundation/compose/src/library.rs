//! Templates that include each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::render::{Renderer, Survey};
use crate::{Error, Template};

/// The templates that can be included, by name.
#[derive(Debug, Clone, Default)]
pub struct Library {
    templates: BTreeMap<String, Template>,
}

impl Library {
    /// Adds a template to be included as `{{> name}}`.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when one of that name is there.
    pub fn insert(&mut self, template: Template) -> Result<(), Error> {
        let name = template.name().to_owned();
        if self.templates.contains_key(&name) {
            return Err(Error::Duplicate { template: name });
        }
        self.templates.insert(name, template);
        Ok(())
    }

    /// Returns the template of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Template> {
        self.templates.get(name)
    }

    /// Returns the names of all templates in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// Returns the variables that `template` and all it includes name, without rendering it.
    ///
    /// Of `{{tasks.build.output}}` it is `tasks`. Branches that would not be rendered count as well.
    ///
    /// # Errors
    /// [`Error::Cycle`], and [`Error::Faults`] for what no variable can mend: unknown includes, unsupported tags.
    pub fn variables(&self, template: &Template) -> Result<BTreeSet<String>, Error> {
        let survey = Survey::of(self, template)?;
        survey.check()?;
        Ok(survey.into_variables())
    }

    /// Renders `template` with exactly the variables that it names.
    ///
    /// Text is inserted as it is, numbers and truth values as TOML writes them, nothing as nothing, lists and tables as
    /// JSON. The same template and variables give the same bytes.
    ///
    /// # Errors
    /// [`Error::Faults`] with every unresolved and every unused variable; [`Error::Cycle`]; [`Error::TooLarge`] and
    /// [`Error::TooManySteps`] for output that is no prompt.
    pub fn render(
        &self,
        template: &Template,
        variables: &Map<String, Value>,
    ) -> Result<String, Error> {
        let mut survey = Survey::of(self, template)?;
        survey.compare(template, variables);
        survey.check()?;
        Renderer::new(self, variables).run(template)
    }
}
