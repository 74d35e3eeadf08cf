//! Small real git repositories, the same hashes on every machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// When the first commit of every repository is made: 2026-01-01 00:00:00 UTC, in Unix seconds.
const FIRST_COMMIT_AT: u64 = 1_767_225_600;

/// How far apart two commits of one repository are, in seconds.
const BETWEEN_COMMITS: u64 = 60;

/// Why a repository could not be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// A file or a process could not be used.
    #[error("cannot use {path} in a test repository")]
    Io { path: PathBuf, source: io::Error },
    /// Git ran and refused.
    #[error("git {arguments} ended with {status}: {stderr}")]
    Git { arguments: String, status: std::process::ExitStatus, stderr: String },
}

/// A git repository in a temporary folder that goes when the value is dropped.
///
/// It reads no configuration of the user or the system, its author and dates are fixed, and so
/// the same writes give the same hashes everywhere.
#[derive(Debug)]
pub struct Repo {
    folder: TempDir,
    commits: AtomicU64,
}

impl Repo {
    /// Makes an empty repository whose branch is `main`.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no temporary folder or no git; [`Error::Git`] when git refuses.
    pub fn new() -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("formwork-repo-")
            .tempdir()
            .map_err(|source| Error::Io { path: std::env::temp_dir(), source })?;
        let repo = Self { folder, commits: AtomicU64::new(0) };
        repo.git(&["init", "--quiet", "--initial-branch=main", "--template="])?;
        Ok(repo)
    }

    /// Returns the folder of the working tree.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes `text` to `file`, a path within the repository, and makes its folders.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn write(&self, file: impl AsRef<Path>, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = self.path().join(file);
        path.parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|source| Error::Io { path, source })
    }

    /// Reads `file`, a path within the repository, as text.
    ///
    /// # Errors
    /// [`Error::Io`] when the file is not there or is not UTF-8.
    pub fn read(&self, file: impl AsRef<Path>) -> Result<String, Error> {
        let path = self.path().join(file);
        std::fs::read_to_string(&path).map_err(|source| Error::Io { path, source })
    }

    /// Commits all that is in the working tree and returns the commit's hash.
    ///
    /// # Errors
    /// [`Error::Git`] when there is nothing to commit.
    pub fn commit(&self, message: &str) -> Result<String, Error> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.head()
    }

    /// Returns the hash of the commit that `HEAD` names.
    ///
    /// # Errors
    /// [`Error::Git`] when there is no commit yet.
    pub fn head(&self) -> Result<String, Error> {
        self.git(&["rev-parse", "--verify", "HEAD"])
    }

    /// Runs git in the repository and returns what it printed, without the last line ending.
    ///
    /// # Errors
    /// [`Error::Io`] when git cannot be started; [`Error::Git`] when it ends with another status
    /// than success.
    pub fn git(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self
            .command(arguments)
            .output()
            .map_err(|source| Error::Io { path: PathBuf::from("git"), source })?;
        if !output.status.success() {
            return Err(Error::Git {
                arguments: arguments.join(" "),
                status: output.status,
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let made = self.commits.load(Ordering::Relaxed);
        let date = format!("{} +0000", FIRST_COMMIT_AT + made * BETWEEN_COMMITS);
        let mut git = Command::new("git");
        git.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        // Git reads more than 50 variables: whoever runs the tests inside a git hook has some set.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                git.env_remove(name);
            }
        }
        git.env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CEILING_DIRECTORIES", self.path().parent().unwrap_or(self.path()))
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_AUTHOR_NAME", "Test Author")
            .env("GIT_AUTHOR_EMAIL", "author@example.invalid")
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_NAME", "Test Author")
            .env("GIT_COMMITTER_EMAIL", "author@example.invalid")
            .env("GIT_COMMITTER_DATE", &date)
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        git
    }
}

#[cfg(test)]
mod tests {
    use super::Repo;

    #[test]
    fn the_same_writes_give_the_same_hashes() {
        let one = Repo::new().unwrap();
        let other = Repo::new().unwrap();

        let hashes = [&one, &other].map(|repo| {
            repo.write("a/b.txt", "first\n").unwrap();
            let first = repo.commit("a: begin").unwrap();
            repo.write("a/b.txt", "second\n").unwrap();
            (first, repo.commit("a: go on").unwrap())
        });

        assert_eq!(hashes[0], hashes[1]);
        assert_eq!(hashes[0].0, "a78ce3754c373feb7a81571437919047f49a006c");
        assert_eq!(
            one.git(&["log", "--format=%s %ai"]).unwrap(),
            "a: go on 2026-01-01 00:01:00 +0000\na: begin 2026-01-01 00:00:00 +0000"
        );
    }

    #[test]
    fn a_commit_of_nothing_is_refused_with_what_git_said() {
        let repo = Repo::new().unwrap();

        let refused = repo.commit("nothing").unwrap_err().to_string();

        assert!(
            refused.starts_with("git commit --quiet --message nothing ended with"),
            "{refused}"
        );
    }

    #[test]
    fn the_folder_goes_with_the_value() {
        let repo = Repo::new().unwrap();
        let path = repo.path().to_owned();

        drop(repo);

        assert!(!path.exists());
    }
}
