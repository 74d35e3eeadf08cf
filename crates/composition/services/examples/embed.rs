//! Opens Formwork on a folder and asks what it can do.
#![expect(clippy::print_stdout, reason = "an example shows what it is told")]

use formwork_protocols::Principal;
use formwork_services::{
    Builder,
    capability::{CAPABILITIES, Caller},
    operations::{agents, audit},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    let formwork = Builder::new(workspace.path()).build().await?;
    let caller = Caller::owner(Principal::parse("user:ada")?);

    for capability in CAPABILITIES {
        println!("{:<14} {}", capability.name, capability.doc);
    }
    let listed = formwork.call::<agents::List>(&caller, agents::ListParams {}).await?;
    for agent in listed.agents {
        println!(
            "{} asks for {} and may use {}",
            agent.name,
            agent.asks_for,
            agent.tools.join(" ")
        );
    }
    let log = formwork.call::<audit::Verify>(&caller, audit::VerifyParams::default()).await?;
    println!("the log is sound: {}", log.sound);
    formwork.close().await;
    Ok(())
}
