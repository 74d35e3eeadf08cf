//! A diff as a reviewer is shown it: in parts that fit, and with what a finding may point at.

use std::fmt::Write as _;

use formwork_protocols::{check::Issue, text};

/// How many bytes of a diff are shown at once; the files can be read.
pub(super) const PART_BYTES: usize = 48 * 1024;

/// In how many parts a diff is looked at, at the most. Whoever changes more asks for less at once.
pub(super) const MAX_PARTS: usize = 16;

/// How many bytes of a line are shown. What is longer was made by a program.
const LINE_BYTES: usize = 8 * 1024;

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileDiff {
    /// Its path from the root of the workspace, on one line.
    path: String,
    /// The change as a unified diff, with mode lines as git writes them.
    text: String,
}

/// How files differ, and what of that cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Diff {
    files: Vec<FileDiff>,
    /// What is not shown although it has words, each with the reason.
    pub(crate) unseen: Vec<String>,
    /// What has no words to show.
    pub(crate) opaque: Vec<String>,
}

impl Diff {
    /// Adds how a file differs. `text` is scrubbed, and may name it by the path as it is.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        let shown = one_line(path);
        // A name with a line break in it would be read as lines of a diff.
        let text = match shown == path {
            true => text.to_owned(),
            false => text.replacen(path, &shown, 2),
        };
        if let Some(at) = text.find("Binary file ").filter(|_| !text.contains("\n@@ ")) {
            let told = text.get(at..).unwrap_or_default().trim_end();
            self.opaque.push(one_line(told));
        }
        for (line, long) in text.lines().enumerate().filter(|(_, line)| line.len() > LINE_BYTES) {
            let bytes = long.len();
            self.unseen.push(format!("{shown}: line {} of its diff, of {bytes} bytes", line + 1));
        }
        self.files.push(FileDiff { path: shown, text });
    }

    pub(crate) const fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Counts the lines that are new or gone.
    pub(crate) fn lines(&self) -> u64 {
        let lines = self.files.iter().flat_map(|file| hunk_lines(&file.text));
        lines.filter(|(sign, ..)| matches!(sign, '+' | '-')).count() as u64
    }

    /// Returns the parts in which it is shown: each begins with the name of a file, and no line is cut in two
    /// unless it is too long for any part.
    pub(super) fn parts(&self) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut part = String::new();
        for file in &self.files {
            let header: String = file
                .text
                .split_inclusive('\n')
                .take_while(|line| !line.starts_with("@@ "))
                .map(cut)
                .collect();
            // A mode alone does not say whose it is.
            let header = match header.contains(file.path.as_str()) {
                true => header,
                false => format!("--- {}\n{header}", file.path),
            };
            let mut is_named = false;
            for line in
                file.text.get(own_header(&file.text)..).unwrap_or_default().split_inclusive('\n')
            {
                let line = cut(line);
                if part.len() + line.len() > PART_BYTES && !part.is_empty() {
                    parts.push(std::mem::take(&mut part));
                    is_named = false;
                }
                if !is_named {
                    part.push_str(&header);
                    is_named = true;
                }
                part.push_str(&line);
            }
            if !is_named {
                part.push_str(&header);
            }
            if !part.ends_with('\n') {
                part.push('\n');
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
        parts
    }

    /// Finds what a finding points at. Returns it with the path and line as they are in the diff, or it as it is
    /// where it points at nothing there.
    pub(super) fn anchored(&self, issue: Issue) -> Result<Issue, Issue> {
        let Some(file) = issue.file.as_deref().and_then(|named| self.file(named)) else {
            return Err(issue);
        };
        let quote = issue.quote.as_deref().map(squeezed).filter(|quote| !quote.is_empty());
        let lines = || hunk_lines(&file.text);
        let line = match &quote {
            Some(quote) => {
                let wanted = issue.line.unwrap_or(0);
                let found = lines().filter(|(_, _, text)| squeezed(text).contains(quote.as_str()));
                found.map(|(_, line, _)| line).min_by_key(|line| line.abs_diff(wanted))
            }
            None => lines().map(|(_, line, _)| line).find(|line| Some(*line) == issue.line),
        };
        match line {
            Some(line) => Ok(Issue { file: Some(file.path.clone()), line: Some(line), ..issue }),
            None => Err(issue),
        }
    }

    fn file(&self, named: &str) -> Option<&FileDiff> {
        let named = named.trim().trim_start_matches("./");
        let find = |path: &str| self.files.iter().find(|file| file.path == path);
        let bare = || named.strip_prefix("a/").or_else(|| named.strip_prefix("b/"));
        find(named).or_else(|| find(bare()?))
    }
}

/// Returns where the header of a file's diff ends.
fn own_header(text: &str) -> usize {
    let lines = text.split_inclusive('\n').take_while(|line| !line.starts_with("@@ "));
    lines.map(str::len).sum()
}

/// Shortens a line that is longer than any part.
fn cut(line: &str) -> String {
    if line.len() <= LINE_BYTES {
        return line.to_owned();
    }
    let mut shown = text::head(line, LINE_BYTES).to_owned();
    let _ = writeln!(shown, "… {} bytes are not shown", line.len() - shown.len());
    shown
}

/// Lists the lines of all hunks: the sign, the line of the new file that it is or stands before, and its text.
fn hunk_lines(text: &str) -> impl Iterator<Item = (char, u64, &str)> {
    let mut left = (0_u64, 0_u64);
    let mut next = 0_u64;
    text.lines().filter_map(move |line| {
        if left == (0, 0) {
            if let Some(found) = line.strip_prefix("@@ ").and_then(hunk) {
                (left, next) = ((found.0, found.2), found.1);
            }
            return None;
        }
        let (sign, rest) = match line.chars().next() {
            Some(sign @ ('+' | '-' | ' ')) => (sign, line.get(1..).unwrap_or_default()),
            // "\ No newline at end of file"
            Some('\\') => return None,
            _ => (' ', line),
        };
        let here = next.max(1);
        if sign != '+' {
            left.0 = left.0.saturating_sub(1);
        }
        if sign != '-' {
            left.1 = left.1.saturating_sub(1);
            next = next.saturating_add(1);
        }
        Some((sign, here, rest))
    })
}

/// Reads `-1,3 +1,4 @@`: how many lines are old, where the new ones begin, and how many they are.
fn hunk(text: &str) -> Option<(u64, u64, u64)> {
    let mut words = text.split(' ');
    let mut range = |sign: char| {
        let range = words.next()?.strip_prefix(sign)?;
        let (from, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((from.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
    };
    let (_, old) = range('-')?;
    let (from, new) = range('+')?;
    Some((old, from, new))
}

/// Returns the first line that says something, without the sign of a diff and with single spaces.
fn squeezed(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = text.lines().map(words).find(|line| !line.is_empty()).unwrap_or_default();
    first.trim_start_matches(['+', '-']).trim_start().to_owned()
}

/// Makes a name that stands on one line.
pub(crate) fn one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use formwork_protocols::check::Severity;
    use formwork_write_safety::diff;
    use proptest::prelude::*;

    use super::*;

    fn of(files: &[(&str, &str, &str)]) -> Diff {
        let mut all = Diff::default();
        for (path, before, after) in files {
            let (before, after) = (Some(before.as_bytes()), Some(after.as_bytes()));
            all.add(path, &diff(path, before.filter(|it| !it.is_empty()), after));
        }
        all
    }

    fn issue(file: &str, line: Option<u64>, quote: Option<&str>) -> Issue {
        let (file, quote) = (Some(file.to_owned()), quote.map(str::to_owned));
        Issue { file, line, quote, ..Issue::new(Severity::Major, "wrong") }
    }

    fn place(diff: &Diff, issue: Issue) -> Option<u64> {
        diff.anchored(issue).ok().and_then(|issue| issue.line)
    }

    #[test]
    fn a_finding_points_at_a_line_of_the_diff_or_is_none() {
        let before: String = (1..=40).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 20\n", "line twenty\nand a half\n");
        let diff = of(&[("src/a.rs", &before, &after)]);

        assert_eq!(place(&diff, issue("src/a.rs", Some(20), None)), Some(20));
        assert_eq!(place(&diff, issue("b/src/a.rs", Some(99), Some("+  and a   half"))), Some(21));
        // A line that went, and one that stands beside the change.
        assert_eq!(place(&diff, issue("./src/a.rs", None, Some("line 20"))), Some(20));
        assert_eq!(place(&diff, issue("src/a.rs", Some(18), None)), Some(18));
        for nowhere in [
            issue("src/a.rs", Some(5), None),
            issue("src/a.rs", None, None),
            issue("src/a.rs", Some(20), Some("line 5 is wrong")),
            issue("src/b.rs", Some(20), None),
            Issue::new(Severity::Major, "wrong"),
        ] {
            assert_eq!(diff.anchored(nowhere.clone()), Err(nowhere));
        }
    }

    #[test]
    fn lines_that_look_like_headers_are_lines() {
        let diff = of(&[("a.sql", "-- one\n-- two\n", "++ one\n-- two\n")]);

        assert_eq!(diff.lines(), 2);
        assert_eq!(place(&diff, issue("a.sql", None, Some("++ one"))), Some(1));
    }

    #[test]
    fn a_name_with_a_line_break_adds_no_line_to_the_diff() {
        let diff = of(&[("a\n+++ b/b.rs", "", "one\n")]);

        assert_eq!(
            diff.parts(),
            ["--- /dev/null\n+++ b/a\u{fffd}+++ b/b.rs\n@@ -0,0 +1 @@\n+one\n"]
        );
        assert!(diff.anchored(issue("b.rs", Some(1), None)).is_err());
    }

    #[test]
    fn a_large_diff_is_shown_in_parts_that_name_their_file() {
        let text: String = (0..9_000).map(|line| format!("this is line {line}\n")).collect();
        let diff = of(&[("a.txt", "", &text), ("b.txt", "one\n", "two\n")]);

        let parts = diff.parts();

        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() < PART_BYTES + 200));
        assert!(parts.iter().all(|part| part.starts_with("--- /dev/null\n+++ b/a.txt\n")));
        let shown: usize = parts.iter().map(|part| part.matches("+this is line ").count()).sum();
        assert_eq!((shown, diff.unseen.len()), (9_000, 0));
        assert!(parts.last().unwrap().ends_with("-one\n+two\n"));
    }

    #[test]
    fn what_cannot_be_shown_is_told_of() {
        let mut found = of(&[("min.js", "", &"é".repeat(20_000))]);
        found.add("a.png", &diff("a.png", Some(b"\x89\0\xff"), Some(b"\x89\0\xfe\x80")));

        assert_eq!(found.unseen, ["min.js: line 4 of its diff, of 40001 bytes"]);
        assert_eq!(found.opaque, ["Binary file a.png differs: 3 bytes, then 4"]);
        assert!(found.parts()[0].contains("bytes are not shown"));
    }

    proptest! {
        #[test]
        fn every_changed_line_is_in_a_part(lines in proptest::collection::vec("\\PC{0,40}", 0..60), cut in 0_usize..60) {
            let before: String = lines.iter().take(cut).map(|line| format!("{line}\n")).collect();
            let after: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut all = Diff::default();
            all.add("a", &diff("a", Some(before.as_bytes()), Some(after.as_bytes())));

            let whole: String = all.parts().concat();

            for (sign, _, text) in hunk_lines(&all.files[0].text) {
                let line = format!("{sign}{text}");
                prop_assert!(whole.contains(&line));
            }
        }
    }
}
