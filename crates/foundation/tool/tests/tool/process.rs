//! Programs, and the part of git that only reads.

use std::{fs, path::Path, time::Duration};

use formwork_protocols::{Cancel, message::Arguments};
use formwork_testkit::repo::Repo;
use serde_json::{Value, json};

use crate::world::{Setup, World};

/// A session in a repository with one commit.
fn repository(prepare: impl FnOnce(&Repo)) -> World {
    let repo = Repo::new().unwrap();
    repo.write("a.txt", "one\n").unwrap();
    repo.commit("a: begin").unwrap();
    prepare(&repo);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().canonicalize().unwrap().join("workspace");
    copy(repo.path(), &folder);
    World::at(Setup::default(), home, folder)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Runs a script from a file, since the text of one is denied: no pattern can judge its parts.
fn script(world: &World, text: &str) -> Value {
    world.put("step.sh", text);
    json!({ "command": ["sh", "step.sh"] })
}

#[tokio::test]
async fn a_program_is_told_by_its_exit_code_first() {
    let world = World::new();

    let good = world.done("exec", script(&world, "echo out; echo err >&2")).await;
    let bad = world.done("exec", script(&world, "echo why; exit 3")).await;
    let mute = world.done("exec", json!({ "command": ["true"] })).await;

    assert_eq!(good.lines().next(), Some("exit code 0"));
    assert!(good.contains("out\n") && good.contains("err\n"), "{good}");
    assert_eq!(bad, "exit code 3\nwhy\n");
    assert_eq!(mute, "exit code 0\n[no output]");
}

#[tokio::test]
async fn of_an_output_that_is_too_long_to_be_kept_the_true_length_is_told() {
    let world = World::new();
    let command = json!(["head", "-c", "17000000", "/dev/zero"]);

    let told = world.done("exec", json!({ "command": command })).await;

    let kept =
        "\n[it wrote 17000000 bytes, of which the first and the last are kept, 65536 in all]\n";
    assert!(told.contains(kept), "{}", told.escape_debug());
}

#[tokio::test]
async fn arguments_reach_a_program_as_they_are() {
    let world = World::new();
    let command = json!(["printf", "%s\\n", "a b", "*", "$HOME", "; rm -rf /", "'"]);

    let told = world.done("exec", json!({ "command": command })).await;

    assert_eq!(told, "exit code 0\na b\n*\n$HOME\n; rm -rf /\n'\n");
}

#[tokio::test]
async fn a_program_starts_in_a_folder_of_the_workspace_only() {
    let world = World::new();
    fs::create_dir(world.path("sub")).unwrap();

    let told = world.done("exec", json!({ "command": ["pwd"], "cwd": "sub" })).await;

    assert_eq!(told, format!("exit code 0\n{}\n", world.path("sub").display()));
    for cwd in ["..", "/", "sub/../.."] {
        let told = world.fails("exec", json!({ "command": ["pwd"], "cwd": cwd })).await;
        assert!(told.starts_with("error (denied): "), "{cwd}: {told}");
    }
    let told = world.fails("exec", json!({ "command": ["pwd"], "cwd": "missing" })).await;
    assert_eq!(told, r#"error (failed): "missing" does not exist"#);
}

#[tokio::test]
async fn behaviour_25_a_program_that_takes_too_long_is_ended_with_all_that_it_started() {
    let world = World::new();
    let mut arguments = script(&world, "echo begun; sh -c 'echo $$ > child; sleep 300' & wait");
    // A machine may be so busy that nothing has begun before the first of these is over.
    let mut tried = ["400ms", "4s", "25s"].into_iter();
    let (timeout, told, child) = loop {
        let timeout = tried.next().expect("it begins within half a minute");
        arguments["timeout"] = timeout.into();
        let told = world.fails("exec", arguments.clone()).await;
        let child = fs::read_to_string(world.path("child")).unwrap_or_default();
        if !child.is_empty() {
            break (timeout, told, child);
        }
    };

    assert_eq!(
        told,
        format!(
            "error (timed_out): timed out after {timeout}; everything it started was ended\nbegun\n"
        )
    );
    assert!(!Path::new("/proc").join(child.trim()).join("cwd").exists(), "{child} still runs");
}

#[tokio::test]
async fn no_call_runs_longer_than_the_session_allows() {
    let exec_timeout = Duration::from_millis(200);
    let world = World::with(Setup { exec_timeout, ..Setup::default() });

    let told = world.fails("exec", json!({ "command": ["sleep", "300"], "timeout": "1h" })).await;

    assert!(told.starts_with("error (timed_out): timed out after 200ms;"), "{told}");
}

#[tokio::test]
async fn a_time_that_is_none_is_at_fault() {
    let world = World::new();

    let told = world.fails("exec", json!({ "command": ["true"], "timeout": "soon" })).await;

    assert!(told.starts_with(r#"error (invalid_arguments): "soon" is not a span"#), "{told}");
}

#[tokio::test]
async fn a_cancelled_program_is_ended() {
    let world = World::new();
    let cancel = Cancel::new();
    cancel.cancel();

    let arguments = Arguments::Json(json!({ "command": ["sleep", "300"] }));
    let told = world.call_with("exec", arguments, &cancel).await;

    assert!(told.text.starts_with("error (cancelled): cancelled"), "{}", told.text);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let world = World::new();
    world.put("no-program", "x");

    let missing = world.fails("exec", json!({ "command": ["no-such-program"] })).await;
    let closed = world.fails("exec", json!({ "command": ["./no-program"] })).await;
    let none = world.fails("exec", json!({ "command": [] })).await;

    assert!(
        missing.starts_with("error (failed): program no-such-program was not found in "),
        "{missing}"
    );
    assert!(
        closed.starts_with("error (failed): program ./no-program could not be started: "),
        "{closed}"
    );
    assert!(none.starts_with("error (invalid_arguments): "), "{none}");
}

#[tokio::test]
async fn a_program_that_reads_its_input_finds_its_end() {
    let world = World::new();

    assert_eq!(world.done("exec", json!({ "command": ["cat"] })).await, "exit code 0\n[no output]");
}

#[tokio::test]
async fn a_program_sees_no_variable_beyond_the_few_that_pass() {
    let world = World::new();

    let told = world.done("exec", json!({ "command": ["printenv"] })).await;

    let names: Vec<_> = told.lines().skip(1).filter_map(|it| it.split('=').next()).collect();
    assert_eq!(names, ["FORMWORK_PROCESS", "PATH"]);
}

#[tokio::test]
async fn output_that_is_not_utf_8_is_still_shown() {
    let world = World::new();

    let told = world.done("exec", script(&world, r"printf 'a\377b'")).await;

    assert_eq!(told, "exit code 0\na\u{fffd}b");
}

#[tokio::test]
async fn git_shows_what_changed() {
    let world = repository(|_| {});
    world.put("a.txt", "two\n");
    let git = async |arguments: Value| world.done("git", json!({ "arguments": arguments })).await;

    assert_eq!(git(json!(["status", "--short"])).await, " M a.txt\n");
    assert!(git(json!(["diff"])).await.ends_with("-one\n+two\n"));
    assert_eq!(git(json!(["log", "--format=%s"])).await, "a: begin\n");
    assert_eq!(git(json!(["grep", "nothing"])).await, "[no output]\n[exit code 1]");
}

#[tokio::test]
async fn git_that_fails_says_why() {
    let world = repository(|_| {});

    let told = world.fails("git", json!({ "arguments": ["show", "no-such-commit"] })).await;

    assert!(told.starts_with("error (failed): exit code 128\n"), "{told}");
    assert!(told.contains("no-such-commit"), "{told}");
}

#[tokio::test]
async fn behaviour_26_git_refuses_whatever_writes_or_runs() {
    let world = repository(|_| {});
    let hostile = [
        json!(["commit", "-m", "x"]),
        json!(["push"]),
        json!(["-c", "core.pager=touch pwned", "log"]),
        json!(["--exec-path=/tmp", "log"]),
        json!(["log", "--output=pwned"]),
        json!(["diff", "--output=pwned"]),
        json!(["diff", "--ext-diff"]),
        json!(["diff", "--no-index", "/etc/passwd", "a.txt"]),
        json!(["grep", "--open-files-in-pager=touch pwned", "one"]),
        json!(["grep", "-Otouch", "one"]),
        json!(["branch", "-D", "main"]),
        json!(["show", "--textconv"]),
        json!(["config", "--list"]),
        json!(["blame", "--contents=/etc/passwd", "a.txt"]),
    ];

    for arguments in hostile {
        let told = world.call("git", json!({ "arguments": arguments })).await.text;
        assert!(told.starts_with("error (denied): git "), "{arguments}: {told}");
    }
    assert!(!world.path("pwned").exists());
}

#[tokio::test]
async fn git_lists_branches_and_makes_none() {
    let world = repository(|_| {});

    let told = world.done("git", json!({ "arguments": ["branch", "new"] })).await;

    assert_eq!(told, "[no output]");
    assert!(!world.path(".git/refs/heads/new").exists());
}

#[tokio::test]
async fn no_program_of_a_hostile_repository_runs() {
    let world = repository(|repo| {
        repo.write(".gitattributes", "* diff=evil filter=evil\n").unwrap();
        for (key, value) in [
            ("core.fsmonitor", "touch pwned"),
            ("core.pager", "touch pwned"),
            ("diff.external", "touch pwned"),
            ("diff.evil.command", "touch pwned"),
            ("diff.evil.textconv", "touch pwned"),
            ("filter.evil.clean", "touch pwned"),
            ("filter.evil.smudge", "touch pwned"),
            ("alias.status", "!touch pwned"),
        ] {
            repo.git(&["config", key, value]).unwrap();
        }
    });
    world.put("a.txt", "two\n");

    for arguments in [["status"].as_slice(), &["diff"], &["log", "-p"], &["blame", "a.txt"]] {
        world.done("git", json!({ "arguments": arguments })).await;
    }

    assert!(!world.path("pwned").exists());
}

#[tokio::test]
async fn where_there_is_no_repository_git_says_so() {
    let world = World::new();

    let told = world.fails("git", json!({ "arguments": ["status"] })).await;

    assert!(told.contains("is no readable git worktree: it has no .git at its top"), "{told}");
}

#[tokio::test]
async fn a_program_that_needs_a_terminal_is_given_one_and_told_as_it_stands_there() {
    let world = World::new();
    let text = "test -t 0 && test -t 1 || exit 1; stty size; printf '\\033[31m10%%\\r\\033[K100%%\\033[0m\\n'";
    let with = |pty: Value| {
        let mut arguments = script(&world, text);
        arguments.as_object_mut().unwrap().extend(pty.as_object().unwrap().clone());
        arguments
    };

    let plain = world.done("exec", with(json!({ "pty": true }))).await;
    let none = world.done("exec", with(json!({ "pty": false }))).await;

    assert_eq!(plain, "exit code 0\n24 80\n100%\n");
    assert_eq!(none, "exit code 1\n[no output]");
}
