//! Formwork in a server of one's own: its routes beside those of an axum app, asked over a real socket, and ended in order.
#![expect(clippy::print_stdout, reason = "an example shows what it is told")]

use axum::{Extension, Router, routing::get};
use formwork_api::Api;
use formwork_auth::Grant;
use formwork_protocols::{Principal, Scope};
use formwork_services::{Builder, capability::Caller};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    let formwork = Builder::new(workspace.path()).build().await?;
    // Done once, by whoever sets it up: `formwork auth add ada --scope read`.
    let ada = Principal::parse("user:ada")?;
    let grant = Grant::new(ada.clone(), [Scope::Read]);
    let (_, token) = formwork.guard().issue(&ada, grant).await?;

    // Routes of one's own: some for anybody, some for whoever has a token, who is known by then.
    let whoami = async |Extension(caller): Extension<Caller>| caller.principal().to_string();
    let behind_token = Router::new().route("/whoami", get(whoami));
    let api = Api::new(formwork.clone()).behind_token(behind_token);
    let app = Router::new().route("/", get(async || "an app of one's own")).merge(api.router());

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async {
        // Dropped or sent, it is time.
        let _ = stopped.await;
    });
    let asking = async {
        let bearer = format!("authorization: Bearer {}\r\n", token.expose());
        for (request, head) in [
            ("GET / HTTP/1.1", ""),
            ("GET /whoami HTTP/1.1", bearer.as_str()),
            ("POST /v1/agents.list HTTP/1.1", bearer.as_str()),
            ("POST /v1/agents.list HTTP/1.1", ""),
        ] {
            let mut socket = TcpStream::connect(address).await?;
            let head = format!("{request}\r\nhost: {address}\r\nconnection: close\r\n{head}\r\n");
            socket.write_all(head.as_bytes()).await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            let status = answer.lines().next().unwrap_or_default();
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
            println!("{request}\n  {status}\n  {}", body.chars().take(120).collect::<String>());
        }
        drop(stop);
        Ok::<_, std::io::Error>(())
    };
    let (served, asked) = tokio::join!(serving, asking);
    served?;
    asked?;
    api.close().await;
    formwork.close().await;
    Ok(())
}
