//! Money: what is set aside and spent never passes what there is.

use formwork_protocols::{Usd, model::without_left};
use formwork_testkit::http::Gate;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    answers::{calling, calls, ends, held},
    workflow::work,
    world::{World, end_of, on_postgres},
};

const PAIR: &str = r#"
[[tasks]]
name = "left"
agent = "left"
prompt = "Write something, you there."

[[tasks]]
name = "right"
agent = "right"
prompt = "Write something, you there."
"#;

fn usd(event: &Value) -> i64 {
    event["data"]["usd"].as_str().unwrap().parse::<Usd>().unwrap().as_nanos()
}

fn is_money(event: &Value) -> bool {
    matches!(event["kind"].as_str(), Some("budget.reserved" | "budget.settled"))
}

/// Returns the most that was set aside and spent together at any time.
fn peak(events: &[Value]) -> i64 {
    let (mut now, mut most) = (0, 0);
    let mut held = std::collections::HashMap::new();
    for event in events.iter().filter(|event| is_money(event)) {
        let hold = event["data"]["hold"].as_str().unwrap();
        match event["kind"].as_str().unwrap() {
            "budget.reserved" => {
                held.insert(hold, usd(event));
                now += usd(event);
            }
            _ => now += usd(event) - held.remove(hold).unwrap(),
        }
        most = most.max(now);
    }
    assert!(held.is_empty(), "{held:?}");
    most
}

async fn one_of_two_can_be_afforded(world: World) {
    world.repo.write("mark.sh", "echo done >> $1.marks\n").unwrap();
    world.agent("left", "one");
    world.agent("right", "two");
    let workflow = world.workflow(PAIR);
    // What a first call sets aside is learned from a run that may spend what it likes.
    for provider in ["one", "two"] {
        world.server.reply(&World::chat(provider), ends("Nothing."));
    }
    assert_eq!(world.run(["run", workflow]).await.code, Some(0));
    let most = world.events("budget.reserved").await.iter().map(usd).max().unwrap();
    let budget = most + most / 2;
    let gate = Gate::new();
    for provider in ["one", "two"] {
        let answer = calling(&work(provider, provider));
        world.server.reply(&World::chat(provider), held(&gate, &answer));
        world.server.reply(&World::chat(provider), ends("Done."));
    }

    let cap = Usd::from_nanos(budget).to_string();
    let mut program = world.formwork(["run", workflow, "--usd", &cap, "--jsonl"]).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let (mut events, mut is_refused) = (Vec::new(), false);
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        // One has its money and waits for the answer; the other is refused while it does.
        is_refused |= line["kind"] == "task.escalated";
        if is_refused {
            gate.open();
        }
        events.push(line);
    }
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let outcome = events.pop().unwrap();
    assert_eq!(outcome["outcome"]["code"], "refused");
    assert!(peak(&events) <= budget, "{events:#?}");
    let shown = world.shown().await;
    let tasks = shown["tasks"].as_array().unwrap();
    let ending = |task: &Value| (task["name"].clone(), task["ending"].clone());
    let (root, mut children) = (ending(&tasks[0]), [ending(&tasks[1]), ending(&tasks[2])]);
    children.sort_by_key(|(_, ending)| ending["end"].to_string());
    let [(_, done), (refused, why)] = children;
    assert_eq!(done, json!({ "end": "completed" }));
    assert_eq!(why["why"]["reason"], "budget_exhausted", "{why}");
    let child_failed =
        json!({ "end": "escalated", "why": { "reason": "child_failed", "child": refused } });
    assert_eq!(root, (json!("work"), child_failed));
    world.assert_sound().await;
}

#[tokio::test]
async fn two_children_never_pass_a_budget_that_one_can_afford() {
    one_of_two_can_be_afforded(World::new().await).await;
}

#[tokio::test]
async fn pg_two_children_never_pass_a_budget_that_one_can_afford() {
    on_postgres(one_of_two_can_be_afforded).await;
}

/// One task with a budget of each kind.
const BOUND: &str = r#"
[[tasks]]
name = "only"
agent = "left"
prompt = "Read it twice."
budget = { usd = "1", rounds = 9, tool_calls = 5 }
"#;

#[tokio::test]
async fn in_every_request_a_model_is_told_what_is_left_behind_all_that_is_cached() {
    let world = World::new().await;
    world.agent("left", "one");
    let workflow = world.workflow(BOUND);
    for path in ["README.md", "none.md"] {
        let read = ("fs.read", json!({ "path": path }));
        world.server.reply(&World::chat("one"), calls(&[read]));
    }
    world.server.reply(&World::chat("one"), ends("Read."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let requests = world.server.requests();
    let sent: Vec<Value> =
        requests.iter().map(|request| serde_json::from_str(&request.text()).unwrap()).collect();
    let said = |request: &Value| request["messages"].as_array().unwrap().clone();
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let told: Vec<String> = sent
        .iter()
        .map(|request| {
            let last = text(said(request).last().unwrap());
            last.strip_prefix(without_left(&last)).unwrap_or_default().trim().to_owned()
        })
        .collect();
    assert_eq!(
        told,
        [
            "[left of your budget: $1, 9 model calls, 5 tool calls]",
            "[left of your budget: $0.99988, 8 model calls, 4 tool calls]",
            "[left of your budget: $0.99976, 7 model calls, 3 tool calls]",
        ]
    );
    // What was sent before is sent again to the byte, but for that line.
    for pair in sent.windows(2) {
        let (before, now) = (said(&pair[0]), said(&pair[1]));
        for (place, message) in before.iter().enumerate() {
            assert_eq!(without_left(&text(message)), text(&now[place]), "message {place}");
        }
    }
    let recorded = world.events("model.requested").await;
    assert_eq!(recorded[1]["data"]["tail"], told[1].as_str());
}
