//! Changes to a text as splices of its bytes: what is not named stays as it is.

mod hunk; // Lines with their context, as patches name them.
mod miss; // Why a text was not found, and what comes nearest.
pub(crate) mod patch;
mod words; // What files say that are no text. // Reading V4A patches and unified diffs.

pub use {
    miss::{Miss, Nearest, Reason},
    patch::{Patch, PatchedFile},
};

pub(crate) use hunk::Hunk;

use crate::{
    error::Error,
    text::{Text, fold_endings},
};
use memchr::memmem;
use similar::TextDiff;
use std::{ops::Range, time::Duration};

/// How many places are named where one was meant.
const SHOWN: usize = 20;

/// Replaces one text by another.
///
/// Texts are compared with `\n` for any line ending; otherwise character by character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What stands there now.
    pub old: String,
    /// What shall stand there.
    pub new: String,
    /// How often it may stand there.
    pub occurrences: Occurrences,
}

/// How many places an edit changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrences {
    /// Exactly one; several are a miss.
    One,
    /// All of them, at least one.
    All,
}

impl Edit {
    /// Replaces the one place where `old` stands.
    pub fn one(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into(), occurrences: Occurrences::One }
    }

    /// Replaces every place where `old` stands.
    pub fn all(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into(), occurrences: Occurrences::All }
    }
}

/// What to do to a file's text; all forms end in the same splices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Edits(&'a [Edit]),
    Hunks(&'a [Hunk]),
    Whole(&'a str),
}

/// Applies `edits` to a file's bytes, each to the result of the one before; all or nothing.
///
/// `path` only names the file in errors.
///
/// # Errors
/// [`Error::Binary`], [`Error::Miss`] with the edit's number, [`Error::Unencodable`].
pub fn splice(path: &str, bytes: &[u8], edits: &[Edit]) -> Result<Vec<u8>, Error> {
    change(path, bytes, Change::Edits(edits))
}

/// Applies a change to a file's bytes.
pub(crate) fn change(path: &str, bytes: &[u8], change: Change<'_>) -> Result<Vec<u8>, Error> {
    let mut text = text_of(path, bytes)?;
    let encoding = text.encoding();
    let applied = match change {
        Change::Edits(edits) => {
            edits.iter().enumerate().try_for_each(|(index, edit)| apply(&mut text, index, edit))
        }
        Change::Hunks(hunks) => hunk::apply_all(&mut text, hunks),
        Change::Whole(new) => {
            let all = 0..text.lf().len();
            text.replace(all, new.strip_prefix('\u{feff}').unwrap_or(new)).map_err(Fault::from)
        }
    };
    match applied {
        Ok(()) => Ok(text.into_raw()),
        Err(Fault::Miss(miss)) => Err(Error::Miss { path: path.to_owned(), miss }),
        Err(Fault::Unencodable(lost)) => Err(Error::Unencodable {
            path: path.to_owned(),
            encoding: encoding.label(),
            character: lost.0,
        }),
    }
}

fn text_of(path: &str, bytes: &[u8]) -> Result<Text, Error> {
    Text::new(bytes.to_vec()).map_err(|nul| Error::Binary { path: path.to_owned(), at: nul.0 })
}

/// Why a change does not apply, before anybody knows the file's name.
#[derive(Debug)]
pub(crate) enum Fault {
    Miss(Box<Miss>),
    Unencodable(crate::text::Unencodable),
}

impl From<crate::text::Unencodable> for Fault {
    fn from(lost: crate::text::Unencodable) -> Self {
        Self::Unencodable(lost)
    }
}

fn apply(text: &mut Text, index: usize, edit: &Edit) -> Result<(), Fault> {
    let old = fold_endings(edit.old.strip_prefix('\u{feff}').unwrap_or(&edit.old));
    let mut new = fold_endings(&edit.new);
    let miss = |reason| Fault::Miss(Box::new(Miss::plain(index, &old, reason)));
    if old.is_empty() {
        if !text.lf().is_empty() {
            return Err(miss(Reason::Empty));
        }
        return Ok(text.replace(0..0, &new)?);
    }
    if old == new {
        return Err(miss(Reason::Unchanged));
    }
    let mut places = find(text.lf(), &old, edit.occurrences);
    if places.is_empty()
        && let Some(open) = old.strip_suffix('\n')
        && !open.is_empty()
        && text.lf().ends_with(open)
    {
        // The last line has no ending; it is found without one, and gets none.
        let len = text.lf().len();
        places.push(len - open.len()..len);
        new = new.strip_suffix('\n').map(str::to_owned).map_or(new, Into::into);
    }
    match (places.len(), edit.occurrences) {
        (0, _) => Err(Fault::Miss(Box::new(Miss::diagnose(index, text.lf(), &old)))),
        (1, _) | (_, Occurrences::All) => {
            let changes: Vec<_> = places.into_iter().map(|place| (place, new.as_ref())).collect();
            Ok(text.replace_all(&changes)?)
        }
        (_, Occurrences::One) => {
            let lines = places.iter().take(SHOWN).map(|place| line_of(text.lf(), place.start));
            Err(miss(Reason::Several { lines: lines.collect() }))
        }
    }
}

/// Finds every place of `needle`; where only one is wanted, overlapping ones too, and no more than are shown.
fn find(text: &str, needle: &str, occurrences: Occurrences) -> Vec<Range<usize>> {
    let place = |start: usize| start..start + needle.len();
    let finder = memmem::Finder::new(needle);
    if occurrences == Occurrences::All {
        return finder.find_iter(text.as_bytes()).map(place).collect();
    }
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = text.as_bytes().get(from..).and_then(|rest| finder.find(rest)) {
        let start = from + at;
        places.push(place(start));
        if places.len() == SHOWN {
            break;
        }
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
    }
    places
}

/// Counts lines from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
}

/// Shows what changes from one content of a file to another as a unified diff.
///
/// None stands for no file. Line endings are not shown, unless they are all that differs. A file that is no text but has words is
/// shown with `␀` for each NUL: one such byte would hide from who reads it what an interpreter runs all the same.
pub fn diff(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let text = |bytes: Option<&[u8]>| {
        let bytes = bytes.unwrap_or_default();
        Text::new(bytes.to_vec()).or_else(|binary| match words::of(path, bytes) {
            Some(words) => Text::new(words.into_bytes()),
            None => Err(binary),
        })
    };
    let (Ok(before), Ok(after)) = (text(old), text(new)) else {
        let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        return if old == new {
            String::new()
        } else {
            format!("Binary file {path} differs: {} bytes, then {}\n", len(old), len(new))
        };
    };
    let header = |side: &str, there: bool| {
        if there { format!("{side}/{path}") } else { "/dev/null".to_owned() }
    };
    let (from, to) = (header("a", old.is_some()), header("b", new.is_some()));
    let render = |before: &str, after: &str| {
        TextDiff::configure()
            .timeout(Duration::from_millis(500))
            .diff_lines(before, after)
            .unified_diff()
            .header(&from, &to)
            .to_string()
    };
    let shown = render(before.lf(), after.lf());
    if !shown.is_empty() || old == new {
        return shown;
    }
    let shown = render(&before.with_endings(), &after.with_endings());
    if !shown.is_empty() || old.is_some() == new.is_some() && before.encoding() == after.encoding()
    {
        return shown;
    }
    format!("--- {from}\n+++ {to}\n")
}

#[cfg(test)]
mod tests;
