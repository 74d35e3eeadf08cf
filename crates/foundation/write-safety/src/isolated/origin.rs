//! What a copy came from: a line for what it began with, one for the commit it is on, and the workspace's path.

use crate::{
    error::Error,
    ledger::Hash,
    snapshot::{Durability, put_file},
};
use std::{
    ffi::OsString,
    io::ErrorKind,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

const HEADER: &str = "formwork copy 1";
/// Stands for the commit where there is none.
const NONE: &str = "-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) workspace: PathBuf,
    pub(super) base: Hash,
    /// What git had checked out, where the copy is a worktree.
    pub(super) commit: Option<String>,
}

impl Origin {
    /// Writes it as a whole, to the disk.
    pub(super) fn write(&self, place: &Path) -> Result<(), Error> {
        let commit = self.commit.as_deref().unwrap_or(NONE);
        let mut bytes = format!("{HEADER}\n{}\n{commit}\n", self.base).into_bytes();
        bytes.extend_from_slice(self.workspace.as_os_str().as_bytes());
        put_file(place, &bytes, Durability::Synced)
    }

    /// Reads it; none where there is none.
    pub(super) fn read(place: &Path) -> Result<Option<Self>, Error> {
        let written = place.to_string_lossy();
        let bytes = match std::fs::read(place) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(&written, "read", e)),
        };
        parse(&bytes).map(Some).ok_or_else(|| Error::Damaged {
            what: "origin of a workspace of one's own",
            id: written.into_owned(),
            problem: "it cannot be read".to_owned(),
        })
    }
}

fn parse(bytes: &[u8]) -> Option<Origin> {
    let mut parts = bytes.splitn(4, |&byte| byte == b'\n');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    if text()? != HEADER {
        return None;
    }
    let base = Hash::from_hex(text()?).ok()?;
    let commit = Some(text()?).filter(|commit| *commit != NONE).map(str::to_owned);
    let workspace = OsString::from_vec(parts.next()?.to_vec()).into();
    Some(Origin { workspace, base, commit })
}
