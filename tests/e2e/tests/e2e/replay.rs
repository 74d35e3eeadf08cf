//! Runs carried out again from what was answered then, without the server that answered.

use formwork_testkit::http::{Gate, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ending, ends, halted, held, saying},
    flow::{OUTSIDE, asked, in_state, suspended},
    workflow::{three, work},
    world::{World, end_of, on_postgres, signal},
};

async fn killed_and_replayed(world: World) {
    let workflow = three(&world);
    let (left, right) = (Gate::new(), Gate::new());
    for (provider, name, gate) in [("one", "left", &left), ("two", "right", &right)] {
        // The first claim is too early, and a check says so.
        world.server.reply(&World::chat(provider), ends("Done already."));
        world.server.reply(&World::chat(provider), calls(&work(name, name)));
        world.server.reply(&World::chat(provider), held(gate, &ending("never heard")));
        world.server.reply(&World::chat(provider), ends(&name.to_uppercase()));
    }
    let open = ("start_task", json!({ "name": "part", "goal": "A part of it." }));
    world.server.reply(&World::chat("three"), calls(&[open]));
    world.server.reply(&World::chat("three"), calls(&work("both", "left right")));
    world.server.reply(&World::chat("three"), ends("The part is done."));
    world.server.reply(&World::chat("three"), ends("BOTH"));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    left.reached().await;
    right.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let asked = world.server.requests().len();
    std::fs::remove_file(world.path("both.txt")).unwrap();

    let replayed = world.json(["replay"]).await;

    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    assert_eq!(replayed["left"], false);
    assert!(replayed["facts"].as_u64().unwrap() > 60, "{replayed:#}");
    assert_eq!(world.server.requests().len(), asked, "nobody was asked");
    assert!(!world.path("both.txt").exists(), "nothing was written");
    let listed = world.json(["runs", "list"]).await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "nothing was recorded");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_was_killed_in_between_is_carried_out_again_without_anybody_to_ask() {
    killed_and_replayed(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_was_killed_in_between_is_carried_out_again_without_anybody_to_ask() {
    on_postgres(killed_and_replayed).await;
}

#[tokio::test]
async fn a_run_that_was_left_is_compared_as_far_as_it_went() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": "README.md" }))]));
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), halted(&gate, &saying("I think about it.")));
    let program = world.formwork(["run", "-m", "Read it."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::INT);
    end_of(program).await;

    let replayed = world.run(["replay"]).await;

    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    assert!(replayed.stdout.contains("went as it did, as far as it went"), "{replayed:#?}");
}

async fn killed_over_an_answer(world: World) {
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": "README.md" }))]));
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), halted(&gate, &saying("I think about it.")));
    let program = world.formwork(["run", "-m", "Read it."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let (facts, left) = went_as_it_did(&world).await;

    assert!(left && facts > 6, "{facts}");
}

#[tokio::test]
async fn a_run_that_was_killed_over_an_answer_is_compared_as_far_as_it_went() {
    killed_over_an_answer(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_was_killed_over_an_answer_is_compared_as_far_as_it_went() {
    on_postgres(killed_over_an_answer).await;
}

/// Carries the last run out again, and returns how much of it was compared and whether it was left before its end.
async fn went_as_it_did(world: &World) -> (u64, bool) {
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    (replayed["facts"].as_u64().unwrap(), replayed["left"].as_bool().unwrap())
}

async fn answered_and_fired(world: World) {
    let workflow = world.workflow(OUTSIDE);
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    let item = asked(&world).await;
    world.json(["inbox", "answer", &item, "green"]).await;
    suspended(&world, "review").await;
    world.json(["events", "fire", "review", "--data", r#"{"ok": false}"#]).await;
    world.json(["events", "fire", "review", "--data", r#"{"ok": true, "by": "ada"}"#]).await;
    let ended = end_of(program).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();

    let (facts, left) = went_as_it_did(&world).await;
    // A run that goes on from another one has only what that made of what it was told.
    world.json(["runs", "fork", &run]).await;
    let resumed = world.run(["runs", "resume"]).await;
    let again = went_as_it_did(&world).await;

    assert!(facts > 15 && !left, "{facts}");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(again, (facts, false));
    world.assert_sound().await;
}

#[tokio::test]
async fn what_people_and_programs_said_to_a_run_is_said_again() {
    answered_and_fired(World::new().await).await;
}

#[tokio::test]
async fn pg_what_people_and_programs_said_to_a_run_is_said_again() {
    on_postgres(answered_and_fired).await;
}

/// Two that wait for the same, at the same time, and hear of different events.
const APART: &str = r#"
[[tasks]]
name = "one"
wait_for = { event = "go", where = "data.n == 2" }
[[tasks]]
name = "two"
wait_for = { event = "go" }
[[tasks]]
name = "rejected"
decision = { question = "Go on?", options = ["yes", "no"] }
"#;

#[tokio::test]
async fn each_task_is_told_what_it_was_told_then() {
    let world = World::new().await;
    let workflow = world.workflow(APART);
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    let item = asked(&world).await;
    for number in [1, 2] {
        world.json(["events", "fire", "go", "--data", &format!("{{\"n\": {number}}}")]).await;
    }
    world.json(["inbox", "reject", &item, "--reason", "no"]).await;
    let ended = end_of(program).await;
    assert_eq!(ended.code, Some(2), "{ended:#?}");

    let (_, left) = went_as_it_did(&world).await;

    assert!(!left);
}

#[tokio::test]
async fn a_run_that_nobody_is_there_to_answer_is_carried_out_again_as_such() {
    let world = World::new().await;
    let workflow = world.workflow(
        "[[tasks]]\nname = \"ask\"\n\
         decision = { question = \"Go on?\", options = [\"yes\", \"no\"], timeout = \"1h\", assume = \"no\" }\n",
    );
    let ended = world.run(["run", workflow, "--headless"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");

    let (_, left) = went_as_it_did(&world).await;

    assert!(!left);
}

#[tokio::test]
async fn a_run_that_waits_for_somebody_is_compared_as_far_as_it_went() {
    let world = World::new().await;
    let workflow = world.workflow(OUTSIDE);
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    asked(&world).await;
    signal(&program, Signal::INT);
    end_of(program).await;

    let (_, left) = went_as_it_did(&world).await;

    assert!(left);
}

async fn given_up_by_the_clock(world: World) {
    world.agent("left", "one");
    // By what it is asked, since the time may be over before it is asked anything.
    world.server.answer(&World::chat("one"), |asked| match asked.text().contains("tool_call_id") {
        false => calls(&[("fs.read", json!({ "path": "README.md" }))]),
        true => Reply::event_stream().stall(),
    });
    let limits = [
        "timeout = \"300ms\"",
        "idle = \"300ms\"",
        "budget = { wall = \"300ms\" }",
        "budget = { rounds = 1, on_exhausted = { grace = \"300ms\" } }",
    ];
    for limit in limits {
        let workflow = world.workflow(&format!(
            "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"x\"\nretries = {{ max = 0 }}\n{limit}\n"
        ));
        let ended = world.run(["run", workflow]).await;
        assert_ne!(ended.code, Some(0), "{limit}: {ended:#?}");

        let (_, left) = went_as_it_did(&world).await;

        assert!(left, "{limit}");
    }
}

#[tokio::test]
async fn a_run_that_a_clock_ended_is_compared_up_to_there() {
    given_up_by_the_clock(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_a_clock_ended_is_compared_up_to_there() {
    on_postgres(given_up_by_the_clock).await;
}

/// One that rests for a while, beside another that is told of nothing.
const RESTS: &str = r#"
[[tasks]]
name = "told"
wait_for = { event = "go" }
[[tasks]]
name = "rests"
agent = "left"
prompt = "Read it."
retries = { max = 0, outage = "10s" }
"#;

async fn rested_and_left(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(RESTS);
    let chat = World::chat("one");
    // As often as one call is tried.
    for _ in 0..3 {
        world.server.reply(&chat, Reply::json(503, r#"{"error": {"message": "no capacity"}}"#));
    }
    world.server.reply(&chat, ends("Read."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    in_state(&world, "rests", "completed").await;
    signal(&program, Signal::INT);
    end_of(program).await;

    let (facts, left) = went_as_it_did(&world).await;

    assert!(left && facts > 10, "{facts}");
}

#[tokio::test]
async fn a_pause_between_two_pieces_of_work_is_not_taken_for_the_end_of_the_record() {
    rested_and_left(World::new().await).await;
}

#[tokio::test]
async fn pg_a_pause_between_two_pieces_of_work_is_not_taken_for_the_end_of_the_record() {
    on_postgres(rested_and_left).await;
}

/// One fails at a moment that decides what others have begun by then.
const ABORTS: &str = r#"
on_failure = "abort-all"
[[tasks]]
name = "fails"
command = ["sh", "-c", "read word < go; exit 3"]
retries = { max = 0 }
[[tasks]]
name = "works"
agent = "left"
prompt = "Read it."
[[tasks]]
name = "after"
depends_on = ["works"]
agent = "right"
prompt = "Read it too."
"#;

async fn failed_beside_others(world: World) {
    world.agent("left", "one");
    world.agent("right", "two");
    let workflow = world.workflow(ABORTS);
    let made = std::process::Command::new("mkfifo").arg(world.path("go")).status().unwrap();
    assert!(made.success());
    let read = ("fs.read", json!({ "path": "README.md" }));
    for _ in 0..3 {
        world.server.reply(&World::chat("one"), calls(std::slice::from_ref(&read)));
    }
    world.server.reply(&World::chat("one"), ends("Read."));
    let never = Gate::new();
    world.server.reply(&World::chat("two"), calls(&[read]));
    world.server.reply(&World::chat("two"), held(&never, &ending("never heard")));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    never.reached().await;
    let go = world.path("go");
    tokio::task::spawn_blocking(move || std::fs::write(go, "go\n").unwrap()).await.unwrap();
    let ended = end_of(program).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");

    let (facts, left) = went_as_it_did(&world).await;

    assert!(facts > 30 && !left, "{facts}");
}

#[tokio::test]
async fn what_others_had_done_before_one_failed_is_done_before_it_fails_again() {
    failed_beside_others(World::new().await).await;
}

#[tokio::test]
async fn pg_what_others_had_done_before_one_failed_is_done_before_it_fails_again() {
    on_postgres(failed_beside_others).await;
}

/// A program that fails twice, each time in another way.
const TWICE: &str = r#"
[[tasks]]
name = "twice"
command = ["sh", "-c", "if test -e mark; then exit 4; fi; touch mark; exit 3"]
retries = { max = 1 }
"#;

async fn failed_twice(world: World) {
    let workflow = world.workflow(TWICE);
    let ended = world.run(["run", workflow]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let reasons: Vec<Value> = world.events("attempt.ended").await;
    assert_ne!(reasons[0]["data"]["reason"], reasons[1]["data"]["reason"], "{reasons:#?}");

    let (_, left) = went_as_it_did(&world).await;

    assert!(!left);
}

#[tokio::test]
async fn each_attempt_at_a_program_ends_again_as_it_ended() {
    failed_twice(World::new().await).await;
}

#[tokio::test]
async fn pg_each_attempt_at_a_program_ends_again_as_it_ended() {
    on_postgres(failed_twice).await;
}

/// Runs one task of an agent with these answers, carries it out again, and compares.
async fn goes_as_it_went(config: &str, task: &str, answers: &[(&str, Value)]) {
    let world = World::with(config).await;
    world.agent("worker", "one");
    world.workflow(&format!(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Work.\"\nretries = {{ max = 0 }}\n{task}"
    ));
    for answer in answers {
        world.server.reply(&World::chat("one"), calls(std::slice::from_ref(answer)));
    }
    world.server.reply(&World::chat("one"), ends("Done."));
    let ended = world.run(["run", "work"]).await;
    assert!(matches!(ended.code, Some(0 | 2)), "{ended:#?}");

    let replayed = world.json(["replay"]).await;

    assert_eq!(replayed["divergence"], json!(null), "{ended:#?}\n{replayed:#}");
}

#[tokio::test]
async fn a_run_with_a_shell_goes_as_it_went() {
    let config = "[permissions]\nmode = \"auto\"\nshell = true\n";
    goes_as_it_went(config, "", &[("shell", json!({ "command": "echo a | cat" }))]).await;
}

#[tokio::test]
async fn a_run_with_a_call_beyond_its_budget_goes_as_it_went() {
    let write = |path: &str| ("fs.write", json!({ "path": path, "content": "x" }));
    let answers = [write("a"), write("b")];
    goes_as_it_went("", "budget = { tool_calls = 1 }\n", &answers).await;
}

#[tokio::test]
async fn a_run_with_a_program_that_was_ended_goes_as_it_went() {
    let config = "[permissions]\nmode = \"auto\"\n";
    let script = "yes 0123456789 | head -c 100000; exec sleep 1000";
    let call = ("exec", json!({ "command": ["sh", "work.sh"], "timeout": "1s" }));
    let write = ("fs.write", json!({ "path": "work.sh", "content": script }));
    goes_as_it_went(config, "", &[write, call]).await;
}

#[tokio::test]
async fn a_run_that_was_refused_for_what_git_would_run_goes_as_it_went() {
    let config = "[permissions]\nmode = \"auto\"\n";
    let script = "mkdir -p s/.git/objects s/.git/refs && echo 'ref: refs/heads/main' > s/.git/HEAD && \
                  printf '[core]\\nfsmonitor = evil\\n' > s/.git/config";
    let write = ("fs.write", json!({ "path": "work.sh", "content": script }));
    let call = ("exec", json!({ "command": ["sh", "work.sh"] }));
    goes_as_it_went(config, "", &[write, call]).await;
}

/// A task of two, of which one works and the other waits for it, beside a third that is told of nothing before the end.
fn of_two(limit: &str, body: &str) -> String {
    format!(
        "[[tasks]]\nname = \"group\"\n{limit}\n\
         [[tasks.subtasks]]\nname = \"works\"\n{body}\n\
         [[tasks.subtasks]]\nname = \"after\"\ncommand = [\"true\"]\ndepends_on = [\"works\"]\n\
         [[tasks]]\nname = \"then\"\nagent = \"right\"\nprompt = \"Read it.\"\nwhen = \"true\"\n"
    )
}

const SLEEPS: &str = "command = [\"sleep\", \"1000\"]";
const STALLS: &str = "agent = \"left\"\nprompt = \"x\"";

/// Has one read and then never hear the end of an answer, and another read and be done.
fn stalling(world: &World) {
    world.agent("left", "one");
    world.agent("right", "two");
    let read = ("fs.read", json!({ "path": "README.md" }));
    let reads = read.clone();
    world.server.answer(&World::chat("one"), move |asked| {
        match asked.text().contains("tool_call_id") {
            false => calls(std::slice::from_ref(&reads)),
            true => Reply::event_stream().stall(),
        }
    });
    world.server.answer(&World::chat("two"), move |asked| {
        match asked.text().contains("tool_call_id") {
            false => calls(std::slice::from_ref(&read)),
            true => ends("Read."),
        }
    });
}

async fn ended_with_what_is_below(world: World) {
    stalling(&world);
    for (limit, body) in [
        ("timeout = \"300ms\"", SLEEPS),
        ("timeout = \"300ms\"", STALLS),
        ("idle = \"300ms\"", STALLS),
        ("budget = { wall = \"300ms\" }", SLEEPS),
    ] {
        let workflow = world.workflow(&of_two(limit, body));
        let ended = world.run(["run", workflow]).await;
        assert_ne!(ended.code, Some(0), "{limit}: {ended:#?}");

        let (facts, left) = went_as_it_did(&world).await;

        // What came after it beside it is compared as well.
        assert!(left && facts > 12, "{limit}: {facts}");
    }
}

#[tokio::test]
async fn a_task_that_a_clock_ended_with_all_below_it_is_ended_again_and_the_others_go_on() {
    ended_with_what_is_below(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_that_a_clock_ended_with_all_below_it_is_ended_again_and_the_others_go_on() {
    on_postgres(ended_with_what_is_below).await;
}

async fn ended_as_a_whole(world: World) {
    stalling(&world);
    let workflow =
        world.workflow(&format!("budget = {{ wall = \"500ms\" }}\n{}", of_two("", STALLS)));
    let ended = world.run(["run", workflow]).await;
    assert_ne!(ended.code, Some(0), "{ended:#?}");

    let (_, left) = went_as_it_did(&world).await;

    assert!(left);
}

#[tokio::test]
async fn a_run_whose_time_was_over_as_a_whole_is_compared_up_to_there() {
    ended_as_a_whole(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_whose_time_was_over_as_a_whole_is_compared_up_to_there() {
    on_postgres(ended_as_a_whole).await;
}

async fn aborted_from_beside(world: World) {
    stalling(&world);
    for (body, is_paused) in [(SLEEPS, false), (STALLS, false), (STALLS, true)] {
        let workflow = world.workflow(&of_two("", body));
        let program = world.formwork(["run", workflow]).spawn().unwrap();
        in_state(&world, "works", "active").await;
        in_state(&world, "then", "completed").await;
        let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
        if is_paused {
            world.json(["runs", "pause", &run]).await;
        }
        world.json(["runs", "abort", &run]).await;
        end_of(program).await;

        let (facts, left) = went_as_it_did(&world).await;

        assert!(left && facts > 12, "{facts}");
    }
}

#[tokio::test]
async fn a_run_that_somebody_ended_is_compared_up_to_there() {
    aborted_from_beside(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_somebody_ended_is_compared_up_to_there() {
    on_postgres(aborted_from_beside).await;
}

/// Whose parts are given up by what others of them did, while it has time left; then its time is over.
const FAILS_AND_HANGS: &str = r#"
[[tasks]]
name = "group"
timeout = "1s"
on_failure = "halt"
[[tasks.subtasks]]
name = "fails"
command = ["false"]
retries = { max = 0 }
[[tasks.subtasks]]
name = "hangs"
command = ["sleep", "1000"]
[[tasks.subtasks]]
name = "never"
command = ["true"]
depends_on = ["hangs"]
"#;

#[tokio::test]
async fn what_a_failure_had_ended_before_is_told_from_what_the_clock_ended() {
    let world = World::new().await;
    let workflow = world.workflow(FAILS_AND_HANGS);
    let ended = world.run(["run", workflow]).await;
    assert_ne!(ended.code, Some(0), "{ended:#?}");

    let (_, left) = went_as_it_did(&world).await;

    assert!(left);
}

async fn a_deadline_that_passed(world: World) {
    let asks = "[[tasks]]\nname = \"ask\"\n\
         decision = { question = \"Go on?\", options = [\"yes\", \"no\"], timeout = \"100ms\", assume = \"no\" }\n\
         [[tasks]]\nname = \"after\"\ndepends_on = [\"ask\"]\ncommand = [\"echo\", \"{{tasks.ask.output.answer}}\"]\n";
    let hears = "[[tasks]]\nname = \"hears\"\nwait_for = { event = \"go\", timeout = \"100ms\" }\n";
    let answered = world.run(["run", world.workflow(asks)]).await;
    assert_eq!(answered.code, Some(0), "{answered:#?}");

    let (all, left) = went_as_it_did(&world).await;

    assert!(!left, "{all}");
    let ended = world.run(["run", world.workflow(&format!("{asks}{hears}"))]).await;
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    let (facts, left) = went_as_it_did(&world).await;
    assert!(left && facts > all, "{facts} and {all}");
}

#[tokio::test]
async fn what_a_deadline_decided_is_decided_again_and_what_follows_is_compared() {
    a_deadline_that_passed(World::new().await).await;
}

#[tokio::test]
async fn pg_what_a_deadline_decided_is_decided_again_and_what_follows_is_compared() {
    on_postgres(a_deadline_that_passed).await;
}
