//! `formwork runs`: what was run, and how to go on with it.

use std::path::Path;

use anyhow::anyhow;
use formwork_protocols::{
    BlobHash, Ending, OutcomeCode, RunId, Span, TaskId, TaskState, Usd,
    event::GateAnswer,
    store::{RunRow, TaskRow},
};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::runs::{
        Abort, Compared, ContradictionRow, Diff, DiffParams, Fork, ForkParams, Forked, GateRow,
        Get, GetParams, List, ListParams, Listed, Pause, Replay, ReplayParams, Rewind,
        RewindParams, RunDetail, Stands, Steer, SteerParams, StopParams, Stopped,
    },
};

use crate::{
    args::{Global, Runs, Stop},
    asking,
    fault::Fault,
    settings::{Need, Settings},
    terminal::{Format, Terminal, complain},
    view::visible,
};

/// How long a stop is waited for: as long as the lease of an owner lasts that died without a word, and a
/// bit more.
const STOP_WAIT: Span = Span::from_secs(40);

pub(super) fn runs(global: &Global, terminal: &Terminal, args: Runs) -> Result<OutcomeCode, Fault> {
    let record = match &args {
        Runs::Resume { record, .. } => record.clone(),
        _ => None,
    };
    // What is taken up works, as what is begun does.
    let need = match &args {
        Runs::Resume { .. } => Need::Effect,
        _ => Need::Look,
    };
    let settings = Settings::load(global, Vec::new(), need)?;
    let (asker, desk) = asking::open(global, terminal, &settings.principal).unzip();
    let reads = matches!(
        args,
        Runs::List { .. }
            | Runs::Show { .. }
            | Runs::Transcript { .. }
            | Runs::Search { .. }
            | Runs::Export { .. }
            | Runs::Diff { .. }
    );
    let more = |builder, _: &Settings| {
        let equipped = super::run::equipped(builder, record.as_deref(), asker);
        if reads { equipped.reading() } else { equipped }
    };
    super::with_settings(settings, more, async |formwork, caller, _| match args {
        Runs::List { limit, before } => {
            list(&formwork, &caller, terminal, limit, before).await?;
            Ok(OutcomeCode::Completed)
        }
        Runs::Show { run } => {
            let run = named_or_last(&formwork, &caller, run).await?;
            let detail = formwork.call::<Get>(&caller, GetParams { run }).await?;
            terminal.result(&detail, || show(&detail))?;
            Ok(OutcomeCode::Completed)
        }
        Runs::Resume { run, .. } => {
            let run = match run {
                Some(run) => run,
                None => resumable(&formwork, &caller).await?,
            };
            super::run::resume(&formwork, &caller, terminal, run, desk).await
        }
        Runs::Transcript { run } => {
            let run = named_or_last(&formwork, &caller, run).await?;
            super::transcripts::show(&formwork, &caller, terminal, run).await
        }
        Runs::Search { text, limit } => {
            super::transcripts::search(&formwork, &caller, terminal, text, limit).await
        }
        Runs::Export { run, output, force } => {
            super::bundles::export(&formwork, &caller, terminal, run, output, force).await
        }
        Runs::Import { file } => super::bundles::import(&formwork, &caller, terminal, file).await,
        Runs::Steer { run, text } => {
            let text = if text == "-" { super::run::standard_input()? } else { text };
            let steered = formwork.call::<Steer>(&caller, SteerParams { run, text }).await?;
            terminal
                .result(&steered, || format!("told run {run}, which is {}\n", steered.state))?;
            Ok(OutcomeCode::Completed)
        }
        Runs::Pause(args) => {
            let stopped = formwork.call::<Pause>(&caller, stop(&args)).await?;
            came_about(terminal, &args, &stopped)
        }
        Runs::Abort(args) => {
            let stopped = formwork.call::<Abort>(&caller, stop(&args)).await?;
            came_about(terminal, &args, &stopped)
        }
        Runs::Fork { run, at } => {
            let forked = formwork.call::<Fork>(&caller, ForkParams { run, at }).await?;
            terminal.result(&forked, || begun(&forked))?;
            Ok(OutcomeCode::Completed)
        }
        Runs::Diff { first, second } => {
            let compared = formwork.call::<Diff>(&caller, DiffParams { first, second }).await?;
            terminal.result(&compared, || compared_text(&compared))?;
            Ok(OutcomeCode::Completed)
        }
        Runs::Rewind { run, to, force } => {
            let params = RewindParams { run, to, force };
            let forked = formwork.call::<Rewind>(&caller, params).await?;
            terminal.result(&forked, || begun(&forked))?;
            Ok(OutcomeCode::Completed)
        }
    })
}

/// Carries a run out again and says whether it went as it did.
pub(super) fn replay(
    global: &Global,
    terminal: &Terminal,
    run: Option<RunId>,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let run = named_or_last(&formwork, &caller, run).await?;
        let replayed = formwork.call::<Replay>(&caller, ReplayParams { run }).await?;
        terminal.result(&replayed, || {
            let facts = super::counted(replayed.facts, "fact");
            let end = if replayed.left { ", as far as it went" } else { "" };
            match &replayed.divergence {
                None => format!("run {run} went as it did{end}: {facts} compared\n"),
                Some(parted) => {
                    format!("run {run} parts in task {}: {}\n", parted.task, visible(&parted.what))
                }
            }
        })?;
        Ok(replayed.code())
    })
}

/// Tells what differs between two runs.
fn compared_text(compared: &Compared) -> String {
    let mut text = String::new();
    for (which, spent) in [("first ", &compared.first), ("second", &compared.second)] {
        text.push_str(&format!(
            "{which} {}  ${} in {}, {} tokens, {} events: {}\n",
            spent.run,
            spent.cost,
            super::counted(spent.rounds.into(), "round"),
            spent.usage.total(),
            spent.events,
            visible(&spent.outcome.to_string())
        ));
    }
    match &compared.divergence {
        None => text.push_str("they do not part\n"),
        Some(parted) => {
            text.push_str(&format!(
                "they part in task {}: {}\n",
                parted.task,
                visible(&parted.what)
            ));
        }
    }
    let stands = |stands: &Option<Stands>| match stands {
        None => "not there".to_owned(),
        Some(stands) => {
            let how = stands.ending.clone().unwrap_or_else(|| stands.state.to_string());
            format!(
                "{how}, {}, ${}",
                super::counted(stands.attempts.into(), "attempt"),
                stands.cost
            )
        }
    };
    for pair in &compared.tasks {
        let (first, second) = (stands(&pair.first), stands(&pair.second));
        text.push_str(&visible(&format!("task {}: {first} | {second}", pair.task)));
        text.push('\n');
    }
    for pair in &compared.files {
        let left = |hash: Option<BlobHash>| {
            hash.map_or_else(|| "-".to_owned(), |hash| hash.to_string().chars().take(12).collect())
        };
        let (first, second) = (left(pair.first), left(pair.second));
        text.push_str(&format!("file {}: {first} | {second}\n", visible(&pair.path)));
    }
    text
}

/// Tells of a run that goes on from another one.
fn begun(forked: &Forked) -> String {
    let mut text = String::new();
    for path in &forked.restored {
        text.push_str(&format!("  restored {}\n", visible(path)));
    }
    for left in &forked.left {
        text.push_str(&format!("  left {}: {}\n", visible(&left.path), visible(&left.reason)));
    }
    let Forked { run, from, seq, .. } = forked;
    text.push_str(&format!("run {run} goes on from event {seq} of run {from}\n"));
    text + &format!("take it up with `formwork runs resume {run}`\n")
}

fn stop(args: &Stop) -> StopParams {
    let wait = (!args.no_wait).then_some(STOP_WAIT);
    StopParams { run: args.run, reason: args.reason.clone(), wait }
}

/// Tells what became of a request to stop a run.
fn came_about(terminal: &Terminal, args: &Stop, stopped: &Stopped) -> Result<OutcomeCode, Fault> {
    terminal.result(stopped, || match stopped.done {
        true => format!("run {} is {}\n", stopped.run, stopped.state),
        false => format!("run {} is {}; the request is in its log\n", stopped.run, stopped.state),
    })?;
    // Who did not want to wait has what they wanted.
    Ok(if stopped.done || args.no_wait { OutcomeCode::Completed } else { OutcomeCode::Failed })
}

async fn list(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    limit: usize,
    before: Option<RunId>,
) -> Result<(), Fault> {
    let params = ListParams { before, limit: Some(limit) };
    let found = formwork.call::<List>(caller, params).await?;
    terminal.result(&found, || {
        if found.runs.is_empty() {
            return "no runs yet; `formwork demo` makes one\n".to_owned();
        }
        let mut text = String::new();
        for row in &found.runs {
            let how = row.code.map_or(row.state.as_str(), |code| code.as_str());
            let note = match row.run {
                run if found.imported.contains(&run) => "  imported",
                run if found.left.contains(&run) => "  left: nobody works on it",
                _ => "",
            };
            text.push_str(&format!(
                "{}  {}  {:<11} {:<20} ${}{note}\n",
                row.run, row.created, how, row.name, row.cost,
            ));
        }
        text
    })?;
    if let Some(last) = found.runs.last().filter(|_| found.more && terminal.format == Format::Text)
    {
        complain(&format!(
            "there are more: --before {} shows older ones, -n more of them\n",
            last.run
        ));
    }
    Ok(())
}

pub(super) async fn named_or_last(
    formwork: &Formwork,
    caller: &Caller,
    run: Option<RunId>,
) -> Result<RunId, Fault> {
    if let Some(run) = run {
        return Ok(run);
    }
    let newest = formwork.call::<List>(caller, ListParams { before: None, limit: Some(1) }).await?;
    newest.runs.first().map(|row| row.run).ok_or_else(|| {
        Fault::failed(anyhow!("there are no runs yet")).hint("`formwork demo` makes one")
    })
}

/// Finds the newest run of this workspace that has not ended.
async fn resumable(formwork: &Formwork, caller: &Caller) -> Result<RunId, Fault> {
    let here = formwork.workspace().display().to_string();
    let mut before = None;
    // The newest one whose folder is gone: this may be that folder, moved.
    let mut homeless: Option<RunRow> = None;
    loop {
        let params = ListParams { before, limit: Some(200) };
        let Listed { runs: page, imported, .. } = formwork.call::<List>(caller, params).await?;
        let Some(last) = page.last() else {
            let hint = homeless.map_or_else(
                || "`formwork runs list` shows them all".to_owned(),
                |row| {
                    format!(
                        "run {} waits in {}, which is not there any more: if this is that folder, move it back and go on there",
                        row.run, row.workspace
                    )
                },
            );
            return Err(Fault::failed(anyhow!("no run of {here} waits to be resumed")).hint(hint));
        };
        before = Some(last.run);
        let mut waiting =
            page.iter().filter(|row| !row.state.is_terminal() && !imported.contains(&row.run));
        if let Some(row) = waiting.clone().find(|row| row.workspace == here) {
            return Ok(row.run);
        }
        if homeless.is_none() {
            homeless = waiting.find(|row| !Path::new(&row.workspace).is_dir()).cloned();
        }
    }
}

/// Draws a run as it stands: its tree, the checks with their evidence, the spend.
pub(super) fn show(detail: &RunDetail) -> String {
    let run = &detail.run;
    let mut text = format!(
        "run {}\n  workflow  {}\n  workspace {}\n  state     {}{}\n  created   {}\n  spent     ${} in {}, {} tokens\n  changed   {}\n  events    {}\n\n",
        run.run,
        run.name,
        visible(&run.workspace),
        run.state,
        match &run.reason {
            Some(reason) => format!(": {}", super::folded(reason, 12)),
            None if detail.is_left => {
                format!(": nobody works on it; `formwork runs resume {}` goes on", run.run)
            }
            None => String::new(),
        },
        run.created,
        run.cost,
        super::counted(run.rounds.into(), "round"),
        run.usage.total(),
        match run.more_files {
            true => format!("{} and more files", run.files_changed),
            false => super::counted(run.files_changed, "file"),
        },
        run.events,
    );
    branch(detail, None, 0, &mut text);
    if !detail.calls.is_empty() {
        text.push_str("\nmodels\n");
        let mut models: Vec<_> =
            detail.calls.iter().map(|call| (&call.model, &call.endpoint)).collect();
        models.sort_unstable();
        models.dedup();
        for (model, endpoint) in models {
            let calls = detail
                .calls
                .iter()
                .filter(|call| &call.model == model && &call.endpoint == endpoint);
            let (count, cost): (u32, Usd) = calls.fold((0, Usd::ZERO), |(count, cost), call| {
                (count + 1, cost.saturating_add(call.cost))
            });
            text.push_str(&format!(
                "  {} at {}: {}, ${cost}\n",
                super::cell(model),
                visible(endpoint),
                super::counted(count.into(), "call")
            ));
        }
    }
    if !detail.gates.is_empty() {
        text.push_str("\ngates\n");
        for GateRow { gated, .. } in &detail.gates {
            let answer = match &gated.answer {
                GateAnswer::Allow => "allowed".to_owned(),
                GateAnswer::Ask { reason } => format!("asked: {reason}"),
                GateAnswer::Deny { reason } => format!("denied: {reason}"),
                GateAnswer::Replace { arguments } => {
                    format!("replaced the arguments: formwork blob {arguments}")
                }
                _ => "answered what this version does not know".to_owned(),
            };
            let line = format!("{} by {}: {answer}", gated.tool, gated.gate);
            text.push_str(&format!("  {}\n", visible(&line)));
        }
    }
    for failed in &detail.hook_failures {
        let line = format!("{} at {} {}: {}", failed.hook, failed.event, failed.seq, failed.reason);
        text.push_str(&format!("\nhook failed: {}\n", visible(&line)));
    }
    if !detail.services.is_empty() {
        text.push_str("\nservices\n");
    }
    for row in &detail.services {
        text.push_str(&format!("  {}\n", visible(&row.told)));
        for line in row.excerpt.lines().rev().take(LAST_WORDS).collect::<Vec<_>>().into_iter().rev()
        {
            text.push_str(&format!("      {}\n", visible(line)));
        }
    }
    for news in &detail.workers {
        text.push_str(&format!("  {}\n", visible(&news.told)));
    }
    for refused in &detail.refused_connections {
        text.push_str(&format!("\nnetwork: {}\n", visible(&refused.to_string())));
    }
    for ContradictionRow { by, said, .. } in &detail.contradictions {
        text.push_str(&format!("\ncontradicted by {by}: {}\n", visible(&said.to_string())));
    }
    text
}

/// How many lines of what a service said last are shown.
const LAST_WORDS: usize = 10;

/// Returns what a task and all below it have cost.
fn cost(detail: &RunDetail, task: &TaskRow) -> Usd {
    let below = detail.tasks.iter().filter(|child| child.parent == Some(task.task));
    below.map(|child| cost(detail, child)).fold(task.cost, Usd::saturating_add)
}

/// Draws the tasks below `parent`.
fn branch(detail: &RunDetail, parent: Option<TaskId>, depth: usize, text: &mut String) {
    for task in detail.tasks.iter().filter(|task| task.parent == parent) {
        let indent = "  ".repeat(depth);
        let how = visible(&told(detail, task));
        text.push_str(&format!("{indent}{} {}  {how}\n", sign(task), visible(task.name.as_str())));
        for check in detail.checks.iter().filter(|check| check.task == task.task) {
            let verdict = &check.verdict;
            let mark = if verdict.passed { "✓" } else { "✗" };
            text.push_str(&format!(
                "{indent}    {mark} {} check {:?}: {}\n",
                check.phase.as_str(),
                verdict.check,
                visible(&verdict.reason)
            ));
            if let Some(output) = &verdict.evidence.output {
                text.push_str(&format!("{indent}      output: formwork blob {output}\n"));
            }
            for step in &verdict.steps {
                let (mark, what) = (if step.passed { "✓" } else { "✗" }, step.what.as_str());
                let reason = visible(&step.reason);
                text.push_str(&format!("{indent}      {mark} {what}: {reason}\n"));
            }
            for issue in &verdict.issues {
                text.push_str(&format!("{indent}      {}\n", visible(&issue.to_string())));
            }
        }
        branch(detail, Some(task.task), depth + 1, text);
    }
}

const fn sign(task: &TaskRow) -> &'static str {
    match task.state {
        TaskState::Completed => "✓",
        TaskState::PrecheckFailed | TaskState::Escalated | TaskState::PostcheckFailed => "✗",
        _ => "·",
    }
}

fn told(detail: &RunDetail, task: &TaskRow) -> String {
    let ending = match &task.ending {
        Some(Ending::Completed) => task.state.to_string(),
        None => detail.waits.get(&task.task).cloned().unwrap_or_else(|| task.state.to_string()),
        Some(ending) => ending.to_string(),
    };
    let attempts =
        if task.attempts > 1 { format!(", {} attempts", task.attempts) } else { String::new() };
    format!("{ending}{attempts}  ${}", cost(detail, task))
}
