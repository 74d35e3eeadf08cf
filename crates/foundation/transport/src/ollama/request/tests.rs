use super::*;
use crate::{
    endpoint::ProviderKind::Ollama,
    replay::{self, rich_request, sent_json},
};

fn without_documents() -> ModelRequest {
    let mut request = rich_request();
    request.messages[2].parts.pop();
    request
}

#[test]
fn a_history_of_two_providers_is_sent_as_the_wire_wants_it() {
    insta::assert_json_snapshot!(sent_json(Ollama, &without_documents()));
}

#[test]
fn what_must_not_be_called_is_not_offered() {
    let mut request = without_documents();
    for (choice, offered) in [
        (ToolChoice::Auto, 1),
        (ToolChoice::Required, 1),
        (ToolChoice::Named("fs.read".parse().unwrap()), 1),
        (ToolChoice::Named("fs.write".parse().unwrap()), 0),
        (ToolChoice::None, 0),
    ] {
        request.tool_choice = choice;
        let tools = sent_json(Ollama, &request)["body"]["tools"].as_array().map_or(0, Vec::len);
        assert_eq!(tools, offered, "{:?}", request.tool_choice);
    }
}

#[test]
fn the_window_holds_the_request_and_its_answer_and_seldom_changes() {
    let mut request = without_documents();
    let window = |request: &ModelRequest| {
        sent_json(Ollama, request)["body"]["options"]["num_ctx"].as_u64().unwrap()
    };

    assert_eq!(window(&request), 8_192);
    request.messages.push(Message::text(Role::User, "x".repeat(60_000)));
    assert_eq!(window(&request), 32_768);
    request.max_output_tokens = Some(40_000);
    assert_eq!(window(&request), 65_536);
}

#[test]
fn a_document_that_is_no_text_is_refused_by_name() {
    let endpoint = replay::endpoint(Ollama);
    let refused = outgoing(&endpoint, &endpoint.url().unwrap(), &rich_request()).unwrap_err();

    assert_eq!(refused.fault, ProviderFault::Invalid);
    assert_eq!(
        refused.message,
        "document \"spec.pdf\" cannot be sent: expected a text, found application/pdf"
    );
}

#[test]
fn the_root_is_found_from_either_address() {
    for base in ["http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"] {
        assert_eq!(root(&base.parse().unwrap()).as_str(), "http://127.0.0.1:11434/");
    }
}
