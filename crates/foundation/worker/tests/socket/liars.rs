//! Workers that do not keep to what was agreed.

use formwork_protocols::{Replay, ToolErrorKind};
use formwork_worker::{FromWorker, Lease};

use crate::world::World;

#[tokio::test]
async fn behaviour_39_a_second_answer_is_refused_and_recorded() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    let of = hand.call().await;

    hand.answer(of, "first").await;
    hand.answer(of, "second").await;

    assert_eq!(calling.await.unwrap().unwrap().text, "first");
    assert_eq!(
        world.told.of("worker.refused").await,
        "an answer of worker a was refused: lease 1 was settled before"
    );
    assert_eq!(world.hub.workers()[0].refused, 1);
}

#[tokio::test]
async fn behaviour_39_an_answer_with_another_epoch_is_refused_and_recorded() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    let of = hand.call().await;

    hand.answer(Lease { epoch: 7, ..of }, "a lie").await;
    hand.answer(of, "the truth").await;

    assert_eq!(calling.await.unwrap().unwrap().text, "the truth");
    assert_eq!(
        world.told.of("worker.refused").await,
        "an answer of worker a was refused: epoch 7 of lease 1 is not the present one, which is 1"
    );
}

#[tokio::test]
async fn behaviour_39_the_answer_of_a_worker_that_lost_its_call_does_not_count() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Pure);
    let of = hand.call().await;
    // It comes back as another process, is given the call again, and answers for the one before.
    let mut again = world.by_hand("a", "two").await;
    let anew = again.call().await;

    again.answer(of, "of the one before").await;
    again.answer(anew, "anew").await;

    assert_eq!(anew, Lease { epoch: 2, ..of });
    assert!(calling.await.unwrap().unwrap().text.ends_with("anew"));
    assert!(world.told.of("worker.refused").await.contains("epoch 1 of lease 1"));
}

#[tokio::test]
async fn behaviour_39_a_worker_does_not_answer_for_another() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    let of = hand.call().await;
    let mut other = world.by_hand("b", "two").await;

    other.answer(of, "by another").await;
    assert!(world.told.of("worker.refused").await.ends_with("lease 1 is not its own"));
    hand.answer(of, "by its own").await;

    assert_eq!(calling.await.unwrap().unwrap().text, "by its own");
}

#[tokio::test]
async fn behaviour_39_a_worker_whose_answers_are_refused_again_and_again_is_given_up() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;

    for lease in 100..200 {
        hand.answer(Lease { lease, epoch: 1 }, "of nothing").await;
    }

    while hand.next().await.is_some() {}
    assert!(world.until(<[_]>::is_empty).await.is_empty());
}

#[tokio::test]
async fn behaviour_39_an_answer_that_cannot_be_read_is_an_outcome_that_is_not_known() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Pure);
    let of = hand.call().await;

    hand.say(&FromWorker::Part { of, text: "{\"answer\":\"comp".to_owned() }).await;
    hand.say(&FromWorker::Done { of, parts: 1 }).await;

    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::OutcomeUnknown);
    assert!(error.message.contains("cannot be read"), "{}", error.message);
}

#[tokio::test]
async fn behaviour_39_an_answer_without_end_is_not_kept() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Pure);
    let of = hand.call().await;

    let text = "x".repeat(1_000_000);
    for _ in 0..30 {
        hand.say(&FromWorker::Part { of, text: text.clone() }).await;
    }
    hand.say(&FromWorker::Done { of, parts: 30 }).await;

    let error = calling.await.unwrap().unwrap_err();
    assert!(
        error.message.contains("its answer of 30000000 bytes cannot be read"),
        "{}",
        error.message
    );
}
