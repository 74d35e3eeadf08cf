//! Sub-agents by role: each a task of its own, beside the others, within what its maker may do and pay.

use formwork_protocols::model::without_left;
use formwork_testkit::http::Gate;
use serde_json::{Value, json};

use crate::{
    answers::{calling, calls, ending, ends, held},
    workflow::states,
    world::{World, end_of, on_postgres},
};

const LEAD: &str = r#"
[[tasks]]
name = "lead"
agent = "chief"
prompt = "Find out and prove."
budget = { usd = "1" }
"#;

fn create(name: &str, role: &str, usd: &str) -> (&'static str, Value) {
    let prompt = format!("Do your part, {role}.");
    ("create_task", json!({ "name": name, "role": role, "prompt": prompt, "usd": usd }))
}

/// Returns what the model of a provider was sent, in order.
fn sent(world: &World, provider: &str) -> Vec<Value> {
    let requests = world.server.requests();
    let own = requests.iter().filter(|request| request.path() == World::chat(provider));
    own.map(|request| serde_json::from_str(&request.text()).unwrap()).collect()
}

fn last(request: &Value) -> &str {
    let messages = request["messages"].as_array().unwrap();
    without_left(messages.last().unwrap()["content"].as_str().unwrap())
}

fn offers(request: &Value, tool: &str) -> bool {
    let tools = request["tools"].as_array().unwrap();
    tools.iter().any(|offered| offered["function"]["name"] == tool)
}

async fn two_roles_work_beside_each_other(world: World) {
    world.agent("chief", "two");
    // The project's own agent of a role takes the place of the built-in one.
    world.agent("test", "three");
    let workflow = world.workflow(LEAD);
    let (chief, look, prove) = (World::chat("two"), World::chat("one"), World::chat("three"));
    let (looked, proved) = (Gate::new(), Gate::new());
    let mut finds = create("look", "research", "0.2");
    finds.1["output_schema"] = json!({
        "type": "object", "required": ["files"], "properties": { "files": { "type": "array" } },
    });
    let begins = [finds, create("prove", "test", "0.2"), create("poor", "code", "0.000001")];
    world.server.reply(&chief, calls(&begins));
    world.server.reply(&chief, calls(&[("await_tasks", json!({}))]));
    world.server.reply(&chief, ends("Found and proved."));
    let note = ("notepad.add", json!({ "text": "The readme is all there is." }));
    let writes = ("fs.write", json!({ "path": "found.txt", "content": "found" }));
    world.server.reply(&look, calls(&[note, writes]));
    let found = json!({ "summary": "One file.", "output": { "files": ["README.md"] } });
    world.server.reply(&look, held(&looked, &calling(&[("end_task", found)])));
    world.server.reply(&prove, held(&proved, &calling(&[("notepad.read", json!({}))])));
    world.server.reply(&prove, ends("It holds."));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    // Two of the lead, two of the one and one of the other: both are at work, and the lead waits for them.
    world.server.wait_for_requests(5).await;
    proved.open();
    world.server.wait_for_requests(6).await;
    looked.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = sent(&world, "two");
    let (parts, poor) = last(&told[2]).split_once("task poor: ").unwrap();
    insta::assert_snapshot!("what_the_parts_hand_over", parts);
    assert!(poor.starts_with("budget exhausted"), "{poor}");
    let (one, three) = (sent(&world, "one"), sent(&world, "three"));
    assert!(!offers(&one[0], "fs_write") && offers(&three[0], "fs_write"));
    assert!(!world.path("found.txt").exists());
    // Each has a conversation of its own, and all share the notepad.
    assert_eq!(one[0]["messages"].as_array().unwrap().len(), 2, "{:#}", one[0]);
    assert!(last(&three[1]).contains("The readme is all there is."), "{}", last(&three[1]));
    // What could not be afforded was never asked.
    assert_eq!(one.len(), 2);
    let shown = world.shown().await;
    let mut states = states(&shown);
    states.sort_unstable();
    let wanted = [
        ("lead", "completed"),
        ("look", "completed"),
        ("poor", "escalated"),
        ("prove", "completed"),
        ("work", "completed"),
    ];
    assert_eq!(states, wanted);
    let created = world.events("task.created").await;
    let budgets: Vec<&Value> =
        created.iter().skip(2).map(|event| &event["data"]["spec"]["budget"]["usd"]).collect();
    assert_eq!(budgets, ["0.2", "0.2", "0.000001"]);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_12_two_roles_work_beside_each_other_and_hand_over_what_they_found() {
    two_roles_work_beside_each_other(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_12_two_roles_work_beside_each_other_and_hand_over_what_they_found() {
    on_postgres(two_roles_work_beside_each_other).await;
}

async fn what_is_made_ends_with_its_maker(world: World) {
    world.agent("chief", "two");
    let workflow = world.workflow(LEAD);
    let (chief, work, never) = (World::chat("two"), World::chat("one"), Gate::new());
    let begins = [create("look", "research", "0.2"), create("change", "code", "0.2")];
    world.server.reply(&chief, calls(&begins));
    world.server.reply(&chief, calls(&[("await_tasks", json!({}))]));
    world.server.reply(&work, held(&never, &ending("Too late.")));
    world.server.reply(&work, held(&never, &ending("Too late.")));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    world.server.wait_for_requests(4).await;
    let listed = world.json(["runs", "list"]).await;
    let run = listed["runs"][0]["run"].as_str().unwrap().to_owned();

    let aborted = world.json(["runs", "abort", &run]).await;
    let ended = end_of(program).await;

    assert_eq!(aborted["state"], "aborted");
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let shown = world.shown().await;
    assert_eq!(
        states(&shown)[1..],
        [("lead", "cancelled"), ("look", "cancelled"), ("change", "cancelled")]
    );
    // What was set aside for answers that never came is given back or settled.
    let money = |kind: &'static str| async { world.events(kind).await.len() };
    assert_eq!(money("budget.reserved").await, money("budget.settled").await);
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_12_sub_agents_end_with_whoever_made_them() {
    what_is_made_ends_with_its_maker(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_12_sub_agents_end_with_whoever_made_them() {
    on_postgres(what_is_made_ends_with_its_maker).await;
}
