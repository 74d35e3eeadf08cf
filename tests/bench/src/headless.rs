//! A whole run of many model turns with a command each, against a model that answers at once.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    child::{Measured, Used},
    device::Device,
    figure::{Figure, Limit, Report, Target, median},
    model_server::{self, ModelServer, Turn, Work},
    noise::Noise,
    place,
};

/// What `headless` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<PathBuf>,
    /// How many commands the long run asks for.
    #[arg(long, default_value_t = 200)]
    turns: usize,
}

/// How many commands the short run asks for; with the last answer that makes 21 turns.
const SHORT: usize = 20;

const TASK: &str = "Run the commands one after the other until there are no more, then say so.";

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let server = ModelServer::start()?;
    let repetitions = if is_quick { 3 } else { 11 };
    let short =
        Series { name: "21 turns".to_owned(), calls: SHORT, sandbox: "on", work: Work::Echo };
    let open = Series {
        name: "21 turns, unconfined".to_owned(),
        calls: SHORT,
        sandbox: "off",
        work: Work::Echo,
    };
    let long = Series {
        name: format!("{} turns", options.turns + 1),
        calls: options.turns,
        sandbox: "on",
        work: Work::Echo,
    };
    for (series, repetitions) in [(short, repetitions), (open, repetitions), (long, 3)] {
        let noise = Noise::begin();
        let mut samples = Vec::new();
        for repetition in 0..=repetitions {
            let sample = measure(&program, &server, &series, Syncs::Two)?;
            if repetition > 0 {
                samples.push(sample); // The first only warms the caches.
            }
        }
        tell(&series, &samples, report);
        report.noise(&format!("headless {}", series.name), &noise);
    }
    Ok(())
}

/// One kind of run.
pub(crate) struct Series {
    pub(crate) name: String,
    /// How many commands the model asks for.
    pub(crate) calls: usize,
    pub(crate) sandbox: &'static str,
    pub(crate) work: Work,
}

/// How often the bare loop syncs in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncs {
    None,
    Two,
}

/// What a run came to, and the bare loop of the same requests.
pub(crate) struct Sample {
    used: Used,
    /// What the disk flushed meanwhile, for whomever.
    flushes: Option<f64>,
    turns: Vec<Turn>,
    floor_seconds: f64,
    floor_turns: Vec<Turn>,
}

impl Sample {
    /// Returns the milliseconds of a turn beyond those of the bare loop.
    pub(crate) fn own_millis(&self) -> f64 {
        let gap = |turns: &[Turn]| median(gaps(turns)).unwrap_or(f64::NAN);
        gap(&self.turns) - gap(&self.floor_turns)
    }

    /// Returns how often the disk was flushed in a turn, for whomever.
    pub(crate) fn flushes_a_turn(&self) -> Option<f64> {
        Some(self.flushes? / self.turns.len() as f64)
    }
}

/// Lets the program work, then sends its own requests again in a bare loop with as many commands and
/// syncs.
pub(crate) fn measure(
    program: &Path,
    server: &ModelServer,
    series: &Series,
    syncs: Syncs,
) -> Result<Sample> {
    let home = place::scratch()?;
    let workspace = home.path().join("workspace");
    fs::create_dir(&workspace)?;
    fs::write(workspace.join("README.md"), "# A project\n")?;
    if series.work == Work::Read {
        for step in 1..=series.calls {
            fs::write(workspace.join(model_server::file(step)), format!("step-{step}\n"))?;
        }
    }
    let config = home.path().join("bench.toml");
    fs::write(&config, config_text(server, series))?;
    server.reset(series.calls, series.work);

    let mut measured = Measured::new(program, home.path())?;
    let command = &mut measured.command;
    command.args(["run", "--mode", "auto", "--sandbox", series.sandbox, "-m", TASK]);
    command.arg("--config").arg(&config).arg("-C").arg(&workspace);
    let said = home.path().join("said");
    command.stdout(File::create(&said)?).stderr(File::create(home.path().join("errors"))?);
    let device = Device::of(home.path());
    let flushes = || device.as_ref().and_then(Device::flushes);
    let flushed = flushes();
    let used = measured.run()?;
    let flushes = flushes().zip(flushed).map(|(after, before)| after - before);
    let (turns, others) = server.seen();
    let explain = || -> String {
        let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
        format!("{}{}asked besides: {others:?}", read("said"), read("errors"))
    };
    ensure!(used.status.success(), "formwork ended with {}: {}", used.status, explain());
    ensure!(turns.len() == series.calls + 1, "{} turns: {}", turns.len(), explain());
    let last = turns.last().map(|turn| String::from_utf8_lossy(&turn.body)).unwrap_or_default();
    ensure!(results_are_whole(&last, series.calls), "a result is missing in {last}");

    server.reset(series.calls, series.work);
    let began = Instant::now();
    let log = home.path().join("log");
    let reads = (series.work == Work::Read).then_some(workspace.as_path());
    bare_loop(server, &turns, (&log, reads), syncs)?;
    let floor_seconds = began.elapsed().as_secs_f64();
    Ok(Sample { used, flushes, turns, floor_seconds, floor_turns: server.seen().0 })
}

/// Tells whether every command was run and its output came back to the model.
fn results_are_whole(request: &str, calls: usize) -> bool {
    let request: Value = serde_json::from_str(request).unwrap_or_default();
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut results = messages.iter().filter(|message| message["role"] == "tool");
    (1..=calls).all(|step| {
        results
            .next()
            .is_some_and(|result| result["content"].to_string().contains(&format!("step-{step}")))
    })
}

fn config_text(server: &ModelServer, series: &Series) -> String {
    format!(
        "format_version = 1\n\
         [providers.bench]\nkind = \"openai-compatible\"\nbase_url = \"http://{}/v1\"\n\
         [models.\"bench/bench\"]\nprice = \"local\"\ncontext_tokens = 1000000\n\
         [categories]\ndefault = \"bench/bench\"\n\
         [budget]\nrounds = {}\n",
        server.address(),
        series.calls + 10
    )
}

/// Sends the same requests one after the other, with a command after each answer or the reading of a file, and two
/// syncs if any.
fn bare_loop(
    server: &ModelServer,
    turns: &[Turn],
    (log, reads): (&Path, Option<&Path>),
    syncs: Syncs,
) -> Result<()> {
    let stream = TcpStream::connect(server.address())?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    let mut log = File::create(log)?;
    let mut before = 0;
    for (step, turn) in turns.iter().enumerate() {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\r\n",
            turn.body.len()
        );
        (&stream).write_all(&[head.as_bytes(), &turn.body].concat())?;
        let answer = answer(&mut reader)?;
        log.write_all(&answer)?;
        if syncs == Syncs::Two {
            log.sync_data()?;
        }
        if let (true, Some(folder)) = (step + 1 < turns.len(), reads) {
            fs::read(folder.join(model_server::file(step + 1)))?;
        } else if step + 1 < turns.len() {
            let mut echo = Command::new("echo");
            echo.arg(format!("step-{}", step + 1)).stdin(Stdio::null());
            ensure!(echo.output()?.status.success(), "echo failed");
        }
        log.write_all(turn.body.get(before..).unwrap_or_default())?;
        if syncs == Syncs::Two {
            log.sync_data()?;
        }
        before = turn.body.len();
    }
    Ok(())
}

/// Reads a chunked answer to its end.
fn answer(reader: &mut BufReader<&TcpStream>) -> Result<Vec<u8>> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the model server hung up");
    }
    let mut body = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).context("a chunk without a length")?;
        let begin = body.len();
        body.resize(begin + length + 2, 0);
        reader.read_exact(&mut body[begin..])?;
        body.truncate(begin + length);
        if length == 0 {
            return Ok(body);
        }
    }
}

fn tell(series: &Series, samples: &[Sample], report: &mut Report) {
    let at = |what: &str| format!("headless {}/{what}", series.name);
    let of = |part: &dyn Fn(&Sample) -> f64| samples.iter().map(part).collect::<Vec<_>>();
    let is_short = series.calls == SHORT;
    let aims = |figure: Figure, bar: f64, goal: Option<f64>| {
        if !is_short {
            return figure;
        }
        figure.aims(Target::figure(Limit::AtMost(bar), goal.map(Limit::AtMost)))
    };
    let floor = "bare loop: same requests, echo, two syncs a turn";
    let wall = Figure::new(at("wall"), "s", of(&|sample| sample.used.wall.as_secs_f64()))
        .against(floor, of(&|sample| sample.floor_seconds));
    report.add(aims(wall, 0.35, Some(0.15)));
    let cpu =
        Figure::new(at("cpu, all processes"), "s", of(&|sample| sample.used.cpu.as_secs_f64()));
    report.add(aims(cpu, 0.20, None));
    let peak = Figure::new(at("peak memory"), "MB", of(&|sample| sample.used.peak_bytes / 1e6));
    report.add(aims(peak, 30.0, None));
    let gap = |turns: &[Turn]| median(gaps(turns)).unwrap_or(f64::NAN);
    report.add(
        Figure::new(at("gap between turns"), "ms", of(&|sample| gap(&sample.turns)))
            .against("bare loop", of(&|sample| gap(&sample.floor_turns))),
    );
    let own = of(&Sample::own_millis);
    report.add(
        Figure::new(at("our own time a turn"), "ms", own)
            .aims(Target::figure(Limit::AtMost(3.0), None)),
    );
    if !is_short {
        let part = |turns: &[Turn], from: usize| {
            median(gaps(turns).into_iter().skip(from).take(20).collect()).unwrap_or(f64::NAN)
        };
        let late = series.calls.saturating_sub(20);
        report.add(
            Figure::new(
                at("gap, last twenty turns"),
                "ms",
                of(&|sample| part(&sample.turns, late)),
            )
            .against("first twenty", of(&|sample| part(&sample.turns, 0))),
        );
    }
    let flushes: Option<Vec<f64>> = samples.iter().map(Sample::flushes_a_turn).collect();
    if let Some(flushes) = flushes {
        report.add(Figure::new(at("flushes of the disk a turn"), "", flushes));
    }
    let bytes = |turn: Option<&Turn>| turn.map_or(0.0, |turn| turn.body.len() as f64);
    report.add(Figure::new(
        at("first request"),
        "bytes",
        of(&|sample| bytes(sample.turns.first())),
    ));
    let fixed =
        Figure::new(at("fixed prompt and tools"), "bytes", of(&|sample| fixed(&sample.turns)));
    report.add(aims(fixed, 6144.0, None));
    report.add(Figure::new(at("last request"), "bytes", of(&|sample| bytes(sample.turns.last()))));
}

fn gaps(turns: &[Turn]) -> Vec<f64> {
    turns.iter().filter_map(|turn| Some(turn.gap?.as_secs_f64() * 1e3)).collect()
}

/// Returns how many bytes of the first request are the same for every task: what stands before the
/// user's message, and the tools.
fn fixed(turns: &[Turn]) -> f64 {
    let body = turns.first().map(|turn| turn.body.as_slice()).unwrap_or_default();
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let system = messages.iter().filter(|message| message["role"] != "user");
    let bytes =
        system.map(|message| message["content"].as_str().map_or(0, str::len)).sum::<usize>()
            + request["tools"].to_string().len();
    bytes as f64
}
