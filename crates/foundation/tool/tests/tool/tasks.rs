//! Where tasks begin and end.

use formwork_protocols::{Claim, tool::Control};
use serde_json::json;

use crate::world::{Setup, World};

#[tokio::test]
async fn an_opened_task_is_entered() {
    let world = World::new();

    let told = world.call("start_task", json!({ "name": "parser", "goal": "it parses" })).await;

    assert_eq!(told.text, "task parser is open; close it with end_task");
    assert!(matches!(told.control, Control::Enter(_)), "{:?}", told.control);
    let opened = world.tasks.opened.lock().unwrap();
    let [(parent, name, goal)] = &opened[..] else { panic!("{opened:?}") };
    assert_eq!(
        (*parent, name.as_str(), goal.as_str()),
        (world.context.task, "parser", "it parses")
    );
}

#[tokio::test]
async fn a_task_that_cannot_be_opened_says_why() {
    let world = World::new();
    world.done("start_task", json!({ "name": "parser", "goal": "it parses" })).await;

    let taken = world.call("start_task", json!({ "name": "parser", "goal": "again" })).await;
    let malformed = world.fails("start_task", json!({ "name": "The Parser", "goal": "" })).await;

    assert_eq!(taken.text, "error (denied): there is a task parser already");
    assert_eq!(taken.control, Control::Continue);
    assert!(malformed.starts_with("error (invalid_arguments): "), "{malformed}");
}

#[tokio::test]
async fn the_end_of_a_task_carries_its_claim() {
    let world = World::new();

    let arguments = json!({ "summary": "it parses", "output": { "rules": 3 } });
    let told = world.call("end_task", arguments).await;

    let claim = Claim { summary: "it parses".to_owned(), output: Some(json!({ "rules": 3 })) };
    assert_eq!(told.control, Control::End(claim));
}

#[tokio::test]
async fn a_claim_takes_no_secret_along() {
    let world = World::with(Setup { secret: Some("tok_4f9a83b2c7"), ..Setup::default() });

    let told = world.call("end_task", json!({ "summary": "used {{secret:KEY}}" })).await;

    let claim = Claim { summary: "used {{secret:KEY}}".to_owned(), output: None };
    assert_eq!(told.control, Control::End(claim));
}
