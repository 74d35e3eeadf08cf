//! The pure core of the scheduler: what happens next, without IO.

use std::{collections::VecDeque, hint::black_box, num::NonZeroUsize, time::Instant};

use anyhow::{Result, ensure};
use formwork_protocols::{SystemClock, SystemRng, TaskId, check::Phase};
use formwork_scheduler::core::{BodyEnd, Builder, Command, Input, State, decide, flatten};

use crate::{
    allocations,
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    shape,
};

const WIDTH: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");

/// Every so many checks one fails, so that retries are part of the measure.
const FAILS: usize = 10;

/// Runs the bench.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let repetitions = if is_quick { 3 } else { 11 };
    for leaves in [10_000, 100_000] {
        let noise = Noise::begin();
        let mut samples = Vec::new();
        for _ in 0..repetitions {
            samples.push(drive(&mut build(leaves)?)?);
        }
        let of = |part: fn(&Sample) -> f64| samples.iter().map(part).collect::<Vec<_>>();
        report.add(
            Figure::new(
                format!("decide/{leaves}/events"),
                "events/s",
                of(|s| s.inputs / s.seconds),
            )
            .aims(Target::figure(Limit::AtLeast(1e6), Some(Limit::AtLeast(5e6)))),
        );
        let commands = of(|s| s.commands / s.seconds);
        report.add(Figure::new(format!("decide/{leaves}/commands"), "commands/s", commands));
        let allocated = of(|s| s.allocations / s.inputs);
        report.add(Figure::new(format!("decide/{leaves}/allocations"), "per event", allocated));
        report.noise(&format!("decide/{leaves}"), &noise);
    }
    Ok(())
}

fn build(leaves: usize) -> Result<State> {
    let mut builder = Builder::new(WIDTH);
    let next = || TaskId::generate(&SystemClock, &SystemRng);
    for planted in flatten(shape::spec(leaves)?, next) {
        builder.add(planted.id, planted.parent, planted.spec)?;
    }
    Ok(builder.build()?)
}

struct Sample {
    seconds: f64,
    /// Things that happened: the run began, an attempt ended, a check decided.
    inputs: f64,
    commands: f64,
    allocations: f64,
}

/// Lets every attempt claim and every tenth check fail, in the order in which they were begun.
fn drive(state: &mut State) -> Result<Sample> {
    let (mut inputs, mut commands, mut checks) = (0_usize, 0_usize, 0_usize);
    let mut waiting = VecDeque::from([Input::Start]);
    let mut out = Vec::new();
    let mut is_finished = false;
    let before = allocations::count();
    let began = Instant::now();
    while let Some(input) = waiting.pop_front() {
        decide(state, input, &mut out)?;
        inputs += 1;
        commands += out.len();
        for command in out.drain(..) {
            match black_box(command) {
                Command::Attempt { task, .. } => {
                    waiting.push_back(Input::Ended { task, end: BodyEnd::Claimed });
                }
                Command::Check { task, phase } => {
                    checks += 1;
                    let fails = phase == Phase::Exit && checks.is_multiple_of(FAILS);
                    waiting.push_back(Input::Checked { task, phase, failed: fails.then_some(0) });
                }
                Command::Finish => is_finished = true,
                _ => {}
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    ensure!(is_finished, "the tree did not come to its end");
    Ok(Sample {
        seconds,
        inputs: inputs as f64,
        commands: commands as f64,
        allocations: allocations::count() - before,
    })
}
