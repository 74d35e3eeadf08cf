//! Workers that go: their calls are settled by what a second time would do.

use std::time::Duration;

use formwork_protocols::{Replay, ToolErrorKind};
use formwork_worker::{FromWorker, Status, Times};

use crate::world::{QUICK, Tools, World};

#[tokio::test]
async fn behaviour_39_a_lost_workers_call_that_changes_nothing_is_given_to_another() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Idempotent);
    let first = hand.call().await;
    let (tools, _) = Tools::new("b");
    let _other = world.worker("b", tools, 1);

    drop(hand);

    let done = calling.await.unwrap().unwrap();
    assert_eq!((first.epoch, done.worker.unwrap().as_str()), (1, "b"));
    assert_eq!(
        done.text,
        "[worker a was lost: b answers from here on, and its workspace is its own. What was changed at a is not there.]\n\
         look by b of \"it\""
    );
    let kinds = world.told.kinds();
    assert_eq!(kinds[kinds.len() - 3..], ["worker.connected", "worker.lost", "worker.connected"]);
}

#[tokio::test]
async fn behaviour_39_a_lost_workers_call_that_may_have_taken_effect_is_not_made_again() {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let (tools, _) = Tools::new("b");
    let (calling, _) = world.begin("look", Replay::Once);
    hand.call().await;
    let _other = world.worker("b", tools.clone(), 1);

    drop(hand);

    let error = calling.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.worker.unwrap().as_str()), (ToolErrorKind::OutcomeUnknown, "a"));
    assert!(error.message.ends_with("and it is not made again by itself"), "{}", error.message);
    assert!(tools.begun.lock().unwrap().is_empty());
    let lost = world.told.of("worker.lost").await;
    assert!(lost.contains("it did not come back within 100ms"), "{lost}");
}

#[tokio::test]
async fn behaviour_39_a_call_that_its_worker_was_never_given_is_made_by_another() {
    let world = World::new().await;
    let mut hand = world.hand(crate::world::TOKEN).await;
    // It takes no calls.
    hand.say(&FromWorker::Hello(crate::world::hello("a", "one"))).await;
    world.until(|rows| !rows.is_empty()).await;
    let (calling, _) = world.begin("look", Replay::Once);
    world.until(|rows| rows[0].queued == 1).await;
    let (tools, _) = Tools::new("b");
    let _other = world.worker("b", tools, 1);

    hand.say(&FromWorker::Bye {}).await;

    assert_eq!(calling.await.unwrap().unwrap().worker.unwrap().as_str(), "b");
}

#[tokio::test]
async fn behaviour_39_a_worker_that_hangs_is_lost_though_its_connection_stands() {
    let times = Times { silence: Duration::from_millis(100), ..QUICK };
    let world = World::with(times, Duration::from_secs(20)).await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    hand.call().await;

    let error = calling.await.unwrap().unwrap_err();

    assert_eq!(error.kind, ToolErrorKind::OutcomeUnknown);
    assert!(world.told.of("worker.lost").await.contains("nothing was heard of it for 100ms"));
}

#[tokio::test]
async fn behaviour_39_a_worker_that_gives_signs_of_life_and_no_answer_does_not_hold_a_call_for_ever()
 {
    let world = World::new().await;
    let mut hand = world.by_hand("a", "one").await;
    let tool = world.bounded("look", Replay::Once, Duration::from_millis(50));
    let context = world.context.clone();
    let calling = crate::world::spawn(async move {
        tool.call(&context, serde_json::json!({}), &formwork_protocols::Cancel::new()).await
    });
    let of = hand.call().await;

    let error = calling.await.unwrap().unwrap_err();

    assert_eq!(error.kind, ToolErrorKind::OutcomeUnknown);
    assert!(error.message.contains("it did not end the call when it was asked to"));
    hand.answer(of, "too late").await;
    assert_eq!(
        world.told.of("worker.refused").await,
        "an answer of worker a was refused: lease 1 was settled before"
    );
}

#[tokio::test]
async fn behaviour_39_a_worker_that_comes_back_in_time_hands_in_what_it_did_meanwhile() {
    let times = Times { grace: Duration::from_secs(20), ..QUICK };
    let world = World::with(times, Duration::from_secs(20)).await;
    let hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    let mut hand = hand;
    let of = hand.call().await;
    drop(hand);
    world.until(|rows| !rows[0].connected).await;

    let mut again = world.hand(crate::world::TOKEN).await;
    again.say(&FromWorker::Hello(crate::world::hello("a", "one"))).await;
    let formwork_worker::ToWorker::Welcome { open, .. } = again.hear().await else {
        panic!("not welcome")
    };
    again.answer(of, "done meanwhile").await;

    assert_eq!(open, [of]);
    assert_eq!(calling.await.unwrap().unwrap().text, "done meanwhile");
    assert!(!world.told.kinds().contains(&"worker.lost".to_owned()));
}

#[tokio::test]
async fn behaviour_39_a_process_of_the_same_name_knows_nothing_of_what_the_one_before_held() {
    let times = Times { grace: Duration::from_secs(20), ..QUICK };
    let world = World::with(times, Duration::from_secs(20)).await;
    let mut hand = world.by_hand("a", "one").await;
    let (calling, _) = world.begin("look", Replay::Once);
    hand.call().await;

    let _again = world.by_hand("a", "two").await;

    let error = calling.await.unwrap().unwrap_err();
    assert!(error.message.contains("another process came under its name"), "{}", error.message);
    assert_eq!(hand.next().await, None);
}

#[tokio::test]
async fn behaviour_39_a_worker_that_leaves_ends_its_calls_and_says_so() {
    let world = World::new().await;
    let (tools, mut begins) = Tools::new("a");
    let mut worker = world.worker("a", tools, 1);
    let (calling, _) = world.begin("until", Replay::Once);
    begins.recv().await.unwrap();

    worker.cancel.cancel();

    worker.done.await.unwrap().unwrap();
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ToolErrorKind::Cancelled, "cancelled at the far end")
    );
    let mut said = Vec::new();
    while let Some(status) = worker.said.recv().await {
        said.push(status);
    }
    assert_eq!(said.last(), Some(&Status::Leaving { ended: 1 }));
    assert!(world.until(<[_]>::is_empty).await.is_empty());
}
