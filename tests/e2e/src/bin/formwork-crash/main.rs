//! Kills processes in the middle of runs, takes the runs up again, and compares.
//!
//! `formwork-crash --store sqlite` ends a process by SIGKILL at every event of a run, before and after
//! its commit; `--processes 3 --runs 50` has processes share one store while they are killed and held up.
//! What it does to itself it does by a store that is put around the real one: the product knows nothing
//! of it.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

mod boundary; // One run, killed at each of its events.
mod compare; // What has to be the same, and what may happen once.
mod fatal; // The store that ends its process.
mod fleet; // Many runs, and processes that come and go.
mod model; // The words of the model.
mod place; // A workspace, a log, and a process that works there.
mod tools; // Effects that can be counted.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, ValueEnum};

use fatal::Fate;

/// The engine that the log is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    Sqlite,
    Postgres,
}

#[derive(Debug, Parser)]
#[command(about = "Kills processes in the middle of runs, takes the runs up again, and compares")]
struct Arguments {
    /// Where the log is kept
    #[arg(long, value_enum, default_value = "sqlite")]
    store: StoreKind,
    /// About how many events the run has
    #[arg(long, value_name = "N", default_value_t = 200)]
    events: u64,
    /// At how many events it is killed, evenly spread; at every one where it is left out
    #[arg(long, value_name = "K")]
    boundaries: Option<u64>,
    /// How many processes share the store, in place of one that is killed at each event
    #[arg(long, value_name = "P", requires = "runs")]
    processes: Option<usize>,
    /// How many runs they share
    #[arg(long, value_name = "R", requires = "processes")]
    runs: Option<usize>,
    /// How many of those processes are killed or held up on the way
    #[arg(long, value_name = "N", default_value_t = 30)]
    kills: usize,
    /// How many cases are tried at once; as many as there are processors where it is left out
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Works in this folder: what a process is started with by this program
    #[arg(long, value_name = "DIR", hide = true)]
    work: Option<PathBuf>,
    /// Which process of several this one is
    #[arg(long, value_name = "NAME", hide = true)]
    worker: Option<String>,
    /// How the process ends before its time
    #[arg(long, value_name = "WHEN:EVENT", hide = true)]
    fate: Option<Fate>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    match (&arguments.work, &arguments.worker, arguments.processes.zip(arguments.runs)) {
        (Some(folder), None, _) => place::work(folder, arguments.fate),
        (Some(folder), Some(name), _) => fleet::work(folder, name, arguments.fate),
        (None, _, Some((processes, runs))) => {
            fleet::drive(arguments.store, processes, runs, arguments.kills)
        }
        (None, _, None) => {
            boundary::drive(arguments.store, arguments.events, arguments.boundaries, arguments.jobs)
        }
    }
}
