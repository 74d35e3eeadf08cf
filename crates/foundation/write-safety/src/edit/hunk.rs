//! Lines with their context, as patches name them.

use super::{Fault, Miss, Reason, line_of};
use crate::text::Text;

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

/// Applies hunks from the top down, each at or below the end of the one before.
pub(crate) fn apply_all(text: &mut Text, hunks: &[Hunk]) -> Result<(), Fault> {
    let mut cursor = 0;
    let mut shift: isize = 0; // How many lines the hunks before have added.
    for (index, hunk) in hunks.iter().enumerate() {
        cursor = apply(text, index, hunk, cursor, shift)?;
        let len = |lines: &[String]| isize::try_from(lines.len()).unwrap_or(isize::MAX);
        shift += len(&hunk.new) - len(&hunk.old);
    }
    Ok(())
}

/// Applies one hunk and returns the offset below it.
fn apply(
    text: &mut Text,
    index: usize,
    hunk: &Hunk,
    cursor: usize,
    shift: isize,
) -> Result<usize, Fault> {
    let lines = lines(text.lf());
    let mut first = lines.partition_point(|line| line.start < cursor);
    for anchor in &hunk.anchors {
        first = anchor_line(&lines, first, anchor).ok_or_else(|| {
            let mut miss = Miss::diagnose(index, text.lf(), anchor);
            if miss.reason == Reason::Different && anchor_line(&lines, 0, anchor).is_some() {
                miss.reason = Reason::Above;
            }
            Fault::Miss(Box::new(miss))
        })?;
    }
    let expected = hunk.line.map(|line| line.saturating_add_signed(shift));
    let at = if hunk.old.is_empty() {
        insertion(&lines, first, hunk, expected)
    } else {
        block(text, &lines, index, hunk, first, expected)?
    };

    let end = at + hunk.old.len();
    let start = lines.get(at).map_or(text.lf().len(), |line| line.start);
    let stop = if end == at { start } else { lines.get(end - 1).map_or(start, |line| line.end) };
    let mut new: String = hunk.new.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    let at_end = stop == text.lf().len();
    let open = !text.lf().is_empty() && !text.lf().ends_with('\n');
    let keep_open = match hunk.last_newline {
        LastNewline::Keep => open,
        LastNewline::Add => false,
        LastNewline::Remove => true,
    };
    if at_end && keep_open && !hunk.old.is_empty() {
        new.pop();
    }
    if at_end && open && hunk.old.is_empty() {
        // Lines put below a last line without ending: it gets one, the new last has none.
        new.insert(0, '\n');
        if hunk.last_newline != LastNewline::Add {
            new.pop();
        }
    }
    text.replace(start..stop, &new)?;
    Ok(start + new.len())
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut start = 0;
    text.split_inclusive('\n')
        .map(|whole| {
            let line = Line {
                start,
                end: start + whole.len(),
                text: whole.strip_suffix('\n').unwrap_or(whole),
            };
            start = line.end;
            line
        })
        .collect()
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
fn insertion(lines: &[Line<'_>], first: usize, hunk: &Hunk, expected: Option<usize>) -> usize {
    match expected {
        // A unified diff's `-N,0` means below line N.
        Some(line) => line.clamp(first.min(lines.len()), lines.len()),
        None if hunk.anchors.is_empty() || hunk.at_end => lines.len(),
        None => (first + 1).min(lines.len()),
    }
}

/// Finds the block of old lines.
fn block(
    text: &Text,
    lines: &[Line<'_>],
    index: usize,
    hunk: &Hunk,
    first: usize,
    expected: Option<usize>,
) -> Result<usize, Fault> {
    let matches = |from: usize| -> Vec<usize> {
        let windows = lines.get(from..).unwrap_or_default().windows(hunk.old.len());
        let same = |window: &[Line<'_>]| window.iter().zip(&hunk.old).all(|(l, o)| l.text == o);
        windows.enumerate().filter(|(_, w)| same(w)).map(|(at, _)| from + at).collect()
    };
    let mut found = matches(first);
    if hunk.at_end {
        found.retain(|at| at + hunk.old.len() == lines.len());
    }
    let miss = |reason| {
        let wanted = hunk.old.join("\n");
        Fault::Miss(Box::new(match reason {
            Reason::Different => Miss::diagnose(index, text.lf(), &wanted),
            reason => Miss::plain(index, &wanted, reason),
        }))
    };
    match found.as_slice() {
        [] if !matches(0).is_empty() => Err(miss(Reason::Above)),
        [] => Err(miss(Reason::Different)),
        [only] => Ok(*only),
        [nearest, ..] if !hunk.anchors.is_empty() => Ok(*nearest),
        several => match expected.and_then(|line| several.iter().find(|at| **at + 1 == line)) {
            Some(at) => Ok(*at),
            None => {
                let line = |at: &usize| line_of(text.lf(), lines[*at].start);
                Err(miss(Reason::Several { lines: several.iter().take(20).map(line).collect() }))
            }
        },
    }
}
