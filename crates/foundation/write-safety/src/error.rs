//! Why a file could not be reached, changed or compared.

use crate::edit::Miss;
use std::io;

/// Why a file operation did not happen; nothing was changed unless the variant says so.
///
/// Every `path` is the path as the caller wrote it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// A rule stands against this path.
    #[error("{path:?} is refused: {why}")]
    Refused { path: String, why: Refusal },
    /// Nothing is there.
    #[error("{path:?} does not exist")]
    Missing { path: String },
    /// Something is there that would be clobbered.
    #[error("{path:?} exists already")]
    Exists { path: String },
    /// The path leads to something of another kind.
    #[error("{path:?} is a {found}, wanted a {wanted}")]
    Kind { path: String, wanted: &'static str, found: &'static str },
    /// Overwriting needs a read by the same session first.
    #[error("{path:?} was not read by this session; read it before it is overwritten")]
    Unread { path: String },
    /// The content changed after this session read it.
    #[error("{path:?} was changed by {by} since this session read it:\n{diff}")]
    Stale { path: String, by: Writer, diff: String },
    /// Another process kept changing the file while it was being written.
    #[error("{path:?} was changed by another process during the write")]
    Raced { path: String },
    /// Another process has held its folder for too long. Nothing was changed.
    #[error("{path:?} lies in a folder that another process keeps to itself")]
    Busy { path: String },
    /// The work was given up before anything was changed.
    #[error("{path:?} was not changed: the work was given up")]
    Unwanted { path: String },
    /// The text to be replaced was not found, or not found once.
    #[error("edit {number} of {path:?}: {miss}", number = .miss.edit + 1)]
    Miss { path: String, miss: Box<Miss> },
    /// The file is not text.
    #[error("{path:?} is not text: it holds a NUL byte at offset {at}")]
    Binary { path: String, at: usize },
    /// The file's encoding has no such character.
    #[error("{path:?} is {encoding}, which has no character {character:?}")]
    Unencodable { path: String, encoding: &'static str, character: char },
    /// The file is larger than this crate reads whole.
    #[error("{path:?} has {found} bytes, wanted at most {limit}")]
    TooLarge { path: String, found: u64, limit: u64 },
    /// A patch does not say what it should.
    #[error("patch line {line}: {problem}")]
    Patch { line: usize, problem: String },
    /// A patch is of a file of another mode.
    #[error("{path:?} has mode {found}, and the patch is of one with mode {wanted}")]
    Mode { path: String, wanted: &'static str, found: &'static str },
    /// A glob of the write rules does not parse.
    #[error("glob {glob:?} of {list} does not parse")]
    Glob { list: &'static str, glob: String, source: Box<globset::Error> },
    /// A glob of the write rules means nothing in the workspace.
    #[error("glob {glob:?} of {list} leads out of the workspace: globs begin at its root")]
    GlobOutside { list: &'static str, glob: String },
    /// A workspace of one's own holds work that is not merged. It is left as it is.
    #[error("{name:?} changed {paths:?}, which is not merged")]
    Unmerged { name: String, paths: Vec<String> },
    /// A trash or snapshot id is unknown or malformed.
    #[error("no {what} {id:?}")]
    Unknown { what: &'static str, id: String },
    /// What was stored is not what was put there.
    #[error("stored {what} {id:?} is damaged: {problem}")]
    Damaged { what: &'static str, id: String, problem: String },
    /// Some files of a batch were replaced before one failed, and could not all be put back.
    #[error("{path:?} failed after other files were replaced, and {left:?} could not be put back")]
    HalfDone { path: String, left: Vec<String>, source: io::Error },
    /// What was to be deleted is whole in the trash, by this id, and may be left in part where it was.
    #[error("{path:?} is kept in the trash as {id}, and may still be there in part")]
    InTrash { path: String, id: String, source: Box<Error> },
    /// A git argument is not on the read-only list.
    #[error("git {command}: {argument:?} is refused: {why}")]
    GitRefused { command: String, argument: String, why: &'static str },
    /// The folder is not the top of a git worktree that may be read.
    #[error("{path:?} is no readable git worktree: {why}")]
    NotAWorktree { path: String, why: String },
    /// A merge, rebase or the like is under way, which a commit would break into.
    #[error("nothing is committed while {what} says that something is under way")]
    UnderWay { what: String },
    /// There is nothing of one's own to commit.
    #[error("there is nothing to commit{left}")]
    NothingToCommit { left: String },
    /// A content is not to be committed.
    #[error("{path:?} is not committed: {reason}")]
    Unclean { path: String, reason: String },
    /// Git ended with a failure.
    #[error("git {command} ended with {status}: {stderr}")]
    Git { command: String, status: String, stderr: String },
    /// The operating system refused.
    #[error("cannot {action} {path:?}")]
    Io { path: String, action: &'static str, source: io::Error },
}

/// Which rule stands against a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refusal {
    #[error("it is empty")]
    Empty,
    #[error("it holds a NUL character")]
    Nul,
    #[error("it leads out of the root")]
    Outside,
    #[error("a link in it leads out of the root, to {target:?}")]
    LinkOutside { target: String },
    #[error("it passes more than {limit} links")]
    TooManyLinks { limit: usize },
    #[error("it kept changing while it was resolved")]
    Unsteady,
    #[error("the trusted root {root:?} is read-only")]
    ReadOnly { root: String },
    #[error("it is the root itself")]
    RootItself,
    #[error("git's own folder is never written ({found:?})")]
    Git { found: String },
    #[error("{found:?} is protected by {glob:?}")]
    Protected { found: String, glob: String },
    #[error("{found:?} is not within the write paths {globs:?}")]
    NotWritable { found: String, globs: Vec<String> },
    #[error("it is more than {limit} folders deep")]
    TooDeep { limit: usize },
    #[error("it is a {kind}, not a file or folder")]
    Special { kind: &'static str },
    #[error("deleting needs a trash and a reason")]
    NoTrash,
    #[error("{target:?} lies within it")]
    IntoItself { target: String },
}

/// Who changed a file since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Another session of the same run.
    ThisRun,
    /// Somebody outside the run: a person, an editor, a process.
    Outside,
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ThisRun => "another session of this run",
            Self::Outside => "somebody outside this run",
        })
    }
}

impl Error {
    pub(crate) fn refused(path: &str, why: Refusal) -> Self {
        Self::Refused { path: path.to_owned(), why }
    }

    /// Sorts an operating system's error by what a caller can do about it.
    pub(crate) fn io(path: &str, action: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Io { path, action, source },
        }
    }
}
