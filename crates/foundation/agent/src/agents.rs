//! The agents of a project, by name.

use std::collections::BTreeMap;
use std::path::Path;

use formwork_protocols::AgentName;
use formwork_protocols::document::{self, Diagnostics};

use crate::load::{self, Checks};
use crate::{Agent, AgentDocument, Source};

/// The agents that come with the program: file name, document, prompt.
const BUILT_IN: [(&str, &str, &str); 8] = [
    ("adviser.toml", include_str!("builtin/adviser.toml"), include_str!("builtin/adviser.md")),
    ("coder.toml", include_str!("builtin/coder.toml"), include_str!("builtin/coder.md")),
    ("lead.toml", include_str!("builtin/lead.toml"), include_str!("builtin/lead.md")),
    ("partner.toml", include_str!("builtin/partner.toml"), include_str!("builtin/partner.md")),
    ("reader.toml", include_str!("builtin/reader.toml"), include_str!("builtin/reader.md")),
    (
        "researcher.toml",
        include_str!("builtin/researcher.toml"),
        include_str!("builtin/researcher.md"),
    ),
    ("reviewer.toml", include_str!("builtin/reviewer.toml"), include_str!("builtin/reviewer.md")),
    ("tester.toml", include_str!("builtin/tester.toml"), include_str!("builtin/tester.md")),
];

/// The agents that tasks can ask for, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agents(BTreeMap<AgentName, Agent>);

impl Agents {
    /// Returns the agents that come with the program.
    ///
    /// `coder` changes code and proves the change; `partner` talks with a person at work; `reader` answers questions and
    /// changes nothing; `reviewer` judges a change. `lead` has work done by others; `researcher` and `tester` are there
    /// for it. `adviser` answers one question that another agent asks.
    #[must_use]
    pub fn built_in() -> Self {
        let agents = BUILT_IN.map(|(file, text, prompt)| {
            let document = document::parse::<AgentDocument>(file, text)
                .expect("the document of a built-in agent has no fault");
            Agent::new(document.value, prompt, &BTreeMap::new(), Source::BuiltIn)
                .expect("the prompt of a built-in agent has no fault")
        });
        agents.into_iter().collect()
    }

    /// Reads every agent of a folder, and adds the built-in ones whose names it does not use.
    ///
    /// Each `*.toml` of the folder is an agent and each `*.md` a prompt, which others can include by its name without
    /// `.md`. Hidden files and folders within it are passed over. A folder that does not exist holds no agent.
    ///
    /// # Errors
    /// Every fault of every file, with its place: of the documents, of what they name, and of the prompts.
    pub fn load(folder: &Path, checks: &Checks<'_>) -> Result<Self, Diagnostics> {
        let mut agents = Self::built_in();
        agents.extend(load::folder(folder, checks)?);
        Ok(agents)
    }

    /// Returns the agent of that name.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<&Agent> {
        self.0.get(name)
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        self.0.keys()
    }

    /// Returns the agents in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.0.values()
    }

    /// Adds an agent; it takes the place of one of the same name, which is returned.
    pub fn insert(&mut self, agent: Agent) -> Option<Agent> {
        self.0.insert(agent.name().clone(), agent)
    }
}

impl Extend<Agent> for Agents {
    fn extend<I: IntoIterator<Item = Agent>>(&mut self, agents: I) {
        self.0.extend(agents.into_iter().map(|agent| (agent.name().clone(), agent)));
    }
}

impl FromIterator<Agent> for Agents {
    fn from_iter<I: IntoIterator<Item = Agent>>(agents: I) -> Self {
        let mut all = Self::default();
        all.extend(agents);
        all
    }
}
