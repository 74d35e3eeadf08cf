//! `formwork trust`: lets what came with the project take effect, as it stands now.

use anyhow::anyhow;
use formwork_protocols::OutcomeCode;
use formwork_services::trust;
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
    let (state, workspace) = (&settings.state, &settings.workspace);
    let said: Vec<(String, Vec<String>)> = match args.revoke {
        true => {
            let revoked = trust::revoke(state, workspace)?;
            revoked.into_iter().map(|path| (path, Vec::new())).collect()
        }
        false => {
            let hooks = settings.project.as_ref().map_or(&[][..], |project| &project.hooks);
            let config = settings.project.as_ref().map(|project| project.brought());
            let others = trust::brought(workspace, hooks).map_err(Fault::documents)?;
            let brought: Vec<_> = config.into_iter().chain(others).collect();
            if brought.is_empty() {
                let what = anyhow!(
                    "{} has no formwork.toml, and no agents, workflows or tools",
                    workspace.display()
                );
                return Err(Fault::setup(what).hint("`formwork init` writes a config"));
            }
            for file in &brought {
                trust::trust(state, workspace, file)?;
            }
            brought.into_iter().map(|file| (file.path.display().to_string(), file.does)).collect()
        }
    };
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
            let path = visible(path);
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
        if args.revoke && said.is_empty() {
            text.push_str(&format!("nothing of {} was trusted\n", workspace.display()));
        }
        if !args.revoke && said.iter().any(|(_, sets)| !sets.is_empty()) {
            text.push_str("any later change needs `formwork trust` again\n");
        }
        text
    })?;
    Ok(OutcomeCode::Completed)
}
