//! What the built-in tools share about files: where blocking work goes, and how it is told.

use formwork_protocols::{BlobHash, ToolError, ToolErrorKind, event::FileChange};
use formwork_write_safety::{Changed, Error as FileError};

/// Turns a fault of the file layer into what the model is told.
pub(crate) fn tool_error(error: &FileError) -> ToolError {
    let kind = match error {
        FileError::Refused { .. } | FileError::Unread { .. } | FileError::GitRefused { .. } => {
            ToolErrorKind::Denied
        }
        FileError::Unwanted { .. } => ToolErrorKind::Cancelled,
        _ => ToolErrorKind::Failed,
    };
    ToolError::new(kind, chain(error))
}

/// Tells an error and every cause of it in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

/// Carries out work on files on a thread where blocking is fine.
///
/// A dropped future does not stop the work: a write that has begun ends whole, and one that has not is given up where the
/// workspace is told so.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, ToolError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ToolError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ToolError::new(
            ToolErrorKind::Failed,
            format!("the tool stopped before it was done: {error}"),
        )),
    }
}

/// Describes how a file changed, for the record.
pub(crate) fn file_change(changed: &Changed) -> FileChange {
    let lines = changed.diff.lines();
    let (mut added, mut removed) = (0, 0);
    for line in lines.filter(|line| !line.starts_with("+++") && !line.starts_with("---")) {
        match line.as_bytes().first() {
            Some(b'+') => added += 1,
            Some(b'-') => removed += 1,
            _ => {}
        }
    }
    FileChange {
        path: changed.path.to_string(),
        before: changed.before.map(|hash| BlobHash::from_bytes(*hash.as_bytes())),
        after: changed.after.map(|hash| BlobHash::from_bytes(*hash.as_bytes())),
        added,
        removed,
        before_mode: changed.before_mode,
        after_mode: changed.after_mode,
        call: None,
        apart: false,
    }
}
