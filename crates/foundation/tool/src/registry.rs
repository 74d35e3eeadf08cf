//! The tools that exist.

use std::{collections::BTreeMap, sync::Arc};

use formwork_protocols::{Tool, ToolName, ToolSpec};

use crate::Error;

/// The tools that exist, by name: the built-in ones and those of the embedder.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
}

impl Registry {
    /// Returns a registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when there is one of that name.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), Error> {
        let name = tool.spec().definition.name.clone();
        if self.tools.contains_key(&name) {
            return Err(Error::Duplicate { tool: name });
        }
        self.tools.insert(name, tool);
        Ok(())
    }

    /// Describes every tool, in the order of their names.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.values().map(|tool| tool.spec())
    }

    /// Returns the tools that `allowed` names, in the order of their names.
    pub fn select(&self, allowed: impl Fn(&ToolSpec) -> bool) -> Vec<Arc<dyn Tool>> {
        self.tools.values().filter(|tool| allowed(tool.spec())).cloned().collect()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}
