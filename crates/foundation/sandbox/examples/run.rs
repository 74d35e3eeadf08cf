//! Runs a command confined to a folder of its own, and shows what it could not do.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use formwork_sandbox::{Command, Environment, Launcher, Limits, Protection, Sandbox, probe};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn confined() -> Result<(), Box<dyn std::error::Error>> {
    println!("files: {}", probe().files);
    let folder = tempfile::tempdir()?;
    let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
    let sandbox = Sandbox::new(environment, folder.path()).with_launcher(Launcher::current_exe()?);
    let limits = Limits::new(Limits::system_roots(), [folder.path()]);
    let script = "echo mine > mine && cat mine && echo more > /tmp/not-mine";
    let command = Command::new(["sh", "-c", script], folder.path(), Protection::Restricted(limits));

    let finished = sandbox.run(command, CancellationToken::new(), None).await?;

    println!("{} after {:?}", finished.exit, finished.duration);
    print!("{}", finished.combined.preview());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This program is its own launcher: below it, it is started again and never gets further.
    formwork_sandbox::launcher::intercept();
    confined()
}
