//! Programs that are told what happens in a run, and hold nothing of it up.
//!
//! They are told from the log, in its order and at their own pace: what is slow or fails is behind, or missed, and the
//! run knows nothing of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use formwork_policy::{HookFault, Hooks};
use formwork_protocols::{
    Append, CallId, Event, EventBody, Live, NewEvent, Position, Principal, RunId, Store, ToolName,
    event::{HookFailed, ToolRequested},
    store::Selection,
};
use futures::{StreamExt as _, stream::BoxStream};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Error, config::HookEvent, executor::Workshop, gates, network::Whose, toolset};

/// How long a run that has ended waits for those who are still to be told.
const DRAIN: Duration = Duration::from_secs(30);

/// How many events are read at once.
const PAGE: usize = 200;

/// Who is to be told of a run, before there is one.
pub(crate) struct Ready {
    hooks: Vec<formwork_policy::Hook>,
    events: Vec<HookEvent>,
}

/// The observers of a run that is carried out.
pub(crate) struct Observers {
    /// The one task that tells them; none where there is nobody to tell.
    telling: JoinSet<Told>,
    ended: CancellationToken,
}

/// Up to where observers were told of a run, with what they know of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    after: Position,
    /// The calls that are under way.
    calls: HashMap<CallId, ToolRequested>,
}

impl Told {
    /// Says that all was told up to a position.
    pub(crate) fn up_to(after: Position) -> Self {
        Self { after, calls: HashMap::new() }
    }
}

impl Ready {
    /// Reads who is to be told. The gates are read as well, so that no run begins with one that cannot be asked.
    ///
    /// # Errors
    /// [`Error::Rules`] when a hook names no program, a pattern does not parse, or a gate is not there.
    pub(crate) fn of(workshop: &Workshop) -> Result<Self, Error> {
        let config = &workshop.setup.config.hooks;
        gates::of(config, HookEvent::is_gate)?;
        // One that is not there denies every call, each of which is paid for.
        gates::look_for(config, HookEvent::is_gate, &workshop.sandbox, workshop.root.path())?;
        let hooks = gates::of(config, |event| !event.is_gate())?;
        let events = config.iter().map(|hook| hook.event).filter(|event| !event.is_gate());
        Ok(Self { hooks, events: events.collect() })
    }

    /// Begins to tell what happens in `run` and was not told yet.
    ///
    /// # Errors
    /// [`Error::Rules`] and [`Error::Network`] when the programs cannot be held to what they may.
    pub(crate) async fn begin(
        self,
        workshop: &Workshop,
        run: RunId,
        told: Told,
    ) -> Result<Observers, Error> {
        let (mut telling, ended) = (JoinSet::new(), CancellationToken::new());
        if !self.events.is_empty() {
            let teller = self.teller(workshop, run, told).await?;
            // From here on nothing is missed, whatever happens before the log is read first.
            let happening = teller.store.watch();
            telling.spawn(teller.tell(run, happening, ended.clone()));
        }
        Ok(Observers { telling, ended })
    }

    async fn teller(self, workshop: &Workshop, run: RunId, told: Told) -> Result<Teller, Error> {
        let sandbox = formwork_sandbox::Sandbox::clone(&workshop.sandbox);
        let whose = Whose { run, task: None, agents: Vec::new() };
        let bounds = workshop.bounds(&workshop.scope()?, whose).await?;
        let mut specs = toolset::built_in();
        specs.extend(crate::custom::specs(workshop.setup.tools.iter().cloned()));
        specs.extend(workshop.tools.iter().map(|tool| tool.spec().clone()));
        let hooks = Hooks::new(sandbox, workshop.root.path(), bounds.protection, self.hooks);
        Ok(Teller {
            hooks: match &workshop.setup.programs {
                Some(then) => hooks.since(then),
                None => hooks,
            },
            events: self.events,
            tags: specs.into_iter().map(|spec| (spec.definition.name, spec.tags)).collect(),
            store: Arc::clone(&workshop.store),
            clock: Arc::clone(&workshop.clock),
            scrub: Arc::clone(&workshop.scrub),
            told,
        })
    }
}

impl Observers {
    /// Waits until what has happened was told, within bounds. Returns up to where it was, for whoever takes the run up: where
    /// the log was away, not all of it. Nothing is returned where there is nobody to tell.
    pub(crate) async fn finish(mut self) -> Option<Told> {
        self.ended.cancel();
        let mut told = None;
        while let Some(joined) = self.telling.join_next().await {
            told = joined.ok().or(told);
        }
        told
    }
}

/// Tells what happens.
struct Teller {
    hooks: Hooks,
    events: Vec<HookEvent>,
    tags: BTreeMap<ToolName, Vec<String>>,
    store: Arc<dyn Store>,
    clock: Arc<dyn formwork_protocols::Clock>,
    scrub: Arc<dyn formwork_protocols::Scrub>,
    told: Told,
}

impl Teller {
    async fn tell(
        mut self,
        run: RunId,
        mut happening: BoxStream<'static, Live>,
        ended: CancellationToken,
    ) -> Told {
        let kinds = self.events.iter().flat_map(|event| event.kinds()).copied();
        let kinds = kinds.chain(["tool.requested"]).map(str::to_owned).collect();
        let selection = Selection { run: Some(run), task: None, kinds };
        let over = CancellationToken::new();
        let mut limits = JoinSet::new();
        loop {
            let was_over = ended.is_cancelled();
            if was_over && limits.is_empty() {
                let over = over.clone();
                limits.spawn(async move {
                    tokio::time::sleep(DRAIN).await;
                    over.cancel();
                });
            }
            // Who cannot read the log cannot write to it either.
            let Ok(events) = self.store.read(self.told.after, &selection, PAGE).await else {
                return self.told;
            };
            if events.is_empty() {
                if was_over {
                    return self.told;
                }
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    happened = wanted(&mut happening, &selection, run) => {
                        if !happened {
                            return self.told;
                        }
                    }
                }
                continue;
            }
            for event in events {
                self.told.after = event.position;
                self.take(event, &over).await;
            }
        }
    }

    /// Tells of one event, and records who did not take it.
    async fn take(&mut self, event: Event, over: &CancellationToken) {
        let call = match &event.body {
            EventBody::ToolRequested(made) => {
                self.told.calls.insert(made.call, ToolRequested::clone(made));
                return;
            }
            EventBody::ToolCompleted(done) => self.told.calls.remove(&done.call),
            EventBody::ToolFailed(failed) => self.told.calls.remove(&failed.call),
            _ => None,
        };
        let (run, kind) = (event.run, event.body.kind().to_owned());
        let told = self.events.iter().find(|told| told.kinds().contains(&kind.as_str()));
        let Some(told) = told.map(|told| told.as_str()) else { return };
        let name = call.as_ref().and_then(|call| ToolName::parse(call.tool.as_str()).ok());
        let tags = name.as_ref().and_then(|name| self.tags.get(name)).cloned().unwrap_or_default();
        let tool = name.as_ref().map(|name| (name, tags.as_slice()));
        let document = document(told, &event, call.as_ref());
        let faults = self.hooks.observe((told, tool), &document, over).await;
        for HookFault { hook, reason } in faults {
            let scrubbed = |text: &str| self.scrub.scrub_text(text).into_owned();
            let failed = HookFailed {
                hook: scrubbed(&hook),
                event: told.to_owned(),
                seq: event.seq,
                reason: scrubbed(&reason),
            };
            let fact = NewEvent {
                task: event.task,
                principal: Principal::system("hooks"),
                at: self.clock.now(),
                body: EventBody::HookFailed(failed),
                idempotency_key: None,
            };
            let batch = Append { run, token: None, events: vec![fact], blobs: Vec::new() };
            // Where it cannot be recorded, nobody is left to tell.
            let _ = self.store.append(batch).await;
        }
    }
}

/// Waits until something has happened that is told; false when nothing will any more.
async fn wanted(
    happening: &mut BoxStream<'static, Live>,
    selection: &Selection,
    run: RunId,
) -> bool {
    while let Some(happened) = happening.next().await {
        match happened {
            Live::Event(event) if event.run == run => {
                if selection.kinds.iter().any(|kind| kind == event.body.kind()) {
                    return true;
                }
            }
            Live::Lagged(_) => return true,
            Live::Event(_) | Live::Delta(_) => {}
        }
    }
    false
}

/// Makes what an observer reads.
fn document(told: &str, event: &Event, call: Option<&ToolRequested>) -> Value {
    let mut document = json!({
        "format_version": 1,
        "event": told,
        "run": event.run,
        "seq": event.seq,
        "task": event.task,
        "principal": event.principal,
        "at": event.at,
        "kind": event.body.kind(),
        "data": event.body.data().unwrap_or(Value::Null),
    });
    if let (Some(call), Some(fields)) = (call, document.as_object_mut()) {
        fields.insert("tool".to_owned(), json!(call.tool));
        fields.insert("class".to_owned(), json!(call.class));
        fields.insert("arguments".to_owned(), call.arguments.clone());
    }
    document
}
