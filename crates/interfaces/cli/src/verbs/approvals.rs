//! `formwork approvals`: what is not asked about any more.

use formwork_protocols::OutcomeCode;
use formwork_services::operations::approvals::{List, ListParams, Revoke, RevokeParams};

use crate::{
    args::{Approvals, Global},
    asking::listed,
    fault::Fault,
    settings::Need,
    terminal::Terminal,
};

pub(super) fn approvals(
    global: &Global,
    terminal: &Terminal,
    args: Approvals,
) -> Result<OutcomeCode, Fault> {
    let reads = matches!(args, Approvals::List);
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<List>(&caller, ListParams {}).await?;
        let Approvals::Revoke { number, all: _ } = args else {
            terminal.result(&found, || match found.approvals.is_empty() {
                true => "nothing is approved for good in this workspace\n".to_owned(),
                false => {
                    let lines = found.approvals.iter().enumerate();
                    lines.map(|(at, cover)| format!("{:>3}  {}\n", at + 1, listed(cover))).collect()
                }
            })?;
            return Ok(OutcomeCode::Completed);
        };
        let approval = match number {
            None => None,
            Some(number) => {
                let at = number.checked_sub(1).and_then(|at| found.approvals.get(at));
                let unknown = || {
                    Fault::usage(format!("there is no approval {number}"))
                        .hint("`formwork approvals list` numbers them")
                };
                Some(at.ok_or_else(unknown)?.clone())
            }
        };
        let revoked = formwork.call::<Revoke>(&caller, RevokeParams { approval }).await?;
        terminal.result(&revoked, || {
            format!("took back {}\n", super::counted(revoked.revoked as u64, "approval"))
        })?;
        Ok(OutcomeCode::Completed)
    })
}
