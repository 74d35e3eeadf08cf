//! Cancels an answer that is half said: the stream ends with a typed error, and the connection is closed.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Provider as _, ProviderFault, Role,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};
use futures::StreamExt as _;

const BEGINNING: &str = r#"data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Once upon"}}]}

"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply("/v1/chat/completions", Reply::sse(BEGINNING).stall());
    let kind = ProviderKind::OpenAiCompatible;
    let endpoint = Endpoint::new("local".parse()?, kind, server.url());
    let client = Client::new(endpoint, Seams::default())?;

    // A child stops with its parent: one signal ends a whole run and all its calls.
    let run = Cancel::new();
    let request =
        ModelRequest::new("m".parse()?, vec![Message::text(Role::User, "Tell me a story.")]);
    let mut events = client.stream(request, run.child());
    let mut text = String::new();
    let ended = loop {
        match events.next().await {
            Some(Ok(ModelEvent::Text { text: more })) => {
                text += &more;
                run.cancel();
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => return Err("a cancelled stream ends with an error".into()),
        }
    };
    server.wait_for_closed(1).await;

    println!("{text:?}, then: {ended}");
    assert_eq!(text, "Once upon");
    assert_eq!(ended.fault, ProviderFault::Cancelled);
    assert!(!ended.fault.is_retryable());
    assert!(events.next().await.is_none());
    Ok(())
}
