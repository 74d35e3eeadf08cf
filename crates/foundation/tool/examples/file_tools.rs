//! Calls the tools that read files, without a model and without a session.
#![expect(clippy::print_stdout, reason = "an example shows what the tools say")]

use std::{fs, sync::Arc};

use formwork_protocols::{
    AgentName, CallId, Cancel, RunId, SessionId, SystemClock, SystemRng, TaskId, tool::CallContext,
};
use formwork_tool::{Registry, builtin};
use formwork_write_safety::{Reads, Root, Workspace, WriteRules};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("notes.md"), "# Notes\n\nThe parser is slow.\n")?;
    let root = Arc::new(Root::open(folder.path())?);
    let workspace = Workspace::new(root, WriteRules::nothing(), Reads::new().session());
    let mut registry = Registry::new();
    builtin::register_files(&mut registry, &workspace, |_| Err("no pictures here".to_owned()))?;

    let (clock, rng) = (SystemClock, SystemRng);
    let context = CallContext {
        run: RunId::generate(&clock, &rng),
        task: TaskId::generate(&clock, &rng),
        session: SessionId::generate(&clock, &rng),
        call: CallId::generate(&clock, &rng),
        agent: AgentName::parse("reader")?,
    };
    let calls = [
        ("fs.list_dir", json!({})),
        ("fs.grep", json!({ "pattern": r"slow\.$" })),
        ("fs.read", json!({ "path": "notes.md", "from": 3 })),
        ("fs.read", json!({ "path": "../secrets.txt" })),
    ];
    for (name, arguments) in calls {
        for tool in registry.select(|spec| spec.definition.name.as_str() == name) {
            match tool.call(&context, arguments.clone(), &Cancel::new()).await {
                Ok(output) => println!("{name} {arguments}\n{}", output.text),
                Err(error) => println!("{name} {arguments}\nrefused: {error}\n"),
            }
        }
    }
    Ok(())
}
