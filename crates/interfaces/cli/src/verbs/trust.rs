//! `formwork trust`: lets the project's config and tools take effect, as they stand now.

use anyhow::anyhow;
use formwork_protocols::OutcomeCode;
use formwork_services::{custom, trust};
use serde_json::json;

use crate::{
    args::{Global, Trust},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
    view::visible,
};

pub(super) fn trust(
    global: &Global,
    terminal: &Terminal,
    args: Trust,
) -> Result<OutcomeCode, Fault> {
    let settings = Settings::load(global, Vec::new(), Need::Look)?;
    let tools = custom::read(&settings.workspace).map_err(Fault::documents)?;
    let (state, project) = (&settings.state, settings.project);
    if project.is_none() && tools.is_empty() {
        let what = anyhow!("{} has no formwork.toml and no tools", settings.workspace.display());
        return Err(Fault::setup(what).hint("`formwork init` writes a config"));
    }
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    if let Some(project) = project {
        match args.revoke {
            true => trust::revoke(state, &project.path)?,
            false => trust::trust(state, &project.path, &project.text)?,
        }
        said.push((project.path.display().to_string(), project.reaching));
    }
    for tool in tools {
        match args.revoke {
            true => trust::revoke(state, &tool.path)?,
            false => trust::trust(state, &tool.path, &tool.text)?,
        }
        said.push((tool.path.display().to_string(), vec![tool.does()]));
    }
    let files: Vec<_> =
        said.iter().map(|(path, sets)| json!({ "path": path, "sets": sets })).collect();
    let first = said.first().map_or("", |(path, _)| path);
    let document = json!({
        "path": first, "trusted": !args.revoke, "sets": said.first().map(|(_, sets)| sets),
        "files": files,
    });
    terminal.result(&document, || {
        let mut text = String::new();
        for (path, sets) in &said {
            if args.revoke {
                text.push_str(&format!("{path} is no longer trusted\n"));
            } else if sets.is_empty() {
                text.push_str(&format!("{path} sets nothing that needs trust\n"));
            } else {
                text.push_str(&format!("{path} is trusted as it stands now; it sets\n"));
                for key in sets {
                    text.push_str(&format!("  {}\n", visible(key)));
                }
            }
        }
        if !args.revoke && said.iter().any(|(_, sets)| !sets.is_empty()) {
            text.push_str("any later change needs `formwork trust` again\n");
        }
        text
    })?;
    Ok(OutcomeCode::Completed)
}
