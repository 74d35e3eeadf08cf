//! `formwork inbox`: what runs ask, and the answers.

use formwork_protocols::{InboxState, ItemId, OutcomeCode, RunState};
use formwork_services::{
    Error,
    operations::inbox::{
        Get, GetParams, Item, List, ListParams, Resolution, Resolve, ResolveParams, Resolved,
    },
};
use serde_json::json;

use crate::{
    args::{Global, Inbox},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal, complain},
    view::visible,
};

pub(super) fn inbox(
    global: &Global,
    terminal: &Terminal,
    args: Inbox,
) -> Result<OutcomeCode, Fault> {
    let reads = matches!(args, Inbox::List { .. } | Inbox::Get { .. });
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        let resolve = async |item: ItemId, resolution: Resolution| {
            formwork.call::<Resolve>(&caller, ResolveParams { item, resolution }).await
        };
        let resolved = match args {
            Inbox::List { run, all } => {
                let found = formwork.call::<List>(&caller, ListParams { run, all }).await?;
                terminal.result(&found, || match found.items.is_empty() {
                    true => "nothing waits for an answer\n".to_owned(),
                    false => found.items.iter().map(shown).collect::<Vec<_>>().join("\n"),
                })?;
                if found.left_out > 0 && terminal.format == Format::Text {
                    complain(&format!(
                        "{} about tasks that were given up, which no run waits for: --all lists them, `formwork inbox skip \
                         --given-up` closes them\n",
                        super::counted(found.left_out, "older item"),
                    ));
                }
                return Ok(OutcomeCode::Completed);
            }
            Inbox::Get { item } => {
                let found = formwork.call::<Get>(&caller, GetParams { item }).await?;
                terminal.result(&found, || shown(&found))?;
                return Ok(OutcomeCode::Completed);
            }
            Inbox::Answer { item, answer } => {
                let found = formwork.call::<Get>(&caller, GetParams { item }).await?;
                let answer = option(&found, answer);
                resolve(item, Resolution::Answer { answer }).await?
            }
            Inbox::Skip { item: Some(item), reason, .. } => {
                resolve(item, Resolution::Skip { reason }).await?
            }
            Inbox::Skip { item: None, reason, .. } => {
                let params = ListParams { run: None, all: true };
                let found = formwork.call::<List>(&caller, params).await?;
                let mut skipped = Vec::new();
                for item in found.items.iter().filter(|item| item.escalation) {
                    let resolution = Resolution::Skip { reason: reason.clone() };
                    match resolve(item.item, resolution).await {
                        Ok(_) => skipped.push(item.item),
                        // Somebody was faster, or it came with a run from elsewhere.
                        Err(
                            Error::Inbox { .. } | Error::Settled { .. } | Error::Imported { .. },
                        ) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                terminal.result(&json!({ "skipped": skipped }), || {
                    format!("skipped {}\n", super::counted(skipped.len() as u64, "item"))
                })?;
                return Ok(OutcomeCode::Completed);
            }
            Inbox::Reject { item, reason } => resolve(item, Resolution::Reject { reason }).await?,
        };
        terminal.result(&resolved, || told(&resolved))?;
        Ok(OutcomeCode::Completed)
    })
}

/// Returns the option that is meant: by its words, else by its number.
fn option(item: &Item, answer: String) -> String {
    if item.options.contains(&answer) {
        return answer;
    }
    let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    number.and_then(|at| item.options.get(at)).cloned().unwrap_or(answer)
}

fn told(resolved: &Resolved) -> String {
    let item = &resolved.item;
    if let (Some(said), Some(assumed)) =
        (&item.contradiction, item.answer.as_ref().or(item.assume.as_ref()))
    {
        let then = match resolved.run_state.is_terminal() {
            true => "its run has ended".to_owned(),
            false => "the conversations of its run that still go on are told".to_owned(),
        };
        return format!(
            "contradicted: {}, and {} was assumed; {then}\n",
            visible(&said.answer),
            visible(assumed)
        );
    }
    let answer =
        item.answer.as_ref().map_or(String::new(), |answer| format!(": {}", visible(answer)));
    let next = match resolved.run_state {
        RunState::Paused => format!("; `formwork runs resume {}` goes on with it", item.run),
        _ => String::new(),
    };
    format!("{}{answer}{next}\n", item.state)
}

fn shown(item: &Item) -> String {
    let mut text = format!(
        "{}\n  asks     {}\n  run      {} ({}), since {}\n",
        item.item,
        visible(&item.question),
        item.run,
        item.workflow,
        item.asked,
    );
    for (at, option) in item.options.iter().enumerate() {
        text.push_str(&format!("  {:<8} {}\n", at + 1, visible(option)));
    }
    if let (InboxState::Pending, Some(deadline)) = (item.state, item.deadline) {
        let then = item.assume.as_ref().map_or_else(
            || "then the task fails".to_owned(),
            |assume| format!("then {} is assumed", visible(assume)),
        );
        text.push_str(&format!("  until    {deadline}; {then}\n"));
    }
    if let (InboxState::Pending, true, Some(assume)) = (item.state, item.escalation, &item.assume) {
        text.push_str(&format!("  assumed  {}; the run has gone on\n", visible(assume)));
    }
    let by = item.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
    let answer =
        item.answer.as_ref().map_or(String::new(), |answer| format!(": {}", visible(answer)));
    let reason =
        if item.reason.is_empty() { String::new() } else { format!(", {}", visible(&item.reason)) };
    text.push_str(&format!("  state    {}{by}{answer}{reason}\n", item.state));
    if let Some(said) = &item.contradiction {
        text.push_str(&format!(
            "  later    contradicted by {}: {}\n",
            said.by,
            visible(&said.answer)
        ));
    }
    text
}
