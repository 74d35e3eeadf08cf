//! Scripts a provider that is busy once and then cuts its stream, and reads what it sends.

use std::error::Error;

use formwork_testkit::http::{Reply, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply("/v1/chat/completions", Reply::json(429, "{}").header("retry-after", "1"));
    server.reply("/v1/chat/completions", Reply::sse("data: {\"id\":\"1\"}\n\n").cut());

    let address = server.url().replace("http://", "");
    let mut client = TcpStream::connect(address).await?;
    client.write_all(&b"GET /v1/chat/completions HTTP/1.1\r\n\r\n".repeat(2)).await?;
    let mut answers = String::new();
    client.read_to_string(&mut answers).await?;

    assert!(answers.starts_with("HTTP/1.1 429"));
    assert!(answers.ends_with("data: {\"id\":\"1\"}\n\n\r\n"));
    assert_eq!(server.requests().len(), 2);
    Ok(())
}
