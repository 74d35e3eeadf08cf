//! A workspace served over HTTP for as long as it takes to ask it something, with a route of one's own beside it.
#![expect(clippy::print_stdout, reason = "an example shows what it is told")]

use axum::{Extension, Router, routing::get};
use formwork_api::{Api, Server};
use formwork_auth::Grant;
use formwork_protocols::{Cancel, Principal, Scope};
use formwork_services::{Builder, capability::Caller};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Whoever has a token is told who they are.
async fn whoami(Extension(caller): Extension<Caller>) -> String {
    caller.principal().to_string()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    let formwork = Builder::new(workspace.path()).build().await?;
    let ada = Principal::parse("user:ada")?;
    let grant = Grant::new(ada.clone(), [Scope::Read]);
    let (_, token) = formwork.guard().issue(&ada, grant).await?;

    let own = Router::new().route("/whoami", get(whoami));
    let api = Api::new(formwork.clone()).behind_token(own);
    let server = Server::bind("127.0.0.1:0".parse()?).await?;
    let (address, cancel) = (server.address(), Cancel::new());
    let asks = async {
        for (request, body) in [
            ("GET /whoami", ""),
            ("POST /v1/agents.list", ""),
            ("POST /v1/runs.list", "{\"limit\":"),
        ] {
            let mut socket = TcpStream::connect(address).await?;
            let head = format!(
                "{request} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                token.expose(),
                body.len()
            );
            socket.write_all(head.as_bytes()).await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            println!("{request}\n{answer}\n");
        }
        cancel.cancel();
        Ok::<_, std::io::Error>(())
    };

    let ((), asked) = tokio::join!(server.run(&api, &cancel), asks);
    asked?;
    formwork.close().await;
    Ok(())
}
