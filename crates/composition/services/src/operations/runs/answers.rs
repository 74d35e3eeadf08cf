//! What was said to a run beside its model: the answers of gates, who did not take what it was told of, what the
//! sandbox refused, what became of services, and what was assumed wrongly.

use formwork_protocols::{
    BlobHash, Event, EventBody, Position, Principal, RunId, ServiceName, Store, TaskId, Timestamp,
    event::{HookFailed, InboxContradicted, NetworkRefused, ToolGated},
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// What a gate answered about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRow {
    /// The task that the call was made in.
    pub task: Option<TaskId>,
    /// The answer.
    #[serde(flatten)]
    pub gated: ToolGated,
}

/// What happened to a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceRow {
    /// The service.
    pub service: ServiceName,
    /// The kind of the event.
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// What, in a line.
    pub told: String,
    /// The end of its output, where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
    /// Its output by its hash, where it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobHash>,
}

impl ServiceRow {
    fn of(event: &Event) -> Option<Self> {
        let (service, told, excerpt, output) = match &event.body {
            EventBody::ServiceStarted(it) => (&it.service, it.to_string(), String::new(), None),
            EventBody::ServiceReady(it) => (&it.service, it.to_string(), String::new(), None),
            EventBody::ServiceFailed(it) => {
                (&it.service, it.to_string(), it.excerpt.clone(), it.output)
            }
            EventBody::ServiceStopped(it) => {
                (&it.service, it.to_string(), String::new(), it.output)
            }
            _ => return None,
        };
        let (service, kind, at) = (service.clone(), event.body.kind().to_owned(), event.at);
        Some(Self { service, kind, at, told, excerpt, output })
    }
}

/// What happened to the calls of a run that workers carry out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerNews {
    /// The task.
    pub task: Option<TaskId>,
    /// The kind of the event.
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// What, in a line.
    pub told: String,
}

impl WorkerNews {
    fn of(event: &Event) -> Option<Self> {
        let told = match &event.body {
            EventBody::WorkerAwaited(it) => it.to_string(),
            EventBody::WorkerConnected(it) => it.to_string(),
            EventBody::WorkerLost(it) => it.to_string(),
            EventBody::WorkerRefused(it) => it.to_string(),
            _ => return None,
        };
        let (task, kind, at) = (event.task, event.body.kind().to_owned(), event.at);
        Some(Self { task, kind, at, told })
    }
}

/// An assumption that somebody has contradicted once it was acted on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContradictionRow {
    /// The task that asked.
    pub task: Option<TaskId>,
    /// Who says otherwise.
    pub by: Principal,
    /// What was assumed and what is answered.
    #[serde(flatten)]
    pub said: InboxContradicted,
}

/// All of these, in the order of the log.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) gates: Vec<GateRow>,
    pub(super) hook_failures: Vec<HookFailed>,
    pub(super) refused_connections: Vec<NetworkRefused>,
    pub(super) services: Vec<ServiceRow>,
    pub(super) contradictions: Vec<ContradictionRow>,
    pub(super) workers: Vec<WorkerNews>,
}

/// Reads what was said in a run.
pub(super) async fn of(store: &dyn Store, run: RunId) -> Result<Answers, Error> {
    let kinds = [
        "tool.gated",
        "hook.failed",
        "network.refused",
        "service.",
        "inbox.contradicted",
        "worker.",
    ];
    let kinds = kinds.map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut found, mut after) = (Answers::default(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(found) };
        after = last.position;
        for event in events {
            found.services.extend(ServiceRow::of(&event));
            found.workers.extend(WorkerNews::of(&event));
            match event.body {
                EventBody::ToolGated(gated) => {
                    found.gates.push(GateRow { task: event.task, gated: *gated });
                }
                EventBody::InboxContradicted(said) => {
                    let (task, by) = (event.task, event.principal);
                    found.contradictions.push(ContradictionRow { task, by, said });
                }
                EventBody::HookFailed(failed) => found.hook_failures.push(failed),
                EventBody::NetworkRefused(refused) => found.refused_connections.push(refused),
                _ => {}
            }
        }
    }
}
