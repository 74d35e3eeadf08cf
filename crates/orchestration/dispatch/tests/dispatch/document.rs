//! What is wrong with a document is told all at once, each fault at its place.

use std::collections::BTreeSet;

use formwork_dispatch::{ActionKind, Begin, Subscription, SubscriptionDocument};
use formwork_protocols::{Span, WorkflowName, document};

fn faults(text: &str) -> String {
    let workflows = BTreeSet::from([WorkflowName::parse("mend").unwrap()]);
    Subscription::parse("s.toml", text, &workflows).unwrap_err().to_string()
}

#[test]
fn behaviour_36_every_fault_of_a_subscription_is_told_at_once_with_its_place() {
    let text = r#"format_version = 1
name = "s"
[filter]
kinds = ["run.finishd", "dispatch.done", "tool.*"]
principals = ["a b"]
when = "data.x == 1 && dat.y"
colour = "red"
[accumulate]
key = "data.("
[[actions]]
command = []
vars = { a = "1" }
[[actions]]
workflow = "mand"
timeout = "1s"
vars = { spec = "what.reason" }
[[actions]]
webhook = { url = "ftp://x/{{secret:A}}" }
command = ["true"]
[[actions]]
inbox = "told"
[[actions]]
webhook = { url = "ftp://x/{{secret:A}}" }
retry = { attempts = 0 }
[[actions]]
command = ["x", "{{data.reason}}"]
"#;

    insta::assert_snapshot!(faults(text));
}

#[test]
fn a_subscription_that_does_nothing_is_refused() {
    let told = faults("format_version = 1\nname = \"s\"\nactions = []\n[filter]\nkinds = []\n");

    assert!(told.contains("kinds"), "{told}");
    assert!(told.contains("actions"), "{told}");
}

#[test]
fn what_is_not_said_is_what_the_guide_says() {
    let text = "format_version = 1\nname = \"s\"\n[filter]\nkinds = [\"run.finished\"]\n[[actions]]\nworkflow = \"mend\"\n\
        vars = { what = \"data.outcome.reason\" }\n[[actions]]\ncommand = [\"tell\"]\n";
    let workflows = BTreeSet::from([WorkflowName::parse("mend").unwrap()]);

    let read = Subscription::parse("s.toml", text, &workflows).unwrap();

    assert_eq!(read.begin, Begin::Now);
    assert_eq!(read.accumulate, None);
    assert_eq!(
        (read.actions[0].retry.attempts, read.actions[0].retry.delay),
        (3, Span::from_secs(10))
    );
    assert!(
        matches!(&read.actions[1].kind, ActionKind::Command { timeout, .. } if *timeout == Span::from_secs(120))
    );
}

#[test]
fn the_schema_names_every_key() {
    let schema = document::schema::<SubscriptionDocument>();

    let keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
    for key in ["format_version", "name", "filter", "accumulate", "actions", "begin", "description"]
    {
        assert!(keys.iter().any(|it| it == key), "{key} of {keys:?}");
    }
}
