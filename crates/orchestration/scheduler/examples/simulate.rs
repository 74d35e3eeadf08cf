//! The simulator from the command line: `simulate [STEPS [SEED]]`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints what it shows")]

use std::{process::ExitCode, time::Instant};

use formwork_scheduler::sim::simulate;

/// Enough for a first look; `cargo xtask simulate` takes as many as it is asked for.
const STEPS: u64 = 20_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (steps, seed) = match (arguments.next(), arguments.next(), arguments.next()) {
        (None, None, None) => (STEPS, 0),
        (Some(Ok(steps)), None, None) => (steps, 0),
        (Some(Ok(steps)), Some(Ok(seed)), None) => (steps, seed),
        _ => {
            eprintln!("usage: simulate [STEPS [SEED]]");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    match simulate(seed, steps) {
        Ok(report) => {
            println!("{report} in {:.1} s", began.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(broken) => {
            for line in &broken.series {
                println!("{line}");
            }
            println!("{broken}\nagain: cargo xtask simulate --steps 1 --seed {}", broken.seed);
            ExitCode::FAILURE
        }
    }
}
