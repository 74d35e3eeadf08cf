//! `formwork runs`: what was run, and how to go on with it.

use anyhow::anyhow;
use formwork_protocols::{Ending, OutcomeCode, RunId, TaskId, TaskState, Usd, store::TaskRow};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::runs::{Get, GetParams, List, ListParams, RunDetail},
};

use crate::{
    args::{Global, Runs},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
};

pub(super) fn runs(global: &Global, terminal: &Terminal, args: Runs) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| match args {
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
        Runs::Export { run, output, force } => {
            super::bundles::export(&formwork, &caller, terminal, run, output, force).await
        }
        Runs::Import { file } => {
            super::bundles::import(&formwork, &caller, terminal, file).await
        }
        Runs::Resume { run } => {
            let run = match run {
                Some(run) => run,
                None => resumable(&formwork, &caller).await?,
            };
            super::run::resume(&formwork, &caller, terminal, run).await
        }
    })
}

async fn list(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    limit: usize,
    before: Option<RunId>,
) -> Result<(), Fault> {
    let found = formwork.call::<List>(caller, ListParams { before, limit: Some(limit) }).await?;
    terminal.result(&found, || {
        if found.runs.is_empty() {
            return "no runs yet; `formwork demo` makes one\n".to_owned();
        }
        let mut text = String::new();
        for row in &found.runs {
            let how = row.code.map_or(row.state.as_str(), |code| code.as_str());
            text.push_str(&format!(
                "{}  {}  {:<11} {:<20} ${}\n",
                row.run, row.created, how, row.name, row.cost
            ));
        }
        text
    })?;
    Ok(())
}

async fn named_or_last(
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
    loop {
        let params = ListParams { before, limit: Some(200) };
        let page = formwork.call::<List>(caller, params).await?.runs;
        let Some(last) = page.last() else {
            return Err(Fault::failed(anyhow!("no run of {here} waits to be resumed"))
                .hint("`formwork runs list` shows them all"));
        };
        before = Some(last.run);
        let found = page.iter().find(|row| !row.state.is_terminal() && row.workspace == here);
        if let Some(row) = found {
            return Ok(row.run);
        }
    }
}

/// Draws a run as it stands: its tree, the checks with their evidence, the spend.
pub(super) fn show(detail: &RunDetail) -> String {
    let run = &detail.run;
    let mut text = format!(
        "run {}\n  workflow  {}\n  workspace {}\n  state     {}{}\n  created   {}\n  spent     ${} in {} rounds, {} tokens\n  changed   {}\n  events    {}\n\n",
        run.run,
        run.name,
        run.workspace,
        run.state,
        run.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}")),
        run.created,
        run.cost,
        run.rounds,
        run.usage.total(),
        counted(run.files_changed, "file"),
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
            text.push_str(&format!("  {model} at {endpoint}: {count} calls, ${cost}\n"));
        }
    }
    text
}

/// Writes a number with its noun.
fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns what a task and all below it have cost.
fn cost(detail: &RunDetail, task: &TaskRow) -> Usd {
    let below = detail.tasks.iter().filter(|child| child.parent == Some(task.task));
    below.map(|child| cost(detail, child)).fold(task.cost, Usd::saturating_add)
}

/// Draws the tasks below `parent`.
fn branch(detail: &RunDetail, parent: Option<TaskId>, depth: usize, text: &mut String) {
    for task in detail.tasks.iter().filter(|task| task.parent == parent) {
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}{} {}  {}\n", sign(task), task.name, told(detail, task)));
        for check in detail.checks.iter().filter(|check| check.task == task.task) {
            let verdict = &check.verdict;
            let mark = if verdict.passed { "✓" } else { "✗" };
            text.push_str(&format!(
                "{indent}    {mark} {} check {:?}: {}\n",
                check.phase.as_str(),
                verdict.check,
                verdict.reason
            ));
            if let Some(output) = &verdict.evidence.output {
                text.push_str(&format!("{indent}      output: formwork blob {output}\n"));
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
        Some(Ending::Completed) | None => task.state.to_string(),
        Some(ending) => ending.to_string(),
    };
    let attempts =
        if task.attempts > 1 { format!(", {} attempts", task.attempts) } else { String::new() };
    format!("{ending}{attempts}  ${}", cost(detail, task))
}
