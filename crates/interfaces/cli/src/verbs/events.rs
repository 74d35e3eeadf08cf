//! `formwork events` and `formwork blob`: the log, and what it refers to.

use formwork_protocols::{Event, EventName, OutcomeCode, RunId};
use formwork_services::operations::events::{Fire, FireParams, List, ListParams, Page};

use crate::{
    args::{Blob, Events, EventsVerb, Global},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal, complain, harmless},
    view::visible,
};

pub(super) fn events(
    global: &Global,
    terminal: &Terminal,
    args: Events,
) -> Result<OutcomeCode, Fault> {
    if let Some(EventsVerb::Fire { name, data, run }) = args.verb {
        return fire(global, terminal, (name, data, run));
    }
    if args.follow && terminal.format == Format::Json {
        let told = "--json prints one document, and --follow never comes to its end";
        return Err(Fault::usage(told).hint("--jsonl prints each event as it comes"));
    }
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let mut params = ListParams {
            run: args.run,
            task: None,
            kinds: args.kind.clone(),
            after: args.after,
            limit: Some(args.limit.unwrap_or(PAGE)),
        };
        let of_run = args.run.is_some();
        let mut left = args.limit;
        // There can be only one document, which all pages are put into.
        let mut whole = (terminal.format == Format::Json).then(Vec::new);
        let mut interrupts = args.follow.then(super::run::Interrupts::listen).transpose()?;
        // Watches before it reads, so that nothing is missed between the two.
        let mut woken = args.follow.then(|| formwork.store().watch());
        loop {
            let mut page = formwork.call::<List>(&caller, params.clone()).await?;
            params.after = page.next;
            let read = page.events.len();
            match &mut whole {
                Some(whole) => whole.append(&mut page.events),
                None => print(terminal, &page, of_run)?,
            }
            let (Some(watch), Some(interrupts)) = (&mut woken, &mut interrupts) else {
                left = left.map(|left| left.saturating_sub(read));
                // So many as were asked for, however many a page has, and a run to its end.
                let goes_on = left.map_or(args.run.is_some(), |left| left > 0);
                if page.more && goes_on {
                    params.limit = Some(left.unwrap_or(PAGE));
                    continue;
                }
                if let Some(events) = whole.take() {
                    print(terminal, &Page { events, ..page }, of_run)?;
                    return Ok(OutcomeCode::Completed);
                }
                if page.more && terminal.format == Format::Text {
                    let next = page.next;
                    complain(&format!("there are more: --after {next} goes on\n"));
                }
                return Ok(OutcomeCode::Completed);
            };
            if page.more {
                continue;
            }
            tokio::select! {
                next = futures::StreamExt::next(watch) => if next.is_none() {
                    return Ok(OutcomeCode::Completed);
                },
                () = interrupts.next() => return Ok(OutcomeCode::Completed),
            }
        }
    })
}

/// Tells runs that something has happened.
fn fire(
    global: &Global,
    terminal: &Terminal,
    (name, data, run): (EventName, Option<String>, Option<RunId>),
) -> Result<OutcomeCode, Fault> {
    let data = match data {
        None => serde_json::Value::Null,
        Some(text) => serde_json::from_str(&text).map_err(|error| {
            Fault::usage(format!("--data is no JSON: {error}"))
                .hint("a text stands in quotes of its own, as in --data '\"merged\"'")
        })?,
    };
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let params = FireParams { name: name.clone(), data, run };
        let told = formwork.call::<Fire>(&caller, params).await?;
        terminal.result(&told, || match told.runs.as_slice() {
            [] => format!("no run waits for {name}; nothing was recorded\n"),
            runs => runs.iter().map(|run| format!("told run {run}\n")).collect(),
        })?;
        Ok(if told.runs.is_empty() { OutcomeCode::Failed } else { OutcomeCode::Completed })
    })
}

/// How many events are read at once.
const PAGE: usize = 1_000;

fn print(terminal: &Terminal, page: &Page, of_run: bool) -> Result<(), Fault> {
    match terminal.format {
        Format::Json => crate::terminal::document(page)?,
        Format::Jsonl => {
            for event in &page.events {
                crate::terminal::line(event)?;
            }
        }
        Format::Text | Format::Quiet => {
            let lines: String = page.events.iter().map(|event| line(event, of_run)).collect();
            crate::terminal::bytes(lines.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes an event as a line that fits a wide terminal. Of one run it begins with the place in the run; the place in the log
/// is marked by an `@`, as `runs fork --at` and `runs rewind --to` take either.
fn line(event: &Event, of_run: bool) -> String {
    let seq = if of_run { format!("{:>6}  ", event.seq) } else { String::new() };
    let place = format!("@{}", event.position);
    let data = event.body.data_text().unwrap_or_default();
    let short = formwork_protocols::text::head(&data, 160);
    let cut = if short.len() < data.len() { "…" } else { "" };
    format!(
        "{seq}{place:>8}  {}  {:<22} {:<18} {}{cut}\n",
        event.at,
        event.body.kind(),
        event.principal.as_str(),
        visible(short)
    )
}

pub(super) fn blob(global: &Global, terminal: &Terminal, args: Blob) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, _, _| {
        let found = formwork.store().blob(&args.hash).await;
        match found.map_err(formwork_services::Error::from)? {
            Some(bytes) => {
                // The bytes as they are, but where they could redraw the screen.
                if terminal.stdout {
                    let text = String::from_utf8_lossy(&bytes);
                    crate::terminal::bytes(harmless(&text).as_bytes())?;
                } else {
                    crate::terminal::bytes(&bytes)?;
                }
                Ok(OutcomeCode::Completed)
            }
            None => Err(Fault::failed(anyhow::anyhow!("there is nothing with hash {}", args.hash))
                .hint("hashes stand whole in the events of the run that has them: formwork events --jsonl")),
        }
    })
}
