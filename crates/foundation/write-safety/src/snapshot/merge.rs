//! Bringing what became of a snapshot in one place into another place, where it may have become something else.

use super::{
    Node, Snapshot, Snapshots, Which,
    blobs::{Durability, put_file},
    manifest, restore,
};
use crate::{
    error::{Error, Refusal},
    join::{Joined, join},
    lock::Folders,
    path::RelPath,
    root::{Access, Last, Root},
    rules::{WriteRules, is_git},
};
use rustix::fd::AsFd;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// More folders are not held at once: each is an open file. Beyond them, what others change is seen, and not kept out.
const HELD: usize = 256;

/// A path that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The file, link or folder.
    pub path: RelPath,
    /// What stands against it.
    pub why: Clash,
}

/// Why two changes of one path are not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clash {
    /// Both changed the same lines, or lines next to each other.
    Lines,
    /// Both changed it, and it is no text whose lines could be told apart.
    NotText,
    /// Both made it, each another one.
    Added,
    /// One removed what the other changed.
    Removed,
    /// Both changed its mode.
    Mode,
    /// It is a file on one side and a folder or link on the other, or lies below what is no folder.
    Kind,
    /// It is or was too large to be kept, and so cannot be brought over.
    TooLarge,
    /// An earlier conflict was left as it was written down.
    Unresolved,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "both changed the same lines, or lines next to each other",
            Self::NotText => "both changed it, and it is no text",
            Self::Added => "both made it, each another one",
            Self::Removed => "one removed it and the other changed it",
            Self::Mode => "both changed its mode",
            Self::Kind => "it is of another kind on each side",
            Self::TooLarge => "it is or was too large to be brought over",
            Self::Unresolved => "the conflict in it is not resolved",
        })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

/// What merging came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// All is there; these paths were written or removed.
    Done(Vec<RelPath>),
    /// Nothing was written.
    Conflicts(Vec<Conflict>),
}

/// What is to become of the paths of one place.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) wanted: BTreeMap<RelPath, Option<Node>>,
    pub(crate) conflicts: Vec<Conflict>,
    /// What a path with a conflict holds if both sides are written into it.
    pub(crate) marked: BTreeMap<RelPath, Node>,
}

/// What is to be changed, from what and to what.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
}

impl Snapshots {
    /// Brings what became of `base` in `work` into the workspace, where `base` may have become something else.
    ///
    /// A path that only one side changed is as that side has it; a text that both changed is joined line by line.
    /// With one conflict nothing is written. It can be called again after a failure or a kill: what is there already
    /// is left. Only what `rules` let be written is.
    ///
    /// # Errors
    /// [`Error::Refused`] by the rules, [`Error::Raced`] if the workspace changes meanwhile, [`Error::Damaged`],
    /// [`Error::Busy`], [`Error::Io`].
    pub fn merge(
        &self,
        root: &Root,
        rules: &WriteRules,
        [base, work]: [&Snapshot; 2],
    ) -> Result<Merged, Error> {
        let now = self.take_by(root, base)?;
        let plan = self.plan(base, [&now, work], ["the workspace", "this work"])?;
        if !plan.conflicts.is_empty() {
            return Ok(Merged::Conflicts(plan.conflicts));
        }
        check(rules, &now, &plan.wanted)?;
        let step = self.step(&now, plan.wanted);
        self.go(root, step).map(Merged::Done)
    }

    /// Finds out what `onto` has to become to hold what became of `base` in `work` as well.
    pub(crate) fn plan(
        &self,
        base: &Snapshot,
        [onto, work]: [&Snapshot; 2],
        names: [&str; 2],
    ) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        let paths: BTreeSet<_> = base.entries.keys().chain(work.entries.keys()).collect();
        for path in paths {
            let was = base.entries.get(path);
            let [here, there] = [onto, work].map(|side| side.entries.get(path));
            if was == there || here == there {
                continue;
            }
            if [was, here, there].into_iter().flatten().any(|node| !node.is_kept()) {
                plan.conflicts.push(Conflict { path: path.clone(), why: Clash::TooLarge });
                continue;
            }
            if here == was {
                plan.wanted.insert(path.clone(), there.cloned());
                continue;
            }
            match self.both(was, here, there, names)? {
                Ok(node) if Some(&node) == here => {}
                Ok(node) => drop(plan.wanted.insert(path.clone(), Some(node))),
                Err((why, marked)) => {
                    plan.conflicts.push(Conflict { path: path.clone(), why });
                    plan.marked.extend(marked.map(|node| (path.clone(), node)));
                }
            }
        }
        let misplaced = misplaced(onto, &plan.wanted);
        let is_new = |path: &RelPath| plan.conflicts.iter().all(|known| known.path != *path);
        let misplaced: Vec<_> = misplaced.into_iter().filter(is_new).collect();
        for path in misplaced {
            plan.wanted.remove(&path);
            plan.conflicts.push(Conflict { path, why: Clash::Kind });
        }
        plan.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(plan)
    }

    /// Joins two changes of one path, or says why it cannot be and what would hold both.
    fn both(
        &self,
        was: Option<&Node>,
        here: Option<&Node>,
        there: Option<&Node>,
        names: [&str; 2],
    ) -> Result<Result<Node, (Clash, Option<Node>)>, Error> {
        let bits = |was: Option<u32>, here: u32, there: u32| {
            if there == here || Some(there) == was {
                Some(here)
            } else {
                (Some(here) == was).then_some(there)
            }
        };
        let (Some(here), Some(there)) = (here, there) else {
            return Ok(Err((Clash::Removed, None)));
        };
        let (hash, here_hash, there_hash, modes) = match (was, here, there) {
            (_, Node::Folder { mode: here }, Node::Folder { mode: there }) => {
                let was = match was {
                    Some(Node::Folder { mode }) => Some(*mode),
                    _ => None,
                };
                let mode = bits(was, *here, *there);
                // Who makes a folder seldom means its mode.
                let mode = mode.or(was.is_none().then_some(*here));
                let mode = mode.map(|mode| Node::Folder { mode });
                return Ok(mode.ok_or((Clash::Mode, None)));
            }
            (
                Some(Node::File { hash, mode, .. }),
                Node::File { hash: here, mode: here_mode, .. },
                Node::File { hash: there, mode: there_mode, .. },
            ) => (*hash, *here, *there, (Some(*mode), *here_mode, *there_mode)),
            (
                None,
                Node::File { hash: here, mode, len },
                Node::File { hash: there, mode: there_mode, .. },
            ) if here == there => {
                let mode = bits(None, *mode, *there_mode);
                let node = mode.map(|mode| Node::File { hash: *here, mode, len: *len });
                return Ok(node.ok_or((Clash::Mode, None)));
            }
            (None, Node::File { mode, .. }, Node::File { .. }) => {
                let marked = match self.joined(blake3::hash(b""), here, there, names)? {
                    Joined::Clean(bytes) | Joined::Clashing(bytes) => {
                        Some(self.file(&bytes, *mode)?)
                    }
                    Joined::NotText => None,
                };
                return Ok(Err((Clash::Added, marked)));
            }
            (None, ..) => return Ok(Err((Clash::Added, None))),
            (Some(_), ..) => return Ok(Err((Clash::Kind, None))),
        };
        let (was_mode, here_mode, there_mode) = modes;
        let mode = bits(was_mode, here_mode, there_mode);
        let kept = mode.unwrap_or(here_mode);
        let joined = if there_hash == here_hash || there_hash == hash {
            Joined::Clean(self.blobs.get(here_hash)?)
        } else if here_hash == hash {
            Joined::Clean(self.blobs.get(there_hash)?)
        } else {
            self.joined(hash, here, there, names)?
        };
        Ok(match (joined, mode) {
            (Joined::Clean(bytes), Some(mode)) => Ok(self.file(&bytes, mode)?),
            (Joined::Clean(bytes), None) => Err((Clash::Mode, Some(self.file(&bytes, kept)?))),
            (Joined::Clashing(bytes), _) => Err((Clash::Lines, Some(self.file(&bytes, kept)?))),
            (Joined::NotText, _) => Err((Clash::NotText, None)),
        })
    }

    fn joined(
        &self,
        was: crate::Hash,
        here: &Node,
        there: &Node,
        names: [&str; 2],
    ) -> Result<Joined, Error> {
        let (Node::File { hash: here, .. }, Node::File { hash: there, .. }) = (here, there) else {
            return Ok(Joined::NotText);
        };
        let was = if was == blake3::hash(b"") { Vec::new() } else { self.blobs.get(was)? };
        Ok(join(&was, [&self.blobs.get(*here)?, &self.blobs.get(*there)?], names))
    }

    fn file(&self, bytes: &[u8], mode: u32) -> Result<Node, Error> {
        Ok(Node::File { hash: self.blobs.put(bytes)?, mode, len: bytes.len() as u64 })
    }

    /// Describes the change of what `now` says into what is wanted, with the folders above that are missing.
    pub(crate) fn step(&self, now: &Snapshot, wanted: BTreeMap<RelPath, Option<Node>>) -> Step {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        let mut above = BTreeSet::new();
        for (path, node) in wanted {
            before.extend(now.entries.get(&path).map(|node| (path.clone(), node.clone())));
            if let Some(node) = node {
                let parents = std::iter::successors(path.parent(), RelPath::parent);
                above.extend(parents.filter(|parent| !parent.is_root()));
                after.insert(path, node);
            }
        }
        for folder in above {
            match now.entries.get(&folder) {
                Some(node @ Node::Folder { .. }) => {
                    after.entry(folder.clone()).or_insert_with(|| node.clone());
                    before.insert(folder, node.clone());
                }
                _ => drop(after.entry(folder).or_insert(Node::Folder { mode: 0o755 })),
            }
        }
        Step { before: part(before), after: part(after) }
    }

    /// Does a step: each path must still be what it was before, and nobody else puts files there meanwhile.
    pub(crate) fn go(&self, root: &Root, step: Step) -> Result<Vec<RelPath>, Error> {
        let Step { before, after } = step;
        let parents = before.entries.keys().chain(after.entries.keys()).map(|path| {
            let parent = path.parent().unwrap_or_else(RelPath::root);
            if parent.is_root() { RelPath::root() } else { parent }
        });
        let parents: BTreeSet<RelPath> = parents.collect();
        let mut spots = Vec::new();
        for parent in parents.iter().take(HELD) {
            // A folder that is to be made holds nothing yet.
            spots.extend(root.locate(parent.as_ref(), Access::Write, Last::Keep).ok());
        }
        let mut opened = Vec::new();
        for spot in &spots {
            use rustix::fs::{Mode, OFlags, openat};
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = openat(&spot.folder, &spot.name, flags, Mode::empty());
            opened.extend(folder.ok().map(|folder| (folder, spot.written.as_str())));
        }
        let mut held = Folders::default();
        held.hold(opened.iter().map(|(folder, written)| (folder.as_fd(), *written)))?;
        Ok(restore::restore(root, &self.blobs, before, &after)?.paths)
    }

    /// Makes what `before` found there what `target` says.
    pub(crate) fn go_back(
        &self,
        root: &Root,
        before: Snapshot,
        target: &Snapshot,
    ) -> Result<Vec<RelPath>, Error> {
        Ok(restore::restore(root, &self.blobs, before, target)?.paths)
    }

    /// Puts in the place of what is no work what `base` has there, if anything, and keeps what comes of it.
    pub(crate) fn without(
        &self,
        mut snapshot: Snapshot,
        is_out: impl Fn(&RelPath, &Node) -> bool,
        base: &Snapshot,
    ) -> Result<Snapshot, Error> {
        if snapshot.entries.iter().any(|(path, node)| is_out(path, node)) {
            let entries = std::mem::take(Arc::make_mut(&mut snapshot.entries));
            let put = |(path, node): (RelPath, Node)| match is_out(&path, &node) {
                true => base.entries.get(&path).map(|before| (path, before.clone())),
                false => Some((path, node)),
            };
            snapshot.entries = Arc::new(entries.into_iter().filter_map(put).collect());
            snapshot.id = self.keep_part(&snapshot)?;
        }
        Ok(snapshot)
    }

    /// Keeps a snapshot of some paths, to be loaded by its id.
    pub(crate) fn keep_part(&self, snapshot: &Snapshot) -> Result<crate::Hash, Error> {
        let bytes = manifest::write(snapshot);
        let id = blake3::hash(&bytes);
        put_file(&self.trees.join(id.to_string()), &bytes, Durability::Synced)?;
        Ok(id)
    }
}

impl Snapshot {
    /// Returns the same with some paths changed, none meaning gone. It is not kept, and has no id of its own.
    pub(crate) fn with(&self, changed: impl Iterator<Item = (RelPath, Option<Node>)>) -> Self {
        let mut snapshot = self.clone();
        let entries = Arc::make_mut(&mut snapshot.entries);
        for (path, node) in changed {
            match node {
                Some(node) => drop(entries.insert(path, node)),
                None => drop(entries.remove(&path)),
            }
        }
        snapshot
    }
}

/// Holds what is to be written against the rules.
pub(crate) fn check(
    rules: &WriteRules,
    now: &Snapshot,
    wanted: &BTreeMap<RelPath, Option<Node>>,
) -> Result<(), Error> {
    for (path, node) in wanted {
        let refused = |why| Error::refused(&path.to_string(), why);
        if path.names().any(is_git) {
            return Err(refused(Refusal::Git { found: path.to_string() }));
        }
        // A folder comes to be, or goes, because of what is in it.
        let is_folder = match (node, now.entries.get(path)) {
            (Some(node), None) | (None, Some(node)) => matches!(node, Node::Folder { .. }),
            _ => false,
        };
        let checked = if is_folder { rules.check_protected(path) } else { rules.check(path) };
        checked.map_err(refused)?;
    }
    Ok(())
}

/// Finds what would lie below something that is no folder, and what would take the place of a folder that still holds
/// something.
fn misplaced(onto: &Snapshot, wanted: &BTreeMap<RelPath, Option<Node>>) -> BTreeSet<RelPath> {
    let then = |path: &RelPath| match wanted.get(path) {
        Some(node) => node.as_ref(),
        None => onto.entries.get(path),
    };
    let mut found = BTreeSet::new();
    for (path, node) in wanted {
        if node.is_none() {
            continue;
        }
        let parents = std::iter::successors(path.parent(), RelPath::parent);
        let mut parents = parents.filter(|parent| !parent.is_root());
        let is_in_way = |parent: RelPath| {
            let node = then(&parent);
            node.is_some_and(|node| !matches!(node, Node::Folder { .. }))
        };
        if parents.any(is_in_way) {
            found.insert(path.clone());
        }
        let is_folder = matches!(node, Some(Node::Folder { .. }));
        if !is_folder && matches!(onto.entries.get(path), Some(Node::Folder { .. })) {
            let below = onto.entries.range(path.clone()..).skip(1);
            let mut below =
                below.take_while(|(other, _)| other.as_path().starts_with(path.as_path()));
            if below.any(|(other, _)| then(other).is_some()) {
                found.insert(path.clone());
            }
        }
    }
    found
}

/// Makes a snapshot of some paths.
pub(crate) fn part(entries: BTreeMap<RelPath, Node>) -> Snapshot {
    Snapshot {
        id: blake3::hash(&[]),
        which: Which::All,
        exclude: None,
        entries: Arc::new(entries),
        skipped: Vec::new(),
    }
}
