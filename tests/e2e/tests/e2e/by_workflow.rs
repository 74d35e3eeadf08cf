//! Checks that a tree of tasks decides: shown, paid and recorded as any tasks, and no part of the work.

use formwork_protocols::model::without_left;
use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ending, ends, held},
    workflow::states,
    world::{World, end_of, on_postgres, signal},
};

const SMOKE: &str = r#"
format_version = 1
name = "smoke"
variables = { file = { required = true } }

[[tasks]]
name = "there"
command = ["test", "-e", "{{file}}"]
retries = { max = 0 }

[[tasks]]
name = "enough"
depends_on = ["there"]
when = "vars.file == 'left.txt'"
command = ["grep", "-q", "xx", "{{file}}"]
retries = { max = 0 }

[[tasks]]
name = "look"
depends_on = ["enough"]
agent = "right"
prompt = "Look at {{file}}."
"#;

/// Writes a workflow whose one task is checked by another.
fn checked(world: &World, more: &str) -> &'static str {
    world.agent("left", "one");
    world.agent("right", "two");
    world.workflow(&format!(
        "variables = {{ name = {{ default = \"left\" }} }}\n\
         [[tasks]]\nname = \"write\"\nagent = \"left\"\nprompt = \"Write left.txt.\"\nretries = {{ max = 1 }}\n\
         [[tasks.postchecks]]\nworkflow = \"smoke\"\nvars = {{ file = \"{{{{name}}}}.txt\" }}\n{more}"
    ))
}

fn smoke(world: &World, text: &str) {
    world.repo.write(".formwork/workflows/smoke.toml", text).unwrap();
}

fn writes(text: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": "left.txt", "content": text }))
}

async fn verdicts(world: &World) -> Vec<Value> {
    let shown = world.shown().await;
    let named = |check: &&Value| check["verdict"]["check"] == "workflow smoke";
    let checks = shown["checks"].as_array().unwrap().iter().filter(named);
    checks.map(|check| check["verdict"].clone()).collect()
}

/// Returns what the model of a provider was sent, in order.
fn sent(world: &World, provider: &str) -> Vec<Value> {
    let requests = world.server.requests();
    let own = requests.iter().filter(|request| request.path() == World::chat(provider));
    own.map(|request| serde_json::from_str(&request.text()).unwrap()).collect()
}

async fn a_workflow_decides_is_mended_and_decides_again(world: World) {
    let fix = "fix = { command = [\"sh\", \"-c\", \"printf x >> left.txt\"] }\n";
    let workflow = checked(&world, fix);
    smoke(&world, SMOKE);
    let (left, right) = (World::chat("one"), World::chat("two"));
    world.server.reply(&left, calls(&[writes("")]));
    world.server.reply(&left, ends("It is there."));
    world.server.reply(&left, ends("It is there, I say."));
    world.server.reply(&right, ends("I have looked."));

    let planned = world.run(["workflows", "plan", workflow]).await;
    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = "workflow smoke, by there (command test -e {{file}}), enough (command grep -q xx {{file}}), look (agent right)";
    assert!(planned.stdout.contains(told), "{planned:#?}");
    let found = verdicts(&world).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!((&found[0]["passed"], &found[1]["passed"]), (&json!(false), &json!(true)));
    assert_eq!(found[1]["reason"], "workflow smoke completed: 3 of 3 tasks done");
    let steps: Vec<&Value> =
        found[0]["steps"].as_array().unwrap().iter().map(|step| &step["what"]).collect();
    assert_eq!(steps, ["first", "fix"]);
    let again = sent(&world, "one");
    let messages = again[2]["messages"].as_array().unwrap();
    let evidence = without_left(messages.last().unwrap()["content"].as_str().unwrap());
    assert!(evidence.contains("task enough: "), "{evidence}");
    // Who looks for a check changes nothing.
    let tools = sent(&world, "two")[0]["tools"].to_string();
    assert!(tools.contains("fs_read") && !tools.contains("fs_write"), "{tools}");
    let shown = world.shown().await;
    let states = states(&shown);
    let deciding = |state: &str| {
        states
            .iter()
            .filter(|(name, is)| name.starts_with("exit-check-1-smoke") && *is == state)
            .count()
    };
    // Twice in each of the two attempts, and only the last of them found all of it.
    assert_eq!((deciding("escalated"), deciding("completed")), (3, 1), "{states:?}");
    assert!(ended.last_line().contains("1 task done, 1 check passed"), "{ended:#?}");
    let tree = found[1]["evidence"]["task"].as_str().unwrap();
    let tasks = shown["tasks"].as_array().unwrap();
    assert_eq!(tasks.iter().filter(|task| task["parent"] == tree).count(), 3);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_6_a_workflow_decides_is_mended_and_decides_again() {
    a_workflow_decides_is_mended_and_decides_again(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_6_a_workflow_decides_is_mended_and_decides_again() {
    on_postgres(a_workflow_decides_is_mended_and_decides_again).await;
}

async fn what_decides_survives_a_kill(world: World) {
    let workflow = checked(&world, "");
    smoke(&world, SMOKE);
    let (left, right, never) = (World::chat("one"), World::chat("two"), Gate::new());
    world.server.reply(&left, calls(&[writes("xx")]));
    world.server.reply(&left, ends("It is there."));
    world.server.reply(&right, held(&never, &ending("Too late.")));
    world.server.reply(&right, ends("I have looked."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    never.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let shown = world.shown().await;
    let wanted = [
        ("work", "completed"),
        ("write", "completed"),
        ("exit-check-1-smoke", "completed"),
        ("there", "completed"),
        ("enough", "completed"),
        ("look", "completed"),
    ];
    assert_eq!(states(&shown), wanted);
    assert_eq!(verdicts(&world).await.len(), 1);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_6_a_workflow_that_decides_survives_a_kill() {
    what_decides_survives_a_kill(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_6_a_workflow_that_decides_survives_a_kill() {
    on_postgres(what_decides_survives_a_kill).await;
}

async fn what_decides_is_held_to_its_share(world: World) {
    let workflow = checked(&world, "budget = { rounds = 1 }\n");
    let late = SMOKE
        .replace("depends_on = [\"enough\"]\n", "")
        .replace("depends_on = [\"there\"]", "depends_on = [\"there\", \"look\"]");
    smoke(&world, &late);
    let (left, right) = (World::chat("one"), World::chat("two"));
    world.server.reply(&left, calls(&[writes("x")]));
    world.server.reply(&left, ends("It is there."));
    world.server.reply(&left, ends("It is there, I say."));
    world.server.reply(&right, ends("I have looked."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(sent(&world, "two").len(), 1);
    let found = verdicts(&world).await;
    let issues: Vec<String> =
        found.iter().map(|it| it["issues"][0]["message"].to_string()).collect();
    assert!(issues[0].contains("task enough"), "{found:#?}");
    assert!(issues[1].contains("task look") && issues[1].contains("model calls"), "{found:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_workflow_that_decides_is_held_to_its_share_of_the_budget() {
    what_decides_is_held_to_its_share(World::new().await).await;
}

#[tokio::test]
async fn pg_a_workflow_that_decides_is_held_to_its_share_of_the_budget() {
    on_postgres(what_decides_is_held_to_its_share).await;
}

/// All of it is told before anything runs, at its place.
#[tokio::test]
async fn a_check_by_a_workflow_that_cannot_be_is_a_fault() {
    let world = World::new().await;
    let fault = async |more: &str, text: &str| {
        checked(&world, more);
        smoke(&world, text);
        world.run(["validate", ".formwork/workflows/work.toml"]).await.stderr
    };
    let circle =
        SMOKE.to_owned() + "[[tasks.postchecks]]\nworkflow = \"smoke\"\nvars = { file = \"a\" }\n";
    let mends =
        SMOKE.to_owned() + "[[tasks.postchecks]]\ncommand = [\"x\"]\nfix = { command = [\"y\"] }\n";

    let unset = fault("", &SMOKE.replace("{ file", "{ word = { required = true }, file")).await;
    let wrong = fault("", &SMOKE.replace("\"there\"]", "\"theer\"]")).await;
    let circle = fault("", &circle).await;
    // Ten levels, each with two below it, would be a thousand to read.
    let levels =
        "format_version = 1\nname = \"{name}\"\n[[tasks]]\nname = \"a\"\ncommand = [\"true\"]\n";
    for level in 0..10 {
        let checks = format!(
            "[[tasks.postchecks]]\nname = \"one\"\nworkflow = \"l{0}\"\n[[tasks.postchecks]]\nname = \"two\"\nworkflow = \"l{0}\"\n",
            level + 1
        );
        let text = levels.replace("{name}", &format!("l{level}")) + &checks;
        world.repo.write(format!(".formwork/workflows/l{level}.toml"), &text).unwrap();
    }
    let last = levels.replace("{name}", "l10");
    world.repo.write(".formwork/workflows/l10.toml", &last).unwrap();
    let many = world.run(["validate", ".formwork/workflows/l0.toml"]).await.stderr;
    let mends = fault("", &mends).await;
    let both =
        fault("budget = { rounds = 1 }\nfix = { agent = \"left\", prompt = \"Mend.\" }\n", SMOKE)
            .await;
    checked(&world, "");
    world.workflow(
        "[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\n[[tasks.postchecks]]\nworkflow = \"smoek\"\n",
    );
    let unknown = world.run(["validate", ".formwork/workflows/work.toml"]).await.stderr;

    assert!(unset.contains("variable word is required"), "{unset}");
    assert!(wrong.contains("there is no task theer") && wrong.contains("smoke.toml"), "{wrong}");
    assert!(circle.contains("in a circle: smoke → smoke"), "{circle}");
    assert!(many.contains("a check leads to more than 32 workflows"), "{many}");
    assert!(mends.contains("workflow smoke mends what it finds"), "{mends}");
    assert!(both.contains("does not bound the agent that mends it"), "{both}");
    assert!(
        unknown.contains("there is no workflow smoek") && unknown.contains("smoke"),
        "{unknown}"
    );
}
