//! What becomes of calls.

use std::time::Duration;

use formwork_protocols::{Cancel, Replay, ToolErrorKind};
use formwork_worker::{FromWorker, Status};
use serde_json::json;

use crate::world::{QUICK, Tools, World, near};

#[tokio::test]
async fn behaviour_39_a_call_is_carried_out_by_a_worker_and_says_by_which() {
    let world = World::new().await;
    let (tools, _) = Tools::new("a");
    let mut worker = world.worker("a", tools, 2);

    let done = world.call("look").await.unwrap();

    assert_eq!(done.text, "look by a of \"it\"");
    assert_eq!(done.worker.unwrap().as_str(), "a");
    assert!(matches!(worker.said.recv().await, Some(Status::Connected { .. })));
    assert!(world.told.kinds().ends_with(&["worker.connected".to_owned()]));
    worker.cancel.cancel();
    worker.done.await.unwrap().unwrap();
    assert!(world.until(<[_]>::is_empty).await.is_empty());
}

#[tokio::test]
async fn behaviour_39_a_call_longer_than_many_signs_of_life_does_not_break_them() {
    let times = formwork_worker::Times { silence: Duration::from_millis(200), ..QUICK };
    let world = World::with(times, Duration::from_secs(20)).await;
    let (tools, mut begins) = Tools::new("a");
    let _worker = world.worker("a", tools.clone(), 1);
    let (calling, _) = world.begin("wait", Replay::Once);
    assert_eq!(begins.recv().await.unwrap(), "wait");
    let before = world.hub.workers()[0].beats;

    // As many as are given in five times the silence after which it would be taken for gone.
    world.until(|rows| rows[0].beats >= before + 20).await;
    tools.let_go();

    assert_eq!(calling.await.unwrap().unwrap().text, "wait by a of \"it\"");
    assert!(!world.told.kinds().contains(&"worker.lost".to_owned()));
}

#[tokio::test]
async fn behaviour_39_an_error_at_the_far_end_is_the_error_of_the_call() {
    let world = World::new().await;
    let (tools, _) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);

    let broke = world.call("break").await.unwrap_err();
    let lacks = world.call("fly").await.unwrap_err();

    assert_eq!(broke.kind, ToolErrorKind::OutcomeUnknown);
    assert_eq!(broke.message, "the tool broke off in the middle of it");
    assert_eq!(lacks.kind, ToolErrorKind::UnknownTool);
    assert_eq!(lacks.message, "worker a has no fly; it has break, look, until, wait");
    assert!([broke, lacks].iter().all(|it| it.worker.as_ref().unwrap().as_str() == "a"));
    assert_eq!(world.call("look").await.unwrap().text, "look by a of \"it\"");
}

#[tokio::test]
async fn behaviour_39_a_tool_of_another_schema_is_another_tool() {
    let world = World::new().await;
    let mut hand = world.hand(crate::world::TOKEN).await;
    let mut hello = crate::world::hello("a", "one");
    hello.tools[0].schema = formwork_protocols::BlobHash::of(b"another");
    hand.say(&FromWorker::Hello(hello)).await;

    let error = world.call("look").await.unwrap_err();

    assert_eq!(error.kind, ToolErrorKind::UnknownTool);
    assert!(error.message.starts_with("worker a has another look"), "{}", error.message);
}

#[tokio::test]
async fn behaviour_39_a_call_that_is_cancelled_ends_at_the_far_end() {
    let world = World::new().await;
    let (tools, mut begins) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);
    let (calling, cancel) = world.begin("until", Replay::Once);
    begins.recv().await.unwrap();

    cancel.cancel();

    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ToolErrorKind::Cancelled, "cancelled at the far end")
    );
    world.until(|rows| rows[0].at_work == 0).await;
}

#[tokio::test]
async fn behaviour_39_a_call_that_nobody_waits_for_any_more_ends_at_the_far_end() {
    let world = World::new().await;
    let (tools, mut begins) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);
    let (calling, _) = world.begin("until", Replay::Once);
    begins.recv().await.unwrap();

    calling.abort();

    // Its slot is free again: it has ended there.
    let (calling, cancel) = world.begin("until", Replay::Once);
    begins.recv().await.unwrap();
    cancel.cancel();
    assert_eq!(calling.await.unwrap().unwrap_err().kind, ToolErrorKind::Cancelled);
}

#[tokio::test]
async fn behaviour_39_a_call_whose_time_is_over_ends_at_the_far_end() {
    let world = World::new().await;
    let (tools, _) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);
    world.until(|rows| !rows.is_empty()).await;

    let tool = world.bounded("until", Replay::Once, Duration::from_millis(50));
    let ended = tool.call(&world.context, json!({}), &Cancel::new()).await.unwrap_err();

    assert_eq!(ended.kind, ToolErrorKind::Cancelled);
    assert_eq!(world.call("look").await.unwrap().text, "look by a of \"it\"");
}

#[tokio::test]
async fn behaviour_39_a_worker_is_given_no_more_calls_than_it_takes() {
    let world = World::new().await;
    let (tools, mut begins) = Tools::new("a");
    let _worker = world.worker("a", tools.clone(), 2);
    world.until(|rows| !rows.is_empty()).await;
    let calls: Vec<_> = (0..6).map(|_| world.begin("wait", Replay::Once).0).collect();

    begins.recv().await.unwrap();
    begins.recv().await.unwrap();
    let rows = world.until(|rows| rows[0].queued == 4).await;

    assert_eq!((rows[0].at_work, rows[0].slots), (2, 2));
    assert!(begins.try_recv().is_err());
    for call in calls {
        tools.let_go();
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn behaviour_39_without_a_worker_a_call_waits_with_a_word_and_not_for_ever() {
    let world = World::new().await;
    let (calling, _) = world.begin("look", Replay::Once);
    assert_eq!(
        world.told.of("worker.awaited").await,
        "waits for a worker with label gpu: none is connected"
    );
    let (tools, _) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);
    assert!(calling.await.unwrap().is_ok());

    let alone = World::with(QUICK, Duration::from_millis(20)).await;
    let error = alone.call("look").await.unwrap_err();

    assert_eq!(error.message, "no worker with label gpu was connected within 20ms");
}

#[tokio::test]
async fn behaviour_39_all_calls_of_a_run_go_to_one_worker_and_runs_to_those_with_room() {
    let world = World::new().await;
    let ((one, _), (other, _)) = (Tools::new("a"), Tools::new("b"));
    let (_a, _b) = (world.worker("a", one, 1), world.worker("b", other, 1));
    world.until(|rows| rows.len() == 2).await;

    for _ in 0..4 {
        assert_eq!(world.call("look").await.unwrap().text, "look by a of \"it\"");
    }
    // One that was taken up by this process goes on where it was.
    let taken_up = near(&world.hub, &world.told, Some("b"), Duration::from_secs(5));
    let name = taken_up.ready(world.context.task, &Cancel::new()).await.unwrap();
    assert_eq!(name.as_str(), "b");
}

#[tokio::test]
async fn a_call_too_long_for_a_frame_is_refused_before_it_is_sent() {
    let world = World::new().await;
    let (tools, _) = Tools::new("a");
    let _worker = world.worker("a", tools, 1);
    let tool = world.tool("look", Replay::Pure);

    let long = json!({ "of": "x".repeat(formwork_worker::MAX_CALL_BYTES) });
    let error = tool.call(&world.context, long, &Cancel::new()).await.unwrap_err();
    let much = json!({ "of": "x".repeat(3 << 20) });
    let done = tool.call(&world.context, much, &Cancel::new()).await.unwrap();

    assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
    assert!(done.text.len() > 3 << 20);
}
