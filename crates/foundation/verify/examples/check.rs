//! Checks the folder it is started in: one command, whose last line is a verdict as JSON.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use formwork_protocols::{
    Cancel, NoSecrets, Span,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, Parser},
};
use formwork_sandbox::{Environment, Protection, Sandbox};
use formwork_verify::{Baseline, Ground, Verifier};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sandbox = Sandbox::new(Environment::new([("PATH", "/usr/bin:/bin")]), std::env::temp_dir());
    let root = std::env::current_dir()?;
    let verifier = Verifier::new(Arc::new(sandbox), root, Protection::None, Arc::new(NoSecrets));

    let script = "echo '{\"passed\": true, \"run\": 0}'";
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    let spec = CheckSpec::new(
        "a suite without tests",
        CheckKind::Command(CommandCheck { argv, parse: Some(Parser::Json), expect: Expect::Pass }),
        Span::from_secs(10),
    );
    let ground = Ground { baseline: &Baseline::default(), changes: &() };
    let checked = verifier.check(&spec, ground, &Cancel::new()).await?;

    print!("{}", checked.verdict.for_model());
    Ok(())
}
