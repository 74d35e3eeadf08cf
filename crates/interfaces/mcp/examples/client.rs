//! A client in process: it greets, and calls a tool over a pair of streams.

use formwork_protocols::Principal;
use formwork_services::{
    Builder,
    capability::{Caller, Scope},
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

const SAID: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"example","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"runs_list","arguments":{"limit":3}}}
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    let formwork = Builder::new(workspace.path()).build().await?;
    let caller = Caller::new(Principal::parse("user:ada")?, [Scope::Read]);
    let (mut theirs, ours) = tokio::io::duplex(64 * 1024);

    theirs.write_all(SAID.as_bytes()).await?;
    let client = async {
        let mut lines = BufReader::new(theirs).lines();
        for _ in 0..2 {
            tell(&lines.next_line().await?.unwrap_or_default());
        }
        Ok::<_, std::io::Error>(())
    };
    let streams = tokio::io::split(ours);
    let served = formwork_mcp::serve(&formwork, caller, streams, CancellationToken::new());
    let (client, served) = tokio::join!(client, served);

    client?;
    served?;
    formwork.close().await;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn tell(line: &str) {
    println!("{line}");
}
