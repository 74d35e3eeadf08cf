//! `fs.grep`: which lines hold such text.

mod look; // One file.

use std::path::Path;

use formwork_protocols::{Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use formwork_write_safety::{Kind, Workspace};
use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    fs_glob::{cancelled, compile, folder, shown},
    on_files::{OnFiles, Scene},
    walk::{Beyond, Met, Walk},
};
use look::Looker;

/// How many lines one call returns unless it says otherwise.
const MAX_LINES: usize = 100;
/// How many lines one call returns at most, whatever it says.
const MOST_LINES: usize = 5_000;

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
    let matcher = matcher(&arguments.pattern, arguments.ignore_case)?;
    let only = arguments.glob.as_deref().map(Only::parse).transpose()?;
    let from = folder(workspace, arguments.path.as_deref())?;
    let limit = arguments.limit.unwrap_or(MAX_LINES).clamp(1, MOST_LINES);

    let root = workspace.root().path();
    let is_chosen = |path: &Path, kind: Kind| {
        let below = || path.strip_prefix(root).unwrap_or(path);
        kind == Kind::File && only.as_ref().is_none_or(|only| only.names(below()))
    };
    // One more than is shown tells that there are more.
    let most = limit + 1;
    let walk = Walk {
        root: workspace.root(),
        from: &from,
        chosen: &is_chosen,
        wanted: most,
        beyond: Beyond::GivenUp,
        is_over: &|| cancel.is_cancelled(),
    };
    let all = walk.look(|| {
        let mut looker = Looker::new(matcher.clone(), most);
        move |met: &Met<'_>| looker.look(met, &|| shown(workspace, &met.path()))
    });
    if cancel.is_cancelled() {
        return Err(cancelled());
    }
    let (mut found, mut unread) = (Found { text: String::new(), lines: 0, limit, more: false }, 0);
    for in_file in &all.all {
        unread += usize::from(in_file.unread);
        found.add(&in_file.text);
    }
    if found.lines == 0 {
        found.text = format!("no line of {} files matches {}\n", all.met, arguments.pattern);
    }
    if found.more {
        found.text.push_str(&format!("[more than {limit} lines; narrow the search]\n"));
    }
    if unread > 0 {
        found.text.push_str(&format!("[{unread} files could not be read]\n"));
    }
    Ok(ToolOutput::text(found.text))
}

fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        // The end of a line is the same to a pattern whether or not a carriage return stands there.
        .crlf(true)
        .multi_line(true)
        .size_limit(MOST_PATTERN_BYTES)
        .build(pattern)
        .map_err(|error| ToolError::new(ToolErrorKind::InvalidArguments, error.to_string()))
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
