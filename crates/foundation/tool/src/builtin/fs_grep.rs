//! `fs.grep`: which lines hold such text.

mod ordered; // Many files at once, told in their order.

use std::path::Path;

use formwork_protocols::{Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec, text};
use formwork_write_safety::{Root, Workspace};
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    fs_glob::{cancelled, compile, folder, shown, walk_in_order},
    on_files::{OnFiles, Scene},
};
use ordered::InFile;

/// How many lines one call returns unless it says otherwise.
const MAX_LINES: usize = 100;
/// How many lines one call returns at most, whatever it says.
const MOST_LINES: usize = 5_000;
/// How many bytes of one line are shown: minified files have lines of megabytes.
const MAX_LINE_BYTES: usize = 400;

/// How large a pattern may be once it is understood: repeats of repeats take seconds to build, and then as long for each
/// file.
const MOST_PATTERN_BYTES: usize = 8 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression.
    pattern: String,
    /// The folder or file to search.
    path: Option<String>,
    /// Only files with such names, such as *.rs or src/**/*.rs.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// The most lines to return.
    limit: Option<usize>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Search file contents. Returns path:line: text. What .gitignore names is left out.";
    super::read_only::<Arguments>("fs.grep", text)
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, search)
}

/// Searches in the order of paths, so that one question has one answer.
fn search(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    let Scene { workspace, cancel, .. } = scene;
    let matcher: RegexMatcher = RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case)
        // The end of a line is the same to a pattern whether or not a carriage return stands there.
        .crlf(true)
        .multi_line(true)
        .size_limit(MOST_PATTERN_BYTES)
        .build(&arguments.pattern)
        .map_err(|error| ToolError::new(ToolErrorKind::InvalidArguments, error.to_string()))?;
    let only = arguments.glob.as_deref().map(Only::parse).transpose()?;
    let from = folder(workspace, arguments.path.as_deref())?;
    let limit = arguments.limit.unwrap_or(MAX_LINES).clamp(1, MOST_LINES);

    let root = workspace.root().path();
    let files = walk_in_order(&from).flatten().filter(|entry| {
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        let below = entry.path().strip_prefix(root).unwrap_or(entry.path());
        is_file && only.as_ref().is_none_or(|only| only.names(below))
    });
    let looks = || {
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .build();
        let (matcher, name) = (matcher.clone(), |file: &Path| shown(workspace, file));
        let root = workspace.root();
        move |file: &Path| in_file(&mut searcher, (root, &matcher), file, &name, limit)
    };
    let is_over = || cancel.is_cancelled();
    // One more than is shown tells that there are more.
    let all = ordered::search(files.map(|it| it.into_path()), looks, (limit + 1, &is_over));
    if cancel.is_cancelled() {
        return Err(cancelled());
    }
    let (mut found, mut unread) = (Found { text: String::new(), lines: 0, limit, more: false }, 0);
    for in_file in &all.files {
        unread += usize::from(in_file.unread);
        found.add(&in_file.text);
    }
    if found.lines == 0 {
        found.text = format!("no line of {} files matches {}\n", all.searched, arguments.pattern);
    }
    if found.more {
        found.text.push_str(&format!("[more than {limit} lines; narrow the search]\n"));
    }
    if unread > 0 {
        found.text.push_str(&format!("[{unread} files could not be read]\n"));
    }
    Ok(ToolOutput::text(found.text))
}

/// Which files are searched.
enum Only {
    /// Those whose own name matches, in whatever folder.
    Name(GlobMatcher),
    /// Those whose path from the root of the workspace matches.
    Path(GlobMatcher),
}

impl Only {
    fn parse(glob: &str) -> Result<Self, ToolError> {
        let matcher = compile(glob)?;
        Ok(if glob.contains('/') { Self::Path(matcher) } else { Self::Name(matcher) })
    }

    fn names(&self, path: &Path) -> bool {
        match self {
            Self::Name(matcher) => path.file_name().is_some_and(|name| matcher.is_match(name)),
            Self::Path(matcher) => matcher.is_match(path),
        }
    }
}

/// What a search has found so far.
struct Found {
    text: String,
    lines: usize,
    limit: usize,
    /// Whether there is a line beyond the limit.
    more: bool,
}

impl Found {
    /// Adds whole lines until there are enough.
    fn add(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            if self.lines == self.limit {
                self.more = true;
                return;
            }
            self.text.push_str(line);
            self.lines += 1;
        }
    }
}

/// Looks into one file, for one line more than `limit` at the most.
fn in_file(
    searcher: &mut Searcher,
    (root, matcher): (&Root, &RegexMatcher),
    file: &Path,
    name: &impl Fn(&Path) -> String,
    limit: usize,
) -> InFile {
    let mut found = InFile::default();
    let mut lines = Lines { file, name, shown: None, found: &mut found, most: limit + 1 };
    // What the walk has met may be a link, or a pipe, by now.
    let read = root.open_file(file).map(|open| searcher.search_file(matcher, &open, &mut lines));
    found.unread = !matches!(read, Ok(Ok(())));
    found
}

/// Collects the lines of one file, each as one line.
struct Lines<'a, N> {
    file: &'a Path,
    name: &'a N,
    /// The file's name, once a line was found in it.
    shown: Option<String>,
    found: &'a mut InFile,
    most: usize,
}

impl<N: Fn(&Path) -> String> Sink for Lines<'_, N> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, matched: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        let line = String::from_utf8_lossy(matched.bytes());
        let line = line.trim_end_matches(['\n', '\r']);
        let number = matched.line_number().unwrap_or_default();
        let name = self.shown.get_or_insert_with(|| (self.name)(self.file));
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
