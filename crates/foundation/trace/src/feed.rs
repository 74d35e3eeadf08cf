//! What those who watch receive: events in the order of their positions, each once, and words.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use formwork_protocols::{Event, Live, Position, StoreError, event::Delta};
use futures::{StreamExt as _, stream, stream::BoxStream};
use sqlx::postgres::PgListener;
use tokio::{
    sync::{Notify, broadcast},
    time::sleep,
};

use crate::{
    database::{Database, Engine, Pool},
    plan::Answer,
    read,
};

/// How many events and deltas a watcher may lie behind before it has to read from the store.
const BEHIND: usize = 4096;

/// How many events are read at once when another process wrote.
const PAGE: usize = 512;

/// How often a SQLite file is asked whether another process wrote. It costs some 20 us.
const ASK: Duration = Duration::from_millis(50);

/// How often PostgreSQL is asked, in case a notification was lost.
const ASK_ANYWAY: Duration = Duration::from_secs(1);

/// How long it takes until other processes are told of the next commits. Whoever waits for the first hears of it at once;
/// a server that commits all the time is not asked to tell of each.
const TELL_AGAIN: Duration = Duration::from_millis(5);

/// The channel on which processes that share a PostgreSQL wake one another.
pub(crate) const CHANNEL: &str = "formwork_events";

/// Hands events to those who watch.
pub(crate) struct Feed {
    state: Mutex<State>,
    behind: Notify,
    committed: Notify,
}

struct State {
    /// The position up to which events were handed on.
    last: u64,
    /// The highest position that this process has committed, and that it has told others of.
    top: u64,
    told: u64,
    /// Made for the first who watches: its places are a good part of what opening a store costs.
    sender: Option<broadcast::Sender<Live>>,
    is_closed: bool,
}

impl State {
    fn is_watched(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0)
    }

    fn send(&self, live: Live) {
        if let Some(sender) = &self.sender {
            // It fails where nobody watches, and then nobody misses it.
            let _ = sender.send(live);
        }
    }
}

impl Feed {
    pub(crate) fn new(last: u64) -> Self {
        Self {
            state: Mutex::new(State {
                last,
                top: last,
                told: last,
                sender: None,
                is_closed: false,
            }),
            behind: Notify::new(),
            committed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on what this process has just committed; the events are made only where somebody watches.
    ///
    /// Where another process wrote in between, those events come first: they are read from the store.
    pub(crate) fn committed(&self, answers: &[Answer], events: impl FnOnce() -> Vec<Event>) {
        let new = || answers.iter().flatten().flatten().filter(|place| !place.duplicate);
        let (Some(first), Some(end)) = (new().next(), new().next_back()) else { return };
        let (first, end) = (first.position.0, end.position.0);
        let mut state = self.state();
        state.top = state.top.max(end);
        if !state.is_watched() {
            state.last = state.last.max(end);
        } else if first == state.last + 1 {
            for event in events() {
                state.send(Live::Event(Arc::new(event)));
            }
            state.last = end;
        } else {
            self.behind.notify_one();
        }
        drop(state);
        self.committed.notify_one();
    }

    pub(crate) fn publish(&self, delta: Delta) {
        let state = self.state();
        if state.is_watched() {
            state.send(Live::Delta(Arc::new(delta)));
        }
    }

    pub(crate) fn watch(&self) -> BoxStream<'static, Live> {
        let mut state = self.state();
        if state.is_closed {
            return stream::empty().boxed();
        }
        let sender = state.sender.get_or_insert_with(|| broadcast::Sender::new(BEHIND));
        let start = (sender.subscribe(), state.last);
        stream::unfold(start, |(mut receiver, last)| async move {
            match receiver.recv().await {
                Ok(Live::Event(event)) => {
                    let last = event.position.0;
                    Some((Live::Event(event), (receiver, last)))
                }
                Ok(live) => Some((live, (receiver, last))),
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    Some((Live::Lagged(Position(last)), (receiver, last)))
                }
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
        .boxed()
    }

    /// Ends every watcher's stream.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        (state.sender, state.is_closed) = (None, true);
    }

    /// Hands on what other processes wrote, for ever.
    pub(crate) async fn follow(self: Arc<Self>, database: Database) {
        let mut listener = None;
        loop {
            match database.engine {
                Engine::Sqlite => tokio::select! {
                    () = self.behind.notified() => {}
                    () = sleep(ASK) => {}
                },
                Engine::Postgres => {
                    if listener.is_none() {
                        listener = listen(&database).await;
                    }
                    tokio::select! {
                        () = self.behind.notified() => {}
                        () = sleep(ASK_ANYWAY) => {}
                        heard = hear(&mut listener) => match heard {
                            Heard::Nothing => listener = None,
                            // As all do that this process has told of itself.
                            Heard::Upto(position) if position <= self.state().last => continue,
                            Heard::Upto(_) | Heard::Something => {}
                        },
                    }
                }
            }
            if let Err(error) = self.catch_up(&database).await {
                tracing::debug!(%error, "the store could not be followed; it is asked again");
            }
        }
    }

    /// Hands on what was committed in another way than by an append.
    pub(crate) async fn changed(&self, database: &Database) {
        if let Err(error) = self.catch_up(database).await {
            tracing::debug!(%error, "the store could not be followed; it is asked again");
        }
        {
            let mut state = self.state();
            state.top = state.top.max(state.last);
        }
        self.committed.notify_one();
    }

    async fn catch_up(&self, database: &Database) -> Result<(), StoreError> {
        let head = read::head(database).await?;
        loop {
            let last = {
                let mut state = self.state();
                if !state.is_watched() {
                    state.last = state.last.max(head);
                }
                state.last
            };
            if last >= head {
                return Ok(());
            }
            let events = read::page(database, last, PAGE).await?;
            if events.is_empty() {
                return Ok(());
            }
            let mut state = self.state();
            for event in events {
                if event.position.0 > state.last {
                    state.last = event.position.0;
                    state.send(Live::Event(Arc::new(event)));
                }
            }
        }
    }

    /// Tells other processes of commits, for ever: many commits in one notification.
    ///
    /// It has a connection of its own: PostgreSQL commits those who notify one after another.
    pub(crate) async fn tell(self: Arc<Self>, database: Database) {
        loop {
            self.committed.notified().await;
            self.tell_now(&database).await;
            sleep(TELL_AGAIN).await;
        }
    }

    /// Tells other processes of what they were not told of yet.
    pub(crate) async fn tell_now(&self, database: &Database) {
        let (top, last) = {
            let state = self.state();
            if state.told >= state.top {
                return;
            }
            (state.top, state.top.max(state.last))
        };
        let told = async {
            let mut connection = database.read.acquire().await?;
            connection
                .script(format!(
                    "BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}, '{last}'; COMMIT"
                ))
                .await
        };
        match told.await {
            Ok(()) => self.state().told = top,
            Err(error) => {
                tracing::debug!(%error, "other processes were not told; they ask by themselves");
            }
        }
    }
}

async fn listen(database: &Database) -> Option<PgListener> {
    let Pool::Postgres(pool) = &database.read else { return None };
    let mut listener = PgListener::connect_with(pool).await.ok()?;
    listener.listen(CHANNEL).await.ok()?;
    Some(listener)
}

/// What a process that shares the database tells of its commits.
enum Heard {
    /// That everything up to this position is there to be read.
    Upto(u64),
    /// Something else: it is looked what there is.
    Something,
    /// The connection broke.
    Nothing,
}

/// Waits for a notification; for ever where nobody listens.
async fn hear(listener: &mut Option<PgListener>) -> Heard {
    match listener {
        Some(listener) => match listener.try_recv().await {
            Ok(Some(told)) => told.payload().parse().map_or(Heard::Something, Heard::Upto),
            _ => Heard::Nothing,
        },
        None => futures::future::pending().await,
    }
}
