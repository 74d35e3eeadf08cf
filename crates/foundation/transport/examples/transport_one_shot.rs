//! Asks one question of an OpenAI-compatible server and reads the whole answer.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRequest, Provider as _, Role, model::StopReason};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};

const ANSWER: &str = r#"data: {"id":"c1","model":"m-1","choices":[{"index":0,"delta":{"content":"Four"}}]}

data: {"id":"c1","model":"m-1","choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}]}

data: {"id":"c1","model":"m-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}

data: [DONE]

"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply("/v1/chat/completions", Reply::sse(ANSWER));

    // A real server takes its own address and `.with_api_key(key)`; `/v1` is added where it is usual.
    let kind = ProviderKind::OpenAiCompatible;
    let endpoint = Endpoint::new("local".parse()?, kind, server.url());
    let client = Client::new(endpoint, Seams::default())?;
    let question = Message::text(Role::User, "What is two and two?");
    let request = ModelRequest::new("m-1".parse()?, vec![question]);
    let answer = client.complete(request, Cancel::new()).await?;

    let served_by = &answer.served_by;
    println!("{} says: {}", served_by.model, answer.message.to_text());
    println!(
        "{} tokens, by {} at {}",
        answer.usage.total(),
        served_by.provider,
        served_by.endpoint
    );

    assert_eq!(answer.message.to_text(), "Four.");
    assert_eq!(answer.stop, StopReason::EndTurn);
    assert_eq!((answer.usage.input, answer.usage.output, answer.tries), (9, 2, 1));
    Ok(())
}
