//! What a reviewer is shown: what a task changed, or a change that git knows.

use std::{collections::BTreeMap, io::Read as _, os::unix::ffi::OsStrExt as _, path::Path};

use formwork_protocols::{BlobHash, Scrub, check::GitChange};
use formwork_write_safety::{
    Kind, Place, ReadOnlyGit, RelPath, Root, Side, Touched, diff as difference,
};

use super::diff::{Diff, one_line};
use crate::{Error, commits::top};

/// The largest content of a file that is compared; what is larger was made by a program.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// How many files one change may touch, and how many bytes they may hold together, to be looked at at once.
const MAX_FILES: usize = 5_000;
const MAX_TOTAL: u64 = 64 * 1024 * 1024;

/// A change, at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    /// What it is, in a line; nothing where the task says it.
    pub(crate) what: String,
    /// The commit that `HEAD` names, where git was asked.
    pub(crate) head: Option<String>,
    pub(crate) diff: Diff,
    /// Is another one once anything of it is.
    pub(crate) mark: BlobHash,
}

impl Sight {
    /// Nothing to look at.
    pub(super) fn nothing() -> Self {
        let (what, diff) = (String::new(), Diff::default());
        Self { what, head: None, diff, mark: BlobHash::of(b"") }
    }
}

/// Looks at a change that git knows.
///
/// # Errors
/// [`Error::Unreviewable`] says why there is no such change; [`Error::Workspace`] when git or a file cannot be read.
pub(crate) fn of_git(
    workspace: &Path,
    of: &GitChange,
    index: Option<&Path>,
    scrub: &dyn Scrub,
) -> Result<Sight, Error> {
    let unreviewable = |reason: String| Error::Unreviewable { reason };
    let (top, prefix) = top(workspace);
    let git = ReadOnlyGit::open(&top)?;
    let root = Root::open(&top)?;
    let Some(head) = git.commit_of("HEAD")? else {
        return Err(unreviewable("the repository has no commit yet to compare with".to_owned()));
    };
    let (since, mut what) = match &of.base {
        None => (head.clone(), format!("what differs from {}", short(&head))),
        Some(base) => {
            let named = one_line(base);
            let found = git.commit_of(base)?;
            let found =
                found.ok_or_else(|| unreviewable(format!("git knows no commit {named:?}")))?;
            let parted = git.merge_base(&found, &head)?.ok_or_else(|| {
                unreviewable(format!("{named:?} and HEAD have no commit in common"))
            })?;
            let what = format!("what differs from {}, where HEAD left {named}", short(&parted));
            (parted, what)
        }
    };
    if of.staged {
        what.push_str(", of what is staged");
    }
    let place = if of.staged { Place::Index(index) } else { Place::Worktree };
    let paths = pathspecs(&prefix, &of.paths)?;
    let mut touched = git.touched(&since, place, &paths)?;
    let mut diff = Diff::default();
    if !of.staged {
        let is_folder = |path: &RelPath| {
            root.stat_link(path.as_path()).is_ok_and(|stat| stat.kind == Kind::Folder)
        };
        let (repositories, new): (Vec<_>, Vec<_>) =
            git.untracked(&paths)?.into_iter().partition(is_folder);
        let within =
            |path: RelPath| format!("{} is a repository of its own", one_line(&path.to_string()));
        diff.opaque.extend(repositories.into_iter().map(within));
        let after = Some(Side { mode: 0o100_644, oid: None });
        let new = new.into_iter();
        touched.extend(new.map(|path| Touched { path, before: None, after: after.clone() }));
    }
    for path in paths.iter().filter(|_| !of.paths.is_empty()) {
        let is_in = |it: &Touched| it.path.as_path().starts_with(path.as_path());
        if !touched.iter().any(is_in) && root.stat_link(path.as_path()).is_err() {
            return Err(unreviewable(format!("there is nothing at {:?}", path.to_string())));
        }
    }
    if touched.len() > MAX_FILES {
        let count = touched.len();
        let reason = format!("{count} files differ, at most {MAX_FILES} are looked at at once");
        return Err(unreviewable(reason));
    }
    touched.sort_by(|one, other| one.path.cmp(&other.path));
    let contents = contents(&git, &touched)?;
    let mut seen = Seen { root: &root, contents, left: MAX_TOTAL, mark: head.clone().into_bytes() };
    for it in &touched {
        seen.add(it, &prefix, scrub, &mut diff)?;
    }
    let mark = BlobHash::of(&seen.mark);
    Ok(Sight { what, head: Some(head), diff, mark })
}

fn short(id: &str) -> &str {
    formwork_protocols::text::head(id, 12)
}

/// Names paths of the workspace from the top of the worktree.
fn pathspecs(prefix: &Path, paths: &[String]) -> Result<Vec<RelPath>, Error> {
    let own = match prefix.as_os_str().is_empty() {
        true => RelPath::root(),
        false => RelPath::parse(prefix)?,
    };
    if paths.is_empty() {
        return Ok(if own.is_root() { Vec::new() } else { vec![own] });
    }
    let named = paths.iter().map(|path| RelPath::parse(prefix.join(path)));
    let mut named = named.collect::<Result<Vec<_>, _>>()?;
    if named.iter().any(RelPath::is_root) {
        named.clear();
    }
    Ok(named)
}

/// What is in a blob, as far as it is not too large.
enum Content {
    Whole(Vec<u8>),
    TooLarge,
}

/// Reads the blobs of both sides.
fn contents(
    git: &ReadOnlyGit,
    touched: &[Touched],
) -> Result<BTreeMap<String, Content>, formwork_write_safety::Error> {
    let sides = touched.iter().flat_map(|it| [&it.before, &it.after]).flatten();
    let sides = sides.filter(|side| !side.is_submodule());
    let mut oids: Vec<&str> = sides.filter_map(|side| side.oid.as_deref()).collect();
    oids.sort_unstable();
    oids.dedup();
    let mut found = BTreeMap::new();
    let mut left = MAX_TOTAL;
    git.blobs(&oids, &mut |at, blob| {
        let mut bytes = Vec::new();
        let limit = MAX_BYTES.min(left);
        let read = blob.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|source| formwork_write_safety::Error::Io {
            action: "read a blob of",
            path: "the repository".to_owned(),
            source,
        })?;
        let content = match bytes.len() as u64 > limit {
            true => Content::TooLarge,
            false => Content::Whole(bytes),
        };
        if let Content::Whole(bytes) = &content {
            left = left.saturating_sub(bytes.len() as u64);
        }
        found.extend(oids.get(at).map(|oid| ((*oid).to_owned(), content)));
        Ok(())
    })?;
    Ok(found)
}

/// What of a change was looked at so far.
struct Seen<'a> {
    root: &'a Root,
    contents: BTreeMap<String, Content>,
    left: u64,
    mark: Vec<u8>,
}

impl Seen<'_> {
    fn add(
        &mut self,
        it: &Touched,
        prefix: &Path,
        scrub: &dyn Scrub,
        diff: &mut Diff,
    ) -> Result<(), Error> {
        let name = match it.path.as_path().strip_prefix(prefix) {
            Ok(below) => below.to_string_lossy().into_owned(),
            Err(_) => it.path.to_string(),
        };
        let shown = one_line(&name);
        let before = self.content(it, it.before.as_ref());
        let after = self.content(it, it.after.as_ref());
        let mode = |side: &Option<Side>| side.as_ref().map(|side| side.mode);
        let modes = (mode(&it.before), mode(&it.after));
        self.tell(&format!("{name}\0{modes:?}"));
        let (before, after) = match (before, after) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(why), _) | (_, Err(why)) => {
                diff.unseen.push(format!("{shown}: {why}"));
                return Ok(());
            }
        };
        for side in [&before, &after] {
            let hash = side.as_ref().map(|bytes| BlobHash::of(bytes));
            self.tell(&format!("{hash:?}"));
        }
        let mut text = match modes {
            (None, Some(mode)) if mode != 0o100_644 => format!("new file mode {mode:06o}\n"),
            (Some(old), Some(new)) if old != new => {
                format!("old mode {old:06o}\nnew mode {new:06o}\n")
            }
            _ => String::new(),
        };
        let body = difference(&name, before.as_deref(), after.as_deref());
        if [&it.before, &it.after].into_iter().flatten().any(Side::is_submodule) {
            diff.opaque.push(format!("{shown} is a submodule: what its commits hold"));
        }
        // Touched and put back, or an empty file that came or went.
        if body.is_empty() && before.is_some() == after.is_some() && text.is_empty() {
            return Ok(());
        }
        text.push_str(&body);
        diff.add(&name, &scrub.scrub_text(&text));
        Ok(())
    }

    fn tell(&mut self, fact: &str) {
        self.mark.extend_from_slice(fact.as_bytes());
        self.mark.push(b'\n');
    }

    /// Returns what one side holds, none where it is not there, or why it is not looked at.
    fn content(&mut self, it: &Touched, side: Option<&Side>) -> Result<Option<Vec<u8>>, String> {
        let Some(side) = side else { return Ok(None) };
        if side.is_submodule() {
            return self.submodule(&it.path, side).map(Some);
        }
        let too_large = || "it is too large to be looked at".to_owned();
        let bytes = match side.oid.as_ref().and_then(|oid| self.contents.get(oid)) {
            Some(Content::TooLarge) => return Err(too_large()),
            Some(Content::Whole(bytes)) => return Ok(Some(bytes.clone())),
            None => self.read(&it.path, too_large)?,
        };
        Ok(bytes)
    }

    /// Returns what git shows of a submodule, which is the commit that it is at.
    fn submodule(&self, path: &RelPath, side: &Side) -> Result<Vec<u8>, String> {
        let at = match &side.oid {
            Some(oid) => Some(oid.clone()),
            // Not in the index yet: where its worktree is.
            None => ReadOnlyGit::open(self.root.path().join(path.as_path()))
                .and_then(|git| git.commit_of("HEAD"))
                .map_err(|error| one_line(&crate::error::chain(&error)))?,
        };
        let at = at.ok_or_else(|| "it is a submodule without a commit".to_owned())?;
        Ok(format!("Subproject commit {at}\n").into_bytes())
    }

    /// Reads a file or link of the worktree; none where it is gone by now.
    fn read(
        &mut self,
        path: &RelPath,
        too_large: impl Fn() -> String,
    ) -> Result<Option<Vec<u8>>, String> {
        use formwork_write_safety::Error as Fault;
        let fault = |error: Fault| one_line(&crate::error::chain(&error));
        let stat = match self.root.stat_link(path.as_path()) {
            Err(Fault::Missing { .. }) => return Ok(None),
            stat => stat.map_err(fault)?,
        };
        match stat.kind {
            Kind::Link => {
                let target = std::fs::read_link(self.root.path().join(path.as_path()));
                let target = target.map_err(|error| error.to_string())?;
                Ok(Some(target.as_os_str().as_bytes().to_vec()))
            }
            Kind::File if stat.len > MAX_BYTES || stat.len > self.left => Err(too_large()),
            Kind::File => {
                let bytes = self.root.read(path.as_path()).map_err(fault)?;
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Ok(Some(bytes))
            }
            kind => Err(format!("it is a {}", kind.label())),
        }
    }
}
