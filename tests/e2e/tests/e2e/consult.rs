//! One question that an agent asks another.

use formwork_protocols::model::without_left;
use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ends, held, saying, says},
    world::{World, end_of, on_postgres, signal},
};

/// Prepares a worker that asks one question about the readme, and an adviser with a model of its own.
fn asking(world: &World, task: &str) {
    world.agent("worker", "one");
    world.agent("adviser", "two");
    world.workflow(&format!(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Go.\"\n{task}"
    ));
    let question = json!({ "question": "Left or right?\n<system>", "files": ["README.md"] });
    world.server.reply(&World::chat("one"), calls(&[("consult", question)]));
    world.server.reply(&World::chat("one"), ends("Went left."));
}

/// Returns the requests of a model, in order.
fn sent(world: &World, provider: &str) -> Vec<Value> {
    let requests = world.server.requests();
    let own = requests.iter().filter(|request| request.path() == World::chat(provider));
    own.map(|request| serde_json::from_str(&request.text()).unwrap()).collect()
}

/// Returns what a request tells the model last, but for what is left of its budget.
fn last(request: &Value) -> &str {
    let messages = request["messages"].as_array().unwrap();
    without_left(messages.last().unwrap()["content"].as_str().unwrap())
}

const ANSWER: &str =
    "agent adviser (two/m) says, which nobody has checked:\nLeft, for it is shorter.";

async fn one_question_is_asked(world: World) {
    asking(&world, "");
    world.server.reply(&World::chat("two"), says("Left, for it is shorter."));

    let ended = world.run(["run", "work"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let (one, two) = (sent(&world, "one"), sent(&world, "two"));
    assert_eq!((one.len(), two.len()), (2, 1));
    assert_eq!(two[0].get("tools"), None, "{:#}", two[0]);
    insta::assert_snapshot!("what_an_adviser_is_asked", last(&two[0]));
    assert_eq!(last(&one[1]), ANSWER);
    let (called, started) =
        (world.events("tool.requested").await, world.events("session.started").await);
    assert_eq!(started[1]["data"]["agent"], "adviser");
    assert_eq!(started[1]["data"]["call"], called[0]["data"]["call"]);
    assert_eq!(started[0]["data"].get("call"), None);
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let spent = world.json(["spend", &run]).await;
    let by_agent: Vec<(&str, u64)> = spent["by_agent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["name"].as_str().unwrap(), line["calls"].as_u64().unwrap()))
        .collect();
    assert!(by_agent.contains(&("adviser", 1)) && by_agent.contains(&("worker", 2)), "{spent:#}");
    let shown = world.shown().await;
    assert_eq!(shown["calls"].as_array().unwrap().len(), 3);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn an_agent_asks_another_one_question_on_sqlite() {
    one_question_is_asked(World::new().await).await;
}

#[tokio::test]
async fn pg_an_agent_asks_another_one_question() {
    on_postgres(one_question_is_asked).await;
}

#[tokio::test]
async fn what_an_answer_may_cost_is_the_asking_tasks() {
    let world = World::new().await;
    asking(&world, "budget = { rounds = 1 }\n");

    let ended = world.run(["run", "work"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(sent(&world, "two").is_empty());
    let failed = world.events("tool.failed").await;
    assert_eq!(failed[0]["data"]["error"], "over_budget", "{failed:#?}");
}

async fn killed_while_the_adviser_thinks(world: World) {
    asking(&world, "");
    let gate = Gate::new();
    let answer = "Left, for it is shorter.";
    world.server.reply(&World::chat("two"), held(&gate, &saying(answer)));
    world.server.reply(&World::chat("two"), says(answer));

    let program = world.formwork(["run", "work"]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    gate.open();
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let (one, two) = (sent(&world, "one"), sent(&world, "two"));
    assert_eq!((one.len(), two.len()), (2, 2));
    assert_eq!(last(&one[1]), ANSWER);
    // The conversation that was begun goes on, and its lost try is paid.
    let started = world.events("session.started").await;
    assert_eq!(started.len(), 2, "{started:#?}");
    let reserved = world.events("budget.reserved").await.len();
    assert_eq!((reserved, world.events("budget.settled").await.len()), (4, 4));
    let failed = world.events("model.failed").await;
    assert!(failed[0]["data"]["lost"]["cost"].as_str().is_some(), "{failed:#?}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_question_whose_process_died_goes_on_where_it_was() {
    killed_while_the_adviser_thinks(World::new().await).await;
}

#[tokio::test]
async fn pg_a_question_whose_process_died_goes_on_where_it_was() {
    on_postgres(killed_while_the_adviser_thinks).await;
}

#[tokio::test]
async fn questions_have_an_end_and_a_person_may_ask_one() {
    let world = World::new().await;
    world.agent("worker", "one");
    world.agent("adviser", "two");
    world.workflow("[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Go.\"\n");
    for number in 0..9 {
        let question = json!({ "question": format!("Question {number}?") });
        world.server.reply(&World::chat("one"), calls(&[("consult", question)]));
        world.server.reply(&World::chat("two"), says("Yes."));
    }
    let nobody = json!({ "question": "You?", "agent": "nobody" });
    world.server.reply(&World::chat("one"), calls(&[("consult", nobody)]));
    let nowhere = json!({ "question": "This?", "files": ["../secret"] });
    world.server.reply(&World::chat("one"), calls(&[("consult", nowhere)]));
    world.server.reply(&World::chat("one"), ends("Asked."));

    let ended = world.run(["run", "work"]).await;
    let by_hand = world.run(["tools", "call", "consult", "question=And I?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let one = sent(&world, "one");
    assert_eq!(
        last(&one[9]),
        "error (over_budget): this task has asked 8 questions, which is all it may"
    );
    assert!(last(&one[10]).starts_with("error (invalid_arguments): there is no agent nobody"));
    assert!(last(&one[11]).starts_with("error ("), "{}", last(&one[11]));
    assert_eq!(by_hand.code, Some(0), "{by_hand:#?}");
    let told = "agent adviser (two/m) says, which nobody has checked:\nYes.\ncompleted: ";
    assert!(by_hand.stdout.starts_with(told), "{by_hand:#?}");
}
