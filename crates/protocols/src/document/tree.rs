//! The places of a document's keys and values, and bounds on how deep it nests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::path::{KeyPath, Segment, split_pointer};

/// Tables and arrays within each other; deeper documents are refused.
///
/// Half of it nests tasks in tasks 32 levels deep, and reading it needs far less than a thread's stack.
pub(crate) const MAX_DEPTH: usize = 64;

/// Where a value and its key stand in the text.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) key: Option<Range<usize>>,
    pub(crate) value: Range<usize>,
    inner: Inner,
}

/// What stands at a span.
#[derive(Debug, Clone)]
pub(crate) enum Spot {
    /// A key, by the path of its value.
    Key(KeyPath),
    /// An array of so many items.
    Array(KeyPath, usize),
    /// Any other value.
    Value(KeyPath),
}

#[derive(Debug, Clone)]
enum Inner {
    Leaf,
    Table(BTreeMap<String, Place>),
    Array(Vec<Place>),
}

impl Place {
    pub(crate) fn of_table(table: &DeTable<'_>, value: Range<usize>) -> Self {
        let entries = table.iter().map(|(key, value)| {
            (key.get_ref().to_string(), Self::of_value(value, Some(key.span())))
        });
        Self { key: None, value, inner: Inner::Table(entries.collect()) }
    }

    fn of_value(value: &Spanned<DeValue<'_>>, key: Option<Range<usize>>) -> Self {
        match value.get_ref() {
            DeValue::Table(table) => Self { key, ..Self::of_table(table, value.span()) },
            DeValue::Array(items) => {
                let items = items.iter().map(|item| Self::of_value(item, None)).collect();
                Self { key, value: value.span(), inner: Inner::Array(items) }
            }
            _ => Self { key, value: value.span(), inner: Inner::Leaf },
        }
    }

    /// Follows a JSON pointer as far as it leads; the flag says whether it led to its end.
    pub(crate) fn follow(&self, pointer: &str) -> (KeyPath, &Self, bool) {
        let mut place = self;
        let mut path = KeyPath::default();
        for step in split_pointer(pointer) {
            let next = match &place.inner {
                Inner::Table(entries) => entries.get(&step).inspect(|_| path.push_key(&step)),
                Inner::Array(items) => step
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index).inspect(|_| path.push_index(index))),
                Inner::Leaf => None,
            };
            match next {
                Some(next) => place = next,
                None => return (path, place, false),
            }
        }
        (path, place, true)
    }

    /// Returns the place of the value at `path`.
    pub(crate) fn at(&self, path: &KeyPath) -> Option<&Self> {
        path.segments().iter().try_fold(self, |place, segment| match (&place.inner, segment) {
            (Inner::Table(entries), Segment::Key(key)) => entries.get(key),
            (Inner::Array(items), Segment::Index(index)) => items.get(*index),
            _ => None,
        })
    }

    /// Maps the span of each key and value to what stands there; of those that share a span, the innermost wins.
    pub(crate) fn index(&self) -> HashMap<Range<usize>, Spot> {
        let mut index = HashMap::new();
        self.index_into(&mut KeyPath::default(), &mut index);
        index
    }

    fn index_into(&self, path: &mut KeyPath, index: &mut HashMap<Range<usize>, Spot>) {
        if let Some(key) = &self.key {
            index.insert(key.clone(), Spot::Key(path.clone()));
        }
        let spot = match &self.inner {
            Inner::Array(items) => Spot::Array(path.clone(), items.len()),
            Inner::Leaf | Inner::Table(_) => Spot::Value(path.clone()),
        };
        index.insert(self.value.clone(), spot);
        match &self.inner {
            Inner::Leaf => {}
            Inner::Table(entries) => {
                for (key, place) in entries {
                    path.push_key(key);
                    place.index_into(path, index);
                    path.pop();
                }
            }
            Inner::Array(items) => {
                for (position, place) in items.iter().enumerate() {
                    path.push_index(position);
                    place.index_into(path, index);
                    path.pop();
                }
            }
        }
    }
}

/// Returns the span of the first value that nests deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep(table: &DeTable<'_>) -> Option<Range<usize>> {
    // A list instead of recursion: what is measured here must not overflow the stack meanwhile.
    let mut open: Vec<(&Spanned<DeValue<'_>>, usize)> = table.values().map(|v| (v, 1)).collect();
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Some(value.span());
        }
        match value.get_ref() {
            DeValue::Table(table) => open.extend(table.values().map(|v| (v, depth + 1))),
            DeValue::Array(items) => open.extend(items.iter().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    None
}

/// Drops `table` level by level, for one that nests too deep to be dropped by recursion.
pub(crate) fn dismantle(table: DeTable<'_>) {
    let mut open: Vec<DeValue<'_>> = vec![DeValue::Table(table)];
    while let Some(value) = open.pop() {
        match value {
            DeValue::Table(table) => open.extend(table.into_iter().map(|(_, v)| v.into_inner())),
            DeValue::Array(items) => open.extend(items.into_iter().map(Spanned::into_inner)),
            _ => {}
        }
    }
}

/// Copies `table` without the values at `pruned` paths.
pub(crate) fn without<'i>(table: &DeTable<'i>, pruned: &HashSet<KeyPath>) -> DeTable<'i> {
    if pruned.is_empty() {
        return table.clone();
    }
    table_without(table, pruned, &mut KeyPath::default())
}

fn table_without<'i>(
    table: &DeTable<'i>,
    pruned: &HashSet<KeyPath>,
    path: &mut KeyPath,
) -> DeTable<'i> {
    let mut kept = DeTable::new();
    for (key, value) in table {
        path.push_key(key.get_ref());
        if !pruned.contains(path) {
            kept.insert(key.clone(), value_without(value, pruned, path));
        }
        path.pop();
    }
    kept
}

fn value_without<'i>(
    value: &Spanned<DeValue<'i>>,
    pruned: &HashSet<KeyPath>,
    path: &mut KeyPath,
) -> Spanned<DeValue<'i>> {
    let kept = match value.get_ref() {
        DeValue::Table(table) => DeValue::Table(table_without(table, pruned, path)),
        DeValue::Array(items) => {
            let mut kept = DeArray::new();
            for (index, item) in items.iter().enumerate() {
                path.push_index(index);
                if !pruned.contains(path) {
                    kept.push(value_without(item, pruned, path));
                }
                path.pop();
            }
            DeValue::Array(kept)
        }
        leaf => leaf.clone(),
    };
    Spanned::new(value.span(), kept)
}

/// Returns the ancestors of `path`, the root included and `path` itself not.
pub(crate) fn ancestors(path: &KeyPath) -> impl Iterator<Item = KeyPath> + '_ {
    let segments: &[Segment] = path.segments();
    (0..segments.len()).map(|length| segments.iter().take(length).cloned().collect())
}
