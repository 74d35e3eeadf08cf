//! `runs.pause` and `runs.abort`: asked by way of the log, so that any process may ask.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use formwork_protocols::{
    Append, EventBody, Live, NewEvent, RunId, RunState, Span, StoreError, check::Verdict,
    event::RunRequested,
};
use formwork_scheduler::{NativeExecutor, Natives, Signals};
use futures::StreamExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::{named, recorded, scheduler_of};
use crate::{
    Error, Formwork,
    apart::given_up,
    capability::{Caller, Effect, Operation, Scope},
    setup::Kind,
};

/// How often it is tried whether the owner is gone, while a request waits for them.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to become of which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopParams {
    /// The run.
    pub run: RunId,
    /// Why, for the record.
    #[serde(default)]
    pub reason: Option<String>,
    /// How long to wait until it has come about; not at all where absent.
    #[serde(default)]
    pub wait: Option<Span>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The run.
    pub run: RunId,
    /// Where it stands now.
    pub state: RunState,
    /// Whether it has come about. If not, it is in the log, and whoever works on the run does it soon.
    pub done: bool,
}

/// `runs.pause`
pub struct Pause;

#[async_trait]
impl Operation for Pause {
    const NAME: &'static str = "runs.pause";
    const DOC: &'static str =
        "Pauses a run, whichever process works on it: what is under way is broken off and kept.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = StopParams;
    type Output = Stopped;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: StopParams,
    ) -> Result<Stopped, Error> {
        stop(formwork, caller, params, Stop::Pause).await
    }
}

/// `runs.abort`
pub struct Abort;

#[async_trait]
impl Operation for Abort {
    const NAME: &'static str = "runs.abort";
    const DOC: &'static str =
        "Ends a run and everything in it for good, whichever process works on it.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = StopParams;
    type Output = Stopped;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: StopParams,
    ) -> Result<Stopped, Error> {
        stop(formwork, caller, params, Stop::Abort).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Pause,
    Abort,
}

impl Stop {
    const fn word(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Abort => "aborted",
        }
    }

    /// Tells whether a run that stands there needs nothing more.
    fn is_met_by(self, state: RunState) -> bool {
        match self {
            Self::Pause => state == RunState::Paused || state.is_terminal(),
            Self::Abort => state.is_terminal(),
        }
    }
}

async fn stop(
    formwork: &Formwork,
    caller: &Caller,
    params: StopParams,
    stop: Stop,
) -> Result<Stopped, Error> {
    let StopParams { run, reason, wait } = params;
    let inner = &formwork.inner;
    let state = named(&*inner.store, run).await?.state;
    if state.is_terminal() && (stop, state) != (Stop::Abort, RunState::Aborted) {
        return Err(Error::Over { run, state, wanted: stop.word() });
    }
    if stop.is_met_by(state) {
        return Ok(Stopped { run, state, done: true });
    }
    // Watches before it asks, so that an answer that comes at once is not missed.
    let mut happening = inner.store.watch();
    let reason = reason.unwrap_or_else(|| format!("{} by {}", stop.word(), caller.principal()));
    let asked = RunRequested { reason };
    let body = match stop {
        Stop::Pause => EventBody::RunPauseRequested(asked),
        Stop::Abort => EventBody::RunAbortRequested(asked),
    };
    let event = NewEvent {
        task: None,
        principal: caller.principal().clone(),
        at: inner.clock.now(),
        body,
        idempotency_key: None,
    };
    inner.store.append(Append { run, token: None, events: vec![event], blobs: Vec::new() }).await?;
    let until = Instant::now() + wait.unwrap_or_default().as_duration();
    loop {
        let mut state = named(&*inner.store, run).await?.state;
        if !stop.is_met_by(state) {
            carry_out(formwork, run, stop).await?;
            state = named(&*inner.store, run).await?.state;
        }
        let (done, left) = (stop.is_met_by(state), until.saturating_duration_since(Instant::now()));
        if done || left.is_zero() {
            return Ok(Stopped { run, state, done });
        }
        // Whoever works on it answers by an event of the run; whoever died does not.
        let heard = async {
            while let Some(happened) = happening.next().await {
                match happened {
                    Live::Event(event) if event.run != run || !event.body.needs_lease() => {}
                    Live::Delta(_) => {}
                    Live::Event(_) | Live::Lagged(_) => return,
                }
            }
            // A closed log tells nothing more.
            std::future::pending::<()>().await;
        };
        // Over time is over time, whatever was heard.
        let _ = timeout(left.min(AGAIN), heard).await;
    }
}

/// Returns an executor for whoever begins no work, and so needs nothing to do some.
fn idle() -> NativeExecutor {
    NativeExecutor::new(Natives::new(), |job| {
        Verdict::bare(job.check.name.clone(), false, "the run is being stopped".to_owned())
    })
}

/// Does what was asked where nobody works on the run. Where somebody does, it is theirs.
async fn carry_out(formwork: &Formwork, run: RunId, stop: Stop) -> Result<(), Error> {
    let (scheduler, _present) = scheduler_of(formwork, Arc::new(idle()))?;
    let signals = Signals::default();
    match stop {
        Stop::Pause => signals.pause.cancel(),
        Stop::Abort => signals.abort.cancel(),
    }
    match scheduler.resume(run, &signals).await.map_err(Error::from) {
        Ok(_) => {
            let inner = &formwork.inner;
            let over = named(&*inner.store, run).await?.state.is_terminal();
            if over && recorded(&*inner.store, run).await?.kind == Kind::Goal {
                let (snapshots, root) = (Arc::clone(&inner.snapshots), Arc::clone(&inner.root));
                given_up(&inner.state, snapshots, root, run).await?;
            }
            Ok(())
        }
        Err(Error::Store(StoreError::NotOwner { .. }))
        | Err(Error::Scheduler(formwork_scheduler::Error::Ended { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What is said to which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerParams {
    /// The run.
    pub run: RunId,
    /// What its conversations are to hear.
    pub text: String,
}

/// What was left for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steered {
    /// The run.
    pub run: RunId,
    /// Where it stands now.
    pub state: RunState,
}

/// The most bytes that are said at once: more is a file that can be named.
const STEERED_BYTES: usize = 32 * 1024;

/// `runs.steer`
pub struct Steer;

#[async_trait]
impl Operation for Steer {
    const NAME: &'static str = "runs.steer";
    const DOC: &'static str = "Says something to the conversations of a run, whichever process works on it: each hears it at its next turn.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = SteerParams;
    type Output = Steered;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: SteerParams,
    ) -> Result<Steered, Error> {
        let SteerParams { run, text } = params;
        let inner = &formwork.inner;
        let state = named(&*inner.store, run).await?.state;
        if state.is_terminal() {
            return Err(Error::Over { run, state, wanted: "steered" });
        }
        let text = text.trim();
        if text.is_empty() || text.len() > STEERED_BYTES {
            return Err(Error::Steering { bytes: text.len(), most: STEERED_BYTES });
        }
        // What a person types may hold a key that is known.
        let text = formwork.scrub().scrub_text(text).into_owned();
        let event = NewEvent {
            task: None,
            principal: caller.principal().clone(),
            at: inner.clock.now(),
            body: EventBody::RunSteered(formwork_protocols::event::RunSteered { text }),
            idempotency_key: None,
        };
        let append = Append { run, token: None, events: vec![event], blobs: Vec::new() };
        inner.store.append(append).await?;
        Ok(Steered { run, state })
    }
}
