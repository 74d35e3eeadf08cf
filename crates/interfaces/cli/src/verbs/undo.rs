//! `formwork undo` and `formwork trash`: back to what was there.

use formwork_protocols::{OutcomeCode, RunId, Timestamp};
use formwork_services::operations::{
    trash::{Entry, List, ListParams, Purge, PurgeParams, Restore, RestoreParams},
    undo::{InTrash, Undo as Operation, UndoParams, Undone},
};

use crate::{
    args::{Global, Trash, Undo},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
    view::visible,
};

/// How many digits of a commit are shown.
const SHORT: usize = 12;

pub(super) fn undo(global: &Global, terminal: &Terminal, args: Undo) -> Result<OutcomeCode, Fault> {
    let Undo { run, to, force, dry_run } = args;
    super::reading_if(dry_run, global, Need::Look, async |formwork, caller, _| {
        let params = UndoParams { run, to, force, dry_run };
        let undone = formwork.call::<Operation>(&caller, params).await?;
        terminal.result(&undone, || told(run, &undone, dry_run))?;
        Ok(match undone.left.is_empty() {
            true => OutcomeCode::Completed,
            false => OutcomeCode::Failed,
        })
    })
}

fn told(run: RunId, undone: &Undone, dry_run: bool) -> String {
    let mut text = String::new();
    if undone.paths.is_empty() && undone.left.is_empty() {
        text.push_str(&format!("nothing of run {run} is left to take back\n"));
    }
    if dry_run {
        text.push_str(&undone.diff);
    }
    for path in &undone.paths {
        let verb = if dry_run { "would take back" } else { "took back" };
        text.push_str(&format!("{verb} {}\n", visible(path)));
    }
    for left in &undone.left {
        text.push_str(&format!("left {}: {}\n", visible(&left.path), visible(&left.reason)));
    }
    for commit in &undone.commits {
        let commit = formwork_protocols::text::head(commit, SHORT);
        text.push_str(&format!(
            "commit {commit} stays: undo changes files and no history; `git revert` or `git reset` takes it back\n"
        ));
    }
    text.push_str(&trashed(&undone.trashed));
    text
}

/// Says what was put into the trash, since nobody told that it was the run's, and how to have it back.
pub(crate) fn trashed(trashed: &[InTrash]) -> String {
    let mut text = String::new();
    for InTrash { path, id } in trashed {
        let path = visible(path);
        text.push_str(&match id.is_empty() {
            true => format!("what is at {path} now would go to the trash\n"),
            false => format!("what was at {path} is in the trash: {id}\n"),
        });
    }
    if !trashed.is_empty() {
        text.push_str(
            "known only by what differed around a program, which may be your own work: `formwork trash restore ID` brings \
             it back where nothing is by then\n",
        );
    }
    text
}

pub(super) fn trash(
    global: &Global,
    terminal: &Terminal,
    args: Trash,
) -> Result<OutcomeCode, Fault> {
    let reads = matches!(args, Trash::List { .. });
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        match args {
            Trash::List { all } => {
                let found = formwork.call::<List>(&caller, ListParams { all }).await?;
                terminal.result(&found, || match found.entries.is_empty() {
                    true => "the trash is empty\n".to_owned(),
                    false => found.entries.iter().map(|entry| line(entry, all)).collect(),
                })?;
            }
            Trash::Restore { id } => {
                let entry = formwork.call::<Restore>(&caller, RestoreParams { id }).await?;
                terminal.result(&entry, || {
                    format!("restored {} {}\n", entry.kind, visible(&entry.path))
                })?;
            }
            Trash::Purge { id, older_than } => {
                let purged = formwork
                    .call::<Purge>(
                        &caller,
                        PurgeParams { id, older_than: older_than.map(|it| it.0) },
                    )
                    .await?;
                terminal.result(&purged, || match purged.entries {
                    1 => "removed 1 entry for good\n".to_owned(),
                    entries => format!("removed {entries} entries for good\n"),
                })?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

/// Describes an entry in two lines: what it is, and why it went.
fn line(entry: &Entry, all: bool) -> String {
    let at = Timestamp::from_micros(i64::try_from(entry.at_ms).unwrap_or_default() * 1_000);
    let place = match all {
        true => format!("{}/{}", entry.workspace, entry.path),
        false => entry.path.clone(),
    };
    format!(
        "{}  {at}  {:<6} {:>10} bytes  {}\n  run {}: {}\n",
        entry.id,
        entry.kind,
        entry.bytes,
        visible(&place),
        entry.run,
        visible(&entry.reason),
    )
}
