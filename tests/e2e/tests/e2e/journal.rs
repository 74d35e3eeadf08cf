//! What a conversation and its tools have to say, on its way into a real log.

use std::sync::{Arc, atomic::Ordering};

use formwork_protocols::{
    EventBody, Journal, NewEvent, Principal, RunId, SessionId, SystemClock, SystemRng, Timestamp,
    event::SessionEnded,
};
use formwork_trace::{Options, Trace};
use futures::FutureExt as _;

use crate::watched::{self, Watched};

async fn memory() -> Trace {
    Trace::open("sqlite::memory:", Options::default()).await.unwrap()
}

fn journal(store: &Arc<Watched>) -> Journal {
    Journal::new(Arc::clone(store) as _, RunId::generate(&SystemClock, &SystemRng), None)
}

fn fact() -> NewEvent {
    let session = SessionId::generate(&SystemClock, &SystemRng);
    NewEvent {
        task: None,
        principal: Principal::system("test"),
        at: Timestamp::default(),
        body: EventBody::SessionEnded(SessionEnded { session, reason: "over".to_owned() }),
        idempotency_key: None,
    }
}

#[tokio::test]
async fn everything_gathered_goes_in_one_append() {
    let store = watched::open(memory().await);
    let journal = journal(&store);

    journal.put([fact(), fact()], []);
    journal.put([fact()], []);
    journal.flush().await.unwrap();
    journal.flush().await.unwrap();

    assert_eq!(store.between.appends(), [["session.ended"; 3]]);
}

#[tokio::test]
async fn what_was_posted_is_waited_for_by_the_next_who_flushes_and_not_written_again() {
    let store = watched::open(memory().await);
    let journal = journal(&store);

    journal.put([fact(), fact()], []);
    journal.post().await.unwrap();
    journal.post().await.unwrap();
    journal.flush().await.unwrap();
    journal.put([fact()], []);
    journal.flush().await.unwrap();

    // The one of nothing is how it waits.
    assert_eq!(store.between.appends(), [vec!["session.ended"; 2], vec![], vec!["session.ended"]]);
}

#[tokio::test]
async fn what_a_dropped_call_began_to_write_is_finished_by_the_next_and_written_once() {
    let store = watched::closed(memory().await);
    let journal = journal(&store);
    journal.put([fact()], []);

    let dropped = journal.flush().now_or_never();
    journal.put([fact(), fact()], []);
    store.between.let_pass(2);
    journal.flush().await.unwrap();

    assert_eq!(dropped, None);
    assert_eq!(store.between.appends(), [vec!["session.ended"], vec!["session.ended"; 2]]);
}

#[tokio::test]
async fn two_who_wait_are_both_served_by_one_append() {
    let store = watched::closed(memory().await);
    let journal = journal(&store);
    journal.put([fact()], []);

    let (first, second, ()) =
        tokio::join!(journal.flush(), journal.post(), async { store.between.let_pass(1) });

    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(store.between.appends(), [["session.ended"]]);
}

#[tokio::test]
async fn after_a_lost_append_nothing_is_written_any_more() {
    let store = watched::open(memory().await);
    let journal = journal(&store);
    journal.put([fact()], []);
    store.between.is_full.store(true, Ordering::SeqCst);
    let lost = journal.flush().await;

    store.between.is_full.store(false, Ordering::SeqCst);
    journal.put([fact()], []);
    let later = journal.post().await;

    assert!(lost.is_err());
    assert_eq!(later, lost, "what came before it is missing");
    assert!(store.between.appends().is_empty());
}
