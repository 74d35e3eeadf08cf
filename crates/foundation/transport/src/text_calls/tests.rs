use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tools() -> Vec<ToolDefinition> {
    let tools = ["fs.read", "exec"].map(|name| ToolDefinition {
        name: name.parse().unwrap(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    });
    tools.to_vec()
}

fn calls(text: &str) -> Vec<(String, Value)> {
    let calls = recognise(text, &tools(), 0).calls.into_iter().map(|call| {
        let arguments = match call.arguments {
            Arguments::Json(value) => value,
            Arguments::Malformed { .. } => Value::from("malformed"),
        };
        (call.name, arguments)
    });
    calls.collect()
}

#[test]
fn a_call_is_recognised_in_each_of_its_forms() {
    let read = ("fs.read".to_owned(), json!({ "path": "a" }));
    for text in [
        "<tool_call>\n{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>",
        "I will.\n<tool_call>{\"name\": \"fs_read\", \"arguments\": {\"path\": \"a\"}}",
        "Look:\n```json\n{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}\n```\n",
        "```\n[{\"name\": \"fs.read\", \"parameters\": {\"path\": \"a\"}}]\n```",
        "{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}",
        "Now I read it.\n{\"name\": \"fs.read\", \"input\": {\"path\": \"a\"}}\n",
        "{\"type\": \"function\", \"function\": {\"name\": \"fs.read\", \"arguments\": \"{\\\"path\\\": \\\"a\\\"}\"}}",
    ] {
        assert_eq!(calls(text), std::slice::from_ref(&read), "{text}");
    }
}

#[test]
fn several_calls_keep_their_order_and_the_text_between_them() {
    let text = "One.\n<tool_call>{\"name\":\"exec\"}</tool_call>\nTwo.\n\
                <tool_call>{\"name\":\"fs.read\",\"arguments\":{}}</tool_call>";

    let found = recognise(text, &tools(), 7);

    assert_eq!(found.text, "One.\n\nTwo.");
    let ids: Vec<_> = found.calls.iter().map(|call| (&*call.id, &*call.name)).collect();
    assert_eq!(ids, [("call_text_7_0", "exec"), ("call_text_7_1", "fs.read")]);
}

#[test]
fn what_only_looks_like_a_call_is_left_alone() {
    for text in [
        "Use `{\"name\": \"fs.read\", \"arguments\": {}}` to read.",
        "```json\n{\"name\": \"somebody\", \"arguments\": {}}\n```",
        "```json\n{\"name\": \"exec\"}\n```",
        "```rust\n{\"name\": \"exec\", \"arguments\": {}}\n```",
        "{\"name\": \"exec\", \"arguments\": {}}\nis what you could send.",
        "{\"name\": \"Ada\"}",
        "",
    ] {
        assert_eq!(calls(text), [], "{text}");
        assert_eq!(recognise(text, &tools(), 0).text, text.trim());
    }
}

#[test]
fn a_tag_that_does_not_parse_is_a_malformed_call() {
    for content in ["{\"name\": \"exec\", \"arguments\": {", "exec()", "[]", "{}"] {
        let text = format!("<tool_call>{content}</tool_call>");

        assert_eq!(calls(&text), [(String::new(), Value::from("malformed"))], "{content}");
    }
    let text = "<tool_call>{\"name\": \"exec\", \"arguments\": \"not json\"}</tool_call>";
    assert_eq!(calls(text), [("exec".to_owned(), Value::from("malformed"))]);
    let text = "<tool_call>{\"name\": \"made_up\", \"arguments\": {}}</tool_call>";
    assert_eq!(calls(text), [("made_up".to_owned(), json!({}))]);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_no_call_means_the_whole_text(text in "(<tool_call>|</tool_call>|```|json|\n|\\{|\\}|\\[|\"name\"|:|\"exec\"|,|\"arguments\"|é| ){0,30}") {
        let found = recognise(&text, &tools(), 0);

        if found.calls.is_empty() {
            prop_assert_eq!(found.text, text.trim());
        }
    }
}
