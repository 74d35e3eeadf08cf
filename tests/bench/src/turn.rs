//! What one turn of an agent waits for beyond its model and its call, against two durable appends.

use std::{fs::File, io::Write as _, path::PathBuf, time::Instant};

use anyhow::Result;
use clap::Args;

use crate::{
    figure::{Figure, Limit, Report, Target, median},
    headless::{self, Series, Syncs},
    model_server::{ModelServer, Work},
    noise::Noise,
    place,
};

/// What `turn` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<PathBuf>,
}

/// How many turns with a call a run has.
const TURNS: usize = 20;

/// How many bytes a raw append has: a turn's events, and the message that is new in it.
const BYTES: usize = 2_048;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let server = ModelServer::start()?;
    // What is read changes nothing and is not waited for; a command is, and is a process besides.
    for (name, work) in [("turn", Work::Read), ("turn with a command", Work::Echo)] {
        let series = Series { name: name.to_owned(), calls: TURNS, sandbox: "off", work };
        let noise = Noise::begin();
        let (mut over, mut appends, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
        for repetition in 0..=if is_quick { 3 } else { 11 } {
            let sample = headless::measure(&program, &server, &series, Syncs::None)?;
            let append = raw_append()?;
            if repetition > 0 {
                over.push(sample.own_millis());
                appends.push(2.0 * append);
                flushes.extend(sample.flushes_a_turn());
            }
        }
        report.add(
            Figure::new(format!("{name}/overhead"), "ms", over)
                .against("two raw appends: write and fdatasync", appends)
                .aims(Target::ratio(Limit::AtMost(6.0), Limit::AtMost(3.0))),
        );
        if !flushes.is_empty() {
            report.add(Figure::new(format!("{name}/flushes of the disk"), "", flushes));
        }
        report.noise(name, &noise);
    }
    Ok(())
}

/// Returns how many milliseconds a write with its sync takes, in the middle of some.
fn raw_append() -> Result<f64> {
    let folder = place::scratch()?;
    let mut file = File::create(folder.path().join("log"))?;
    let bytes = vec![b'x'; BYTES];
    let mut waits = Vec::with_capacity(2 * TURNS);
    for _ in 0..2 * TURNS {
        let began = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        waits.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(waits).unwrap_or(f64::NAN))
}
