//! Making some paths what they were, and leaving all others alone.

use super::{Node, Snapshot, Snapshots, merge::part, restore, scan};
use crate::{
    error::{Error, Refusal},
    ledger::Hash,
    path::RelPath,
    root::{Access, Kind, Last, Root},
    rules::is_git,
};
use rustix::fs;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// What one path was or shall be: the hash of its content, none for a folder, and its mode to git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// BLAKE3 of a file's bytes or of a link's target; none for a folder.
    pub hash: Option<Hash>,
    /// What it is and its permission bits, as git writes them.
    pub mode: u32,
}

impl State {
    /// Says whether both are the same content of the same kind. Bits that git does not know may differ.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.hash == other.hash && kind(self.mode) == kind(other.mode)
    }
}

/// A path that is not the same in two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    /// The file, link or folder.
    pub path: RelPath,
    /// What it was; none if it is new.
    pub before: Option<State>,
    /// What it is; none if it is gone.
    pub after: Option<State>,
}

fn kind(mode: u32) -> u32 {
    mode & 0o170_000
}

impl Snapshots {
    /// Says what is at a path now, not following it; none if nothing is, or a pipe or device.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Refused`] if it cannot be located.
    pub fn state(&self, root: &Root, path: &RelPath) -> Result<Option<State>, Error> {
        Ok(self.node(root, path)?.map(|(node, hash)| State { hash, mode: node.git_mode() }))
    }

    /// Compares two snapshots by what each path is, without reading any content.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn compare(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<Differing>, Error> {
        let paths: BTreeSet<_> = before.entries.keys().chain(after.entries.keys()).collect();
        let differing =
            paths.into_iter().filter(|path| before.entries.get(*path) != after.entries.get(*path));
        differing
            .map(|path| {
                let (before, after) =
                    (self.of_snapshot(before, path)?, self.of_snapshot(after, path)?);
                Ok(Differing { path: path.clone(), before, after })
            })
            .collect()
    }

    /// Returns what a path is in a snapshot.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn of_snapshot(&self, snapshot: &Snapshot, path: &RelPath) -> Result<Option<State>, Error> {
        let Some(node) = snapshot.entries.get(path) else { return Ok(None) };
        let hash = match node {
            Node::File { hash, .. } => Some(*hash),
            Node::Link { target } => Some(self.blobs.put(target.as_os_str().as_bytes())?),
            Node::Folder { .. } => None,
        };
        Ok(Some(State { hash, mode: node.git_mode() }))
    }

    /// Makes paths what they shall be, none meaning gone, and returns those that were written or removed.
    ///
    /// A folder that still holds something else stays, and so does a file that is too large to be kept. Missing
    /// folders above a path are made.
    ///
    /// # Errors
    /// [`Error::Damaged`] before anything changes if a content is not kept; [`Error::Raced`];
    /// [`Error::Io`]. After a failure it can be called again.
    pub fn revert(
        &self,
        root: &Root,
        wanted: &BTreeMap<RelPath, Option<State>>,
    ) -> Result<Vec<RelPath>, Error> {
        if let Some(path) = wanted.keys().find(|path| path.names().any(is_git)) {
            let found = path.to_string();
            return Err(Error::refused(&found, Refusal::Git { found: found.clone() }));
        }
        let (mut before, mut target) = (BTreeMap::new(), BTreeMap::new());
        let mut above: BTreeSet<RelPath> = BTreeSet::new();
        for (path, state) in wanted {
            if let Some((node, _)) = self.node(root, path)? {
                before.insert(path.clone(), node);
            }
            if let Some(state) = state {
                target.insert(path.clone(), self.wanted(state)?);
                let parents = std::iter::successors(path.parent(), RelPath::parent);
                above.extend(parents.filter(|parent| !parent.is_root()));
            }
        }
        for folder in above {
            let found = self.node(root, &folder)?;
            let shall = target.entry(folder.clone());
            // A folder that is there keeps its bits; one of ours that is to go is needed after all.
            match found {
                Some((node @ Node::Folder { .. }, _)) => {
                    shall.or_insert_with(|| node.clone());
                    before.insert(folder, node);
                }
                _ => drop(shall.or_insert(Node::Folder { mode: 0o755 })),
            }
        }
        Ok(restore::restore(root, &self.blobs, part(before), &part(target))?.paths)
    }

    /// Reads what is at a path. The contents of links are kept, since they are in no file.
    fn node(&self, root: &Root, path: &RelPath) -> Result<Option<(Node, Option<Hash>)>, Error> {
        let spot = match root.locate(path.as_ref(), Access::Read, Last::Keep) {
            Ok(spot) if spot.real == *path => spot,
            // A link stands where a folder was, wherever it leads: the path is no more.
            Ok(_)
            | Err(
                Error::Missing { .. }
                | Error::Kind { .. }
                | Error::Refused { why: Refusal::LinkOutside { .. }, .. },
            ) => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(stat) = spot.stat else { return Ok(None) };
        Ok(match stat.kind {
            Kind::File => {
                let (node, _) = scan::file(&spot, &self.blobs)?;
                let hash = match node {
                    Node::File { hash, .. } => Some(hash),
                    Node::Link { .. } | Node::Folder { .. } => None,
                };
                Some((node, hash))
            }
            Kind::Link => {
                let target = fs::readlinkat(&spot.folder, &spot.name, Vec::new());
                let target = target.map_err(|e| Error::io(&spot.written, "read the link", e))?;
                let hash = self.blobs.put(target.as_bytes())?;
                let target = OsString::from_vec(target.into_bytes()).into();
                Some((Node::Link { target }, Some(hash)))
            }
            Kind::Folder => Some((Node::Folder { mode: stat.mode }, None)),
            Kind::Special => None,
        })
    }

    /// Finds the content of a state.
    fn wanted(&self, state: &State) -> Result<Node, Error> {
        let bits = state.mode & 0o7777;
        let Some(hash) = state.hash else { return Ok(Node::Folder { mode: bits }) };
        let bytes = self.blobs.get(hash)?;
        Ok(match kind(state.mode) {
            0o120_000 => Node::Link { target: OsString::from_vec(bytes).into() },
            _ => Node::File { hash, mode: bits, len: bytes.len() as u64 },
        })
    }
}
