//! A snapshot as bytes: a header, then one record after another, each ended by a NUL.

use super::{Node, Snapshot, Which};
use crate::{ledger::Hash, path::RelPath, rules::is_git};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};

const ALL: &[u8] = b"formwork tree 1 all\n";
const NOT_IGNORED: &[u8] = b"formwork tree 1 not-ignored\n";

pub(super) fn write(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = match snapshot.which {
        Which::All => ALL.to_vec(),
        Which::NotIgnored => NOT_IGNORED.to_vec(),
    };
    if let Some(hash) = snapshot.exclude {
        out.extend_from_slice(format!("X {hash}\0").as_bytes());
    }
    for (path, node) in snapshot.entries.iter() {
        let path = path.as_path().as_os_str().as_bytes();
        let (fields, target) = match node {
            Node::File { hash, mode, len } => (format!("F {mode:o} {hash} {len} "), None),
            Node::Folder { mode } => (format!("D {mode:o} "), None),
            Node::Link { target } => ("L ".to_owned(), Some(target.as_os_str().as_bytes())),
        };
        out.extend_from_slice(fields.as_bytes());
        out.extend_from_slice(path);
        out.push(0);
        if let Some(target) = target {
            out.extend_from_slice(target);
            out.push(0);
        }
    }
    out
}

/// Reads a snapshot, trusting none of its paths.
pub(super) fn read(bytes: &[u8], id: Hash) -> Result<Snapshot, String> {
    let (which, body) = match (bytes.strip_prefix(ALL), bytes.strip_prefix(NOT_IGNORED)) {
        (Some(body), _) => (Which::All, body),
        (_, Some(body)) => (Which::NotIgnored, body),
        (None, None) => return Err("it has no known header".to_owned()),
    };
    let (mut entries, mut exclude) = (BTreeMap::new(), None);
    let mut records = body.split(|&byte| byte == 0);
    while let Some(record) = records.next().filter(|record| !record.is_empty()) {
        let broken = || format!("record {:?} cannot be read", String::from_utf8_lossy(record));
        let (kind, rest) = record.split_at_checked(2).ok_or_else(broken)?;
        let (path, node) = match kind {
            b"X " => {
                exclude = Some(hash(rest).ok_or_else(broken)?);
                continue;
            }
            b"F " => file(rest).ok_or_else(broken)?,
            b"D " => folder(rest).ok_or_else(broken)?,
            b"L " => {
                let target = OsString::from_vec(records.next().ok_or_else(broken)?.to_vec());
                (rest, Node::Link { target: target.into() })
            }
            _ => return Err(broken()),
        };
        let path = RelPath::parse(OsStr::from_bytes(path)).map_err(|e| e.to_string())?;
        if path.is_root() || path.names().any(is_git) {
            return Err(broken());
        }
        entries.insert(path, node);
    }
    Ok(Snapshot { id, which, exclude, entries: Arc::new(entries), skipped: Vec::new() })
}

fn file(record: &[u8]) -> Option<(&[u8], Node)> {
    let mut fields = record.splitn(4, |&byte| byte == b' ');
    let (mode, hash) = (mode(fields.next()?)?, hash(fields.next()?)?);
    let len = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some((fields.next()?, Node::File { hash, mode, len }))
}

fn folder(record: &[u8]) -> Option<(&[u8], Node)> {
    let mut fields = record.splitn(2, |&byte| byte == b' ');
    let mode = mode(fields.next()?)?;
    Some((fields.next()?, Node::Folder { mode }))
}

fn mode(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

fn hash(hex: &[u8]) -> Option<Hash> {
    Hash::from_hex(hex).ok()
}
