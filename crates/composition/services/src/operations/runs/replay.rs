//! `runs.replay`: a run carried out again from what was answered then, without anybody to ask.

mod told; // What people and programs outside said to it.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Body, Event, EventBody, NoSecrets, OutcomeCode, RunId, Span, Store, TaskId, TaskSpec,
    event::RunCreated,
};
use formwork_sandbox::{Limits, Protection};
use formwork_scheduler::{Scheduler, Setup, workflow::Plan};
use formwork_trace::{Options, Trace};
use formwork_transport::ProviderKind;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{named, recorded, workshop};
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    config::{Config, SandboxMode},
    course::{self, Course, Divergence, Stops},
    executor::{Replayed, Workshop},
    models::{Keys, Models},
    setup::RunSetup,
    tape::{PlayedOverseer, Tape},
};

/// Within which what was recorded is answered again: nobody is waited for.
const AT_ONCE: Span = Span::from_secs(60);

/// The tool that is offered where programs are confined alone.
const SHELL: &str = "shell";

/// Which run to carry out again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayParams {
    /// The run.
    pub run: RunId,
}

/// What came of carrying a run out again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The run.
    pub run: RunId,
    /// The version of Formwork that began it.
    pub recorded_by: String,
    /// The version that carried it out again.
    pub replayed_by: String,
    /// How many facts were compared.
    pub facts: u64,
    /// Whether the run was left before its end, or tasks of it were ended from outside or by the clock: only what came before
    /// is compared of those.
    pub left: bool,
    /// Where the two part first; nothing where they do not.
    pub divergence: Option<Divergence>,
}

impl Compared {
    /// Returns the code of a program that finds this.
    pub const fn code(&self) -> OutcomeCode {
        match self.divergence {
            None => OutcomeCode::Completed,
            Some(_) => OutcomeCode::Refused,
        }
    }
}

/// `runs.replay`
pub struct Replay;

#[async_trait]
impl Operation for Replay {
    const NAME: &'static str = "runs.replay";
    const DOC: &'static str = "Carries a run out again from its recorded answers, without a model, a tool or a network, and names \
         the first divergence.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ReplayParams;
    type Output = Compared;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: ReplayParams,
    ) -> Result<Compared, Error> {
        let run = params.run;
        let store = &*formwork.inner.store;
        let row = named(store, run).await?;
        let mut events = course::events(store, run).await?;
        let whole = events.len();
        if let Some(end) = (0..whole).position(|at| ends_by_service(&events[at..])) {
            events.truncate(end);
        }
        let mut stops = Stops::of(&events, &course::paths(&events));
        // What was begun to be ended as the run was left has come to that as far as it was recorded.
        while let Some(begun) = stops.begun {
            events.retain(|event| event.seq < begun);
            stops = Stops::of(&events, &course::paths(&events));
        }
        let left = events.len() < whole || !row.state.is_terminal();
        let created = events.iter().find_map(|event| match &event.body {
            EventBody::RunCreated(created) => Some(created.clone()),
            _ => None,
        });
        let missing = || formwork_scheduler::Error::Incomplete { run, missing: "run.created" };
        let created = created.ok_or_else(missing)?;
        let setup = recorded(store, run).await?;
        let memory: Arc<dyn Store> =
            Arc::new(Trace::open("sqlite::memory:", Options::default()).await?);
        let tape = Arc::new(Tape::read(store, &events).await?);
        tape.playing.expect(stops.all.clone());
        let again = carry_out(formwork, caller, setup, (&created, &events), &memory, &tape).await?;
        let then = Stops::of(&again, &course::paths(&again));
        let (first, second) = (Course::without(&events, &stops), Course::without(&again, &then));
        let divergence = first.parts_from(&second, left, (store, &*memory)).await?;
        Ok(Compared {
            run,
            recorded_by: created.version,
            replayed_by: env!("CARGO_PKG_VERSION").to_owned(),
            facts: first.facts as u64,
            left: left || stops.any(),
            divergence,
        })
    }
}

/// Tells whether events begin with the last end of a service, for which what needed it was given up: nobody's answer made it
/// end. A run that was left, and that only was not taken up for it, goes on later.
fn ends_by_service(events: &[Event]) -> bool {
    let is_last =
        |event: &Event| matches!(&event.body, EventBody::ServiceFailed(failed) if !failed.again);
    let mut after = events.iter().skip(1).map(|event| &event.body);
    let next = after.find(|body| !body.kind().starts_with("service."));
    events.first().is_some_and(is_last) && !matches!(next, Some(EventBody::RunPaused(_)))
}

/// Carries a run out in a log of its own, and returns its events.
async fn carry_out(
    formwork: &Formwork,
    caller: &Caller,
    setup: RunSetup,
    (created, events): (&RunCreated, &[Event]),
    memory: &Arc<dyn Store>,
    tape: &Arc<Tape>,
) -> Result<Vec<Event>, Error> {
    let (width, mode, is_headless) = (setup.width, setup.mode(), setup.headless);
    let vars = created.setup.get("vars").and_then(Value::as_object).cloned().unwrap_or_default();
    let plan = plan(created, events, vars)?;
    let executor = Arc::new(Replayed {
        workshop: idle(formwork, setup, (events, memory), tape)?,
        tape: Arc::clone(tape),
    });
    let scheduler = Scheduler::new(Arc::clone(memory), executor)
        .with_width(std::num::NonZeroUsize::new(width).unwrap_or(std::num::NonZeroUsize::MIN))
        .headless(is_headless)
        // How long things take now is no part of what happened.
        .untimed();
    let scheduler = match PlayedOverseer::of(events, tape) {
        Some(overseer) => scheduler.with_overseer(Arc::new(overseer), AT_ONCE),
        None => scheduler,
    };
    let new = scheduler
        .create(
            &plan,
            Setup {
                workspace: created.workspace.clone(),
                mode,
                principal: caller.principal().clone(),
                setup: Map::new(),
            },
        )
        .await?;
    let run = new.id();
    let signals = tape.playing.signals.clone();
    let over = CancellationToken::new();
    let carrying = async {
        let done = scheduler.run(new, &signals).await;
        over.cancel();
        done
    };
    let telling = told::Telling::new(events, memory, tape).tell(run, &signals, &over);
    let (done, told) = tokio::join!(carrying, telling);
    done?;
    told?;
    course::events(&**memory, run).await
}

/// Puts the tasks together again that a run began with.
fn plan(created: &RunCreated, events: &[Event], vars: Map<String, Value>) -> Result<Plan, Error> {
    let planted = events.iter().take_while(|event| {
        matches!(event.body, EventBody::RunCreated(_) | EventBody::TaskCreated(_))
    });
    let mut tasks: Vec<(TaskId, Option<TaskId>, TaskSpec)> = Vec::new();
    for event in planted {
        if let (EventBody::TaskCreated(created), Some(id)) = (&event.body, event.task) {
            tasks.push((id, created.parent, TaskSpec::clone(&created.spec)));
        }
    }
    // Parents come before their children, so from the end each is whole when it is put into its parent.
    while tasks.len() > 1 {
        let Some((_, parent, spec)) = tasks.pop() else { break };
        let above = tasks.iter_mut().find(|(id, ..)| Some(*id) == parent);
        if let Some((_, _, TaskSpec { body: Body::Subtasks { tasks, .. }, .. })) = above {
            tasks.insert(0, spec);
        }
    }
    let missing = || {
        Error::Scheduler(formwork_scheduler::Error::Incomplete {
            run: events.first().map_or_else(|| RunId::from_uuid(created.root.as_uuid()), |e| e.run),
            missing: "root task",
        })
    };
    let (_, _, root) = tasks.pop().ok_or_else(missing)?;
    Ok(Plan::from_record(created.name.clone(), root, vars))
}

/// Tells whether a conversation was offered a shell.
fn has_shell(event: &Event) -> bool {
    match &event.body {
        EventBody::SessionStarted(started) => started.tools.iter().any(|tool| tool == SHELL),
        _ => false,
    }
}

/// Puts together what a run worked with, without keys, servers, sandbox or files.
fn idle(
    formwork: &Formwork,
    setup: RunSetup,
    (events, memory): (&[Event], &Arc<dyn Store>),
    tape: &Arc<Tape>,
) -> Result<Workshop, Error> {
    let inner = &formwork.inner;
    let mut config = Config { sandbox: Some(SandboxMode::Off), ..setup.config.clone() };
    for provider in config.providers.values_mut() {
        provider.api_key = None;
        // Their files are not asked, and may be gone.
        if matches!(provider.kind, ProviderKind::Scripted | ProviderKind::Recorded) {
            provider.kind = ProviderKind::OpenAiCompatible;
            provider.base_url = Some("http://127.0.0.1:9".to_owned());
        }
    }
    let seams = (Arc::new(NoSecrets) as _, Arc::clone(&inner.rng), Arc::clone(&inner.clock));
    let models =
        Models::connect(&config, &Keys::none(), (&inner.base, None), &inner.providers, seams)?;
    // A placeholder is filled with something that nobody sees: no tool is called.
    let mut secrets = formwork_secrets::Registry::default();
    for (number, name) in config.secrets.keys().enumerate() {
        let value = SecretString::from(format!("%{number}%{number}%{number}%replayed%"));
        let wrong = |error: formwork_secrets::Error| Error::Key {
            what: "a secret".to_owned(),
            reason: error.to_string(),
        };
        secrets.insert(name.clone(), value).map_err(wrong)?;
    }
    let setup = RunSetup { config, ..setup };
    let mut workshop = workshop(formwork, setup, secrets, models)?;
    if events.iter().any(has_shell) {
        // It was offered since programs were confined. None is begun now.
        workshop.protection = Protection::Restricted(Limits::new([""; 0], [""; 0]));
    }
    workshop.store = Arc::clone(memory);
    workshop.scrub = Arc::new(NoSecrets);
    workshop.tape = Some(Arc::clone(tape));
    Ok(workshop)
}
