//! One run, whose process is killed at each of its events, taken up again and compared.

use std::{
    os::unix::process::ExitStatusExt as _,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use formwork_testkit::postgres::Postgres;

use crate::{
    StoreKind,
    compare::{self, COMMAND, Final, Seen},
    fatal::{Fate, Moment},
    place::Place,
};

/// Events of a step: a reservation, a request, an answer, its cost, and a call with two messages around.
const EVENTS_OF_STEP: u64 = 8;

/// Events of all that is no step of the three conversations that are filled up, about.
const EVENTS_BESIDE: u64 = 160;

/// Writes a workflow of about so many events: two conversations side by side, of which one opens a part and
/// one claims too early, one after both, one in rounds as a loop has them, and a command.
fn workflow(events: u64) -> String {
    let fill = events.saturating_sub(EVENTS_BESIDE) / EVENTS_OF_STEP / 3;
    let kinds = ["once", "pure", "idempotent", "exec", "write"];
    let steps = |name: &str| {
        let kinds = kinds.iter().cycle();
        let count = usize::try_from(fill).unwrap_or(usize::MAX);
        let steps = kinds.take(count).enumerate().map(|(at, kind)| format!("{kind}:{name}{at} "));
        steps.collect::<String>()
    };
    let (alpha, beta, gamma) = (steps("a"), steps("b"), steps("c"));
    format!(
        r#"format_version = 1
name = "crash"

[[tasks]]
name = "alpha"
agent = "worker"
prompt = "do: once:x1 open:part once:x2 exec:x3 close:x4 write:x5 {alpha}end:x6"
postchecks = [{{ name = "x5 is written", command = ["test", "-f", "out/x5.txt"] }}]

[[tasks]]
name = "beta"
agent = "worker"
prompt = "do: claim:y1 write:y2 {beta}end:y3"
postchecks = [{{ name = "y2 is written", command = ["test", "-f", "out/y2.txt"] }}]

[[tasks]]
name = "gamma"
agent = "worker"
depends_on = ["alpha", "beta"]
prompt = "do: {gamma}end:z1"

[[tasks]]
name = "rounds"
agent = "worker"
depends_on = ["gamma"]
prompt = "do: claim:r1 write:r2 end:r3"
prechecks = [{{ name = "tests before", suite = ["sh", "suite.sh"] }}]
postchecks = [
    {{ name = "progress", progress = true, max_rounds = 2 }},
    {{ name = "tests", suite = ["sh", "suite.sh"] }},
]

[[tasks]]
name = "{COMMAND}"
depends_on = ["rounds"]
command = ["sh", "mark.sh", "{COMMAND}"]
"#
    )
}

/// A case: how the first process ends, and how the second, where it does not live to the end either.
#[derive(Debug, Clone, Copy)]
struct Case {
    first: Fate,
    second: Option<Fate>,
}

/// Kills a run at `boundaries` of its events, or at all, and compares.
pub(crate) fn drive(
    store: StoreKind,
    events: u64,
    boundaries: Option<u64>,
    jobs: Option<usize>,
) -> Result<()> {
    let began = Instant::now();
    let name = format!("{store:?}").to_lowercase();
    if store == StoreKind::Postgres && Postgres::shared().is_none() {
        println!("crash {name}: skipped, there is no PostgreSQL");
        return Ok(());
    }
    let workflow = workflow(events);
    let undisturbed = undisturbed(store, &workflow)?;
    let cases = cases(undisturbed.events, boundaries);
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let (next, faults) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let Some(case) = lock(&next).next() else { return };
                    if let Err(error) = try_case(store, &workflow, *case, &undisturbed.ended) {
                        let second =
                            case.second.map_or(String::new(), |fate| format!(", then {fate}"));
                        let fault = format!("{}{second}: {error:#}", case.first);
                        println!("{fault}");
                        lock(&faults).push(fault);
                    }
                }
            });
        }
    });
    let faults = lock(&faults).len();
    let deaths = cases.len() + cases.iter().filter(|case| case.second.is_some()).count();
    println!(
        "crash {name}: {} events, {} cases, {deaths} processes killed, {faults} faults in {} s",
        undisturbed.events,
        cases.len(),
        began.elapsed().as_secs()
    );
    ensure!(faults == 0, "{faults} cases did not end as they must");
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists the cases: each chosen event, before and after its commit and in the middle of it, and every other
/// time with a second death soon after.
fn cases(events: u64, boundaries: Option<u64>) -> Vec<Case> {
    let wanted = boundaries.unwrap_or(events).clamp(1, events);
    let mut cases = Vec::new();
    for at in 0..wanted {
        let event = 1 + at * events / wanted;
        for moment in [Moment::Before, Moment::After] {
            // The middle of a commit is as likely to be before as after it; it takes the place of one of both.
            let moment = if event.is_multiple_of(5) { Moment::During } else { moment };
            let twice = (event + u64::from(moment == Moment::After)).is_multiple_of(3);
            let second = twice.then_some(Fate { moment: Moment::After, event: 1 + event % 7 });
            cases.push(Case { first: Fate { moment, event }, second });
        }
    }
    cases
}

/// Carries a run out that nobody disturbs.
fn undisturbed(store: StoreKind, workflow: &str) -> Result<Seen> {
    with_place(store, workflow, |place| {
        let status = place.visit(None)?;
        ensure!(status.success(), "the process ended with {status}");
        let seen = look(place)?;
        ensure!(seen.faults.is_empty(), "{}", seen.faults.join("; "));
        ensure!(!seen.command_unknown, "the command was given up");
        Ok(seen)
    })
    .context("a run that nobody disturbs")
}

fn try_case(store: StoreKind, workflow: &str, case: Case, undisturbed: &Final) -> Result<()> {
    with_place(store, workflow, |place| {
        let status = place.visit(Some(case.first))?;
        if status.signal() != Some(9) {
            // The order of two conversations differs from run to run, and so may the number of events.
            ensure!(status.success(), "the first process ended with {status}");
        }
        if let Some(fate) = case.second {
            let status = place.visit(Some(fate))?;
            ensure!(
                status.success() || status.signal() == Some(9),
                "the second process ended with {status}"
            );
        }
        let status = place.visit(None)?;
        ensure!(status.success(), "the last process ended with {status}");
        let faults = look(place)?.against(undisturbed);
        ensure!(faults.is_empty(), "{}", faults.join("; "));
        Ok(())
    })
}

fn look(place: &Place) -> Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(compare::look(place.path()))
}

/// Makes a place with a log of its own. One where something went wrong stays, to be looked at.
fn with_place<T>(
    store: StoreKind,
    workflow: &str,
    act: impl FnOnce(&Place) -> Result<T>,
) -> Result<T> {
    let database = match store {
        StoreKind::Sqlite => None,
        StoreKind::Postgres => {
            let Some(cluster) = Postgres::shared() else { bail!("there is no PostgreSQL") };
            Some(cluster.database()?)
        }
    };
    let place = Place::new(database.as_ref().map(|database| database.url()), workflow)?;
    act(&place).map_err(|error| match store {
        StoreKind::Sqlite => error.context(format!("see {}", place.keep().display())),
        StoreKind::Postgres => error,
    })
}
