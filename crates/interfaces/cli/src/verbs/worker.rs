//! `formwork worker`: carries out calls of runs elsewhere, in this workspace and by its rules.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use formwork_protocols::{
    BlobHash, Cancel, OutcomeCode, PermissionMode, Span, SystemRng, WorkerLabel, WorkerName,
};
use formwork_worker::{Address, Identity, Status, Token, Worker};
use serde_json::json;

use crate::{
    args::{self, Global},
    fault::Fault,
    settings::{Need, Settings, WORKER_TOKEN},
    terminal::{Format, Terminal},
    view::visible,
};

/// How much of a machine's name goes into that of a worker.
const HOST: usize = 40;

/// How much of the hash of a workspace's path goes into it.
const SIGN: usize = 8;

pub(super) fn worker(
    global: &Global,
    terminal: &Terminal,
    args: args::Worker,
) -> Result<OutcomeCode, Fault> {
    let args::Worker { connect, mut labels, slots, name, token_file, mode } = args;
    let address: Address = connect.parse().map_err(told)?;
    labels.sort();
    labels.dedup();
    let flags = mode.map(super::mode_flag).into_iter().collect();
    super::with(global, flags, Need::Effect, async |formwork, _, settings| {
        let token = token(token_file.as_deref(), &settings)?;
        let name = match name {
            Some(name) => name,
            None => own_name(&settings.workspace)?,
        };
        let permissions = settings.layered.config.permissions.as_ref();
        let mode = permissions.and_then(|permissions| permissions.mode).unwrap_or_default();
        let identity = Identity { name: name.clone(), labels: labels.clone(), slots };
        let about = about(&name, &labels, slots, mode, &settings.workspace);
        let bench = formwork.bench().await?;
        let (cancel, broken) = (Cancel::new(), Arc::new(Mutex::new(None)));
        let (stop, printing, format) = (cancel.clone(), Arc::clone(&broken), terminal.format);
        let says = move |status: Status| {
            if let Err(error) = print(format, &about, &status) {
                // Nobody reads any more; what is at work ends.
                printing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                stop.cancel();
            }
        };
        let mut interrupts = super::run::Interrupts::listen()?;
        let worker = Worker::new(identity, (address, token), bench, Arc::new(SystemRng));
        let mut working = Box::pin(worker.run(&cancel, &says));
        let done = tokio::select! {
            done = &mut working => done,
            () = interrupts.next() => {
                cancel.cancel();
                working.await
            }
        };
        done.map_err(told)?;
        if let Some(error) = broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error.into());
        }
        let document = json!({ "worker": name, "labels": labels });
        match terminal.format {
            Format::Jsonl => crate::terminal::line(&document)?,
            _ => terminal.result(&document, || format!("worker {name} has left\n"))?,
        }
        Ok(OutcomeCode::Completed)
    })
}

/// Says in a line what a worker is.
fn about(
    name: &WorkerName,
    labels: &[WorkerLabel],
    slots: u32,
    mode: PermissionMode,
    workspace: &Path,
) -> String {
    let labels: Vec<&str> = labels.iter().map(WorkerLabel::as_str).collect();
    format!(
        "worker {name} with label {}: {} at once in mode {}, in {}",
        labels.join(", "),
        super::counted(u64::from(slots), "call"),
        mode.as_str(),
        visible(&workspace.display().to_string())
    )
}

fn print(format: Format, about: &str, status: &Status) -> std::io::Result<()> {
    match format {
        Format::Json | Format::Quiet => Ok(()),
        Format::Jsonl => crate::terminal::line(&match status {
            Status::Connected { address } => json!({ "status": "connected", "address": address }),
            Status::Away { reason, again } => {
                json!({ "status": "away", "reason": reason, "again": Span::from(*again) })
            }
            Status::GivenUp { ended } => json!({ "status": "given_up", "ended": ended }),
            Status::Leaving { ended } => json!({ "status": "leaving", "ended": ended }),
        }),
        Format::Text => {
            let line = match status {
                Status::Connected { address } => format!("connected to {address}: {about}"),
                Status::Away { reason, again } => {
                    let again = Span::from_millis(Span::from(*again).as_millis());
                    format!("{reason}; tries again in {again}")
                }
                Status::GivenUp { ended } => {
                    format!("away for too long: {} ended", super::counted(*ended as u64, "call"))
                }
                Status::Leaving { ended: 0 } => return Ok(()),
                Status::Leaving { ended } => {
                    format!("leaves: {} ended", super::counted(*ended as u64, "call"))
                }
            };
            crate::terminal::bytes(format!("{}\n", visible(&line)).as_bytes())
        }
    }
}

/// Reads the token, which never stands on a command line.
fn token(file: Option<&Path>, settings: &Settings) -> Result<Token, Fault> {
    let text = match file {
        Some(file) => formwork_services::reading::document(file)
            .with_context(|| format!("cannot read the token in {}", file.display()))
            .map_err(Fault::setup)?,
        None => settings
            .variable(WORKER_TOKEN)
            .filter(|token| !token.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| {
                Fault::setup(anyhow::anyhow!("there is no token to show")).hint(format!(
                    "write it into a file and pass --token-file FILE, or set {WORKER_TOKEN}"
                ))
            })?,
    };
    Token::parse(&text).map_err(told)
}

/// Names a worker after its machine and its workspace, the same each time.
fn own_name(workspace: &Path) -> Result<WorkerName, Fault> {
    let machine = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let plain = |letter: char| match letter {
        'a'..='z' | '0'..='9' | '_' | '-' => letter,
        _ => '-',
    };
    let machine: String = machine.chars().map(plain).take(HOST).collect();
    let sign = BlobHash::of(workspace.as_os_str().as_encoded_bytes()).to_string();
    let name = format!("{machine}-{}", sign.get(..SIGN).unwrap_or_default());
    WorkerName::parse(name).map_err(Fault::setup)
}

fn told(error: formwork_worker::Error) -> Fault {
    use formwork_worker::Error;
    let hint = match &error {
        Error::Address { .. } => Some("give the address of a server, as in --connect wss://HOST"),
        Error::Refused { .. } => Some("ask whoever runs the server for a token with scope worker"),
        _ => None,
    };
    let fault = match error {
        Error::Address { .. } => Fault::usage(error.to_string()),
        _ => Fault::setup(error),
    };
    match hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
