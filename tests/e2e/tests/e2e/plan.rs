//! What a workflow would do and could cost, told before anything is spent; and what budgets do once they are used up.

use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

const PLANNED: &str = r#"
[budget]
usd = "5"

[[tasks]]
name = "left"
agent = "left"
prompt = "Write."
budget = { rounds = 2 }
postchecks = [{ agent = "right", prompt = "Judge it.", max_rounds = 2 }]

[[tasks]]
name = "right"
agent = "right"
prompt = "Write."
budget = { usd = "0.25" }

[[tasks]]
name = "both"
depends_on = ["left", "right"]
  [[tasks.subtasks]]
  name = "show"
  command = ["true"]
"#;

#[tokio::test]
async fn a_plan_shows_order_models_tools_checks_and_the_worst_case_and_spends_nothing() {
    let world = World::new().await;
    world.agent("left", "one");
    world.agent("right", "two");
    let workflow = world.workflow(PLANNED);

    let ended = world.run(["workflows", "plan", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    insta::assert_snapshot!("plan", ended.stdout);
    assert!(world.server.requests().is_empty());
    let planned = world.json(["workflows", "plan", workflow]).await;
    // Two calls of 100,000 tokens in and 1,000 out at $1 and $2, and the other task's own cap.
    assert_eq!(planned["worst_case"], "0.454");
    assert_eq!(planned["width"], 2);
    let listed = world.run(["workflows", "list"]).await;
    assert_eq!(listed.stdout.trim_end(), "work");
    let runs = world.json(["runs", "list"]).await;
    assert_eq!(runs["runs"], json!([]));
}

#[tokio::test]
async fn a_plan_without_a_bound_says_which_task_has_none() {
    let world = World::new().await;
    world.agent("left", "one");
    let workflow = world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"x\"\n");

    let ended = world.run(["workflows", "plan", workflow]).await;
    let wrong = world.run(["workflows", "validate", "wrok"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stdout.starts_with("work: 2 tasks, up to 1 at once, without a bound\n"),
        "{ended:#?}"
    );
    assert!(ended.stdout.contains("no bound: task work/left has neither usd"), "{ended:#?}");
    assert_eq!(wrong.code, Some(3), "{wrong:#?}");
}

/// Returns what became of a task whose agent goes on and on, with a budget of two calls.
async fn goes_on(world: &World, policy: &str) -> (Option<i32>, usize, String) {
    world.agent("left", "one");
    let workflow = world.workflow(&format!(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"x\"\nretries = {{ max = 0 }}\n\
         budget = {{ rounds = 2{policy} }}\n"
    ));
    let chat = World::chat("one");
    for name in ["a", "b", "c"] {
        let call = ("fs.write", json!({ "path": format!("{name}.txt"), "content": "x" }));
        world.server.reply(&chat, calls(&[call]));
    }
    world.server.reply(&chat, ends("Done."));
    let ended = world.run(["run", workflow]).await;
    let shown = world.shown().await;
    let ending = &shown["tasks"][1]["ending"];
    let why = ending["why"]["reason"].as_str().or(ending["end"].as_str()).unwrap().to_owned();
    (ended.code, world.server.requests().len(), why)
}

async fn policies_decide_at_the_end_of_a_budget(world: World) {
    let free = goes_on(&world, ", on_exhausted = \"unlimited\"").await;
    assert_eq!(free, (Some(0), 4, "completed".to_owned()));
    let told = world.events("budget.exhausted").await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["data"]["detail"], "2 of 2 model calls used");

    let blocked = goes_on(&world, "").await;
    assert_eq!(blocked, (Some(2), 4 + 2, "budget_exhausted".to_owned()));
}

/// Every cap of a budget, each of which is used up, or nearly.
const CAPS: &str = r#"
variables = { list = { default = [1, 2] } }
[budget]
tree = { depth = 2, fan_out = 2, tasks = 5 }
[[tasks]]
name = "left"
agent = "left"
prompt = "x"
budget = { usd = "0.0002", tokens = 220, rounds = 5, tool_calls = 4, diff_lines = 4, on_exhausted = "unlimited" }
[[tasks]]
name = "each"
depends_on = ["left"]
for_each = "vars.list"
command = ["true"]
"#;

async fn every_cap_is_told_of(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(CAPS);
    let chat = World::chat("one");
    for name in ["a", "b", "c", "d"] {
        let call = ("fs.write", json!({ "path": format!("{name}.txt"), "content": "x\n" }));
        world.server.reply(&chat, calls(&[call]));
    }
    world.server.reply(&chat, ends("Done."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let caps = |events: Vec<serde_json::Value>| {
        let mut caps: Vec<String> =
            events.iter().map(|it| it["data"]["cap"].as_str().unwrap().to_owned()).collect();
        caps.sort_unstable();
        caps
    };
    let (warned, exhausted) =
        (caps(world.events("budget.warned").await), caps(world.events("budget.exhausted").await));
    let wanted =
        ["depth", "diff_lines", "fan_out", "rounds", "tasks", "tokens", "tool_calls", "usd"];
    // What is used up at one step passes four fifths with it.
    assert_eq!(warned, wanted);
    assert_eq!(exhausted, wanted);
    let calls = world.events("budget.exhausted").await;
    let told: Vec<_> = calls.iter().filter(|it| it["data"]["cap"] == "tool_calls").collect();
    assert_eq!(told[0]["data"]["detail"], "4 of 4 tool calls used");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_13_every_cap_is_told_of_when_it_is_used_up() {
    every_cap_is_told_of(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_13_every_cap_is_told_of_when_it_is_used_up() {
    on_postgres(every_cap_is_told_of).await;
}

#[tokio::test]
async fn behaviour_13_a_policy_decides_what_the_end_of_a_budget_means() {
    policies_decide_at_the_end_of_a_budget(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_13_a_policy_decides_what_the_end_of_a_budget_means() {
    on_postgres(policies_decide_at_the_end_of_a_budget).await;
}

#[tokio::test]
async fn a_budget_that_cancels_all_ends_the_task_and_one_with_grace_goes_on_for_a_while() {
    let cancelled = goes_on(&World::new().await, ", on_exhausted = \"cancel_all\"").await;
    let graced = goes_on(&World::new().await, ", on_exhausted = { grace = \"10m\" }").await;
    let over = goes_on(&World::new().await, ", on_exhausted = { grace = \"0s\" }").await;

    assert_eq!((cancelled.0, cancelled.2.as_str()), (Some(2), "budget_exhausted"));
    assert_eq!((graced.0, graced.1, graced.2.as_str()), (Some(0), 4, "completed"));
    assert_eq!((over.0, over.2.as_str()), (Some(2), "budget_exhausted"));
}

#[tokio::test]
async fn a_plan_that_its_caps_do_not_hold_is_refused_before_anything_runs() {
    let world = World::new().await;
    let five: String = (0..5)
        .map(|n| format!("[[tasks]]\nname = \"t{n}\"\ncommand = [\"touch\", \"t{n}\"]\n"))
        .collect();
    let caps = "tree = { depth = 2, fan_out = 3, tasks = 4 }\n";
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let mut told = Vec::new();
    for (workflow, own) in [(format!("[budget]\n{caps}{five}"), ""), (five.clone(), caps)] {
        std::fs::write(world.config_file(), format!("{config}[budget]\n{own}")).unwrap();
        let workflow = world.workflow(&workflow);
        let validated = world.run(["validate"]).await;
        let ran = world.run(["run", workflow]).await;
        let planned = world.run(["workflows", "plan", workflow]).await;
        assert_eq!((validated.code, ran.code, planned.code), (Some(3), Some(3), Some(3)));
        told.push((validated.stderr, ran.stderr));
    }

    assert!(!world.path("t0").exists());
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
    let [(own, own_run), (by_config, run)] = &told[..] else { panic!("{told:#?}") };
    for text in [own, own_run] {
        assert!(text.contains("budget.tree.fan_out: 5 children of one task"), "{text}");
        assert!(text.contains("budget.tree.tasks: 6 tasks altogether"), "{text}");
    }
    assert!(
        by_config.contains("5 children of one task are written down, and 3 are"),
        "{by_config}"
    );
    assert!(by_config.contains("are allowed by budget.tree of the config"), "{by_config}");
    assert!(run.contains("task work has 5 children of one task written down"), "{run}");
}

#[tokio::test]
async fn a_task_whose_wall_time_is_over_is_told_of_at_four_fifths_and_at_the_limit() {
    let world = World::new().await;
    let workflow = world.workflow(
        "[[tasks]]\nname = \"long\"\ncommand = [\"sleep\", \"60\"]\nbudget = { wall = \"200ms\" }\n",
    );

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let warned = world.events("budget.warned").await;
    let over = world.events("budget.exhausted").await;
    let caps = |told: &[serde_json::Value]| {
        told.iter().map(|it| it["data"]["cap"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((caps(&warned), caps(&over)), (vec!["wall".to_owned()], vec!["wall".to_owned()]));
    assert_eq!(over[0]["data"]["detail"], "its time of 200ms is over");
    let shown = world.shown().await;
    let why = &shown["tasks"][1]["ending"]["why"];
    assert_eq!(why["detail"], "its time of 200ms is over", "{shown:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn changed_lines_that_are_unlimited_are_told_of_and_fail_no_task() {
    let world = World::new().await;
    let mut found = Vec::new();
    for policy in ["unlimited", "block_new"] {
        let workflow = world.workflow(&format!(
            "[[tasks]]\nname = \"write\"\ncommand = [\"sh\", \"-c\", \"seq 12 > {policy}.txt\"]\n\
             budget = {{ diff_lines = 10, on_exhausted = \"{policy}\" }}\n",
        ));
        let ended = world.run(["run", workflow]).await;
        let told = world.events("budget.exhausted").await;
        let detail = told.last().unwrap()["data"]["detail"].as_str().unwrap().to_owned();
        found.push((ended.code, told.len(), detail));
    }

    let told = "12 of 10 changed lines used".to_owned();
    assert_eq!(found, [(Some(0), 1, told.clone()), (Some(2), 2, told)]);
}

#[tokio::test]
async fn a_model_is_told_what_is_left_once_most_of_a_budget_is_used() {
    let world = World::new().await;
    world.agent("left", "one");
    let workflow = world.workflow(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"x\"\nbudget = { rounds = 5, diff_lines = 1 }\n\
         retries = { max = 0 }\n",
    );
    let chat = World::chat("one");
    for name in ["a", "b", "c", "d"] {
        let call = ("fs.write", json!({ "path": format!("{name}.txt"), "content": "x\n" }));
        world.server.reply(&chat, calls(&[call]));
    }
    world.server.reply(&chat, ends("Done."));

    let ended = world.run(["run", workflow]).await;

    let asked = world.server.requests();
    let told = |at: usize| {
        asked[at].text().contains("Most of the budget of this task is used. Left: 1 model calls.")
    };
    assert_eq!((told(3), told(4)), (false, true));
    // More lines than its budget has: that is a check.
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let shown = world.shown().await;
    let reason = &shown["checks"][0]["verdict"]["reason"];
    assert_eq!(reason, "changed 4 lines in 4 files, at most 1 lines are allowed");
}

#[tokio::test]
async fn a_task_for_each_item_costs_at_most_what_bounds_all_of_them_together() {
    let world = World::new().await;
    world.agent("left", "one");
    let each = |more: &str| {
        format!(
            "variables = {{ list = {{ default = [1, 2] }} }}\n[[tasks]]\nname = \"each\"\nagent = \"left\"\n\
             prompt = \"x\"\nfor_each = \"vars.list\"\nmax_concurrency = 2\n{more}"
        )
    };
    let mut found = Vec::new();
    for more in ["", "budget = { usd = \"0.5\" }", "budget = { rounds = 3 }"] {
        let workflow = world.workflow(&each(more));
        let planned = world.json(["workflows", "plan", workflow]).await;
        let agents = planned["tasks"][2]["agents"].as_array().unwrap().len();
        found.push((planned["worst_case"].clone(), planned["width"].clone(), agents));
    }
    let workflow = world.workflow(&each(""));
    let told = world.run(["workflows", "plan", workflow]).await;

    let amount = |usd: &str| (json!(usd), json!(2), 1);
    // Three calls of 100,000 tokens in and 1,000 out at $1 and $2, whoever makes them.
    assert_eq!(found, [(json!(null), json!(2), 1), amount("0.5"), amount("0.306")]);
    assert!(told.stdout.contains("no bound: task work/each has neither usd"), "{told:#?}");
}

#[tokio::test]
async fn where_tasks_can_be_made_a_call_costs_what_the_dearest_who_can_be_asked_does() {
    let world = World::new().await;
    world.agent("lead", "one");
    world.agent("helper", "two");
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let (one, two) = config.split_once("[models.\"two/m\"]").unwrap();
    let two = two.replacen("input = \"1\"", "input = \"10\"", 1);
    std::fs::write(world.config_file(), format!("{one}[models.\"two/m\"]{two}")).unwrap();
    let tasks =
        "[[tasks]]\nname = \"lead\"\nagent = \"lead\"\nprompt = \"x\"\nbudget = { rounds = 1 }\n";
    let workflow = world.workflow(tasks);

    let planned = world.json(["workflows", "plan", workflow]).await;

    assert_eq!(planned["worst_case"], "1.002", "{planned:#}");
}

/// Returns the exit code of a run that changes three lines, and what its first check says.
async fn three_lines(world: &World, task: &[&str]) -> (Option<i32>, String) {
    let call = ("fs.write", json!({ "path": "a.txt", "content": "1\n2\n3\n" }));
    world.server.reply(&World::chat("one"), calls(&[call]));
    for _ in 0..3 {
        world.server.reply(&World::chat("one"), ends("Done."));
    }
    let ended = world.run(task).await;
    let shown = world.shown().await;
    let reason = shown["checks"][0]["verdict"]["reason"].as_str().unwrap_or_default().to_owned();
    (ended.code, reason)
}

async fn lines_are_capped(world: World) {
    let said = "changed 3 lines in 1 file, at most 2 lines are allowed".to_owned();
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    std::fs::write(world.config_file(), format!("{config}[budget]\ndiff_lines = 2\n")).unwrap();
    let by_config = three_lines(&world, &["run", "-m", "Write."]).await;
    std::fs::remove_file(world.path("a.txt")).unwrap();
    std::fs::write(world.config_file(), config).unwrap();
    world.agent("left", "one");
    let file = ".formwork/agents/left.toml";
    let agent = world.repo.read(file).unwrap();
    world.repo.write(file, format!("{agent}[budget]\ndiff_lines = 2\n")).unwrap();
    let workflow = world.workflow(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"x\"\nbudget = { diff_lines = 9 }\n",
    );
    let by_agent = three_lines(&world, &["run", workflow]).await;

    assert_eq!(by_config, (Some(2), said.clone()));
    assert_eq!(by_agent, (Some(2), said));
    let checks = world.shown().await["checks"].as_array().unwrap().len();
    assert_eq!(checks, 3, "one check at each of three attempts");
}

#[tokio::test]
async fn the_lines_that_a_config_or_an_agent_allows_are_held_at_the_end() {
    lines_are_capped(World::new().await).await;
}

#[tokio::test]
async fn pg_the_lines_that_a_config_or_an_agent_allows_are_held_at_the_end() {
    on_postgres(lines_are_capped).await;
}
