//! Lines with their context, as patches name them.

use super::{Fault, Miss, Reason, SHOWN, line_of};
use crate::text::Text;
use std::{collections::HashMap, ops::Range};

/// A block of lines and what shall stand in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Lines to go to first, in order, such as the head of a function.
    pub(crate) anchors: Vec<String>,
    /// Context and removed lines.
    pub(crate) old: Vec<String>,
    /// Context and added lines.
    pub(crate) new: Vec<String>,
    /// The line the block is said to begin at, from 1; 0 is above the first.
    pub(crate) line: Option<usize>,
    /// The block is the end of the file.
    pub(crate) at_end: bool,
    /// What the patch says of the last line's ending, where it says so.
    pub(crate) last_newline: LastNewline,
}

/// What becomes of the ending of the file's last line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LastNewline {
    /// It stays as it is.
    #[default]
    Keep,
    Add,
    Remove,
}

impl Hunk {
    /// Drops empty context lines at the end that had no space before them: they may be the patch's
    /// own layout, and without them the block is still found.
    pub(crate) fn drop_layout(&mut self, blank_lines: usize) {
        if !self.at_end {
            self.old.truncate(self.old.len().saturating_sub(blank_lines));
            self.new.truncate(self.new.len().saturating_sub(blank_lines));
        }
    }
}

/// A line of the text: where it begins and what it says without its ending.
#[derive(Clone, Copy)]
struct Line<'a> {
    start: usize,
    end: usize,
    text: &'a str,
}

/// The lines of a text, and where each of them stands.
struct Lines<'a> {
    all: Vec<Line<'a>>,
    /// The places of a line by what it says, from the top down.
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let (mut all, mut start) = (Vec::new(), 0);
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for whole in text.split_inclusive('\n') {
            let text = whole.strip_suffix('\n').unwrap_or(whole);
            places.entry(text).or_default().push(all.len());
            all.push(Line { start, end: start + whole.len(), text });
            start += whole.len();
        }
        Self { all, places }
    }

    /// Tells whether a block of lines stands at a place.
    fn has(&self, at: usize, block: &[String]) -> bool {
        let there = self.all.get(at..).and_then(|below| below.get(..block.len()));
        there.is_some_and(|there| there.iter().zip(block).all(|(line, wanted)| line.text == wanted))
    }

    /// Finds the places of a block from a line on, by its rarest line; no more than so many.
    fn blocks(&self, from: usize, block: &[String], most: usize) -> Vec<usize> {
        let places = |line: &String| self.places.get(line.as_str()).map_or(&[][..], Vec::as_slice);
        let rarest = block.iter().map(places).enumerate().min_by_key(|(_, places)| places.len());
        let Some((offset, places)) = rarest else { return Vec::new() };
        let below = places.partition_point(|at| *at < from + offset);
        let starts = places.get(below..).unwrap_or_default().iter().map(|at| at - offset);
        starts.filter(|at| self.has(*at, block)).take(most).collect()
    }
}

/// Applies hunks from the top down, each at or below the end of the one before.
pub(crate) fn apply_all(text: &mut Text, hunks: &[Hunk]) -> Result<(), Fault> {
    let lines = Lines::of(text.lf());
    let mut end = End { is_empty: text.lf().is_empty(), is_open: false };
    end.is_open = !end.is_empty && !text.lf().ends_with('\n');
    let mut changes = Vec::new();
    let mut cursor = 0; // The first line below what the hunks before have named.
    for (index, hunk) in hunks.iter().enumerate() {
        let at = place(text, &lines, index, hunk, cursor)?;
        cursor = at + hunk.old.len();
        changes.push(change(text, &lines, hunk, at, &mut end));
    }
    let changes: Vec<_> = changes.iter().map(|(at, new)| (at.clone(), new.as_str())).collect();
    Ok(text.replace_all(&changes)?)
}

/// How the text ends once the hunks up to here are applied.
struct End {
    is_empty: bool,
    /// Whether its last line has no ending.
    is_open: bool,
}

/// Finds the line at which a hunk begins.
fn place(
    text: &Text,
    lines: &Lines<'_>,
    index: usize,
    hunk: &Hunk,
    cursor: usize,
) -> Result<usize, Fault> {
    let mut first = cursor;
    for anchor in &hunk.anchors {
        first = anchor_line(&lines.all, first, anchor).ok_or_else(|| {
            let mut miss = Miss::diagnose(index, text.lf(), anchor);
            if miss.reason == Reason::Different && anchor_line(&lines.all, 0, anchor).is_some() {
                miss.reason = Reason::Above;
            }
            Fault::Miss(Box::new(miss))
        })?;
    }
    if hunk.old.is_empty() {
        return Ok(insertion(&lines.all, first, hunk));
    }
    block(text, lines, index, hunk, first)
}

/// Returns what a hunk replaces, and by what.
fn change(
    text: &Text,
    lines: &Lines<'_>,
    hunk: &Hunk,
    at: usize,
    text_end: &mut End,
) -> (Range<usize>, String) {
    let end = at + hunk.old.len();
    let start = lines.all.get(at).map_or(text.lf().len(), |line| line.start);
    let stop =
        if end == at { start } else { lines.all.get(end - 1).map_or(start, |line| line.end) };
    let mut new: String = hunk.new.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    if stop == text.lf().len() {
        let open = text_end.is_open;
        let keep_open = match hunk.last_newline {
            LastNewline::Keep => open,
            LastNewline::Add => false,
            LastNewline::Remove => true,
        };
        if keep_open && !hunk.old.is_empty() {
            new.pop();
        }
        if open && hunk.old.is_empty() {
            // Lines put below a last line without ending: it gets one, the new last has none.
            new.insert(0, '\n');
            if hunk.last_newline != LastNewline::Add {
                new.pop();
            }
        }
        text_end.is_empty = start == 0 && new.is_empty();
        text_end.is_open = match new.as_str() {
            "" => !text_end.is_empty && text_end.is_open && hunk.old.is_empty(),
            new => !new.ends_with('\n'),
        };
    }
    (start..stop, new)
}

/// Finds the line an anchor names: the whole line, else without its indentation, else a part.
fn anchor_line(lines: &[Line<'_>], first: usize, anchor: &str) -> Option<usize> {
    let below = lines.get(first..).unwrap_or_default();
    let trimmed = anchor.trim();
    let at = below
        .iter()
        .position(|line| line.text == anchor)
        .or_else(|| below.iter().position(|line| line.text.trim() == trimmed))
        .or_else(|| below.iter().position(|line| line.text.contains(trimmed)))?;
    Some(first + at)
}

/// Finds the line above which lines without any context go.
fn insertion(lines: &[Line<'_>], first: usize, hunk: &Hunk) -> usize {
    match hunk.line {
        // A unified diff's `-N,0` means below line N.
        Some(line) => line.clamp(first.min(lines.len()), lines.len()),
        None if hunk.anchors.is_empty() || hunk.at_end => lines.len(),
        None => (first + 1).min(lines.len()),
    }
}

/// Finds the block of old lines.
fn block(
    text: &Text,
    lines: &Lines<'_>,
    index: usize,
    hunk: &Hunk,
    first: usize,
) -> Result<usize, Fault> {
    let old = hunk.old.as_slice();
    let found = if hunk.at_end {
        let at = lines.all.len().checked_sub(old.len()).filter(|at| *at >= first);
        at.filter(|at| lines.has(*at, old)).into_iter().collect()
    } else if let Some(at) = hunk.line.and_then(|line| line.checked_sub(1))
        && at >= first
        && hunk.anchors.is_empty()
        && lines.has(at, old)
    {
        return Ok(at); // Where the patch says that it is; whether it is elsewhere too is all the same.
    } else {
        let most = if hunk.anchors.is_empty() { SHOWN } else { 1 };
        lines.blocks(first, old, most)
    };
    let miss = |reason| {
        let wanted = hunk.old.join("\n");
        Fault::Miss(Box::new(match reason {
            Reason::Different => Miss::diagnose(index, text.lf(), &wanted),
            reason => Miss::plain(index, &wanted, reason),
        }))
    };
    match found.as_slice() {
        [] if !lines.blocks(0, old, 1).is_empty() => Err(miss(Reason::Above)),
        [] => Err(miss(Reason::Different)),
        [only] => Ok(*only),
        several => {
            let line =
                |at: &usize| line_of(text.lf(), lines.all.get(*at).map_or(0, |line| line.start));
            Err(miss(Reason::Several { lines: several.iter().map(line).collect() }))
        }
    }
}
