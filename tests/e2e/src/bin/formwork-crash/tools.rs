//! Effects that can be counted: each leaves a line, so that what was done twice is seen twice.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolErrorKind, ToolName, ToolOutput, ToolSpec,
    message::ToolDefinition, tool::CallContext,
};
use serde_json::{Value, json};

/// The file of effects, from the root of the workspace.
pub(crate) const EFFECTS: &str = "effects.log";

/// Adds a line to the effects.
pub(crate) fn effect(workspace: &Path, line: &str) -> std::io::Result<()> {
    let path = workspace.join(EFFECTS);
    let mut file = File::options().append(true).create(true).open(path)?;
    // One write of a short line is whole or not there.
    file.write_all(format!("{line}\n").as_bytes())
}

/// Lists the effects so far.
pub(crate) fn effects(workspace: &Path) -> Vec<String> {
    let text = fs::read_to_string(workspace.join(EFFECTS)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Leaves a line for each call, by its kind and the call's own name.
struct Counted {
    spec: ToolSpec,
    kind: &'static str,
    workspace: PathBuf,
}

/// Looks whether an effect took place.
struct Look {
    spec: ToolSpec,
    workspace: PathBuf,
}

/// Returns the tools: one of each replay class, and one to look.
pub(crate) fn all(workspace: &Path) -> Vec<Arc<dyn Tool>> {
    let counted = |kind: &'static str, class, replay| {
        let spec = spec(&format!("count.{kind}"), class, replay);
        Arc::new(Counted { spec, kind, workspace: workspace.to_owned() }) as Arc<dyn Tool>
    };
    let look = spec("count.look", ToolClass::Read, Replay::Pure);
    vec![
        counted("pure", ToolClass::Read, Replay::Pure),
        counted("idempotent", ToolClass::Write, Replay::Idempotent),
        counted("once", ToolClass::Write, Replay::Once),
        Arc::new(Look { spec: look, workspace: workspace.to_owned() }),
    ]
}

fn spec(name: &str, class: ToolClass, replay: Replay) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": { "id": { "type": "string" } },
        "required": ["id"],
        "additionalProperties": false,
    });
    ToolSpec {
        definition: ToolDefinition {
            name: ToolName::parse(name).expect("the names of these tools follow the rule"),
            description: "Count.".to_owned(),
            parameters,
        },
        class,
        replay,
        tags: Vec::new(),
    }
}

fn id(arguments: &Value) -> &str {
    arguments.get("id").and_then(Value::as_str).unwrap_or_default()
}

#[async_trait]
impl Tool for Counted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        effect(&self.workspace, &format!("{}:{}", self.kind, id(&arguments)))
            .map_err(|error| ToolError::new(ToolErrorKind::Failed, error.to_string()))?;
        Ok(ToolOutput::text("counted"))
    }
}

#[async_trait]
impl Tool for Look {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let id = id(&arguments);
        let is_there =
            effects(&self.workspace).iter().any(|line| line.ends_with(&format!(":{id}")))
                || self.workspace.join(format!("out/{id}.txt")).exists();
        Ok(ToolOutput::text(if is_there { "it is there" } else { "it is not there" }))
    }
}
