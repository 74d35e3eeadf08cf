//! The benches of Formwork, each against a floor measured in the same run.
//!
//! `cargo xtask bench` runs them. A figure is the median of its repetitions with the range; a floor is
//! bare library code, or the bare machine, that does the same work with the same bytes. Both are
//! measured in turn within each repetition, and the ratio is the median of the repetitions' ratios,
//! so that a busy machine disturbs both alike. Nothing here asserts a time: a bench informs.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

mod figure; // What a bench prints.
mod noise; // What else the machine did meanwhile.

mod append; // Durable appends.
mod append_cost; // What each promise of the log costs.
mod chat; // A chat, as a person feels it.
mod client_path; // A model call over loopback.
mod decide; // The pure core of the scheduler.
mod dispatch; // Which subscriptions an event is for.
mod edit; // Files, written and edited.
mod exec; // Programs, confined.
mod headless; // A whole run of many turns against a model that answers at once.
mod log; // The log as it is looked at.
mod replay; // Reading the log.
mod search; // Text in many files.
mod sse_decode; // An answer from its bytes, on every wire.
mod start; // What it costs to begin.
mod streams; // Many streams at once.
mod tree; // The task tree, driven.
mod turn; // One turn of an agent, durable.

mod allocations; // How much the heap was asked for.
mod child; // Whole processes, with what they used.
mod cpu; // The processor time of one thread.
mod device; // What the kernel counts of a disk.
mod model_server; // The model that answers at once.
mod null_store; // A store that keeps nothing.
mod paced_server; // Many streams, a chunk of each at every beat.
mod place; // Where benches keep their files.
mod raw; // Floors: the same bytes without Formwork.
mod shape; // The trees that are measured.
mod stream_server; // The same stream for every request.
mod wires; // Answers as they are streamed, and the least that reads one.

use std::{fs, io::Write as _, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::figure::Report;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// The benches of Formwork, each against a floor measured in the same run.
#[derive(Debug, Parser)]
#[command(name = "formwork-bench", max_term_width = 100)]
struct Cli {
    /// Which; all of them when it is left out.
    #[command(subcommand)]
    bench: Option<Bench>,
    #[command(flatten)]
    how: How,
}

/// How a bench is run and told.
#[derive(Debug, Clone, Args)]
struct How {
    /// Fewer and smaller repetitions: the figures wander more.
    #[arg(long, global = true)]
    quick: bool,
    /// Prints one JSON document in place of lines, or writes it to FILE beside them.
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl How {
    fn is_silent(&self) -> bool {
        self.json.as_ref().is_some_and(|file| file.as_os_str() == "-")
    }
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// All of them, each in a process of its own.
    All,
    /// Durable appends: events a second, acknowledgements, grouping.
    Append(append::Options),
    /// What each promise of the log costs, one after the other.
    AppendCost,
    /// A chat: its first frame, what it costs while nobody types, how soon Ctrl-C ends a turn.
    Chat(chat::Options),
    /// A model call over loopback: an event of a long answer, and a whole short call.
    ClientPath,
    /// The pure core of the scheduler, without IO.
    Decide,
    /// One event against many subscriptions: by the index, by asking each, by bare hashes.
    Dispatch,
    /// Files: one put in place at once, sixteen edited together, a splice of a large one.
    Edit,
    /// Programs: plain, confined, by bubblewrap; from a small parent and a large one; many at once.
    Exec(exec::Options),
    /// Text in many files: every line, and the first.
    Search(search::Options),
    /// Reading the log: events from a cursor, a chain verified, a large store opened.
    Replay(replay::Options),
    /// An answer from its bytes, on every wire, however they are cut.
    SseDecode,
    /// Many streams at once: memory and processor time of each.
    Streams(streams::Options),
    /// Driver and core over a tree of tasks that do nothing.
    Tree(tree::Options),
    /// What one turn of an agent waits for beyond its model and its command.
    Turn(turn::Options),
    /// Wall time, CPU and memory of short verbs, with an empty log and a large one.
    Start(start::Options),
    /// A whole run of many model turns with a command each, against a model that answers at once.
    Headless(headless::Options),
    /// The log as it is looked at: many runs listed, a long run opened, paged and checked.
    Log(log::Options),
    /// Fills a store for `start`, so that the heap of the filling weighs on no figure.
    #[command(hide = true)]
    Fill { events: u64, file: PathBuf },
    /// Serves the streams of `streams`, so that its work is not the reader's.
    #[command(hide = true)]
    ServeStreams(paced_server::Options),
    /// Reads them, so that the memory of one reader weighs on no other.
    #[command(hide = true)]
    ReadStreams(streams::Reading),
}

/// In the order to run them: those that measure other processes come first.
const ALL: [&str; 17] = [
    "start",
    "chat",
    "log",
    "headless",
    "exec",
    "turn",
    "edit",
    "search",
    "decide",
    "dispatch",
    "sse-decode",
    "client-path",
    "streams",
    "append",
    "append-cost",
    "tree",
    "replay",
];

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    // Before anything else takes memory, which would count as that of the program under measure.
    if arguments.next().is_some_and(|first| first == child::LAUNCH) {
        return child::launch(arguments);
    }
    let Cli { bench, how } = Cli::parse();
    let mut report = Report::new(how.is_silent());
    match bench.unwrap_or(Bench::All) {
        Bench::All => return all(&how),
        Bench::Append(options) => append::run(&options, how.quick, &mut report)?,
        Bench::AppendCost => append_cost::run(how.quick, &mut report)?,
        Bench::Chat(options) => chat::run(&options, how.quick, &mut report)?,
        Bench::ClientPath => client_path::run(how.quick, &mut report)?,
        Bench::Decide => decide::run(how.quick, &mut report)?,
        Bench::Dispatch => dispatch::run(how.quick, &mut report)?,
        Bench::Edit => edit::run(how.quick, &mut report)?,
        Bench::Exec(options) => exec::run(&options, how.quick, &mut report)?,
        Bench::Search(options) => search::run(&options, how.quick, &mut report)?,
        Bench::Replay(options) => replay::run(&options, how.quick, &mut report)?,
        Bench::SseDecode => sse_decode::run(how.quick, &mut report)?,
        Bench::Streams(options) => streams::run(&options, how.quick, &mut report)?,
        Bench::Tree(options) => tree::run(&options, how.quick, &mut report)?,
        Bench::Turn(options) => turn::run(&options, how.quick, &mut report)?,
        Bench::Start(options) => start::run(&options, how.quick, &mut report)?,
        Bench::Headless(options) => headless::run(&options, how.quick, &mut report)?,
        Bench::Log(options) => log::run(&options, how.quick, &mut report)?,
        Bench::Fill { events, file } => return start::fill(events, &file),
        Bench::ServeStreams(options) => return paced_server::run(options),
        Bench::ReadStreams(reading) => return streams::read(&reading),
    }
    match &how.json {
        Some(file) => write(file, &report.into_json()),
        None => Ok(()),
    }
}

/// Runs each bench as a process of its own, because the heap of one would weigh on the next.
fn all(how: &How) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = tempfile::tempdir()?;
    let (mut parts, mut failed) = (Vec::new(), Vec::new());
    for name in ALL {
        let file = folder.path().join(name);
        let mut command = Command::new(&program);
        command.arg(name).args(how.quick.then_some("--quick"));
        command.arg("--json").arg(&file);
        if how.is_silent() {
            command.stdout(std::process::Stdio::null());
        }
        let status = command.status().with_context(|| format!("cannot run bench {name}"))?;
        if !status.success() {
            failed.push(name); // It has said why, and the others are worth having.
            continue;
        }
        parts.push(serde_json::from_str(&fs::read_to_string(&file)?)?);
    }
    let part = |name: &str| -> Vec<Value> {
        parts.iter().filter_map(|part: &Value| part[name].as_array()).flatten().cloned().collect()
    };
    if let Some(file) = &how.json {
        let all = ["figures", "notes", "noise"].map(|name| (name.to_owned(), part(name).into()));
        write(file, &Value::Object(all.into_iter().collect()))?;
    }
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

fn write(file: &std::path::Path, document: &Value) -> Result<()> {
    let text = format!("{document:#}\n");
    if file.as_os_str() == "-" {
        std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
    } else {
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}
