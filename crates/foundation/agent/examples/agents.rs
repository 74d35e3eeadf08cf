//! Reads a folder of agents, first with two mistakes in it and then without.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::fs;

use formwork_agent::{Agents, Checks, ModelChoice};
use serde_json::Map;

const DOCUMENT: &str = r#"
format_version = 1
name = "writer"
description = "Writes the guide."
model = "local/qwen2.5-coder:14b"
prompt = "writer.md"

[tools]
allow = ["fs.*", "gti"]
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let project = tempfile::tempdir()?;
    let folder = project.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text);
    write("writer.toml", DOCUMENT)?;
    write("writer.md", "You write the guide.\n\n{{> tonne}}\n")?;
    write("tone.md", "Be brief.\n")?;

    let known = |pattern: &str| match pattern {
        "fs.*" | "git" => Ok(()),
        _ => Err(format!("no tool answers to {pattern:?}")),
    };
    let checks = Checks { tools: &known, ..Checks::default() };
    match Agents::load(folder, &checks) {
        Ok(_) => println!("nothing is wrong"),
        Err(faults) => println!("{faults}\n"),
    }

    write("writer.toml", &DOCUMENT.replace("gti", "git"))?;
    write("writer.md", "You write the guide.\n\n{{> tone}}\n")?;
    let agents = Agents::load(folder, &checks)?;
    for agent in agents.iter() {
        let model = match &agent.document().model {
            ModelChoice::Category(category) => format!("a model of the category {category}"),
            ModelChoice::Model(model) => model.to_string(),
        };
        println!("{} ({model}): {}", agent.name(), agent.document().description);
        println!("  version {}", agent.version());
    }
    if let Some(writer) = agents.get(&"writer".parse()?) {
        println!("\n{}", writer.system_prompt(&Map::new())?);
    }
    Ok(())
}
