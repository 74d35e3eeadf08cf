//! `formwork audit`: whether the log is what was written.

use formwork_protocols::{OutcomeCode, store::AuditFault};
use formwork_services::operations::audit::{Verify, VerifyParams};

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
    let Audit::Verify { run } = args;
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<Verify>(&caller, VerifyParams { run }).await?;
        terminal.result(&found, || {
            let mut text = String::new();
            let mut events = 0;
            for audit in &found.audits {
                events += audit.events;
                for fault in &audit.faults {
                    text.push_str(&format!("✗ run {}: {}\n", audit.run, tell(fault)));
                }
            }
            let runs = found.audits.len();
            let faults: usize = found.audits.iter().map(|audit| audit.faults.len()).sum();
            let verdict = if found.sound { "sound".to_owned() } else { format!("{faults} faults") };
            text.push_str(&format!("{verdict}: {runs} runs, {events} events checked\n"));
            text
        })?;
        Ok(if found.sound { OutcomeCode::Completed } else { OutcomeCode::Refused })
    })
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
