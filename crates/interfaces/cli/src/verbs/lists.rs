//! `formwork agents`, `tools` and `notepad`: what there is.

use formwork_protocols::{OutcomeCode, RunId, text};
use formwork_services::operations::{agents, notepad, tools};

use crate::{
    args::{Global, Tools, ToolsVerb},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
    view::visible,
};

pub(super) fn agents(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
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
            for agent in &found.untrusted {
                let file = visible(&agent.source);
                out.push_str(&format!(
                    "{:<16} {file} is not trusted: see `formwork trust`\n",
                    agent.name
                ));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}

pub(super) fn tools(
    global: &Global,
    terminal: &Terminal,
    args: Tools,
) -> Result<OutcomeCode, Fault> {
    let args = match args.verb {
        Some(ToolsVerb::Call(call)) => return super::tool_call::call(global, terminal, call),
        other => Tools { verb: other },
    };
    super::reading(global, Need::Look, async |formwork, caller, _| {
        if let Some(ToolsVerb::Show { name }) = args.verb {
            let found = formwork.call::<tools::Get>(&caller, tools::GetParams { name }).await?;
            terminal.result(&found, || shown(&found))?;
            return Ok(OutcomeCode::Completed);
        }
        let found = formwork.call::<tools::List>(&caller, tools::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for tool in &found.tools {
                let first = tool.definition.description.lines().next().unwrap_or_default();
                out.push_str(&format!(
                    "{:<14} {:<10} {}\n",
                    tool.definition.name,
                    tool.class.as_str(),
                    visible(text::head(first, 90))
                ));
            }
            for name in &found.untrusted {
                out.push_str(&format!("{name:<14} not trusted: see `formwork trust`\n"));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}

pub(super) fn notepad(
    global: &Global,
    terminal: &Terminal,
    run: RunId,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<notepad::List>(&caller, notepad::ListParams { run }).await?;
        terminal.result(&found, || match found.notes.is_empty() {
            true => "the run has no notes\n".to_owned(),
            false => found.notes.iter().map(note).collect(),
        })?;
        Ok(OutcomeCode::Completed)
    })
}

/// Shows a note: who wrote it and when, and its lines below.
fn note(note: &notepad::Note) -> String {
    let lines = note.text.lines().map(|line| format!("  {}\n", visible(line)));
    format!("{}  {}\n{}", note.at, note.by, lines.collect::<String>())
}

/// Shows a tool whole.
fn shown(tool: &tools::Got) -> String {
    let spec = &tool.tool;
    let parameters = serde_json::to_string_pretty(&spec.definition.parameters).unwrap_or_default();
    let mut out = format!("{}  {}\n", spec.definition.name, spec.class.as_str());
    for line in spec.definition.description.lines() {
        out.push_str(&format!("  {}\n", visible(line)));
    }
    if !spec.tags.is_empty() {
        out.push_str(&format!("  tags      #{}\n", spec.tags.join(" #")));
    }
    if let Some(file) = &tool.file {
        let trust = if tool.trusted { "trusted" } else { "not trusted, and so without effect" };
        out.push_str(&format!("  file      {} ({trust})\n", visible(file)));
    }
    if let Some(does) = &tool.does {
        out.push_str(&format!("  does      {}\n", visible(does)));
    }
    out.push_str(&format!("{parameters}\n"));
    out
}
