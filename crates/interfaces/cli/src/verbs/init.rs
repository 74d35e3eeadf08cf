//! `formwork init`: a commented starting set.

use std::fs;

use formwork_protocols::OutcomeCode;
use serde_json::json;

use crate::{
    args::{Global, Init},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

/// What is written, and where.
const FILES: [(&str, &str); 4] = [
    ("formwork.toml", include_str!("../../assets/init/formwork.toml")),
    (".formwork/agents/coder.toml", include_str!("../../assets/init/coder.toml")),
    (".formwork/agents/coder.md", include_str!("../../assets/init/coder.md")),
    (".formwork/workflows/fix.toml", include_str!("../../assets/init/fix.toml")),
];

pub(super) fn init(global: &Global, terminal: &Terminal, args: Init) -> Result<OutcomeCode, Fault> {
    let settings = Settings::load(global, Vec::new(), Need::Look)?;
    let (mut written, mut kept) = (Vec::new(), Vec::new());
    for (name, text) in FILES {
        let path = settings.workspace.join(name);
        if path.exists() && !args.force {
            kept.push(name);
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| {
                Fault::setup(
                    anyhow::Error::from(error).context(format!("cannot make {}", folder.display())),
                )
            })?;
        }
        fs::write(&path, text).map_err(|error| {
            Fault::setup(
                anyhow::Error::from(error).context(format!("cannot write {}", path.display())),
            )
        })?;
        written.push(name);
    }
    terminal.result(&json!({ "written": written, "kept": kept }), || {
        let mut text = String::new();
        for name in &written {
            text.push_str(&format!("wrote {name}\n"));
        }
        for name in &kept {
            text.push_str(&format!("kept  {name} as it is; --force overwrites it\n"));
        }
        text.push_str(
            "next: name a model in formwork.toml, run `formwork trust`, then `formwork doctor`\n",
        );
        text
    })?;
    Ok(OutcomeCode::Completed)
}
