//! One agent, whole: its document and every text that shapes what it does.

use std::collections::{BTreeMap, BTreeSet};

use formwork_compose::{Fragment, Library, Priority, Template, compose};
use formwork_protocols::{AgentName, canonical};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{AgentDocument, Error};

/// What every agent is told first.
const PREAMBLE: &str = include_str!("builtin/preamble.md");

/// An agent with everything that shapes what it does.
///
/// It is recorded with a run and read back when the run is resumed, so that a later change of its files, or of this
/// program, does not change a run that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    document: AgentDocument,
    preamble: String,
    prompt: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    includes: BTreeMap<String, String>,
    source: Source,
    version: String,
}

/// Where an agent was defined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// In the program itself.
    BuiltIn,
    /// In this file, as it is shown to people.
    File(String),
}

impl Agent {
    /// Makes an agent of its document, the text of its prompt, and the texts that it may include by their names.
    ///
    /// Of the includes only those that the prompt reaches are kept.
    ///
    /// # Errors
    /// [`Error::Prompt`] when a text is no template or includes one that is not there; [`Error::Empty`].
    pub fn new(
        document: AgentDocument,
        prompt: impl Into<String>,
        includes: &BTreeMap<String, String>,
        source: Source,
    ) -> Result<Self, Error> {
        let prompt = prompt.into();
        if prompt.trim().is_empty() {
            return Err(Error::Empty { agent: document.name });
        }
        let reached = reached(document.prompt.stem(), &prompt, includes)
            .map_err(|source| Error::Prompt { agent: document.name.clone(), source })?;
        let preamble = PREAMBLE.to_owned();
        let version = version(&document, &preamble, &prompt, &reached);
        Ok(Self { document, preamble, prompt, includes: reached, source, version })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &AgentName {
        &self.document.name
    }

    /// Returns what its TOML document says.
    #[must_use]
    pub fn document(&self) -> &AgentDocument {
        &self.document
    }

    /// Returns the text of its prompt, before anything is included or substituted.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Returns where it was defined.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the BLAKE3 hash, in hexadecimal digits, of everything that shapes what it does.
    ///
    /// It covers the document, what every agent is told, the prompt and all that it includes, and not the file's place.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns all that its own files say, as one text: what a person trusts who trusts it.
    ///
    /// Unlike [`Agent::version`] it leaves out what every agent is told, which comes with the program.
    #[must_use]
    pub fn content(&self) -> String {
        let Self { document, prompt, includes, .. } = self;
        let whole = json!({ "document": document, "prompt": prompt, "includes": includes });
        canonical::to_string(&whole).expect("a JSON value has a canonical text")
    }

    /// Returns the variables that its prompt names, those of what it includes among them.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the texts are no templates, as only a record that was altered holds.
    pub fn variables(&self) -> Result<BTreeSet<String>, Error> {
        let (library, prompt) = self.templates().map_err(|source| self.fault(source))?;
        library.variables(&prompt).map_err(|source| self.fault(source))
    }

    /// Renders what it is told first, for [`compose`](fn@compose) to join with what stands around it.
    ///
    /// The fragments are named `agent.preamble` and `agent.prompt`, and both are stable.
    ///
    /// # Errors
    /// [`Error::Prompt`] unless `variables` are exactly those that the prompt names.
    pub fn fragments(&self, variables: &Map<String, Value>) -> Result<[Fragment; 2], Error> {
        let (library, prompt) = self.templates().map_err(|source| self.fault(source))?;
        let text = library.render(&prompt, variables).map_err(|source| self.fault(source))?;
        Ok([
            Fragment::stable("agent.preamble", Priority::PREAMBLE, self.preamble.as_str()),
            Fragment::stable("agent.prompt", Priority::PROMPT, text),
        ])
    }

    /// Composes what it is told first: what every agent is told, then its own prompt.
    ///
    /// The same agent and variables give the same bytes.
    ///
    /// # Errors
    /// [`Error::Prompt`] unless `variables` are exactly those that the prompt names.
    pub fn system_prompt(&self, variables: &Map<String, Value>) -> Result<String, Error> {
        let prompt = compose(self.fragments(variables)?).map_err(|source| self.fault(source))?;
        Ok(prompt.text().to_owned())
    }

    fn templates(&self) -> Result<(Library, Template), formwork_compose::Error> {
        let mut library = Library::default();
        for (name, text) in &self.includes {
            library.insert(Template::parse(name, text)?)?;
        }
        Ok((library, Template::parse(self.document.prompt.stem(), &self.prompt)?))
    }

    fn fault(&self, source: formwork_compose::Error) -> Error {
        Error::Prompt { agent: self.document.name.clone(), source }
    }
}

/// Returns those of `includes` that `prompt` includes, and that these include in turn.
fn reached(
    name: &str,
    prompt: &str,
    includes: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, formwork_compose::Error> {
    let prompt = Template::parse(name, prompt)?;
    let mut library = Library::default();
    let mut reached = BTreeMap::new();
    loop {
        let error = match library.variables(&prompt) {
            Ok(_) => return Ok(reached),
            Err(error) => error,
        };
        // What is included and not there yet is added, until nothing more is found: only then are the faults true.
        let before = reached.len();
        for name in unknown_includes(&error) {
            if let Some(text) = includes.get(name).filter(|_| !reached.contains_key(name)) {
                library.insert(Template::parse(name, text)?)?;
                reached.insert(name.to_owned(), text.clone());
            }
        }
        if reached.len() == before {
            return Err(error);
        }
    }
}

fn unknown_includes(error: &formwork_compose::Error) -> impl Iterator<Item = &str> {
    let faults = match error {
        formwork_compose::Error::Faults { faults } => faults.as_slice(),
        _ => &[],
    };
    faults.iter().filter_map(|fault| match &fault.problem {
        formwork_compose::Problem::UnknownInclude { name, .. } => Some(name.as_str()),
        _ => None,
    })
}

fn version(
    document: &AgentDocument,
    preamble: &str,
    prompt: &str,
    includes: &BTreeMap<String, String>,
) -> String {
    let whole = json!({
        "document": document,
        "preamble": preamble,
        "prompt": prompt,
        "includes": includes,
    });
    let text = canonical::to_string(&whole).expect("a JSON value has a canonical text");
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
