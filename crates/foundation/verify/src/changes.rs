//! What a task changed, and whether that is little enough.

use std::collections::BTreeMap;

use async_trait::async_trait;
use formwork_protocols::{
    BlobHash,
    check::{DiffCheck, Evidence, NewFilesCheck},
    event::FileChange,
};

use crate::{baseline, verifier::Decision};

/// How many changed files the evidence names.
const NAMED_FILES: usize = 40;

/// Knows what a task has changed since it began, by whatever means: a snapshot of the tree, or the log.
#[async_trait]
pub trait Changes: Send + Sync {
    /// Returns each file that differs from what it was when the task began, once. Cancel safe.
    ///
    /// # Errors
    /// Why that cannot be told, in one line.
    async fn since_entry(&self) -> Result<Vec<FileChange>, String>;

    /// Returns the bytes of a file as [`Changes::since_entry`] names them by their hash. Cancel safe.
    ///
    /// # Errors
    /// Why they are not there, in one line.
    async fn content(&self, hash: &BlobHash) -> Result<Vec<u8>, String>;

    /// Returns how many calls of each tool have ended well in the task. Cancel safe.
    ///
    /// # Errors
    /// Why that cannot be told, in one line.
    async fn calls(&self) -> Result<BTreeMap<String, u64>, String>;
}

/// Nothing was changed: for those who check before the first change.
#[async_trait]
impl Changes for () {
    async fn since_entry(&self) -> Result<Vec<FileChange>, String> {
        Ok(Vec::new())
    }

    async fn content(&self, _hash: &BlobHash) -> Result<Vec<u8>, String> {
        Err("nothing was changed".to_owned())
    }

    async fn calls(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }
}

/// Judges the size of what was changed.
pub(crate) fn judge(check: &DiffCheck, changes: Result<Vec<FileChange>, String>) -> Decision {
    let changes = match changes {
        Ok(changes) => changes,
        Err(reason) => return Decision::fail(format!("cannot tell what was changed: {reason}")),
    };
    let files = u64::try_from(changes.len()).unwrap_or(u64::MAX);
    let lines = changes
        .iter()
        .map(|change| change.added.saturating_add(change.removed))
        .fold(0, u64::saturating_add);
    let evidence = Evidence { excerpt: list(&changes), lines: Some(lines), ..Evidence::default() };
    let found = format!("{lines} lines in {files} {}", if files == 1 { "file" } else { "files" });
    let over = |max: Option<u64>, found: u64| max.filter(|max| found > *max);
    let decision = if changes.is_empty() && !check.allow_empty {
        Decision::fail("nothing was changed")
    } else if let Some(max) = over(check.max_files, files) {
        Decision::fail(format!("changed {found}, at most {max} files are allowed"))
    } else if let Some(max) = over(check.max_lines, lines) {
        Decision::fail(format!("changed {found}, at most {max} lines are allowed"))
    } else {
        Decision::pass(format!("changed {found}"))
    };
    Decision { evidence, ..decision }
}

/// Judges whether new files were made only where they may be.
pub(crate) fn judge_new(
    check: &NewFilesCheck,
    changes: Result<Vec<FileChange>, String>,
) -> Decision {
    let within = check.within.iter().cloned().collect();
    let (changes, within) = match (changes, baseline::compile(&within)) {
        (Ok(changes), Ok(within)) => (changes, within),
        (Err(reason), _) => {
            return Decision::fail(format!("cannot tell what was changed: {reason}"));
        }
        (_, Err(error)) => return Decision::fail(error.to_string()),
    };
    let (new, outside): (Vec<FileChange>, Vec<FileChange>) = changes
        .into_iter()
        .filter(|change| change.before.is_none())
        .partition(|change| within.is_match(&change.path));
    let allowed = check.within.join(", ");
    let Some(first) = outside.first() else {
        return Decision::pass(match new.len() {
            0 => "no new file".to_owned(),
            1 => format!("1 new file, within {allowed}"),
            count => format!("{count} new files, all within {allowed}"),
        });
    };
    let reason = match outside.len() {
        1 => format!("new {}, outside of {allowed}", first.path),
        count => format!("new {} and {} more, outside of {allowed}", first.path, count - 1),
    };
    let evidence = Evidence { excerpt: list(&outside), ..Evidence::default() };
    Decision { evidence, ..Decision::fail(reason) }
}

/// Lists what was changed, a file a line.
fn list(changes: &[FileChange]) -> String {
    let mut text = String::new();
    for FileChange { path, before, after, added, removed, .. } in changes.iter().take(NAMED_FILES) {
        let what = match (before, after) {
            (None, _) => "new",
            (_, None) => "deleted",
            _ => "changed",
        };
        text.push_str(&format!("{what} {path} +{added} -{removed}\n"));
    }
    if let Some(more) = changes.len().checked_sub(NAMED_FILES).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use formwork_protocols::BlobHash;

    use super::*;

    fn change(path: &str, added: u64, removed: u64) -> FileChange {
        let hash = Some(BlobHash::of(path.as_bytes()));
        FileChange {
            path: path.to_owned(),
            before: hash,
            after: hash,
            added,
            removed,
            before_mode: None,
            after_mode: None,
            call: None,
            apart: false,
        }
    }

    #[test]
    fn a_task_that_changed_nothing_fails_unless_that_is_allowed() {
        let strict = DiffCheck::default();
        let lenient = DiffCheck { allow_empty: true, ..DiffCheck::default() };

        assert_eq!(judge(&strict, Ok(Vec::new())).reason, "nothing was changed");
        assert!(judge(&lenient, Ok(Vec::new())).passed);
    }

    #[test]
    fn added_and_removed_lines_count_together_against_the_limit() {
        let check = DiffCheck { max_lines: Some(10), max_files: Some(2), allow_empty: false };

        let within = judge(&check, Ok(vec![change("a", 4, 3), change("b", 3, 0)]));
        let lines = judge(&check, Ok(vec![change("a", 8, 3)]));
        let files =
            judge(&check, Ok(vec![change("a", 1, 0), change("b", 1, 0), change("c", 1, 0)]));

        assert!(within.passed);
        assert_eq!(within.evidence.excerpt, "changed a +4 -3\nchanged b +3 -0\n");
        assert_eq!(lines.reason, "changed 11 lines in 1 file, at most 10 lines are allowed");
        assert_eq!(files.reason, "changed 3 lines in 3 files, at most 2 files are allowed");
    }

    #[test]
    fn a_new_file_outside_of_where_they_may_be_is_named_and_a_changed_one_is_not() {
        let check = NewFilesCheck { within: vec!["src/**".to_owned(), "docs".to_owned()] };
        let new = |path: &str| FileChange { before: None, ..change(path, 1, 0) };

        let inside =
            judge_new(&check, Ok(vec![new("src/a.rs"), new("docs/b/c.md"), change("x", 1, 1)]));
        let outside =
            judge_new(&check, Ok(vec![new("src/a.rs"), new("evil.sh"), new("lib/src/d.rs")]));

        assert_eq!(
            (inside.passed, inside.reason.as_str()),
            (true, "2 new files, all within src/**, docs")
        );
        assert!(!outside.passed);
        assert_eq!(outside.reason, "new evil.sh and 1 more, outside of src/**, docs");
        assert_eq!(outside.evidence.excerpt, "new evil.sh +1 -0\nnew lib/src/d.rs +1 -0\n");
    }

    #[test]
    fn what_cannot_be_told_does_not_pass() {
        let decision = judge(&DiffCheck::default(), Err("the snapshot is gone".to_owned()));

        assert!(!decision.passed);
        assert_eq!(decision.reason, "cannot tell what was changed: the snapshot is gone");
    }
}
