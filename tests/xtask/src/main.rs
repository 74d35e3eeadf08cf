//! The one entrance for people and CI: tests, benches, clean clones.
//!
//! `cargo xtask test` is what a change has to pass. Each command ends with one line that a person
//! and a script can read, and runs the same on a laptop and in CI.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]
#![expect(clippy::disallowed_methods, reason = "it is configured by its environment, as cargo is")]

#[cfg(test)]
mod behaviours; // What the tests show.
mod fuzz; // Everything that a server or a repository could bring.
mod gate; // The steps of `cargo xtask test`.
mod layers; // Who may depend on whom.
mod newcomer; // README's two commands on an empty machine.
mod package; // What each crate needs to be published alone.
mod process; // Running programs, and saying which one failed.
mod smoke; // The built program, run as a stranger would.
mod tools; // Programs and services that the tests need.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The one entrance for people and CI"
)]
enum Command {
    /// Checks or installs what the tests need, then runs them all
    ///
    /// FORMWORK_REQUIRE=postgres makes an absent service a failure; without it the tests that need
    /// the service are skipped, and the last line names it.
    Test {
        /// Runs only these steps, in the order of the gate
        #[arg(value_enum)]
        steps: Vec<gate::Step>,
    },
    /// Clones HEAD to an empty folder and runs README's two commands with an empty home
    CleanClone,
    /// Checks that dependencies point to lower layers only
    Layers {
        #[command(subcommand)]
        action: Option<LayersAction>,
        /// Brings deny.toml and ARCHITECTURE.md up to the table of layers
        #[arg(long)]
        write: bool,
    },
    /// Runs the benches, each against a floor measured in the same run
    Bench {
        /// The bench to run; all of them when it is left out
        name: Option<String>,
        /// Prints one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Runs trees of tasks in a simulated world, with crashes, and checks every promise
    Simulate {
        /// How many things happen, at the least
        #[arg(long, value_name = "N", default_value_t = 10_000_000)]
        steps: u64,
        /// The seed of the first tree; each tree after it has the next
        #[arg(long, value_name = "S", default_value_t = 0)]
        seed: u64,
    },
    /// Kills processes in the middle of runs, takes the runs up again, and compares
    Crash {
        /// Where the log is kept: sqlite or postgres; both where it is left out
        #[arg(long, value_name = "S")]
        store: Option<gate::StoreKind>,
        /// About how many events the run has that is killed at each of them
        #[arg(long, value_name = "N", default_value_t = 200)]
        events: u64,
        /// At how many of them, evenly spread; at every one where it is left out
        #[arg(long, value_name = "K")]
        boundaries: Option<u64>,
        /// How many processes share the store instead, while they are killed and held up
        #[arg(long, value_name = "P", requires = "runs")]
        processes: Option<u64>,
        /// How many runs they share
        #[arg(long, value_name = "R", requires = "processes")]
        runs: Option<u64>,
    },
    /// Tries to get out of a workspace by every way in, and prints what stopped each attempt
    ///
    /// FORMWORK_REQUIRE=sandbox makes a machine that cannot confine programs a failure; without it the attempts
    /// that need it are named as not tried.
    Escape {
        /// Only what holds this text in its name or its way in
        filter: Option<String>,
        /// Prints one JSON document in place of the table
        #[arg(long)]
        json: bool,
    },
    /// Feeds the fuzz targets with all that a server or a repository could bring, and tells how often each ran
    ///
    /// It needs a nightly compiler and cargo-fuzz, and is no step of the gate.
    Fuzz {
        /// The target to run; all of them when it is left out
        target: Option<String>,
        /// How long each runs
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
    },
    /// Checks that each crate can be published alone
    Package {
        /// Bring the README of each crate up to its manifest and its examples
        #[arg(long)]
        write: bool,
    },
}

#[derive(Debug, Subcommand)]
enum LayersAction {
    /// Plants breaches in a copy of the manifests and expects cargo-deny to name each
    Prove,
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a backtrace: what failed is a program that was run, and its name is told.
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Test { steps } => gate::run(&steps),
        Command::CleanClone => newcomer::run(),
        Command::Layers { action: Some(LayersAction::Prove), .. } => layers::prove(),
        Command::Layers { action: None, write: true } => layers::write(),
        Command::Layers { action: None, write: false } => layers::check(),
        Command::Bench { name, json } => bench(name, json),
        Command::Simulate { steps, seed } => gate::simulate(steps, seed),
        Command::Crash { store, events, boundaries, processes, runs } => {
            let shared = processes.zip(runs);
            gate::crash(store, gate::Crash { events, boundaries, shared })
        }
        Command::Escape { filter, json } => gate::escape(filter.as_deref(), json),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Command::Package { write: true } => package::write(),
        Command::Package { write: false } => package::run(),
    }
}

fn bench(name: Option<String>, json: bool) -> Result<()> {
    // Some of them measure the program itself, which has to be that of this source.
    let mut program = process::cargo(&["build", "--release", "--package", "formwork-cli"]);
    process::run_quietly(&mut program)?;
    let mut cargo = process::cargo(&["run", "--release", "--package", "formwork-bench", "--"]);
    cargo.args(name).args(json.then_some("--json"));
    if json {
        process::run_quietly(&mut cargo) // The document stands alone on standard output.
    } else {
        process::run(&mut cargo)
    }
}

/// Returns the folder of the workspace.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("xtask lies two folders below the workspace").to_owned()
}

/// Reads the manifests of the workspace, which needs no network and sees every kind of dependency.
fn manifests() -> Result<Metadata> {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cannot read the manifests of the workspace")
}
