//! One crate alone: a typed client that streams, waits where a provider is busy, and knows its price.
//!
//! The provider is a small server in this process, so that nothing leaves the machine. Another base
//! URL and a key are all that a real one takes.
#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::error::Error;

use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Price, Provider as _, Role, Span, ToolName,
    message::ToolDefinition,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams};
use futures::StreamExt as _;
use serde_json::json;

/// What an OpenAI-compatible server streams: words, then a call in pieces, then what was used.
const ANSWER: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"Let me "}}]}

data: {"choices":[{"index":0,"delta":{"content":"look."}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"place\":"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Oslo\"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":60,"completion_tokens":20,"total_tokens":80}}

data: [DONE]

"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply("/v1/chat/completions", Reply::json(429, r#"{"error":{"message":"busy"}}"#));
    server.reply("/v1/chat/completions", Reply::sse(ANSWER));

    let base_url = format!("{}/v1", server.url());
    let mut endpoint = Endpoint::new("local".parse()?, ProviderKind::OpenAiCompatible, base_url);
    endpoint.retry = RetryPolicy { base: Span::from_millis(1), ..RetryPolicy::default() };
    let client = Client::new(endpoint, Seams::default())?;

    let question = Message::text(Role::User, "What is the weather in Oslo?");
    let mut request = ModelRequest::new("small".parse()?, vec![question]);
    request.tools.push(ToolDefinition {
        name: ToolName::parse("weather")?,
        description: "Tell the weather.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "place": { "type": "string" } },
            "required": ["place"]
        }),
    });

    let mut events = client.stream(request, Cancel::new());
    while let Some(event) = events.next().await {
        match event? {
            ModelEvent::Text { text } => println!("text: {text:?}"),
            ModelEvent::Retrying { wait, .. } => {
                println!("the provider is busy: again in {wait:?}");
            }
            // Only here are calls whole, parsed and to be trusted.
            ModelEvent::Done(answer) => {
                for call in answer.message.tool_calls() {
                    println!("call: {} {:?}", call.name, call.arguments);
                }
                let price = Price { input: "3".parse()?, output: "15".parse()?, ..Price::LOCAL };
                println!("{} tries, ${}", answer.tries, price.cost(&answer.usage));
            }
            _ => {}
        }
    }
    assert_eq!(server.requests().len(), 2);
    Ok(())
}
