//! What events change in the views, gathered in memory so that a batch touches each row once.
//!
//! Gathering merges two changes exactly as the database merges a row with a new one, so the views
//! do not depend on how events were batched.

use std::collections::BTreeMap;

use formwork_protocols::{
    AttemptId, BlobHash, Ending, Event, EventBody, OutcomeCode, Position, RunId, RunState, TaskId,
    TaskState, Timestamp, Usage, Usd,
    event::{FileChange, Lost, ModelCompleted},
};
use serde_json::Error;

use crate::{
    database::{Arg, Connection},
    tables::{ATTEMPTS, CALLS, CHECKS, FILES, RUNS, Rows, Statements, TASKS, Table},
};

/// What of an event the views are made of.
pub(crate) struct Fact<'a> {
    pub(crate) position: Position,
    pub(crate) run: RunId,
    pub(crate) task: Option<TaskId>,
    pub(crate) at: Timestamp,
    pub(crate) body: &'a EventBody,
}

/// Rows of every view, as one batch changes them.
#[derive(Default)]
pub(crate) struct Changes {
    runs: BTreeMap<RunId, Run>,
    tasks: BTreeMap<TaskId, Task>,
    attempts: BTreeMap<AttemptId, Attempt>,
    files: BTreeMap<(RunId, String), File>,
    checks: Vec<Vec<Arg>>,
    calls: Vec<Vec<Arg>>,
}

#[derive(Default)]
struct Run {
    name: Option<String>,
    workspace: Option<String>,
    state: Option<RunState>,
    created: Option<i64>,
    updated: i64,
    code: Option<OutcomeCode>,
    reason: Option<String>,
    rounds: i64,
    spent: Spent,
    events: i64,
}

struct Task {
    run: RunId,
    position: Option<i64>,
    parent: Option<TaskId>,
    name: Option<String>,
    body: Option<&'static str>,
    state: Option<TaskState>,
    ending: Option<String>,
    attempts: i64,
    spent: Spent,
    started: Option<i64>,
    ended: Option<i64>,
}

#[derive(Default)]
struct Attempt {
    task: Option<TaskId>,
    number: Option<i64>,
    started: Option<i64>,
    ended: Option<i64>,
    reason: Option<String>,
}

struct File {
    first: Option<BlobHash>,
    last: Option<BlobHash>,
    added: i64,
    removed: i64,
}

/// Tokens of the five classes, and what they cost.
#[derive(Default)]
struct Spent {
    tokens: [i64; 5],
    cost: i64,
}

impl Spent {
    fn add(&mut self, usage: &Usage, cost: Usd) {
        for (sum, tokens) in self.tokens.iter_mut().zip(classes(usage)) {
            *sum = sum.saturating_add(tokens);
        }
        self.cost = self.cost.saturating_add(amount(cost));
    }

    /// Adds an answer, and what the tries before it used in vain.
    fn add_call(&mut self, data: &ModelCompleted) {
        self.add(&data.usage, data.cost);
        self.lose(data.lost);
    }

    fn lose(&mut self, lost: Option<Lost>) {
        if let Some(lost) = lost {
            self.add(&lost.usage, lost.cost);
        }
    }

    fn args(&self) -> impl Iterator<Item = Arg> {
        self.tokens.iter().chain([&self.cost]).map(|number| Arg::from(*number))
    }
}

impl Changes {
    /// Takes up one event.
    ///
    /// # Errors
    /// When a part that is kept as JSON cannot be written as such.
    pub(crate) fn take(&mut self, event: &Event) -> Result<(), Error> {
        self.take_fact(&Fact {
            position: event.position,
            run: event.run,
            task: event.task,
            at: event.at,
            body: &event.body,
        })
    }

    /// Takes up what an event says.
    ///
    /// # Errors
    /// As of [`take`](Self::take).
    pub(crate) fn take_fact(&mut self, event: &Fact<'_>) -> Result<(), Error> {
        let at = event.at.as_micros();
        let run = self.runs.entry(event.run).or_default();
        run.events += 1;
        run.updated = run.updated.max(at);
        match event.body {
            EventBody::RunCreated(data) => {
                run.name.get_or_insert_with(|| data.name.to_string());
                run.workspace.get_or_insert_with(|| data.workspace.clone());
                run.created.get_or_insert(at);
                run.state = Some(RunState::Created);
            }
            EventBody::RunStarted(_) | EventBody::RunResumed(_) => {
                run.state = Some(RunState::Running);
            }
            EventBody::RunPaused(_) => run.state = Some(RunState::Paused),
            EventBody::RunFinished(data) => {
                run.state = Some(ended(data.outcome.code));
                run.code = Some(data.outcome.code);
                run.reason = Some(data.outcome.reason.clone());
            }
            EventBody::ModelCompleted(data) => {
                run.rounds = run.rounds.saturating_add(1);
                run.spent.add_call(data);
                self.called(event, data);
            }
            EventBody::ModelFailed(data) => run.spent.lose(data.lost),
            EventBody::FileChanged(data) if !data.apart => self.file(event.run, data),
            _ => {}
        }
        match event.task {
            Some(task) => self.of_task(event, task, at),
            None => Ok(()),
        }
    }

    fn of_task(&mut self, event: &Fact<'_>, id: TaskId, at: i64) -> Result<(), Error> {
        let task = match event.body {
            EventBody::TaskCreated(_)
            | EventBody::TaskMoved(_)
            | EventBody::AttemptStarted(_)
            | EventBody::ModelCompleted(_) => self.task(event.run, id),
            EventBody::ModelFailed(data) if data.lost.is_some() => self.task(event.run, id),
            EventBody::AttemptEnded(data) => {
                let attempt = self.attempts.entry(data.attempt).or_default();
                attempt.task.get_or_insert(id);
                attempt.ended = Some(at);
                attempt.reason = Some(data.reason.clone());
                return Ok(());
            }
            EventBody::CheckFinished(data) => {
                self.checks.push(vec![
                    position(event).into(),
                    event.run.as_uuid().into(),
                    id.as_uuid().into(),
                    data.phase.as_str().into(),
                    i64::from(data.index).into(),
                    at.into(),
                    serde_json::to_string(&data.verdict)?.into(),
                ]);
                return Ok(());
            }
            _ => return Ok(()),
        };
        match event.body {
            EventBody::TaskCreated(data) => {
                task.position.get_or_insert(position(event));
                if task.parent.is_none() {
                    task.parent = data.parent;
                }
                task.name.get_or_insert_with(|| data.spec.name.to_string());
                task.body.get_or_insert(data.spec.body.as_str());
                task.state = Some(TaskState::Created);
            }
            EventBody::TaskMoved(data) => {
                task.state = Some(data.to);
                if let Some(ending) = &data.ending {
                    task.ending = Some(json(ending)?);
                }
                if data.from == TaskState::Created && !data.to.is_terminal() {
                    task.started.get_or_insert(at);
                }
                if data.to.is_terminal() {
                    task.ended = Some(at);
                }
            }
            EventBody::ModelCompleted(data) => task.spent.add_call(data),
            EventBody::ModelFailed(data) => task.spent.lose(data.lost),
            EventBody::AttemptStarted(data) => {
                let number = i64::from(data.number);
                task.attempts = task.attempts.max(number);
                let attempt = self.attempts.entry(data.attempt).or_default();
                attempt.task.get_or_insert(id);
                attempt.number.get_or_insert(number);
                attempt.started.get_or_insert(at);
            }
            _ => {}
        }
        Ok(())
    }

    fn task(&mut self, run: RunId, id: TaskId) -> &mut Task {
        self.tasks.entry(id).or_insert_with(|| Task {
            run,
            position: None,
            parent: None,
            name: None,
            body: None,
            state: None,
            ending: None,
            attempts: 0,
            spent: Spent::default(),
            started: None,
            ended: None,
        })
    }

    fn called(&mut self, event: &Fact<'_>, data: &ModelCompleted) {
        // A call outside a task is counted for its run alone: its row would belong to nobody.
        let Some(task) = event.task else { return };
        let mut row: Vec<Arg> = vec![
            position(event).into(),
            event.run.as_uuid().into(),
            data.call.as_uuid().into(),
            task.as_uuid().into(),
            data.session.as_uuid().into(),
            data.model.to_string().into(),
            data.served_by.endpoint.clone().into(),
        ];
        row.extend(classes(&data.usage).map(Arg::from));
        row.extend([
            i64::from(data.usage_estimated).into(),
            amount(data.cost).into(),
            i64::from(data.tries).into(),
            count(data.elapsed.as_micros()).into(),
            event.at.as_micros().into(),
        ]);
        self.calls.push(row);
    }

    fn file(&mut self, run: RunId, data: &FileChange) {
        let file = self.files.entry((run, data.path.clone())).or_insert(File {
            first: held(data.before, data.before_mode),
            last: None,
            added: 0,
            removed: 0,
        });
        file.last = held(data.after, data.after_mode);
        file.added = file.added.saturating_add(count(data.added));
        file.removed = file.removed.saturating_add(count(data.removed));
    }

    /// Moves everything to positions that are so much further on: those that it was gathered at were not given out yet.
    pub(crate) fn move_by(&mut self, far: i64) {
        for position in self.tasks.values_mut().filter_map(|task| task.position.as_mut()) {
            *position = position.saturating_add(far);
        }
        for row in self.checks.iter_mut().chain(&mut self.calls) {
            if let Some(Arg::Int(Some(position))) = row.first_mut() {
                *position = position.saturating_add(far);
            }
        }
    }

    /// Writes the changes into the views.
    pub(crate) async fn apply(
        self,
        connection: &mut Connection,
        statements: &Statements,
    ) -> Result<(), sqlx::Error> {
        statements.insert_all(connection, self.rows()).await
    }

    /// Returns the rows that the views are merged with.
    pub(crate) fn rows(self) -> Vec<Rows> {
        fn all<T>(
            table: &'static Table,
            rows: impl IntoIterator<Item = T>,
            row: impl Fn(T) -> Vec<Arg>,
        ) -> Rows {
            let mut args = Vec::new();
            rows.into_iter().for_each(|one| args.extend(row(one)));
            Rows { table, args }
        }
        let known = self.attempts.into_iter().filter_map(attempt_row);
        vec![
            all(&RUNS, self.runs, run_row),
            all(&TASKS, self.tasks, task_row),
            all(&ATTEMPTS, known, |row| row),
            all(&FILES, self.files, file_row),
            all(&CHECKS, self.checks, |row| row),
            all(&CALLS, self.calls, |row| row),
        ]
    }
}

/// Returns what tells a path's state from another: the hash of its content, and of a file that may be run one that says so
/// besides. Whether it may be is a change as any other.
fn held(content: Option<BlobHash>, mode: Option<u32>) -> Option<BlobHash> {
    let runs = mode.is_some_and(|mode| mode & 0o170_000 == 0o100_000 && mode & 0o111 != 0);
    match content {
        Some(hash) if runs => Some(BlobHash::of(&[hash.as_bytes().as_slice(), b" runs"].concat())),
        content => content,
    }
}

fn run_row((id, run): (RunId, Run)) -> Vec<Arg> {
    let mut row: Vec<Arg> = vec![
        id.as_uuid().into(),
        run.name.into(),
        run.workspace.into(),
        Arg::Text(run.state.map(|state| state.as_str().to_owned())),
        run.created.into(),
        run.updated.into(),
        Arg::Text(run.code.map(|code| code.as_str().to_owned())),
        run.reason.into(),
        run.rounds.into(),
    ];
    row.extend(run.spent.args());
    row.push(run.events.into());
    row
}

fn task_row((id, task): (TaskId, Task)) -> Vec<Arg> {
    let mut row: Vec<Arg> = vec![
        id.as_uuid().into(),
        task.run.as_uuid().into(),
        task.position.into(),
        task.parent.map(|parent| parent.as_uuid()).into(),
        task.name.into(),
        Arg::Text(task.body.map(str::to_owned)),
        Arg::Text(task.state.map(|state| state.as_str().to_owned())),
        task.ending.into(),
        task.attempts.into(),
    ];
    row.extend(task.spent.args());
    row.extend([task.started.into(), task.ended.into()]);
    row
}

fn attempt_row((id, attempt): (AttemptId, Attempt)) -> Option<Vec<Arg>> {
    Some(vec![
        id.as_uuid().into(),
        attempt.task?.as_uuid().into(),
        attempt.number.into(),
        attempt.started.into(),
        attempt.ended.into(),
        attempt.reason.into(),
    ])
}

fn file_row(((run, path), file): ((RunId, String), File)) -> Vec<Arg> {
    let bytes = |hash: Option<BlobHash>| Arg::Bytes(hash.map(|hash| hash.as_bytes().to_vec()));
    vec![
        run.as_uuid().into(),
        path.into(),
        bytes(file.first),
        bytes(file.last),
        file.added.into(),
        file.removed.into(),
    ]
}

/// Returns the state of a run that ended so.
const fn ended(code: OutcomeCode) -> RunState {
    match code {
        OutcomeCode::Completed => RunState::Completed,
        OutcomeCode::Interrupted => RunState::Aborted,
        _ => RunState::Failed,
    }
}

fn json(ending: &Ending) -> Result<String, Error> {
    serde_json::to_string(ending)
}

fn position(event: &Fact<'_>) -> i64 {
    count(event.position.0)
}

/// Returns a count as the databases keep it; one beyond their range stays at its end.
pub(crate) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns an amount that was spent: never negative.
fn amount(cost: Usd) -> i64 {
    cost.as_nanos().max(0)
}

fn classes(usage: &Usage) -> [i64; 5] {
    [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning].map(count)
}
