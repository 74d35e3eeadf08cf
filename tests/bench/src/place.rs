//! Where benches keep their files: on the disk that is measured, not in memory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// Returns the folder beside this program for what is kept from one bench to the next.
pub(crate) fn kept() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = program.parent().unwrap_or(Path::new(".")).join("bench");
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(folder)
}

/// Makes a folder that goes when it is dropped, on the same disk.
pub(crate) fn scratch() -> Result<TempDir> {
    let folder = kept()?;
    tempfile::tempdir_in(&folder).with_context(|| format!("cannot write to {}", folder.display()))
}

/// Finds the program under measure: the one that was named, or the one built beside this one.
pub(crate) fn formwork(named: Option<&Path>) -> Result<PathBuf> {
    let program = match named {
        Some(named) => named.to_owned(),
        None => {
            let own = std::env::current_exe().context("cannot tell where this program is")?;
            own.with_file_name("formwork")
        }
    };
    program.canonicalize().with_context(|| {
        format!(
            "there is no program {}: build it with `cargo build --release -p formwork-cli`, or name \
             one with --formwork",
            program.display()
        )
    })
}
