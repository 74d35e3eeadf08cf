//! `formwork audit`: whether the log is what was written.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use formwork_protocols::{OutcomeCode, store::AuditFault};
use formwork_services::{
    Checkpoint,
    operations::audit::{Seal, SealParams, Verified, Verify, VerifyParams},
};
use serde::Deserialize;

use crate::{
    args::{Audit, Global},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
};

pub(super) fn audit(
    global: &Global,
    terminal: &Terminal,
    args: Audit,
) -> Result<OutcomeCode, Fault> {
    match args {
        Audit::Verify { run, checkpoints, keys, archives } => {
            let mut kept = Vec::new();
            for file in &checkpoints {
                kept.extend(read(file)?);
            }
            let params = VerifyParams { run, kept, keys, archives };
            verify(global, terminal, params).map_err(super::db::as_damage)
        }
        Audit::Checkpoint => checkpoint(global, terminal),
    }
}

fn verify(
    global: &Global,
    terminal: &Terminal,
    params: VerifyParams,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<Verify>(&caller, params).await?;
        terminal.result(&found, || told(&found))?;
        Ok(if found.sound { OutcomeCode::Completed } else { OutcomeCode::Refused })
    })
}

fn checkpoint(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let done = formwork.call::<Seal>(&caller, SealParams {}).await?;
        let made = &done.checkpoint;
        terminal.result(&done, || {
            let mut text = String::new();
            if done.key_made {
                text.push_str(&format!("made the key {}\n", done.key_file));
            }
            text.push_str(&format!(
                "signed {} up to position {}: {}\n  key   {}\n  kept  in the log and in {}; keep a copy where who can write the log cannot\n",
                super::counted(made.runs, "run"), made.position, made.root, made.signer, done.file
            ));
            text
        })?;
        Ok(OutcomeCode::Completed)
    })
}

/// A checkpoint by itself, in a line of the file of state, or in what `audit checkpoint --json` prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Within { checkpoint: Checkpoint },
    Itself(Checkpoint),
}

/// Reads checkpoints that were kept elsewhere.
fn read(file: &Path) -> Result<Vec<Checkpoint>, Fault> {
    let text = formwork_services::reading::document(file)
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(Fault::setup)?;
    let kept: Vec<Checkpoint> = serde_json::Deserializer::from_str(&text)
        .into_iter::<Kept>()
        .map(|kept| {
            let kept = kept
                .with_context(|| {
                    format!("{} holds something else than checkpoints", file.display())
                })
                .map_err(Fault::setup)?;
            Ok(match kept {
                Kept::Within { checkpoint } | Kept::Itself(checkpoint) => checkpoint,
            })
        })
        .collect::<Result<_, Fault>>()?;
    match kept.is_empty() {
        true => Err(Fault::setup(anyhow!("{} holds no checkpoint", file.display()))),
        false => Ok(kept),
    }
}

/// Tells what was found: every fault a line, then the sum.
pub(super) fn told(found: &Verified) -> String {
    let mut text = String::new();
    let (mut events, mut faults) = (0, 0);
    for audit in &found.audits {
        events += audit.events;
        for fault in &audit.faults {
            faults += 1;
            text.push_str(&format!("✗ run {}: {}\n", audit.run, tell(fault)));
        }
    }
    if found.missing > 0 {
        faults += 1;
        text.push_str(&format!(
            "✗ {} events are gone with all that remembered them: a whole run was removed\n",
            found.missing
        ));
    } else if found.missing < 0 {
        faults += 1;
        text.push_str(&format!(
            "✗ there are {} events more than positions were given out\n",
            found.missing.unsigned_abs()
        ));
    }
    let (mut holding, mut strange) = (0, 0);
    for checked in &found.checkpoints {
        let made = &checked.checkpoint;
        strange += u64::from(!checked.known);
        match &checked.fault {
            Some(fault) => {
                faults += 1;
                text.push_str(&format!(
                    "✗ checkpoint of {} at position {}: {fault}\n",
                    made.at, made.position
                ));
            }
            None => holding += 1,
        }
    }
    for gone in &found.archived {
        if let Some(fault) = &gone.fault {
            faults += 1;
            text.push_str(&format!(
                "✗ run {} is said to be in the archive {}: {fault}; --archives names the folder where it is\n",
                gone.run, gone.file
            ));
        }
    }
    if !found.unguarded.is_empty() {
        faults += 1;
        text.push_str(&format!(
            "✗ what keeps the log from being changed is gone: {}\n",
            found.unguarded.join(", ")
        ));
    }
    if !found.archived.is_empty() {
        let runs = super::counted(found.archived.len() as u64, "run");
        text.push_str(&format!("in archives: {runs}\n"));
    }
    if !found.checkpoints.is_empty() {
        text.push_str(&format!("{holding} of {} checkpoints hold\n", found.checkpoints.len()));
    }
    if found.elsewhere > 0 {
        let many = super::counted(found.elsewhere as u64, "remembered checkpoint");
        text.push_str(&format!("{many} of other logs: not compared\n"));
    }
    if strange > 0 {
        text.push_str(&format!(
            "{strange} of them are by keys that are not this machine's; --key names those you know\n"
        ));
    }
    let verdict = match faults {
        0 => "sound".to_owned(),
        1 => "1 fault".to_owned(),
        more => format!("{more} faults"),
    };
    let runs = super::counted(found.audits.len() as u64, "run");
    text.push_str(&format!("{verdict}: {runs}, {events} events checked\n"));
    text
}

fn tell(fault: &AuditFault) -> String {
    match fault {
        AuditFault::HashMismatch { seq, position } => {
            format!("event {seq} at position {position} is not what was written there")
        }
        AuditFault::Gap { after, found } => {
            format!("events are missing between {after} and {found}")
        }
        AuditFault::Truncated { expected, found } => {
            format!("events are missing at the end: there were {expected}, there are {found}")
        }
        AuditFault::HeadMismatch { expected, found } => {
            format!("its end was written anew: it ended with {expected}, it ends with {found}")
        }
        AuditFault::Reordered { seq, position } => {
            format!("event {seq} at position {position} is out of order")
        }
        AuditFault::MissingBlob { seq, hash } => {
            format!("event {seq} refers to {hash}, which is gone")
        }
        AuditFault::BlobMismatch { hash } => {
            format!("the bytes of {hash} are not those of its hash")
        }
        AuditFault::Unreadable { seq, reason } => format!("event {seq} cannot be read: {reason}"),
        _ => "the log is not sound".to_owned(),
    }
}
