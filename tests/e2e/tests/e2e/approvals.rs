//! What the rules leave open is asked of a person at a terminal, and refused where there is none.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Stdio,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::Winsize,
};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::{
    answers::{calls, ends},
    world::{World, end_of, on_postgres, signal},
};

/// A program at a terminal of its own.
struct Seat {
    child: Child,
    master: File,
    said: String,
}

impl Seat {
    fn take(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let size = Winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&slave, size).unwrap();
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        Self { child, master: File::from(master), said: String::new() }
    }

    /// Reads until a text was said.
    async fn hears(&mut self, wanted: &str) {
        let mut master = self.master.try_clone().unwrap();
        let (mut said, until) = (std::mem::take(&mut self.said), wanted.to_owned());
        let listening = tokio::task::spawn_blocking(move || {
            let mut bytes = [0; 4096];
            while !said.contains(&until) {
                match master.read(&mut bytes) {
                    Ok(read) if read > 0 => said += &String::from_utf8_lossy(&bytes[..read]),
                    // The terminal is closed once nobody sits at it.
                    _ => break,
                }
            }
            said
        });
        let said = listening.await.unwrap();
        let Some((_, rest)) = said.split_once(wanted) else { panic!("{wanted:?} in {said}") };
        self.said = rest.to_owned();
    }

    fn types(&mut self, line: &str) {
        self.master.write_all(line.as_bytes()).unwrap();
    }

    /// Waits for the end of the program and returns its code.
    async fn code(mut self) -> Option<i32> {
        let mut master = self.master.try_clone().unwrap();
        // What nobody reads would hold it up.
        let rest = tokio::task::spawn_blocking(move || {
            let mut rest = Vec::new();
            let _ = master.read_to_end(&mut rest);
        });
        let status = self.child.wait().await.unwrap();
        rest.await.unwrap();
        status.code()
    }
}

/// Makes a world in which programs are asked about.
async fn asking() -> World {
    ask_in(World::with("[permissions]\nmode = \"edit\"\n").await)
}

fn ask_in(world: World) -> World {
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    world
}

fn touch(name: &str) -> (&'static str, serde_json::Value) {
    ("exec", json!({ "command": ["touch", name] }))
}

#[tokio::test]
async fn a_person_at_the_terminal_is_asked_and_what_they_approve_is_done() {
    let world = asking().await;
    world.server.reply(&World::chat("one"), calls(&[touch("made"), touch("refused")]));
    world.server.reply(&World::chat("one"), ends("One was made."));

    let mut seat = Seat::take(world.formwork(["run", "work"]));
    seat.hears("touch made").await;
    seat.hears("> ").await;
    seat.types("y\n");
    seat.hears("touch refused").await;
    seat.hears("> ").await;
    seat.types("n use another name\n");

    assert_eq!(seat.code().await, Some(0));
    assert!(world.path("made").exists() && !world.path("refused").exists());
    let decided = world.events("tool.decided").await;
    let told: Vec<_> = decided.iter().map(|it| (&it["principal"], &it["data"])).collect();
    assert_eq!(told[0].0, "user:ada");
    assert_eq!(told[0].1["approval"], "once");
    assert_eq!(told[1].1["reason"], "a person refused it: use another name");
    let asked = world.server.requests();
    assert!(asked[1].text().contains("a person refused it: use another name"));
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
}

#[tokio::test]
async fn a_rule_is_kept_for_the_workspace_and_can_be_taken_back() {
    let world = asking().await;
    world.server.reply(&World::chat("one"), calls(&[touch("one")]));
    world.server.reply(&World::chat("one"), ends("Done."));

    let mut seat = Seat::take(world.formwork(["run", "work"]));
    seat.hears("> ").await;
    seat.types("r\n");
    assert_eq!(seat.code().await, Some(0));
    let listed = world.json(["approvals", "list"]).await;
    assert_eq!(listed["approvals"], json!([{ "cover": "commands", "pattern": "touch one *" }]));

    // Nobody is there, and nobody needs to be.
    std::fs::remove_file(world.path("one")).unwrap();
    world.server.reply(&World::chat("one"), calls(&[touch("one")]));
    world.server.reply(&World::chat("one"), ends("Done again."));
    world.run(["run", "work"]).await;
    assert!(world.path("one").exists());

    let revoked = world.run(["approvals", "revoke", "1"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:#?}");
    assert_eq!(world.json(["approvals", "list"]).await["approvals"], json!([]));
}

#[tokio::test]
async fn where_nobody_is_there_the_refusal_says_how_to_allow_the_call() {
    let world = asking().await;
    world.server.reply(&World::chat("one"), calls(&[touch("made")]));
    world.server.reply(&World::chat("one"), ends("It was not allowed."));

    let ended = world.run(["run", "work", "--no-input"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.path("made").exists());
    let decided = world.events("tool.decided").await;
    assert_eq!(decided[0]["principal"], "system:unattended");
    let told = world.server.requests()[1].text();
    assert!(told.contains("nobody is there to approve it"), "{told}");
    assert!(told.contains(r#"--allow \"touch made *\""#), "{told}");
}

async fn killed_while_it_asks(world: World) {
    let world = ask_in(world);
    world.server.reply(&World::chat("one"), calls(&[touch("made")]));
    world.server.reply(&World::chat("one"), ends("Made."));
    let mut seat = Seat::take(world.formwork(["run", "work", "--mode", "edit"]));
    seat.hears("> ").await;
    signal(&seat.child, rustix::process::Signal::KILL);
    seat.code().await;
    assert!(!world.path("made").exists());
    assert_eq!(world.events("tool.asked").await.len(), 1);
    assert_eq!(world.events("tool.decided").await.len(), 0);

    let mut seat = Seat::take(world.formwork(["runs", "resume"]));
    seat.hears("touch made").await;
    seat.hears("> ").await;
    seat.types("y\n");

    assert_eq!(seat.code().await, Some(0));
    assert!(world.path("made").exists());
    assert_eq!(world.events("tool.asked").await.len(), 2);
    assert_eq!(world.events("tool.requested").await.len(), 2, "one, and the end of the task");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_is_killed_while_it_asks_asks_again_on_sqlite() {
    killed_while_it_asks(World::new().await).await;
}

#[tokio::test]
async fn a_run_that_is_killed_while_it_asks_asks_again_on_postgres() {
    on_postgres(killed_while_it_asks).await;
}

#[tokio::test]
async fn ctrl_c_while_it_asks_pauses_the_run_and_nothing_is_done() {
    let world = asking().await;
    world.server.reply(&World::chat("one"), calls(&[touch("made")]));
    let mut seat = Seat::take(world.formwork(["run", "work"]));
    seat.hears("> ").await;
    signal(&seat.child, rustix::process::Signal::INT);

    assert_eq!(seat.code().await, Some(130));
    assert!(!world.path("made").exists());
    let ended = end_of(world.formwork(["runs", "list"]).spawn().unwrap()).await;
    assert!(ended.stdout.contains("paused"), "{ended:#?}");
}

/// Asks about a call where nobody sits, and answers it from another process.
async fn answered_from_elsewhere(world: World) {
    let config = world.providers(&world.server.url());
    let inbox = "[permissions]\nmode = \"edit\"\nunattended = \"inbox\"\nask_within = \"50s\"\n";
    std::fs::write(world.config_file(), config + inbox).unwrap();
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let touch = |name: &str| ("exec", json!({ "command": ["touch", name] }));
    world.server.reply(&World::chat("one"), calls(&[touch("a")]));
    world.server.reply(&World::chat("one"), calls(&[touch("b")]));
    world.server.reply(&World::chat("one"), ends("Tried."));
    let running = world.formwork(["run", "work"]).spawn().unwrap();
    let waiting = async || loop {
        let listed = world.json(["inbox", "list"]).await;
        if let Some(item) = listed["items"].get(0) {
            return item.clone();
        }
    };

    let first = waiting().await;
    let id = first["item"].as_str().unwrap();
    let wrong = world.run(["inbox", "answer", id, "perhaps"]).await;
    let once = world.run(["inbox", "answer", id, "once"]).await;
    let again = world.run(["inbox", "answer", id, "no"]).await;
    let second = waiting().await;
    let id = second["item"].as_str().unwrap();
    let no = world.run(["inbox", "reject", id, "--reason", "one is enough"]).await;
    let ended = end_of(running).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let question = first["question"].as_str().unwrap();
    assert!(
        question.contains(r#"wants to call exec: {"command":["touch","a"]}, because"#),
        "{question}"
    );
    assert_eq!(first["options"], json!(["once", "session", "always", "no"]));
    assert_eq!((once.code, no.code), (Some(0), Some(0)), "{once:#?} {no:#?}");
    for refused in [&wrong, &again] {
        assert_ne!(refused.code, Some(0), "{refused:#?}");
    }
    assert!(world.path("a").exists() && !world.path("b").exists());
    let told = world.server.requests()[2].text();
    assert!(told.contains("error (denied): one is enough"), "{told}");
    let decided = world.events("tool.decided").await;
    let decided: Vec<_> =
        decided.iter().map(|it| (&it["principal"], &it["data"]["approval"])).collect();
    let ada = json!("user:ada");
    assert_eq!(decided, [(&ada, &json!("once")), (&ada, &json!("denied"))]);
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_call_that_waits_in_the_inbox_is_answered_from_another_process_on_sqlite() {
    answered_from_elsewhere(World::new().await).await;
}

#[tokio::test]
async fn a_call_that_waits_in_the_inbox_is_answered_from_another_process_on_postgres() {
    on_postgres(answered_from_elsewhere).await;
}
