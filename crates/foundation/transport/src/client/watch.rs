//! A future that is nearly never ready, beside a stream that nearly always is.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Polls a future once for each task that waits for it, and not each time that the task is woken by something else.
///
/// That is enough, because a future wakes whoever polled it last. For a signal or a timer, to be asked at every chunk of a
/// stream would cost a good part of what it costs to read the chunk.
pub(super) struct Watch<F> {
    future: F,
    waker: Option<Waker>,
}

impl<F: Future + Unpin> Watch<F> {
    pub(super) const fn new(future: F) -> Self {
        Self { future, waker: None }
    }

    /// Sees to it that the task is woken once the future is ready. Whether it is by now is only looked at for a new task, or
    /// after [`get_mut`](Self::get_mut): whoever was woken has to look at what the future stands for.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        let waker = context.waker();
        if self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return Poll::Pending;
        }
        // Tokio's timers do not listen when their task has done enough for once, and are then to be polled again.
        let listens = tokio::task::coop::has_budget_remaining();
        let poll = Pin::new(&mut self.future).poll(context);
        self.waker = (listens && poll.is_pending()).then(|| waker.clone());
        poll
    }

    pub(super) const fn get(&self) -> &F {
        &self.future
    }

    /// Returns the future to be changed, after which it is polled again.
    pub(super) fn get_mut(&mut self) -> &mut F {
        self.waker = None;
        &mut self.future
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        task::Wake,
    };

    use formwork_protocols::Cancel;
    use futures::FutureExt as _;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn whoever_asked_last_is_woken_however_often_it_asked() {
        let cancel = Cancel::new();
        let child = cancel.child();
        let mut watch = Watch::new(async move { child.cancelled().await }.boxed());
        let (first, second) = (Arc::new(Task::default()), Arc::new(Task::default()));

        for task in [&first, &second, &second] {
            let waker = Waker::from(Arc::clone(task));
            assert!(watch.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(!second.0.load(SeqCst));
        cancel.cancel();

        assert!(second.0.load(SeqCst));
    }
}
