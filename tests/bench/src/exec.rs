//! Programs: plain, confined, by bubblewrap; from a small parent and a large one; many at once.

use std::{
    path::{Path, PathBuf},
    process::{Command as Plain, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use formwork_sandbox::{Command, Environment, Launcher, Limits, Protection, Sandbox};
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place,
};

/// What `exec` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program that confines others; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<PathBuf>,
    /// How large the large parent is, in MB.
    #[arg(long, default_value_t = 1000)]
    large: usize,
}

/// How large the small parent is, in MB.
const SMALL: usize = 50;

/// How many run at once.
const AT_ONCE: usize = 50;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let scratch = place::scratch()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let confined = Confined::new(&program, scratch.path());
    let has_bwrap = bwrap().is_ok();
    if !has_bwrap {
        report.note("there is no bwrap in PATH that works here");
    }
    let repetitions = if is_quick { 15 } else { 101 };
    let weight = heavy(SMALL);
    let noise = Noise::begin();

    let (mut plain, mut ours, mut loose, mut by_bwrap) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..=repetitions {
        let one = timed(unconfined)?;
        let two = timed(|| runtime.block_on(confined.run(confined.limits())))?;
        let three = timed(|| runtime.block_on(confined.run(Protection::None)))?;
        let four = if has_bwrap { timed(bwrap)? } else { 0.0 };
        if repetition > 0 {
            plain.push(one);
            ours.push(two);
            loose.push(three);
            by_bwrap.push(four);
        }
    }
    let bar = Target::ratio(Limit::AtMost(4.0), Limit::AtMost(2.5));
    report.add(
        Figure::new("exec confined", "ms", ours.clone()).against("plain", plain.clone()).aims(bar),
    );
    report
        .add(Figure::new("exec unconfined, below a launcher", "ms", loose).against("plain", plain));
    if has_bwrap {
        let bar = Target::ratio(Limit::AtMost(0.5), Limit::AtMost(0.25));
        report.add(
            Figure::new("exec confined, against bwrap", "ms", ours.clone())
                .against("bwrap --unshare-all", by_bwrap)
                .aims(bar),
        );
    }

    drop(weight);

    let (mut small, mut large) = (Vec::new(), Vec::new());
    for repetition in 0..=repetitions.min(31) {
        let weight = heavy(SMALL);
        let one = timed(|| runtime.block_on(confined.run(confined.limits())))?;
        drop(weight);
        let weight = heavy(options.large);
        let two = timed(|| runtime.block_on(confined.run(confined.limits())))?;
        drop(weight);
        if repetition > 0 {
            small.push(one);
            large.push(two);
        }
    }
    let bar = Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.1));
    report.add(
        Figure::new(format!("exec from a parent of {} MB", options.large), "ms", large)
            .against("from one of 50 MB", small)
            .aims(bar),
    );

    let mut all = Vec::new();
    for _ in 0..repetitions.min(11) {
        let many = || try_join_all((0..AT_ONCE).map(|_| confined.run(confined.limits())));
        all.push(timed(|| runtime.block_on(many()).map(drop))? / AT_ONCE as f64);
    }
    report.add(Figure::new("exec fifty at once, each", "ms", all));
    report.noise("exec", &noise);
    Ok(())
}

/// Programs confined as those of agents are.
struct Confined {
    sandbox: Sandbox,
    folder: PathBuf,
}

impl Confined {
    fn new(launcher: &Path, folder: &Path) -> Self {
        let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
        let sandbox = Sandbox::new(environment, folder).with_launcher(Launcher::new(launcher));
        Self { sandbox, folder: folder.to_owned() }
    }

    fn limits(&self) -> Protection {
        let mut limits = Limits::new(Limits::system_roots(), [&self.folder]);
        limits.processes = Some(1024);
        limits.memory = Some(8 << 30);
        Protection::Restricted(limits)
    }

    async fn run(&self, protection: Protection) -> Result<()> {
        let command = Command::new(["/bin/true"], &self.folder, protection);
        let finished = self.sandbox.run(command, CancellationToken::new(), None).await?;
        ensure!(finished.succeeded(), "true ended with {}", finished.exit);
        Ok(())
    }
}

/// Starts a program with pipes, as whoever reads its output does, and waits for it.
fn unconfined() -> Result<()> {
    let mut plain = Plain::new("/bin/true");
    let output = plain.env_clear().stdin(Stdio::null()).output().context("cannot run true")?;
    ensure!(output.status.success(), "true ended with {}", output.status);
    Ok(())
}

fn bwrap() -> Result<()> {
    let mut bwrap = Plain::new("bwrap");
    bwrap.args(["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "/bin/true"]);
    let output = bwrap.stdin(Stdio::null()).output().context("cannot run bwrap")?;
    ensure!(output.status.success(), "bwrap: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns so many MB that this process really holds.
fn heavy(megabytes: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; megabytes * 1_000_000];
    for page in bytes.iter_mut().step_by(4096) {
        *page = 1;
    }
    std::hint::black_box(bytes)
}

fn timed(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
