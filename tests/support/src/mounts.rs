//! File systems of a test's own: small ones that fill up, and ones that become read-only.
//!
//! They are made in a namespace of users and mounts, so they need no rights, nobody else sees them, and they go with
//! the last process within.

use std::{
    io,
    process::{Command, ExitStatus, Stdio},
};

use crate::require;

/// Begins a process that may mount for itself.
const NAMESPACE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

/// Why there are no such file systems here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The program that makes namespaces is not here.
    #[error("no unshare in PATH: {source}")]
    NotInstalled { source: io::Error },
    /// The kernel, or how it is set up, does not allow it.
    #[error("a file system cannot be mounted in a namespace here: unshare ended with {status}")]
    Refused { status: ExitStatus },
}

/// That file systems of one's own can be had.
#[derive(Debug, Clone, Copy)]
pub struct Mounts(());

impl Mounts {
    /// Tells whether they can be had, and says `SKIP mounts` with the reason on standard error where not.
    ///
    /// # Panics
    /// When they cannot be had and `FORMWORK_REQUIRE` names `mounts`.
    pub fn available() -> Option<Self> {
        require::present_or_skipped("mounts", Self::probe())
    }

    fn probe() -> Result<Self, Error> {
        let mut command = Self(()).shell("mount -t tmpfs -o size=64k none /mnt");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(|source| Error::NotInstalled { source })?;
        if status.success() { Ok(Self(())) } else { Err(Error::Refused { status }) }
    }

    /// Returns a command that runs a script of `sh` in a namespace where it may mount. Arguments that are added are
    /// those of the script, from `$1` on.
    pub fn shell(self, script: &str) -> Command {
        let [program, arguments @ ..] = NAMESPACE;
        let mut command = Command::new(program);
        command.args(arguments).args(["sh", "-c", script, "sh"]);
        command
    }
}
