use formwork_protocols::message::ToolResult;
use futures::executor::block_on;
use serde_json::json;

use super::*;

const SCRIPT: &str = r#"
format_version = 1

[[turns]]
when = "FAILED"
text = "I see."

[[turns]]
text = "I will read the file, and then mend what is wrong with it."
calls = [{ tool = "fs.read", arguments = { path = "a.rs" } }]
usage = { input = 10, output = 2 }

[[turns]]
text = "Done."
"#;

fn scripted(text: &str) -> Scripted {
    Scripted::new("demo".parse().unwrap(), "demo.toml", Script::parse("demo.toml", text).unwrap())
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest::new("model".parse().unwrap(), messages)
}

fn ask(provider: &Scripted, messages: Vec<Message>) -> Result<Completion, ProviderError> {
    block_on(provider.complete(request(messages), Cancel::new()))
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn result(content: &str) -> Message {
    let result = ToolResult {
        call_id: "x".to_owned(),
        name: "fs.read".to_owned(),
        content: content.to_owned(),
        is_error: false,
        attached: Vec::new(),
    };
    Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }
}

#[test]
fn the_turn_is_counted_from_the_request() {
    let provider = scripted(SCRIPT);

    let first = ask(&provider, vec![user("go")]).unwrap();
    let again = ask(&provider, vec![user("go")]).unwrap();
    let second = ask(&provider, vec![user("go"), first.message.clone(), result("ok")]).unwrap();

    let call = ToolCall {
        id: "call_1_0".to_owned(),
        name: "fs.read".to_owned(),
        arguments: Arguments::Json(json!({ "path": "a.rs" })),
    };
    assert_eq!(first.message.tool_calls().collect::<Vec<_>>(), [&call]);
    assert_eq!(
        (first.stop, first.usage.total(), first.usage_estimated),
        (StopReason::ToolUse, 12, false)
    );
    assert_eq!(again, first);
    assert_eq!((second.message.to_text().as_str(), second.stop), ("Done.", StopReason::EndTurn));
    assert!(second.usage_estimated && second.usage.total() > 0);
    assert_eq!(second.served_by.endpoint, "scripted:demo.toml");
}

#[test]
fn a_turn_may_wait_for_what_it_hears() {
    let provider = scripted(SCRIPT);

    let answer = ask(&provider, vec![user("go"), user("later"), result("test a ... FAILED")]);

    assert_eq!(answer.unwrap().message.to_text(), "I see.");
}

#[test]
fn a_script_that_has_run_out_says_so() {
    let said = || Message::text(Role::Assistant, "x");

    let error = ask(&scripted(SCRIPT), vec![user("go"), said(), user("go"), said()]).unwrap_err();

    assert_eq!(
        error.to_string(),
        "provider demo at scripted:demo.toml: the script has no turn left: it has 2 in order, and none says `when` \
         of the newest message"
    );
}

#[test]
fn a_turn_may_fail_as_a_provider_does() {
    let provider = scripted(
        "format_version = 1\n[[turns]]\nfail = { fault = \"throttled\", message = \"slow down\" }\n",
    );

    let error = ask(&provider, vec![user("go")]).unwrap_err();

    assert_eq!((error.fault, error.message.as_str()), (ProviderFault::Throttled, "slow down"));
}

#[test]
fn the_pieces_make_the_text() {
    let provider = scripted(SCRIPT);
    let events =
        block_on(provider.stream(request(vec![user("go")]), Cancel::new()).collect::<Vec<_>>());

    let texts = events.iter().filter_map(|event| match event {
        Ok(ModelEvent::Text { text }) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(
        texts.collect::<String>(),
        "I will read the file, and then mend what is wrong with it."
    );
    assert!(matches!(events.last(), Some(Ok(ModelEvent::Done(_)))));
}

#[test]
fn a_cancelled_call_says_so_and_ends() {
    let cancel = Cancel::new();
    let mut events = scripted(SCRIPT).stream(request(vec![user("go")]), cancel.clone());

    assert!(block_on(events.next()).unwrap().is_ok());
    cancel.cancel();

    assert_eq!(block_on(events.next()).unwrap().unwrap_err().fault, ProviderFault::Cancelled);
    assert!(block_on(events.next()).is_none());
}

#[test]
fn a_key_that_nobody_knows_is_refused_with_its_place() {
    let error =
        Script::parse("demo.toml", "format_version = 1\n[[turns]]\ntxt = 'x'\n").unwrap_err();

    assert_eq!(
        error.to_string(),
        "demo.toml:3:1: turns[0]: unknown key \"txt\"; nearest is \"text\""
    );
}

#[test]
fn a_script_may_be_json() {
    let script =
        Script::parse("demo.json", r#"{"format_version":1,"turns":[{"text":"hi"}]}"#).unwrap();

    assert_eq!(script.turns, [Turn { text: Some("hi".to_owned()), ..Turn::default() }]);
    assert!(Script::parse("demo.json", r#"{"format_version":1,"turns":[{"txt":"hi"}]}"#).is_err());
}
