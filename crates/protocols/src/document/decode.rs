//! Deserialises a checked tree and finds what only the Rust types themselves can refuse.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::DocumentType;
use super::check::Fault;
use super::diagnostic::Diagnostic;
use super::parsed::Document;
use super::path::KeyPath;
use super::tree::{self, Place, Spot};

/// Bytes that all passes together may read: each fault costs one pass.
const PASS_BYTES: usize = 16 * 1024 * 1024;

/// Deserialises `table` without the values that `found` already refused.
///
/// A type that parses itself (a name, an amount) stops at its first fault. So each faulty value is noted, cut out,
/// and the rest read again, until nothing is refused any more. A table that lost a value is cut out in silence when it
/// then misses that value.
///
/// # Errors
/// The faults in addition to those already `found`.
pub(crate) fn decode<T: DocumentType>(
    document: &Document,
    table: &DeTable<'_>,
    root: &Place,
    found: &[Fault],
) -> Result<Decoded<T>, Vec<Diagnostic>> {
    let mut cuts = Cuts::new(found);
    let mut faults = Vec::new();
    let mut index: Option<HashMap<Range<usize>, Spot>> = None;
    let passes = (PASS_BYTES / document.text().len().max(1)).clamp(16, 512);
    let source = Tree { table, span: root.value.clone() };
    for pass in 0..passes {
        let refusal = match source.attempt::<T>(&cuts.pruned) {
            Ok(value) if faults.is_empty() => {
                return Ok(Decoded { value, has_all_tables: pass == 0 });
            }
            Ok(_) => return Err(faults),
            Err(refusal) => refusal,
        };
        let index = index.get_or_insert_with(|| root.index());
        let spot = index.get(&refusal.span).cloned();
        let path = match spot {
            // A key is never wrong because a value was cut out.
            Some(Spot::Key(path)) => {
                faults.push(document.fault(&path, refusal.span, refusal.message, None));
                path
            }
            Some(Spot::Array(path, length)) => {
                let item = source.faulty_item::<T>(&cuts, &refusal, &path, length);
                let at = item.unwrap_or(path);
                if !cuts.tainted.contains(&at) {
                    let span = root.at(&at).map_or(refusal.span, |place| place.value.clone());
                    faults.push(document.fault(&at, span, refusal.message, None));
                }
                at
            }
            Some(Spot::Value(path)) => {
                if !cuts.tainted.contains(&path) {
                    faults.push(document.fault(&path, refusal.span, refusal.message, None));
                }
                path
            }
            None => {
                if !cuts.tainted.contains(&KeyPath::default()) {
                    let message = refusal.message;
                    faults.push(document.fault(&KeyPath::default(), refusal.span, message, None));
                }
                break;
            }
        };
        if path.is_root() || !cuts.add(path) {
            break; // Nothing is left to cut out.
        }
    }
    Err(faults)
}

/// What a tree says without the values that were refused.
pub(crate) struct Decoded<T> {
    pub(crate) value: T,
    /// Whether no table was left out for what it misses.
    pub(crate) has_all_tables: bool,
}

/// The values left out of a pass, and the tables and arrays that are incomplete without them.
struct Cuts {
    pruned: HashSet<KeyPath>,
    tainted: HashSet<KeyPath>,
}

impl Cuts {
    fn new(found: &[Fault]) -> Self {
        let mut cuts = Self { pruned: HashSet::new(), tainted: HashSet::new() };
        for fault in found {
            if let Some(cut) = &fault.cut {
                cuts.add(cut.clone());
            }
            if fault.is_absence {
                cuts.tainted.extend(tree::ancestors(&fault.path));
                cuts.tainted.insert(fault.path.clone());
            }
        }
        cuts
    }

    /// Leaves out the value at `path` from now on; reports whether that was new.
    fn add(&mut self, path: KeyPath) -> bool {
        self.tainted.extend(tree::ancestors(&path));
        self.pruned.insert(path)
    }
}

/// Why a pass ended, and where.
#[derive(PartialEq, Eq)]
struct Refusal {
    span: Range<usize>,
    message: String,
}

/// A document's tree and the span of its root.
struct Tree<'a, 'i> {
    table: &'a DeTable<'i>,
    span: Range<usize>,
}

impl Tree<'_, '_> {
    fn attempt<T: DocumentType>(&self, pruned: &HashSet<KeyPath>) -> Result<T, Refusal> {
        let rest = Spanned::new(self.span.clone(), tree::without(self.table, pruned));
        T::deserialize(Deserializer::from(rest)).map_err(|error| Refusal {
            span: error.span().unwrap_or_else(|| self.span.clone()),
            message: error.message().to_owned(),
        })
    }

    /// Finds the item that an array was refused for, because `toml` locates such a fault at the whole array.
    ///
    /// It is the last of the shortest run of first items that is refused for the same reason. Nothing is found when
    /// that run is empty: then the array itself is at fault.
    fn faulty_item<T: DocumentType>(
        &self,
        cuts: &Cuts,
        refusal: &Refusal,
        path: &KeyPath,
        length: usize,
    ) -> Option<KeyPath> {
        let item = |index: usize| {
            let mut item = path.clone();
            item.push_index(index);
            item
        };
        let is_refused = |kept: usize| {
            let mut pruned = cuts.pruned.clone();
            pruned.extend((kept..length).map(item));
            self.attempt::<T>(&pruned).is_err_and(|found| found == *refusal)
        };
        let (mut sound, mut refused) = (0, length);
        if is_refused(sound) {
            return None;
        }
        while refused - sound > 1 {
            let middle = usize::midpoint(sound, refused);
            if is_refused(middle) { refused = middle } else { sound = middle }
        }
        Some(item(refused - 1))
    }
}
