//! Many streams at once, each of them slow: what one costs in memory, and a chunk of it in processor time.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use formwork_protocols::{Cancel, Message, ModelEvent, ModelRequest, Provider as _, Role};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};
use futures::StreamExt as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

use crate::{
    client_path::http,
    cpu::{cpu, monotonic},
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    wires::{Bare, number},
};

/// What `streams` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many streams there are at once.
    #[arg(long = "n", value_delimiter = ',', default_value = "100,1000,10000")]
    streams: Vec<usize>,
}

/// Who reads the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reader {
    Formwork,
    Bare,
}

/// What one process reads.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reading {
    reader: Reader,
    address: String,
    streams: usize,
    chunks: usize,
    /// The time from chunk to chunk, in microseconds.
    beat: u64,
}

/// The fastest that a stream is paced, in microseconds: twenty chunks a second, as a large model writes.
const BEAT: u64 = 50_000;
/// The least between any two chunks, in microseconds, so that two cores are enough for both sides.
const APART: u64 = 50;
/// How many connections are opened at once; a listener's queue holds more.
const OPENING: usize = 200;
/// How long one process may take beyond the time that its chunks are paced for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Files that a process has open beside its streams.
const OTHER_FILES: usize = 100;

/// Runs the bench. Server and reader are processes of their own, so that each reader's memory is its own.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let (repetitions, seconds) = if is_quick { (2, 2) } else { (5, 5) };
    for &streams in &options.streams {
        let beat = BEAT.max(APART * u64::try_from(streams)?);
        let chunks = usize::try_from((seconds * 1_000_000 / beat).max(4))?;
        let noise = Noise::begin();
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            ours.push(measure(Reader::Formwork, streams, chunks, beat)?);
            bare.push(measure(Reader::Bare, streams, chunks, beat)?);
        }
        let name = |what: &str| format!("streams/{streams}/{what}");
        let of = |reads: &[Read], what: fn(&Read) -> f64| reads.iter().map(what).collect();
        let floor = "reqwest, memchr and borrowed serde";
        report.add(
            Figure::new(name("failures"), "streams", of(&ours, |read| read.failures))
                .aims(Target::figure(Limit::AtMost(0.0), Some(Limit::AtMost(0.0)))),
        );
        report.add(
            Figure::new(name("memory"), "KB of RSS per stream", of(&ours, |read| read.memory))
                .against(floor, of(&bare, |read| read.memory))
                .aims(Target::ratio(Limit::AtMost(2.0), Limit::AtMost(1.3))),
        );
        report.add(
            Figure::new(name("chunk"), "µs of CPU", of(&ours, |read| read.chunk))
                .against(floor, of(&bare, |read| read.chunk))
                .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.15))),
        );
        report.add(
            Figure::new(name("delay p99"), "ms", of(&ours, |read| read.delay))
                .against(floor, of(&bare, |read| read.delay)),
        );
        report.noise(&format!("streams/{streams}"), &noise);
        let failed: f64 = bare.iter().map(|read| read.failures).sum();
        ensure!(failed < 1.0, "{failed} streams of the floor failed");
    }
    Ok(())
}

/// What a process found.
struct Read {
    failures: f64,
    /// Kilobytes for each stream.
    memory: f64,
    /// Microseconds of processor time for each chunk.
    chunk: f64,
    /// The milliseconds within which 99 of 100 chunks were there.
    delay: f64,
}

/// A process that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(reader: Reader, streams: usize, chunks: usize, beat: u64) -> Result<Read> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let numbers = [streams.to_string(), chunks.to_string(), beat.to_string()];
    let mut server = Command::new(&program);
    server.arg("serve-streams").args(&numbers).stdout(Stdio::piped());
    let mut server = Server(server.spawn().context("cannot start the server")?);
    let mut address = String::new();
    let output = server.0.stdout.take().context("the server has no output")?;
    BufReader::new(output).read_line(&mut address)?;
    let reader = reader.to_possible_value().context("a reader without a name")?;
    let read = Command::new(&program)
        .args(["read-streams", reader.get_name(), address.trim()])
        .args(&numbers)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the reader")?;
    ensure!(read.status.success(), "the reader ended with {}", read.status);
    let [failures, memory, chunk, delay] = serde_json::from_slice(&read.stdout)?;
    Ok(Read { failures, memory, chunk, delay })
}

/// Lets this process have so many streams.
///
/// # Errors
/// When the machine does not allow as many.
pub(crate) fn raise_limit(streams: usize) -> Result<()> {
    let wanted = u64::try_from(streams + OTHER_FILES)?;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= wanted),
        "{streams} streams need {wanted} open files, and this machine allows {:?}",
        limit.maximum
    );
    limit.current = Some(wanted);
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

/// What the streams of one process have in common.
struct Shared {
    chunks: usize,
    gate: Semaphore,
    opened: AtomicUsize,
    arrived: AtomicUsize,
    ended: AtomicUsize,
    /// Chunks by the bits of their delay in microseconds, with three bits of precision.
    delays: Vec<AtomicUsize>,
    end: watch::Sender<bool>,
}

const DELAYS: usize = 64 * 8;

/// Reads streams until all their chunks are there, and prints what that cost.
pub(crate) fn read(reading: &Reading) -> Result<()> {
    raise_limit(reading.streams)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(read_all(reading))?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

async fn read_all(reading: &Reading) -> Result<[f64; 4]> {
    let shared = Arc::new(Shared::new(reading.chunks));
    let warm = Arc::new(Shared::new(1));
    warm.end.send_replace(true);
    let client = |path: &str| -> Result<Client> {
        let url = format!("http://{}/{path}/v1", reading.address);
        let endpoint = Endpoint::new("bench".parse()?, ProviderKind::OpenAiCompatible, url);
        Ok(Client::new(endpoint, Seams::default())?)
    };
    let url = |path: &str| format!("http://{}/{path}/v1/chat/completions", reading.address);
    // What is made once for all streams, such as the first buffers of a client, is not of the streams.
    let (warming, client) = (client("warm")?, client("read")?);
    let plain = http()?; // After the clients, which set the TLS that it takes.
    match reading.reader {
        Reader::Formwork => formwork(warming, warm).await?,
        Reader::Bare => bare(plain.clone(), url("warm"), warm).await?,
    }
    let before = resident()?;
    let mut tasks = JoinSet::new();
    for _ in 0..reading.streams {
        let shared = Arc::clone(&shared);
        match reading.reader {
            Reader::Formwork => tasks.spawn(formwork(client.clone(), shared)),
            Reader::Bare => tasks.spawn(bare(plain.clone(), url("read"), shared)),
        };
    }
    let pace = Duration::from_micros(reading.beat) * u32::try_from(reading.chunks)?;
    let deadline = Instant::now() + pace + PATIENCE;
    let is_waiting = |count: &AtomicUsize| {
        count.load(Relaxed) + shared.ended.load(Relaxed) < reading.streams
            && Instant::now() < deadline
    };
    while is_waiting(&shared.opened) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = cpu();
    let mut most = resident()?;
    while is_waiting(&shared.arrived) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(resident()?);
    }
    let used = cpu() - began;
    shared.end.send_replace(true);
    let mut whole = 0;
    while let Some(outcome) = tasks.join_next().await {
        match outcome? {
            Ok(()) => whole += 1,
            Err(error) => writeln!(std::io::stderr(), "a stream failed: {error:#}")?,
        }
    }
    let streams = reading.streams as f64;
    Ok([
        streams - f64::from(whole),
        (most - before) / streams,
        used / 1e3 / (streams * reading.chunks as f64),
        shared.delay(99) / 1e3,
    ])
}

impl Shared {
    fn new(chunks: usize) -> Self {
        Self {
            chunks,
            gate: Semaphore::new(OPENING),
            opened: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            delays: (0..DELAYS).map(|_| AtomicUsize::new(0)).collect(),
            end: watch::channel(false).0,
        }
    }

    /// Notes the delay of chunks that were sent at `time`.
    fn note(&self, time: u64, chunks: usize) {
        let delay = monotonic().saturating_sub(time) / 1_000;
        let bits = 64 - (delay | 8).leading_zeros();
        let place = (bits as usize) * 8 + (delay >> (bits - 4)) as usize % 8;
        if let Some(count) = self.delays.get(place) {
            count.fetch_add(chunks, Relaxed);
        }
    }

    /// Returns the microseconds within which so many of a hundred chunks were there.
    fn delay(&self, percent: usize) -> f64 {
        let counts = self.delays.iter().map(|count| count.load(Relaxed));
        let wanted = counts.clone().sum::<usize>() * percent / 100;
        let mut seen = 0;
        for (place, count) in counts.enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let (bits, low) = (place / 8, place % 8);
                return ((8 + low + 1) << bits.saturating_sub(4)) as f64;
            }
        }
        0.0
    }

    /// Notes that a stream has brought all its chunks, and keeps it open until all others have, too.
    async fn arrive(&self) -> Result<()> {
        self.arrived.fetch_add(1, Relaxed);
        self.end.subscribe().wait_for(|is_over| *is_over).await?;
        Ok(())
    }
}

async fn formwork(client: Client, shared: Arc<Shared>) -> Result<()> {
    let read = async {
        let opening = shared.gate.acquire().await?;
        let message = Message::text(Role::User, "What is the capital of France?");
        let mut events =
            client.stream(ModelRequest::new("m".parse()?, vec![message]), Cancel::new());
        let mut opening = Some(opening);
        let mut chunks = 0;
        while let Some(event) = events.next().await {
            if opening.take().is_some() {
                shared.opened.fetch_add(1, Relaxed);
            }
            match event? {
                ModelEvent::Text { text } => {
                    let Ok(time) = text.parse() else { continue };
                    shared.note(time, 1);
                    chunks += 1;
                    if chunks == shared.chunks {
                        shared.arrive().await?;
                    }
                }
                ModelEvent::Done(_) => {
                    ensure!(chunks == shared.chunks, "{chunks} chunks of {}", shared.chunks);
                    return Ok(());
                }
                _ => {}
            }
        }
        anyhow::bail!("the stream has no end")
    };
    let outcome = read.await;
    shared.ended.fetch_add(1, Relaxed);
    outcome
}

async fn bare(http: reqwest::Client, url: String, shared: Arc<Shared>) -> Result<()> {
    let read = async {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"What is the capital of France?"}],"stream":true}"#;
        let opening = shared.gate.acquire().await?;
        let sending = http.post(&url).header("content-type", "application/json").body(body);
        let mut bytes = sending.send().await?.bytes_stream();
        let mut opening = Some(opening);
        let mut bare = Bare::new(number);
        let (mut chunks, mut times) = (0, 0);
        while let Some(chunk) = bytes.next().await {
            if opening.take().is_some() {
                shared.opened.fetch_add(1, Relaxed);
            }
            bare.push(&chunk?);
            // The times of a packet's events are summed up; nearly always there is one.
            let came = bare.lines - chunks;
            if let Some(time) = (bare.text - times).checked_div(came) {
                shared.note(u64::try_from(time)?, came);
                (chunks, times) = (bare.lines, bare.text);
                if chunks == shared.chunks {
                    shared.arrive().await?;
                }
            }
        }
        ensure!(chunks == shared.chunks, "{chunks} chunks of {}", shared.chunks);
        Ok(())
    };
    let outcome = read.await;
    shared.ended.fetch_add(1, Relaxed);
    outcome
}

/// Returns how many kilobytes of this process are in memory.
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status").context("cannot read this process")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("no resident size")?.parse()?)
}
