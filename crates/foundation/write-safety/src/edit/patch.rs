//! Reading V4A patches and unified diffs.

use super::{Hunk, hunk::LastNewline};
use crate::error::Error;

/// What is to be done to several files, read from a V4A patch or a unified diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    files: Vec<PatchedFile>,
}

/// What a patch does to one file; paths are as the patch writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchedFile {
    pub(crate) path: String,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Create {
        text: String,
        runs: Runs,
    },
    /// `was` is what it says of the file before.
    Update {
        to: Option<String>,
        hunks: Vec<Hunk>,
        was: Runs,
        runs: Runs,
    },
    Delete,
}

/// Whether a file may be run, as a patch of git's says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Runs {
    /// It says nothing of that.
    #[default]
    AsIs,
    Yes,
    No,
}

impl Runs {
    /// Says what git writes of a file of that mode.
    pub(crate) const fn of(mode: u32) -> Self {
        if mode & 0o100 == 0 { Self::No } else { Self::Yes }
    }

    /// Returns the mode as git writes it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AsIs => "any",
            Self::Yes => "100755",
            Self::No => "100644",
        }
    }
}

impl PatchedFile {
    /// The file that is changed, or made.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path it is moved to, if it is.
    pub fn moved_to(&self) -> Option<&str> {
        match &self.action {
            Action::Update { to, .. } => to.as_deref(),
            Action::Create { .. } | Action::Delete => None,
        }
    }

    /// Says whether the file goes.
    pub fn deletes(&self) -> bool {
        self.action == Action::Delete
    }
}

impl Patch {
    /// Reads a patch of either form.
    ///
    /// Line counts in a unified diff's headers are not trusted: its lines are counted. Of the modes in a header of git's
    /// those of files are taken over, and a file that has not the old one is not changed.
    ///
    /// # Errors
    /// [`Error::Patch`] with the line that does not fit, or that says what cannot be done: links, submodules, copies
    /// and binary changes.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = Lines::new(text);
        let files = if lines.all.iter().any(|line| line.trim_end() == "*** Begin Patch") {
            v4a(lines)?
        } else {
            unified(lines)?
        };
        Ok(Self { files })
    }

    /// Lists the files it names, in its order.
    pub fn files(&self) -> &[PatchedFile] {
        &self.files
    }
}

struct Lines<'a> {
    all: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let mut all: Vec<_> = lines.collect();
        if all.last() == Some(&"") {
            all.pop();
        }
        Self { all, next: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.all.get(self.next).copied()
    }

    fn take(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.next += 1;
        Some(line)
    }

    /// Names the line that was taken last.
    fn error(&self, problem: impl Into<String>) -> Error {
        Error::Patch { line: self.next.max(1), problem: problem.into() }
    }
}

fn v4a(mut lines: Lines<'_>) -> Result<Vec<PatchedFile>, Error> {
    while lines.take().is_some_and(|line| line.trim_end() != "*** Begin Patch") {}
    let mut files = Vec::new();
    while let Some(line) = lines.take() {
        let line = line.trim_end();
        let (path, action) = if line == "*** End Patch" {
            return if files.is_empty() {
                Err(lines.error("the patch names no file"))
            } else {
                Ok(files)
            };
        } else if let Some(path) = line.strip_prefix("*** Add File: ") {
            (path, Action::Create { text: v4a_new_file(&mut lines)?, runs: Runs::AsIs })
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            (path, Action::Delete)
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let moved = lines.peek().and_then(|line| line.strip_prefix("*** Move to: "));
            let to = moved.map(|to| to.trim().to_owned());
            lines.next += usize::from(to.is_some());
            let hunks = v4a_hunks(&mut lines, to.is_some())?;
            (path, Action::Update { to, hunks, was: Runs::AsIs, runs: Runs::AsIs })
        } else if line.is_empty() {
            continue;
        } else {
            return Err(lines.error(format!(
                "wanted `*** Add|Update|Delete File: …` or `*** End Patch`, found {line:?}"
            )));
        };
        files.push(PatchedFile { path: path.trim().to_owned(), action });
    }
    Err(lines.error("wanted `*** End Patch`, found the end"))
}

fn v4a_new_file(lines: &mut Lines<'_>) -> Result<String, Error> {
    let mut text = String::new();
    while let Some(line) = lines.peek().filter(|line| !line.starts_with("*** ")) {
        lines.next += 1;
        let line = line.strip_prefix('+').ok_or_else(|| {
            lines.error(format!("a line of a new file begins with `+`, found {line:?}"))
        })?;
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

fn v4a_hunks(lines: &mut Lines<'_>, may_be_none: bool) -> Result<Vec<Hunk>, Error> {
    let mut hunks = Vec::new();
    let mut hunk = Hunk::default();
    let mut blank_lines = 0;
    let ends = |line: &str| line.starts_with("*** ") && line.trim_end() != "*** End of File";
    while let Some(line) = lines.peek().filter(|line| !ends(line)) {
        lines.next += 1;
        if line.trim_end() == "*** End of File" {
            hunk.at_end = true;
        } else if let Some(anchor) = line.strip_prefix("@@") {
            hunk.drop_layout(std::mem::take(&mut blank_lines));
            if !hunk.old.is_empty() || !hunk.new.is_empty() {
                hunks.push(std::mem::take(&mut hunk));
            }
            let anchor = anchor.strip_prefix(' ').unwrap_or(anchor).trim_end();
            let anchor = anchor.strip_suffix("@@").unwrap_or(anchor).trim_end();
            if !anchor.is_empty() {
                hunk.anchors.push(anchor.to_owned());
            }
        } else {
            push_line(&mut hunk, line).map_err(|problem| lines.error(problem))?;
            blank_lines = if line.is_empty() { blank_lines + 1 } else { 0 };
        }
    }
    hunk.drop_layout(blank_lines);
    if !hunk.old.is_empty() || !hunk.new.is_empty() {
        hunks.push(hunk);
    }
    if hunks.is_empty() && !may_be_none {
        return Err(lines.error("the update changes nothing"));
    }
    Ok(hunks)
}

/// Adds a context, removed or added line.
fn push_line(hunk: &mut Hunk, line: &str) -> Result<(), String> {
    let (both, removed, added) =
        (line.strip_prefix(' '), line.strip_prefix('-'), line.strip_prefix('+'));
    match (both, removed, added) {
        (Some(text), ..) => {
            hunk.old.push(text.to_owned());
            hunk.new.push(text.to_owned());
        }
        (_, Some(text), _) => hunk.old.push(text.to_owned()),
        (.., Some(text)) => hunk.new.push(text.to_owned()),
        // Models and mailers drop the space of an empty context line.
        _ if line.is_empty() => {
            hunk.old.push(String::new());
            hunk.new.push(String::new());
        }
        _ => return Err(format!("a line begins with ` `, `-` or `+`, found {line:?}")),
    }
    Ok(())
}

/// What stands above a file's hunks, or in their place.
#[derive(Default)]
struct Header {
    /// The path, where both sides of git's own line have the same; none outside of git's headers.
    named: Option<String>,
    renamed_from: Option<String>,
    renamed_to: Option<String>,
    is_new: bool,
    is_deleted: bool,
    was: Runs,
    runs: Runs,
}

impl Header {
    /// Reads a line of git's own header; says whether it was one.
    fn takes(&mut self, line: &str) -> Result<bool, String> {
        if self.named.is_none() {
            return Ok(false); // Prose may begin with the same words.
        }
        if let Some(mode) = line.strip_prefix("new file mode ") {
            (self.is_new, self.runs) = (true, runs("a new file", mode)?);
        } else if let Some(mode) = line.strip_prefix("old mode ") {
            self.was = runs("a file", mode)?;
        } else if let Some(mode) = line.strip_prefix("new mode ") {
            self.runs = runs("a file", mode)?;
        } else if line.starts_with("deleted file mode ") {
            self.is_deleted = true;
        } else if line.starts_with("copy from ") || line.starts_with("copy to ") {
            return Err("copies cannot be applied: copy the file, and patch the copy".to_owned());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Ends a header that no hunks followed, and returns the file that it changes all by itself.
    fn without_hunks(&mut self) -> Option<PatchedFile> {
        let Self { named, renamed_from, renamed_to, is_new, is_deleted, was, runs } =
            std::mem::take(self);
        if let (Some(path), Some(to)) = (renamed_from, renamed_to) {
            return Some(PatchedFile {
                path,
                action: Action::Update { to: Some(to), hunks: Vec::new(), was, runs },
            });
        }
        let path = named.filter(|path| !path.is_empty())?;
        let action = match (is_new, is_deleted) {
            (true, _) => Action::Create { text: String::new(), runs },
            (_, true) => Action::Delete,
            _ if runs == Runs::AsIs => return None,
            _ => Action::Update { to: None, hunks: Vec::new(), was, runs },
        };
        Some(PatchedFile { path, action })
    }
}

/// Reads a mode as git writes it.
fn runs(what: &str, mode: &str) -> Result<Runs, String> {
    match mode.trim_end() {
        "100644" => Ok(Runs::No),
        "100755" => Ok(Runs::Yes),
        mode => {
            let kind = match mode {
                "120000" => ", which is a link",
                "160000" => ", which is a submodule",
                _ => "",
            };
            Err(format!("{what} has mode 100644 or 100755, found {mode}{kind}"))
        }
    }
}

fn unified(mut lines: Lines<'_>) -> Result<Vec<PatchedFile>, Error> {
    let mut files: Vec<PatchedFile> = Vec::new();
    let mut header = Header::default();
    while let Some(line) = lines.take() {
        if header.takes(line).map_err(|problem| lines.error(problem))? {
            continue;
        }
        if let Some(names) = line.strip_prefix("diff --git ") {
            files.extend(header.without_hunks());
            header.named = Some(git_name(names));
        } else if let Some(from) = line.strip_prefix("rename from ") {
            if header.renamed_to.is_some() {
                files.extend(header.without_hunks());
            }
            header.renamed_from = Some(from.to_owned());
        } else if let Some(to) = line.strip_prefix("rename to ") {
            if header.renamed_from.is_none() {
                return Err(lines.error("`rename to` without `rename from`"));
            }
            header.renamed_to = Some(to.to_owned());
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err(lines.error("binary changes cannot be applied"));
        } else if let Some(old) = line.strip_prefix("--- ") {
            let new = lines.take().and_then(|line| line.strip_prefix("+++ "));
            let new = new.ok_or_else(|| lines.error("wanted `+++ …` below `--- …`"))?;
            let (old, new) = file_names(old, new);
            let hunks = unified_hunks(&mut lines)?;
            let Header { renamed_from: from, renamed_to: to, was, runs, .. } =
                std::mem::take(&mut header);
            files.push(match (old, new) {
                (None, None) => return Err(lines.error("both sides are /dev/null")),
                (None, Some(path)) => {
                    let added = hunks.iter().flat_map(|hunk| &hunk.new);
                    let mut text: String = added.flat_map(|line| [line.as_str(), "\n"]).collect();
                    if hunks.last().is_some_and(|h| h.last_newline == LastNewline::Remove) {
                        text.pop();
                    }
                    PatchedFile { path, action: Action::Create { text, runs } }
                }
                (Some(path), None) => PatchedFile { path, action: Action::Delete },
                (Some(old), Some(new)) => {
                    let path = from.unwrap_or(old);
                    let to = to.or_else(|| (path != new).then_some(new));
                    PatchedFile { path, action: Action::Update { to, hunks, was, runs } }
                }
            });
        } else if line.starts_with("@@ ") {
            return Err(lines.error("a hunk without `--- …` and `+++ …` above it"));
        }
        // Anything else is prose or what git says besides.
    }
    files.extend(header.without_hunks());
    if files.is_empty() {
        return Err(lines.error("the patch names no file"));
    }
    Ok(files)
}

/// Returns the path that both sides of git's `a/PATH b/PATH` name, and nothing where they name two: these stand in lines of
/// their own.
fn git_name(names: &str) -> String {
    let names = names.trim_end();
    let halves = match names.strip_prefix('"').and_then(|names| names.strip_suffix('"')) {
        Some(quoted) => quoted.split_once("\" \""),
        None => {
            let (old, new) = names.split_at_checked(names.len() / 2).unwrap_or((names, ""));
            new.strip_prefix(' ').map(|new| (old, new))
        }
    };
    let Some((old, new)) = halves else { return String::new() };
    match (old.strip_prefix("a/"), new.strip_prefix("b/")) {
        (Some(old), Some(new)) if old == new => old.to_owned(),
        _ if old == new => old.to_owned(),
        _ => String::new(),
    }
}

/// Takes the paths of a file header; none for `/dev/null`.
///
/// `a/` and `b/` are git's, unless only one side has its own: then they are folders.
fn file_names(old: &str, new: &str) -> (Option<String>, Option<String>) {
    let name = |header: &str| {
        let name = header.split('\t').next().unwrap_or(header).trim_end().to_owned();
        let bare = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = bare.map(str::to_owned).unwrap_or(name);
        (name != "/dev/null").then_some(name)
    };
    let (old, new) = (name(old), name(new));
    let marked = |name: &Option<String>, mark| name.as_ref().is_none_or(|n| n.starts_with(mark));
    if !marked(&old, "a/") || !marked(&new, "b/") {
        return (old, new);
    }
    let bare = |name: Option<String>| name.map(|name| name.chars().skip(2).collect());
    (bare(old), bare(new))
}

fn unified_hunks(lines: &mut Lines<'_>) -> Result<Vec<Hunk>, Error> {
    let mut hunks = Vec::new();
    while let Some(header) = lines.peek().and_then(|line| line.strip_prefix("@@")) {
        lines.next += 1;
        let (line, counts) = hunk_header(header);
        let mut hunk = Hunk { line, ..Hunk::default() };
        let (mut old_open, mut new_open) = (false, false);
        let mut last = ' ';
        let mut blank_lines = 0;
        while let Some(line) = lines.peek() {
            if line.starts_with("@@") || is_file_header(lines) {
                break;
            }
            // Where the counts are right they end the hunk; an empty line after it is prose.
            let done = counts == Some((hunk.old.len(), hunk.new.len()));
            if line.starts_with('\\') {
                old_open |= last != '+';
                new_open |= last != '-';
            } else if done && !line.starts_with([' ', '+', '-']) {
                break;
            } else if push_line(&mut hunk, line).is_err() {
                break; // What follows is the next file's header or prose.
            } else {
                last = line.chars().next().unwrap_or(' ');
                blank_lines = if line.is_empty() { blank_lines + 1 } else { 0 };
            }
            lines.next += 1;
        }
        hunk.drop_layout(blank_lines);
        if hunk.old == hunk.new && old_open == new_open {
            return Err(lines.error("the hunk changes nothing"));
        }
        hunk.last_newline = match (old_open, new_open) {
            (false, true) => LastNewline::Remove,
            (true, false) => LastNewline::Add,
            (true, true) | (false, false) => LastNewline::Keep,
        };
        hunks.push(hunk);
    }
    Ok(hunks)
}

/// Says whether a new file begins; a removed line may look like `--- `.
fn is_file_header(lines: &Lines<'_>) -> bool {
    let at = |offset: usize| lines.all.get(lines.next + offset).copied().unwrap_or_default();
    at(0).starts_with("diff --git ") || (at(0).starts_with("--- ") && at(1).starts_with("+++ "))
}

/// Reads `-10,4 +11,6 @@`: the old start and both counts, where they can be read.
fn hunk_header(header: &str) -> (Option<usize>, Option<(usize, usize)>) {
    let mut words = header.split_whitespace();
    let mut range = |sign: char| {
        let word = words.next()?.strip_prefix(sign)?;
        let (start, count) = word.split_once(',').unwrap_or((word, "1"));
        Some((start.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
    };
    let old = range('-');
    let new = range('+');
    (old.map(|(start, _)| start), old.zip(new).map(|(old, new)| (old.1, new.1)))
}
