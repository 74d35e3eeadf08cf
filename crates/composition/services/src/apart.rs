//! Tasks that work in a workspace of their own, and how what they did comes into the run's.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Weak},
};

use formwork_protocols::{
    CallId, Cancel, RunId, TaskId, TaskSpec,
    check::{CheckKind, CheckSpec, Verdict},
    spec::Isolation as Where,
};
use formwork_sandbox::Protection;
use formwork_scheduler::CheckJob;
use formwork_verify::{Baseline, Ground};
use formwork_write_safety::{
    Conflict, Isolated, Isolation, Means, Merged, Reads, RelPath, Root, Snapshots,
};

use crate::{
    Error,
    baseline::{Baselines, blocking},
    bounds::BUILT,
    executor::Workshop,
    reach::Reach,
    setup::Kind,
};

/// The folder of such workspaces, within that of state.
pub(crate) const FOLDER: &str = "apart";

/// How many conflicts are told one by one.
const TOLD: usize = 20;

/// The workspace of the run, as a task sees it that works beside it.
pub(crate) struct Home {
    root: Arc<Root>,
    baselines: Arc<Baselines>,
    /// Where the workspace of the task's own is, and by what name.
    isolation: Isolation,
    name: String,
    /// Where the run looks for it.
    apart: Weak<tokio::sync::Mutex<HashMap<TaskId, Arc<Workshop>>>>,
}

impl Workshop {
    /// Returns the top of the run's workspace, wherever this works.
    pub(crate) fn top(&self) -> &Path {
        self.home.as_ref().map_or(self.root.path(), |home| home.root.path())
    }

    /// Returns what a task works with that has a workspace of its own. It is made when it is first asked for, and is found
    /// again by whoever takes up a run that was killed.
    ///
    /// # Errors
    /// [`Error::Workspace`] when it cannot be made, and what a look at the run's can fail by.
    pub(crate) async fn own_place(
        &self,
        (run, task, token): (RunId, TaskId, Option<u64>),
        spec: &TaskSpec,
    ) -> Result<Option<Arc<Self>>, Error> {
        let means = match spec.isolation {
            _ if self.home.is_some() => return Ok(None),
            Where::Snapshot => Means::Snapshot,
            Where::Worktree => Means::Worktree,
            _ => return Ok(None),
        };
        // Held while one is made: git takes one after the other.
        let mut apart = self.apart.lock().await;
        if let Some(known) = apart.get(&task) {
            return Ok(Some(Arc::clone(known)));
        }
        self.settle(run, token).await?;
        // What the run began with is in the run's workspace.
        self.baselines.keep(run, token).await?;
        let state = self.temporary.parent().unwrap_or(&self.temporary).to_owned();
        let (root, snapshots) = (Arc::clone(&self.root), Arc::clone(&self.snapshots));
        let name = format!("{run}-{task}");
        let made = blocking(move || {
            let isolation = Isolation::open(state.join(FOLDER), snapshots)?;
            let own = match isolation.find(&name)? {
                Some(own) => {
                    // What a suite left that a process was killed over.
                    own.set_back()?;
                    own
                }
                None => {
                    let links = |path: &RelPath| is_linked(&root, &state, path);
                    isolation.make(&root, &name, means, &links)?
                }
            };
            Ok((isolation, own))
        });
        let (isolation, own) = made.await?;
        let made = Arc::new(self.moved(isolation, &own)?);
        apart.insert(task, Arc::clone(&made));
        Ok(Some(made))
    }

    /// Returns the same for work in another workspace.
    fn moved(&self, isolation: Isolation, own: &Isolated) -> Result<Self, Error> {
        // What is linked leads into the run's, which is read as well.
        let root = Arc::new(Root::open(own.path())?.trust(self.root.path())?);
        let mut protection = self.protection.clone();
        if let Protection::Restricted(limits) = &mut protection {
            limits.write_roots.retain(|granted| granted != self.root.path());
            limits.write_roots.push(root.path().to_owned());
            limits.read_roots.push(self.root.path().to_owned());
        }
        let home = Home {
            root: Arc::clone(&self.root),
            baselines: Arc::clone(&self.baselines),
            isolation,
            name: own.name().to_owned(),
            apart: Arc::downgrade(&self.apart),
        };
        Ok(Self {
            baselines: Arc::new(self.baselines.apart(Arc::clone(&root))),
            root,
            protection,
            reads: Reads::new(),
            unasked: Arc::default(),
            shapes: Arc::default(),
            apart: Arc::default(),
            home: Some(Arc::new(home)),
            ..self.clone()
        })
    }

    /// Brings what a task did in its own workspace into the run's, and removes the former. With a conflict nothing is
    /// brought: what changed in the run's meanwhile comes into the task's, for it to resolve.
    ///
    /// # Errors
    /// [`Error::Workspace`] and [`Error::Store`].
    pub(crate) async fn merged(&self, job: &CheckJob, cancel: &Cancel) -> Result<Verdict, Error> {
        let verdict = |passed, reason: String| Ok(Verdict::bare(&*job.check.name, passed, reason));
        let Some(home) = &self.home else {
            return verdict(true, "the task works in the workspace of the run".to_owned());
        };
        // One after the other, so that what the suite passes with is what it is merged to.
        let broken_off = || verdict(false, "it was broken off".to_owned());
        let turn = tokio::select! {
            biased;
            () = cancel.cancelled() => return broken_off(),
            turn = Arc::clone(&self.merging).lock_owned() => turn,
        };
        if let Some(refused) = self.integrated(job, home, cancel).await? {
            return Ok(refused);
        }
        // The suite may have been the work of the task.
        if let Some(reason) = self.planted().await {
            return verdict(false, reason);
        }
        let rules = self.rules(&job.spec)?;
        // As a piece of work of the run's: whoever takes the run up finds what a killed merge left.
        let work = CallId::generate(&*self.clock, &*self.rng);
        let within = (job.run, job.token);
        let (watch, begun, blobs) = home.baselines.before(within, work, Reach::Anywhere).await?;
        home.baselines.append(job.run, None, job.token, vec![begun], blobs).await?;
        let (root, isolation, name) =
            (Arc::clone(&home.root), home.isolation.clone(), home.name.clone());
        let late = cancel.clone();
        let merging = move || {
            let Some(mut own) = isolation.find(&name)? else { return Ok(Came::Before) };
            // From here on it comes whole.
            if late.is_cancelled() {
                return Ok(Came::Late);
            }
            match own.merge(&root, &rules)? {
                Merged::Done(paths) => own.remove().map(|()| Came::All(paths.len())),
                Merged::Conflicts(mut met) => {
                    met.extend(own.catch_up(&root)?);
                    Ok(Came::Nothing(met))
                }
            }
        };
        // Whoever no longer waits for it has not ended it, and nobody else comes in between.
        let merged = blocking(move || Ok((merging(), turn))).await;
        let (came, _turn) = match merged {
            Ok((came, turn)) => (came.map_err(Error::from), Some(turn)),
            Err(error) => (Err(error), None),
        };
        let found = home.baselines.after(&watch).await?;
        home.baselines.append(job.run, None, job.token, found, Vec::new()).await?;
        watch.end();
        let (passed, reason) = match came? {
            Came::Late => return broken_off(),
            Came::Before => (true, "it was merged before".to_owned()),
            Came::Nothing(met) => return verdict(false, told(met)),
            Came::All(1) => (true, "1 path merged into the workspace of the run".to_owned()),
            Came::All(count) => {
                (true, format!("{count} paths merged into the workspace of the run"))
            }
        };
        if let Some(apart) = home.apart.upgrade() {
            apart.lock().await.remove(&job.task);
        }
        verdict(passed, reason)
    }
}

impl Workshop {
    /// Brings what others have merged meanwhile into a task's own workspace, and runs the suite of the run with both,
    /// where it has one. Returns why nothing is to be merged.
    async fn integrated(
        &self,
        job: &CheckJob,
        home: &Home,
        cancel: &Cancel,
    ) -> Result<Option<Verdict>, Error> {
        let Some(test) = self.setup.integrates.clone() else { return Ok(None) };
        let (root, isolation, name) =
            (Arc::clone(&home.root), home.isolation.clone(), home.name.clone());
        let met = blocking(move || match isolation.find(&name)? {
            Some(mut own) => {
                let met = own.catch_up(&root)?;
                // Where nothing clashes, the suite runs next.
                if met.is_empty() {
                    own.hold_as_it_is()?;
                }
                Ok(Some(met))
            }
            None => Ok(None),
        });
        match met.await? {
            // It was merged before.
            None => return Ok(None),
            Some(met) if !met.is_empty() => {
                return Ok(Some(Verdict::bare(&*job.check.name, false, told(met))));
            }
            Some(_) => {}
        }
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let bounds = self.bounds(&self.rules(&job.spec)?, whose).await?;
        let verifier = self.verifier(self.root.path(), bounds.protection);
        let spec =
            CheckSpec::new(job.check.name.clone(), CheckKind::Command(test), job.check.timeout);
        let began = Baseline::default();
        let ground = Ground { baseline: &began, changes: &() };
        let checked = Box::pin(verifier.check(&spec, ground, cancel)).await;
        // What it wrote is no work of the task: neither merged nor told as its change.
        let (isolation, name) = (home.isolation.clone(), home.name.clone());
        let back = blocking(move || match isolation.find(&name)? {
            Some(own) => own.set_back().map(drop),
            None => Ok(()),
        });
        back.await?;
        let verdict = self.kept(job, checked).await?;
        if verdict.passed {
            return Ok(None);
        }
        let reason = format!("with what others have merged, the suite fails: {}", verdict.reason);
        Ok(Some(Verdict { reason, ..verdict }))
    }

    /// Removes the workspaces that the tasks of a goal leave behind once it is over. What they held is kept as snapshots.
    ///
    /// # Errors
    /// [`Error::Workspace`] and [`Error::Store`].
    pub(crate) async fn tidy_up(&self, run: RunId) -> Result<(), Error> {
        if self.setup.kind != Kind::Goal {
            return Ok(());
        }
        let row = self.store.run(run).await?;
        if row.is_some_and(|row| !row.state.is_terminal()) {
            return Ok(());
        }
        let state = self.temporary.parent().unwrap_or(&self.temporary);
        given_up(state, Arc::clone(&self.snapshots), Arc::clone(&self.root), run).await
    }
}

/// Removes the workspaces that the tasks of a run have of their own. What they held is kept as snapshots.
///
/// # Errors
/// [`Error::Workspace`].
pub(crate) async fn given_up(
    state: &Path,
    snapshots: Arc<Snapshots>,
    root: Arc<Root>,
    run: RunId,
) -> Result<(), Error> {
    let (folder, own) = (state.join(FOLDER), format!("{run}-"));
    blocking(move || {
        let isolation = Isolation::open(folder, snapshots)?;
        for name in isolation.list()?.into_iter().filter(|name| name.starts_with(&own)) {
            if let Some(left) = isolation.find(&name)? {
                left.give_up()?;
            }
        }
        isolation.sweep(&root).map(drop)
    })
    .await
}

/// What came of the work into the workspace of the run.
enum Came {
    /// All, and so many paths of it.
    All(usize),
    /// All, when it was merged by a process before this one, or at an earlier look.
    Before,
    /// Nothing: it was to be broken off before it began.
    Late,
    /// Nothing: these stand against it.
    Nothing(Vec<Conflict>),
}

/// Tells what stands against a merge, and what to do about it.
fn told(mut all: Vec<Conflict>) -> String {
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all.dedup_by(|one, other| one.path == other.path);
    let list: Vec<String> = all.iter().take(TOLD).map(ToString::to_string).collect();
    let more = match all.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(
        "the workspace was changed meanwhile, and nothing was merged: {}{more}. What was changed there is in the files here \
         by now, with <<<<<<< and >>>>>>> around what clashes: read them again and make of each what both changes want",
        list.join("; ")
    )
}

/// Says whether something that git ignores is linked into a workspace of one's own.
fn is_linked(root: &Root, state: &Path, path: &RelPath) -> bool {
    let place = root.path().join(path.as_path());
    // Builds write there, and do so anew; all else is linked, since a build needs what was fetched.
    let is_built = || path.names().any(|name| BUILT.iter().any(|built| name == *built));
    // Formwork's own state is no business of a task's.
    !state.starts_with(&place) && !place.starts_with(state) && !is_built()
}
