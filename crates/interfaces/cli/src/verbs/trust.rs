//! `formwork trust`: lets the project's config take effect, as it stands now.

use anyhow::anyhow;
use formwork_protocols::OutcomeCode;
use serde_json::json;

use crate::{
    args::{Global, Trust},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn trust(
    global: &Global,
    terminal: &Terminal,
    args: Trust,
) -> Result<OutcomeCode, Fault> {
    let settings = Settings::load(global, Vec::new(), Need::Look)?;
    let Some(project) = settings.project else {
        return Err(Fault::setup(anyhow!("{} has no formwork.toml", settings.workspace.display()))
            .hint("`formwork init` writes one"));
    };
    let path = project.path.display().to_string();
    if args.revoke {
        formwork_services::trust::revoke(&settings.state, &project.path)?;
        terminal.result(&json!({ "path": path, "trusted": false }), || {
            format!("{path} is no longer trusted\n")
        })?;
        return Ok(OutcomeCode::Completed);
    }
    formwork_services::trust::trust(&settings.state, &project.path, &project.text)?;
    terminal.result(&json!({ "path": path, "trusted": true, "sets": project.reaching }), || {
        if project.reaching.is_empty() {
            return format!("{path} sets nothing that needs trust\n");
        }
        let mut text = format!("{path} is trusted as it stands now; it sets\n");
        for key in &project.reaching {
            text.push_str(&format!("  {key}\n"));
        }
        text.push_str("any later change needs `formwork trust` again\n");
        text
    })?;
    Ok(OutcomeCode::Completed)
}
