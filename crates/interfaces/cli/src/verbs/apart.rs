//! `formwork apart`: what tasks did in workspaces of their own and that is not merged.

use std::io::{self, BufRead as _, IsTerminal as _};

use formwork_protocols::OutcomeCode;
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::apart::{
        Discard, DiscardParams, Discarded, List, ListParams, Merge, MergeParams, Own,
    },
};

use crate::{
    args::{Apart, Global},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal, complain},
    view::visible,
};

/// How many paths of one are listed.
const SHOWN: usize = 20;

pub(super) fn apart(
    global: &Global,
    terminal: &Terminal,
    args: Apart,
) -> Result<OutcomeCode, Fault> {
    let reads = matches!(args, Apart::List);
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        match args {
            Apart::List => {
                let found = formwork.call::<List>(&caller, ListParams {}).await?;
                terminal.result(&found, || match found.apart.is_empty() {
                    true => "no task has a workspace of its own\n".to_owned(),
                    false => found.apart.iter().map(told).collect(),
                })?;
            }
            Apart::Merge { name } => {
                let brought = formwork.call::<Merge>(&caller, MergeParams { name }).await?;
                terminal.result(&brought, || {
                    let paths = brought.paths.iter();
                    let mut text: String =
                        paths.map(|path| format!("merged {}\n", visible(path))).collect();
                    if text.is_empty() {
                        text = "there was nothing to merge\n".to_owned();
                    }
                    text
                })?;
            }
            Apart::Discard { name, discard } => {
                let asks = !discard && !global.no_input && terminal.format == Format::Text;
                let discard =
                    discard || (asks && agrees(&formwork, &caller, &name, terminal).await?);
                let params = DiscardParams { name, discard };
                let gone = formwork.call::<Discard>(&caller, params).await?;
                terminal.result(&gone, || given_up(&gone))?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

fn told(own: &Own) -> String {
    let task = own.task.as_deref().unwrap_or(&own.name);
    let run = match (own.run, own.state) {
        (Some(run), Some(state)) => format!("of run {run}, {state}"),
        _ => "of a run that this log does not know".to_owned(),
    };
    let mut text = format!("{}\n  task {task} {run}\n  in {}\n", own.name, visible(&own.folder));
    for path in own.paths.iter().take(SHOWN) {
        text.push_str(&format!("  not merged: {}\n", visible(path)));
    }
    match own.paths.len() {
        0 => text.push_str("  all of it is merged\n"),
        all if all > SHOWN => text.push_str(&format!("  … and {} more\n", all - SHOWN)),
        _ => {}
    }
    text
}

fn given_up(gone: &Discarded) -> String {
    let mut text = format!("removed {}\n", gone.name);
    if !gone.paths.is_empty() {
        let paths: Vec<String> = gone.paths.iter().map(|path| visible(path)).collect();
        text.push_str(&format!("given up: {}\n", paths.join(", ")));
        text.push_str(&format!("kept as snapshot {}\n", gone.snapshot));
    }
    if let Some(reference) = &gone.reference {
        text.push_str(&format!("its commits are kept as {reference}\n"));
    }
    text
}

/// Asks whether what is not merged may go. Where nobody sits at a terminal nobody agrees.
async fn agrees(
    formwork: &Formwork,
    caller: &Caller,
    name: &str,
    terminal: &Terminal,
) -> Result<bool, Fault> {
    if !io::stdin().is_terminal() || !terminal.stdout {
        return Ok(false);
    }
    let found = formwork.call::<List>(caller, ListParams {}).await?;
    let is_meant = |own: &&Own| {
        let task = own.task.as_deref().unwrap_or_default();
        own.name == name || task == name || task.rsplit('/').next() == Some(name)
    };
    let Some(own) = found.apart.iter().find(is_meant).filter(|own| !own.paths.is_empty()) else {
        return Ok(false);
    };
    complain(&format!("{}give it up? A snapshot of it is kept [y/N] ", told(own)));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "yes"))
}
