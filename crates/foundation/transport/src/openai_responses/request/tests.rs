use proptest::prelude::*;

use super::*;
use crate::{
    endpoint::ProviderKind::OpenAiResponses,
    replay::{conversations, rich_request, sent, sent_json},
};

#[test]
fn a_history_of_two_providers_is_sent_as_the_wire_wants_it() {
    insta::assert_json_snapshot!(sent_json(OpenAiResponses, &rich_request()));
}

#[test]
fn choices_and_a_schema_are_sent_by_the_wires_own_means() {
    let mut request = rich_request();
    request.output_schema = Some(("answer".to_owned(), json!({ "type": "object" })));
    for (choice, sent) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::None, json!("none")),
        (
            ToolChoice::Named("fs.read".parse().unwrap()),
            json!({ "type": "function", "name": "fs_read" }),
        ),
    ] {
        request.tool_choice = choice;
        assert_eq!(sent_json(OpenAiResponses, &request)["body"]["tool_choice"], sent);
    }
    assert_eq!(
        sent_json(OpenAiResponses, &request)["body"]["text"],
        json!({ "format": { "type": "json_schema", "name": "answer", "schema": { "type": "object" } } })
    );
}

#[test]
fn reasoning_that_led_to_nothing_does_not_go_back() {
    let mut request = rich_request();
    request.messages[5].parts.truncate(1);
    request.messages.truncate(6);

    let body = sent(OpenAiResponses, &request);

    assert!(!body.contains("rs_1"), "{body}");
}

#[test]
fn reasoning_goes_back_to_the_model_that_made_it_and_to_no_other() {
    let item = "{\"type\":\"reasoning\",\"id\":\"rs_1\"}";
    for (provider, model, goes) in
        [("there", "m-1", true), ("there", "m-2", false), ("elsewhere", "m-1", false)]
    {
        let mut request = rich_request();
        for part in &mut request.messages[5].parts {
            if let Part::Reasoning(reasoning) = part {
                reasoning.signature = Some(item.to_owned());
                reasoning.provenance = Provenance {
                    provider: provider.parse().unwrap(),
                    model: model.parse().unwrap(),
                };
            }
        }

        assert_eq!(sent(OpenAiResponses, &request).contains("rs_1"), goes, "{provider}/{model}");
    }
}

#[test]
fn a_model_that_does_not_reason_is_not_asked_for_its_reasoning() {
    let mut request = rich_request();
    request.model = "gpt-4.1".parse().unwrap();

    assert_eq!(sent_json(OpenAiResponses, &request)["body"]["include"], Value::Null);
}

proptest! {
    #[test]
    fn a_turns_request_begins_with_the_bytes_of_the_one_before(messages in conversations(16)) {
        let mut before: Option<String> = None;
        for end in 2..=messages.len() {
            let mut request = rich_request();
            request.messages = messages[..end].to_vec();

            let body = sent(OpenAiResponses, &request);

            if let Some(before) = before {
                let stable = before.strip_suffix("]}").unwrap();
                prop_assert!(body.starts_with(stable), "{}", body);
            }
            before = Some(body);
        }
    }
}
