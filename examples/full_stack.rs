//! Everything, embedded: a repository, an agent, a check that really runs, and a log.
//!
//! The words of the model come from a script; all else is real. A configured provider in its place is
//! one section of the config.
#![expect(clippy::print_stdout, reason = "an example shows what came of the run")]

use std::{error::Error, sync::Arc};

use formwork_protocols::Principal;
use formwork_services::{
    Builder,
    capability::Caller,
    config::{Layer, Layers, Origin},
    operations::runs::{Get, GetParams, Start, StartParams, Work},
};
use formwork_testkit::repo::Repo;
use formwork_transport::{Script, Scripted};

const CONFIG: &str = r#"
format_version = 1
sandbox = "off"

[permissions]
mode = "edit"

[categories]
default = "script/any"

[models."script/any"]
price = { input = "1", output = "4" }
"#;

/// The first claim is wrong; the check refuses it, and what it found is the model's next message.
const SCRIPT: &str = r#"
format_version = 1

[[turns]]
calls = [{ tool = "end_task", arguments = { summary = "The file greets the world." } }]

[[turns]]
text = "It does not. I look first."
calls = [{ tool = "fs.read", arguments = { path = "greeting.txt" } }]

[[turns]]
calls = [{ tool = "fs.edit", arguments = { path = "greeting.txt", old = "nobody", new = "world" } }]

[[turns]]
calls = [{ tool = "end_task", arguments = { summary = "The file greets the world now." } }]
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let repo = Repo::new()?;
    repo.write("greeting.txt", "Hello, nobody!\n")?;
    repo.commit("greet")?;
    let state = tempfile::tempdir()?;

    let mut layers = Layers::new();
    layers.push(Layer::parse(Origin::Flag { flag: "full_stack.rs".to_owned() }, CONFIG)?);
    let script = Scripted::new("script".parse()?, "example", Script::parse("example", SCRIPT)?);
    let formwork = Builder::new(repo.path())
        .state(state.path())
        .config(layers.merge()?.config)
        .environment([("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .provider(Arc::new(script))
        .build()
        .await?;

    let caller = Caller::owner(Principal::parse("user:ada")?);
    let check = ["grep", "--count", "Hello, world!", "greeting.txt"];
    let work = Work::Task {
        attach: Vec::new(),
        prompt: "Make greeting.txt greet the world.".to_owned(),
        agent: None,
        checks: vec![check.map(str::to_owned).to_vec()],
        spec: None,
    };
    let params = StartParams {
        work,
        vars: serde_json::Map::new(),
        model: None,
        width: None,
        commit: false,
        mode: None,
        headless: false,
    };
    let run = formwork.call::<Start>(&caller, params).await?.run;
    let outcome = formwork.wait(run).await?;

    let detail = formwork.call::<Get>(&caller, GetParams { run }).await?;
    for check in detail.checks {
        println!("{}: {}", check.verdict.check, check.verdict.reason);
    }
    print!("{}", formwork.diff(run).await?);
    println!("{outcome}");
    assert_eq!(outcome.code.exit_code(), 0);
    assert_eq!(repo.read("greeting.txt")?, "Hello, world!\n");
    formwork.close().await;
    Ok(())
}
