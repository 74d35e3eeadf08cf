//! Fuzzing of what comes from a server or a stranger's repository: every target for a while, and how often it ran.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// The crates that have targets, from the root of the workspace.
const HOMES: [&str; 2] = ["crates/foundation/codebase", "crates/foundation/transport"];

/// How long a target may take beyond its time: to read its corpus, and to end.
const GRACE: Duration = Duration::from_secs(120);

/// Captured and published bytes to begin with, for the targets that read such bytes as they are.
const SEEDS: [(&str, &str); 2] =
    [("anthropic", "tests/wire/anthropic"), ("sse", "tests/wire/llama.cpp")];

/// Runs one target, or every one, for so many seconds each, and ends with one line.
///
/// It needs a nightly compiler and cargo-fuzz, and is no step of the gate.
pub(crate) fn run(target: Option<&str>, seconds: u64) -> Result<()> {
    let known = targets()?;
    let chosen: Vec<&(String, &str)> = match target {
        None => known.iter().collect(),
        Some(name) => known.iter().filter(|(known, _)| known == name).collect(),
    };
    if chosen.is_empty() {
        let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        bail!(
            "there is no fuzz target {:?}; there is {}",
            target.unwrap_or_default(),
            known.join(", ")
        );
    }
    if process::answer(fuzz(&crate::root()).arg("--version")).is_none() {
        bail!(
            "fuzzing needs a nightly compiler and cargo-fuzz: \
             `rustup toolchain install nightly` and `cargo install cargo-fuzz`"
        );
    }
    for (name, home) in &chosen {
        let home = crate::root().join(home);
        process::run(fuzz(&home).args(["build", "--sanitizer", "none", name]))?;
    }
    let mut told = Vec::new();
    for (name, home) in chosen {
        let runs = once(home, name, seconds)?;
        println!("{name}: {runs} runs in {seconds} s without a fault");
        told.push(format!("{name} {runs}"));
    }
    println!("xtask fuzz: {} targets passed, 0 failed: {}", told.len(), told.join(", "));
    Ok(())
}

/// Runs a target and returns how often it ran.
fn once(crate_of: &str, name: &str, seconds: u64) -> Result<u64> {
    let home = crate::root().join(crate_of);
    let corpus = format!("fuzz/corpus/{name}");
    fs::create_dir_all(home.join(&corpus)).with_context(|| format!("cannot make {corpus}"))?;
    let mut command = fuzz(&home);
    command.args(["run", "--sanitizer", "none", name, &corpus]);
    command.args(SEEDS.iter().filter(|(of, _)| *of == name).map(|(_, seeds)| seeds));
    command.arg("--").arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    println!("$ {}", process::shown(&command));
    let ended = process::capture(&mut command, Duration::from_secs(seconds) + GRACE)?;
    ensure!(
        ended.status.success(),
        "the fuzz target {name} found a fault; its input is kept in {crate_of}/fuzz/artifacts/{name}\n{}",
        ended
            .stderr
            .lines()
            .rev()
            .take(40)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("\n")
    );
    runs_in(&ended.stderr)
        .with_context(|| format!("the fuzz target {name} does not say how often it ran"))
}

/// Reads how often a target ran from its last words.
fn runs_in(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.contains("number_of_executed_units"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

fn fuzz(home: &Path) -> Command {
    let mut command = Command::new("cargo");
    // The workspace pins another compiler, which its variable would hand on.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").args(["+nightly", "fuzz"]);
    command.current_dir(home);
    command
}

/// Returns each target with the crate that it is of.
fn targets() -> Result<BTreeSet<(String, &'static str)>> {
    let mut found = BTreeSet::new();
    for home in HOMES {
        let folder: PathBuf = crate::root().join(home).join("fuzz/fuzz_targets");
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            is_rust.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
        });
        found.extend(names.map(|name| (name, home)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{runs_in, targets};

    #[test]
    fn how_often_a_target_ran_is_read_from_its_last_words() {
        let said = "#2\tINITED cov: 1\nDone 77667 runs in 56 second(s)\nstat::number_of_executed_units: 77667\n\
                    stat::average_exec_per_sec:     1386\n";

        assert_eq!(runs_in(said), Some(77_667));
        assert_eq!(runs_in("stat::number_of_executed_units: many"), None);
    }

    #[test]
    fn every_target_is_found() {
        let found = targets().unwrap();

        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["anthropic", "arguments", "assembly", "sse", "symbols"]);
    }
}
