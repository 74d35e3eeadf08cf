//! Worktrees that git links to a repository, made and forgotten without a checkout: no hook and no filter is run.

use super::{ReadOnlyGit, failed};
use crate::error::Error;
use std::path::Path;

/// A repository, as far as worktrees are added to it.
pub(crate) struct Linked {
    git: ReadOnlyGit,
}

impl Linked {
    /// Looks at the repository of a workspace.
    pub(crate) fn of(workspace: &Path) -> Result<Self, Error> {
        Ok(Self { git: ReadOnlyGit::open(workspace)? })
    }

    /// Makes a worktree at `work` on what is committed, with no files in it, and returns the commit.
    pub(crate) fn add(&self, work: &Path) -> Result<String, Error> {
        let commit = self.git.head()?.ok_or_else(|| Error::NotAWorktree {
            path: self.git.worktree().to_string_lossy().into_owned(),
            why: "nothing is committed yet".to_owned(),
        })?;
        let place = work.to_string_lossy();
        let args = ["worktree", "add", "--quiet", "--detach", "--no-checkout", &*place, &commit];
        self.git.git(&args, b"", &[])?;
        // The files come from elsewhere; the index says what is committed.
        ReadOnlyGit::open(work)?.git(&["read-tree", &commit], b"", &[])?;
        Ok(commit)
    }

    /// Keeps what was committed in the worktree `work` since `began`, by a reference that is returned.
    pub(crate) fn keep(
        &self,
        work: &Path,
        began: &str,
        name: &str,
    ) -> Result<Option<String>, Error> {
        // One whose link to the repository is broken has nothing to tell.
        let Ok(copy) = ReadOnlyGit::open(work) else { return Ok(None) };
        let Some(head) = copy.head()?.filter(|head| head != began) else { return Ok(None) };
        let reference = format!("refs/formwork/kept/{name}");
        self.git.git(&["update-ref", &reference, &head], b"", &[])?;
        Ok(Some(reference))
    }

    /// Has git forget a worktree whose folder is gone.
    pub(crate) fn forget(&self, work: &Path) -> Result<(), Error> {
        let listed = self.git.git(&["worktree", "list", "--porcelain"], b"", &[])?;
        let line = [b"worktree ", work.as_os_str().as_encoded_bytes()].concat();
        if !listed.stdout.split(|&byte| byte == b'\n').any(|found| found == line) {
            return Ok(());
        }
        let args = ["worktree", "remove", "--force", "--force", &*work.to_string_lossy()];
        let done = self.git.raw(&args, b"", &[])?;
        match done.code {
            0 => Ok(()),
            code => Err(failed("worktree remove", format!("exit code {code}"), &done.stderr)),
        }
    }
}
