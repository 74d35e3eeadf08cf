//! Two changes of one text joined into one, line by line.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::ops::Range;

/// Larger texts are not joined: comparing them would hold up whoever waits.
const MAX: usize = 4 << 20;

/// What two changes of one text are together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Joined {
    /// Both changes, each at its own lines.
    Clean(Vec<u8>),
    /// Both changed the same lines, or lines next to each other: both stand there, between marks.
    Clashing(Vec<u8>),
    /// It is no text, or too large to be compared.
    NotText,
}

/// A changed place: lines of the base, and what they became.
struct Hunk {
    base: Range<usize>,
    new: Range<usize>,
}

/// One side of the join.
struct Side<'a> {
    lines: Vec<&'a [u8]>,
    hunks: Vec<Hunk>,
    /// The first hunk that is not joined yet.
    next: usize,
}

/// Joins what `left` and `right` each made of `base`. Where they clash, the marks name them as `names` do.
pub(crate) fn join(base: &[u8], [left, right]: [&[u8]; 2], names: [&str; 2]) -> Joined {
    let is_text = |bytes: &[u8]| bytes.len() <= MAX && !bytes.contains(&0);
    if ![base, left, right].into_iter().all(is_text) {
        return Joined::NotText;
    }
    let lines = lines(base);
    let (mut left, mut right) = (Side::new(&lines, left), Side::new(&lines, right));
    let (mut out, mut at, mut clashes) = (Vec::with_capacity(base.len()), 0, false);
    while let Some(start) = [left.begins(), right.begins()].into_iter().flatten().min() {
        let (mut end, before) = (start, (left.next, right.next));
        // Changes that touch each other belong together, whoever made them.
        while left.reach(&mut end) || right.reach(&mut end) {}
        put(&mut out, lines.get(at..start).unwrap_or_default());
        let ours = left.text(before.0, start..end);
        let theirs = right.text(before.1, start..end);
        match (ours, theirs) {
            (Some(one), None) | (None, Some(one)) => put(&mut out, one),
            (Some(ours), Some(theirs)) if ours == theirs => put(&mut out, ours),
            (Some(ours), Some(theirs)) => {
                clashes = true;
                mark(&mut out, &format!("<<<<<<< {}", names[0]));
                put(&mut out, ours);
                mark(&mut out, "=======");
                put(&mut out, theirs);
                mark(&mut out, &format!(">>>>>>> {}", names[1]));
            }
            (None, None) => {}
        }
        at = end;
    }
    put(&mut out, lines.get(at..).unwrap_or_default());
    if clashes { Joined::Clashing(out) } else { Joined::Clean(out) }
}

impl<'a> Side<'a> {
    fn new(base: &[&[u8]], new: &'a [u8]) -> Self {
        let lines = lines(new);
        let mut hunks: Vec<Hunk> = Vec::new();
        for op in capture_diff_slices(Algorithm::Myers, base, &lines) {
            if matches!(op, DiffOp::Equal { .. }) {
                continue;
            }
            let (base, new) = (op.old_range(), op.new_range());
            match hunks.last_mut() {
                Some(last) if last.base.end == base.start => {
                    last.base.end = base.end;
                    last.new.end = new.end;
                }
                _ => hunks.push(Hunk { base, new }),
            }
        }
        Self { lines, hunks, next: 0 }
    }

    fn begins(&self) -> Option<usize> {
        self.hunks.get(self.next).map(|hunk| hunk.base.start)
    }

    /// Takes the next hunk if it touches what ends at `end`, which then ends where the hunk does.
    fn reach(&mut self, end: &mut usize) -> bool {
        let Some(hunk) = self.hunks.get(self.next).filter(|hunk| hunk.base.start <= *end) else {
            return false;
        };
        *end = hunk.base.end.max(*end);
        self.next += 1;
        true
    }

    /// Returns what the lines `base` became by the hunks from `from` on; none if there were none.
    fn text(&self, from: usize, base: Range<usize>) -> Option<&[&'a [u8]]> {
        let hunks = self.hunks.get(from..self.next)?;
        let (first, last) = (hunks.first()?, hunks.last()?);
        let start = first.new.start - (first.base.start - base.start);
        let end = last.new.end + (base.end - last.base.end);
        self.lines.get(start..end)
    }
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').collect()
}

fn put(out: &mut Vec<u8>, lines: &[&[u8]]) {
    lines.iter().for_each(|line| out.extend_from_slice(line));
}

/// Puts a line of its own, also where the text before it does not end its last one.
fn mark(out: &mut Vec<u8>, text: &str) {
    if out.last().is_some_and(|&byte| byte != b'\n') {
        out.push(b'\n');
    }
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 2] = ["left", "right"];

    fn clean(text: &str) -> Joined {
        Joined::Clean(text.into())
    }

    #[test]
    fn changes_of_lines_that_do_not_touch_are_both_there() {
        let base = b"1\r\n2\n3\n4\n5";

        let joined = join(base, [b"0\r\n1\r\n2\n3\n4\n5", b"1\r\n2\n3\nfour\n5"], NAMES);

        assert_eq!(joined, clean("0\r\n1\r\n2\n3\nfour\n5"));
    }

    #[test]
    fn the_same_change_on_both_sides_is_there_once() {
        let joined = join(b"a\nb\n", [b"a\nB\nc\n", b"a\nB\nc\n"], NAMES);

        assert_eq!(joined, clean("a\nB\nc\n"));
    }

    #[test]
    fn changes_of_the_same_lines_stand_between_marks() {
        let joined = join(b"a\nb\nc", [b"a\nx\nc", b"a\ny"], NAMES);

        let marked = "a\n<<<<<<< left\nx\nc\n=======\ny\n>>>>>>> right\n";
        assert_eq!(joined, Joined::Clashing(marked.into()));
        assert_eq!(join(b"a", [b"b\0", b"c"], NAMES), Joined::NotText);
    }

    proptest! {
        #[test]
        fn a_side_that_changed_nothing_has_no_say_and_joining_again_changes_nothing(
            base in prop::collection::vec("[abc]\n", 0..12),
            left in prop::collection::vec("[abcx]\n", 0..12),
            right in prop::collection::vec("[abcy]\n", 0..12),
        ) {
            let (base, left, right) = (base.concat(), left.concat(), right.concat());
            let (b, l, r) = (base.as_bytes(), left.as_bytes(), right.as_bytes());

            prop_assert_eq!(join(b, [l, b], NAMES), clean(&left));
            prop_assert_eq!(join(b, [b, r], NAMES), clean(&right));
            prop_assert_eq!(join(b, [l, l], NAMES), clean(&left));
            let one = join(b, [l, r], NAMES);
            let other = join(b, [r, l], NAMES);
            prop_assert_eq!(matches!(one, Joined::Clean(_)), matches!(other, Joined::Clean(_)));
            if let (Joined::Clean(one), Joined::Clean(other)) = (one, other) {
                prop_assert_eq!(one, other);
            }
        }
    }
}
