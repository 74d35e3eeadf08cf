//! Conversations longer than their model's window.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use formwork_testkit::http::{Gate, Reply, Request};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calling, captured, counted, ending, held, saying},
    world::{World, end_of, on_postgres, signal},
};

/// The window of the server, in tokens of three bytes.
const WINDOW: u64 = 8_192;

const TASK: &str = "Find the median's fault, and keep the tabs.";

/// A world whose server has a small window and refuses what does not fit, in the words of a real one. It answers turn by
/// turn with reads of files, the last with a claim, and sums up when asked to.
struct Small {
    world: World,
    refused: Arc<AtomicU64>,
}

impl Small {
    /// Makes a server for so many turns; `window` is what the config says of it, if anything.
    async fn new(turns: u64, window: Option<u64>) -> Self {
        let world = World::with("cheap = \"two/m\"\n[permissions]\nmode = \"auto\"\n").await;
        Self::on(world, turns, window, None)
    }

    /// The same; the answer of a turn is held.
    fn on(world: World, turns: u64, window: Option<u64>, hold: Option<(u64, Gate)>) -> Self {
        let config = std::fs::read_to_string(world.config_file()).unwrap();
        let known = window.map_or(String::new(), |window| format!("context_tokens = {window}"));
        std::fs::write(world.config_file(), config.replace("context_tokens = 100000", &known))
            .unwrap();
        for file in 0..20 {
            let line = format!("let value_{file} = median(&[{file}, 2, 3]); // a line of code\n");
            world.repo.write(format!("src/f{file}.rs"), line.repeat(60)).unwrap();
        }
        let (refused, done) = (<Arc<AtomicU64>>::default(), AtomicU64::new(0));
        let refusals = Arc::clone(&refused);
        world.server.answer(&World::chat("one"), move |request| {
            let tokens = tokens(request);
            if tokens > WINDOW - 1_000 {
                refusals.fetch_add(1, Ordering::SeqCst);
                return Reply::captured(captured("llama.cpp/err.context.res.http"));
            }
            let turn = done.fetch_add(1, Ordering::SeqCst);
            let stream = counted(&turn_of(turn, turns), tokens);
            match &hold {
                Some((held_turn, gate)) if *held_turn == turn => held(gate, &stream),
                _ => Reply::sse(stream),
            }
        });
        world.server.answer(&World::chat("two"), |request| {
            let notes = "- The median is in src/f3.rs, line 12.\n- Nothing was changed yet.";
            Reply::sse(counted(&saying(notes), tokens(request)))
        });
        Self { world, refused }
    }

    fn requests(&self, provider: &str) -> Vec<Request> {
        let requests = self.world.server.requests().into_iter();
        requests.filter(|request| request.path() == World::chat(provider)).collect()
    }

    async fn compactions(&self) -> Vec<Value> {
        let events = self.world.events("context.compacted").await;
        events.into_iter().map(|event| event["data"].clone()).collect()
    }
}

/// Counts the tokens of a request as the server does.
fn tokens(request: &Request) -> u64 {
    request.body.len() as u64 / 3
}

/// Returns what the model does at a turn: it reads a file, each time from another line, or the whole of it, or writes
/// a note.
fn turn_of(turn: u64, turns: u64) -> String {
    if turn + 1 >= turns {
        return ending("The median is right now.");
    }
    let path = format!("src/f{}.rs", turn / 2 * 7 % 20);
    let part = json!({ "path": path, "from": turn % 40 + 1, "lines": 15 + turn });
    match turn % 8 {
        // What was changed lets other calls begin anew.
        3 => calling(&[(
            "fs.write",
            json!({ "path": format!("notes/{turn}.md"), "content": "seen\n" }),
        )]),
        7 => calling(&[("fs.read", json!({ "path": path }))]),
        _ => calling(&[("fs.read", part)]),
    }
}

fn sum(compactions: &[Value], key: &str) -> u64 {
    compactions.iter().map(|done| done[key].as_u64().unwrap_or_default()).sum()
}

#[tokio::test]
async fn a_session_of_300_turns_on_a_window_of_8k_ends_with_its_task_still_known() {
    let small = Small::new(300, Some(WINDOW)).await;

    let ended = small.world.run(["run", "-m", TASK]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(small.refused.load(Ordering::SeqCst), 0, "nothing was sent that does not fit");
    let requests = small.requests("one");
    assert_eq!(requests.len(), 300);
    assert!(requests.iter().all(|request| request.text().contains(TASK)));
    let compactions = small.compactions().await;
    assert!(compactions.len() > 5, "{}", compactions.len());
    assert!(sum(&compactions, "superseded") > 0 && sum(&compactions, "spilled") > 0);
    assert!(sum(&compactions, "summarised") > 0, "{compactions:#?}");
    for done in &compactions {
        assert!(done["after"].as_u64() < done["before"].as_u64(), "{done:#}");
        assert!(done["after"].as_u64() <= done["room"].as_u64(), "{done:#}");
    }
    // The summaries were made by the cheap model, and are part of what the run cost.
    let summed = small.requests("two").len();
    assert!(summed > 0 && summed < 100, "{summed}");
    let completed = small.world.events("model.completed").await;
    let of_summaries = completed.iter().filter(|event| event["data"]["purpose"] == "summary");
    assert_eq!(of_summaries.count(), summed);
    let last = requests.last().unwrap().text();
    assert!(last.contains("The median is in src/f3.rs, line 12."), "{last}");
    small.world.assert_sound().await;
}

#[tokio::test]
async fn a_server_that_says_its_window_is_full_is_asked_again_with_less_and_that_is_recorded() {
    // Nothing says how large the window is but the server's refusal.
    let small = Small::new(40, None).await;

    let ended = small.world.run(["run", "-m", TASK]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(small.refused.load(Ordering::SeqCst), 1, "it is learnt from once");
    let compactions = small.compactions().await;
    assert_eq!(compactions[0]["cause"], "overflow");
    assert!(compactions[1..].iter().all(|done| done["cause"] == "window"), "{compactions:#?}");
    let failed = small.world.events("model.failed").await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["data"]["error"]["fault"], "context_overflow");
}

#[tokio::test]
async fn a_task_that_alone_does_not_fit_ends_and_says_so() {
    let small = Small::new(5, Some(WINDOW)).await;
    let long = format!("{TASK} {}", "And mind this, too. ".repeat(1_500));

    let ended = small.world.run(["run", "-m", &long]).await;

    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("nothing more of it can be left out"), "{ended:#?}");
    assert!(small.refused.load(Ordering::SeqCst) <= 2);
}

async fn killed_among_compactions(world: World) {
    let gate = Gate::new();
    // The fortieth turn is held, and the process killed in it.
    let small = Small::on(world, 70, Some(WINDOW), Some((39, gate.clone())));
    let program = small.world.formwork(["run", "-m", TASK]).spawn().unwrap();
    gate.reached().await;
    let before = small.requests("one").last().unwrap().text();
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = small.world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert!(!small.compactions().await.is_empty());
    let again = small.requests("one").get(40).unwrap().text();
    assert_eq!(again, before, "the conversation is taken up as it was made shorter");
    let replayed = small.world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    small.world.assert_sound().await;
}

#[tokio::test]
async fn a_conversation_that_was_made_shorter_survives_a_kill_and_is_replayed() {
    let world = World::with("cheap = \"two/m\"\n[permissions]\nmode = \"auto\"\n").await;
    killed_among_compactions(world).await;
}

#[tokio::test]
async fn pg_a_conversation_that_was_made_shorter_survives_a_kill_and_is_replayed() {
    on_postgres(killed_among_compactions).await;
}

/// A conversation that has to go on in another one while a part of it is open, because its last turn is too long.
async fn killed_after_a_hand_over(world: World) {
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let window = format!("context_tokens = {WINDOW}");
    std::fs::write(world.config_file(), config.replace("context_tokens = 100000", &window))
        .unwrap();
    world.agent("left", "one");
    let file = ".formwork/agents/left.toml";
    let agent = world.repo.read(file).unwrap();
    let narrow = agent.replace("\"*\"", "\"fs.write\", \"start_task\", \"end_task\"");
    world.repo.write(file, narrow).unwrap();
    let workflow =
        world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Write it.\"\n");
    let (gate, turn) = (Gate::new(), AtomicU64::new(0));
    let hold = gate.clone();
    world.server.answer(&World::chat("one"), move |request| {
        let stream = match request.text().contains("\"tools\"") {
            // It sums up what went before.
            false => saying("Nothing was done yet."),
            true => match turn.fetch_add(1, Ordering::SeqCst) {
                0 => calling(&[(
                    "start_task",
                    json!({ "name": "part", "goal": "Write the long one." }),
                )]),
                1 => calling(&[(
                    "fs.write",
                    json!({ "path": "long.txt", "content": "a long line of it\n".repeat(900) }),
                )]),
                2 => return held(&hold, &ending("never heard")),
                3 => ending("The part is done."),
                _ => ending("All of it is done."),
            },
        };
        Reply::sse(counted(&stream, tokens(request)))
    });
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    let before = world.server.requests().last().unwrap().text();
    signal(&program, Signal::KILL);
    end_of(program).await;
    let asked = world.server.requests().len();

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let started = world.events("session.started").await;
    assert_eq!(started.len(), 2, "one went on in the place of the other: {started:#?}");
    assert_eq!(started[0]["task"], started[1]["task"], "of the task, and not of its part");
    let again = world.server.requests().get(asked).unwrap().text();
    assert_eq!(again, before, "the conversation that went on is the one that is taken up");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_conversation_that_went_on_in_another_within_a_part_survives_a_kill() {
    killed_after_a_hand_over(World::new().await).await;
}

#[tokio::test]
async fn pg_a_conversation_that_went_on_in_another_within_a_part_survives_a_kill() {
    on_postgres(killed_after_a_hand_over).await;
}
