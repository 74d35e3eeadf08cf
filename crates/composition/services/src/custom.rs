//! The tools that a workspace brings along as data, and which of them may take effect.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use formwork_protocols::{
    ToolName, ToolSpec,
    document::{Diagnostic, Diagnostics},
};
use formwork_tool::custom::{CustomTool, ToolDocument};

use crate::{reading, trust};

/// The folder of a workspace's tools.
pub(crate) const TOOLS: &str = ".formwork/tools";

/// The largest document of a tool, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// The most tools of one workspace: each is offered to a model by its name at the least.
const MAX_TOOLS: usize = 200;

/// A tool of the workspace, as its file says.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// What the file says.
    pub text: String,
    /// The tool.
    pub document: ToolDocument,
}

impl Found {
    /// Says what it does, for whoever is to trust it.
    pub fn does(&self) -> String {
        let (name, execution) = (&self.document.tool.name, &self.document.execution);
        match (&execution.command, &execution.http) {
            (Some(command), _) => format!("{name} runs {}", command.argv.join(" ")),
            (None, Some(http)) => format!("{name} asks {}", http.url),
            (None, None) => format!("{name} does nothing"),
        }
    }
}

/// Reads the tools of a workspace, trusted or not. Nothing of them has an effect by that.
///
/// # Errors
/// [`Diagnostics`] lists every fault of every file.
pub fn read(workspace: &Path) -> Result<Vec<Found>, Diagnostics> {
    let folder = workspace.join(TOOLS);
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(fault(&folder, format!("the folder cannot be read: {error}")).into());
        }
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.len() > MAX_TOOLS {
        let told =
            format!("there are {} tools, and no more than {MAX_TOOLS} are read", files.len());
        return Err(fault(&folder, told).into());
    }
    let (mut found, mut faults) = (Vec::new(), Diagnostics::default());
    let mut names: BTreeMap<ToolName, PathBuf> = BTreeMap::new();
    for path in files {
        let text = match text(workspace, &path) {
            Ok(text) => text,
            Err(error) => {
                faults.merge([fault(&path, format!("it cannot be read: {error}"))]);
                continue;
            }
        };
        match ToolDocument::parse(&path.display().to_string(), &text) {
            Ok(document) => {
                let name = document.tool.name.clone();
                if let Some(other) = names.insert(name.clone(), path.clone()) {
                    let told = format!("{} brings a tool named {name} as well", other.display());
                    faults.merge([fault(&path, told)]);
                }
                found.push(Found { path, text, document });
            }
            Err(own) => faults.merge(own),
        }
    }
    faults.or(found)
}

/// Parts the tools of a workspace into those that a person has trusted as they stand, with what they run, and the others.
///
/// # Errors
/// As [`read`].
pub(crate) fn trusted(
    workspace: &Path,
    state: &Path,
) -> Result<(Vec<Found>, Vec<Found>), Diagnostics> {
    let all = read(workspace)?;
    let is_trusted = |tool: &Found| {
        trust::of_tool(workspace, tool).iter().all(|it| it.is_trusted(state, workspace))
    };
    Ok(all.into_iter().partition(is_trusted))
}

/// Describes tools.
pub(crate) fn specs(documents: impl IntoIterator<Item = ToolDocument>) -> Vec<ToolSpec> {
    documents.into_iter().map(|document| CustomTool::spec_of(&document)).collect()
}

/// Says how tools come to have an effect that have none yet; nothing where there are none.
pub(crate) fn untrusted_hint(untrusted: &[Found]) -> String {
    if untrusted.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = untrusted.iter().map(|tool| tool.document.tool.name.as_str()).collect();
    format!(
        "; not trusted as they stand, and so without effect: {} (read their files below {TOOLS}, then run `formwork \
         trust`)",
        names.join(", ")
    )
}

fn text(workspace: &Path, path: &Path) -> io::Result<String> {
    let text = reading::document_of(workspace, path)?;
    match text.len() > MAX_BYTES {
        true => Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes"))),
        false => Ok(text),
    }
}

fn fault(path: &Path, told: String) -> Diagnostic {
    Diagnostic {
        source: path.display().to_string().into(),
        line: 1,
        column: 1,
        span: 0..0,
        key: String::new(),
        message: told,
        hint: None,
        text: "".into(),
    }
}
