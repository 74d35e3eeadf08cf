//! Looks for lines in one file.
//!
//! Most files hold none, and most of the time that a searcher takes for them goes into what nobody asks then: it counts lines
//! and looks for what is no text. So a file is first asked whether any of its lines may match, in one go where it is not
//! large, and the searcher is for those that do. What it finds is the same.

use std::io::{self, Read};

use formwork_protocols::text;
use formwork_write_safety::Readable;
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};

use crate::builtin::walk::{Find, Met};

/// How many bytes of one line are shown: minified files have lines of megabytes.
const MAX_LINE_BYTES: usize = 400;

/// What a searcher reads at first. One that finds a zero in it looks no further.
const FIRST: usize = 64 << 10;

/// How long what says how a file is encoded is at most.
const MARK: usize = 3;

/// What is read of a file in one go: as much as a processor keeps near it.
const HELD: usize = 512 << 10;

/// What was found in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InFile {
    pub(super) text: String,
    pub(super) lines: usize,
    /// Whether it could not be read to its end.
    pub(super) unread: bool,
}

/// Looks into one file after the other.
pub(super) struct Looker {
    searcher: Searcher,
    matcher: RegexMatcher,
    bytes: Vec<u8>,
    /// How many lines of one file are told at most.
    most: usize,
}

/// What is known of a file once its beginning was read.
enum Content {
    /// No line of it matches.
    Nothing,
    /// It was read whole and has this many bytes.
    Whole(usize),
    /// It is longer than what is held.
    Long,
}

impl Looker {
    pub(super) fn new(matcher: RegexMatcher, most: usize) -> Self {
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .build();
        Self { searcher, matcher, bytes: vec![0; HELD], most }
    }

    /// Looks into a file, which is named by `name` where something is found.
    pub(super) fn look(
        &mut self,
        met: &Met<'_>,
        name: &impl Fn() -> String,
    ) -> Option<Find<InFile>> {
        let mut found = InFile::default();
        // What the walk has met may be a link, or a pipe, by now.
        let file = met.folder.open(met.name);
        let read = file.and_then(|file| self.look_into(&file, name, &mut found));
        found.unread = read.is_err();
        let counts = found.lines;
        (found != InFile::default()).then_some(Find { what: found, counts })
    }

    fn look_into(
        &mut self,
        file: &Readable,
        name: &impl Fn() -> String,
        found: &mut InFile,
    ) -> io::Result<()> {
        let content = self.read(file)?;
        let Self { searcher, matcher, bytes, most } = self;
        let lines = Lines { name, shown: None, found, most: *most };
        match content {
            Content::Nothing => Ok(()),
            Content::Whole(len) => {
                let bytes = bytes.get(..len).unwrap_or_default();
                // Of what is at hand it looks for a zero elsewhere than of what it reads.
                match memchr::memchr(0, bytes).is_some() {
                    true => searcher.search_reader(&*matcher, bytes, lines),
                    false => searcher.search_slice(&*matcher, bytes, lines),
                }
            }
            Content::Long => searcher.search_reader(&*matcher, FromStart { file, next: 0 }, lines),
        }
    }

    /// Reads a file as far as it takes to know whether any line may match.
    fn read(&mut self, file: &Readable) -> io::Result<Content> {
        let (first, rest) = self.bytes.split_at_mut(FIRST);
        let mut held = file.read_at(first, 0)?;
        if held == FIRST && !is_marked(first) {
            if memchr::memchr(0, first).is_some() {
                // It reads as much as a mark takes before all else, and whole lines of that are text to it.
                let is_text = first.iter().take(MARK).any(|&byte| byte == b'\n');
                return Ok(if is_text { Content::Long } else { Content::Nothing });
            }
            held += file.read_at(rest, FIRST as u64)?;
        }
        let bytes = self.bytes.get(..held).unwrap_or_default();
        if is_marked(bytes) {
            // It may not be what it seems until it is decoded.
            return Ok(if held < FIRST { Content::Whole(held) } else { Content::Long });
        }
        if held == self.bytes.len() {
            return self.read_long(file);
        }
        Ok(if may_match(&self.matcher, bytes) { Content::Whole(held) } else { Content::Nothing })
    }

    /// Goes through the whole lines of what is held, and on to the end of the file.
    fn read_long(&mut self, file: &Readable) -> io::Result<Content> {
        let (mut held, mut next) = (self.bytes.len(), self.bytes.len() as u64);
        while held == self.bytes.len() {
            // A line that is longer than all that is held is for the searcher, which takes what it needs.
            let Some(last) = memchr::memrchr(b'\n', &self.bytes) else { return Ok(Content::Long) };
            let (lines, _) = self.bytes.split_at(last + 1);
            if may_match(&self.matcher, lines) {
                return Ok(Content::Long);
            }
            if memchr::memchr(0, lines).is_some() {
                return Ok(Content::Nothing);
            }
            self.bytes.copy_within(last + 1.., 0);
            held -= last + 1;
            let more = file.read_at(self.bytes.get_mut(held..).unwrap_or_default(), next)?;
            (held, next) = (held + more, next + more as u64);
        }
        let is_there = may_match(&self.matcher, self.bytes.get(..held).unwrap_or_default());
        Ok(if is_there { Content::Long } else { Content::Nothing })
    }
}

/// Says whether a line of `bytes` may match, as a searcher asks before it looks at any.
fn may_match(matcher: &RegexMatcher, bytes: &[u8]) -> bool {
    let is_asked = matcher.line_terminator() == Some(LineTerminator::crlf());
    !is_asked || !matches!(matcher.find_candidate_line(bytes), Ok(None))
}

/// Says whether it begins with what says how it is encoded.
fn is_marked(bytes: &[u8]) -> bool {
    [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| bytes.starts_with(mark))
}

/// Reads a file from its start.
struct FromStart<'a> {
    file: &'a Readable,
    next: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.next)?;
        self.next += read as u64;
        Ok(read)
    }
}

/// Collects the lines of one file, each as one line.
struct Lines<'a, N> {
    name: &'a N,
    /// The file's name, once a line was found in it.
    shown: Option<String>,
    found: &'a mut InFile,
    most: usize,
}

impl<N: Fn() -> String> Sink for Lines<'_, N> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, matched: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let line = String::from_utf8_lossy(matched.bytes());
        let line = line.trim_end_matches(['\n', '\r']);
        let number = matched.line_number().unwrap_or_default();
        let name = self.shown.get_or_insert_with(|| (self.name)());
        let shown = text::head(line, MAX_LINE_BYTES);
        let cut = if shown.len() < line.len() { " […]" } else { "" };
        let start = self.found.text.len();
        self.found.text.push_str(&format!("{name}:{number}: {shown}{cut}"));
        // A pattern may match over several lines, and each of them may hold a stray ending.
        let one_line = self.found.text.split_off(start).replace('\n', "\u{23ce}");
        self.found.text.push_str(&one_line);
        self.found.text.push('\n');
        self.found.lines += 1;
        Ok(self.found.lines < self.most)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use formwork_write_safety::Root;
    use proptest::prelude::*;

    use super::*;
    use crate::builtin::{
        fs_grep::matcher,
        walk::{Beyond, Found, Walk},
    };

    /// What a searcher finds that reads the whole file.
    fn by_searcher(pattern: &str, bytes: &[u8], most: usize) -> Vec<InFile> {
        let mut looker = Looker::new(matcher(pattern, false).unwrap(), most);
        let mut found = InFile::default();
        let lines = Lines { name: &|| "f".to_owned(), shown: None, found: &mut found, most };
        let Looker { searcher, matcher, .. } = &mut looker;
        searcher.search_reader(&*matcher, bytes, lines).unwrap();
        if found == InFile::default() { Vec::new() } else { vec![found] }
    }

    fn by_looker(pattern: &str, bytes: &[u8], most: usize) -> Vec<InFile> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().canonicalize().unwrap().join("f");
        fs::write(&file, bytes).unwrap();
        let walk = Walk {
            root: &Root::open(folder.path()).unwrap(),
            from: &file,
            chosen: &|_, _| true,
            wanted: usize::MAX,
            beyond: Beyond::GivenUp,
            is_over: &|| false,
        };
        let Found { all, .. } = walk.look(|| {
            let mut looker = Looker::new(matcher(pattern, false).unwrap(), most);
            move |met: &Met<'_>| looker.look(met, &|| "f".to_owned())
        });
        all
    }

    /// Pieces of a file, long ones among them: what is read at once ends within, before and behind them.
    fn a_content() -> impl Strategy<Value = Vec<u8>> {
        let line = prop::sample::select(vec![
            &b"a needle\n"[..],
            b"NEEDLE\r\n",
            b"needles and hay\n",
            b"hay\n",
            b"\n",
            b"\0",
            b"ne",
            b"\xff\xfe",
            b"\xef\xbb\xbf",
            b"n\0e\0e\0d\0l\0e\0\n\0",
            b"\xc3",
        ]);
        let times = prop_oneof![
            6 => 1_usize..4,
            3 => prop::sample::select(vec![FIRST / 4, FIRST / 9, FIRST, HELD / 4, HELD / 9 + 1]),
        ];
        let piece = (line, times).prop_map(|(line, times)| line.repeat(times.min(HELD)));
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn what_is_found_is_what_a_searcher_finds_that_reads_all(
            content in a_content(),
            pattern in prop::sample::select(vec![
                "needle", "^a needle$", "(?i)needle", "e{2}d", "needles$", r"\bhay", "[a-z]+S", "^$", "e\\s",
            ]),
            most in prop::sample::select(vec![1, 3, 50]),
        ) {
            let wanted = by_searcher(pattern, &content, most);

            prop_assert_eq!(by_looker(pattern, &content, most), wanted);
        }
    }

    #[test]
    fn what_is_read_together_with_a_zero_is_no_text_and_what_is_before_it_is() {
        let hay = "hay\n".repeat(FIRST / 4);
        let content = format!("a needle\n{hay}{hay}a needle\n\0\na needle\n");

        let found = by_looker("needle", content.as_bytes(), 9);

        assert_eq!(found, by_searcher("needle", content.as_bytes(), 9));
        assert_eq!(found, [InFile { text: "f:1: a needle\n".to_owned(), lines: 1, unread: false }]);
    }

    #[test]
    fn the_first_lines_are_read_before_a_zero_is_seen_however_long_the_file_is() {
        for hay in ["", &"hay\n".repeat(FIRST)] {
            let content = format!("\n\n\n\0{hay}\n");

            let found = by_looker("^$", content.as_bytes(), 9);

            assert_eq!(found, by_searcher("^$", content.as_bytes(), 9));
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    fn of_a_long_file_the_last_line_is_found_and_nothing_behind_a_zero() {
        let long = "some hay\n".repeat(HELD / 4);
        let last = format!("{long}a needle");
        let lost = format!("{long}\0\n{long}a needle");

        let found = by_looker("needle", last.as_bytes(), 9);

        let text = format!("f:{}: a needle\n", HELD / 4 + 1);
        assert_eq!(found, [InFile { text, lines: 1, unread: false }]);
        assert_eq!(by_looker("needle", lost.as_bytes(), 9), []);
    }
}
