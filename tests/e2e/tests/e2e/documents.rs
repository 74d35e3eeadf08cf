//! Documents with faults: all are told at their places, and nothing is begun.

use serde_json::json;

use crate::{
    workflow::three,
    world::{World, on_postgres},
};

/// A wrong key, a circle, an unknown agent, an unknown name in a prompt, a check of no kind.
const WRONG: &str = r#"
[[tasks]]
name = "left"
agent = "left"
promt = "Write left.txt."
depends_on = ["right"]

[[tasks]]
name = "right"
agent = "rigth"
prompt = "After {{tasks.lef.text}}."
depends_on = ["left"]
postchecks = [{ name = "none" }]

[[tasks]]
name = "both"
agent = "right"
prompt = "Go."
"#;

/// An agent whose tool does not exist and whose model has no price.
const RIGHT: &str = r#"format_version = 1
name = "right"
model = "two/free"
prompt = "right.md"

[tools]
allow = ["fs.wirte"]
"#;

async fn all_faults_are_told_at_their_places(world: World) {
    three(&world);
    world.agent("left", "nobody");
    world.repo.write(".formwork/agents/right.toml", RIGHT).unwrap();
    let workflow = world.workflow(WRONG);

    let ended = world.run(["run", workflow, "--json"]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let told = ended.json();
    assert_eq!(told["outcome"]["code"], "setup");
    let folder = format!("{}/.formwork/", world.repo.path().canonicalize().unwrap().display());
    let errors: Vec<_> = told["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error.as_str().unwrap().replace(&folder, ""))
        .collect();
    insta::assert_snapshot!(errors.join("\n"));
    assert_eq!(world.json(["events"]).await["events"], json!([]));
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test]
async fn every_fault_of_a_workflow_and_its_agents_is_told_and_nothing_is_begun() {
    all_faults_are_told_at_their_places(World::new().await).await;
}

#[tokio::test]
async fn pg_every_fault_of_a_workflow_and_its_agents_is_told_and_nothing_is_begun() {
    on_postgres(all_faults_are_told_at_their_places).await;
}

#[tokio::test]
async fn faults_are_shown_to_people_with_the_lines_around_them() {
    let world = World::new().await;
    three(&world);
    let workflow =
        world.workflow("[[tasks]]\nname = \"one\"\nagent = \"leff\"\nprompt = \"Go.\"\n");

    let ended = world.run(["run", workflow]).await;

    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    let folder = format!("{}/", world.repo.path().canonicalize().unwrap().display());
    insta::assert_snapshot!(ended.stderr.replace(&folder, ""));
}
