//! The steps of `cargo xtask test`: what a change has to pass, in the order of what fails fastest.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, PackageId};
use clap::ValueEnum;

use crate::{layers, package, process, smoke, tools};

/// How long an example may take. Each shows one thing and ends by itself.
const EXAMPLE_LIMIT: Duration = Duration::from_secs(120);

/// The simulated steps of the gate: some twenty seconds of one core, without optimisation.
const SIMULATED: u64 = 1_000_000;

/// The events at which the gate kills a run, on each store: some twenty seconds.
const BOUNDARIES: u64 = 20;

/// What all steps take of a disk, from nothing: 9.1 GB as measured, and some room for one more crate.
const ROOM: u64 = 10 << 30;

/// Below this a disk counts as full: a linker that maps its output then ends by a signal, and says nothing of disks.
const FULL: u64 = 512 << 20;

/// One step of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Every file is formatted
    Fmt,
    /// No dependency points up or sideways
    Layers,
    /// No banned crate, licence or source
    Deny,
    /// No warning of the compiler or of clippy
    Clippy,
    /// No warning of rustdoc
    Doc,
    /// All tests
    Tests,
    /// All examples in documentation
    Doctests,
    /// A million steps of whole runs in a simulated world
    Simulate,
    /// A run killed at twenty of its events, before and after each commit, on each store
    Crash,
    /// Every attempt to get out of a workspace, by every way in
    Escape,
    /// All examples in files
    Examples,
    /// The built program, run as a stranger would
    Smoke,
    /// What each crate needs to be published alone
    Package,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Fmt => process::run(&mut process::cargo(&["fmt", "--all", "--check"])),
            Self::Layers => layers::check(),
            Self::Deny => deny(),
            Self::Clippy => process::run(&mut process::cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])),
            Self::Doc => {
                let mut doc = process::cargo(&["doc", "--workspace", "--no-deps"]);
                process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
            }
            Self::Tests => tests(),
            Self::Doctests => process::run(&mut process::cargo(&["test", "--workspace", "--doc"])),
            Self::Simulate => simulate(SIMULATED, 0),
            Self::Crash => {
                crash(None, Crash { events: 200, boundaries: Some(BOUNDARIES), shared: None })
            }
            Self::Escape => escape(None, false),
            Self::Examples => examples(),
            Self::Smoke => smoke::run(&Built::all()?.program("formwork")?),
            Self::Package => package::run(),
        }
    }
}

/// Runs `steps`, or all, stops at the first that fails, and ends with one line either way.
pub(crate) fn run(steps: &[Step]) -> Result<()> {
    let began = Instant::now();
    let steps = if steps.is_empty() { Step::value_variants() } else { steps };
    let skipped = match tools::prepare_services() {
        Ok(skipped) => skipped,
        Err(error) => {
            println!("\nfailed: {error:#}");
            bail!("{}", summary(0, Some("set-up"), &[], began.elapsed()));
        }
    };
    if let Some(short) = short_of(ROOM) {
        println!("note: {short}; from nothing, all steps take {} GB", ROOM >> 30);
    }
    for (passed, step) in steps.iter().enumerate() {
        let name = step.name();
        println!("\n== {name} ==");
        let step_began = Instant::now();
        if let Err(error) = step.run() {
            println!("\nfailed: {error:#}\nagain: cargo xtask test {name}");
            if let Some(short) = short_of(FULL) {
                println!(
                    "hint: {short}: make room, or set CARGO_TARGET_DIR to a folder on a larger disk"
                );
            }
            bail!("{}", summary(passed, Some(&name), &skipped, began.elapsed()));
        }
        println!("== {name} passed in {:.1} s ==", step_began.elapsed().as_secs_f32());
    }
    println!("\n{}", summary(steps.len(), None, &skipped, began.elapsed()));
    Ok(())
}

/// Says how much is free where cargo builds, where that is less than `needed` bytes.
fn short_of(needed: u64) -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let disk = rustix::fs::statvfs(&program).ok()?;
    told_short(disk.f_bavail.saturating_mul(disk.f_frsize), needed)
}

fn told_short(free: u64, needed: u64) -> Option<String> {
    (free < needed).then(|| format!("{} MB are free on the disk where cargo builds", free >> 20))
}

/// Writes the last line: what passed, what failed, and whose tests were skipped for want of it.
fn summary(passed: usize, failed: Option<&str>, skipped: &[&str], took: Duration) -> String {
    let failures =
        failed.map_or_else(|| "0 failed".to_owned(), |name| format!("1 failed ({name})"));
    let names =
        if skipped.is_empty() { String::new() } else { format!(" ({})", skipped.join(", ")) };
    format!(
        "xtask test: {passed} steps passed, {failures}, {} skipped{names} in {} s",
        skipped.len(),
        took.as_secs()
    )
}

fn deny() -> Result<()> {
    let mut deny = tools::DENY.command()?;
    // A wrapper that could depend on a crate, and does not, is no fault.
    deny.args(["check", "-A", "unused-wrapper", "bans", "licenses", "sources"]);
    process::run(&mut deny)?;
    layers::prove()
}

fn tests() -> Result<()> {
    // Tests of the whole run the program that lies beside them; cargo builds it only for tests of its own.
    process::run(&mut process::cargo(&["build", "--workspace", "--bins"]))?;
    let mut nextest = tools::NEXTEST.command()?;
    nextest.args(["nextest", "run", "--workspace"]);
    if std::env::var_os("CI").is_some() {
        nextest.args(["--profile", "ci"]);
    }
    process::run(&mut nextest)?;
    // The languages that the program has only where they are asked for.
    let mut languages = tools::NEXTEST.command()?;
    languages.args(["nextest", "run", "--package", "formwork-codebase", "--all-features"]);
    process::run(&mut languages)
}

/// Simulates whole runs from a seed, which is told with whatever breaks.
pub(crate) fn simulate(steps: u64, seed: u64) -> Result<()> {
    let mut cargo =
        process::cargo(&["run", "--package", "formwork-scheduler", "--example", "simulate", "--"]);
    process::run(cargo.args([steps.to_string(), seed.to_string()]))
}

/// The engine that a log is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

/// What is done to processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crash {
    pub(crate) events: u64,
    /// At how many of the events a process is killed; at all where it is none.
    pub(crate) boundaries: Option<u64>,
    /// How many processes share how many runs, in place of one that is killed at each event.
    pub(crate) shared: Option<(u64, u64)>,
}

/// Kills processes in the middle of runs, takes the runs up again, and compares.
pub(crate) fn crash(store: Option<StoreKind>, crash: Crash) -> Result<()> {
    let stores = store.map_or_else(|| StoreKind::value_variants().to_vec(), |store| vec![store]);
    for store in stores {
        let mut cargo =
            process::cargo(&["run", "--package", "formwork-e2e", "--bin", "formwork-crash", "--"]);
        let name = store.to_possible_value().context("every store has a name")?;
        cargo.args(["--store", name.get_name()]);
        match crash.shared {
            Some((processes, runs)) => {
                cargo.args(["--processes", &processes.to_string(), "--runs", &runs.to_string()])
            }
            None => cargo.args(["--events", &crash.events.to_string()]),
        };
        if let Some(boundaries) = crash.boundaries {
            cargo.args(["--boundaries", &boundaries.to_string()]);
        }
        process::run(&mut cargo)?;
    }
    Ok(())
}

/// Tries to get out of a workspace, by every way in.
pub(crate) fn escape(filter: Option<&str>, json: bool) -> Result<()> {
    // The suite runs the program that lies beside it, and has it run a hostile one.
    process::run_quietly(&mut process::cargo(&["build", "--workspace", "--bins"]))?;
    let run = ["run", "--quiet", "--package", "formwork-e2e", "--bin", "formwork-escape", "--"];
    let mut cargo = process::cargo(&run);
    cargo.args(filter).args(json.then_some("--json"));
    let required = std::env::var("FORMWORK_REQUIRE").unwrap_or_default();
    cargo.args(required.split(',').any(|one| one.trim() == "sandbox").then_some("--strict"));
    if json {
        process::run_quietly(&mut cargo) // The document stands alone on standard output.
    } else {
        process::run(&mut cargo)
    }
}

fn examples() -> Result<()> {
    let built = Built::all()?;
    ensure!(!built.examples.is_empty(), "the workspace has no example");
    for example in &built.examples {
        let began = Instant::now();
        let mut command = std::process::Command::new(&example.executable);
        process::in_workspace(&mut command);
        let ended = process::capture(&mut command, EXAMPLE_LIMIT)?;
        ensure!(
            ended.status.success(),
            "example {} of {} ended with {}\n{}{}",
            example.name,
            example.package,
            ended.status,
            ended.stdout,
            ended.stderr
        );
        let took = began.elapsed().as_secs_f32();
        println!("example {} of {} ran in {took:.2} s", example.name, example.package);
    }
    Ok(())
}

/// The programs and examples of the workspace, built by the features that tests are built with.
struct Built {
    programs: BTreeMap<String, PathBuf>,
    examples: Vec<Example>,
}

struct Example {
    name: String,
    package: String,
    executable: PathBuf,
}

impl Built {
    fn all() -> Result<Self> {
        let mut cargo = process::cargo(&[
            "build",
            "--workspace",
            "--bins",
            "--examples",
            "--message-format=json-render-diagnostics",
        ]);
        println!("$ {}", process::shown(&cargo));
        let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        let stdout = child.stdout.take().context("cargo's output is a pipe")?;
        let mut built = Self { programs: BTreeMap::new(), examples: Vec::new() };
        for message in Message::parse_stream(BufReader::new(stdout)) {
            if let Message::CompilerArtifact(artifact) = message.context("cannot read cargo")?
                && let Some(executable) = artifact.executable
            {
                let (name, executable) = (artifact.target.name, executable.into_std_path_buf());
                if artifact.target.kind.contains(&cargo_metadata::TargetKind::Example) {
                    let package = package_name(&artifact.package_id);
                    built.examples.push(Example { name, package, executable });
                } else {
                    built.programs.insert(name, executable);
                }
            }
        }
        if !child.wait()?.success() {
            bail!("`{}` failed", process::shown(&cargo));
        }
        built.examples.sort_by(|a, b| (&a.package, &a.name).cmp(&(&b.package, &b.name)));
        built.refuse_namesakes()?;
        Ok(built)
    }

    /// All examples share a folder, so that of two with one name only one would be left to run.
    fn refuse_namesakes(&self) -> Result<()> {
        let mut seen = BTreeMap::new();
        for example in &self.examples {
            if let Some(other) = seen.insert(&example.executable, &example.package) {
                bail!("{other} and {} both have an example {}", example.package, example.name);
            }
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        self.programs.get(name).cloned().with_context(|| format!("no package builds {name}"))
    }
}

/// Reads the name in an id such as `path+file:///…/trace#formwork-trace@0.1.0` or `…/xtask#0.1.0`.
fn package_name(id: &PackageId) -> String {
    let (place, version) = id.repr.rsplit_once('#').unwrap_or((&id.repr, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(place).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cargo_metadata::PackageId;

    use super::{FULL, package_name, summary, told_short};

    #[test]
    fn the_last_line_counts_what_passed_and_names_what_did_not() {
        let took = Duration::from_millis(812_400);

        assert_eq!(
            summary(10, None, &[], took),
            "xtask test: 10 steps passed, 0 failed, 0 skipped in 812 s"
        );
        assert_eq!(
            summary(3, Some("clippy"), &["postgres"], took),
            "xtask test: 3 steps passed, 1 failed (clippy), 1 skipped (postgres) in 812 s"
        );
    }

    #[test]
    fn a_disk_that_has_room_is_not_spoken_of() {
        let told = told_short(300 << 20, FULL);

        assert_eq!(told.unwrap(), "300 MB are free on the disk where cargo builds");
        assert_eq!(told_short(FULL, FULL), None);
    }

    #[test]
    fn a_package_is_named_by_its_id() {
        let id = |repr: &str| PackageId { repr: repr.to_owned() };

        assert_eq!(
            package_name(&id("path+file:///a/trace#formwork-trace@0.1.0")),
            "formwork-trace"
        );
        assert_eq!(package_name(&id("path+file:///a/xtask#0.1.0")), "xtask");
    }
}
