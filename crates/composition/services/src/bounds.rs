//! What a program may write: the rules that hold for every other way of writing, as folders it is held to.

use std::{ffi::OsStr, path::Path, sync::Arc};

use formwork_protocols::{
    Body, PermissionMode, RunId, TaskId, TaskSpec,
    check::{CheckKind, CheckSpec},
};
use formwork_sandbox::{Beyond, Command, Limits, Protection};
use formwork_write_safety::{RelPath, Sealing, Writable, WriteRules};
use tokio_util::sync::CancellationToken;

use crate::{Error, executor::Workshop, network::Whose, reach::Reach};

/// Folders that builds of many languages write, in whatever folder they work, and that hold no source.
pub(crate) const BUILT: [&str; 9] = [
    ".cache",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "target",
];

/// Folders of the same kind that hold what was fetched, which a build needs and does not write anew.
const FETCHED: [&str; 2] = [".tox", "node_modules"];

/// Tells whether a path of the workspace is of what tools make for themselves, in whatever folder they work. One named
/// `target` may hold sources further down.
pub(crate) fn is_built(path: &Path) -> bool {
    let named = |(depth, name): (usize, &OsStr)| {
        let is_cache = BUILT.iter().chain(&FETCHED).any(|cache| name == *cache);
        is_cache && (depth == 0 || name != "target")
    };
    path.parent().is_some_and(|folder| folder.iter().enumerate().any(named))
}

/// Where programs share memory by name.
const SHARED: &str = "/dev/shm";

/// More roots are not mounted one by one, so that what describes the other files is left to their owner: it takes tens of
/// microseconds for each, and the kernel has a limit for all.
const MOUNTED: usize = 2_000;

/// What a program of a task is held to.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    pub(crate) protection: Protection,
    /// Where it can write in the workspace.
    pub(crate) reach: Reach,
    /// The same in words, for a model whose program was refused something.
    pub(crate) told: String,
}

/// Which paths a task can have changed.
#[derive(Debug, Clone)]
pub(crate) enum Own {
    /// Any.
    Any,
    /// What its tools and its programs may write, or might have before it was protected.
    Of(WriteRules, Reach),
}

impl Own {
    /// Says whether a path is one of them.
    pub(crate) fn holds(&self, path: &RelPath) -> bool {
        let Self::Of(rules, reach) = self else { return true };
        rules.check(path).is_ok() || reach.reaches(path)
    }
}

impl Workshop {
    /// Returns which paths a task can have changed: where its programs are held, those that its own rules let it write.
    /// What differs beside them since it began was changed by somebody who worked beside it.
    ///
    /// # Errors
    /// As [`Workshop::bounds`].
    pub(crate) async fn own_paths(
        &self,
        (run, task): (RunId, TaskId),
        spec: &TaskSpec,
    ) -> Result<Own, Error> {
        let is_native = |check: &CheckSpec| matches!(check.kind, CheckKind::Native(_));
        let checks = [&spec.prechecks, &spec.postchecks];
        // Functions of the embedder write wherever they want, and what is below a task has rules of its own.
        let is_held = self.protection != Protection::None
            && self.tools.is_empty()
            && matches!(spec.body, Body::Agent { .. } | Body::Command { .. } | Body::Call(_))
            && !checks.into_iter().flatten().any(is_native);
        let Some(write) = spec.write_paths.as_ref().filter(|_| is_held) else {
            return Ok(Own::Any);
        };
        // As they were written down, since what is protected or configured may be so only by now.
        let rules = WriteRules::parse(write, &[])?;
        let whose = self.of_task((run, task), spec)?;
        let Bounds { reach, .. } = self.bounds(&self.rules(spec)?, whose).await?;
        Ok(Own::Of(rules, reach))
    }

    /// Returns what programs are held to that write under `rules`.
    ///
    /// # Errors
    /// [`Error::Panicked`] when the workspace cannot be looked at; [`Error::Rules`] when the pattern of a host does not parse.
    pub(crate) async fn bounds(
        &self,
        rules: &WriteRules,
        whose: Whose<'_>,
    ) -> Result<Bounds, Error> {
        let (network, reaches) = self.network(whose)?;
        let mut told = format!("a program {reaches} and may write {rules}");
        if lacks_lock(self.root.path(), rules) {
            told = format!(
                "there is no Cargo.lock, and cargo may not make one here: have one made by `cargo generate-lockfile` \
                 before the run, or name it in write_paths; {told}"
            );
        }
        let Protection::Restricted(limits) = &self.protection else {
            let (protection, reach) = (self.protection.clone(), Reach::Anywhere);
            return Ok(Bounds { protection, reach, told });
        };
        let sealing = *self.sealing.get_or_init(|| self.try_to_seal(limits)).await;
        let (root, rules, limits) = (Arc::clone(&self.root), rules.clone(), limits.clone());
        let makes = self.setup.mode() >= PermissionMode::Edit;
        let bound = move || bound(limits, root.path(), &rules, (sealing, makes));
        let mut limits = tokio::task::spawn_blocking(bound).await.map_err(|error| {
            Error::Panicked { what: "a look at what may be written", reason: error.to_string() }
        })?;
        limits.network = network;
        let protection = Protection::Restricted(limits);
        let reach = Reach::of(&protection, self.root.path());
        Ok(Bounds { protection, reach, told })
    }

    /// Finds out whether this machine can keep a part of a writable folder from writing, by doing so.
    async fn try_to_seal(&self, limits: &Limits) -> Sealing {
        let folder = self.temporary.join(format!("sealed-{}", std::process::id()));
        // It may be there from a process that died.
        let _ = std::fs::create_dir(&folder);
        let Ok(place) = folder.canonicalize() else { return Sealing::Missing };
        let mut limits = limits.clone();
        limits.write_roots.push(self.temporary.clone());
        limits.sealed = vec![place.clone()];
        limits.beyond = Beyond::Nothing;
        let command = Command::new(["true"], &place, Protection::Restricted(limits));
        let tried = Box::pin(self.sandbox.run(command, CancellationToken::new(), None)).await;
        let _ = std::fs::remove_dir(&folder);
        match tried {
            Ok(finished) if finished.succeeded() => Sealing::Had,
            _ => Sealing::Missing,
        }
    }
}

/// Says whether cargo would have to write a lock file that the rules do not let it write.
fn lacks_lock(root: &Path, rules: &WriteRules) -> bool {
    let lock = "Cargo.lock";
    let may_be_made = || RelPath::parse(lock).is_ok_and(|lock| rules.check(&lock).is_ok());
    root.join("Cargo.toml").is_file() && !root.join(lock).exists() && !may_be_made()
}

/// Puts what the rules let be written in the place of the workspace.
fn bound(
    mut limits: Limits,
    root: &Path,
    rules: &WriteRules,
    (sealing, makes): (Sealing, bool),
) -> Limits {
    // A look at the whole tree takes a while: where the rules do not cover it, it is not granted whole either.
    let whole = (rules.cover_all() || !makes).then(|| rules.writable(root, sealing, &[]));
    let is_whole = |writable: &Writable| writable.roots.iter().any(|granted| granted == root);
    let writable = if let Some(writable) = whole.filter(|it| !makes || is_whole(it)) {
        writable
    } else {
        // Whoever builds needs a place to build in, which is no place to write source.
        let target = root.join("target");
        if root.join("Cargo.toml").is_file() && !rules.protects(root, &target) {
            let _ = std::fs::create_dir(target);
        }
        rules.writable(root, sealing, &[&BUILT[..], &FETCHED].concat())
    };
    limits.write_roots.retain(|granted| granted != root);
    limits.write_roots.extend(writable.roots);
    limits.sealed = writable.sealed;
    limits.read_roots.push(root.to_owned());
    // All programs of a user keep there what they share, and a program of an agent is to see nothing of the others.
    match sealing {
        Sealing::Had => {
            let shared = limits.write_roots.iter().filter(|granted| *granted == Path::new(SHARED));
            limits.private = shared.cloned().collect();
            if limits.write_roots.len() <= MOUNTED {
                limits.beyond = Beyond::Nothing;
            }
        }
        Sealing::Missing => limits.write_roots.retain(|granted| granted != Path::new(SHARED)),
    }
    limits
}
