use formwork_protocols::{
    Body, Budget, Ending, Span, TaskSpec, WorkerLabel,
    budget::{OnExhausted, TreeCaps},
    check::{CheckKind, Compare, Parser, SuiteCheck},
    spec::Retries,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Known, Plan, SingleTask, WrittenWorkflow, beyond_caps};

fn known() -> Known {
    Known {
        agents: ["coder", "writer"].map(|name| name.parse().unwrap()).into(),
        natives: ["deploy".to_owned()].into(),
        native_checks: ["signed".to_owned()].into(),
        ..Known::default()
    }
}

fn faults(text: &str) -> Vec<String> {
    let text = format!("format_version = 1\nname = \"w\"\n{text}");
    let found = Plan::parse("w.toml", &text, &known(), &Map::new()).unwrap_err();
    found.iter().map(ToString::to_string).collect()
}

fn plan(text: &str, values: Value) -> Plan {
    let text = format!("format_version = 1\nname = \"w\"\n{text}");
    let Value::Object(values) = values else { panic!("values are a map") };
    Plan::parse("w.toml", &text, &known(), &values).unwrap()
}

fn tasks(plan: &Plan) -> &[TaskSpec] {
    match &plan.root().body {
        Body::Subtasks { tasks, .. } => tasks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_fault_of_a_workflow_is_told_at_once_with_its_place() {
    let found = faults(
        r#"
[[tasks]]
name = "a"
agent = "codr"
prompt = "Do it."
depends_on = ["b"]

[[tasks]]
name = "b"
command = []
depends_on = ["a"]

[[tasks]]
name = "b"
retires = 2
command = ["true"]
depends_on = ["c"]
"#,
    );

    assert_eq!(
        found,
        [
            r#"w.toml:6:9: tasks[0].agent: there is no agent codr; nearest is "coder""#,
            "w.toml:8:14: tasks[0].depends_on: tasks wait for each other in a circle: a → b → a",
            "w.toml:12:11: tasks[1].command: a command names a program, found an empty list",
            "w.toml:16:8: tasks[2].name: task b has the name of tasks[1]",
            r#"w.toml:17:1: tasks[2]: unknown key "retires"; nearest is "retries""#,
            r#"w.toml:19:15: tasks[2].depends_on[0]: there is no task c beside b; nearest is "a""#,
        ]
    );
}

#[test]
fn a_task_has_exactly_one_body() {
    let found = faults(
        "[[tasks]]\nname = \"a\"\n[[tasks]]\nname = \"b\"\ncommand = [\"x\"]\nnative = \"deploy\"\n",
    );

    assert_eq!(
        found,
        [
            "w.toml:3:1: tasks[0]: a task is exactly one of agent, command, native, subtasks, wait_for and decision; found none",
            "w.toml:5:1: tasks[1]: a task is exactly one of agent, command, native, subtasks, wait_for and decision; found command and native",
        ]
    );
}

#[test]
fn a_childs_budget_is_carved_out_of_its_parents() {
    let found = faults(
        "[budget]\nusd = \"1\"\n[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\nbudget = { usd = \"1.5\" }\n",
    );

    assert_eq!(
        found,
        ["w.toml:8:18: tasks[0].budget.usd: $1.5 is more than the $1 of the budget around it"]
    );
}

#[test]
fn a_prompt_names_only_what_is_there_by_then() {
    let found = faults(
        r#"variables = { spec = {} }
[[tasks]]
name = "a"
agent = "coder"
prompt = "{{spce}}"
[[tasks]]
name = "b"
agent = "coder"
prompt = "{{tasks.a.text}} {{tasks.z.text}}"
"#,
    );

    assert_eq!(
        found,
        [
            r#"w.toml:7:10: tasks[0].prompt: there is no variable spce; nearest is "spec""#,
            "w.toml:11:10: tasks[1].prompt: task a may not be done by then; add a to the depends_on of b",
            r#"w.toml:11:10: tasks[1].prompt: there is no task z beside or above it; nearest is "a""#,
        ]
    );
}

#[test]
fn behaviour_39_a_task_with_a_target_has_nothing_that_would_look_in_the_wrong_place() {
    let sound = "[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\ntarget = \"gpu\"\npostchecks = [{ command = [\"y\"] }]\n";
    let found = faults(
        r#"[[tasks]]
name = "a"
command = ["x"]
target = "gpu"
isolation = "snapshot"
budget = { diff_lines = 10 }
[[tasks.postchecks]]
command = ["y"]
control = "revert"
[[tasks.postchecks]]
unchanged = ["tests/**"]
[[tasks]]
name = "b"
target = "gpu"
wait_for = { event = "x" }
"#,
    );

    let sound = plan(sound, json!({}));
    let target = tasks(&sound)[0].target.as_ref();
    assert_eq!(target.map(WorkerLabel::as_str), Some("gpu"));
    let wanted = [
        "isolation: a task with a target has no isolation: a worker works in a workspace of its own already",
        "budget.diff_lines: a task with a target has no budget/diff_lines: what is changed at a worker is not compared line by line",
        "control: a check of a task with a target has no control",
        "a check of a task with a target is a command: it is run by the worker",
        "target: target belongs to a task by an agent or a command",
    ];
    for wanted in wanted {
        assert!(found.iter().any(|it| it.contains(wanted)), "{wanted}: {found:#?}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn a_required_variable_is_asked_for_and_an_unknown_one_refused() {
    let text = "format_version = 1\nname = \"w\"\nvariables = { spec = { required = true } }\n[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\n";
    let values = Map::from_iter([("spce".to_owned(), json!("x"))]);

    let found = Plan::parse("w.toml", text, &known(), &values).unwrap_err().to_string();

    assert!(
        found
            .contains("variable spec is required and nobody sets it; set it, as with --var spec=…"),
        "{found}"
    );
    assert!(found.contains("spce is set and the workflow has no such variable"), "{found}");
}

#[test]
fn checks_are_read_with_their_kind_and_a_name() {
    let plan = plan(
        r#"
[[tasks]]
name = "a"
command = ["x"]
  [[tasks.postchecks]]
  command = ["cargo", "test"]
  parse = "cargo-test"
  [[tasks.postchecks]]
  unchanged = ["tests/**"]
  [[tasks.postchecks]]
  name = "small"
  diff = { max_lines = 3 }
"#,
        json!({}),
    );

    let names: Vec<_> =
        tasks(&plan)[0].postchecks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["cargo test", "unchanged tests/**", "small"]);
}

#[test]
fn a_check_is_exactly_one_thing_and_its_globs_stay_inside() {
    let found = faults(
        r#"
[[tasks]]
name = "a"
command = ["x"]
  [[tasks.postchecks]]
  command = ["x"]
  diff = {}
  [[tasks.postchecks]]
  unchanged = ["../x", "[z"]
  parse = "tap"
"#,
    );

    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found[0].ends_with("no_new_files_outside; found command and diff"), "{found:#?}");
}

#[test]
fn what_surrounds_a_check_is_read_with_it_and_its_agents_are_the_plans() {
    let plan = plan(
        r#"
variables = { style = { default = "terse" } }
[[tasks]]
name = "a"
command = ["x"]
  [[tasks.postchecks]]
  command = ["cargo", "test"]
  fix = { agent = "coder", prompt = "Mend it, {{style}}." }
  control = { revert = ["src/**"] }
  max_rounds = 2
  [[tasks.postchecks]]
  agent = "writer"
  prompt = "Judge it."
  block = "minor"
  budget = { usd = "0.10" }
  [[tasks.postchecks]]
  native = "signed"
  [[tasks.postchecks]]
  constraint = "no_new_dependencies"
  [[tasks.postchecks]]
  constraint = "no_removed_exports"
  [[tasks.postchecks]]
  constraint = "no_changed_signatures"
  [[tasks.postchecks]]
  command = ["x"]
  control = "revert"
"#,
        json!({}),
    );

    let checks = &tasks(&plan)[0].postchecks;
    let written: Vec<_> = checks.iter().map(|check| serde_json::to_value(check).unwrap()).collect();
    insta::assert_json_snapshot!(written);
    let agents: Vec<_> = plan.agents().iter().map(ToString::to_string).collect();
    assert_eq!(agents, ["coder", "writer"]);
}

#[test]
fn a_check_is_told_of_keys_that_it_has_no_use_for() {
    let found = faults(
        r#"
[[tasks]]
name = "a"
command = ["x"]
  [[tasks.prechecks]]
  command = ["x"]
  control = "revert"
  max_rounds = 2
  [[tasks.prechecks]]
  constraint = "no_new_dependencies"
  [[tasks.prechecks]]
  constraint = "no_removed_exports"
  [[tasks.postchecks]]
  command = ["x"]
  prompt = "Judge it."
  block = "nit"
  budget = { rounds = 1 }
  max_rounds = 0
  fix = { command = ["x"], agent = "coder" }
  [[tasks.postchecks]]
  agent = "coderr"
  prompt = "{{nothing}}"
  control = "revert"
  [[tasks.postchecks]]
  command = ["x"]
  expect = "fail"
  control = "revert"
  [[tasks.postchecks]]
  constraint = "tests_pass"
  [[tasks.postchecks]]
  native = "sined"
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn limits_that_let_nothing_be_done_and_globs_that_lead_out_are_refused_with_their_places() {
    let shape = faults(
        r#"
[[tasks]]
name = "a"
agent = "coder"
prompt = "Do it."
timeout = "0s"
idle = "0ms"
budget = { rounds = 0 }
  [[tasks.postchecks]]
  command = ["x"]
  timeout = "0m"
[[tasks]]
name = "b"
wait_for = { event = "done", timeout = "0s" }
"#,
    );
    let meaning = faults(
        r#"
budget = { wall = "0s" }
[[tasks]]
name = "a"
agent = "coder"
prompt = "Do it."
write_paths = ["src/**", "../x"]
protected_paths = ["a/{..,b}/c"]
[[tasks]]
name = "b"
command = ["x"]
budget = { wall = "0s" }
"#,
    );

    insta::assert_snapshot!([shape, meaning].concat().join("\n"));
}

#[test]
fn variables_have_defaults_and_are_set_from_outside() {
    let text = "variables = { a = { default = \"1\" }, b = { required = true } }\n[[tasks]]\nname = \"t\"\nagent = \"coder\"\nprompt = \"{{a}} {{b}}\"\n";

    let plan = plan(text, json!({ "b": "2" }));

    assert_eq!(Value::Object(plan.variables().clone()), json!({ "a": "1", "b": "2" }));
}

#[test]
fn only_an_agent_is_tried_again_where_nobody_says_how_often() {
    let tries = |body: &str, rest: &str| {
        let text = format!("[[tasks]]\nname = \"t\"\n{body}\n{rest}\n");
        tasks(&plan(&text, json!({})))[0].retries.max
    };
    let (agent, command) = ("agent = \"coder\"\nprompt = \"x\"", "command = [\"./deploy\"]");
    let native = "native = \"deploy\"";

    let unsaid = [agent, command, native].map(|body| tries(body, ""));
    let half = [agent, command, native].map(|body| tries(body, "retries = { outage = \"1m\" }"));
    let said = [agent, command, native].map(|body| tries(body, "retries = { max = 1 }"));
    let found = faults(&format!(
        "[[tasks]]\nname = \"t\"\n{command}\nbefore_retry = [{{ command = [\"./roll-back\"] }}]\n"
    ));

    assert_eq!((unsaid, half, said), ([2, 0, 0], [2, 0, 0], [1, 1, 1]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a command is not tried again unless retries say so"), "{found:?}");
}

#[test]
fn names_of_results_are_unique_and_used_only_by_what_comes_after() {
    let found = faults(
        r#"variables = { taken = { default = "x" } }
[[tasks]]
name = "a"
agent = "coder"
prompt = "Say {{own}}."
output = "own"
[[tasks]]
name = "b"
command = ["echo", "{{own}}", "{{owm}}"]
output = "own"
[[tasks]]
name = "c"
command = ["true"]
depends_on = ["a"]
when = "vars.own == 'x' && own == 'y' && vars.deep == 1"
output = "taken"
[[tasks]]
name = "d"
depends_on = ["a"]
  [[tasks.subtasks]]
  name = "e"
  command = ["sh", "-c", "echo {{own}}"]
  output = "deep"
  [[tasks.subtasks]]
  name = "f"
  command = ["true"]
  output = "item"
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn services_are_read_with_every_fault_at_its_place() {
    let shape = faults(
        r#"[[services]]
name = "db"
command = ["postgres"]
ready = { command = ["pg_isready"], timeout = "0s" }
restarts = 101
[[services]]
name = "Web"
comand = ["python3"]
[[tasks]]
name = "a"
command = ["true"]
"#,
    );
    let meaning = faults(
        r#"variables = { port = { default = 5432 } }
[[services]]
name = "db"
command = ["postgres", "-p", "{{port}}", "{{prt}}"]
ready = { command = [] }
[[services]]
name = "db"
command = ["redis", "{{tasks.a.text}}", "{{said}}"]
[[tasks]]
name = "a"
command = ["true"]
output = "said"
"#,
    );
    let sound = plan(
        "[[services]]\nname = \"db\"\ncommand = [\"postgres\"]\nready = { command = [\"pg_isready\"] }\n\
         [[services]]\nname = \"web\"\ncommand = [\"serve\"]\nrestarts = 3\n\
         [[tasks]]\nname = \"a\"\ncommand = [\"true\"]\n",
        json!({}),
    );

    insta::assert_snapshot!([shape, meaning].concat().join("\n"));
    let services: Vec<String> =
        sound.root().services.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
    assert_eq!(
        services,
        [
            r#"{"name":"db","argv":["postgres"],"ready":{"argv":["pg_isready"],"timeout":"1m"},"restarts":1}"#,
            r#"{"name":"web","argv":["serve"],"restarts":3}"#,
        ]
    );
}

#[test]
fn a_check_starts_no_services() {
    let text = "format_version = 1\nname = \"smoke\"\n[[services]]\nname = \"db\"\ncommand = [\"postgres\"]\n\
                [[tasks]]\nname = \"look\"\ncommand = [\"true\"]\n";
    let smoke = WrittenWorkflow { file: "smoke.toml".to_owned(), text: text.to_owned() };
    let mut known = known();
    known.workflows.insert("smoke".parse().unwrap(), smoke);
    let outer = "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"b\"\ncommand = [\"true\"]\n\
                 [[tasks.postchecks]]\nworkflow = \"smoke\"\n";

    let found = Plan::parse("w.toml", outer, &known, &Map::new()).unwrap_err();

    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "w.toml:7:12: tasks[0].postchecks[0].workflow: workflow smoke needs service db"
        ),
        "{found:?}"
    );
}

#[test]
fn the_words_of_a_single_task_are_no_template() {
    let task = SingleTask {
        agent: "coder".parse().unwrap(),
        prompt: "Explain {{mustache}}.".to_owned(),
        postchecks: Vec::new(),
        retries: Retries::default(),
        timeout: None,
    };

    let plan = Plan::single("task".parse().unwrap(), task, Budget::default());

    assert_eq!(plan.variables().get("request"), Some(&json!("Explain {{mustache}}.")));
    assert!(matches!(&plan.root().body, Body::Agent { prompt, .. } if prompt == "{{request}}"));
    assert!(Ending::Completed.satisfies());
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,400}") {
        let _ = Plan::parse("w.toml", &text, &known(), &Map::new());
    }

    #[test]
    fn random_dependencies_are_refused_or_acyclic(edges in prop::collection::vec((0_usize..6, 0_usize..6), 0..12)) {
        let mut text = String::from("format_version = 1\nname = \"w\"\n");
        for at in 0..6 {
            let on: Vec<String> =
                edges.iter().filter(|(from, _)| *from == at).map(|(_, to)| format!("\"t{to}\"")).collect();
            text.push_str(&format!("[[tasks]]\nname = \"t{at}\"\ncommand = [\"x\"]\ndepends_on = [{}]\n", on.join(", ")));
        }

        let parsed = Plan::parse("w.toml", &text, &known(), &Map::new());

        // Kahn's algorithm as the judge.
        let mut left: Vec<usize> = (0..6).collect();
        while let Some(free) = left.iter().position(|at| !edges.iter().any(|(from, to)| from == at && left.contains(to))) {
            left.remove(free);
        }
        prop_assert_eq!(parsed.is_ok(), left.is_empty());
    }
}

#[test]
fn the_caps_of_whoever_runs_a_workflow_hold_whatever_it_says() {
    let capped = |workflow: &str, user: Budget| {
        let text = format!("budget = {workflow}\n[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\n");
        let mut plan = plan(&text, json!({}));
        plan.cap(&user);
        plan.root().budget.clone()
    };
    let dollars = |policy| Budget {
        usd: Some("0.1".parse().unwrap()),
        on_exhausted: policy,
        ..Budget::default()
    };
    let (grace, hour) = (OnExhausted::Grace(Span::from_secs(60)), Span::from_secs(3600));

    for lax in ["\"unlimited\"", "{ grace = \"1h\" }"] {
        for workflow in ["on_exhausted = LAX", "usd = \"0.05\", on_exhausted = LAX"] {
            let workflow = format!("{{ {} }}", workflow.replace("LAX", lax));
            let unsaid = capped(&workflow, dollars(None)).on_exhausted;
            let said = capped(&workflow, dollars(Some(grace))).on_exhausted;

            assert_eq!(unsaid, Some(OnExhausted::BlockNew), "{workflow}");
            assert_eq!(said, Some(grace), "{workflow}");
        }
    }
    // A cap that is the workflow's own is what it says.
    let own = capped("{ usd = \"1\", on_exhausted = { grace = \"1h\" } }", Budget::default());
    assert_eq!(own.on_exhausted, Some(OnExhausted::Grace(hour)));
    let strict = capped("{ on_exhausted = \"cancel_all\" }", dollars(Some(grace)));
    assert_eq!(strict.on_exhausted, Some(OnExhausted::CancelAll));
    let default = capped("{ usd = \"0.05\" }", dollars(Some(OnExhausted::Unlimited)));
    assert_eq!(default.on_exhausted, Some(OnExhausted::BlockNew));
    assert_eq!(capped("{ usd = \"0.05\" }", dollars(None)).on_exhausted, None);
    let wall = Budget { wall: Some(hour), ..Budget::default() };
    let timed = capped("{ usd = \"1\", on_exhausted = \"unlimited\" }", wall);
    assert_eq!(timed.on_exhausted, Some(OnExhausted::BlockNew));
    let tree =
        Budget { tree: Some(TreeCaps { tasks: 5, ..TreeCaps::default() }), ..Budget::default() };
    let grown = capped("{ tree = { depth = 2, tasks = 900 } }", tree).tree.unwrap();
    assert_eq!((grown.depth, grown.tasks), (2, 5));
}

/// Two levels, at most three beside each other, and six with the root.
const LARGE: &str = r#"budget = { tree = { depth = 1, fan_out = 2, tasks = 5 } }
variables = { list = { default = [1, 2, 3, 4] } }
[[tasks]]
name = "a"
command = ["x"]
[[tasks]]
name = "b"
budget = { tree = { tasks = 2 } }
subtasks = [{ name = "c", command = ["x"] }, { name = "d", command = ["x"] }]
[[tasks]]
name = "e"
for_each = "vars.list"
budget = { tree = { fan_out = 3 } }
command = ["x"]
"#;

#[test]
fn what_is_written_down_is_held_to_the_caps_of_its_tree() {
    let found = faults(LARGE);

    assert_eq!(
        found,
        [
            "w.toml:3:29: budget.tree.depth: 2 levels of tasks are written down, and 1 are allowed",
            "w.toml:3:42: budget.tree.fan_out: 3 children of one task are written down, and 2 are allowed",
            "w.toml:3:53: budget.tree.tasks: 6 tasks altogether are written down, and 5 are allowed; \
             the one around them is one of them",
            "w.toml:10:29: tasks[1].budget.tree.tasks: 3 tasks altogether are written down, and 2 are allowed; \
             the one around them is one of them",
        ]
    );
    // What nobody has capped may be as large as it likes, and so may what is not there yet.
    let free = LARGE.replace("depth = 1, fan_out = 2, tasks = 5", "tasks = 6");
    let free = free.replace("tree = { tasks = 2 }", "");
    assert_eq!(plan(&free, json!({})).held(), Ok(()));
}

#[test]
fn what_a_config_caps_is_held_before_anything_runs() {
    let text =
        "[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\n[[tasks]]\nname = \"b\"\ncommand = [\"x\"]\n";
    let tree = TreeCaps { tasks: 2, ..TreeCaps::default() };
    let mut capped = plan(text, json!({}));

    capped.cap(&Budget { tree: Some(tree), ..Budget::default() });

    let told = capped.held().unwrap_err().to_string();
    assert_eq!(told, "task w has 3 tasks altogether written down, and may have 2");
    let text = format!("format_version = 1\nname = \"w\"\n{text}");
    let told = beyond_caps("w.toml", &text, tree).to_string();
    assert!(told.starts_with("w.toml:3:1: tasks: 3 tasks altogether are written down"), "{told}");
    assert!(told.contains("2 are allowed by budget.tree of the config"), "{told}");
}

#[test]
fn lines_that_are_only_told_of_are_no_limit_of_their_check() {
    let text = "[[tasks]]\nname = \"a\"\ncommand = [\"x\"]\n\
                budget = { diff_lines = 9, on_exhausted = \"unlimited\" }\n";
    let lines = |plan: &Plan| {
        let checks = tasks(plan)[0].postchecks.iter().chain(&plan.root().postchecks);
        let told = checks.map(|check| match &check.kind {
            CheckKind::Diff(diff) => (check.name.clone(), diff.max_lines),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>()
    };
    let mut free = plan(text, json!({}));
    let mut held = plan(&text.replace("unlimited", "block_new"), json!({}));

    let own = (lines(&free), lines(&held));
    free.cap(&Budget { diff_lines: Some(7), ..Budget::default() });
    held.cap(&Budget { diff_lines: Some(7), ..Budget::default() });

    let told = ("more than 9 changed lines are told of".to_owned(), None);
    let nine = ("at most 9 changed lines".to_owned(), Some(9));
    // Whoever runs it holds the whole to what they say, and lets nothing pass by what a task says.
    let seven = ("at most 7 changed lines".to_owned(), Some(7));
    assert_eq!(own, (vec![told.clone()], vec![nine.clone()]));
    assert_eq!((lines(&free), lines(&held)), (vec![told, seven.clone()], vec![nine, seven]));
    let lax = "budget = { diff_lines = 9, on_exhausted = \"unlimited\" }\n[[tasks]]\nname = \"a\"\n\
               command = [\"x\"]\n";
    let mut lax = plan(lax, json!({}));
    lax.cap(&Budget { diff_lines: Some(12), ..Budget::default() });
    assert_eq!(lines(&lax), [("at most 9 changed lines".to_owned(), Some(9))]);
}

#[test]
fn a_task_is_capped_by_its_agents_budget_too() {
    let mut plan = plan(
        r#"
[[tasks]]
name = "all"

  [[tasks.subtasks]]
  name = "a"
  agent = "coder"
  prompt = "Do it."
  budget = { usd = "1", rounds = 9 }

  [[tasks.subtasks]]
  name = "b"
  agent = "writer"
  prompt = "Do it."
"#,
        json!({}),
    );
    let coder = Budget { usd: Some("2".parse().unwrap()), rounds: Some(5), ..Budget::default() };

    plan.cap_agents(|agent| (agent.as_str() == "coder").then_some(&coder));

    let Body::Subtasks { tasks: below, .. } = &tasks(&plan)[0].body else { panic!("{plan:?}") };
    let capped = Budget { usd: Some("1".parse().unwrap()), ..coder };
    assert_eq!((&below[0].budget, &below[1].budget), (&capped, &Budget::default()));
}

#[test]
fn what_is_protected_is_checked_when_each_task_below_ends() {
    let plan = plan(
        r#"
[[tasks]]
name = "all"
write_paths = ["src/**"]
protected_paths = ["tests/**"]

  [[tasks.subtasks]]
  name = "a"
  command = ["true"]
  protected_paths = ["Cargo.toml"]
  postchecks = [{ command = ["make"] }]

  [[tasks.subtasks]]
  name = "b"
  command = ["true"]
  postchecks = [{ unchanged = ["tests/**"] }]
"#,
        json!({}),
    );

    let Body::Subtasks { tasks: below, .. } = &tasks(&plan)[0].body else { panic!("{plan:?}") };
    let told: Vec<_> = below
        .iter()
        .map(|task| {
            let checks: Vec<_> = task.postchecks.iter().map(|check| check.name.as_str()).collect();
            (
                task.write_paths.as_deref().unwrap_or_default().join(" "),
                task.protected_paths.join(" "),
                checks,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                "src/**".into(),
                "Cargo.toml tests/**".into(),
                vec![
                    "unchanged Cargo.toml tests/**",
                    "make",
                    "unchanged Cargo.toml tests/**, after the checks"
                ]
            ),
            ("src/**".into(), "tests/**".into(), vec!["unchanged tests/**"]),
        ]
    );
    assert!(tasks(&plan)[0].postchecks.is_empty());
}

#[test]
fn a_list_of_no_paths_is_no_word_on_what_may_be_written_at_any_depth() {
    let found = faults(
        r#"
[[tasks]]
name = "all"

  [[tasks.subtasks]]
  name = "a"
  command = ["true"]
  write_paths = []

[[tasks]]
name = "each"
for_each = "[1]"
command = ["true"]
write_paths = []
"#,
    );

    let told = "write_paths names no path; name paths, as in [\"src/**\"]; for a task that may write nothing, \
                protected_paths = [\"**\"]; leave the key out for all that the config allows";
    assert_eq!(
        found,
        [
            format!("w.toml:10:17: tasks[0].subtasks[0].write_paths: {told}"),
            format!("w.toml:16:15: tasks[1].write_paths: {told}"),
        ]
    );
}

#[test]
fn two_levels_do_not_both_say_what_may_be_written() {
    let found = faults(
        r#"
[[tasks]]
name = "all"
write_paths = ["src/**"]

  [[tasks.subtasks]]
  name = "a"
  command = ["true"]
  write_paths = ["src/a/**"]
"#,
    );

    assert_eq!(
        found,
        ["w.toml:6:15: tasks[0].write_paths: task a below has write_paths of its own; \
          give write_paths to one of the two"]
    );
}

#[test]
fn a_condition_is_parsed_and_every_name_in_it_is_known_before_anything_runs() {
    let found = faults(
        r#"variables = { wanted = { default = true } }
[[tasks]]
name = "a-b"
command = ["x"]
[[tasks]]
name = "group"
  [[tasks.subtasks]]
  name = "c"
  command = ["x"]
  when = "tasks['a-b'].passed && vars.wanted"
[[tasks]]
name = "b"
depends_on = ["a-b"]
command = ["x"]
when = "tasks.a-b.passed || tasks['a-b'].pased || vars.wnated || wanted || task.x || size(tasks) > 1"
[[tasks]]
name = "d"
command = ["x"]
when = "vars.wanted >"
[[tasks]]
name = "e"
command = ["x"]
when = "env('HOME') == ''"
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_sound_condition_is_kept_with_its_task() {
    let plan = plan(
        r#"variables = { languages = { default = ["rust"] } }
[[tasks]]
name = "a"
command = ["x"]
[[tasks]]
name = "b"
depends_on = ["a"]
command = ["x"]
when = "tasks.a.files_changed > 0 && vars.languages.exists(it, it == 'rust')"
"#,
        json!({}),
    );

    assert_eq!(
        tasks(&plan)[1].when.as_deref(),
        Some("tasks.a.files_changed > 0 && vars.languages.exists(it, it == 'rust')")
    );
}

#[test]
fn what_is_wrong_with_items_schemas_and_executions_is_told_at_once() {
    let found = faults(
        r#"on_failure = "ignore"
variables = { list = { default = [1] } }
[[tasks]]
name = "a"
command = ["echo", "{{item}}", "{{list}}", "{{nothing}}", "{{#if"]
max_concurrency = 2
on_item_failure = "abort"
[[tasks]]
name = "b"
for_each = "vars.lst"
command = ["echo", "{{item}}", "{{index}}"]
before_retry = [{ command = ["echo", "{{item}}"] }]
on_success = [{ command = ["echo", "{{item}}"] }]
[[tasks]]
name = "c"
for_each = "item"
agent = "coder"
prompt = "Port to {{item}}."
output_schema = { type = "array" }
[[tasks]]
name = "d"
native = "deploy"
output_schema = { type = "nonsense" }
before_retry = [{ command = [] }]
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_value_that_the_workflow_does_not_say_itself_is_put_into_no_code() {
    let found = faults(
        r#"variables = { list = { default = ["a"] }, greeting = { default = "hello" } }
[[tasks]]
name = "ask"
agent = "coder"
prompt = "Say something to {{greeting}}."
[[tasks]]
name = "run"
depends_on = ["ask"]
command = ["sh", "-c", "echo {{greeting}} {{tasks.ask.text}}"]
before_retry = [{ command = ["bash", "-lc", "{{tasks.ask.output.name}}"] }]
on_success = [{ command = ["python3", "-c", "print('{{tasks.ask.text}}')"] }]
  [[tasks.prechecks]]
  command = ["node", "-e", "console.log('{{tasks.ask.text}}')"]
  [[tasks.postchecks]]
  suite = ["{{tasks.ask.text}}", "test"]
[[tasks]]
name = "each"
depends_on = ["ask"]
for_each = "tasks.ask.output.names"
command = ["perl", "-e", "print '{{item}}'"]
[[tasks]]
name = "nested"
depends_on = ["ask"]
for_each = "tasks.ask.output.names"
  [[tasks.subtasks]]
  name = "one"
  for_each = "item.parts"
  command = ["env", "A=b", "sh", "-c", "echo {{item}} {{index}}"]
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_variable_that_a_check_sets_by_what_a_task_said_is_put_into_no_code() {
    let text = "format_version = 1\nname = \"smoke\"\nvariables = { said = { required = true }, own = { required = true } }\n\
                [[tasks]]\nname = \"look\"\ncommand = [\"sh\", \"-c\", \"test {{own}} = {{said}}\"]\n\
                [[tasks]]\nname = \"own\"\ncommand = [\"sh\", \"-c\", \"test {{own}}\"]\n";
    let smoke = WrittenWorkflow { file: "smoke.toml".to_owned(), text: text.to_owned() };
    let mut known = known();
    known.workflows.insert("smoke".parse().unwrap(), smoke);
    let outer = "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"ask\"\nagent = \"coder\"\nprompt = \"x\"\n\
                 [[tasks]]\nname = \"b\"\ndepends_on = [\"ask\"]\ncommand = [\"true\"]\n\
                 [[tasks.postchecks]]\nworkflow = \"smoke\"\nvars = { said = \"{{tasks.ask.text}}\", own = \"a\" }\n";

    let found = Plan::parse("w.toml", outer, &known, &Map::new()).unwrap_err();

    let found: Vec<String> =
        found.iter().map(|fault| format!("{} {}", fault.source, fault.key)).collect();
    assert_eq!(found, ["smoke.toml tasks[0].command[2]"]);
}

#[test]
fn what_the_workflow_says_itself_may_be_put_into_code_and_all_else_beside_it() {
    let plan = plan(
        r#"variables = { list = { default = ["a"] }, greeting = { default = "hello" } }
[[tasks]]
name = "ask"
decision = { question = "Which?", options = ["a", "b"] }
[[tasks]]
name = "run"
depends_on = ["ask"]
command = ["sh", "-c", "echo {{greeting}} \"$1\"", "sh", "{{tasks.ask.text}}"]
on_success = [{ command = ["env", "X={{tasks.ask.text}}", "sh", "-c", "echo \"$X\""] }]
[[tasks]]
name = "each"
for_each = "vars.list"
command = ["sh", "-c", "echo {{item}} {{index}}"]
"#,
        json!({}),
    );

    assert_eq!(tasks(&plan).len(), 3);
}

#[test]
fn an_item_bears_what_is_tried_again_and_the_whole_what_is_checked() {
    let plan = plan(
        r#"[[tasks]]
name = "port"
for_each = "['rust', 'zig']"
command = ["port", "{{item}}"]
retries = { max = 5 }
output_schema = { type = "object" }
write_paths = ["src/**"]
protected_paths = ["tests/**"]
  [[tasks.postchecks]]
  command = ["all-there"]
"#,
        json!({}),
    );

    let whole = &tasks(&plan)[0];
    let Body::ForEach(each) = &whole.body else { panic!("{whole:?}") };
    assert_eq!((whole.postchecks.len(), whole.retries.max), (1, Retries::default().max));
    assert_eq!(
        (each.task.retries.max, each.task.write_paths.as_deref()),
        (5, Some(&["src/**".to_owned()][..]))
    );
    let checks: Vec<_> = each.task.postchecks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(checks, ["unchanged tests/**", "output"]);
}

#[test]
fn what_is_wrong_with_the_shape_of_waits_and_decisions_is_told() {
    let found = faults(
        "[[tasks]]\nname = \"a\"\nwait_for = { event = \"Review\", timout = \"1h\" }\n\
         [[tasks]]\nname = \"b\"\ndecision = { question = \"x\", options = [\"yes\"] }\n",
    );

    assert_eq!(
        found,
        [
            "w.toml:5:22: tasks[0].wait_for.event: \"Review\" is no event name: 'R' is not one of a-z 0-9 _ - .",
            "w.toml:5:32: tasks[0].wait_for: unknown key \"timout\"; nearest is \"timeout\"",
            "w.toml:8:40: tasks[1].decision.options: wanted at least 2 items, found 1",
        ]
    );
}

#[test]
fn what_is_wrong_with_waits_and_decisions_is_told_at_once() {
    let found = faults(
        r#"[[tasks]]
name = "a"
wait_for = { event = "review", where = "data.pr == vars.pr" }
[[tasks]]
name = "b"
wait_for = { event = "review", where = "dta.pr == 1", timeout = "1h" }
[[tasks]]
name = "c"
decision = { question = " ", options = ["yes", "no"], assume = "ye" }
[[tasks]]
name = "d"
decision = { question = "Go to {{place}}?", options = ["yes", "yes", ""], timeout = "1h" }
[[tasks]]
name = "e"
command = ["true"]
wait_for = { event = "x" }
"#,
    );

    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn a_suite_and_progress_are_said_of_any_task_and_only_where_they_mean_something() {
    let sound = plan(
        r#"
[[tasks]]
name = "a"
command = ["x"]
prechecks = [{ suite = ["cargo", "test"] }]
postchecks = [{ progress = true, max_rounds = 2 }, { suite = ["cargo", "test"], compare = "new" }]
"#,
        json!({}),
    );

    let found = faults(
        r#"
[[tasks]]
name = "a"
command = ["x"]
prechecks = [{ progress = true }, { suite = ["x"], compare = "new" }]
postchecks = [{ suite = ["y"], compare = "new" }, { command = ["z"], compare = "all" }, { suite = [] }]
"#,
    );

    let checks = &tasks(&sound)[0].postchecks;
    assert_eq!(checks[0].kind, CheckKind::Progress);
    assert_eq!(
        checks[1].kind,
        CheckKind::Suite(SuiteCheck {
            argv: vec!["cargo".to_owned(), "test".to_owned()],
            parse: Some(Parser::CargoTest),
            compare: Compare::New,
        })
    );
    let told: Vec<&str> =
        found.iter().map(|fault| fault.split_once(": tasks[0].").unwrap().1).collect();
    assert_eq!(
        told,
        [
            "prechecks[0].progress: progress compares rounds with each other: it belongs to an exit check",
            "prechecks[1].compare: compare belongs to a suite that is an exit check",
            "postchecks[0].compare: nobody finds out what fails before the task begins; \
             name the same suite among the prechecks",
            "postchecks[1].compare: compare belongs to a suite that is an exit check",
            "postchecks[2].suite: a command names a program, found an empty list",
        ]
    );
}
