//! `formwork agents` and `tools`: what there is.

use formwork_protocols::{OutcomeCode, text};
use formwork_services::operations::{agents, tools};

use crate::{args::Global, fault::Fault, settings::Need, terminal::Terminal, view::visible};

pub(super) fn agents(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<agents::List>(&caller, agents::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for agent in &found.agents {
                out.push_str(&format!(
                    "{:<16} {:<12} {}\n{:<16} {}\n",
                    agent.name,
                    agent.source,
                    agent.asks_for,
                    "",
                    visible(&agent.description)
                ));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}

pub(super) fn tools(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<tools::List>(&caller, tools::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for tool in &found.tools {
                let first = tool.definition.description.lines().next().unwrap_or_default();
                out.push_str(&format!(
                    "{:<14} {:<10} {}\n",
                    tool.definition.name,
                    tool.class.as_str(),
                    text::head(first, 90)
                ));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}
