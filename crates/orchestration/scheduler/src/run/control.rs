//! Tasks within a conversation, asked for from outside the loop.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{Claim, TaskId, TaskName, tool::TaskControl};
use tokio::sync::{mpsc, oneshot};

use std::sync::Arc;

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
