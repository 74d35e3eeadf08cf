//! What a repository asks of agents: `AGENTS.md` and its kin, from the root to the file at hand.

use std::collections::HashSet;

use formwork_protocols::{BlobHash, text};

use crate::{outside::outside, visible::visible};

/// How many bytes of one file are read at the most.
pub const FILE_BYTES: usize = 64 * 1024;

/// How deep files may be included in each other.
const MAX_DEPTH: usize = 4;

/// How many files one instruction file may include, those of its includes among them.
const MAX_INCLUDES: usize = 16;

/// How many folders lie between the root and a file at the most: what lies deeper has no instructions of its own.
const MAX_FOLDERS: usize = 32;

/// Bytes of text for one token of the budget. Prose has some four.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// Reads the files of a repository.
pub trait Files: Send + Sync {
    /// Returns the text of a file at a path from the root, with `/` between its parts; at most [`FILE_BYTES`] of
    /// it. Nothing is returned of what does not exist, is no file, or lies outside.
    fn read(&self, path: &str) -> Option<String>;
}

/// An instruction file as a model is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The path from the root.
    pub path: String,
    /// What the model is shown: where it is from, how far it is to be trusted, and the text.
    pub shown: String,
    /// The hash of the text with its includes, before it was cut.
    pub hash: BlobHash,
    /// How many bytes that text has.
    pub bytes: usize,
    /// Whether the budget had room for a part of it only.
    pub cut: bool,
}

/// Finds the instructions of one folder (empty for the root): the first of `names` that is there, with what it includes.
/// `budget` are the tokens that are left, of which it takes what it needs; where nothing is left, nothing is read.
pub fn instruction(
    files: &dyn Files,
    names: &[String],
    folder: &str,
    budget: &mut usize,
) -> Option<Instruction> {
    if *budget == 0 {
        return None;
    }
    let path_of = |name: &String| match folder {
        "" => name.clone(),
        folder => format!("{folder}/{name}"),
    };
    let (path, text) = names.iter().map(path_of).find_map(|path| {
        let text = files.read(&path).filter(|text| !text.trim().is_empty())?;
        Some((path, text))
    })?;
    let mut including = Including { files, seen: HashSet::from([path.clone()]), count: 0 };
    let text = outside(&including.expand(&path, &text, 0)).into_owned();
    let room = budget.saturating_mul(BYTES_PER_TOKEN);
    let cut = text.len() > room;
    let kept = text::head(&text, room);
    *budget = budget.saturating_sub(kept.len().div_ceil(BYTES_PER_TOKEN));
    let more = match cut {
        true => format!(
            "\n[cut here: {} of {} bytes fit; read the rest of {path} if it matters]",
            kept.len(),
            text.len()
        ),
        false => String::new(),
    };
    let shown = format!(
        "<instructions from=\"{}\" trust=\"repository\">\n{}{more}\n</instructions>",
        attribute(&path),
        closed(kept.trim_end()),
    );
    Some(Instruction { shown, hash: BlobHash::of(text.as_bytes()), bytes: text.len(), cut, path })
}

/// Returns the folders on the way from the root to a path, the root left out: `a` and `a/b` for `a/b/c.rs`. Nothing is
/// returned for a path that is absolute or goes up.
pub fn folders(path: &str) -> Vec<String> {
    let Some(path) = normal("", path) else { return Vec::new() };
    let ends = path.match_indices('/').map(|(at, _)| at).take(MAX_FOLDERS);
    ends.filter_map(|end| path.get(..end)).map(str::to_owned).collect()
}

/// Puts an included text in the place of each line that names it.
struct Including<'a> {
    files: &'a dyn Files,
    seen: HashSet<String>,
    count: usize,
}

impl Including<'_> {
    fn expand(&mut self, path: &str, text: &str, depth: usize) -> String {
        let mut fence: Option<&str> = None;
        let mut expanded = String::with_capacity(text.len());
        for line in text.lines() {
            let trimmed = line.trim();
            match fence {
                Some(mark) if trimmed.starts_with(mark) => fence = None,
                None if trimmed.starts_with("```") => fence = Some("```"),
                None if trimmed.starts_with("~~~") => fence = Some("~~~"),
                _ => {}
            }
            match trimmed.strip_prefix('@').filter(|_| fence.is_none()).filter(|it| is_path(it)) {
                Some(named) => expanded.push_str(&self.included(path, named, depth)),
                None => expanded.push_str(line),
            }
            expanded.push('\n');
        }
        expanded
    }

    fn included(&mut self, by: &str, named: &str, depth: usize) -> String {
        let not = |why: &str| format!("[@{named} is not included: {why}]");
        let folder = by.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Some(path) = normal(folder, named) else {
            return not("it lies outside the repository");
        };
        if depth >= MAX_DEPTH || self.count >= MAX_INCLUDES {
            return not("too many files include each other");
        }
        if !self.seen.insert(path.clone()) {
            return not("it is included already");
        }
        self.count += 1;
        match self.files.read(&path) {
            Some(text) => self.expand(&path, &text, depth + 1).trim_end().to_owned(),
            None => not("there is no such text file"),
        }
    }
}

/// Tells whether the text behind an `@` names a file: one word with an extension or a folder in it.
fn is_path(named: &str) -> bool {
    !named.is_empty()
        && named.len() <= 512
        && !named.contains(char::is_whitespace)
        && named.contains(['.', '/'])
}

/// Joins a path to a folder and takes `.` and `..` out of it. Nothing is returned where that leads out of the root.
fn normal(folder: &str, path: &str) -> Option<String> {
    if path.starts_with(['/', '~']) || path.contains(['\\', '\0']) {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Writes a text so that it cannot end the element that it stands in.
pub(crate) fn closed(text: &str) -> String {
    text.replace("</", "<\\/")
}

/// Writes a path so that it cannot end the attribute that it stands in.
pub(crate) fn attribute(text: &str) -> String {
    visible(text).replace(['"', '<', '>', '\n', '\r', '\t'], "_")
}

#[cfg(test)]
mod tests;
