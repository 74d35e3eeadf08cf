//! Agents from a folder, with every fault of every file.

use std::collections::BTreeMap;
use std::path::Path;

use formwork_protocols::document::{
    self, Diagnostic, Diagnostics, DocumentType, Parsed, nearest_hint,
};
use formwork_protocols::{Budget, SessionRules};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::document::BOTH;
use crate::folder::Folder;
use crate::markdown::Prompts;
use crate::{Agent, AgentDocument, PromptFile, Source};

/// What the reader of agents is told about what surrounds them.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// Says what is wrong with a pattern of `tools.allow` or `tools.deferred`.
    pub tools: &'a dyn Fn(&str) -> Result<(), String>,
    /// Says what is wrong with a pattern of `tools.exec.allow`.
    pub commands: &'a dyn Fn(&str) -> Result<(), String>,
    /// Says what is wrong with a pattern of `tools.exec.hosts`.
    pub hosts: &'a dyn Fn(&str) -> Result<(), String>,
    /// The variables that prompts may name, because whoever composes them supplies these.
    pub variables: &'a [&'a str],
}

impl Default for Checks<'_> {
    /// Takes every pattern as it is, and supplies no variable.
    fn default() -> Self {
        Self { tools: &|_| Ok(()), commands: &|_| Ok(()), hosts: &|_| Ok(()), variables: &[] }
    }
}

/// Reads every agent of a folder.
///
/// # Errors
/// Every fault of every file.
pub(crate) fn folder(path: &Path, checks: &Checks<'_>) -> Result<Vec<Agent>, Diagnostics> {
    let folder = match Folder::read(path) {
        Ok(Some(folder)) => folder,
        Ok(None) => return Ok(Vec::new()),
        Err(error) => {
            let shown = path.display().to_string();
            return Err(whole_file(&shown, format!("cannot be read: {error}")).into());
        }
    };
    let prompts = Prompts::of(&folder);
    let texts: BTreeMap<String, String> = folder
        .prompts
        .iter()
        .filter_map(|(stem, text)| Some((stem.clone(), text.as_ref().ok()?.clone())))
        .collect();

    let mut faults = Diagnostics::default();
    let mut names = BTreeMap::new();
    let mut agents = Vec::new();
    for (file, text) in &folder.documents {
        let shown = folder.shown(file);
        let text = match text {
            Ok(text) => text,
            Err(reason) => {
                faults.merge([whole_file(&shown, reason.clone())]);
                continue;
            }
        };
        let mut found = Diagnostics::default();
        // A document that is wrong elsewhere still names a prompt and tools, and these are checked as well.
        if let Ok(glance) = document::parse::<Glance>(&shown, text) {
            found.merge(patterns(&glance, checks));
            found.merge(rules(&glance));
            found.merge(caps(&glance));
            found.merge(twice(&glance, &mut names, &shown));
            found.merge(prompt(&glance, &folder, &prompts, checks));
        }
        match document::parse::<AgentDocument>(&shown, text) {
            Ok(parsed) if found.is_empty() => match agent(&parsed, &texts, shown) {
                Ok(agent) => agents.push(agent),
                Err(fault) => found.merge(fault),
            },
            Ok(_) => {}
            Err(more) => found.merge(more.into_iter().map(explained)),
        }
        faults.merge(found);
    }
    faults.or(agents)
}

/// What a document names outside of itself, whatever else it says.
#[derive(Deserialize, JsonSchema)]
struct Glance {
    #[serde(default)]
    name: Value,
    #[serde(default)]
    prompt: Value,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    session: Value,
    #[serde(default)]
    budget: Value,
}

impl DocumentType for Glance {
    const NAME: &'static str = AgentDocument::NAME;
}

/// Checks the patterns of a document's allow-lists.
fn patterns(glance: &Parsed<Glance>, checks: &Checks<'_>) -> Vec<Diagnostic> {
    let lists = [
        ("/allow", checks.tools),
        ("/deferred", checks.tools),
        ("/exec/allow", checks.commands),
        ("/exec/hosts", checks.hosts),
    ];
    let mut faults = Vec::new();
    for (pointer, check) in lists {
        let list = glance.value.tools.pointer(pointer).and_then(Value::as_array);
        for (index, pattern) in list.into_iter().flatten().enumerate() {
            if let Some(Err(message)) = pattern.as_str().map(check) {
                faults.push(glance.diagnostic(&format!("/tools{pointer}/{index}"), message));
            }
        }
    }
    faults
}

/// Checks that a conversation can keep to the document's rules.
fn rules(glance: &Parsed<Glance>) -> Option<Diagnostic> {
    // What is no rule at all is told by the document itself.
    let rules: SessionRules = serde_json::from_value(glance.value.session.clone()).ok()?;
    let (key, message) = rules.check().err()?;
    Some(glance.diagnostic(&format!("/session/{key}"), message))
}

/// Checks that the document's caps let something be done.
fn caps(glance: &Parsed<Glance>) -> Option<Diagnostic> {
    let budget: Budget = serde_json::from_value(glance.value.budget.clone()).ok()?;
    // No model call at all is told by the document itself.
    let (key, message) = Budget { rounds: None, ..budget }.check().err()?;
    Some(glance.diagnostic(&format!("/budget/{key}"), message))
}

/// Checks that no earlier file defines an agent of the same name.
fn twice(
    glance: &Parsed<Glance>,
    names: &mut BTreeMap<String, String>,
    shown: &str,
) -> Option<Diagnostic> {
    let name = glance.value.name.as_str()?;
    if let Some(first) = names.get(name) {
        let message = format!("agent {name:?} is defined in {first} already");
        return Some(glance.diagnostic("/name", message));
    }
    names.insert(name.to_owned(), shown.to_owned());
    None
}

/// Checks that the prompt of a document is there, says something, and can be composed.
fn prompt(
    glance: &Parsed<Glance>,
    folder: &Folder,
    prompts: &Prompts<'_>,
    checks: &Checks<'_>,
) -> Vec<Diagnostic> {
    let Some(Ok(file)) = glance.value.prompt.as_str().map(PromptFile::parse) else {
        return Vec::new(); // The document itself is at fault.
    };
    let message = match folder.prompts.get(file.stem()) {
        Some(Ok(text)) if text.trim().is_empty() => format!("prompt file \"{file}\" is empty"),
        Some(Ok(_)) => return prompts.faults(file.stem(), checks.variables),
        Some(Err(reason)) => format!("prompt file \"{file}\" {reason}"),
        None => format!("no prompt file \"{file}\" in the folder of the agent"),
    };
    let mut fault = glance.diagnostic("/prompt", message);
    if !folder.prompts.contains_key(file.stem()) {
        let files: Vec<String> = folder.prompts.keys().map(|stem| format!("{stem}.md")).collect();
        fault.hint = nearest_hint(file.as_str(), files.iter().map(String::as_str));
    }
    vec![fault]
}

/// Puts an agent together from what was found to be sound.
fn agent(
    parsed: &Parsed<AgentDocument>,
    texts: &BTreeMap<String, String>,
    shown: String,
) -> Result<Agent, Diagnostics> {
    let document = parsed.value.clone();
    let prompt = texts.get(document.prompt.stem()).cloned().unwrap_or_default();
    Agent::new(document, prompt, texts, Source::File(shown)).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let message = format!("{error}{}", cause.unwrap_or_default());
        parsed.diagnostic("/prompt", message).into()
    })
}

/// Says in the words of this format what the schema says of a document with both `category` and `model`.
fn explained(mut fault: Diagnostic) -> Diagnostic {
    if fault.key == "model" && fault.message.starts_with("wanted no value here") {
        fault.message = BOTH.to_owned();
    }
    fault
}

/// Makes a fault of a file whose text is not known.
fn whole_file(shown: &str, message: String) -> Diagnostic {
    Diagnostic {
        source: shown.into(),
        line: 1,
        column: 1,
        span: 0..0,
        key: String::new(),
        message,
        hint: None,
        text: "".into(),
    }
}
