//! Tasks within a conversation, asked for from outside the loop.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{Body, Claim, TaskId, TaskName, TaskSpec, tool::TaskControl};
use tokio::sync::{mpsc, oneshot};

use super::{drive::Drive, work::Effect};
use crate::core::{Input, TaskIndex};

/// Requests that may wait for the loop: each comes of an attempt that waits for its answer, and no
/// run is that wide by default.
pub(super) const WAITING: usize = 64;

/// What an attempt asks of the loop.
pub(super) enum Request {
    Open { parent: TaskId, name: TaskName, goal: String, reply: Reply },
    Close { task: TaskId, claim: Claim, reply: Reply },
}

pub(super) type Reply = oneshot::Sender<Result<TaskId, String>>;

/// The tasks that may call tools now.
#[derive(Debug, Default)]
pub(super) struct Active(Mutex<HashSet<TaskId>>);

impl Active {
    pub(super) fn add(&self, task: TaskId) {
        self.lock().insert(task);
    }

    pub(super) fn remove(&self, task: TaskId) {
        self.lock().remove(&task);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        // A set of ids is whole after every call, whoever panicked meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle that attempts hold.
pub(super) struct Control {
    pub(super) requests: mpsc::Sender<Request>,
    pub(super) active: Arc<Active>,
}

impl Control {
    async fn ask(&self, request: impl FnOnce(Reply) -> Request) -> Result<TaskId, String> {
        let over = || "the run takes no more tasks, it is ending".to_owned();
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| over())?;
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

#[async_trait]
impl TaskControl for Control {
    fn is_active(&self, task: TaskId) -> bool {
        self.active.lock().contains(&task)
    }

    async fn start(&self, parent: TaskId, name: TaskName, goal: String) -> Result<TaskId, String> {
        self.ask(|reply| Request::Open { parent, name, goal, reply }).await
    }

    async fn end(&self, task: TaskId, claim: Claim) -> Result<TaskId, String> {
        self.ask(|reply| Request::Close { task, claim, reply }).await
    }
}

impl Drive {
    pub(super) fn answer(&mut self, request: Request) {
        let gone = |task: TaskId| format!("there is no task {task}");
        let (reply, answer) = match request {
            Request::Open { parent, name, goal, reply } => {
                let id = TaskId::generate(&*self.scheduler.clock, &*self.scheduler.rng);
                let spec = Arc::new(TaskSpec::new(name, Body::Inline { goal }));
                let answer = match self.tree.state.find(parent) {
                    None => Err(gone(parent)),
                    Some(parent) => self
                        .decide(Input::Open { parent, id, spec })
                        .map(|()| id)
                        .map_err(|refusal| refusal.to_string()),
                };
                (reply, answer)
            }
            Request::Close { task, claim, reply } => {
                let answer = match self.tree.state.find(task) {
                    None => Err(gone(task)),
                    Some(index) => self.close(index, claim),
                };
                (reply, answer)
            }
        };
        self.effects.push(Effect::Answer(reply, answer));
    }

    pub(super) fn close(&mut self, task: TaskIndex, claim: Claim) -> Result<TaskId, String> {
        let before = self.tree.of_mut(task).claim.replace(Box::new(claim));
        match self.decide(Input::Close { task }) {
            Ok(()) => {
                let state = &self.tree.state;
                let parent = state.parent(task).map(|parent| state.id(parent));
                Ok(parent.unwrap_or_else(|| state.id(task)))
            }
            Err(refusal) => {
                self.tree.of_mut(task).claim = before;
                Err(refusal.to_string())
            }
        }
    }
}
