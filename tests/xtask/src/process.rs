//! Running programs, and saying which one failed.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Returns cargo, run in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments);
    in_workspace(&mut cargo);
    cargo
}

/// Makes `command` run in the workspace, with incremental builds off where nobody builds twice.
pub(crate) fn in_workspace(command: &mut Command) {
    command.current_dir(crate::root());
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
}

/// Prints `command`, runs it with this program's own streams, and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    run_quietly(command)
}

/// Runs `command` with this program's own streams and fails unless it succeeds.
pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// What a program did within its time.
#[derive(Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `command` without input, keeps what it prints, and kills it after `limit`.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    // Both pipes end with the program, unless it leaves a child behind: that counts as too long.
    let (Ok(stdout), Ok(stderr)) = (stdout.recv_timeout(limit), stderr.recv_timeout(limit)) else {
        child.kill()?;
        child.wait()?;
        bail!("`{}` did not end within {} s", shown(command), limit.as_secs());
    };
    Ok(Ended { status: child.wait()?, stdout, stderr })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before a failure is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // Nobody listens any more once the program has run out of time.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Runs `command` and returns what it printed, or `None` when it cannot be run or fails.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The variables that are part of what a command does; others are the caller's own, passed on.
const TOLD: [&str; 2] = ["CARGO_INCREMENTAL", "RUSTDOCFLAGS"];

/// Writes `command` as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?;
        TOLD.iter().any(|told| name == *told).then(|| format!("{}={}", quoted(name), quoted(value)))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty()
        || word.contains(|c: char| c.is_whitespace() || "'\"$`\\*?|&;<>()".contains(c))
    {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{capture, shown};

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("cargo");
        command.args(["test", "it's", ""]).env("RUSTDOCFLAGS", "-D warnings").env("SECRET", "x");

        assert_eq!(shown(&command), r"RUSTDOCFLAGS='-D warnings' cargo test 'it'\''s' ''");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 600"]);

        let error = capture(&mut command, Duration::from_millis(20)).unwrap_err();

        assert_eq!(error.to_string(), "`sh -c 'exec sleep 600'` did not end within 0 s");
    }
}
