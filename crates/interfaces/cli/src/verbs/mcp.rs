//! `formwork mcp`: a client of MCP, served over standard input and output.

use formwork_protocols::OutcomeCode;
use formwork_services::capability::{Caller, Scope};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Global, Mcp},
    fault::Fault,
    settings::Need,
};

pub(super) fn mcp(global: &Global, args: Mcp) -> Result<OutcomeCode, Fault> {
    let flags = args.mode.map(super::mode_flag).into_iter().collect();
    super::with(global, flags, Need::Effect, async |formwork, owner, _| {
        // Whoever may do more may do what needs less.
        let scopes = Scope::ALL.into_iter().filter(|scope| *scope <= args.scope);
        let caller = Caller::new(owner.principal().clone(), scopes);
        let cancel = CancellationToken::new();
        let mut interrupts = super::run::Interrupts::listen()?;
        // Standard output is the protocol's alone: nothing else here prints to it.
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        let mut serving = Box::pin(formwork_mcp::serve(&formwork, caller, streams, cancel.clone()));
        let served = tokio::select! {
            served = &mut serving => served,
            () = interrupts.next() => {
                cancel.cancel();
                serving.await
            }
        };
        served.map_err(Fault::failed)?;
        Ok(OutcomeCode::Completed)
    })
}
