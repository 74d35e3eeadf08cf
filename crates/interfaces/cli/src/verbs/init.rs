//! `formwork init`: a commented starting set.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use formwork_protocols::OutcomeCode;
use serde_json::json;

use crate::{
    args::{Global, Init},
    fault::Fault,
    settings,
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
    // What the config says is not asked: it may be what is to be replaced.
    let workspace = settings::workspace(global.dir.as_deref())?;
    let (mut written, mut kept) = (Vec::new(), Vec::new());
    for (name, text) in FILES {
        let is_there = fs::symlink_metadata(workspace.join(name)).is_ok();
        if is_there && !args.force {
            kept.push(name);
            continue;
        }
        write(&workspace, Path::new(name), text).map_err(|error| {
            Fault::setup(anyhow::Error::from(error).context(format!("cannot write {name}")))
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
            "next: name a model in formwork.toml, run `formwork trust`, then `formwork doctor`\n\
             then: `formwork run fix --mode edit`; without a mode, agents only look\n",
        );
        text
    })?;
    Ok(OutcomeCode::Completed)
}

/// Writes a file within the workspace. A repository could lead out of it by a link, so that none is followed.
fn write(workspace: &Path, name: &Path, text: &str) -> io::Result<()> {
    let folder = name.parent().unwrap_or(Path::new(""));
    let mut at = workspace.to_owned();
    for part in folder {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::Error::other(format!("{} is no folder", at.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&at)?,
            Err(error) => return Err(error),
        }
    }
    let target = workspace.join(name);
    if fs::symlink_metadata(&target).is_ok_and(|found| found.is_dir()) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Renamed into its place, which replaces a link and not what it leads to.
    let file = name.file_name().unwrap_or_default().to_string_lossy();
    let part = at.join(format!(".{file}.{}.part", std::process::id()));
    let made = File::create_new(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&part, &target));
    if made.is_err() {
        let _ = fs::remove_file(&part);
    }
    made
}
