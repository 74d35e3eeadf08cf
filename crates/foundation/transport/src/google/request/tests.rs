use proptest::prelude::*;

use super::*;
use crate::{
    endpoint::ProviderKind::Google,
    replay::{conversations, rich_request, sent, sent_json},
};

#[test]
fn a_history_of_two_providers_is_sent_as_the_wire_wants_it() {
    insta::assert_json_snapshot!(sent_json(Google, &rich_request()));
}

#[test]
fn choices_and_a_schema_are_sent_by_the_wires_own_means() {
    let mut request = rich_request();
    request.output_schema = Some(("answer".to_owned(), json!({ "type": "string" })));
    request.seed = Some(u64::MAX);
    for (choice, sent) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::Required, json!({ "mode": "ANY" })),
        (ToolChoice::None, json!({ "mode": "NONE" })),
        (
            ToolChoice::Named("fs.read".parse().unwrap()),
            json!({ "mode": "ANY", "allowedFunctionNames": ["fs_read"] }),
        ),
    ] {
        request.tool_choice = choice;
        let body = &sent_json(Google, &request)["body"];
        assert_eq!(body["toolConfig"]["functionCallingConfig"], sent);
    }
    assert_eq!(
        sent_json(Google, &request)["body"]["generationConfig"],
        json!({
            "maxOutputTokens": 1_000,
            "seed": 0x7fff_ffff_u32,
            "responseMimeType": "application/json",
            "responseSchema": { "type": "STRING" },
        })
    );
}

#[test]
fn signatures_go_back_on_the_parts_that_they_came_on() {
    let author = Provenance { provider: "there".parse().unwrap(), model: "m-1".parse().unwrap() };
    let reasoning = |text: &str, signature: Option<&str>| {
        Part::Reasoning(Reasoning {
            text: text.to_owned(),
            signature: signature.map(str::to_owned),
            redacted: false,
            provenance: author.clone(),
        })
    };
    let parts = vec![
        reasoning("A summary.", None),
        reasoning("A signed thought.", Some("s0")),
        reasoning("", Some("s1")),
        Part::Text { text: "Reading.".to_owned() },
        reasoning("", Some("s2")),
        Part::ToolCall(formwork_protocols::message::ToolCall {
            id: "c".to_owned(),
            name: "fs.read".to_owned(),
            arguments: Arguments::Json(json!({})),
        }),
        reasoning("", Some("s3")),
    ];
    let message = Message { role: Role::Assistant, parts };

    let sent = answer(&message, &ToolNames::default(), &author, &mut CallIds::new(64));

    assert_eq!(
        sent,
        [
            json!({ "text": "A signed thought.", "thought": true, "thoughtSignature": "s0" }),
            json!({ "text": "Reading.", "thoughtSignature": "s1" }),
            json!({
                "functionCall": { "id": "c", "name": "fs_read", "args": {} },
                "thoughtSignature": "s2",
            }),
            json!({ "text": "", "thoughtSignature": "s3" }),
        ]
    );
}

#[test]
fn results_come_in_the_order_of_their_calls() {
    let mut request = rich_request();
    request.messages[4].parts.reverse();

    let sent = sent_json(Google, &request);

    assert_eq!(sent, sent_json(Google, &rich_request()));
}

#[test]
fn a_model_of_before_signatures_is_sent_none_in_their_place() {
    let mut request = rich_request();
    request.model = "gemini-2.5-pro".parse().unwrap();

    assert!(!sent(Google, &request).contains(FOREIGN_SIGNATURE));
}

proptest! {
    #[test]
    fn a_turns_request_begins_with_the_bytes_of_the_one_before(messages in conversations(16)) {
        let mut before: Option<String> = None;
        for end in 2..=messages.len() {
            let mut request = rich_request();
            request.messages = messages[..end].to_vec();

            let body = sent(Google, &request);

            if let Some(before) = before {
                let stable = before.strip_suffix("]}]}").unwrap();
                prop_assert!(body.starts_with(stable), "{}", body);
            }
            before = Some(body);
        }
    }
}
