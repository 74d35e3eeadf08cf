//! A chat as a person feels it: its first frame, what it costs while nobody types, and how soon Ctrl-C ends a turn.
//!
//! The program runs in a pseudo-terminal against a server of this machine. Nothing of a screen is judged but whether a
//! text has come.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use formwork_testkit::http::{Reply, Server};
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place,
};

/// What `chat` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<PathBuf>,
}

/// After which what should have come is taken never to come.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often it is looked whether a program has begun or ended, where nothing tells.
const LOOK: Duration = Duration::from_millis(1);

/// Where the model is asked.
const CHAT: &str = "/v1/chat/completions";

/// What stands at the beginning of the line to write in.
const PROMPT: &str = "> ";

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime.block_on(Server::start())?;
    let noise = Noise::begin();
    let repetitions = if is_quick { 3 } else { 21 };
    let (mut first, mut ready) = (Vec::new(), Vec::new());
    let (mut streams, mut runs) = (Vec::new(), Vec::new());
    // The first only warms the caches.
    for repetition in 0..=repetitions {
        let chat = Chat::open(&program, &server)?;
        let sample = [chat.first.as_secs_f64() * 1e3, chat.ready.as_secs_f64() * 1e3];
        let streamed = chat.interrupted_while_a_model_streams(&server)?.as_secs_f64() * 1e3;
        let ran = chat.interrupted_while_a_program_runs(&server, repetition)?.as_secs_f64() * 1e3;
        chat.end()?;
        if repetition > 0 {
            first.push(sample[0]);
            ready.push(sample[1]);
            streams.push(streamed);
            runs.push(ran);
        }
    }
    let most = |most| Target::figure(Limit::AtMost(most), None);
    report.add(Figure::new("chat first frame", "ms", first).aims(most(20.0)));
    report.add(Figure::new("chat a line to write in", "ms", ready));
    report.add(Figure::new("chat Ctrl-C while a model streams", "ms", streams).aims(most(100.0)));
    // A tool has so long to end what it has started before it is dropped.
    report.add(Figure::new("chat Ctrl-C while a program runs", "ms", runs).aims(most(800.0)));
    idle(&program, &server, is_quick, report)?;
    report.noise("chat", &noise);
    Ok(())
}

/// Measures what a chat costs in which nobody types.
fn idle(program: &Path, server: &Server, is_quick: bool, report: &mut Report) -> Result<()> {
    let chat = Chat::open(program, server)?;
    let (windows, long) = if is_quick { (2, 1) } else { (5, 4) };
    let long = Duration::from_secs(long);
    let mut shares = Vec::new();
    for _ in 0..windows {
        let (began, before) = (Instant::now(), chat.processor()?);
        pause(long);
        let used = chat.processor()?.saturating_sub(before);
        shares.push(used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0);
    }
    report.add(Figure::new("chat the processor while nobody types", "% of a core", shares));
    let memory = chat.memory()?;
    report.add(Figure::new("chat memory while nobody types", "MB", vec![memory]));
    chat.end()
}

/// A chat in a terminal of its own.
struct Chat {
    child: Child,
    screen: Arc<Screen>,
    keys: File,
    reader: Option<JoinHandle<()>>,
    first: Duration,
    ready: Duration,
    _home: TempDir,
}

/// What has come to the terminal, and what waits for more of it.
#[derive(Default)]
struct Screen {
    came: Mutex<Came>,
    more: Condvar,
}

#[derive(Default)]
struct Came {
    text: Vec<u8>,
    first: Option<Instant>,
    is_over: bool,
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a text has come behind what was there at `from`, and returns when that was seen.
    fn shows(&self, text: &str, from: usize) -> Result<Instant> {
        let deadline = Instant::now() + DEADLINE;
        let mut came = self.lock();
        loop {
            let new = came.text.get(from..).unwrap_or_default();
            if memchr::memmem::find(new, text.as_bytes()).is_some() {
                return Ok(Instant::now());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(
                !came.is_over && !left.is_zero(),
                "{text:?} was not shown: {}",
                String::from_utf8_lossy(new)
            );
            came = self.more.wait_timeout(came, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn len(&self) -> usize {
        self.lock().text.len()
    }
}

impl Chat {
    fn open(program: &Path, server: &Server) -> Result<Self> {
        let home = place::scratch()?;
        let workspace = home.path().join("workspace");
        fs::create_dir(&workspace)?;
        let config = home.path().join("bench.toml");
        fs::write(&config, config_text(server))?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        tcsetwinsize(&master, Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = ptsname(&master, Vec::new())?;
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        let (keys, output) = (File::from(master.try_clone()?), File::from(master));
        let screen = Arc::new(Screen::default());
        let shared = Arc::clone(&screen);
        let reader = thread::spawn(move || read(output, &shared));

        let side = || -> Result<Stdio> { Ok(theirs.try_clone()?.into()) };
        let mut command = Command::new(program);
        command.args(["chat", "--mode", "auto"]).arg("--config").arg(&config);
        command.arg("-C").arg(&workspace).env_clear().current_dir(&workspace);
        command.env("HOME", home.path()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        command.env("FORMWORK_CONFIG_DIR", home.path().join("config"));
        command.env("FORMWORK_STATE_DIR", home.path().join("state"));
        command.stdin(side()?).stdout(side()?).stderr(side()?);
        let began = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        // The terminal is over once nobody but the program holds its other side.
        drop((command, theirs));
        let hello = screen.shows("formwork chat", 0)?;
        let first = screen.lock().first.unwrap_or(hello) - began;
        let ready = screen.shows(PROMPT, 0)? - began;
        let reader = Some(reader);
        Ok(Self { child, screen, keys, reader, first, ready, _home: home })
    }

    /// Types something.
    fn types(&self, text: &str) -> Result<()> {
        (&self.keys).write_all(text.as_bytes()).context("nobody takes keys any more")
    }

    /// Ends the turn, and returns how long it took until the person is told so.
    fn interrupts(&self) -> Result<Duration> {
        let (from, began) = (self.screen.len(), Instant::now());
        self.types("\x03")?;
        let told = self.screen.shows("the turn was ended", from)?;
        Ok(told - began)
    }

    /// Ends a turn while a model is in the middle of an answer.
    fn interrupted_while_a_model_streams(&self, server: &Server) -> Result<Duration> {
        let words = "I think about it at great length, ";
        let answer = event(&json!({ "content": words.repeat(3) }), None);
        server.reply(CHAT, Reply::event_stream().chunk(answer).stall());
        let from = self.screen.len();
        self.types("Think.\r")?;
        self.screen.shows(words.trim_end_matches([',', ' ']), from)?;
        self.interrupts()
    }

    /// Ends a turn while a program runs, and returns how long it took until that is gone as well.
    fn interrupted_while_a_program_runs(&self, server: &Server, number: usize) -> Result<Duration> {
        // No other program of this machine sleeps so long.
        let seconds = format!("86400.{:05}{number:03}", std::process::id() % 100_000);
        let arguments = json!({ "command": ["sleep", seconds] }).to_string();
        let function = json!({ "name": "exec", "arguments": arguments });
        let call = json!({ "index": 0, "id": format!("call_{number}"), "type": "function", "function": function });
        let asks =
            event(&json!({ "tool_calls": [call] }), None) + &event(&json!({}), Some("tool_calls"));
        server.reply(CHAT, Reply::sse(asks + "data: [DONE]\n\n"));
        self.types("Run it.\r")?;
        wait_until(|| runs(&seconds)).context("the program did not begin")?;
        let began = Instant::now();
        let told = self.interrupts()?;
        wait_until(|| !runs(&seconds)).context("the program did not end")?;
        Ok(began.elapsed().max(told))
    }

    /// Returns the processor time that the program has used.
    fn processor(&self) -> Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()));
        let all: Vec<u64> = match text {
            // Of its threads, each of which tells its own.
            Ok(_) => fs::read_dir(format!("/proc/{}/task", self.child.id()))?
                .flatten()
                .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
                .filter_map(|told| told.split(' ').next()?.parse().ok())
                .collect(),
            Err(error) => return Err(error).context("this kernel does not tell processor times"),
        };
        Ok(Duration::from_nanos(all.iter().sum()))
    }

    /// Returns the memory that it holds, in MB.
    fn memory(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
        Ok(kib.context("the kernel does not tell the memory of a process")? * 1024.0 / 1e6)
    }

    /// Ends the chat, and waits for it.
    fn end(mut self) -> Result<()> {
        self.types("\x04")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the chat ended with {status}");
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        Ok(())
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // One that has ended already is not there to be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes in what comes, until nobody holds the other side of the terminal.
fn read(mut output: File, screen: &Screen) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = output.read(&mut buffer);
        let mut came = screen.lock();
        match read {
            Ok(count) if count > 0 => {
                came.first.get_or_insert_with(Instant::now);
                came.text.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => came.is_over = true,
        }
        let is_over = came.is_over;
        drop(came);
        screen.more.notify_all();
        if is_over {
            return;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is that nothing happens meanwhile, and nothing tells of a process of others"
)]
fn pause(long: Duration) {
    thread::sleep(long);
}

fn wait_until(holds: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        ensure!(Instant::now() < deadline, "waited for {DEADLINE:?}");
        pause(LOOK);
    }
    Ok(())
}

/// Tells whether a program runs that sleeps for so long.
fn runs(seconds: &str) -> bool {
    let wanted = [&b"sleep\0"[..], seconds.as_bytes(), &b"\0"[..]].concat();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    processes
        .filter(|process| is_number(&process.file_name()))
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.ends_with(&wanted))
}

/// Returns an event of an answer.
fn event(delta: &serde_json::Value, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let chunk = json!({ "id": "bench", "object": "chat.completion.chunk", "model": "bench", "choices": [choice] });
    format!("data: {chunk}\n\n")
}

fn config_text(server: &Server) -> String {
    format!(
        "format_version = 1\n\
         [providers.bench]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n\
         [models.\"bench/bench\"]\nprice = \"local\"\ncontext_tokens = 1000000\n\
         [categories]\ndefault = \"bench/bench\"\n\
         [permissions]\nmode = \"auto\"\n",
        server.url(),
    )
}
