//! `formwork db`: the store itself.

use anyhow::anyhow;
use formwork_protocols::{OutcomeCode, StoreError};
use formwork_services::{
    Look,
    operations::db::{
        Archive, ArchiveParams, ArchivedRuns, GetStatus, NoParams, Rebuild, Status, StatusParams,
        Vacuum, VerifyStore, ViewFault, Whole,
    },
};

use crate::{
    args::{Db, Global},
    fault::{Fault, What},
    settings::{Need, Settings},
    terminal::Terminal,
};

/// What to do about a store that is damaged, where it is known what is.
const DAMAGED: &str = "hint: put the newest copy of the database in its place, and import from bundles what it lacks; \
    see the guide of the log\n";

/// What to do about a store that is damaged.
const BROKEN: &str = "`formwork db verify` tells what is damaged; put the newest copy of the database in its place, and \
    import from bundles what it lacks";

pub(super) fn db(global: &Global, terminal: &Terminal, args: Db) -> Result<OutcomeCode, Fault> {
    done(global, terminal, args).map_err(as_damage)
}

/// Ends as of a log that was changed, whoever finds it out.
pub(super) fn as_damage(fault: Fault) -> Fault {
    match is_damage(&fault) {
        true => Fault { code: OutcomeCode::Refused, ..fault }.hint(BROKEN),
        false => fault,
    }
}

fn done(global: &Global, terminal: &Terminal, args: Db) -> Result<OutcomeCode, Fault> {
    let settings = Settings::load(global, Vec::new(), Need::Look)?;
    let look = super::block_on(async { Ok(super::builder(&settings).look().await?) });
    match args {
        Db::Init => init(&settings, terminal, look?),
        Db::Migrate => migrate(&settings, terminal, look?),
        Db::Status { orphans } => {
            let look = look?;
            let found = exists(&look)?;
            if found < look.known {
                // Nothing is changed by looking.
                terminal.result(&looked(&look, "old"), || {
                    format!(
                        "{} has schema {found}, this program works with {}; `formwork db migrate` brings it there\n",
                        look.at, look.known
                    )
                })?;
                return Ok(OutcomeCode::Completed);
            }
            super::reading(global, Need::Look, async |formwork, caller, _| {
                let status = formwork.call::<GetStatus>(&caller, StatusParams { orphans }).await?;
                terminal.result(&status, || tell(&status))?;
                Ok(OutcomeCode::Completed)
            })
        }
        Db::Verify => {
            let done = look.and_then(|look| verify(global, terminal, &look));
            done.or_else(|fault| unopened(&settings, terminal, fault))
        }
        Db::Rebuild => {
            exists(&look?)?;
            super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
                let rebuilt = formwork.call::<Rebuild>(&caller, NoParams {}).await?;
                terminal.result(&rebuilt, || {
                    let mut text: String = rebuilt.mended.iter().map(differs).collect();
                    text.push_str(match rebuilt.mended.is_empty() {
                        true => "the views are made again, and are what they were\n",
                        false => "the views are made again\n",
                    });
                    text
                })?;
                Ok(OutcomeCode::Completed)
            })
        }
        Db::Vacuum => {
            exists(&look?)?;
            super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
                let done = formwork.call::<Vacuum>(&caller, NoParams {}).await?;
                terminal.result(&done, || {
                    format!("{} before, {} now\n", bytes(done.before), bytes(done.after))
                })?;
                Ok(OutcomeCode::Completed)
            })
        }
        Db::Archive { older_than, output } => {
            exists(&look?)?;
            // Where the program was started, and not where the workspace is.
            let folder = output.map(std::path::absolute).transpose()?;
            super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
                let params = ArchiveParams { older_than: older_than.0, folder };
                let left = formwork.call::<Archive>(&caller, params).await?;
                terminal.result(&left, || archived(&left))?;
                Ok(OutcomeCode::Completed)
            })
        }
    }
}

/// Returns the version of a store that has to be there.
fn exists(look: &Look) -> Result<i64, Fault> {
    look.found.ok_or_else(|| match instead(look) {
        Some(instead) => {
            let fault = Fault::failed(anyhow!(instead)).hint(BROKEN);
            Fault { code: OutcomeCode::Refused, ..fault }
        }
        None => Fault::setup(anyhow!("there is no store at {}", look.at))
            .hint("`formwork db init` makes one, and so does the first run"),
    })
}

/// Says what stands in the place of a store that is not there.
fn instead(look: &Look) -> Option<String> {
    let found = std::fs::metadata(&look.at).ok().filter(|_| look.found.is_none())?;
    Some(format!("{} has {} bytes, and no log in it", look.at, found.len()))
}

/// Checks the log, its views and the pages.
fn verify(global: &Global, terminal: &Terminal, look: &Look) -> Result<OutcomeCode, Fault> {
    if let Some(instead) = instead(look) {
        return damaged(terminal, &[], &[instead]);
    }
    exists(look)?;
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let whole = formwork.call::<VerifyStore>(&caller, NoParams {}).await?;
        terminal.result(&whole, || verified(&whole))?;
        Ok(if whole.sound { OutcomeCode::Completed } else { OutcomeCode::Refused })
    })
}

/// Tells what is damaged of a store that cannot be opened for it: which pages, where they can be asked for.
fn unopened(settings: &Settings, terminal: &Terminal, fault: Fault) -> Result<OutcomeCode, Fault> {
    let pages = super::block_on(async { Ok(super::builder(settings).pages().await?) });
    let pages = pages.unwrap_or_default();
    match pages.is_empty() && !is_damage(&fault) {
        true => Err(fault),
        false => damaged(terminal, &pages, &fault.messages()),
    }
}

/// Tells whether it is what stands in the place of the store that is wrong, and not the way there.
fn is_damage(fault: &Fault) -> bool {
    let What::Other(error) = &fault.what else { return false };
    match error.downcast_ref::<formwork_services::Error>() {
        Some(formwork_services::Error::Store(StoreError::Corrupt { .. })) => true,
        Some(formwork_services::Error::Store(StoreError::Open { at, .. })) => {
            std::fs::metadata(at).is_ok_and(|found| !found.is_file())
        }
        _ => false,
    }
}

/// Tells that a store is not whole, as of a log that was changed.
fn damaged(
    terminal: &Terminal,
    pages: &[String],
    unreadable: &[String],
) -> Result<OutcomeCode, Fault> {
    let document = serde_json::json!({
        "sound": false, "pages": pages, "unreadable": unreadable
    });
    terminal.result(&document, || lines(pages) + &lines(unreadable) + DAMAGED)?;
    Ok(OutcomeCode::Refused)
}

fn looked(look: &Look, state: &str) -> serde_json::Value {
    serde_json::json!({
        "at": look.at, "state": state, "schema": look.found, "known": look.known
    })
}

/// Makes what is not there, or brings it to the present version.
fn open(settings: &Settings) -> Result<(), Fault> {
    super::block_on(async {
        super::open(settings).await?.close().await;
        Ok(())
    })
}

fn init(settings: &Settings, terminal: &Terminal, look: Look) -> Result<OutcomeCode, Fault> {
    if let Some(found) = look.found {
        terminal.result(&looked(&look, "present"), || {
            format!("there is a store at {} already, with schema {found}\n", look.at)
        })?;
        return Ok(OutcomeCode::Completed);
    }
    open(settings)?;
    let made = Look { found: Some(look.known), ..look };
    terminal.result(&looked(&made, "made"), || {
        format!("made the store at {}, with schema {}\n", made.at, made.known)
    })?;
    Ok(OutcomeCode::Completed)
}

fn migrate(settings: &Settings, terminal: &Terminal, look: Look) -> Result<OutcomeCode, Fault> {
    let found = exists(&look)?;
    // A later version is refused by the opening.
    open(settings)?;
    let done = Look { found: Some(look.known), ..look };
    let state = if found < done.known { "migrated" } else { "present" };
    terminal.result(&looked(&done, state), || match found < done.known {
        true => format!("{} went from schema {found} to {}\n", done.at, done.known),
        false => format!("{} has schema {found}; there is nothing to do\n", done.at),
    })?;
    Ok(OutcomeCode::Completed)
}

fn tell(status: &Status) -> String {
    let mut runs: Vec<String> =
        status.runs.iter().map(|(state, count)| format!("{count} {state}")).collect();
    if status.waiting > 0 {
        runs.push(format!("{} of them wait to be resumed", status.waiting));
    }
    let total: u64 = status.runs.values().sum();
    let runs = match runs.is_empty() {
        true => "none".to_owned(),
        false => format!("{total}: {}", runs.join(", ")),
    };
    let orphans = match &status.orphans {
        None => "not counted; --orphans counts them".to_owned(),
        Some(orphans) => format!("{} with {}", orphans.blobs, bytes(orphans.bytes)),
    };
    let mut text = format!(
        "{}\n  engine       {} {}\n  schema       {}\n  runs         {runs}\n  events       {}, the last at position {}\n  blobs        {} with {}, {} when plain\n  orphans      {orphans}\n  archived     {}\n  checkpoints  {}\n  size         {}",
        status.at,
        status.engine,
        status.engine_version,
        status.schema,
        status.events,
        status.head,
        status.blobs,
        bytes(status.blob_bytes),
        bytes(status.plain_bytes),
        super::counted(status.archived, "run"),
        status.checkpoints,
        bytes(status.bytes),
    );
    if status.free > 0 {
        text.push_str(&format!(", {} of it free", bytes(status.free)));
    }
    text.push('\n');
    text
}

fn differs(fault: &ViewFault) -> String {
    format!(
        "✗ view {}: {} rows were missing or other, {} were too many or other\n",
        fault.view, fault.missing, fault.extra
    )
}

fn verified(whole: &Whole) -> String {
    let mut text = whole.log.as_ref().map(super::audit::told).unwrap_or_default();
    text.extend(whole.views.iter().map(differs));
    text.push_str(&lines(&whole.pages));
    text.push_str(&lines(&whole.unreadable));
    let is_whole = whole.pages.is_empty() && whole.unreadable.is_empty();
    text.push_str(match (whole.views.is_empty(), is_whole) {
        (true, true) => "the views are what the log says, and the pages are whole\n",
        (false, true) => "hint: `formwork db rebuild` makes the views again\n",
        (_, false) => DAMAGED,
    });
    text
}

/// Lists what is wrong.
fn lines(faults: &[String]) -> String {
    faults.iter().map(|fault| format!("✗ {fault}\n")).collect()
}

fn archived(left: &ArchivedRuns) -> String {
    let mut text = match &left.file {
        None => "no run that ended is that old; the one with the last event stays in any case\n"
            .to_owned(),
        Some(file) => format!(
            "{} with {} events went into {} ({})\n",
            super::counted(left.runs.len() as u64, "run"),
            left.events,
            file.display(),
            bytes(left.bytes)
        ),
    };
    for run in &left.stayed {
        text.push_str(&format!("run {run} stayed: it went on meanwhile\n"));
    }
    text.push_str(&match &left.pruned {
        Some(gone) if gone.blobs == 0 => String::new(),
        Some(gone) => format!("{} blobs with {} went too\n", gone.blobs, bytes(gone.bytes)),
        None => "blobs are removed when no run is worked on; ask again then\n".to_owned(),
    });
    text
}

/// Writes a number of bytes with a unit that a reader takes in.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1_000.0 && unit + 1 < UNITS.len() {
        amount /= 1_000.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).unwrap_or(&"");
    if bytes < 1_000 { format!("{bytes} {unit}") } else { format!("{amount:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_so_that_a_reader_takes_them_in() {
        let told = [0, 999, 1_000, 1_540_000, 2_000_000_000].map(bytes);

        assert_eq!(told, ["0 bytes", "999 bytes", "1.0 KB", "1.5 MB", "2.0 GB"]);
    }
}
