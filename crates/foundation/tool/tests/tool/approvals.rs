//! Who is asked what the rules leave open, and what an answer covers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use formwork_protocols::{
    Answer, Approval, ApprovalRequest, Approver, Cancel, Cover, EventBody, PermissionMode,
    Principal, message::Arguments,
};
use serde_json::{Value, json};

use crate::world::{Setup, World};

/// Answers what it was told to, in order, and remembers what it was asked. When it has no answer left it
/// raises the signal to stop, as a person does who leaves.
#[derive(Default)]
struct Person {
    answers: Mutex<VecDeque<Says>>,
    asked: Mutex<Vec<ApprovalRequest>>,
    leaves: Cancel,
}

#[derive(Clone)]
enum Says {
    Once,
    Exact,
    Alike,
    No(&'static str),
}

#[async_trait]
impl Approver for Person {
    async fn ask(&self, request: &ApprovalRequest, cancel: &Cancel) -> Option<Answer> {
        self.asked.lock().unwrap().push(request.clone());
        let next = self.answers.lock().unwrap().pop_front();
        let Some(says) = next else {
            self.leaves.cancel();
            cancel.cancelled().await;
            return None;
        };
        let approval = match says {
            Says::Once => Approval::Once,
            Says::Exact => Approval::Session { covers: request.exact.clone() },
            Says::Alike => Approval::Session { covers: request.alike.clone().unwrap() },
            Says::No(reason) => Approval::Denied { reason: reason.to_owned() },
        };
        Some(Answer { approval, by: Principal::parse("user:ada").unwrap() })
    }
}

/// Opens a session in which programs are asked about.
fn asking(answers: &[Says], secret: Option<&'static str>) -> (World, Arc<Person>) {
    let person = Arc::new(Person::default());
    person.answers.lock().unwrap().extend(answers.iter().cloned());
    let approver = Arc::clone(&person) as Arc<dyn Approver>;
    let mode = PermissionMode::Edit;
    (World::with(Setup { mode, secret, approver, ..Setup::default() }), person)
}

fn run(command: &[&str]) -> Value {
    json!({ "command": command })
}

#[tokio::test]
async fn a_call_that_is_approved_once_is_asked_about_again() {
    let (world, person) = asking(&[Says::Once, Says::No("not a second time")], None);

    let first = world.done("exec", run(&["true"])).await;
    let second = world.fails("exec", run(&["true"])).await;

    assert!(first.starts_with("exit code 0"), "{first}");
    assert_eq!(second, "error (denied): not a second time");
    assert_eq!(person.asked.lock().unwrap().len(), 2);
    let kinds = world.log.kinds();
    // The question stands alone and durable; all else waits for the next one who needs the disk.
    assert_eq!(kinds[0], ["tool.asked"]);
    assert_eq!(kinds[1], ["tool.decided", "tool.requested"]);
}

#[tokio::test]
async fn an_approval_for_the_session_covers_the_very_call_or_those_alike() {
    let (world, person) = asking(&[Says::Exact, Says::Alike, Says::No("no")], None);

    world.done("exec", run(&["echo", "one"])).await;
    world.done("exec", run(&["echo", "one"])).await;
    world.done("exec", run(&["echo", "two", "x"])).await;
    world.done("exec", run(&["echo", "two", "y"])).await;
    world.fails("exec", run(&["echo", "three"])).await;

    let asked = person.asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[1].alike, Some(Cover::Commands { pattern: "echo two *".to_owned() }));
}

#[tokio::test]
async fn behaviour_17_the_record_says_who_decided_and_holds_no_secret() {
    let (world, person) = asking(&[Says::Once], Some("hunter2-hunter2"));

    world.done("exec", run(&["echo", "hunter2-hunter2"])).await;

    let text = world.log.text();
    assert!(!text.contains("hunter2-hunter2"), "{text}");
    let shown = person.asked.lock().unwrap()[0].arguments.to_string();
    assert!(!shown.contains("hunter2-hunter2"), "{shown}");
    let decided = world.log.bodies().into_iter().find_map(|body| match body {
        EventBody::ToolDecided(decided) => Some(decided.approval),
        _ => None,
    });
    assert_eq!(decided, Some(Approval::Once));
    assert!(world.log.principals("tool.decided").contains(&"user:ada".to_owned()));
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_asks_does_nothing() {
    let (world, person) = asking(&[], None);

    let told =
        world.call_with("exec", Arguments::Json(run(&["touch", "made"])), &person.leaves).await;

    assert!(told.is_error && told.text.contains("nothing was done"), "{}", told.text);
    assert!(!world.path("made").exists());
    assert_eq!(world.log.kinds()[0], ["tool.asked"]);
}

#[tokio::test]
async fn a_denial_of_the_rules_is_not_asked_about() {
    let (world, person) = asking(&[Says::Once], None);

    world.fails("exec", run(&["sudo", "true"])).await;
    world.fails("fs.write", json!({ "path": ".git/config", "content": "x" })).await;

    assert!(person.asked.lock().unwrap().is_empty());
}
