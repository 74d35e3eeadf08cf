//! The built program, run as a stranger would: an empty home, an empty folder, no terminal.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{newcomer, process};

/// How long one run may take; the longest builds and tests a small repository.
const LIMIT: Duration = Duration::from_secs(180);

/// One run: what is typed, how it must end, and a text that it must print on either stream.
struct Run {
    arguments: &'static [&'static str],
    code: i32,
    says: &'static str,
}

const fn run_of(arguments: &'static [&'static str], code: i32, says: &'static str) -> Run {
    Run { arguments, code, says }
}

/// The codes are the program's contract: 0 completed, 2 refused, 3 set-up, 64 usage.
const RUNS: &[Run] = &[
    run_of(&["--version"], 0, env!("CARGO_PKG_VERSION")),
    run_of(&["--help"], 0, "Usage"),
    run_of(&["run", "--help"], 0, "Usage"),
    run_of(&["--no-such-flag"], 64, "--no-such-flag"),
    run_of(&["completions", "bash"], 0, "formwork"),
    run_of(&["validate", "sound.toml"], 0, ""),
    run_of(&["validate", "broken.toml"], 3, "broken.toml"),
    run_of(&["validate", "absent.toml"], 3, "absent.toml"),
    run_of(&["demo"], 0, "completed"),
    run_of(&["demo", "--liar"], 2, "refused"),
];

/// The files that the runs name.
const FILES: &[(&str, &str)] = &[("sound.toml", SOUND), ("broken.toml", BROKEN)];

const SOUND: &str = r#"format_version = 1
name = "greet"
description = "Says hello."

[[tasks]]
name = "hello"
command = ["echo", "hello"]
"#;

const BROKEN: &str = r#"format_version = 1
name = "greet"
description = "Says hello."

[[tasks]]
name = "hello"
comand = ["echo", "hello"]
"#;

/// Runs `program` by the table and fails with every run that does not end as it must.
pub(crate) fn run(program: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for run in RUNS {
        let began = Instant::now();
        match run.fault(program)? {
            None => println!("{} in {:.2} s", run.shown(), began.elapsed().as_secs_f32()),
            Some(fault) => {
                println!("{} FAILED", run.shown());
                faults.push(fault);
            }
        }
    }
    if !faults.is_empty() {
        bail!(
            "{} of {} runs do not end as they must\n{}",
            faults.len(),
            RUNS.len(),
            faults.join("\n")
        );
    }
    Ok(())
}

impl Run {
    fn shown(&self) -> String {
        format!("formwork {}", self.arguments.join(" "))
    }

    fn fault(&self, program: &Path) -> Result<Option<String>> {
        let home = tempfile::tempdir().context("cannot make an empty home")?;
        let work = tempfile::tempdir().context("cannot make an empty folder")?;
        for (name, text) in FILES {
            fs::write(work.path().join(name), text)?;
        }
        let mut command = Command::new(program);
        command.args(self.arguments).current_dir(work.path());
        newcomer::empty_environment(&mut command, home.path());

        let ended = process::capture(&mut command, LIMIT)?;

        let said = ended.stdout + &ended.stderr;
        let as_it_must = ended.status.code() == Some(self.code) && said.contains(self.says);
        Ok((!as_it_must).then(|| {
            format!(
                "`{}` ended with {}, where {} and {:?} were wanted:\n{said}",
                self.shown(),
                ended.status,
                self.code,
                self.says
            )
        }))
    }
}
