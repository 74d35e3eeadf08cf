//! `check.run`: what of the workspace looks like a secret or like personal data.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::text;
use formwork_secrets::{Scanned, Scanner};
use formwork_write_safety::{ReadOnlyGit, RelPath, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    commits::top,
    error::chain,
};

/// The most findings that are told; the rest are counted.
const MAX_FINDINGS: usize = 5_000;

/// The most threads that look at files: more would wait for one disk.
const MAX_THREADS: usize = 8;

/// What is to be looked at.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckParams {
    /// What the next commit would bring, in the very bytes that are staged, and nothing else.
    pub staged: bool,
    /// Files and folders, from the root of the workspace; all of it where there are none. What git ignores is left
    /// out unless it is tracked or named itself.
    pub paths: Vec<String>,
}

/// Something that looks like a secret. Nothing of the secret is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// The file, from the root of the workspace.
    pub path: String,
    /// The line, from 1; 0 where it is the path itself that holds it.
    pub line: u64,
    /// The byte within the line or within the path, from 1.
    pub column: u64,
    /// The rule that found it.
    pub rule: String,
    /// What it looks like.
    pub description: String,
    /// What stands behind `formwork:allow` on its line and is no rule: it allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_rule: Option<String>,
}

/// A file that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Unscanned {
    /// The file, from the root of the workspace.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The findings, by path and line.
    pub findings: Vec<Found>,
    /// How many more there were.
    pub more: u64,
    /// How many were allowed by a pragma on their line.
    pub allowed: u64,
    /// What could not be looked at: then nothing is known to be clean.
    pub unscanned: Vec<Unscanned>,
    /// How many files were looked at.
    pub files: u64,
    /// How many bytes they hold.
    pub bytes: u64,
}

impl Checked {
    /// Tells whether everything was looked at and nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0 && self.unscanned.is_empty()
    }

    fn take(&mut self, scanner: &Scanner, path: &str, scanned: Result<Scanned, String>) {
        self.files += 1;
        // A name can hold a secret as well, and git keeps names with the contents.
        let named = scanner.scan_bytes(path.as_bytes()).map_err(|error| chain(&error));
        let path = match &named {
            Ok(named) if named.findings.is_empty() => path.to_owned(),
            _ => without_secret(scanner, path),
        };
        match named {
            Ok(mut named) => {
                for finding in &mut named.findings {
                    // There is no line on which a pragma could stand.
                    (finding.line, finding.allowed, finding.no_rule) = (0, false, None);
                }
                self.tell(&path, named);
            }
            Err(reason) => self.unscanned.push(Unscanned { path: path.clone(), reason }),
        }
        match scanned {
            Ok(scanned) => {
                self.bytes += scanned.bytes;
                self.tell(&path, scanned);
            }
            Err(reason) => self.unscanned.push(Unscanned { path, reason }),
        }
    }

    fn tell(&mut self, path: &str, scanned: Scanned) {
        self.more += scanned.more;
        for finding in scanned.findings {
            if finding.allowed {
                self.allowed += 1;
            } else if self.findings.len() < MAX_FINDINGS {
                let (path, line, column) = (path.to_owned(), finding.line, finding.column);
                let (rule, description, no_rule) =
                    (finding.rule, finding.description, finding.no_rule);
                self.findings.push(Found { path, line, column, rule, description, no_rule });
            } else {
                self.more += 1;
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.more += other.more;
        self.allowed += other.allowed;
        self.unscanned.extend(other.unscanned);
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Names a path that holds a secret by the folder above that does not.
fn without_secret(scanner: &Scanner, path: &str) -> String {
    let is_clean = |above: &&Path| {
        let scanned = scanner.scan_bytes(above.as_os_str().as_encoded_bytes());
        scanned.is_ok_and(|scanned| scanned.findings.is_empty())
    };
    let above = Path::new(path).ancestors().skip(1).find(is_clean).unwrap_or(Path::new(""));
    above.join("(a name that holds what looks like a secret)").to_string_lossy().into_owned()
}

/// `check.run`
pub struct Check;

#[async_trait]
impl Operation for Check {
    const NAME: &'static str = "check.run";
    const DOC: &'static str = "Finds keys and personal data in the workspace or in what is staged, and tells nothing of them but where.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = CheckParams;
    type Output = Checked;

    async fn run(formwork: &Formwork, _: &Caller, params: CheckParams) -> Result<Checked, Error> {
        let root = Arc::clone(&formwork.inner.root);
        let index = formwork.inner.environment.get(std::ffi::OsStr::new("GIT_INDEX_FILE"));
        let index = index.map(PathBuf::from);
        let checking = tokio::task::spawn_blocking(move || match params.staged {
            true => staged(&root, index.as_deref()),
            false => files(&root, &params.paths),
        });
        checking.await.map_err(|error| Error::Scan { reason: error.to_string() })?
    }
}

fn scanner() -> Result<&'static Scanner, Error> {
    Scanner::built_in().map_err(|error| Error::Scan { reason: chain(&error) })
}

/// Looks at what is staged: the blobs, whatever the files hold by now.
fn staged(root: &Root, index: Option<&Path>) -> Result<Checked, Error> {
    let scanner = scanner()?;
    let (top, prefix) = top(root.path());
    let git = ReadOnlyGit::open(&top)?;
    let staged = git.staged(index)?;
    let oids: Vec<&str> = staged.iter().map(|staged| staged.oid.as_str()).collect();
    let mut checked = Checked::default();
    git.blobs(&oids, &mut |at, blob| {
        let path = staged.get(at).map(|staged| named(&staged.path, &prefix)).unwrap_or_default();
        let scanned = scanner.scan(blob).map_err(|error| chain(&error));
        checked.take(scanner, &path, scanned);
        Ok(())
    })?;
    checked.findings.sort();
    Ok(checked)
}

/// Names a path of the worktree from the workspace, which may lie deeper.
fn named(path: &RelPath, prefix: &Path) -> String {
    let below = path.as_path().strip_prefix(prefix);
    below.map_or_else(|_| format!("/{path}"), |below| below.to_string_lossy().into_owned())
}

/// Looks at files of the workspace.
fn files(root: &Root, paths: &[String]) -> Result<Checked, Error> {
    let scanner = scanner()?;
    let (wanted, unscanned) = wanted(root, paths)?;
    let wanted: Vec<PathBuf> = wanted.into_iter().collect();
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Checked { unscanned, ..Checked::default() });
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Checked::default();
                while let Some(path) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scanned = open(root, path)
                        .and_then(|file| scanner.scan(file).map_err(|error| chain(&error)));
                    own.take(scanner, &path.to_string_lossy(), scanned);
                }
                all.lock().unwrap_or_else(PoisonError::into_inner).add(own);
            });
        }
    });
    let mut checked = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    checked.findings.sort();
    checked.unscanned.sort();
    if let Some(over) = checked.findings.len().checked_sub(MAX_FINDINGS) {
        checked.findings.truncate(MAX_FINDINGS);
        checked.more += over as u64;
    }
    Ok(checked)
}

fn open(root: &Root, path: &Path) -> Result<impl Read + use<>, String> {
    root.open_file(path).map_err(|error| text::head(&chain(&error), 300).to_owned())
}

/// Finds the files to look at, and what cannot be looked for.
fn wanted(root: &Root, paths: &[String]) -> Result<(BTreeSet<PathBuf>, Vec<Unscanned>), Error> {
    let (mut wanted, mut unscanned) = (BTreeSet::new(), Vec::new());
    let is_repository = top(root.path()).0.join(".git").symlink_metadata().is_ok();
    let everything = [String::from(".")];
    let tracked = tracked(root)?;
    for path in if paths.is_empty() { &everything[..] } else { paths } {
        let rel = root.rel(path)?;
        let stat = root.stat(path)?;
        if stat.kind != formwork_write_safety::Kind::Folder {
            wanted.insert(rel.as_path().to_owned());
            continue;
        }
        let folder = root.real(path)?;
        for entry in walk(&folder, is_repository) {
            match entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                    if let Ok(below) = entry.path().strip_prefix(root.path()) {
                        wanted.insert(below.to_owned());
                    }
                }
                Ok(_) => {}
                Err(error) => unscanned.push(Unscanned {
                    path: rel.to_string(),
                    reason: text::head(&error.to_string(), 300).to_owned(),
                }),
            }
        }
        let below = tracked.iter().filter(|tracked| tracked.starts_with(rel.as_path()));
        wanted.extend(below.cloned());
    }
    Ok((wanted, unscanned))
}

/// Lists the tracked files of the workspace that are there: git keeps them whatever it ignores by now.
fn tracked(root: &Root) -> Result<Vec<PathBuf>, Error> {
    let (top, prefix) = top(root.path());
    if top.join(".git").symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let tracked = ReadOnlyGit::open(&top)?.tracked()?;
    let below = tracked.iter().filter_map(|path| path.as_path().strip_prefix(&prefix).ok());
    let is_file =
        |path: &&Path| root.path().join(path).symlink_metadata().is_ok_and(|found| found.is_file());
    Ok(below.filter(is_file).map(Path::to_owned).collect())
}

/// Walks a folder by the `.gitignore` files that git would read: those of the repository, and none of other tools.
fn walk(folder: &Path, is_repository: bool) -> ignore::Walk {
    ignore::WalkBuilder::new(folder)
        .hidden(false)
        .follow_links(false)
        .ignore(false)
        // What lies above the repository counts only where this does not ask for one.
        .require_git(is_repository)
        .parents(is_repository)
        .git_global(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build()
}

/// A rule by which secrets are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Its name, as a pragma names it.
    pub id: String,
    /// What it finds.
    pub description: String,
}

/// The rules, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ruled {
    /// The rules.
    pub rules: Vec<Rule>,
}

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulesParams {}

/// `check.rules`
pub struct Rules;

#[async_trait]
impl Operation for Rules {
    const NAME: &'static str = "check.rules";
    const DOC: &'static str = "Lists the rules by which keys and personal data are found.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = RulesParams;
    type Output = Ruled;

    async fn run(_: &Formwork, _: &Caller, _: RulesParams) -> Result<Ruled, Error> {
        let rules = scanner()?.rules();
        let rule = |(id, description): (&str, &str)| Rule {
            id: id.to_owned(),
            description: description.to_owned(),
        };
        Ok(Ruled { rules: rules.map(rule).collect() })
    }
}
