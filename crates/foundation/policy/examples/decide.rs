//! Decides on a few commands under a list of patterns, and says why.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use formwork_policy::{Call, CommandPatterns, Policy, Rules};
use formwork_protocols::{PermissionMode, ToolClass, ToolName};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rules = Rules::new(PermissionMode::Edit);
    rules.commands = Some(CommandPatterns::parse(["cargo test *", "git status"])?);
    let policy = Policy::new(rules);
    let exec = ToolName::parse("exec")?;

    for command in ["cargo test --lib", "timeout 60 cargo test", "env rm -rf .", "sudo cargo test"]
    {
        let argv: Vec<String> = command.split(' ').map(Into::into).collect();
        let call = Call { argv: Some(&argv), ..Call::new(&exec, ToolClass::Exec) };
        println!("{command}: {:?}", policy.decide(&call));
    }
    Ok(())
}
