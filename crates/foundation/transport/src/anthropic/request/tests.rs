use formwork_protocols::ModelRequest;
use proptest::prelude::*;

use super::*;
use crate::{
    endpoint::ProviderKind::Anthropic,
    replay::{conversations, request, rich_request, sent, sent_json},
};

/// Where the cache is marked.
const MARK: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

fn marked(request: &ModelRequest) -> Value {
    sent_json(Anthropic, request)
}

#[test]
fn a_history_of_two_providers_is_sent_as_the_wire_wants_it() {
    insta::assert_json_snapshot!(marked(&rich_request()));
}

#[test]
fn choices_and_a_schema_are_sent_by_the_wires_own_means() {
    let mut request = rich_request();
    request.output_schema = Some(("answer".to_owned(), json!({ "type": "object" })));
    let choices = [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::Required, json!({ "type": "any" })),
        (ToolChoice::None, json!({ "type": "none" })),
        (
            ToolChoice::Named("fs.read".parse().unwrap()),
            json!({ "type": "tool", "name": "fs_read" }),
        ),
    ];
    for (choice, sent) in choices {
        request.tool_choice = choice;
        assert_eq!(marked(&request)["body"]["tool_choice"], sent);
    }
    assert_eq!(
        marked(&request)["body"]["output_config"],
        json!({ "format": {
            "type": "json_schema",
            "schema": { "type": "object", "additionalProperties": false },
        } })
    );
}

#[test]
fn a_text_document_is_sent_as_text_and_one_of_another_kind_is_refused_by_name() {
    let document = |media_type: &str| {
        let mut request = request();
        request.messages[0].parts = vec![Part::Document {
            media_type: media_type.to_owned(),
            data: "aGVsbG8=".to_owned(),
            name: Some("a.md".to_owned()),
        }];
        request
    };

    let sent = marked(&document("text/markdown"));
    let endpoint = crate::replay::endpoint(Anthropic);
    let refused = outgoing(&endpoint, &endpoint.url().unwrap(), &document("application/zip"));

    assert_eq!(
        sent["body"]["messages"][0]["content"][0]["source"],
        json!({ "type": "text", "media_type": "text/plain", "data": "hello" })
    );
    let fault = refused.unwrap_err();
    assert_eq!(fault.fault, ProviderFault::Invalid);
    assert_eq!(
        fault.message,
        "document \"a.md\" cannot be sent: expected a PDF or a text, found application/zip"
    );
}

#[test]
fn without_a_system_text_the_tools_carry_the_place_of_the_cache() {
    let mut request = rich_request();
    request.messages.drain(..2);

    let body = &marked(&request)["body"];

    assert_eq!(body["tools"][0]["cache_control"], json!({ "type": "ephemeral" }));
    assert_eq!(body["system"], Value::Null);
}

proptest! {
    /// The cache is keyed by the bytes before a place, without the marks themselves.
    #[test]
    fn a_turns_request_begins_with_the_bytes_of_the_one_before(messages in conversations(24)) {
        let ends = messages.iter().enumerate().filter(|(_, said)| said.role != Role::Assistant);
        let ends: Vec<_> = ends.map(|(at, _)| at + 1).skip(1).collect();
        let mut before: Option<String> = None;
        for end in ends {
            let mut request = rich_request();
            request.messages = messages[..end].to_vec();

            let body = sent(Anthropic, &request);
            prop_assert!(body.matches("\"cache_control\"").count() <= 4);

            let bare = body.replace(MARK, "").replace(&MARK[1..], "").replace("{,", "{");
            if let Some(before) = before {
                let (stable, _) = before.rsplit_once("]}],\"max_tokens\":").unwrap();
                prop_assert!(bare.starts_with(stable), "{}\n{}", before, bare);
            }
            before = Some(bare);
        }
    }

    /// What a turn writes to the cache, the next turn reads from it.
    #[test]
    fn the_last_place_of_a_turn_is_a_place_of_the_next(messages in conversations(24)) {
        let ends = messages.iter().enumerate().filter(|(at, said)| {
            said.role != Role::Assistant
                && messages.get(at + 1).is_some_and(|next| next.role == Role::Assistant)
        });
        let mut written: Option<usize> = None;
        for (at, _) in ends.filter(|(_, said)| said.role != Role::System) {
            let author = Provenance { provider: "there".parse().unwrap(), model: "m-1".parse().unwrap() };
            let mut sent = groups(&messages[1..=at], &ToolNames::default(), &author).unwrap();
            keep_turns(&mut sent);
            let places: Vec<usize> = sent.iter().enumerate().filter_map(|(at, group)| {
                group.content.iter().any(|block| block.get("cache_control").is_some()).then_some(at)
            }).collect();

            if let Some(written) = written {
                prop_assert!(places.contains(&written), "{} {:?}", written, places);
            }
            written = places.last().copied();
        }
    }
}
