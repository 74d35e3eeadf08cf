//! Tools that are listed by name, and described once the model asks for them.
//!
//! Each byte of a tool is sent with each request. What is seldom needed costs its name alone until then.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolErrorKind, ToolName, ToolOutput, ToolSpec,
    document::nearest, tool::CallContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;

/// The tool by which a model loads others.
pub const LOAD_TOOLS: &str = "load_tools";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(length(min = 1))]
    names: Vec<String>,
}

/// Describes the tool. It names what can be loaded.
pub(crate) fn spec(names: &[&str]) -> ToolSpec {
    let text = match names {
        [] => "Load tools that are listed by name alone.".to_owned(),
        names => format!("Load more tools, to be called from then on: {}.", names.join(", ")),
    };
    let (class, replay) = (ToolClass::Lifecycle, Replay::Pure);
    crate::builtin::spec::<Arguments>(LOAD_TOOLS, &text, class, replay, &["lifecycle"])
}

/// Which tools a conversation has loaded, in that order. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded(Arc<Mutex<Vec<ToolName>>>);

impl Loaded {
    pub(crate) fn holds(&self, name: &ToolName) -> bool {
        self.lock().contains(name)
    }

    pub(crate) fn names(&self) -> Vec<ToolName> {
        self.lock().clone()
    }

    fn add(&self, name: ToolName) {
        let mut loaded = self.lock();
        if !loaded.contains(&name) {
            loaded.push(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ToolName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Vec<ToolName>> for Loaded {
    fn from(names: Vec<ToolName>) -> Self {
        Self(Arc::new(Mutex::new(names)))
    }
}

/// `load_tools`: tools of the allow-list that were listed by name alone.
pub(crate) struct LoadTools {
    spec: ToolSpec,
    deferred: BTreeSet<ToolName>,
    loaded: Loaded,
}

impl LoadTools {
    pub(crate) fn new(deferred: BTreeSet<ToolName>, loaded: Loaded) -> Self {
        let names: Vec<&str> = deferred.iter().map(ToolName::as_str).collect();
        Self { spec: spec(&names), deferred, loaded }
    }

    /// Finds a tool by its name, or by the form without dots in which some providers show names.
    fn find(&self, written: &str) -> Result<&ToolName, ToolError> {
        let is_meant = |name: &&ToolName| {
            name.as_str() == written || name.as_str().replace('.', "_") == written
        };
        self.deferred.iter().find(is_meant).ok_or_else(|| {
            let names = self.deferred.iter().map(ToolName::as_str);
            let hint = match nearest(written, names) {
                Some(name) => format!("; did you mean {name}?"),
                None => String::new(),
            };
            let told = formwork_protocols::text::head(written, 64);
            ToolError::new(
                ToolErrorKind::InvalidArguments,
                format!("there is no tool {told:?} to load{hint}"),
            )
        })
    }
}

#[async_trait]
impl Tool for LoadTools {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { names } = schema::read(arguments)?;
        let found = names.iter().map(|name| self.find(name)).collect::<Result<Vec<_>, _>>()?;
        for name in &found {
            self.loaded.add((*name).clone());
        }
        let told: Vec<&str> = found.iter().map(|name| name.as_str()).collect();
        Ok(ToolOutput::text(format!("loaded {}", told.join(", "))))
    }
}
