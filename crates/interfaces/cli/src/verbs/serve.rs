//! `formwork serve`: the workspace over HTTP, until it is told to end.

mod mounted; // What is served beside capabilities.

use anyhow::anyhow;
use formwork_api::{Api, Hosts, Limits, Server};
use formwork_protocols::{Cancel, OutcomeCode};
use formwork_services::{
    capability::Caller,
    operations::credentials::{is_given, local},
};
use serde_json::json;

use super::run::Interrupts;
use crate::{
    args::{Global, Serve},
    fault::Fault,
    settings::{Need, Settings},
    terminal::{Format, Terminal, bytes, complain, document, harmless, line},
};

/// The most threads that requests are worked on by: more than a few only wait for the log.
const THREADS: usize = 4;

pub(super) fn serve(
    global: &Global,
    terminal: &Terminal,
    args: Serve,
) -> Result<OutcomeCode, Fault> {
    let flags = args.mode.map(super::mode_flag).into_iter().collect();
    let settings = Settings::load(global, flags, Need::Effect)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    super::block_on_threads(threads, serving(settings, terminal, args))
}

/// Returns the usual limits, with half of the files that may be open left to the log and to runs.
fn limits() -> Limits {
    let mut limits = Limits::default();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(files) = files.and_then(|files| usize::try_from(files / 2).ok()) {
        limits.connections = limits.connections.min(files);
    }
    limits
}

async fn serving(
    settings: Settings,
    terminal: &Terminal,
    args: Serve,
) -> Result<OutcomeCode, Fault> {
    let (builder, hub) = mounted::with_hub(super::builder(&settings));
    let formwork = builder.build().await?;
    let caller = Caller::owner(settings.principal.clone());
    if !args.listen.ip().is_loopback() && !is_given(&formwork).await? {
        formwork.leave().await;
        let told = anyhow!("others could reach {}, and nobody was given a credential", args.listen);
        return Err(Fault::setup(told)
            .hint("`formwork auth bootstrap` gives the first; or listen on 127.0.0.1"));
    }
    let mut interrupts = Interrupts::listen()?;
    let server = match Server::bind(args.listen).await {
        Ok(server) => server,
        Err(error) => {
            formwork.leave().await;
            let hint = error.hint();
            return Err(Fault::setup(error).hint(hint));
        }
    };
    let own = local(&formwork, &caller).await?;
    let hosts = args.host.iter().fold(Hosts::default(), |hosts, name| hosts.and(name));
    let api = Api::with_limits(formwork.clone(), limits()).hosts(hosts);
    let (api, beside) = match mounted::add(api, &formwork, hub) {
        Ok(added) => added,
        Err(error) => {
            formwork.leave().await;
            return Err(error.into());
        }
    };
    let url = format!("http://{}", server.address());
    let token = own.as_ref().and_then(|own| own.made.as_ref()).map(|token| token.expose());
    let file = own.as_ref().map(|own| own.path.display().to_string());
    let told = json!({ "listening": url, "token_file": file, "token": token });
    match terminal.format {
        Format::Json => document(&told)?,
        Format::Jsonl => line(&told)?,
        Format::Quiet => bytes(format!("{url}\n").as_bytes())?,
        Format::Text => {
            bytes(format!("listening on {url}\n").as_bytes())?;
            if let Some(file) = &file {
                complain(&harmless(&format!(
                    "a token for programs of this machine is in {file}\n"
                )));
            }
            if let Some(token) = token {
                complain(&format!("it is shown this once: {token}\n"));
            }
        }
    }
    let cancel = Cancel::new();
    let ending = async {
        server.run(&api, &cancel).await;
        beside.close().await;
        // Runs are paused, so that they can be resumed.
        formwork.clone().leave().await;
    };
    tokio::pin!(ending);
    tokio::select! {
        () = &mut ending => return Ok(OutcomeCode::Completed),
        () = interrupts.next() => cancel.cancel(),
    }
    if terminal.format == Format::Text {
        complain("ending: calls are waited for, and runs are paused; once more ends it now\n");
    }
    tokio::select! {
        () = &mut ending => Ok(OutcomeCode::Completed),
        () = interrupts.next() => {
            let fault = Fault::failed(anyhow!("interrupted twice"));
            Err(Fault { code: OutcomeCode::Interrupted, ..fault }
                .hint("what was recorded is whole; `formwork runs list` lists the runs, and `formwork runs resume` goes on"))
        }
    }
}
