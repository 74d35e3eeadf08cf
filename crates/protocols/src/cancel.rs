//! A signal to stop that flows from parents to children, whatever the runtime.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use event_listener::Event;
use futures::future;

/// A signal to stop. Clones share it; a [child](Cancel::child) stops with its parent and not the other way.
#[derive(Clone, Default)]
pub struct Cancel {
    node: Arc<Node>,
}

#[derive(Default)]
struct Node {
    raised: AtomicBool,
    event: Event,
    parent: Option<Arc<Node>>,
}

impl Node {
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.parent.as_deref())
    }
}

impl Cancel {
    /// Returns a signal that nobody has raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a signal that is raised with this one, or alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { node: Arc::new(Node { parent: Some(Arc::clone(&self.node)), ..Node::default() }) }
    }

    /// Raises the signal, here and in every child. A second time changes nothing.
    pub fn cancel(&self) {
        self.node.raised.store(true, Ordering::SeqCst);
        self.node.event.notify(usize::MAX);
    }

    /// Tells whether the signal was raised here or above.
    pub fn is_cancelled(&self) -> bool {
        self.node.chain().any(|node| node.raised.load(Ordering::SeqCst))
    }

    /// Waits until the signal is raised. Cancel safe.
    pub async fn cancelled(&self) {
        // Listens first and looks then, so that a signal between the two is not missed.
        let listeners: Vec<_> = self.node.chain().map(|node| node.event.listen()).collect();
        if self.is_cancelled() {
            return;
        }
        future::select_all(listeners).await;
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("cancelled", &self.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, executor::block_on};

    use super::*;

    #[test]
    fn a_child_stops_with_its_parent_and_not_the_other_way() {
        let parent = Cancel::new();
        let (first, second) = (parent.child(), parent.child());

        first.cancel();
        assert!(first.is_cancelled());
        assert!(!parent.is_cancelled() && !second.is_cancelled());

        parent.cancel();
        assert!(second.is_cancelled());
        block_on(second.child().cancelled());
    }

    #[test]
    fn a_waiter_wakes_when_a_grandparent_stops() {
        let top = Cancel::new();
        let low = top.child().child();
        let mut waiting = Box::pin(low.cancelled());
        assert!(waiting.as_mut().now_or_never().is_none());

        let thread = std::thread::spawn(move || top.cancel());
        block_on(waiting);

        thread.join().unwrap();
    }
}
