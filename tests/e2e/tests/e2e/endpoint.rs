//! Endpoints that are dead, refuse, break off or fall silent.

use std::time::{Duration, Instant};

use formwork_testkit::http::Reply;
use serde_json::Value;

use crate::{
    answers::{captured, ends, saying},
    world::{Ended, World, on_postgres},
};

/// Within which a person is told that nobody answers. It ends at once; a busy machine has its share.
const SOON: Duration = Duration::from_secs(10);

/// Clocks that a test can wait for, longer than a healthy answer takes on a busy machine.
const SHORT: &str = "[permissions]\nmode = \"auto\"\n[providers.one.clocks]\nconnect = \"2s\"\n\
                     first_token = \"2s\"\nprogress = \"2s\"\n";

/// How a task in words ended whose model was answered for by `replies`, one after the other.
struct Asked {
    ended: Ended,
    /// The faults of the tries that others followed.
    retried: Vec<String>,
    /// The faults of the calls that failed.
    failed: Vec<String>,
    requests: usize,
}

async fn ask(world: &World, replies: impl IntoIterator<Item = Reply>) -> Asked {
    for reply in replies {
        world.server.reply(&World::chat("one"), reply);
    }
    let ended = world.run(["run", "-m", "Think about it."]).await;
    let faults = |events: Vec<Value>| {
        let fault = |event: &Value| event["data"]["error"]["fault"].as_str().unwrap().to_owned();
        events.iter().map(fault).collect()
    };
    world.assert_sound().await;
    Asked {
        ended,
        retried: faults(world.events("model.retried").await),
        failed: faults(world.events("model.failed").await),
        requests: world.server.requests().len(),
    }
}

fn half(text: &str) -> Reply {
    let stream = saying(text);
    Reply::event_stream().chunk(&stream[..stream.find("data: [DONE]").unwrap() / 2])
}

#[track_caller]
fn assert_recovered(asked: &Asked, retried: &[&str]) {
    assert_eq!(asked.ended.code, Some(0), "{:#?}", asked.ended);
    assert!(asked.ended.stdout.contains("I have thought."), "{:#?}", asked.ended);
    assert_eq!(asked.retried, retried);
    assert!(asked.failed.is_empty(), "{:?}", asked.failed);
    assert_eq!(asked.requests, retried.len() + 1);
}

#[track_caller]
fn assert_failed(asked: &Asked, fault: &str, requests: usize, cause: &str) {
    assert_eq!(asked.ended.code, Some(1), "{:#?}", asked.ended);
    assert!(asked.ended.last_line().starts_with("failed"), "{:#?}", asked.ended);
    assert!(asked.ended.stdout.contains(cause), "{:#?}", asked.ended);
    assert_eq!(asked.failed, [fault]);
    assert_eq!((asked.retried.len(), asked.requests), (requests - 1, requests));
}

#[tokio::test]
async fn a_dead_endpoint_is_told_at_once_with_its_cause() {
    let world = World::new().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = world.providers(&format!("http://{closed}"));
    std::fs::write(world.config_file(), config).unwrap();

    let began = Instant::now();
    let asked = ask(&world, []).await;

    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(asked.ended.code, Some(1), "{:#?}", asked.ended);
    assert!(asked.ended.last_line().contains("refused"), "{:#?}", asked.ended);
    assert_eq!(asked.failed, ["transport"]);
    assert_eq!(asked.retried, ["transport", "transport"]);
}

#[tokio::test]
async fn a_wrong_key_ends_the_run_with_one_request() {
    let world = World::new().await;

    let asked = ask(&world, [Reply::captured(captured("llama.cpp/err.auth.wrong.res.http"))]).await;

    assert_failed(&asked, "auth", 1, "Invalid API Key");
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_after_the_time_it_asks_for() {
    let world = World::new().await;
    let busy = Reply::json(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "1");

    let asked = ask(&world, [busy, ends("I have thought.")]).await;

    assert_recovered(&asked, &["throttled"]);
    let retried = world.events("model.retried").await;
    assert_eq!(
        (&retried[0]["data"]["attempt"], &retried[0]["data"]["wait"]),
        (&1.into(), &"1s".into())
    );
}

#[tokio::test]
async fn an_overloaded_and_a_broken_server_are_asked_again() {
    let world = World::new().await;
    let broken = Reply::json(500, r#"{"error":{"message":"oops"}}"#);
    let overloaded = Reply::json(529, r#"{"error":{"message":"overloaded"}}"#);

    let asked = ask(&world, [broken, overloaded, ends("I have thought.")]).await;

    assert_recovered(&asked, &["server", "overloaded"]);
}

#[tokio::test]
async fn a_server_that_stays_broken_ends_the_run_after_its_tries() {
    let world = World::new().await;
    let broken = Reply::json(500, r#"{"error":{"message":"oops"}}"#);

    let asked = ask(&world, [broken.clone(), broken.clone(), broken]).await;

    assert_failed(&asked, "server", 3, "oops");
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_asked_for_again() {
    let world = World::with(SHORT).await;

    let asked =
        ask(&world, [half("I will have thought about").stall(), ends("I have thought.")]).await;

    assert_recovered(&asked, &["timeout"]);
}

#[tokio::test]
async fn a_server_that_never_answers_ends_the_run_after_its_tries() {
    let world = World::with(SHORT).await;

    let asked = ask(&world, std::iter::repeat_n(Reply::event_stream().stall(), 3)).await;

    assert_failed(&asked, "timeout", 3, "2s");
}

#[tokio::test]
async fn a_stream_that_is_cut_is_asked_for_again() {
    let world = World::new().await;
    let (cut, reset) = (half("I will have thought about").cut(), half("It is so that").reset());

    let asked = ask(&world, [cut, reset, ends("I have thought.")]).await;

    assert_recovered(&asked, &["transport", "transport"]);
    // What was said before the cut is no part of the answer.
    assert!(!asked.ended.stdout.contains("I will have"), "{:#?}", asked.ended);
}

#[tokio::test]
async fn an_answer_of_a_real_server_is_told_as_it_is() {
    let world = World::with("").await;
    let stream = captured("litellm-over-llama.cpp/chat.stream.usage.sse");
    world.server.reply(&World::chat("one"), Reply::sse(stream));

    let ended = world.run(["ask", "What is the capital of France?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = world.shown().await;
    let usage = &shown["run"]["usage"];
    assert!(usage["input"].as_u64() > Some(0) && usage["output"].as_u64() > Some(0), "{usage}");
}

/// Answers in words, one event of which cannot be read.
fn torn(text: &str) -> Reply {
    let stream = saying(text);
    let lost = stream.split("\n\n").nth(3).unwrap();
    Reply::sse(stream.replace(lost, &lost[..lost.len() / 2]))
}

async fn a_part_is_lost(world: World) {
    let torn = torn("It is not so that all is well here.");

    let asked = ask(&world, [torn.clone(), ends("I have thought.")]).await;

    assert_eq!(asked.ended.code, Some(0), "{:#?}", asked.ended);
    assert!(asked.ended.stdout.contains("I have thought."), "{:#?}", asked.ended);
    let told = world.server.requests()[1].text();
    assert!(told.contains("A part of your answer was lost on its way."), "{told}");
    let stops = world.events("model.completed").await;
    let stops: Vec<&Value> = stops.iter().map(|event| &event["data"]["stop"]).collect();
    assert_eq!(stops, ["gap", "tool_use"]);

    // Where it goes on like that, it is the provider that fails, and nothing of it is a result.
    let asked = ask(&world, [torn.clone(), torn.clone(), torn]).await;

    assert_eq!(asked.ended.code, Some(1), "{:#?}", asked.ended);
    let told = asked.ended.last_line();
    assert!(told.contains("of the last 3 answers, none came whole"), "{told}");
}

#[tokio::test]
async fn an_answer_of_which_a_part_was_lost_is_asked_for_again_and_is_no_result() {
    a_part_is_lost(World::new().await).await;
}

#[tokio::test]
async fn pg_an_answer_of_which_a_part_was_lost_is_asked_for_again_and_is_no_result() {
    on_postgres(a_part_is_lost).await;
}

#[tokio::test]
async fn an_answer_without_its_reason_is_no_result() {
    let world = World::new().await;
    let endless =
        saying("All is well.").replace("\"finish_reason\":\"stop\"", "\"finish_reason\":null");

    let asked = ask(&world, [Reply::sse(endless), ends("I have thought.")]).await;

    assert_eq!(asked.ended.code, Some(0), "{:#?}", asked.ended);
    let told = world.server.requests()[1].text();
    assert!(told.contains("Your answer came without its end."), "{told}");
}

async fn no_cap_is_kept_to(world: World) {
    let word = saying("and ").split_inclusive("\n\n").nth(1).unwrap().to_owned();
    let flood = || Reply::event_stream().chunk(word.repeat(10_000)).stall();

    let asked = ask(&world, [flood()]).await;

    assert_eq!(asked.ended.code, Some(2), "{:#?}", asked.ended);
    let told = asked.ended.last_line();
    assert!(
        told.starts_with("refused") && told.contains("the cap of 1000 output tokens"),
        "{told}"
    );
    assert_eq!((&asked.failed[..], asked.requests), (&["overrun".to_owned()][..], 1));
    // 20,100 bytes came, at three for a token by estimate, and no more of the 40,000 was waited for.
    let settled = world.events("budget.settled").await;
    assert_eq!(settled[0]["data"]["usage"]["output"], 6_700, "{settled:#?}");
    world.server.wait_for_closed(1).await;
}

#[tokio::test]
async fn a_server_that_keeps_to_no_cap_ends_the_run_as_budget() {
    no_cap_is_kept_to(World::new().await).await;
}

#[tokio::test]
async fn pg_a_server_that_keeps_to_no_cap_ends_the_run_as_budget() {
    on_postgres(no_cap_is_kept_to).await;
}

#[tokio::test]
async fn a_server_that_keeps_to_no_cap_ends_the_run_as_budget_where_the_window_is_unknown() {
    let world = World::new().await;
    let config = world.providers(&world.server.url()).replace("context_tokens = 100000\n", "");
    std::fs::write(world.config_file(), config).unwrap();

    no_cap_is_kept_to(world).await;
}
