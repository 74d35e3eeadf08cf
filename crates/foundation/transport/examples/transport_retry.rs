//! Meets a server that is busy, then cuts its answer, then answers; and one that asks for more patience than there is.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::{error::Error, sync::Arc, time::Duration};

use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Provider as _, ProviderFault, Role, SeededRng, Span,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams};
use futures::StreamExt as _;

const CHAT: &str = "/v1/chat/completions";
const CUT: &str = r#"data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hel"}}]}

"#;
const WHOLE: &str = r#"data: {"id":"c2","model":"m","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}

data: [DONE]

"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    let busy = r#"{"error":{"message":"Slow down.","type":"rate_limit_error"}}"#;
    server.reply(CHAT, Reply::json(429, busy).header("retry-after-ms", "20"));
    server.reply(CHAT, Reply::sse(CUT).cut());
    server.reply(CHAT, Reply::sse(WHOLE));
    server.reply(CHAT, Reply::json(429, busy).header("retry-after", "3600"));

    let kind = ProviderKind::OpenAiCompatible;
    let mut endpoint = Endpoint::new("local".parse()?, kind, server.url());
    endpoint.retry =
        RetryPolicy { tries: 3, base: Span::from_millis(10), cap: Span::from_secs(60) };
    // With a seed the waits are the same in every run.
    let seams = Seams { rng: Arc::new(SeededRng::new(1)), ..Seams::default() };
    let client = Client::new(endpoint, seams)?;
    let request = ModelRequest::new("m".parse()?, vec![Message::text(Role::User, "Hello?")]);

    let mut events = client.stream(request.clone(), Cancel::new());
    let (mut text, mut faults, mut tries) = (String::new(), Vec::new(), 0);
    while let Some(event) = events.next().await {
        match event? {
            ModelEvent::Text { text: more } => text += &more,
            ModelEvent::Retrying { attempt, wait, error } => {
                println!("try {attempt}: {error}; the next in {wait:?}");
                // What the server asks for is the floor of the wait.
                assert!(error.retry_after.is_none_or(|asked| wait >= asked));
                faults.push(error.fault);
                text.clear(); // What was streamed before is void.
            }
            ModelEvent::Done(answer) => tries = answer.tries,
            _ => {}
        }
    }
    println!("{text} (try {tries})");
    assert_eq!((text.as_str(), tries), ("Hello.", 3));
    assert_eq!(faults, [ProviderFault::Throttled, ProviderFault::Transport]);

    // An hour is more than the cap: better to know at once, and to turn to another model.
    let refused = client.complete(request, Cancel::new()).await.expect_err("it asks for an hour");
    println!("{refused}");
    assert_eq!((refused.fault, refused.tries), (ProviderFault::Throttled, 1));
    assert_eq!(refused.retry_after, Some(Duration::from_secs(3600)));
    Ok(())
}
