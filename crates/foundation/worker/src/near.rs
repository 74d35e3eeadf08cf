//! The calls of one run under one label: which worker has them, and what becomes of them when it is lost.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use formwork_protocols::{
    Cancel, EventBody, Replay, Span, TaskId, Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    WorkerLabel, WorkerName,
    event::{FileChange, WorkerAwaited, WorkerConnected, WorkerLost},
    message::ToolDefinition,
    tool::{CallContext, Kept},
};
use serde_json::Value;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    board::{Asked, Back, Whose},
    hub::Hub,
    message::{
        Announced, Answer, Bounds, Given, Lease, MAX_CALL_BYTES, MAX_CHANGES, Picture, encode,
        schema_of,
    },
};

/// To how many workers a call is given, one after the other is lost.
const MOST_EPOCHS: u32 = 3;

/// The most bytes of a path that a worker says it has changed.
const MAX_PATH_BYTES: usize = 4_096;

/// How many names of tools a model is told that asks for one that is not there.
const TOLD_TOOLS: usize = 40;

/// Records what happens to the calls of a run, in its log.
#[async_trait]
pub trait Tell: Send + Sync {
    /// Records it. What cannot be recorded is lost: nothing is decided by it.
    async fn tell(&self, task: TaskId, body: EventBody);
}

/// Why no worker could be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Missing {
    /// None came in time.
    #[error("no worker with label {label} was connected within {waited}")]
    None { label: WorkerLabel, waited: Span },
    /// It was not waited for any longer.
    #[error("cancelled while it waited for a worker with label {label}")]
    Cancelled { label: WorkerLabel },
}

/// The calls of one run under one label. All of them go to one worker, in whose workspace they find what those before have
/// done, for as long as that is there.
pub struct Near {
    hub: Hub,
    label: WorkerLabel,
    tell: Arc<dyn Tell>,
    /// How long a worker is waited for.
    wait: Duration,
    state: Mutex<State>,
    choosing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    chosen: Option<WorkerName>,
    /// Whether that one was chosen by a process before this one, and was not seen by this one yet.
    is_told: bool,
    /// The one before it, until a conversation was told.
    before: Option<WorkerName>,
}

/// A call to be made elsewhere.
struct Wanted<'a> {
    context: &'a CallContext,
    tool: &'a ToolDefinition,
    replay: Replay,
    arguments: Value,
    bounds: &'a Bounds,
    longest: Duration,
}

/// A call that is held by a worker until it is let go, whatever becomes of whoever waits for it.
struct Held<'a> {
    hub: &'a Hub,
    of: Lease,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.hub.with(|board| {
            board.cancel(self.of);
            board.give_up(self.of);
        });
    }
}

impl Near {
    /// Gives calls to workers of `hub` with a label, the one that had them `before` first. What happens is told to `tell`,
    /// and a worker is waited for as long as `wait`.
    pub fn new(
        hub: Hub,
        label: WorkerLabel,
        before: Option<WorkerName>,
        tell: Arc<dyn Tell>,
        wait: Duration,
    ) -> Self {
        let state = State { is_told: before.is_some(), chosen: before, before: None };
        Self { hub, label, tell, wait, state: Mutex::new(state), choosing: Default::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a tool with the name and the rules of `own` that is carried out by a worker, within `bounds` and no
    /// `longest` than so long.
    pub fn tool(
        self: &Arc<Self>,
        own: Arc<dyn Tool>,
        bounds: Arc<Bounds>,
        longest: Duration,
    ) -> Arc<dyn Tool> {
        Arc::new(Remote { near: Arc::clone(self), own, bounds, longest })
    }

    /// Waits until there is a worker for the calls, and returns it.
    ///
    /// Cancel safe: a dropped future waits no more.
    ///
    /// # Errors
    /// [`Missing`].
    pub async fn ready(&self, task: TaskId, cancel: &Cancel) -> Result<WorkerName, Missing> {
        let cancelled = || Missing::Cancelled { label: self.label.clone() };
        // One at a time, so that what happens is told once.
        let _choosing = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled()),
            choosing = self.choosing.lock() => choosing,
        };
        let mut moves = self.hub.moves();
        let (began, mut was_told) = (Instant::now(), false);
        loop {
            let chosen = self.lock().chosen.clone();
            let is_here =
                |name: &WorkerName| self.hub.look(|board| board.is_here(name, &self.label));
            if let Some(name) = chosen {
                if is_here(&name) {
                    self.lock().is_told = false;
                    return Ok(name);
                }
                // It may not have found its way to this process yet.
                let returns = self.lock().is_told && began.elapsed() < self.hub.times().grace;
                if !returns {
                    self.lost(task, &name, "it is not connected any more").await;
                    continue;
                }
            } else if let Some(name) = self.hub.look(|board| board.choose(&self.label)) {
                self.lock().chosen = Some(name.clone());
                let (worker, label) = (name.clone(), self.label.clone());
                let body = EventBody::WorkerConnected(WorkerConnected { worker, label });
                self.tell.tell(task, body).await;
                return Ok(name);
            }
            if !was_told {
                was_told = true;
                self.awaits(task, "none is connected".to_owned()).await;
            }
            let grace = self.hub.times().grace;
            let until = match self.lock().is_told {
                true => began + grace.min(self.wait),
                false => began + self.wait,
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                moved = timeout_at(until, moves.changed()) => {
                    if moved.is_err() && Instant::now() >= began + self.wait {
                        let (label, waited) = (self.label.clone(), Span::from(self.wait));
                        return Err(Missing::None { label, waited });
                    }
                    if moved.is_err() {
                        self.lock().is_told = false;
                    }
                }
            }
        }
    }

    async fn awaits(&self, task: TaskId, reason: String) {
        let awaited = WorkerAwaited { label: self.label.clone(), reason };
        self.tell.tell(task, EventBody::WorkerAwaited(awaited)).await;
    }

    /// Takes note that the worker that had the calls is gone.
    async fn lost(&self, task: TaskId, worker: &WorkerName, reason: &str) {
        {
            let mut state = self.lock();
            if state.chosen.as_ref() != Some(worker) {
                return;
            }
            (state.chosen, state.is_told) = (None, false);
            state.before.get_or_insert(worker.clone());
        }
        let (worker, label, reason) = (worker.clone(), self.label.clone(), reason.to_owned());
        let body = EventBody::WorkerLost(WorkerLost { worker, label, reason });
        self.tell.tell(task, body).await;
    }

    /// Says what a conversation has not been told yet: that another worker answers than did before.
    fn moved(&self, to: &WorkerName) -> Option<String> {
        let before = self.lock().before.take()?;
        Some(format!(
            "[worker {before} was lost: {to} answers from here on, and its workspace is its own. What was changed at \
             {before} is not there.]\n"
        ))
    }

    /// Has a call made, and returns what came of it and who made it.
    ///
    /// A dropped future has it ended, and nobody hears of it.
    async fn call(
        &self,
        wanted: Wanted<'_>,
        cancel: &Cancel,
    ) -> Result<(Answer, WorkerName), ToolError> {
        let Wanted { context, tool, replay, arguments, bounds, longest } = wanted;
        let task = context.task;
        let left_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let given = Box::new(Given {
            context: context.clone(),
            tool: Announced::of(tool),
            arguments,
            bounds: bounds.clone(),
        });
        // Some of a frame is what stands around a call.
        if encode(&given).len() + 1_024 > MAX_CALL_BYTES {
            let told = format!("a call to a worker has at most {MAX_CALL_BYTES} bytes");
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        }
        let (mut before, mut epochs) = (None, 0);
        loop {
            let worker = self.ready(task, cancel).await.map_err(|missing| match missing {
                Missing::None { .. } => ToolError::new(ToolErrorKind::Failed, missing.to_string()),
                Missing::Cancelled { .. } => {
                    ToolError::new(ToolErrorKind::Cancelled, missing.to_string())
                }
            })?;
            let by = |kind, message: String| ToolError {
                worker: Some(worker.clone()),
                ..ToolError::new(kind, message)
            };
            self.has(&worker, tool).map_err(|told| by(ToolErrorKind::UnknownTool, told))?;
            let (tell, call) = (Arc::clone(&self.tell), context.call);
            let given = given.clone();
            let ask = move |back| {
                let whose = Whose { tell: Arc::clone(&tell), task, call };
                Asked { given: given.clone(), left_ms, whose, back }
            };
            let Some((of, mut back)) = self.give(task, &worker, ask, before, cancel).await? else {
                // It went as it was chosen.
                continue;
            };
            let held = Held { hub: &self.hub, of };
            let came = tokio::select! {
                biased;
                came = &mut back => came.ok(),
                () = cancel.cancelled() => None,
                () = tokio::time::sleep(longest) => None,
            };
            let (came, is_over) = match came {
                Some(came) => (Some(came), false),
                None => (self.ended(of, &mut back).await, true),
            };
            drop(held);
            let (begun, reason) = match came {
                Some(Back::Answered(answer)) => return Ok((answer, worker)),
                Some(Back::Lost { begun, reason }) => (begun, reason),
                None => (true, "it did not end the call when it was asked to".to_owned()),
            };
            if !is_over {
                self.lost(task, &worker, &reason).await;
            }
            let is_unknown = begun && replay == Replay::Once;
            epochs += 1;
            if is_unknown {
                let told = format!(
                    "worker {worker} was given it and did not tell what came of it ({reason}): whether it took effect is \
                     unknown, and it is not made again by itself"
                );
                return Err(by(ToolErrorKind::OutcomeUnknown, told));
            }
            if is_over {
                let (kind, what) = match cancel.is_cancelled() {
                    true => (ToolErrorKind::Cancelled, "cancelled".to_owned()),
                    false => {
                        let longest = Span::from(longest);
                        (ToolErrorKind::TimedOut, format!("timed out after {longest}"))
                    }
                };
                return Err(by(kind, format!("{what} at worker {worker}: {reason}")));
            }
            if epochs >= MOST_EPOCHS {
                let told = format!("{epochs} workers were lost over it, the last of them {worker}");
                return Err(by(ToolErrorKind::Failed, told));
            }
            before = Some(of);
        }
    }

    /// Says what is wrong where a worker does not have a tool as this end knows it.
    fn has(&self, worker: &WorkerName, tool: &ToolDefinition) -> Result<(), String> {
        let name = &tool.name;
        self.hub.look(|board| {
            // One that is gone is noticed when it is given the call.
            let Some(tools) = board.tools(worker) else { return Ok(()) };
            match tools.get(name) {
                Some(schema) if *schema == schema_of(tool) => Ok(()),
                Some(_) => Err(format!(
                    "worker {worker} has another {name}, with other arguments: it is of another version than this end, or \
                     configured otherwise. Do without it"
                )),
                None => {
                    let known: Vec<&str> =
                        tools.keys().map(|name| name.as_str()).take(TOLD_TOOLS).collect();
                    Err(format!("worker {worker} has no {name}; it has {}", known.join(", ")))
                }
            }
        })
    }

    /// Gives a call to a worker, once it has room. Nothing is returned where the worker is gone meanwhile.
    async fn give(
        &self,
        task: TaskId,
        worker: &WorkerName,
        ask: impl Fn(oneshot::Sender<Back>) -> Asked,
        before: Option<Lease>,
        cancel: &Cancel,
    ) -> Result<Option<(Lease, oneshot::Receiver<Back>)>, ToolError> {
        let mut moves = self.hub.moves();
        let mut was_told = false;
        loop {
            let (sender, back) = oneshot::channel();
            let asked = ask(sender);
            let given = self.hub.with(|board| match board.has_room(worker) {
                Some(true) => board.give(worker, asked, before).ok().map(Some),
                Some(false) => None,
                None => Some(None),
            });
            match given {
                Some(Some(of)) => return Ok(Some((of, back))),
                Some(None) => return Ok(None),
                None => {}
            }
            if !was_told {
                was_told = true;
                self.awaits(task, format!("worker {worker} has no room for another call")).await;
            }
            moves.mark_unchanged();
            let has_room = self.hub.look(|board| board.has_room(worker));
            if has_room != Some(false) {
                continue;
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    let told = format!("cancelled while it waited for worker {worker}");
                    return Err(ToolError::new(ToolErrorKind::Cancelled, told));
                }
                _ = moves.changed() => {}
            }
        }
    }

    /// Has a call ended, and waits for what it says then.
    async fn ended(&self, of: Lease, back: &mut oneshot::Receiver<Back>) -> Option<Back> {
        if !self.hub.with(|board| board.cancel(of)) {
            // It may have been answered or lost a moment ago; else nobody was given it.
            let unbegun =
                Back::Lost { begun: false, reason: "it had not been given it yet".to_owned() };
            return Some(back.try_recv().unwrap_or(unbegun));
        }
        timeout(self.hub.times().ending, back).await.ok()?.ok()
    }
}

/// A tool that is carried out by a worker.
struct Remote {
    near: Arc<Near>,
    /// What is judged, at this end.
    own: Arc<dyn Tool>,
    bounds: Arc<Bounds>,
    longest: Duration,
}

#[async_trait]
impl Tool for Remote {
    fn spec(&self) -> &ToolSpec {
        self.own.spec()
    }

    fn paths(&self, arguments: &Value) -> Vec<String> {
        self.own.paths(arguments)
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        self.own.command(arguments)
    }

    fn hosts(&self, arguments: &Value) -> Vec<String> {
        self.own.hosts(arguments)
    }

    fn secrets(&self) -> Vec<String> {
        self.own.secrets()
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let spec = self.own.spec();
        let wanted = Wanted {
            context,
            tool: &spec.definition,
            replay: spec.replay,
            arguments,
            bounds: &self.bounds,
            longest: self.longest,
        };
        let (answer, worker) = self.near.call(wanted, cancel).await?;
        let moved = self.near.moved(&worker).unwrap_or_default();
        match answer {
            Answer::Completed { text, outside, changes, pictures } => Ok(ToolOutput {
                text: format!("{moved}{text}"),
                changes: changes.into_iter().filter(is_sound).take(MAX_CHANGES).collect(),
                outside,
                kept: pictures.into_iter().filter_map(kept).collect(),
                worker: Some(worker),
                ..ToolOutput::default()
            }),
            Answer::Failed { kind, message, outside } => Err(ToolError {
                outside,
                worker: Some(worker),
                ..ToolError::new(own_kind(kind), format!("{moved}{message}"))
            }),
        }
    }
}

/// Says whether a change can be one of a file in a workspace.
fn is_sound(change: &FileChange) -> bool {
    !change.path.is_empty() && change.path.len() <= MAX_PATH_BYTES
}

/// Takes a failure for what a worker can tell: of tasks and budgets it knows nothing.
fn own_kind(kind: ToolErrorKind) -> ToolErrorKind {
    match kind {
        ToolErrorKind::NoActiveTask | ToolErrorKind::OverBudget => ToolErrorKind::Failed,
        kind => kind,
    }
}

fn kept(picture: Picture) -> Option<Kept> {
    let Picture { media_type, name, base64 } = picture;
    Some(Kept { media_type, name, bytes: STANDARD.decode(base64).ok()? })
}
