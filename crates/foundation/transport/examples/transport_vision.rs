//! Shows a model an image, and looks at how two wires carry the same message.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRequest, Part, Provider as _, Role};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};
use serde_json::{Value, json};

/// A red dot, in base64 of its bytes.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

const CHAT: &str = r#"{"id":"c1","model":"m","choices":[{"index":0,"finish_reason":"stop",
    "message":{"role":"assistant","content":"A red dot."}}]}"#;
const MESSAGES: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"end_turn",
    "content":[{"type":"text","text":"A red dot."}],"usage":{"input_tokens":12,"output_tokens":5}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    // An answer that comes whole is read as well as one that streams.
    server.reply("/v1/chat/completions", Reply::json(200, CHAT));
    server.reply("/v1/messages", Reply::json(200, MESSAGES));

    let image = Part::Image { media_type: "image/png".to_owned(), data: PNG.to_owned() };
    let question = Part::Text { text: "What is this?".to_owned() };
    let message = Message { role: Role::User, parts: vec![question, image] };
    let mut sent: Vec<Value> = Vec::new();
    for kind in [ProviderKind::OpenAiCompatible, ProviderKind::Anthropic] {
        let endpoint = Endpoint::new("local".parse()?, kind, server.url());
        let client = Client::new(endpoint, Seams::default())?;
        let request = ModelRequest::new("m".parse()?, vec![message.clone()]);
        let answer = client.complete(request, Cancel::new()).await?;
        println!("{kind}: {}", answer.message.to_text());
        assert_eq!(answer.message.to_text(), "A red dot.");

        let request = server.requests().pop().ok_or("nothing was sent")?;
        let body: Value = serde_json::from_slice(&request.body)?;
        sent.push(body["messages"][0]["content"][1].clone());
    }

    println!("{:#}", json!(sent));
    assert_eq!(sent[0]["image_url"]["url"], format!("data:image/png;base64,{PNG}"));
    assert_eq!(
        sent[1]["source"],
        json!({ "type": "base64", "media_type": "image/png", "data": PNG })
    );
    Ok(())
}
