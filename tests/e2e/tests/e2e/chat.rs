//! A chat in a real terminal, driven key by key.

use std::{path::PathBuf, process::Stdio, time::Duration};

use formwork_testkit::http::Gate;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    answers::{calls, halted, halted_words, held, saying, says},
    crash::{is_running, marked, stuck},
    world::World,
};

/// When a screen that should have come is taken never to come.
const DEADLINE: Duration = Duration::from_secs(150);

/// How long it is until a screen is looked at again.
const TICK: Duration = Duration::from_millis(15);

/// A terminal of 90 columns and 30 lines in a server of its own.
pub(crate) struct Terminal {
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Terminal {
    /// Runs the program in a new terminal; nothing where there is none.
    pub(crate) async fn open(world: &World, arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let terminal = Self { socket: folder.path().join("tmux"), _folder: folder };
        let command = world.formwork(arguments.iter().copied());
        let command = command.as_std();
        let mut start = Command::new("tmux");
        start.args(["-f", "/dev/null", "-S"]).arg(&terminal.socket);
        start.args([
            "new-session",
            "-d",
            "-x",
            "90",
            "-y",
            "30",
            "env",
            "-i",
            "TERM=screen",
            "NO_COLOR=1",
        ]);
        for (name, value) in command.get_envs() {
            let (Some(value), name) = (value, name.to_str().unwrap()) else { continue };
            start.arg(format!("{name}={}", value.to_str().unwrap()));
        }
        start.arg(command.get_program()).args(command.get_args());
        start.current_dir(world.path(""));
        let started = start.stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        formwork_testkit::terminal::began(started).then_some(terminal)
    }

    async fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments);
        let output = command.stderr(Stdio::null()).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a text and Enter.
    pub(crate) async fn send(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]).await;
        self.tmux(&["send-keys", "Enter"]).await;
    }

    async fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]).await;
    }

    /// Waits until the screen shows an answer and its turn is over, so that what is typed next is no part of it. What
    /// earlier turns left on the screen says nothing of this one.
    pub(crate) async fn answers(&self, text: &str) -> String {
        self.shows_if(text, |screen| !screen.contains("Ctrl-C ends the turn")).await
    }

    /// Waits until the screen shows a text and the line to write in below all else.
    async fn rests(&self, text: &str) -> String {
        self.shows_if(text, |screen| screen.trim_end().ends_with("\n>")).await
    }

    /// Waits until the screen shows a text, and returns it without what differs from run to run.
    pub(crate) async fn shows(&self, text: &str) -> String {
        self.shows_if(text, |_| true).await
    }

    async fn shows_if(&self, text: &str, fits: impl Fn(&str) -> bool) -> String {
        let mut tick = tokio::time::interval(TICK);
        let began = std::time::Instant::now();
        loop {
            tick.tick().await;
            let screen = self.tmux(&["capture-pane", "-p"]).await;
            if screen.contains(text) && fits(&screen) {
                return steady(&screen);
            }
            assert!(began.elapsed() < DEADLINE, "{text:?} is not shown:\n{screen}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = std::process::Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
    }
}

/// Takes times, ids, and what was used out of a screen: how much of an answer came before it was cut off differs.
fn steady(screen: &str) -> String {
    let mut steady = String::new();
    for line in screen.trim_end().lines() {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| {
                let bare = word.trim_matches(['(', ')', ',']);
                let digits = bare.trim_end_matches('s');
                let is_time = bare.ends_with('s')
                    && !digits.is_empty()
                    && digits.bytes().all(|it| it.is_ascii_digit());
                let is_id = bare.len() == 36 && bare.matches('-').count() == 4;
                match (is_time, is_id) {
                    (true, _) => word.replace(bare, "Ns"),
                    (_, true) => word.replace(bare, "RUN"),
                    _ => word.to_owned(),
                }
            })
            .collect();
        let used = words.iter().enumerate().map(|(at, word)| {
            match (words.get(at + 1).map(String::as_str), word.starts_with('$')) {
                (Some("tokens"), _) => "N",
                (_, true) => "$N",
                _ => word.as_str(),
            }
        });
        let line = used.collect::<Vec<_>>().join(" ");
        // How long a call took.
        let line = match line.rfind(" ms)") {
            Some(end) => {
                let start = line[..end].rfind(' ').unwrap_or(end);
                format!("{} N{}", &line[..start], &line[end..])
            }
            None => line,
        };
        steady.push_str(&line);
        steady.push('\n');
    }
    steady
}

#[tokio::test]
async fn a_chat_streams_interrupts_steers_takes_back_and_is_taken_up_after_a_kill() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    let chat = World::chat("one");
    let answer = "# The cause\n\nIt is **wrong** in `README.md`:\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n";
    world.server.reply(&chat, calls(&[("fs.read", json!({ "path": "README.md" }))]));
    world.server.reply(&chat, says(answer));
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;

    terminal.send("What is wrong?").await;
    let answered = terminal.shows("tokens · $").await;
    insta::assert_snapshot!("answered", answered);

    // The model is in the middle of an answer when the turn is ended.
    let gate = Gate::new();
    let thought = saying("I think about it for a very long time, and on.");
    world.server.reply(&chat, halted(&gate, &thought));
    terminal.send("Think.").await;
    gate.reached().await;
    terminal.shows(halted_words(&thought).trim_end()).await;
    let began = std::time::Instant::now();
    terminal.key("C-c").await;
    terminal.shows("the turn was ended").await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let interrupted = terminal.rests("the turn was ended").await;
    insta::assert_snapshot!("interrupted", interrupted);

    // What is sent while a turn goes on reaches the model at its next step.
    let gate = Gate::new();
    let write = json!({ "path": "notes.md", "content": "one\n" });
    world.server.reply(&chat, held(&gate, &crate::answers::calling(&[("fs.write", write)])));
    world.server.reply(&chat, says("Written, with tabs."));
    terminal.send("Write notes.").await;
    gate.reached().await;
    terminal.send("Mind the tabs.").await;
    terminal.shows("it hears it at its next step").await;
    gate.open();
    terminal.shows("Written, with tabs.").await;
    let changed = terminal.shows("1 file changed").await;
    insta::assert_snapshot!("changed", changed);
    let last = world.server.requests().last().unwrap().text();
    assert!(last.contains("Mind the tabs.") && last.contains("(interrupted here)"), "{last}");
    assert!(last.contains("I think about"), "what was said until then is kept: {last}");
    assert!(last.contains("What is wrong?"), "the conversation goes on: {last}");

    terminal.send("/diff").await;
    terminal.shows("+one").await;
    terminal.send("/undo").await;
    let undone = terminal.rests("back before your last turn").await;
    insta::assert_snapshot!("undone", undone);
    assert!(!world.path("notes.md").exists());
    terminal.send("/cost").await;
    terminal.shows("2 turns").await;

    // The process dies in a turn, and another takes it up.
    let gate = Gate::new();
    world.server.reply(&chat, held(&gate, &saying("never heard")));
    terminal.send("Go on.").await;
    gate.reached().await;
    terminal.tmux(&["kill-server"]).await;
    drop(terminal);
    world.server.reply(&chat, says("I am back."));
    let Some(terminal) = Terminal::open(&world, &["chat", "--resume"]).await else { return };
    terminal.shows("I am back.").await;
    let resumed = terminal.shows("tokens · $").await;
    insta::assert_snapshot!("resumed", resumed);
    terminal.send("/exit").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_turn_that_was_taken_back_stays_so_and_a_chat_goes_on_from_any_turn() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    let chat = World::chat("one");
    world.server.reply(&chat, says("It is the colour blue."));
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "made.md", "content": "x\n" }))]));
    world.server.reply(&chat, says("It is made."));
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;
    // A backslash before Enter begins another line.
    terminal.send("Which colour\\").await;
    terminal.send("is it?").await;
    terminal.answers("It is the colour blue.").await;
    assert!(world.server.requests()[0].text().contains("Which colour\\nis it?"));
    terminal.send("Make it.").await;
    terminal.answers("It is made.").await;
    terminal.send("/undo").await;
    terminal.shows("back before your last turn").await;
    terminal.send("/exit").await;
    drop(terminal);

    world.server.reply(&chat, says("It is the colour red."));
    world.server.reply(&chat, says("It is the colour green."));
    let Some(terminal) = Terminal::open(&world, &["chat", "--resume"]).await else { return };
    let resumed = terminal.shows("It is the colour blue.").await;
    assert!(!resumed.contains("Make it."), "{resumed}");
    terminal.send("And now?").await;
    terminal.answers("It is the colour red.").await;
    let last = world.server.requests().last().unwrap().text();
    assert!(last.contains("Which colour") && !last.contains("Make it."), "{last}");

    terminal.send("/fork").await;
    let listed = terminal.shows("/fork N goes back").await;
    assert!(listed.contains("1  Which colour") && listed.contains("2  And now?"), "{listed}");
    terminal.send("/fork 1").await;
    terminal.shows("goes back to the other one").await;
    terminal.send("Then?").await;
    terminal.answers("It is the colour green.").await;
    let last = world.server.requests().last().unwrap().text();
    assert!(last.contains("Which colour") && !last.contains("And now?"), "{last}");

    terminal.send("/find COLOUR green").await;
    terminal.shows("model  It is the colour green.").await;
    terminal.send("/agents nobody").await;
    terminal.shows("there is no agent nobody").await;
    terminal.send("/agents").await;
    terminal.shows("Talks with a person at work").await;
    terminal.send("/exit").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_rewind_takes_back_every_turn_behind_one_with_its_files() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    let chat = World::chat("one");
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;
    for file in ["a.md", "b.md", "c.md"] {
        world
            .server
            .reply(&chat, calls(&[("fs.write", json!({ "path": file, "content": "x\n" }))]));
        world.server.reply(&chat, says(&format!("Wrote {file}.")));
        terminal.send(&format!("Write {file}.")).await;
        terminal.answers(&format!("Wrote {file}.")).await;
    }

    terminal.send("/rewind 1").await;
    terminal.shows("the conversation is back at turn 1").await;

    assert!(world.path("a.md").exists());
    assert!(!world.path("b.md").exists() && !world.path("c.md").exists());
    terminal.send("/exit").await;
    let found = world.json(["runs", "search", "wrote B"]).await;
    assert_eq!(found["found"][0]["line"], "Wrote b.md.", "{found:#}");
    let said = world.run(["runs", "transcript"]).await;
    assert!(
        said.stdout.contains("Write c.md.") && said.stdout.contains("calls fs.write"),
        "{said:#?}"
    );
    world.assert_sound().await;
}

#[tokio::test]
async fn a_call_that_the_rules_leave_open_is_asked_about_in_place() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[("exec", json!({ "command": ["echo", "hello"] }))]));
    world.server.reply(&chat, says("It says hello."));
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;

    terminal.send("Run it.").await;
    terminal.shows("y once").await;
    let asked = terminal.shows("waits for your answer").await;
    terminal.send("y").await;
    terminal.shows("It says hello.").await;

    assert!(asked.contains("partner wants to call exec"), "{asked}");
    insta::assert_snapshot!("asked", asked);
    let results = world.server.requests()[1].text();
    assert!(results.contains("hello\\n") || results.contains("hello"), "{results}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_turn_that_is_ended_while_a_program_runs_ends_it_and_the_next_turn_works() {
    let world = World::new().await;
    stuck(&world);
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;

    terminal.send("Run stuck.sh.").await;
    marked(&world).await;
    terminal.key("C-c").await;
    let ended = terminal.rests("the turn was ended").await;

    insta::assert_snapshot!("ended_a_program", ended);
    assert!(!is_running(&world), "the program goes on without its turn");
    world.server.reply(&World::chat("one"), says("It did not end by itself."));
    terminal.send("What came of it?").await;
    terminal.answers("It did not end by itself.").await;
    let last: serde_json::Value =
        serde_json::from_str(&world.server.requests().last().unwrap().text()).unwrap();
    let roles: Vec<_> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|said| said["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles[..4], ["system", "user", "assistant", "tool"], "{last:#}");
    assert_eq!(roles.last(), Some(&"user"), "{last:#}");
    terminal.send("/exit").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_chat_goes_on_in_its_own_conversation_whomever_its_agent_had_asked() {
    let world = World::new().await;
    world.agent("partner", "one");
    world.agent("helper", "two");
    let made = json!({ "name": "part", "agent": "helper", "prompt": "Look into it." });
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[("create_task", made), ("await_tasks", json!({}))]));
    world.server.reply(&chat, says("It is the colour blue."));
    world.server.reply(&World::chat("two"), says("The helper says blue."));
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;
    terminal.send("Which colour is it?").await;
    terminal.answers("It is the colour blue.").await;
    world.server.reply(&chat, says("Because of the sky."));
    terminal.send("Why?").await;
    terminal.answers("Because of the sky.").await;
    terminal.send("/exit").await;

    let last = world.server.requests().last().unwrap().text();
    assert!(last.contains("Which colour is it?") && last.contains("the colour blue"), "{last}");
    world.assert_sound().await;
}

/// Holds the log as another program would, until its input ends.
const HOLDS: &str = "import sqlite3, sys\n\
    log = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
    log.execute('BEGIN IMMEDIATE')\n\
    print('held', flush=True)\n\
    sys.stdin.read()\n\
    log.execute('ROLLBACK')\n";

#[tokio::test]
async fn a_turn_is_ended_while_another_process_holds_the_log() {
    let world = World::new().await;
    let gate = Gate::new();
    let words = "I think about it for a while and say this, slowly, word by word.";
    world.server.reply(&World::chat("one"), halted(&gate, &saying(words)));
    let Some(terminal) = Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;
    terminal.send("Think about it.").await;
    gate.reached().await;
    let mut holder = Command::new("python3")
        .args(["-c", HOLDS])
        .arg(world.state().join("formwork.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut held).await.unwrap();
    assert_eq!(held, "held\n");

    terminal.key("C-c").await;
    terminal.shows("ends the turn").await;
    let ended = terminal.rests("the turn was ended").await;

    // Nobody had to wait for the log to come back.
    assert!(ended.contains("/resume takes it up again"), "{ended}");
    assert!(holder.try_wait().unwrap().is_none());
    drop(holder.stdin.take());
    assert!(holder.wait().await.unwrap().success());
    terminal.send("/exit").await;
}
