//! Records a call to a server, and replays it after the server is gone: the same bytes through the same reader.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRequest, Provider as _, Role};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, Recorded, Seams};

const ANSWER: &str = r#"data: {"id":"c1","model":"m-1","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}

data: [DONE]

"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let ask = |text: &str| -> Result<ModelRequest, Box<dyn Error>> {
        Ok(ModelRequest::new("m".parse()?, vec![Message::text(Role::User, text)]))
    };

    let server = Server::start().await?;
    server.reply("/v1/chat/completions", Reply::sse(ANSWER));
    let kind = ProviderKind::OpenAiCompatible;
    let mut endpoint = Endpoint::new("local".parse()?, kind, server.url());
    endpoint = endpoint.with_api_key("sk-secret".into());
    endpoint.record = Some(folder.path().to_owned());
    let first =
        Client::new(endpoint, Seams::default())?.complete(ask("Hello?")?, Cancel::new()).await?;
    drop(server);

    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder.path())? {
        files.push(std::fs::read_to_string(entry?.path())?);
    }
    println!("{} recording of {} bytes", files.len(), files.concat().len());
    assert_eq!(files.len(), 1);
    assert!(!files[0].contains("sk-secret"), "a recording holds no key");

    let place = folder.path().display().to_string();
    let endpoint = Endpoint::new("local".parse()?, ProviderKind::Recorded, place);
    let recorded = Recorded::read(endpoint, Seams::default())?;
    let again = recorded.complete(ask("Hello?")?, Cancel::new()).await?;
    println!("{} at {}", again.message.to_text(), again.served_by.endpoint);
    assert_eq!((&again.message, again.usage), (&first.message, first.usage));

    // What was never asked has no answer, and no server is asked in its place.
    let missed = recorded.complete(ask("Goodbye?")?, Cancel::new()).await.expect_err("it is new");
    println!("{missed}");
    assert!(!missed.fault.is_retryable());
    Ok(())
}
