//! A workflow of three tasks, from the command line to the log.

use formwork_testkit::http::Gate;
use serde_json::{Value, json};

use crate::{
    answers::{calling, calls, ends, held},
    world::{World, end_of, on_postgres},
};

/// A pair that may overlap, and one task after both. Each leaves a file and a mark in a ledger.
pub(crate) const THREE: &str = r#"
[[tasks]]
name = "left"
agent = "left"
prompt = "Write left.txt."
postchecks = [{ name = "left is written", command = ["grep", "-qx", "left", "left.txt"] }]

[[tasks]]
name = "right"
agent = "right"
prompt = "Write right.txt."
postchecks = [{ name = "right is written", command = ["grep", "-qx", "right", "right.txt"] }]

[[tasks]]
name = "both"
agent = "both"
depends_on = ["left", "right"]
prompt = "Put {{tasks.left.text}} and {{tasks.right.text}} together."
postchecks = [{ name = "both are together", command = ["grep", "-qx", "left right", "both.txt"] }]
"#;

/// Writes the agents of the workflow and the workflow.
pub(crate) fn three(world: &World) -> &'static str {
    world.repo.write("mark.sh", "echo done >> $1.marks\n").unwrap();
    world.agent("left", "one");
    world.agent("right", "two");
    world.agent("both", "three");
    world.workflow(THREE)
}

/// Writes `text` to `name`.txt, and a line to `name`.marks by a program.
pub(crate) fn work(name: &str, text: &str) -> Vec<(&'static str, Value)> {
    let file = format!("{name}.txt");
    vec![
        ("fs.write", json!({ "path": file, "content": format!("{text}\n") })),
        ("exec", json!({ "command": ["sh", "mark.sh", name] })),
    ]
}

/// Returns the states of the tasks by their names.
pub(crate) fn states(shown: &Value) -> Vec<(&str, &str)> {
    let tasks = shown["tasks"].as_array().unwrap();
    tasks
        .iter()
        .map(|task| (task["name"].as_str().unwrap(), task["state"].as_str().unwrap()))
        .collect()
}

async fn three_tasks_end_as_they_should(world: World) {
    let workflow = three(&world);
    let (left, right) = (Gate::new(), Gate::new());
    world.server.reply(&World::chat("one"), held(&left, &calling(&work("left", "left"))));
    world.server.reply(&World::chat("two"), held(&right, &calling(&work("right", "right"))));
    world.server.reply(&World::chat("three"), calls(&work("both", "left right")));
    for (provider, said) in [("one", "LEFT"), ("two", "RIGHT"), ("three", "BOTH")] {
        world.server.reply(&World::chat(provider), ends(said));
    }

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    // Neither answer begins before both are asked for: the pair overlaps or nothing goes on.
    left.reached().await;
    right.reached().await;
    left.open();
    right.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.last_line().starts_with("completed"), "{ended:#?}");
    let shown = world.shown().await;
    assert_eq!(
        states(&shown),
        [
            ("work", "completed"),
            ("left", "completed"),
            ("right", "completed"),
            ("both", "completed")
        ]
    );
    assert_eq!(shown["run"]["code"], "completed");
    let verdicts: Vec<_> = shown["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["verdict"]["check"].as_str().unwrap(), &check["verdict"]["passed"]))
        .collect();
    assert_eq!(verdicts.len(), 3, "{verdicts:?}");
    assert!(verdicts.iter().all(|(_, passed)| **passed == true), "{verdicts:?}");
    for (file, text) in
        [("both.txt", "left right\n"), ("left.marks", "done\n"), ("both.marks", "done\n")]
    {
        assert_eq!(world.repo.read(file).unwrap(), text);
    }
    // What the pair said of itself reached the one that depends on both.
    let asked = world.server.requests();
    let last = asked.iter().find(|request| request.path() == World::chat("three")).unwrap();
    assert!(last.text().contains("Put LEFT and RIGHT together."), "{}", last.text());
    world.assert_sound().await;
}

#[tokio::test]
async fn a_pair_overlaps_and_the_third_task_follows_both() {
    three_tasks_end_as_they_should(World::new().await).await;
}

#[tokio::test]
async fn pg_a_pair_overlaps_and_the_third_task_follows_both() {
    on_postgres(three_tasks_end_as_they_should).await;
}

#[tokio::test]
async fn a_value_that_would_become_an_option_of_a_program_is_refused_in_tasks_checks_and_steps() {
    let world = World::new().await;
    let log = "command = [\"git\", \"log\", \"{{ref}}\"]";
    let ways = [
        log.to_owned(),
        format!("command = [\"true\"]\nprechecks = [{{ {log} }}]"),
        format!("command = [\"true\"]\npostchecks = [{{ {log} }}]"),
        format!("command = [\"true\"]\non_success = [{{ {log} }}]"),
    ];
    for way in ways {
        let workflow = world.workflow(&format!(
            "variables = {{ ref = {{ default = \"HEAD\" }} }}\n[[tasks]]\nname = \"look\"\n{way}\nretries = {{ max = 0 }}\n"
        ));

        let sound = world.run(["run", workflow]).await;
        let odd = world.run(["run", workflow, "--var", "ref=--output=owned"]).await;

        assert_eq!(sound.code, Some(0), "{way}: {sound:#?}");
        assert_ne!(odd.code, Some(0), "{way}: {odd:#?}");
        let told = "\"--output=owned\" begins like an option, and is to be none";
        assert!(format!("{}{}", odd.stdout, odd.stderr).contains(told), "{way}: {odd:#?}");
        assert!(!world.path("owned").exists(), "{way}");
    }
}
