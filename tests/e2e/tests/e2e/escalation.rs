//! What nobody was there to be asked: assumed, gone on with, and answered later.

use serde_json::{Value, json};

use crate::world::{World, on_postgres};

async fn an_escalation_is_asked_about(world: World) {
    let workflow = world.workflow(
        "[[tasks]]\nname = \"fails\"\ncommand = [\"false\"]\nretries = { max = 0 }\n\
         [[tasks]]\nname = \"beside\"\ncommand = [\"true\"]\n",
    );

    let ended = world.run(["run", workflow, "--headless"]).await;
    let waiting = world.json(["inbox", "list"]).await;
    let shown = world.run(["inbox", "list"]).await;
    let item = waiting["items"][0]["item"].as_str().unwrap().to_owned();
    let answered = world.json(["inbox", "answer", &item, "try again"]).await;
    let again = world.run(["inbox", "answer", &item, "leave it"]).await;
    let left = world.json(["inbox", "list"]).await;

    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let asked = &waiting["items"].as_array().unwrap()[..];
    assert_eq!(asked.len(), 1, "{asked:#?}");
    let question = asked[0]["question"].as_str().unwrap();
    assert!(question.starts_with("task fails was given up: "), "{question}");
    assert_eq!(asked[0]["assume"], "leave it");
    assert!(shown.stdout.contains("leave it; the run has gone on"), "{shown:#?}");
    assert_eq!(answered["item"]["state"], "answered");
    assert_ne!(again.code, Some(0), "{again:#?}");
    assert_eq!(left["items"], json!([]));
    let said: Vec<Value> = world.events("inbox.answered").await;
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["principal"], "user:ada");
    assert_eq!(said[0]["data"]["answer"], "try again");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_5_an_escalation_that_nobody_watches_is_asked_about_and_answered_later() {
    an_escalation_is_asked_about(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_5_an_escalation_that_nobody_watches_is_asked_about_and_answered_later() {
    on_postgres(an_escalation_is_asked_about).await;
}
