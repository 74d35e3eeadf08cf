//! Tries that broke off after they had cost something: paid, told, and never more than there is.

use formwork_protocols::Usd;
use formwork_testkit::http::{Gate, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{ending, ends, held, saying},
    world::{World, end_of, on_postgres, signal},
};

/// What a lost try costs that has used 100 tokens of input and 10 of output, and what an answer of the same size does.
const TRY: i64 = 100 * 1_000 + 10 * 2_000;

/// A stream that says something, counts 100 tokens of input and 10 of output, and breaks off.
fn lost() -> Reply {
    let stream = saying("I will have thought about it.");
    let words = &stream[..stream.find("\"finish_reason\":\"stop\"").unwrap()];
    let whole = words.rfind("\n\n").unwrap() + 2;
    let counts =
        json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 10 } });
    Reply::event_stream().chunk(&words[..whole]).chunk(format!("data: {counts}\n\n")).cut()
}

fn nanos(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no money"));
    text.parse::<Usd>().unwrap().as_nanos()
}

/// Returns what reservations were settled at, all together.
async fn settled(world: &World) -> i64 {
    world.events("budget.settled").await.iter().map(|event| nanos(&event["data"]["usd"])).sum()
}

async fn what_was_lost_is_paid(world: World) {
    world.server.reply(&World::chat("one"), lost());
    world.server.reply(&World::chat("one"), ends("I have thought."));

    let ended = world.run(["run", "-m", "Think about it."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = json!({
        "usage": { "input": 100, "cache_read": 0, "cache_write": 0, "output": 10, "reasoning": 0 },
        "cost": Usd::from_nanos(TRY).to_string(),
        "estimated": false,
    });
    let retried = &world.events("model.retried").await[0]["data"];
    assert_eq!(retried["lost"], told, "{retried:#}");
    let completed = &world.events("model.completed").await[0]["data"];
    assert_eq!((nanos(&completed["cost"]), &completed["lost"]), (TRY, &told), "{completed:#}");
    assert_eq!(settled(&world).await, 2 * TRY);

    // Whatever is asked tells the same.
    let shown = world.shown().await;
    assert_eq!(nanos(&shown["run"]["cost"]), 2 * TRY, "{shown:#}");
    assert_eq!(
        (&shown["run"]["usage"]["input"], &shown["run"]["usage"]["output"]),
        (&200.into(), &20.into())
    );
    assert_eq!(nanos(&shown["tasks"][0]["cost"]), 2 * TRY, "{shown:#}");
    let spend = world.json(["spend"]).await;
    assert_eq!(
        (nanos(&spend["total"]["cost"]), nanos(&spend["unanswered"])),
        (TRY, TRY),
        "{spend:#}"
    );
    let cost = Usd::from_nanos(2 * TRY).to_string();
    assert!(ended.last_line().contains(&cost), "{ended:#?}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    let verified = world.run(["db", "verify"]).await;
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_try_that_broke_off_after_its_usage_is_paid_beside_the_answer() {
    what_was_lost_is_paid(World::new().await).await;
}

#[tokio::test]
async fn pg_a_try_that_broke_off_after_its_usage_is_paid_beside_the_answer() {
    on_postgres(what_was_lost_is_paid).await;
}

async fn another_try_is_only_made_if_it_can_be_paid(world: World) {
    let task = ["run", "-m", "Think about it.", "--usd"];
    // What a call sets aside is learned from a run that may spend what it likes.
    world.server.reply(&World::chat("one"), ends("I have thought."));
    assert_eq!(world.run(task.into_iter().chain(["1"])).await.code, Some(0));
    let reserved = nanos(&world.events("budget.reserved").await[0]["data"]["usd"]);
    let budget = |nanos: i64| Usd::from_nanos(nanos).to_string();

    world.server.reply(&World::chat("one"), lost());
    let short = world.run(task.into_iter().chain([budget(reserved + TRY / 2).as_str()])).await;
    let asked_short = world.server.requests().len();
    let shown = world.shown().await;
    let spend = world.json(["spend", shown["run"]["run"].as_str().unwrap()]).await;
    let replayed = world.json(["replay"]).await;
    world.server.reply(&World::chat("one"), lost());
    world.server.reply(&World::chat("one"), ends("I have thought."));
    let enough = world.run(task.into_iter().chain([budget(reserved + 2 * TRY).as_str()])).await;

    assert_eq!((short.code, asked_short), (Some(2), 2), "{short:#?}");
    assert!(short.last_line().starts_with("refused"), "{short:#?}");
    let failed = &world.events("model.failed").await[0]["data"];
    assert_eq!((&failed["unaffordable"], nanos(&failed["lost"]["cost"])), (&true.into(), TRY));
    assert!(failed["error"]["message"].as_str().unwrap().contains("cut"), "{failed:#}");
    assert_eq!(shown["tasks"][0]["ending"]["why"]["reason"], "budget_exhausted", "{shown:#}");
    assert_eq!(nanos(&shown["run"]["cost"]), TRY, "{shown:#}");
    assert_eq!(
        (nanos(&spend["total"]["cost"]), nanos(&spend["unanswered"])),
        (0, TRY),
        "{spend:#}"
    );
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    assert_eq!((enough.code, world.server.requests().len()), (Some(0), 4), "{enough:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn another_try_is_not_sent_if_no_budget_bears_it_beside_what_was_lost() {
    another_try_is_only_made_if_it_can_be_paid(World::new().await).await;
}

#[tokio::test]
async fn pg_another_try_is_not_sent_if_no_budget_bears_it_beside_what_was_lost() {
    on_postgres(another_try_is_only_made_if_it_can_be_paid).await;
}

async fn what_was_lost_outlives_its_process(world: World) {
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), lost());
    world.server.reply(&World::chat("one"), held(&gate, &ending("never heard")));
    world.server.reply(&World::chat("one"), ends("I have thought."));
    let program = world.formwork(["run", "-m", "Think about it."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let reserved = nanos(&world.events("budget.reserved").await[0]["data"]["usd"]);
    let paid: Vec<i64> = world
        .events("budget.settled")
        .await
        .iter()
        .map(|event| nanos(&event["data"]["usd"]))
        .collect();
    // What the killed try cost nobody knows: the most that it can be, beside what was lost before it.
    assert_eq!(paid, [reserved + TRY, TRY]);
    let shown = world.shown().await;
    assert_eq!(nanos(&shown["run"]["cost"]), reserved + 2 * TRY, "{shown:#}");
    assert!(
        resumed.last_line().contains(&Usd::from_nanos(reserved + 2 * TRY).to_string()),
        "{resumed:#?}"
    );
    world.assert_sound().await;
}

#[tokio::test]
async fn what_was_lost_before_a_crash_is_paid_after_it() {
    what_was_lost_outlives_its_process(World::new().await).await;
}

#[tokio::test]
async fn pg_what_was_lost_before_a_crash_is_paid_after_it() {
    on_postgres(what_was_lost_outlives_its_process).await;
}

#[tokio::test]
async fn what_a_model_lost_before_another_took_its_place_is_paid_at_its_own_price() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let first = "[models.\"one/m\"]\nprice = { input = \"1\", output = \"2\" }\n";
    let dear = "[models.\"one/m\"]\nprice = { input = \"50\", output = \"100\" }\nfallback = [\"two/m\"]\n";
    std::fs::write(world.config_file(), config.replace(first, dear)).unwrap();
    for _ in 0..3 {
        world.server.reply(&World::chat("one"), lost());
    }
    world.server.reply(&World::chat("two"), ends("I have thought."));

    let ended = world.run(["run", "-m", "Think about it."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let mut tries = world.events("model.retried").await;
    tries.extend(world.events("model.fell_back").await);
    let costs: Vec<i64> = tries.iter().map(|event| nanos(&event["data"]["lost"]["cost"])).collect();
    assert_eq!(costs, [50 * TRY; 3]);
    let completed = &world.events("model.completed").await[0]["data"];
    assert_eq!((nanos(&completed["cost"]), nanos(&completed["lost"]["cost"])), (TRY, 150 * TRY));
    assert_eq!(settled(&world).await, 151 * TRY);
    world.assert_sound().await;
}
