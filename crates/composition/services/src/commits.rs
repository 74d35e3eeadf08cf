//! Commits of what a run has changed, by hand of a tool or at the end of the run.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, CallId, Clock, EventBody, NewEvent, OutcomeCode, Position, Principal, RunId,
    RunOutcome, Scrub, Store, TaskId, ToolError, ToolErrorKind, ToolOutput, event::CommitMade,
    store::Selection, tool::CallContext,
};
use formwork_secrets::{Finding, Scanned, Scanner};
use formwork_tool::builtin::Commits;
use formwork_write_safety::{
    Committed, Delta, Error as Refused, Message, ReadOnlyGit, RelPath, State, identity_of,
};

use crate::{
    Error, Formwork,
    baseline::blocking,
    bounds::is_built,
    capability::Caller,
    changes::{Changes, Ground, Net},
    error::chain,
    operations::runs::Work,
};

/// Who commits where neither the environment nor git's settings say who works here.
const NOBODY: (&str, &str) = ("Formwork", "formwork@localhost");

/// The trailer that names the run of a commit.
const RUN: &str = "Formwork-Run";

/// Why a path is left out that a process that died may have changed, or somebody after it.
const LATE: &str =
    "it was changed after the process had ended that worked on it, and may be somebody else's work";

/// How long the subject of a commit is at the most, as git's own tools show it whole.
const SUBJECT_BYTES: usize = 72;

/// Makes commits of a run's own changes and records them.
#[derive(Clone)]
pub(crate) struct Committer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ground: Ground,
    pub(crate) scrub: Arc<dyn Scrub>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The environment of whoever runs Formwork.
    pub(crate) environment: BTreeMap<OsString, OsString>,
    pub(crate) principal: Principal,
    /// The token of the run's lease, if it is leased.
    pub(crate) token: Option<u64>,
}

/// What a commit is made for.
pub(crate) struct Purpose {
    pub(crate) run: RunId,
    pub(crate) task: Option<TaskId>,
    pub(crate) call: Option<CallId>,
    /// The words of the commit.
    pub(crate) text: String,
}

impl Committer {
    /// Commits what the run has changed and no commit of it has yet.
    ///
    /// # Errors
    /// [`Error::Workspace`] with the reason; [`Error::Store`]. What was committed stands.
    pub(crate) async fn commit(&self, purpose: Purpose) -> Result<CommitMade, Error> {
        let Purpose { run, task, call, text } = purpose;
        scan(&*self.scrub, None, text.as_bytes())
            .map_err(|reason| Error::UncleanMessage { reason })?;
        self.finish(run).await?;
        let changes = Changes::of(&*self.store, &self.ground, run).await?;
        let mut trailers = vec![(RUN.to_owned(), run.to_string())];
        trailers.extend(task.map(|task| ("Formwork-Task".to_owned(), task.to_string())));
        let at = self.clock.now().as_millis() / 1_000;
        let (ground, scrub) = (self.ground.clone(), Arc::clone(&self.scrub));
        let environment: Vec<_> = self.environment.clone().into_iter().collect();
        let done = blocking(move || {
            let (top, prefix) = top(ground.root.path());
            let (deltas, late) = deltas(&ground, &changes, &prefix)?;
            // Somebody who forgot to have it ignored does not want it kept either.
            let is_of_builds = |delta: &Delta| {
                let own = delta.path.as_path().strip_prefix(&prefix);
                delta.before.is_none() && own.is_ok_and(is_built)
            };
            let (built, deltas): (Vec<Delta>, Vec<Delta>) =
                deltas.into_iter().partition(is_of_builds);
            let git = ReadOnlyGit::open(&top)?;
            if let (true, Some(path)) = (deltas.is_empty() && built.is_empty(), late.first()) {
                let more = match late.len() {
                    1 => String::new(),
                    all => format!(" (and {} more)", all - 1),
                };
                return Err(Refused::NothingToCommit { left: format!("{path}{more}: {LATE}") });
            }
            let identity = identity(&environment, &top);
            let message = Message { text, trailers, identity, at };
            let scan = |path: &RelPath, old: Option<&[u8]>, bytes: &[u8]| {
                scan_name(&*scrub, path, old.is_none())?;
                scan(&*scrub, old, bytes)
            };
            let done = git.commit(&ground.snapshots, &deltas, &message, &scan);
            let (mut done, remembered) = done.map_err(|refused| unnamed(&*scrub, refused))?;
            let why = "what builds write is not committed unless git knows it already";
            done.left.extend(built.into_iter().map(|delta| (delta.path, why.to_owned())));
            done.left.extend(late.into_iter().map(|path| (path, LATE.to_owned())));
            Ok((below(done, &prefix), remembered))
        });
        let (done, remembered) = done.await?;
        let made = self.made(done, call);
        self.record(run, task, &made).await?;
        drop(remembered);
        Ok(made)
    }

    /// Finishes what commits of the run left that a process died over: the index follows, and the log tells of them.
    ///
    /// # Errors
    /// [`Error::Workspace`] when the repository cannot be looked at; [`Error::Store`].
    pub(crate) async fn finish(&self, run: RunId) -> Result<(), Error> {
        let ground = self.ground.clone();
        let finished = blocking(move || {
            let (top, prefix) = top(ground.root.path());
            // Where there is no repository, there is nothing to finish.
            let Ok(git) = ReadOnlyGit::open(&top) else { return Ok(Vec::new()) };
            let finished = git.finish_commits((RUN, &run.to_string()))?;
            let below = |(done, remembered)| (below(done, &prefix), remembered);
            Ok(finished.into_iter().map(below).collect())
        });
        for (done, _remembered) in finished.await? {
            let made = self.made(done, None);
            if !self.knows(run, &made.commit).await? {
                self.record(run, None, &made).await?;
            }
        }
        Ok(())
    }

    /// Tells whether the log knows of a commit of the run.
    async fn knows(&self, run: RunId, commit: &str) -> Result<bool, Error> {
        let kinds = vec!["commit.made".to_owned()];
        let selection = Selection { run: Some(run), task: None, kinds };
        let mut after = Position::default();
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(false) };
            after = last.position;
            let is_it = |body: &EventBody| matches!(body, EventBody::CommitMade(made) if made.commit == commit);
            if events.iter().any(|event| is_it(&event.body)) {
                return Ok(true);
            }
        }
    }

    /// Says what was committed, as the log does.
    fn made(&self, done: Committed, call: Option<CallId>) -> CommitMade {
        let Committed { id, paths, left, index_left } = done;
        let told = |text: String| self.scrub.scrub_text(&text).into_owned();
        CommitMade {
            commit: id,
            paths: paths.iter().map(|path| told(path.to_string())).collect(),
            left: left.iter().map(|(path, reason)| told(format!("{path}: {reason}"))).collect(),
            index_left: index_left.map(told),
            call,
        }
    }

    async fn record(
        &self,
        run: RunId,
        task: Option<TaskId>,
        made: &CommitMade,
    ) -> Result<(), Error> {
        let event = NewEvent {
            task,
            principal: self.principal.clone(),
            at: self.clock.now(),
            body: EventBody::CommitMade(made.clone()),
            idempotency_key: None,
        };
        let batch = Append { run, token: self.token, events: vec![event], blobs: Vec::new() };
        self.store.append(batch).await?;
        Ok(())
    }
}

#[async_trait]
impl Commits for Committer {
    async fn commit(
        &self,
        context: &CallContext,
        message: String,
    ) -> Result<ToolOutput, ToolError> {
        let purpose = Purpose {
            run: context.run,
            task: Some(context.task),
            call: Some(context.call),
            text: message,
        };
        match Self::commit(self, purpose).await {
            Ok(made) => Ok(ToolOutput::text(told(&made))),
            Err(error) => Err(ToolError::new(ToolErrorKind::Failed, chain(&error))),
        }
    }
}

/// The commit at the end of a run, where one was asked for.
pub(crate) struct LastCommit {
    committer: Committer,
    subject: Option<String>,
}

impl LastCommit {
    pub(crate) fn new(formwork: &Formwork, caller: &Caller, subject: Option<String>) -> Self {
        let inner = &formwork.inner;
        let committer = Committer {
            store: Arc::clone(&inner.store),
            ground: Ground::of(formwork),
            scrub: Arc::clone(&inner.scrub) as Arc<dyn Scrub>,
            clock: Arc::clone(&inner.clock),
            environment: inner.environment.clone(),
            principal: caller.principal().clone(),
            token: None,
        };
        Self { committer, subject }
    }

    /// Commits what a run has changed that completes, and passes its outcome on, with what kept it from being
    /// committed. `token` is of the run's lease.
    ///
    /// # Errors
    /// [`Error::Workspace`] where a content or the words hold a secret; [`Error::Store`]. The run completes
    /// nonetheless.
    pub(crate) async fn of(&self, outcome: RunOutcome, token: u64) -> Result<RunOutcome, Error> {
        let subject = self.subject.clone().filter(|_| outcome.code == OutcomeCode::Completed);
        let (Some(subject), run) = (subject, outcome.run) else { return Ok(outcome) };
        let committer = Committer { token: Some(token), ..self.committer.clone() };
        let text = match summary(&*committer.store, run).await? {
            Some(summary) if summary.trim() != subject => {
                format!("{subject}\n\n{}", summary.trim())
            }
            _ => subject,
        };
        let made = committer.commit(Purpose { run, task: None, call: None, text }).await;
        match made {
            Ok(_) => Ok(outcome),
            Err(Error::Workspace { source }) => match *source {
                // A run may have nothing to change.
                Refused::NothingToCommit { ref left } if left.is_empty() => Ok(outcome),
                // Whoever asked for it has to look at it first.
                Refused::Unclean { .. } => Err(Error::Workspace { source }),
                // The work is done, and in the log; what keeps it from being committed is told with it.
                ref why => {
                    // Git says more than a line.
                    let why = chain(why).split_whitespace().collect::<Vec<_>>().join(" ");
                    let why = committer.scrub.scrub_text(&why);
                    let reason = format!("{}; not committed: {why}", outcome.reason);
                    Ok(RunOutcome { reason, ..outcome })
                }
            },
            Err(error) => Err(error),
        }
    }
}

/// Returns what the last task said that claimed to be done.
async fn summary(store: &dyn Store, run: RunId) -> Result<Option<String>, Error> {
    let selection = Selection { run: Some(run), task: None, kinds: vec!["task.".to_owned()] };
    let (mut said, mut after) = (None, Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(said) };
        after = last.position;
        for event in events {
            if let EventBody::TaskMoved(moved) = event.body
                && let Some(claim) = moved.claim
            {
                said = Some(claim.summary.clone());
            }
        }
    }
}

/// Returns the subject of the commit of a run: what was asked for, in a line.
pub(crate) fn subject(work: &Work) -> String {
    let words = match work {
        Work::Task { prompt, .. } | Work::Turn { prompt, .. } => prompt.trim(),
        Work::Loop(asked) => asked.prompt.trim(),
        Work::Goal(asked) if asked.prompt.trim().is_empty() => "goal",
        Work::Goal(asked) => asked.prompt.trim(),
        // It changes nothing that could be committed.
        Work::Review { .. } => "review",
        Work::Call(asked) => asked.tool.as_str(),
        Work::Workflow { source, .. } => {
            let stem = Path::new(source).file_stem().and_then(|stem| stem.to_str());
            stem.unwrap_or("workflow")
        }
    };
    let first = words.lines().next().unwrap_or_default();
    formwork_protocols::text::head(first, SUBJECT_BYTES).to_owned()
}

/// Says what was committed and what was not.
pub fn told(made: &CommitMade) -> String {
    let short = formwork_protocols::text::head(&made.commit, 12);
    let mut text = format!("committed {short}: {}\n", made.paths.join(", "));
    for left in &made.left {
        text.push_str(&format!("left out {left}\n"));
    }
    if let Some(why) = &made.index_left {
        text.push_str(&format!(
            "git's index was left behind: {why}; `git reset -- PATHS` brings these paths along\n"
        ));
    }
    text
}

/// Finds the top of the worktree that a workspace lies in, and the way from there to the workspace.
pub(crate) fn top(workspace: &Path) -> (PathBuf, PathBuf) {
    let top = workspace.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
    let top = top.unwrap_or(workspace);
    (top.to_owned(), workspace.strip_prefix(top).unwrap_or(Path::new("")).to_owned())
}

/// Names paths from the workspace again.
fn below(done: Committed, prefix: &Path) -> Committed {
    let from_workspace = |path: RelPath| {
        let below = path.as_path().strip_prefix(prefix).ok();
        below.and_then(|below| RelPath::parse(below).ok()).unwrap_or(path)
    };
    Committed {
        paths: done.paths.into_iter().map(from_workspace).collect(),
        left: done.left.into_iter().map(|(path, why)| (from_workspace(path), why)).collect(),
        ..done
    }
}

/// Returns the files and links that the run has changed and not committed, from the top of the worktree, and those that
/// may be somebody else's.
fn deltas(
    ground: &Ground,
    changes: &Changes,
    prefix: &Path,
) -> Result<(Vec<Delta>, Vec<RelPath>), formwork_write_safety::Error> {
    let is_folder = |state: State| state.mode & 0o170_000 == 0o040_000;
    let (unsure, nets): (BTreeMap<_, _>, BTreeMap<_, _>) =
        changes.uncommitted().into_iter().partition(|(_, net)| net.late);
    let deleted: Vec<&RelPath> = nets
        .iter()
        .filter(|(_, net)| net.before.is_some_and(|it| it.hash.is_some() && is_folder(it)))
        .map(|(path, _)| path)
        .collect();
    let was = |path: &RelPath| match &changes.began {
        Some(began) => ground.snapshots.of_snapshot(began, path),
        None => Ok(None),
    };
    let mut found: BTreeMap<RelPath, (Option<State>, Option<State>)> = BTreeMap::new();
    // What was in a deleted folder is told as the folder; git knows files.
    for folder in &deleted {
        let began = changes.began.iter().flat_map(|began| began.entries().keys());
        for path in began.filter(|path| path.as_path().starts_with(folder.as_path())) {
            found.insert(path.clone(), (was(path)?, None));
        }
    }
    for (path, Net { before, after, .. }) in &nets {
        let within = deleted.iter().any(|folder| path.as_path().starts_with(folder.as_path()));
        let before = match before {
            None if within => was(path)?,
            before => *before,
        };
        found.insert(path.clone(), (before, *after));
    }
    let file = |state: Option<State>| state.filter(|state| !is_folder(*state));
    let mut deltas = Vec::new();
    for (path, (before, after)) in found {
        let (before, after) = (file(before), file(after));
        if before != after {
            let path = RelPath::parse(prefix.join(path.as_path()))?;
            deltas.push(Delta { path, before, after });
        }
    }
    let unsure = unsure.into_iter().filter(|(_, net)| {
        let states = [net.before, net.after];
        states.into_iter().flatten().any(|state| !is_folder(state))
    });
    let late = unsure.map(|(path, _)| RelPath::parse(prefix.join(path.as_path())));
    Ok((deltas, late.collect::<Result<_, _>>()?))
}

/// Finds who commits: whom the environment names to git, else whom git's settings name.
fn identity(environment: &[(OsString, OsString)], top: &Path) -> (String, String) {
    let named = |key: &str| {
        let found = environment.iter().find(|(name, _)| name == key);
        found.and_then(|(_, value)| value.to_str()).filter(|value| !value.is_empty())
    };
    if let (Some(name), Some(address)) = (named("GIT_AUTHOR_NAME"), named("GIT_AUTHOR_EMAIL")) {
        return (name.to_owned(), address.to_owned());
    }
    let needed = ["PATH", "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"];
    let own: Vec<_> = environment
        .iter()
        .filter(|(name, _)| needed.iter().any(|needed| name == needed))
        .cloned()
        .collect();
    identity_of(top, &own).unwrap_or_else(|| (NOBODY.0.to_owned(), NOBODY.1.to_owned()))
}

/// Takes secrets out of the names of files in what a commit was refused for: it is told to whoever asked for the commit.
fn unnamed(scrub: &dyn Scrub, refused: Refused) -> Refused {
    let told = |text: String| scrub.scrub_text(&text).into_owned();
    match refused {
        Refused::Unclean { path, reason } => Refused::Unclean { path: told(path), reason },
        Refused::NothingToCommit { left } => Refused::NothingToCommit { left: told(left) },
        other => other,
    }
}

/// Objects to the name of a file that holds a secret of the registry, or, where it is new to git, what looks like one.
fn scan_name(scrub: &dyn Scrub, path: &RelPath, is_new: bool) -> Result<(), String> {
    let name = path.as_path().as_os_str().as_bytes();
    if holds_known(scrub, name) {
        return Err("its name holds a secret that Formwork was given".to_owned());
    }
    let scanner = Scanner::built_in().map_err(|error| chain(&error))?;
    let scanned = scanner.scan_bytes(name).map_err(|error| chain(&error))?;
    match scanned.findings.first().filter(|_| is_new) {
        None => Ok(()),
        Some(found) => Err(format!(
            "its name holds what looks like {} ({}); give it another one",
            found.description, found.rule
        )),
    }
}

/// Says whether bytes hold a secret of the registry, whichever encoding they are text in.
fn holds_known(scrub: &dyn Scrub, bytes: &[u8]) -> bool {
    let holds = |text: &str| matches!(scrub.scrub_text(text), Cow::Owned(told) if told != text);
    if holds(&String::from_utf8_lossy(bytes)) {
        return true;
    }
    if !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok() {
        return false;
    }
    // Of wide letters, what is ASCII is left without the zeros; what is not, is decoded.
    let narrow: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    let wide = |from: usize, unit: fn([u8; 2]) -> u16| {
        let pairs = bytes.get(from..).unwrap_or_default().chunks_exact(2);
        let units = pairs.filter_map(|pair| pair.try_into().ok()).map(unit);
        let letters = char::decode_utf16(units);
        letters.map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>()
    };
    holds(&String::from_utf8_lossy(&narrow))
        || (0..2).any(|from| {
            holds(&wide(from, u16::from_le_bytes)) || holds(&wide(from, u16::from_be_bytes))
        })
}

/// Objects to a content that holds a secret of the registry, or what looks like one and was not committed before.
///
/// A pragma does not count here: whoever writes the content could write that as well.
fn scan(scrub: &dyn Scrub, old: Option<&[u8]>, bytes: &[u8]) -> Result<(), String> {
    if holds_known(scrub, bytes) {
        return Err("it holds a secret that Formwork was given".to_owned());
    }
    let scanner = Scanner::built_in().map_err(|error| chain(&error))?;
    let scanned = scanner.scan_bytes(bytes).map_err(|error| chain(&error))?;
    if scanned.findings.is_empty() {
        return Ok(());
    }
    let before = match old {
        Some(old) => scanner.scan_bytes(old).map_err(|error| chain(&error))?,
        None => Scanned::default(),
    };
    let is_new = |found: &&Finding| {
        let same = |old: &Finding| (&old.rule, old.hash) == (&found.rule, found.hash);
        !before.findings.iter().any(same)
    };
    let new: Vec<&Finding> = scanned.findings.iter().filter(is_new).collect();
    let Some(first) = new.first() else {
        // What could not be told one by one cannot be compared either.
        return match scanned.more {
            0 => Ok(()),
            more => {
                Err(format!("it holds {more} more of what looks like secrets than are compared"))
            }
        };
    };
    let more = match new.len() {
        1 => String::new(),
        all => format!(", and {} more", all - 1),
    };
    Err(format!(
        "line {} holds what looks like {} ({}){more}; take it out, and have it read from the environment or a \
         secret store instead. A pragma does not allow it in a commit that Formwork makes",
        first.line, first.description, first.rule
    ))
}

#[cfg(test)]
mod tests {
    use formwork_secrets::{Registry, SecretName};

    use super::*;

    const SECRET: &str = "PlainSecretValue-ä-0815";

    fn scrubber() -> impl Scrub {
        let mut registry = Registry::default();
        registry.insert(SecretName::parse("KEY").unwrap(), SECRET.to_owned().into()).unwrap();
        registry
            .insert(SecretName::parse("PLAIN").unwrap(), "tok-plain-4711".to_owned().into())
            .unwrap();
        registry.scrubber()
    }

    #[test]
    fn a_known_secret_is_found_in_a_content_of_any_encoding() {
        let scrub = scrubber();
        for secret in [SECRET, "tok-plain-4711"] {
            let text = format!("x = {secret}\n");
            let wide: Vec<u16> = text.encode_utf16().collect();
            let little: Vec<u8> = wide.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = wide.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            let behind = [b"\xff\xfe\x00".as_slice(), &big].concat();
            for bytes in [text.as_bytes(), &little, &big, &behind] {
                let refused = scan(&scrub, None, bytes).unwrap_err();
                assert_eq!(refused, "it holds a secret that Formwork was given", "{bytes:?}");
            }
        }
        assert_eq!(scan(&scrub, None, b"x\0y\xff"), Ok(()));
    }

    #[test]
    fn a_name_that_holds_a_secret_is_not_committed_and_not_told() {
        let scrub = scrubber();
        let path = RelPath::parse(format!("docs/x{SECRET}.txt")).unwrap();
        let token = format!("docs/{}{}.txt", "AKIA", "IOSFODNN7EXAMPLE");
        let token = RelPath::parse(token).unwrap();

        let known = scan_name(&scrub, &path, false).unwrap_err();
        let alike = scan_name(&scrub, &token, true);
        let refused =
            unnamed(&scrub, Refused::Unclean { path: path.to_string(), reason: known.clone() });

        assert_eq!(known, "its name holds a secret that Formwork was given");
        assert_eq!(
            refused.to_string(),
            format!("\"docs/x[secret:KEY].txt\" is not committed: {known}")
        );
        assert_eq!(scan_name(&scrub, &RelPath::parse("src/lib.rs").unwrap(), true), Ok(()));
        // What was committed before is not held against the run.
        assert_eq!(scan_name(&scrub, &token, false), Ok(()));
        assert!(alike.is_err(), "{alike:?}");
    }
}
