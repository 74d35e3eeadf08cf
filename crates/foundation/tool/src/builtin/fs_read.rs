//! `fs.read`: the text of a file.

use formwork_protocols::{
    Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    tool::{Kept, LookAt},
};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
use crate::workspace::tool_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file.
    path: String,
    /// The first line to return, from 1.
    #[schemars(range(min = 1))]
    from: Option<usize>,
    /// How many lines to return.
    #[schemars(range(min = 1))]
    lines: Option<usize>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Read text, whole or from a line on, or a picture.";
    super::read_only::<Arguments>("fs.read", text)
}

pub(super) fn tool(workspace: &Workspace, look_at: LookAt) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, move |scene, arguments| read(scene, arguments, look_at))
}

fn read(scene: &Scene, arguments: Arguments, look_at: LookAt) -> Result<ToolOutput, ToolError> {
    let Arguments { path, from, lines } = arguments;
    let content = scene.workspace.read(&path).map_err(|error| tool_error(&error))?;
    // Before anything else: what has no zero in it could be read as a text of old.
    if let Ok((media_type, (width, height))) = look_at(&content.bytes) {
        let told = format!("{path} is a picture of {width} × {height} pixels");
        let kept = Kept { media_type: media_type.to_owned(), name: path, bytes: content.bytes };
        return Ok(ToolOutput { kept: vec![kept], ..ToolOutput::text(told) });
    }
    let Some(text) = content.text() else {
        return Err(ToolError::new(
            ToolErrorKind::Failed,
            format!("{path} is not a text file: {} bytes", content.bytes.len()),
        ));
    };
    if text.is_empty() {
        return Ok(ToolOutput::text(format!("{path} is empty")));
    }
    if from.is_none() && lines.is_none() {
        return Ok(ToolOutput::text(text));
    }
    part(&path, &text, from.unwrap_or(1).max(1), lines.unwrap_or(usize::MAX))
}

/// Returns some lines of a text, and how many there are.
fn part(path: &str, text: &str, from: usize, lines: usize) -> Result<ToolOutput, ToolError> {
    let all = text.lines().count();
    if from > all {
        return Err(ToolError::new(
            ToolErrorKind::InvalidArguments,
            format!("{path} has {all} lines, line {from} was asked for"),
        ));
    }
    let part: String = text.split_inclusive('\n').skip(from - 1).take(lines).collect();
    let to = from + part.split_inclusive('\n').count().saturating_sub(1);
    Ok(ToolOutput::text(format!("[lines {from} to {to} of {all}]\n{part}")))
}
