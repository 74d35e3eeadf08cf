//! Git for looking only: no program of the repository runs, nothing is written, nothing outside is read.

mod allowed; // Which arguments a subcommand may have.
mod commit; // Commits without a checkout.
mod linked; // Worktrees beside the workspace.
mod staged; // What the next commit would bring.
mod touched; // What differs from a commit.
mod unwatched; // What git was told not to look at.

pub use commit::{Committed, Delta, Message, Remembered, Scan, identity_of};
pub(crate) use linked::Linked;
pub use staged::Staged;
pub use touched::{Place, Side, Touched};

use crate::error::Error;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The first version that takes settings from the environment, which is how they are overruled here.
const OLDEST: (u32, u32) = (2, 31);
/// Only the caller knows another search path.
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin";

/// Settings of a repository that would run a program, reach out or look elsewhere.
///
/// Source: `git help config`, every value that names a command, and the attributes' drivers.
const OVERRULED: [(&str, &str); 40] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", "false"),
    ("core.alternateRefsCommand", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.untrackedCache", "false"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("sequence.editor", "false"),
    ("diff.external", ""),
    ("diff.orderFile", "/dev/null"),
    // Else `git diff` writes the index. So a file touched but unchanged shows as an empty entry.
    ("diff.autoRefreshIndex", "false"),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "all"),
    ("interactive.diffFilter", "cat"),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.ssh.defaultKeyCommand", "false"),
    ("log.showSignature", "false"),
    ("log.mailmap", "false"),
    ("mailmap.file", "/dev/null"),
    ("mailmap.blob", ""),
    ("grep.fallbackToNoIndex", "false"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("protocol.ext.allow", "never"),
    ("protocol.file.allow", "never"),
    ("color.ui", "false"),
    ("column.ui", "never"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

/// Git for looking at one worktree.
///
/// Subcommands: `status`, `diff`, `log`, `show`, `blame`, `ls-files`, `rev-parse`, `branch` (listing),
/// `grep` and `cat-file`, each with a list of arguments; whatever is not on it is refused.
#[derive(Debug, Clone)]
pub struct ReadOnlyGit {
    program: PathBuf,
    worktree: PathBuf,
    git_dir: PathBuf,
}

/// A git call, ready to run. The environment is the whole one: nothing may be inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitCommand {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// All variables it gets.
    pub env: Vec<(OsString, OsString)>,
    /// The folder to run it in.
    pub dir: PathBuf,
}

/// How a git call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitOutput {
    /// Its exit code; 1 may mean "nothing found" or "differs".
    pub code: i32,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
}

impl ReadOnlyGit {
    /// Looks at the worktree whose top is `worktree`, with the `git` that is installed.
    ///
    /// # Errors
    /// [`Error::NotAWorktree`] if its `.git` is missing, or leads to a repository that does not
    /// know it; [`Error::Io`] if there is no git.
    pub fn open(worktree: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(worktree, "git")
    }

    /// As [`open`](Self::open), with another program.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        worktree: impl AsRef<Path>,
        program: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        let given = worktree.as_ref();
        let written = given.to_string_lossy();
        let worktree = given.canonicalize().map_err(|e| Error::io(&written, "open", e))?;
        let git_dir = git_dir(&worktree)
            .map_err(|why| Error::NotAWorktree { path: written.into_owned(), why })?;
        let git = Self { program: program.into(), worktree, git_dir };
        git.check_version()?;
        Ok(git)
    }

    /// Checks the arguments and builds the call, with every program of the repository overruled.
    ///
    /// `args` begins with the subcommand.
    ///
    /// # Errors
    /// [`Error::GitRefused`] names the argument; [`Error::Git`] if the repository's settings cannot be read.
    pub fn command<S: AsRef<str>>(&self, args: &[S]) -> Result<GitCommand, Error> {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let checked = allowed::check(&args)?;
        let drivers = self.filters()?;
        Ok(self.build(&checked, &drivers))
    }

    /// Runs a call and waits for it, however long it takes.
    ///
    /// # Errors
    /// As [`command`](Self::command); [`Error::Git`] if git itself fails; [`Error::Io`].
    pub fn run<S: AsRef<str>>(&self, args: &[S]) -> Result<GitOutput, Error> {
        let name = args.first().map(AsRef::as_ref).unwrap_or_default();
        run(name, &self.command(args)?)
    }

    /// Returns the top of the worktree, without links.
    pub fn worktree(&self) -> &Path {
        &self.worktree
    }

    fn build(&self, args: &[String], filters: &[OsString]) -> GitCommand {
        let mut settings: Vec<(OsString, OsString)> =
            OVERRULED.iter().map(|(key, value)| (key.into(), value.into())).collect();
        settings.push(("safe.directory".into(), self.worktree.clone().into()));
        for name in filters {
            for (key, value) in
                [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            {
                let key = [b"filter.", name.as_bytes(), b".", key.as_bytes()].concat();
                settings.push((OsString::from_vec(key), value.into()));
            }
        }
        let null = "/dev/null";
        let fixed: [(&str, &OsStr); 22] = [
            ("PATH", SEARCH_PATH.as_ref()),
            ("HOME", null.as_ref()),
            ("XDG_CONFIG_HOME", null.as_ref()),
            ("LC_ALL", "C.UTF-8".as_ref()),
            ("TERM", "dumb".as_ref()),
            ("GIT_DIR", self.git_dir.as_os_str()),
            ("GIT_WORK_TREE", self.worktree.as_os_str()),
            ("GIT_CONFIG_NOSYSTEM", "1".as_ref()),
            ("GIT_CONFIG_SYSTEM", null.as_ref()),
            ("GIT_CONFIG_GLOBAL", null.as_ref()),
            ("GIT_ATTR_NOSYSTEM", "1".as_ref()),
            ("GIT_OPTIONAL_LOCKS", "0".as_ref()),
            ("GIT_TERMINAL_PROMPT", "0".as_ref()),
            ("GIT_NO_LAZY_FETCH", "1".as_ref()),
            ("GIT_NO_REPLACE_OBJECTS", "1".as_ref()),
            ("GIT_ALLOW_PROTOCOL", "none".as_ref()),
            ("GIT_PROTOCOL_FROM_USER", "0".as_ref()),
            ("GIT_PAGER", "cat".as_ref()),
            ("PAGER", "cat".as_ref()),
            ("GIT_EDITOR", "false".as_ref()),
            ("GIT_ASKPASS", "false".as_ref()),
            ("GIT_SSH_COMMAND", "false".as_ref()),
        ];
        let mut env: Vec<(OsString, OsString)> =
            fixed.into_iter().map(|(key, value)| (key.into(), value.to_owned())).collect();
        env.push(("GIT_CONFIG_COUNT".into(), settings.len().to_string().into()));
        for (index, (key, value)) in settings.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{index}").into(), key));
            env.push((format!("GIT_CONFIG_VALUE_{index}").into(), value));
        }
        let mut argv = vec![self.program.clone().into_os_string(), "--no-pager".into()];
        argv.extend(args.iter().map(OsString::from));
        GitCommand { argv, env, dir: self.worktree.clone() }
    }

    /// Lists the filters that the repository's settings name, so that each can be overruled.
    fn filters(&self) -> Result<Vec<OsString>, Error> {
        let args = ["config", "--list", "--name-only", "-z"].map(str::to_owned);
        let output = run("config", &self.build(&args, &[]))?;
        if output.code != 0 {
            return Err(failed("config", format!("exit code {}", output.code), &output.stderr));
        }
        let mut names: Vec<_> = output
            .stdout
            .split(|&byte| byte == 0)
            .filter_map(|key| {
                let rest = key.strip_prefix(b"filter.")?;
                let dot = rest.iter().rposition(|&byte| byte == b'.')?;
                Some(OsString::from_vec(rest.get(..dot)?.to_vec()))
            })
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn check_version(&self) -> Result<(), Error> {
        let output = run("version", &self.build(&["version".to_owned()], &[]))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let mut next = || numbers.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
        let version = (next(), next());
        if version >= OLDEST {
            return Ok(());
        }
        Err(Error::NotAWorktree {
            path: self.worktree.to_string_lossy().into_owned(),
            why: format!("git is {:?}, wanted {}.{} or later", text.trim(), OLDEST.0, OLDEST.1),
        })
    }
}

fn run(name: &str, command: &GitCommand) -> Result<GitOutput, Error> {
    let Some((program, args)) = command.argv.split_first() else {
        return Err(failed(name, "no program".to_owned(), b""));
    };
    let output = Command::new(program)
        .args(args)
        .env_clear()
        .envs(command.env.iter().map(|(key, value)| (key, value)))
        .current_dir(&command.dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::io(&program.to_string_lossy(), "run", e))?;
    match output.status.code() {
        Some(code) if code < 128 => {
            Ok(GitOutput { code, stdout: output.stdout, stderr: output.stderr })
        }
        _ => Err(failed(name, output.status.to_string(), &output.stderr)),
    }
}

fn failed(command: &str, status: String, stderr: &[u8]) -> Error {
    let stderr = String::from_utf8_lossy(stderr).trim().to_owned();
    Error::Git { command: command.to_owned(), status, stderr }
}

/// Finds the repository of a worktree, and refuses one that another place does not vouch for.
///
/// A tree that was unpacked can hold a `.git` that points at somebody else's repository.
fn git_dir(worktree: &Path) -> Result<PathBuf, String> {
    let dot_git = worktree.join(".git");
    let meta = dot_git.symlink_metadata().map_err(|_| "it has no .git at its top".to_owned())?;
    let read = |path: &Path| std::fs::read(path).ok().map(|text| text.trim_ascii_end().to_vec());
    if meta.is_dir() {
        return if dot_git.join("commondir").exists() {
            Err("its .git borrows from another repository".to_owned())
        } else {
            Ok(dot_git)
        };
    }
    if !meta.is_file() {
        return Err("its .git is neither a folder nor a file".to_owned());
    }
    let text = read(&dot_git).ok_or("its .git file cannot be read")?;
    let path = text.strip_prefix(b"gitdir: ").ok_or("its .git file names no repository")?;
    let git_dir = worktree.join(OsStr::from_bytes(path)).canonicalize();
    let git_dir = git_dir.map_err(|_| "the repository that its .git file names is not there")?;
    if git_dir.starts_with(worktree) {
        return Err("its .git file names a folder within it".to_owned());
    }
    // A linked worktree's repository knows the worktree; a submodule's names its folder.
    let known = read(&git_dir.join("gitdir")).is_some_and(|back| {
        git_dir.join(OsStr::from_bytes(&back)).canonicalize().is_ok_and(|back| back == dot_git)
    });
    if known || submodule_of(&git_dir).is_some_and(|folder| folder == worktree) {
        Ok(git_dir)
    } else {
        // One made with --separate-git-dir knows no worktree. To take a pointer at its word would read, and commit to,
        // whatever repository a tree that was unpacked names; its owner can vouch for it, as git does for submodules.
        Err("the repository that its .git file names does not know it; if it is yours, as after `git init \
             --separate-git-dir`, run `git config core.worktree \"$PWD\"` at the top of the worktree"
            .to_owned())
    }
}

/// Reads where a submodule's repository says its folder is.
fn submodule_of(git_dir: &Path) -> Option<PathBuf> {
    let config = std::fs::read_to_string(git_dir.join("config")).ok()?;
    let value = config.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == "worktree").then(|| value.trim().to_owned())
    })?;
    git_dir.join(value).canonicalize().ok()
}

#[cfg(test)]
mod tests;
