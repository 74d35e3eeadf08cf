//! Many runs and a few processes that share one log, of which one after the other is killed or held up.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use formwork_protocols::{Event, EventBody, RunId, RunState, Span, StoreError, Views as _};
use formwork_services::{
    Formwork,
    operations::runs::{Resume, ResumeParams},
};
use formwork_testkit::postgres::Postgres;
use formwork_trace::{Options, Trace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::{
    StoreKind, compare,
    fatal::{Fatal, Fate, Moment},
    place::{self, Place},
    tools,
};

/// How long a process owns a run without a sign of life: short, so that a held-up one loses its runs soon.
const LEASE: Span = Span::from_secs(2);

/// How long a process is held up: until its leases have lapsed for sure.
const HELD_UP: Duration = Duration::from_secs(5);

/// How many runs one process works on at once.
const AT_ONCE: usize = 4;

/// How often the driver looks after its processes, and an idle process for runs.
const TICK: Duration = Duration::from_millis(50);

/// When a fleet that should be done is taken to hang.
const DEADLINE: Duration = Duration::from_secs(900);

const WORKFLOW: &str = r#"format_version = 1
name = "shared"

[variables.id]
required = true

[[tasks]]
name = "work"
agent = "worker"
prompt = "do: once:{{id}}a write:{{id}}b idempotent:{{id}}c once:{{id}}e write:{{id}}f end:{{id}}g"
postchecks = [{ unchanged = ["mark.sh"] }]

[[tasks]]
name = "more"
agent = "worker"
depends_on = ["work"]
prompt = "do: once:{{id}}h pure:{{id}}i end:{{id}}j"
"#;

/// Has `processes` share `runs`, and kills or holds up one after the other, `kills` times in all.
pub(crate) fn drive(store: StoreKind, processes: usize, runs: usize, kills: usize) -> Result<()> {
    let began = Instant::now();
    let name = format!("{store:?}").to_lowercase();
    let database = match store {
        StoreKind::Sqlite => None,
        StoreKind::Postgres => match Postgres::shared() {
            Some(cluster) => Some(cluster.database()?),
            None => {
                println!("crash {name}: skipped, there is no PostgreSQL");
                return Ok(());
            }
        },
    };
    let place = Place::new(database.as_ref().map(|database| database.url()), WORKFLOW)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(record(place.path(), runs))?;
    let fates = serve(&place, processes, kills)?;
    let told = runtime.block_on(judge(place.path(), runs, fates.stopped > 0))?;
    println!(
        "crash {name}: {runs} runs by {processes} processes, {} killed, {} held up; {} events, {} \
         changes of owner, {} faults in {} s",
        fates.killed,
        fates.stopped,
        told.events,
        told.changes,
        told.faults.len(),
        began.elapsed().as_secs()
    );
    told.faults.iter().for_each(|fault| println!("{fault}"));
    ensure!(told.faults.is_empty(), "see {}", place.keep().display());
    Ok(())
}

/// Records runs that nobody has begun.
async fn record(folder: &Path, runs: usize) -> Result<()> {
    let formwork = place::open(folder, None, Fatal::new(None).barren()).await?;
    for number in 0..runs {
        let vars = Map::from_iter([("id".to_owned(), Value::String(format!("r{number}")))]);
        let run = place::start(&formwork, folder, vars).await?;
        // Its lease is refused, so that it stays as it was recorded.
        ensure!(formwork.wait(run).await.is_err(), "run {run} was begun");
    }
    formwork.close().await;
    Ok(())
}

/// What was done to the processes.
#[derive(Debug, Clone, Copy, Default)]
struct Fates {
    killed: usize,
    stopped: usize,
}

/// Keeps `processes` at work until all runs have ended. Each of the first ones meets its fate after some
/// events, and another takes its place.
#[expect(clippy::disallowed_methods, reason = "a stopped process wakes nobody who waits for it")]
fn serve(place: &Place, processes: usize, kills: usize) -> Result<Fates> {
    let began = Instant::now();
    let (mut fates, mut started, mut left) = (Fates::default(), 0_usize, kills);
    let mut start = || -> Result<(Child, Option<Fate>)> {
        // Every fourth is held up, at events that lie ever elsewhere.
        let fate = (left > 0).then(|| Fate {
            moment: match started % 4 {
                3 => Moment::Stopped,
                2 => Moment::Before,
                1 => Moment::During,
                _ => Moment::After,
            },
            event: 20 + (started as u64 * 37) % 61,
        });
        left = left.saturating_sub(1);
        let mut command = place.process(fate)?;
        command.args(["--worker", &format!("w{started}")]);
        started += 1;
        Ok((command.spawn()?, fate))
    };
    let mut working = Vec::new();
    for _ in 0..processes {
        working.push(start()?);
    }
    let mut held_up: Vec<(Child, Instant)> = Vec::new();
    while !working.is_empty() || !held_up.is_empty() {
        ensure!(began.elapsed() < DEADLINE, "the runs have not ended after {DEADLINE:?}");
        for (mut child, fate) in std::mem::take(&mut working) {
            if let Some(status) = child.try_wait()? {
                if status.signal() == Some(9) {
                    fates.killed += 1;
                    working.push(start()?);
                } else {
                    ensure!(status.success(), "a process ended with {status}, fate {fate:?}");
                }
            } else if is_stopped(&child)? {
                fates.stopped += 1;
                held_up.push((child, Instant::now()));
                working.push(start()?);
            } else {
                working.push((child, fate));
            }
        }
        for (child, since) in std::mem::take(&mut held_up) {
            if since.elapsed() < HELD_UP {
                held_up.push((child, since));
            } else {
                // It believes that it owns its runs still, and goes on where it stood.
                kill_process(pid(&child)?, Signal::CONT)?;
                working.push((child, None));
            }
        }
        thread::sleep(TICK);
    }
    Ok(fates)
}

fn pid(child: &Child) -> Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process has an id")
}

/// Tells whether a process is stopped: the third field of its status, behind its name.
fn is_stopped(child: &Child) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// Works on runs that nobody owns until all have ended.
pub(crate) fn work(folder: &Path, name: &str, fate: Option<Fate>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let name = name.to_owned();
    runtime.block_on(async {
        let before = Fatal::new(fate).signed(&name);
        let formwork = place::open(folder, Some(LEASE), before).await?;
        let (mut at_work, mut mine) = (JoinSet::new(), HashSet::new());
        loop {
            let rows = match formwork.store().runs(None, 1_000).await {
                Ok(rows) => rows,
                // A store that was busy for a moment is asked again.
                Err(StoreError::Unavailable { .. }) => {
                    tokio::time::sleep(TICK).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let open: Vec<RunId> =
                rows.iter().filter(|row| !row.state.is_terminal()).map(|row| row.run).collect();
            if open.is_empty() {
                break;
            }
            for run in open {
                if at_work.len() < AT_ONCE && mine.insert(run) {
                    at_work.spawn(take_up(formwork.clone(), run));
                }
            }
            tokio::select! {
                Some(done) = at_work.join_next() => drop(mine.remove(&done?)),
                () = tokio::time::sleep(TICK) => {}
            }
        }
        formwork.close().await;
        Ok(())
    })
}

/// Takes a run up and works on it as far as it goes; one that another owns is left to them.
async fn take_up(formwork: Formwork, run: RunId) -> RunId {
    let Ok(caller) = place::caller() else { return run };
    if formwork.call::<Resume>(&caller, ResumeParams { run }).await.is_ok() {
        // Refused, fenced off or ended: the log tells.
        let _ = formwork.wait(run).await;
    }
    run
}

/// What the log tells of all runs.
struct Told {
    events: usize,
    changes: usize,
    faults: Vec<String>,
}

async fn judge(folder: &Path, runs: usize, held_up: bool) -> Result<Told> {
    let trace = Trace::open(&place::url(folder), Options::default()).await?;
    let rows = trace.runs(None, 1_000).await?;
    let mut told = Told { events: 0, changes: 0, faults: Vec::new() };
    if rows.len() != runs {
        told.faults.push(format!("{} runs were recorded, {runs} wanted", rows.len()));
    }
    for row in rows {
        let events = compare::all(&trace, row.run).await?;
        let mut faults = compare::sound(&trace, row.run, &events).await?;
        if row.state != RunState::Completed {
            faults.push(format!("it is {}: {:?}", row.state, row.reason));
        }
        told.events += events.len();
        told.changes += fenced(&events, &mut faults)?;
        told.faults.extend(faults.into_iter().map(|fault| format!("run {}: {fault}", row.run)));
    }
    trace.close().await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in tools::effects(&place::workspace(folder)) {
        *counts.entry(line).or_default() += 1;
    }
    for (effect, count) in counts {
        // Who was held up between an intent and its effect has the effect when it goes on: no log can keep
        // it from that. Whoever was killed has none.
        if count > 1 && effect.starts_with("once:") && !held_up {
            told.faults.push(format!("{effect} took place {count} times"));
        }
    }
    Ok(told)
}

/// Checks that each event was written by the process that owned the run then, and counts the owners.
fn fenced(events: &[Event], faults: &mut Vec<String>) -> Result<usize> {
    let (mut owner, mut changes) = (None, 0);
    for event in events {
        let key = event.idempotency_key.as_deref().unwrap_or_default();
        let writer = key.split('/').next().unwrap_or_default();
        match &event.body {
            EventBody::RunStarted(_) | EventBody::RunResumed(_) => {
                owner = Some(writer.to_owned());
                changes += 1;
            }
            _ if owner.is_none() => {}
            _ if owner.as_deref() == Some(writer) => {}
            body => {
                let owner = owner.as_deref().unwrap_or("nobody");
                faults.push(format!("{writer} wrote {} while {owner} owned it", body.kind()));
            }
        }
    }
    if changes == 0 {
        bail!("a run was never begun");
    }
    Ok(changes)
}
