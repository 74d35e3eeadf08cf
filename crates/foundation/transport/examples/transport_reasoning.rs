//! Takes a conversation from one model to another: each is shown only the reasoning that it signed itself.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRequest, Part, Provider as _, Role};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};

const THINKING: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"first","stop_reason":"end_turn",
    "content":[{"type":"thinking","thinking":"Two and two.","signature":"c2lnbmVk"},{"type":"text","text":"Four."}],
    "usage":{"input_tokens":9,"output_tokens":7}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply_always("/v1/messages", Reply::json(200, THINKING));
    let endpoint = Endpoint::new("house".parse()?, ProviderKind::Anthropic, server.url());
    let client = Client::new(endpoint, Seams::default())?;

    let mut history = vec![Message::text(Role::User, "What is two and two?")];
    let first = ModelRequest::new("first".parse()?, history.clone());
    let answer = client.complete(first, Cancel::new()).await?;
    let Some(Part::Reasoning(reasoning)) = answer.message.parts.first() else {
        return Err("it thought before it spoke".into());
    };
    println!("{:?} thought {:?}", reasoning.provenance, reasoning.text);
    assert_eq!(reasoning.provenance, answer.provenance(&"first".parse()?));

    // The history keeps everything; what a model may see of it is decided when it is sent.
    history.push(answer.message);
    history.push(Message::text(Role::User, "Are you sure?"));
    let mut shown = Vec::new();
    for model in ["first", "second"] {
        let request = ModelRequest::new(model.parse()?, history.clone());
        client.complete(request, Cancel::new()).await?;
        let sent = server.requests().pop().ok_or("nothing was sent")?.text();
        println!("{model} is shown the signature: {}", sent.contains("c2lnbmVk"));
        shown.push((sent.contains("c2lnbmVk"), sent.contains("Four.")));
    }

    assert_eq!(shown, [(true, true), (false, true)]);
    Ok(())
}
