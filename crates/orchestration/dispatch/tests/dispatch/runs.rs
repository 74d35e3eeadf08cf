//! What is done by events.

use std::sync::Arc;

use formwork_dispatch::{Failure, Until};
use formwork_protocols::{Cancel, EventBody};
use serde_json::json;

use crate::world::{World, log, on_both, origin, run_id};

on_both! {
    behaviour_36_every_filter_has_to_hold_and_each_event_is_given_once,
    behaviour_36_actions_are_done_in_their_order_and_all_is_in_the_log,
    behaviour_36_so_many_events_of_one_key_are_given_together,
    behaviour_36_events_are_gathered_until_their_time_is_over,
    behaviour_36_what_was_gathered_survives_the_process,
    behaviour_36_a_failed_action_is_tried_again_then_given_up_and_the_next_event_follows,
    behaviour_36_what_was_given_up_is_taken_up_where_it_failed_once_somebody_wants_it,
    behaviour_36_what_a_subscription_has_brought_about_does_not_come_back_to_it,
    behaviour_36_a_subscription_begins_now_or_with_the_log,
}

/// Takes whatever is fired, from the beginning of the log.
const EACH: &str = "name = \"each\"\nbegin = \"beginning\"\n[filter]\nkinds = [\"external.*\"]\n";

const TRUE: &str = "[[actions]]\ncommand = [\"true\"]\n";

async fn behaviour_36_every_filter_has_to_hold_and_each_event_is_given_once(world: World) {
    let text = format!(
        "name = \"all\"\nbegin = \"beginning\"\n[filter]\nkinds = [\"external.*\"]\nprincipals = [\"user:*\"]\n\
        run = \"{}\"\nworkflows = [\"flow\"]\nwhen = \"data.name == 'ready'\"\n{TRUE}",
        world.run
    );
    let host = world.host();
    host.origins.lock().unwrap().insert(run_id(2), origin("flow", &[]));
    let fired = |name: &str| json!({ "name": name });
    let wanted = world.fire("ready").await;
    world.fire("other").await;
    world.happen_in(world.run, "agent:coder", "external.fired", fired("ready")).await;
    world.happen_in(run_id(2), "user:ada", "external.fired", fired("ready")).await;
    world.happen_in(run_id(3), "user:ada", "external.fired", fired("ready")).await;
    world.happen("test.said", fired("ready")).await;

    let first = world.once(&host, &[&text]).await;
    let again = world.once(&host, &[&text]).await;
    let text = text.replace("workflows = [\"flow\"]", "workflows = [\"other\"]");
    let text = text.replace("name = \"all\"", "name = \"others\"");
    world.once(&host, &[&text]).await;

    assert_eq!(host.effects(), [format!("{wanted}.0#1")]);
    assert_eq!((first[0].delivered, again[0].delivered), (1, 0));
}

async fn behaviour_36_actions_are_done_in_their_order_and_all_is_in_the_log(world: World) {
    let text = format!("{EACH}{TRUE}[[actions]]\ncommand = [\"cat\"]\n");
    let host = world.host();
    let (one, two) = (world.fire("one").await, world.fire("two").await);

    world.once(&host, &[&text]).await;

    let wanted = [(one, 0), (one, 1), (two, 0), (two, 1)];
    assert_eq!(host.effects(), wanted.map(|(event, action)| format!("{event}.{action}#1")));
    let shown = host.documents.lock().unwrap()[1].clone();
    assert_eq!(shown["key"], format!("{}-{one}-1", log("each")));
    assert_eq!(
        (&shown["event"]["data"]["name"], &shown["workflow"]),
        (&json!("one"), &json!("flow"))
    );
    assert_eq!(shown.get("events"), None);
    let matched = ["dispatch.subscribed", "dispatch.matched", "dispatch.matched"];
    let done = ["dispatch.started", "dispatch.done"];
    let end = ["dispatch.delivered"];
    let kinds = [&matched[..], &done, &done, &end, &done, &done, &end].concat();
    assert_eq!(world.kinds("each").await, kinds);
    let events = world.events(log("each")).await;
    let by: Vec<_> = events[..2].iter().map(|event| event.principal.as_str()).collect();
    assert_eq!(by, ["user:ada", "subscription:each"]);
}

async fn behaviour_36_so_many_events_of_one_key_are_given_together(world: World) {
    let text =
        format!("{EACH}[accumulate]\ncount = 2\nwithin = \"10s\"\nkey = \"data.name\"\n{TRUE}");
    let host = world.host();
    let mut at = Vec::new();
    for (name, later) in [("a", 0), ("b", 1), ("a", 20), ("a", 5), ("b", 0), ("b", 3)] {
        world.clock.forward(later);
        at.push(world.fire(name).await);
    }

    world.once(&host, &[&text]).await;

    // The first `a` and the first `b` are too old by then.
    let documents = host.documents.lock().unwrap().clone();
    let given: Vec<_> = documents
        .iter()
        .map(|it| {
            (
                it["group"].as_str().unwrap(),
                it["events"][0]["position"].as_u64().unwrap(),
                it["delivery"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(given, [("a", at[2], at[3]), ("b", at[4], at[5])]);
    assert!(world.state("each").await.gathered.is_empty());
}

async fn behaviour_36_events_are_gathered_until_their_time_is_over(world: World) {
    let text = format!("{EACH}[accumulate]\nwithin = \"1m\"\n{TRUE}");
    let host = world.host();
    let first = world.fire("one").await;
    world.clock.forward(59);
    let last = world.fire("two").await;

    let before = world.once(&host, &[&text]).await;
    let effects = host.effects();
    world.clock.forward(1);
    let after = world.once(&host, &[&text]).await;

    assert_eq!((before[0].gathered, effects), (2, vec![]));
    assert_eq!((after[0].gathered, host.effects()), (0, vec![format!("{last}.0#1")]));
    assert_eq!(host.documents.lock().unwrap()[0]["events"][0]["position"], first);
}

async fn behaviour_36_what_was_gathered_survives_the_process(world: World) {
    let text = format!("{EACH}[accumulate]\ncount = 3\n{TRUE}");
    let host = world.host();

    for name in ["a", "b", "c", "d"] {
        world.fire(name).await;
        world.once(&host, &[&text]).await;
    }

    assert_eq!(host.effects().len(), 1);
    assert_eq!(host.documents.lock().unwrap()[0]["events"].as_array().unwrap().len(), 3);
    assert_eq!(world.state("each").await.gathered.len(), 1);
}

async fn behaviour_36_a_failed_action_is_tried_again_then_given_up_and_the_next_event_follows(
    world: World,
) {
    let text = format!("{EACH}{TRUE}retry = {{ attempts = 2, delay = \"5s\" }}\n{TRUE}");
    let bad = world.fire("bad").await;
    let good = world.fire("good").await;
    let host = world.host_that(move |job| {
        Some(match job.delivery.0 == bad {
            true => Err(Failure::Failed("it says no".to_owned())),
            false => Ok(String::new()),
        })
    });

    let first = world.once(&host, &[&text]).await;
    let waits = host.effects();
    world.clock.forward(4);
    let early = world.once(&host, &[&text]).await;
    world.clock.forward(1);
    let late = world.once(&host, &[&text]).await;

    assert_eq!(waits, [format!("{bad}.0#1")]);
    assert_eq!((first[0].waiting, early[0].failed, late[0].dead), (2, 0, 1));
    let wanted =
        [format!("{bad}.0#1"), format!("{bad}.0#2"), format!("{good}.0#1"), format!("{good}.1#1")];
    assert_eq!(host.effects(), wanted);
    let state = world.state("each").await;
    let letter = state.dead.values().next().unwrap();
    assert_eq!((letter.delivery.id().0, letter.reason.as_str()), (bad, "it says no"));
    assert_eq!((state.queue.len(), state.delivered), (0, 1));
}

async fn behaviour_36_what_was_given_up_is_taken_up_where_it_failed_once_somebody_wants_it(
    world: World,
) {
    let text = format!("{EACH}{TRUE}{TRUE}retry = {{ attempts = 1 }}\n{TRUE}");
    let event = world.fire("x").await;
    let broken = world.host_that(|job| {
        Some(match job.action {
            1 => Err(Failure::Final("broken".to_owned())),
            _ => Ok(String::new()),
        })
    });
    world.once(&broken, &[&text]).await;
    let whole = world.host();

    let unasked = world.once(&whole, &[&text]).await;
    world.retry("each", event).await;
    world.retry("each", event + 1_000).await;
    let asked = world.once(&whole, &[&text]).await;
    let again = world.once(&whole, &[&text]).await;

    assert_eq!(broken.effects(), [format!("{event}.0#1"), format!("{event}.1#1")]);
    assert_eq!(unasked[0].delivered, 0);
    assert_eq!(whole.effects(), [format!("{event}.1#1"), format!("{event}.2#1")]);
    assert_eq!((asked[0].delivered, again[0].delivered), (1, 0));
    assert!(world.state("each").await.dead.is_empty());
    let retried = world.events(log("each")).await;
    let retried = retried.iter().find(|it| matches!(it.body, EventBody::DispatchRetried(_)));
    assert_eq!(retried.unwrap().principal.as_str(), "user:bob");
}

async fn behaviour_36_what_a_subscription_has_brought_about_does_not_come_back_to_it(world: World) {
    let other = EACH.replace("each", "other");
    let (each, other) = (format!("{EACH}{TRUE}"), format!("{other}{TRUE}"));
    let host = world.host();
    host.origins.lock().unwrap().insert(run_id(2), origin("mend", &["each"]));
    host.origins.lock().unwrap().insert(run_id(3), origin("mend", &["each", "other"]));
    let mut at = Vec::new();
    for run in [world.run, run_id(2), run_id(3)] {
        let data = json!({ "name": "x" });
        at.push(world.happen_in(run, "user:ada", "external.fired", data).await);
    }

    let lanes = world.once(&host, &[&each, &other]).await;

    // What `each` has brought about is news to `other`, and what both have to nobody.
    assert_eq!((lanes[0].delivered, lanes[1].delivered), (1, 2));
    let mut effects = host.effects();
    effects.sort();
    assert_eq!(
        effects,
        [format!("{}.0#1", at[0]), format!("{}.0#1", at[0]), format!("{}.0#1", at[1])]
    );
}

async fn behaviour_36_a_subscription_begins_now_or_with_the_log(world: World) {
    let now = EACH.replace("beginning", "now").replace("each", "later");
    let texts = [format!("{EACH}{TRUE}"), format!("{now}{TRUE}")];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let host = world.host();
    world.fire("before").await;

    let first = world.once(&host, &texts).await;
    world.fire("after").await;
    let second = world.once(&host, &texts).await;

    let delivered = |lanes: &[formwork_dispatch::Lane]| (lanes[0].delivered, lanes[1].delivered);
    assert_eq!((delivered(&first), delivered(&second)), ((1, 0), (1, 1)));
}

/// A log that goes on is followed: what happens is done without another look from outside.
#[tokio::test]
async fn behaviour_36_what_happens_while_the_log_is_followed_is_done_at_once() {
    let world = World::sqlite().await;
    let host = world.host();
    let text = format!("{EACH}{TRUE}");
    let cancel = Cancel::new();
    let dispatcher = world.dispatcher(&host, &[&text]);
    let following = dispatcher.run(Until::Cancelled, &cancel);
    let acting = async {
        let (mut at, began) = (Vec::new(), Arc::clone(&host));
        for name in ["one", "two"] {
            at.push(world.fire(name).await);
            began.began.notified().await;
        }
        cancel.cancel();
        at
    };

    let (lanes, at) = tokio::join!(following, acting);

    assert_eq!(host.effects(), [format!("{}.0#1", at[0]), format!("{}.0#1", at[1])]);
    assert_eq!(lanes.unwrap()[0].dead, 0);
}
