//! Tasks that agents make while they work: within what their makers may do, and paid by them.

use formwork_protocols::model::without_left;
use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calling, calls, ends, held},
    workflow::states,
    world::{World, end_of, on_postgres, signal},
};

const LEAD: &str = r#"
[[tasks]]
name = "lead"
agent = "lead"
prompt = "Have it done."
write_paths = ["src/**"]
budget = { usd = "1", tree = { depth = 1, fan_out = 2, tasks = 3 } }
"#;

/// A task that writes, within what it may.
fn part() -> Value {
    json!({
        "name": "part-one", "agent": "helper", "prompt": "Write {{this}} to src/a.txt.",
        "checks": [["test", "-e", "src/a.txt"]], "write_paths": ["**/a.txt", "b.txt"],
        "usd": "0.5",
    })
}

fn write(path: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": path, "content": "written\n" }))
}

/// Returns what the model of a provider was sent, in order.
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

fn offered(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

async fn an_agent_has_its_work_done_by_another(world: World) {
    world.agent("lead", "one");
    world.agent("helper", "two");
    let workflow = world.workflow(LEAD);
    let after = json!({
        "name": "after", "agent": "helper", "prompt": "Say what was done.",
        "depends_on": ["part-one"], "mode": "ask", "tools": ["#readonly"],
    });
    let dear = json!({ "name": "dear", "prompt": "Spend.", "usd": "7" });
    let (chat, gate) = (World::chat("one"), Gate::new());
    world.server.reply(&chat, calls(&[("create_task", part())]));
    world.server.reply(&chat, calls(&[("create_task", after)]));
    world.server.reply(&chat, calls(&[("create_task", dear)]));
    world.server.reply(&chat, calls(&[("create_task", json!({ "name": "wide", "prompt": "x" }))]));
    world.server.reply(&chat, ends("Done already."));
    world.server.reply(&chat, calls(&[("await_tasks", json!({}))]));
    world.server.reply(&chat, ends("Led."));
    let helped = World::chat("two");
    world.server.reply(&helped, held(&gate, &calling(&[write("b.txt"), write("src/c.txt")])));
    world.server.reply(&helped, calls(&[write("src/a.txt")]));
    world.server.reply(&helped, ends("It is written."));
    world.server.reply(&helped, ends("I have read."));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    // The sixth of the one has been asked, while the other has not begun to answer.
    world.server.wait_for_requests(7).await;
    gate.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(world.path("src/a.txt").exists());
    assert!(!world.path("b.txt").exists() && !world.path("src/c.txt").exists());
    let one = sent(&world, "one");
    // What is left hangs on what the other has set aside by then.
    let told: Vec<String> = one
        .iter()
        .skip(1)
        .map(|request| match last(request).split_once("are more than the ") {
            Some((before, _)) => format!("{before}are more than what is left"),
            None => last(request).to_owned(),
        })
        .collect();
    insta::assert_snapshot!("what_a_leader_is_told", told.join("\n---\n"));
    let two = sent(&world, "two");
    assert_eq!(last(&two[0]), "Write {{this}} to src/a.txt.");
    assert!(offered(&two[0]).contains(&"fs_write"));
    insta::assert_snapshot!("what_a_helper_is_asked", last(&two[3]));
    assert!(!offered(&two[3]).contains(&"fs_write") && !offered(&two[3]).contains(&"create_task"));
    let shown = world.shown().await;
    let states = states(&shown);
    assert_eq!(states[2..], [("part-one", "completed"), ("after", "completed")]);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn no_task_is_made_with_less_than_nothing_or_with_a_check_that_stands_for_a_value() {
    let world = World::new().await;
    world.agent("lead", "one");
    let chat = World::chat("one");
    let debt = json!({ "name": "debt", "prompt": "x", "usd": "-5" });
    let open = json!({ "name": "open", "prompt": "x", "checks": [["echo", "{{x}}"]] });
    world.server.reply(&chat, calls(&[("create_task", debt)]));
    world.server.reply(&chat, calls(&[("create_task", open)]));
    world.server.reply(&chat, ends("Led."));

    let ended = world.run(["run", "-m", "Lead.", "--agent", "lead"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let one = sent(&world, "one");
    assert!(last(&one[1]).contains("wanted at least 0, found"), "{}", last(&one[1]));
    assert!(last(&one[2]).contains("stands for a value"), "{}", last(&one[2]));
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_12_an_agent_has_its_work_done_by_another_within_what_it_may_do() {
    an_agent_has_its_work_done_by_another(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_12_an_agent_has_its_work_done_by_another_within_what_it_may_do() {
    on_postgres(an_agent_has_its_work_done_by_another).await;
}

async fn a_wait_survives_a_kill(world: World) {
    world.agent("lead", "one");
    world.agent("helper", "two");
    let workflow = world.workflow(LEAD);
    let (chat, helped, gate) = (World::chat("one"), World::chat("two"), Gate::new());
    let both = [("create_task", part()), ("await_tasks", json!({ "names": ["part-one"] }))];
    world.server.reply(&chat, calls(&both));
    world.server.reply(&chat, ends("Led."));
    world.server.reply(&helped, held(&gate, &calling(&[write("src/never.txt")])));
    world.server.reply(&helped, calls(&[write("src/a.txt")]));
    world.server.reply(&helped, ends("It is written."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    let working = world.json(["runs", "list"]).await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let left = world.json(["runs", "list"]).await;
    let shown = world.run(["runs", "show"]).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!((&working["left"], &left["left"][0]), (&json!(null), &left["runs"][0]["run"]));
    assert!(shown.stdout.contains("running: nobody works on it"), "{shown:#?}");
    assert!(world.path("src/a.txt").exists() && !world.path("src/never.txt").exists());
    assert_eq!(world.events("task.created").await.len(), 3);
    assert!(last(&sent(&world, "one")[1]).starts_with("task part-one: completed"));
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_12_a_wait_for_what_was_made_survives_a_kill() {
    a_wait_survives_a_kill(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_12_a_wait_for_what_was_made_survives_a_kill() {
    on_postgres(a_wait_survives_a_kill).await;
}

/// What is made may do no more than who made it, whoever does it.
#[tokio::test]
async fn a_task_that_was_made_has_no_tool_and_no_program_that_its_maker_has_not() {
    let world = World::new().await;
    world.agent("helper", "two");
    world.agent("lead", "one");
    let narrow = "format_version = 1\nname = \"lead\"\nmodel = \"one/m\"\nprompt = \"lead.md\"\n\
        [tools]\nallow = [\"fs.read\", \"exec\", \"create_task\", \"await_tasks\", \"end_task\"]\n\
        exec.allow = [\"ls *\"]\n";
    world.repo.write(".formwork/agents/lead.toml", narrow).unwrap();
    let workflow = world.workflow(LEAD);
    let chat = World::chat("one");
    let check = json!({ "name": "x", "prompt": "x", "checks": [["rm", "-rf", "src"]] });
    world.server.reply(&chat, calls(&[("create_task", check)]));
    let bare = json!({ "name": "x", "agent": "helper", "prompt": "x" });
    world.server.reply(&chat, calls(&[("create_task", bare), ("await_tasks", json!({}))]));
    world.server.reply(&chat, ends("Led."));
    let helped = World::chat("two");
    world.server.reply(&helped, calls(&[("exec", json!({ "command": ["rm", "README.md"] }))]));
    world.server.reply(&helped, ends("I could not."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(world.path("README.md").exists());
    let (one, two) = (sent(&world, "one"), sent(&world, "two"));
    assert!(last(&one[1]).contains("is not yours to run"), "{}", last(&one[1]));
    let tools = offered(&two[0]);
    assert_eq!(tools, ["await_tasks", "create_task", "end_task", "exec", "fs_read"]);
    assert!(last(&two[1]).contains("error (denied)"), "{}", last(&two[1]));
}

/// A workflow of a leader: the second part needs the first, and a command looks at the whole.
fn flow(checks: &[&[&str]]) -> Value {
    json!({
        "name": "feature",
        "tasks": [
            { "name": "tell", "agent": "helper", "prompt": "Tell.", "depends_on": ["make"], "mode": "ask" },
            { "name": "make", "agent": "helper", "prompt": "Write src/a.txt.", "usd": "0.2" },
        ],
        "checks": checks,
        "usd": "0.5",
    })
}

const WIDE_LEAD: &str = r#"
[[tasks]]
name = "lead"
agent = "lead"
prompt = "Have it done."
write_paths = ["src/**"]
budget = { usd = "1", tree = { depth = 2, fan_out = 2, tasks = 5 } }
"#;

async fn an_agent_has_a_workflow_done(world: World) {
    world.agent("lead", "one");
    world.agent("helper", "two");
    let workflow = world.workflow(WIDE_LEAD);
    let (chat, helped, gate) = (World::chat("one"), World::chat("two"), Gate::new());
    let mut circle = flow(&[]);
    circle["tasks"][1]["depends_on"] = json!(["tell"]);
    let mut stray = flow(&[]);
    stray["tasks"][1]["depends_on"] = json!(["nobody"]);
    let mut blank = flow(&[]);
    blank["tasks"][1]["prompt"] = json!(" ");
    let alien = flow(&[&["rm", "{{x}}"]]);
    let mut greedy = flow(&[]);
    greedy["tasks"][1]["usd"] = json!("0.9");
    let mut never = flow(&[]);
    never["timeout"] = json!("0s");
    for refused in [circle, stray, blank, alien, greedy, never] {
        world.server.reply(&chat, calls(&[("create_workflow", refused)]));
    }
    // In one answer: nothing is asked of the leader's model while the part is killed.
    let made = ("create_workflow", flow(&[&["test", "-e", "src/a.txt"]]));
    let awaited = ("await_tasks", json!({ "names": ["feature"] }));
    world.server.reply(&chat, calls(&[made, awaited]));
    world.server.reply(&chat, ends("Led."));
    world.server.reply(&helped, held(&gate, &calling(&[write("src/never.txt")])));
    world.server.reply(&helped, calls(&[write("src/a.txt")]));
    world.server.reply(&helped, ends("It is written."));
    world.server.reply(&helped, ends("It says: written."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert!(world.path("src/a.txt").exists() && !world.path("src/never.txt").exists());
    let one = sent(&world, "one");
    let told: Vec<&str> = one.iter().skip(1).map(last).collect();
    insta::assert_snapshot!("what_a_leader_of_a_workflow_is_told", told.join("\n---\n"));
    let two = sent(&world, "two");
    let asked = two.last().unwrap();
    assert!(!offered(asked).contains(&"fs_write"), "mode ask");
    assert!(asked.to_string().contains("It is written."), "{asked:#}");
    assert_eq!(world.events("task.created").await.len(), 5);
    let shown = world.shown().await;
    let ended: Vec<_> =
        states(&shown).into_iter().filter(|(_, state)| *state == "completed").collect();
    assert_eq!(ended.len(), 5, "{shown:#}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_12_an_agent_has_a_workflow_done_and_a_kill_repeats_none_of_it() {
    an_agent_has_a_workflow_done(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_12_an_agent_has_a_workflow_done_and_a_kill_repeats_none_of_it() {
    on_postgres(an_agent_has_a_workflow_done).await;
}

/// Two parts that a leader has made, the second of which needs the first.
fn in_time(timeout: &str) -> Value {
    let mut made = flow(&[]);
    made["timeout"] = json!(timeout);
    made
}

async fn a_workflow_runs_out_of_time(world: World) {
    world.agent("lead", "one");
    world.agent("helper", "two");
    let workflow = world.workflow(WIDE_LEAD);
    let (chat, gate) = (World::chat("one"), Gate::new());
    let made = ("create_workflow", in_time("400ms"));
    world.server.reply(&chat, calls(&[made, ("await_tasks", json!({}))]));
    world.server.reply(&chat, calls(&[("fs.read", json!({ "path": "README.md" }))]));
    world.server.reply(&chat, ends("Led, without it."));
    world.server.reply(&World::chat("two"), held(&gate, &calling(&[write("src/never.txt")])));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    // The leader went on, and so it does.
    assert!(replayed["left"] == true && replayed["facts"].as_u64().unwrap() > 20, "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_workflow_that_a_leader_has_made_and_that_ran_out_of_time_does_so_again() {
    a_workflow_runs_out_of_time(World::new().await).await;
}

#[tokio::test]
async fn pg_a_workflow_that_a_leader_has_made_and_that_ran_out_of_time_does_so_again() {
    on_postgres(a_workflow_runs_out_of_time).await;
}

async fn a_wait_is_broken_off_by_hand(world: World) {
    world.agent("lead", "one");
    world.agent("helper", "two");
    let (chat, helped) = (World::chat("one"), World::chat("two"));
    let read = ("fs.read", json!({ "path": "README.md" }));
    for made in [("create_task", part()), ("create_workflow", flow(&[]))] {
        let workflow = world.workflow(WIDE_LEAD);
        let gate = Gate::new();
        // What comes behind the wait is not begun before the run is stopped, and so not at all.
        world.server.reply(&chat, calls(&[made, ("await_tasks", json!({})), read.clone()]));
        world.server.reply(&helped, held(&gate, &calling(&[write("src/never.txt")])));
        let program = world.formwork(["run", workflow]).spawn().unwrap();
        gate.reached().await;
        signal(&program, Signal::INT);
        end_of(program).await;
        // It reads, while the other goes on, and waits once more.
        world.server.reply(&chat, calls(std::slice::from_ref(&read)));
        world.server.reply(&chat, calls(&[("await_tasks", json!({}))]));
        world.server.reply(&chat, ends("Led."));
        world.server.reply(&helped, calls(&[write("src/a.txt")]));
        world.server.reply(&helped, ends("It is written."));
        world.server.reply(&helped, ends("It says: written."));

        let resumed = world.run(["runs", "resume"]).await;

        assert_eq!(resumed.code, Some(0), "{resumed:#?}");
        let replayed = world.json(["replay"]).await;
        assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
        assert_eq!(replayed["left"], false);
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn a_wait_that_was_broken_off_by_hand_is_broken_off_again_and_the_run_goes_as_it_went() {
    a_wait_is_broken_off_by_hand(World::new().await).await;
}

#[tokio::test]
async fn pg_a_wait_that_was_broken_off_by_hand_is_broken_off_again_and_the_run_goes_as_it_went() {
    on_postgres(a_wait_is_broken_off_by_hand).await;
}
