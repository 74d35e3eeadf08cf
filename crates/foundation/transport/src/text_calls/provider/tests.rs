use formwork_protocols::{Rng as _, SeededRng, message::ToolDefinition};
use proptest::prelude::*;

use super::*;
use crate::{replay, scripted::Script, scripted::Scripted};

fn request() -> ModelRequest {
    let mut request = replay::request();
    request.tools = vec![ToolDefinition {
        name: "fs.read".parse().unwrap(),
        description: "Read a file.".to_owned(),
        parameters: json!({ "type": "object" }),
    }];
    request
}

/// What a model that says `text` comes to, and the words that were passed on as they came.
fn answer(text: &str, stop: Option<&str>) -> (String, Completion) {
    let mut turn = json!({ "text": text });
    if let Some(stop) = stop {
        turn["stop"] = json!(stop);
    }
    let script = json!({ "format_version": 1, "turns": [turn] }).to_string();
    let script = Script::parse("turns.json", &script).unwrap();
    let scripted = Scripted::new("there".parse().unwrap(), "turns", script);
    let provider = InText::new(Arc::new(scripted));
    let events: Vec<_> =
        futures::executor::block_on(provider.stream(request(), Cancel::new()).collect());
    let (mut told, mut done) = (String::new(), None);
    for event in events {
        match event.unwrap() {
            ModelEvent::Text { text } => told += &text,
            ModelEvent::Done(completion) => done = Some(*completion),
            _ => assert!(done.is_none(), "nothing follows the end"),
        }
    }
    (told, done.unwrap())
}

#[test]
fn what_a_model_writes_as_a_call_is_one() {
    let call = r#"{"name": "fs.read", "arguments": {"path": "a"}}"#;
    for text in [
        format!("I will look.\n<tool_call>\n{call}\n</tool_call>"),
        format!("I will look.\n```json\n{call}\n```\n"),
        format!("I will look.\n{call}"),
    ] {
        let (told, done) = answer(&text, None);

        let wanted = ToolCall {
            id: "call_text_1_0".to_owned(),
            name: "fs.read".to_owned(),
            arguments: Arguments::Json(json!({ "path": "a" })),
        };
        let words = Part::Text { text: "I will look.".to_owned() };
        assert_eq!(done.message.parts, [words, Part::ToolCall(wanted)], "{text}");
        assert_eq!(done.stop, StopReason::ToolUse);
        assert_eq!(told.trim_end(), "I will look.");
    }
}

#[test]
fn what_only_looks_like_a_call_is_told_whole() {
    for text in [
        "The answer is 4.",
        "<tool> is no tag of ours, and ` no fence.",
        "In Rust:\n```rust\nfn main() {}\n```\nThat is all.",
        "{\"name\": \"Ada\"}",
        "[1] says so.\n{2} does not.\n",
        "",
    ] {
        let (told, done) = answer(text, None);

        assert_eq!((told.as_str(), done.message.to_text().as_str()), (text, text));
        assert_eq!((done.stop, done.message.tool_calls().count()), (StopReason::EndTurn, 0));
    }
}

#[test]
fn no_call_of_an_answer_that_was_cut_is_executable() {
    let text = "<tool_call>{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}</tool_call>";
    for stop in ["length", "missing"] {
        let (_, done) = answer(text, Some(stop));

        let calls: Vec<_> = done.message.tool_calls().collect();
        let [ToolCall { arguments: Arguments::Malformed { text, error }, .. }] = calls.as_slice()
        else {
            panic!("{calls:?}");
        };
        assert_eq!(text, "{\"path\":\"a\"}");
        assert!(error.ends_with("so it may be cut"), "{error}");
    }
    // What was withheld is no call at all.
    let (_, done) = answer(text, Some("refusal"));
    assert_eq!((done.message.tool_calls().count(), done.stop), (0, StopReason::Refusal));
}

#[test]
fn a_call_that_does_not_parse_goes_back_to_the_model() {
    let (_, done) = answer("<tool_call>{\"name\": \"fs.read\", </tool_call>", None);

    let calls: Vec<_> = done.message.tool_calls().collect();
    assert!(matches!(calls[0].arguments, Arguments::Malformed { .. }), "{calls:?}");
    assert_eq!(done.stop, StopReason::ToolUse);
}

#[test]
fn tools_calls_and_results_are_words_on_the_wire() {
    let mut request = replay::rich_request();
    request.tool_choice = ToolChoice::Required;

    let words = in_words(&request);

    assert!(words.tools.is_empty());
    let told: Vec<String> = words
        .messages
        .iter()
        .map(|said| format!("## {:?}\n{}", said.role, said.to_text()))
        .collect();
    insta::assert_snapshot!(told.join("\n\n"));
    let kinds = words.messages.iter().flat_map(|said| &said.parts);
    let images = kinds.filter(|part| matches!(part, Part::Image { .. })).count();
    assert_eq!(images, 1);
}

#[test]
fn a_picture_of_a_result_stands_behind_its_words() {
    let mut request = replay::rich_request();
    let picture = formwork_protocols::Attachment {
        blob: formwork_protocols::BlobHash::of(b"dot"),
        media_type: "image/png".to_owned(),
        bytes: 3,
        pixels: Some((1, 1)),
        name: "dot.png".to_owned(),
        content: None,
    };
    let Part::ToolResult(result) = &mut request.messages[4].parts[0] else { panic!() };
    result.attached = vec![picture.clone()];

    let words = in_words(&request);

    let parts: Vec<_> = words.messages.iter().flat_map(|said| &said.parts).collect();
    let at = parts.iter().position(|part| **part == Part::Attached(picture.clone())).unwrap();
    let Part::Text { text } = parts[at - 1] else { panic!() };
    assert_eq!(text, "Result of fs.read:\n# Title\n");
}

#[test]
fn a_model_that_must_not_call_is_shown_no_tools() {
    let mut request = request();
    request.tool_choice = ToolChoice::None;

    assert_eq!(in_words(&request).messages, request.messages);
}

proptest! {
    #[test]
    fn words_are_told_once_and_whole_however_they_come(
        text in "(<tool_call>|</tool_call>|```|json\n|\n|\\{|\\}|\\[|\"name\": \"fs.read\", \"arguments\": \\{\\}|é| |<to|`){0,20}",
        seed: u64,
    ) {
        let rng = SeededRng::new(seed);
        let mut told = String::new();
        let (mut heard, mut from) = (String::new(), 0);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let size = usize::try_from(rng.next_u64() % 9 + 1).unwrap().min(rest.len());
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(size));
            heard += piece;
            rest = after;
            let until = may_begin(&heard, from);
            prop_assert!(until >= from && heard.is_char_boundary(until));
            told += &heard[from..until];
            from = until;
        }

        // Nothing is passed on that turns out to be a call.
        let found = recognise(&text, &request().tools, 0);
        if !found.calls.is_empty() {
            let lead = text.len() - text.trim_start().len();
            let before = told.get(lead..).unwrap_or_default().trim_end();
            prop_assert!(found.text.starts_with(before), "{told:?} {found:?}");
        }
        prop_assert!(text.starts_with(&told));
    }
}
