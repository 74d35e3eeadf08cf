//! What has to be the same however often a process died, and what may happen once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use formwork_protocols::{
    Ending, Escalation, Event, EventBody, EventStore as _, Position, RunId, RunState, Views as _,
    store::{AttemptRow, CallRow, CheckRow, RunRow, Selection, TaskRow},
};
use formwork_services::operations::runs::{Replay, ReplayParams};
use formwork_trace::{Options, Trace};

use crate::{fatal::Fatal, place, tools};

/// The task whose body is a command: what it does is not done again where nobody knows whether it was.
pub(crate) const COMMAND: &str = "command";

/// Everything that the views hold of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    run: RunRow,
    tasks: Vec<TaskRow>,
    attempts: Vec<AttemptRow>,
    checks: Vec<CheckRow>,
    calls: Vec<CallRow>,
}

/// How a run ended, without what differs from run to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Final {
    run: (String, String, String),
    /// By name: body, state, how it ended, and its attempts.
    tasks: BTreeMap<String, (String, String, String, u32)>,
    /// The last verdict of each check.
    checks: BTreeMap<(String, String, u32), bool>,
    files: BTreeMap<String, String>,
}

impl Shown {
    async fn read(trace: &Trace, run: RunId) -> Result<Self> {
        let row = trace.run(run).await?.context("the run is not in its view")?;
        let tasks = trace.tasks(run).await?;
        let mut attempts = Vec::new();
        for task in &tasks {
            attempts.extend(trace.attempts(task.task).await?);
        }
        let (checks, calls) = (trace.checks(run).await?, trace.calls(run).await?);
        Ok(Self { run: row, tasks, attempts, checks, calls })
    }

    fn name(&self, task: formwork_protocols::TaskId) -> String {
        let found = self.tasks.iter().find(|row| row.task == task);
        found.map_or_else(|| "?".to_owned(), |row| row.name.to_string())
    }

    fn ended(&self, workspace: &Path) -> Final {
        let code = self.run.code.map_or("none", |code| code.as_str()).to_owned();
        let reason = self.run.reason.clone().unwrap_or_default();
        let tasks = self.tasks.iter().map(|row| {
            let ending = row.ending.as_ref().map(ToString::to_string).unwrap_or_default();
            let state = row.state.to_string();
            (row.name.to_string(), (row.body.clone(), state, ending, row.attempts))
        });
        let checks = self.checks.iter().map(|row| {
            let key = (self.name(row.task), row.phase.as_str().to_owned(), row.index);
            (key, row.verdict.passed)
        });
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(workspace.join("out")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            files.insert(entry.file_name().to_string_lossy().into_owned(), text);
        }
        Final {
            run: (self.run.state.to_string(), code, reason),
            tasks: tasks.collect(),
            checks: checks.collect(),
            files,
        }
    }

    /// Tells whether the command was given up because nobody knows whether it ran.
    fn is_command_unknown(&self) -> bool {
        self.tasks.iter().any(|row| {
            row.name.as_str() == COMMAND
                && matches!(
                    &row.ending,
                    Some(Ending::Escalated { why: Escalation::OutcomeUnknown { .. } })
                )
        })
    }
}

/// A log and how its run ended.
pub(crate) struct Seen {
    pub(crate) ended: Final,
    pub(crate) events: u64,
    /// What is wrong with it, whatever the run was to do.
    pub(crate) faults: Vec<String>,
    /// Whether the command was given up, and was at work when a process died.
    pub(crate) command_unknown: bool,
}

/// Reads the log of a place and holds it against what holds for every run.
pub(crate) async fn look(folder: &Path) -> Result<Seen> {
    let trace = Trace::open(&place::url(folder), Options::default()).await?;
    let runs = trace.runs(None, 2).await?;
    let run = runs.first().context("no run was recorded")?.run;
    let events = all(&trace, run).await?;
    let shown = Shown::read(&trace, run).await?;
    let mut faults = sound(&trace, run, &events).await?;
    faults.extend(replayed(folder, run).await?);
    trace.rebuild().await?;
    if Shown::read(&trace, run).await? != shown {
        faults.push("the views differ from what the log makes of them".to_owned());
    }
    trace.close().await;
    let workspace = place::workspace(folder);
    let command_unknown = shown.is_command_unknown();
    if command_unknown && !died_in_command(&shown, &events) {
        faults.push("the command was given up, and no process died while it ran".to_owned());
    }
    faults.extend(counted(&workspace, command_unknown));
    let count = events.len() as u64;
    Ok(Seen { ended: shown.ended(&workspace), events: count, faults, command_unknown })
}

/// Reads all events of a run.
pub(crate) async fn all(trace: &Trace, run: RunId) -> Result<Vec<Event>> {
    let selection = Selection { run: Some(run), ..Selection::default() };
    let (mut events, mut after) = (Vec::new(), Position(0));
    loop {
        let page = trace.read(after, &selection, 1_000).await?;
        let Some(last) = page.last() else { return Ok(events) };
        after = last.position;
        events.extend(page);
    }
}

/// Holds a log against what holds for every run that has ended.
pub(crate) async fn sound(trace: &Trace, run: RunId, events: &[Event]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let audit = trace.audit(run).await?;
    faults.extend(audit.faults.iter().map(|fault| format!("audit: {fault:?}")));
    let count = |kind: &str| events.iter().filter(|event| event.body.kind() == kind).count();
    let ends = count("run.finished");
    if ends != 1 {
        faults.push(format!("it ended {ends} times"));
    }
    let (mut held, mut settled) = (BTreeSet::new(), BTreeSet::new());
    let mut said: BTreeMap<_, u32> = BTreeMap::new();
    for event in events {
        match &event.body {
            EventBody::BudgetReserved(reserved) => drop(held.insert(reserved.hold)),
            EventBody::BudgetSettled(done) if !settled.insert(done.hold) => {
                faults.push(format!("reservation {} was settled twice", done.hold));
            }
            EventBody::SessionMessage(message) => {
                let next = said.entry(message.session).or_default();
                if message.index != *next {
                    faults.push(format!("message {} comes where {next} is due", message.index));
                }
                *next = message.index + 1;
            }
            _ => {}
        }
    }
    if held != settled {
        let (held, settled) = (held.len(), settled.len());
        faults.push(format!("{held} reservations were made and {settled} settled"));
    }
    faults.extend(told_once(trace, events).await?);
    Ok(faults)
}

/// Carries the run out again from what was answered, and tells where it goes another way.
async fn replayed(folder: &Path, run: RunId) -> Result<Option<String>> {
    let formwork = place::open(folder, None, Fatal::new(None)).await?;
    let replayed = formwork.call::<Replay>(&place::caller()?, ReplayParams { run }).await?;
    formwork.close().await;
    Ok(replayed.divergence.map(|parted| format!("replayed, it parts: {parted:?}")))
}

/// Finds evidence that a conversation was told more often than something failed.
async fn told_once(trace: &Trace, events: &[Event]) -> Result<Option<String>> {
    let mut told = 0;
    for event in events {
        if let EventBody::SessionMessage(said) = &event.body {
            let bytes = trace.blob(&said.message).await?.context("a message is missing")?;
            told += String::from_utf8_lossy(&bytes).matches("The task is not done:").count();
        }
    }
    // A body that failed, as by a store that was busy for too long, is told as a check is.
    let is_failure = |event: &&Event| match &event.body {
        EventBody::AttemptEnded(ended) => !ended.claimed,
        body => body.kind() == "task.postcheck_failed",
    };
    let failed = events.iter().filter(is_failure).count();
    Ok((told > failed).then(|| format!("{failed} failures were told {told} times")))
}

/// Tells whether a process died while the command was at work.
fn died_in_command(shown: &Shown, events: &[Event]) -> bool {
    let command = shown.tasks.iter().find(|row| row.name.as_str() == COMMAND);
    let mut is_open = false;
    for event in events {
        let is_its = command.is_some_and(|row| Some(row.task) == event.task);
        match &event.body {
            EventBody::AttemptStarted(_) if is_its => is_open = true,
            EventBody::AttemptEnded(_) if is_its => is_open = false,
            EventBody::RunResumed(_) if is_open => return true,
            _ => {}
        }
    }
    false
}

/// Counts the effects and lists those that took place another number of times than they may.
fn counted(workspace: &Path, command_unknown: bool) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in tools::effects(workspace) {
        *counts.entry(line).or_default() += 1;
    }
    let mut faults = Vec::new();
    for (effect, count) in &counts {
        let is_safe = effect.starts_with("pure:") || effect.starts_with("idempotent:");
        if *count > 1 && !is_safe {
            faults.push(format!("{effect} took place {count} times"));
        }
    }
    if !counts.contains_key(&format!("exec:{COMMAND}")) && !command_unknown {
        faults.push("the command did not take place".to_owned());
    }
    faults
}

impl Seen {
    /// Lists what differs from a run that nobody disturbed, and from what holds for every run.
    pub(crate) fn against(&self, undisturbed: &Final) -> Vec<String> {
        let mut faults = self.faults.clone();
        let (mut found, mut wanted) = (self.ended.clone(), undisturbed.clone());
        if self.command_unknown {
            // It is known that nobody knows: the run ends by that name, and all else is the same.
            for end in [&mut found, &mut wanted] {
                end.tasks.retain(|name, _| name != COMMAND && name != "crash");
                end.run = (RunState::Failed.to_string(), String::new(), String::new());
            }
        }
        if found != wanted {
            faults.push(format!("it ended otherwise:\n  wanted {wanted:?}\n  found  {found:?}"));
        }
        faults
    }
}
