//! What stands before a store, ends its process at a given event, and signs what it lets through.

use std::{
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{Append, RunId, Store, StoreError, store::Recorded};
use formwork_testkit::between::Between;
use rustix::process::{Signal, getpid, kill_process};

/// When, of an event's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The store was not asked yet.
    Before,
    /// The store was asked, and has not answered.
    During,
    /// The store has answered, and nobody has heard it.
    After,
    /// The process is held up before it asks, for as long as somebody likes.
    Stopped,
}

/// At which event of a process, counted from 1, its fate meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) moment: Moment,
    pub(crate) event: u64,
}

impl FromStr for Fate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (moment, event) = text.split_once(':').ok_or("expected WHEN:EVENT")?;
        let moment = match moment {
            "before" => Moment::Before,
            "during" => Moment::During,
            "after" => Moment::After,
            "stopped" => Moment::Stopped,
            _ => return Err("expected before, during, after or stopped".to_owned()),
        };
        Ok(Self { moment, event: event.parse().map_err(|_| "expected a number")? })
    }
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::During => "during",
            Moment::After => "after",
            Moment::Stopped => "stopped",
        };
        write!(f, "{moment}:{}", self.event)
    }
}

/// What is before the store of a process that is to end before its time.
pub(crate) struct Fatal {
    fate: Option<Fate>,
    /// Signs each event, so that it can be told which process wrote it.
    signature: Option<String>,
    /// Whether no run is begun.
    barren: bool,
    seen: AtomicU64,
}

impl Fatal {
    pub(crate) fn new(fate: Option<Fate>) -> Self {
        Self { fate, signature: None, barren: false, seen: AtomicU64::new(0) }
    }

    pub(crate) fn signed(mut self, name: &str) -> Self {
        self.signature = Some(name.to_owned());
        self
    }

    /// Lets runs be recorded and not begun.
    pub(crate) fn barren(mut self) -> Self {
        self.barren = true;
        self
    }
}

/// Sends a signal to this very process, which it does not survive or go on from by itself.
fn meet(signal: Signal) {
    kill_process(getpid(), signal).expect("a process may signal itself");
}

impl Fatal {
    /// Counts and signs what is handed over, and tells the fate that meets the process in it. Where it ends before it
    /// asks, it ends here.
    fn see(&self, batch: &mut Append) -> Option<Moment> {
        let count = batch.events.len() as u64;
        let before = self.seen.fetch_add(count, Ordering::SeqCst);
        if let Some(name) = &self.signature {
            for (at, event) in batch.events.iter_mut().enumerate() {
                let number = before + at as u64;
                event.idempotency_key.get_or_insert_with(|| format!("{name}/{number}"));
            }
        }
        let met = self.fate.filter(|fate| before < fate.event && fate.event <= before + count)?;
        match met.moment {
            Moment::Before => meet(Signal::KILL),
            Moment::Stopped => meet(Signal::STOP),
            Moment::During | Moment::After => {}
        }
        Some(met.moment)
    }
}

/// Ends the process once `asked` has ended, or on its way there.
async fn end_in<T>(moment: Moment, asked: impl Future<Output = T>) -> T {
    let mut asked = std::pin::pin!(asked);
    match moment {
        Moment::Before | Moment::Stopped => return asked.await,
        Moment::After => drop(asked.await),
        Moment::During => {
            // Some steps of it: how far they lead is up to the machine.
            for _ in 0..16 {
                if futures::poll!(&mut asked).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
    meet(Signal::KILL);
    unreachable!("nobody survives SIGKILL");
}

#[async_trait]
impl Between for Fatal {
    async fn append(
        &self,
        store: &dyn Store,
        mut batch: Append,
    ) -> Result<Vec<Recorded>, StoreError> {
        match self.see(&mut batch) {
            None => store.append(batch).await,
            Some(moment) => end_in(moment, store.append(batch)).await,
        }
    }

    async fn post(&self, store: &dyn Store, mut batch: Append) -> Result<(), StoreError> {
        match self.see(&mut batch) {
            None => store.post(batch).await,
            Some(moment) => end_in(moment, store.post(batch)).await,
        }
    }

    fn may_own(&self, run: RunId) -> Result<(), StoreError> {
        if self.barren {
            return Err(StoreError::NotOwner { run, owner: "nobody".to_owned() });
        }
        Ok(())
    }
}
