//! `formwork dispatch` and `formwork subscriptions`: what is done by events, and where that stands.

use std::sync::{Arc, Mutex, PoisonError};

use formwork_protocols::{Cancel, EventBody, OutcomeCode};
use formwork_services::{
    Lane, Told, Until,
    operations::subscriptions::{
        DeliveryRow, Detail, DispatchParams, Get, GetParams, List, ListParams, Listed, Retry,
        RetryParams, Summary, dispatch as follow,
    },
};
use serde_json::json;

use crate::{
    args::{Dispatch, Global, Subscriptions},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal},
    view::visible,
};

pub(super) fn dispatch(
    global: &Global,
    terminal: &Terminal,
    args: Dispatch,
) -> Result<OutcomeCode, Fault> {
    let flags = args.mode.map(super::mode_flag).into_iter().collect();
    super::with(global, flags, Need::Effect, async |formwork, caller, _| {
        let cancel = Cancel::new();
        let until = if args.once { Until::Idle } else { Until::Cancelled };
        let params = DispatchParams { names: args.names, until };
        let (format, broken) = (terminal.format, Arc::new(Mutex::new(None)));
        let (printing, stop) = (Arc::clone(&broken), cancel.clone());
        let told = move |told: Told<'_>| {
            if let Err(error) = print(format, told) {
                // Nobody reads any more, and so nobody wants more to be done.
                printing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                stop.cancel();
            }
        };
        let mut interrupts = super::run::Interrupts::listen()?;
        let following = follow(&formwork, &caller, params, &cancel, told);
        let mut following = Box::pin(following);
        let done = tokio::select! {
            done = &mut following => done,
            () = interrupts.next() => {
                cancel.cancel();
                following.await
            }
        };
        let lanes = done?;
        if let Some(error) = broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error.into());
        }
        let rows: Vec<_> = lanes.iter().map(row).collect();
        let document = json!({ "subscriptions": rows });
        match format {
            Format::Jsonl => crate::terminal::line(&document)?,
            _ => terminal.result(&document, || match lanes.is_empty() {
                true => "no subscriptions below .formwork/subscriptions\n".to_owned(),
                false => lanes.iter().map(line).collect(),
            })?,
        }
        let is_given_up = lanes.iter().any(|lane| lane.dead > 0);
        Ok(if is_given_up { OutcomeCode::Failed } else { OutcomeCode::Completed })
    })
}

fn row(lane: &Lane) -> serde_json::Value {
    json!({
        "name": lane.name,
        "held_by": lane.held_by,
        "delivered": lane.delivered,
        "failed": lane.failed,
        "dead": lane.dead,
        "waiting": lane.waiting,
        "gathered": lane.gathered,
        "cursor": lane.cursor,
    })
}

fn line(lane: &Lane) -> String {
    let name = &lane.name;
    if let Some(owner) = &lane.held_by {
        return format!("{name:<20} is dispatched by {}\n", visible(owner));
    }
    let mut parts = vec![format!("{} done", lane.delivered)];
    for (count, what) in [
        (lane.dead, "given up"),
        (lane.waiting as u64, "left for later"),
        (lane.gathered as u64, "gathered"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!("{name:<20} {}, up to @{}\n", parts.join(", "), lane.cursor)
}

/// Prints what was recorded, as it is.
fn print(format: Format, told: Told<'_>) -> std::io::Result<()> {
    let Told { subscription, body } = told;
    match format {
        Format::Jsonl => {
            let data = body.data().unwrap_or_default();
            let line = json!({ "subscription": subscription, "kind": body.kind(), "data": data });
            crate::terminal::line(&line)
        }
        Format::Json | Format::Quiet => Ok(()),
        Format::Text => {
            let said = match body {
                EventBody::DispatchDone(done) => {
                    let said = done.said.lines().last().unwrap_or_default();
                    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
                    format!("@{} action {} done{said}", done.delivery, done.action)
                }
                EventBody::DispatchFailed(failed) => {
                    let again =
                        failed.again_at.map_or(String::new(), |at| format!(", again at {at}"));
                    let (delivery, action) = (failed.delivery, failed.action);
                    format!(
                        "@{delivery} action {action} failed, attempt {}{again}: {}",
                        failed.attempt, failed.reason
                    )
                }
                EventBody::DispatchDead(dead) => {
                    format!("@{} given up at action {}", dead.delivery, dead.action)
                }
                _ => return Ok(()),
            };
            let line = format!("{subscription}: {}\n", visible(&said));
            crate::terminal::bytes(line.as_bytes())
        }
    }
}

pub(super) fn subscriptions(
    global: &Global,
    terminal: &Terminal,
    args: Subscriptions,
) -> Result<OutcomeCode, Fault> {
    let reads = !matches!(args, Subscriptions::Retry { .. });
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        match args {
            Subscriptions::List => {
                let listed = formwork.call::<List>(&caller, ListParams {}).await?;
                terminal.result(&listed, || table(&listed))?;
            }
            Subscriptions::Show { name } => {
                let found = formwork.call::<Get>(&caller, GetParams { name }).await?;
                terminal.result(&found, || shown(&found))?;
            }
            Subscriptions::Retry { name, delivery } => {
                let params = RetryParams { name: name.clone(), delivery };
                let retried = formwork.call::<Retry>(&caller, params).await?;
                terminal.result(&retried, || match retried.deliveries.as_slice() {
                    [] => format!("{name} has given up nothing\n"),
                    all => {
                        let named: Vec<String> = all.iter().map(|it| format!("@{it}")).collect();
                        let named = named.join(" ");
                        format!("{named} is taken up again by whoever dispatches {name} next\n")
                    }
                })?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

fn table(listed: &Listed) -> String {
    if listed.subscriptions.is_empty() {
        return "no subscriptions below .formwork/subscriptions\n".to_owned();
    }
    listed.subscriptions.iter().map(|it| stands(it) + "\n").collect()
}

/// Says in a line how a subscription stands.
fn stands(summary: &Summary) -> String {
    let mut parts = Vec::new();
    match summary.faults {
        0 if !summary.trusted => parts.push("not trusted".to_owned()),
        0 => {}
        count => parts.push(super::counted(count as u64, "fault")),
    }
    match summary.cursor.0 {
        0 => parts.push("nothing looked at yet".to_owned()),
        at => parts.push(format!("up to @{at}, {} done", summary.delivered)),
    }
    for (count, what) in [
        (summary.waiting, "to be done"),
        (summary.gathered, "gathered"),
        (summary.dead, "given up"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if let Some(owner) = &summary.held_by {
        parts.push(format!("dispatched by {owner}"));
    }
    let description = match summary.description.as_str() {
        "" => String::new(),
        text => format!("  {}", super::cell(text)),
    };
    let name = super::cell(&summary.name);
    format!("{name:<20} {}{description}", visible(&parts.join(", ")))
}

fn shown(found: &Detail) -> String {
    let mut text = format!("{}\n", stands(&found.summary));
    text.push_str(&format!("file  {}\nlog   {}\n", visible(&found.file), found.log));
    for (at, does) in found.actions.iter().enumerate() {
        text.push_str(&format!("action {at}: {}\n", visible(does)));
    }
    for error in &found.errors {
        text.push_str(&format!("fault: {}\n", visible(error)));
    }
    for row in &found.queue {
        text.push_str(&format!("to be done: {}\n", about(row)));
    }
    for row in &found.letters {
        text.push_str(&format!("given up: {}\n", about(row)));
    }
    text
}

fn about(row: &DeliveryRow) -> String {
    let events = match row.events.len() {
        1 => String::new(),
        count => format!(" with {count} events"),
    };
    let key = if row.key.is_empty() { String::new() } else { format!(" of {}", row.key) };
    let again = row.again_at.map_or(String::new(), |at| format!(", again at {at}"));
    let begun = if row.under_way { ", begun" } else { "" };
    let reason = row.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    let failed = match row.failed {
        0 => String::new(),
        times => format!(", failed {}", super::counted(u64::from(times), "time")),
    };
    let DeliveryRow { delivery, action, does, .. } = row;
    visible(&format!(
        "@{delivery}{events}{key} at action {action} ({does}){failed}{begun}{again}{reason}"
    ))
}
