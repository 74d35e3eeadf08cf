//! Opens a page in a browser that may ask one host, and prints its text.
//!
//! `cargo run -p formwork-browser --example read -- docs.rs https://docs.rs/about`; without words it tells what there is.

use formwork_browser::{Browsers, find, tools};
use formwork_protocols::{
    AgentName, CallId, Cancel, RunId, SessionId, SystemClock, SystemRng, TaskId, tool::CallContext,
};
use formwork_tool::HttpRules;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
#[expect(clippy::disallowed_methods, reason = "an example is a program of its own")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (named, path) = (std::env::var_os("CHROME"), std::env::var_os("PATH").unwrap_or_default());
    let mut words = std::env::args().skip(1);
    let (Some(host), Some(url)) = (words.next(), words.next()) else {
        println!(
            "{}",
            find(named.as_deref(), &path, &[])
                .map_or_else(|why| why, |it| it.display().to_string())
        );
        return Ok(());
    };
    let browsers = Browsers::new(move || find(named.as_deref(), &path, &[]));
    let tools = tools(&browsers, HttpRules::parse(Some(&[host]), &[])?);
    let (clock, rng) = (SystemClock, SystemRng);
    let context = CallContext {
        run: RunId::generate(&clock, &rng),
        task: TaskId::generate(&clock, &rng),
        session: SessionId::generate(&clock, &rng),
        call: CallId::generate(&clock, &rng),
        agent: AgentName::parse("reader")?,
    };

    let open = tools.first().ok_or("there are no tools")?;
    let read = open.call(&context, json!({ "url": url }), &Cancel::new()).await;
    browsers.close().await;
    println!("{}", read?.text);
    Ok(())
}
