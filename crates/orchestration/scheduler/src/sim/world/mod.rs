//! What happens: bodies, checks, money, time, people and crashes, all by chance.

mod act; // What comes up, and what comes of it.
mod carry; // What the core says, carried out and recorded.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use formwork_protocols::{
    Ask, AttemptId, CallId, EventBody, HoldId, PermissionMode, RunId, SessionId, TaskId, TaskSpec,
    TaskState, Timestamp,
    check::Phase,
    event::{RunCreated, TaskCreated},
};

use super::{
    Kept,
    chance::{Chance, StandsAt},
    forest::{self, Mood},
    record::Record,
    report::{Broken, Report, Series},
    watch::Watch,
};
use crate::{
    core::{Builder, Command, Planted, State, TaskIndex, flatten},
    ledger::Accounts,
};

/// The steps after which a tree that has not ended is taken to go on for ever. The longest of
/// millions took a tenth of them.
const ENDLESS: u64 = 100_000;

/// Every so many steps all tasks are looked at; it takes as long as a hundred other steps.
const AUDIT: u64 = 128;

/// Grows trees from `seed` and runs each to its end, until at least so many steps were taken.
///
/// # Errors
/// [`Broken`] with the first promise that was not kept; a panic of the core is one.
pub fn simulate(seed: u64, steps: u64) -> Result<Report, Broken> {
    let mut report = Report { seed, ..Report::default() };
    let mut series = Series::new();
    while report.steps < steps || report.trees == 0 {
        let own = seed.wrapping_add(report.trees);
        let before = report.steps;
        let life = AssertUnwindSafe(|| live(own, &mut report, &mut series, forest::tree));
        let kept = catch_unwind(life).unwrap_or_else(|_| Err("the core panicked".to_owned()));
        if let Err(promise) = kept {
            let step = report.steps - before;
            return Err(Broken { seed: own, step, promise, series: series.last_lines() });
        }
        report.trees += 1;
    }
    report.digest = series.digest();
    Ok(report)
}

/// Runs trees of sixty-four children beside each other to their ends, one for each seed.
#[cfg(test)]
pub(super) fn simulate_wide(seeds: std::ops::Range<u64>) -> Result<Report, String> {
    let (mut report, mut series) = (Report::default(), Series::new());
    for seed in seeds {
        live(seed, &mut report, &mut series, forest::wide)
            .map_err(|promise| format!("seed {seed}: {promise}"))?;
        report.trees += 1;
    }
    Ok(report)
}

/// Grows the tree of a seed and runs it to its end.
fn live(
    seed: u64,
    report: &mut Report,
    series: &mut Series,
    grow: fn(&Chance) -> TaskSpec,
) -> Kept {
    let mut world = World::new(Chance::new(seed), report, series, grow)?;
    if seed % 4 == 3 {
        world.is_overseen = true;
        world.state.oversee();
    }
    world.resume()?;
    let mut steps = 0;
    while !world.is_finished {
        steps += 1;
        world.report.steps += 1;
        if steps > ENDLESS {
            return Err(format!("the run goes on after {ENDLESS} steps"));
        }
        world.step()?;
        world.watch.step(&world.state)?;
        if steps % AUDIT == 0 {
            world.audit()?;
        }
    }
    if world.chance.happens(200) {
        // The process dies before it has recorded the end of the run.
        world.refold()?;
    }
    world.end()
}

/// Something that comes up at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Work goes on, if it is the same still.
    Work(TaskIndex, u64),
    Timer(TaskIndex),
    /// Somebody outside says something.
    Wake(TaskIndex),
    Rested(TaskIndex),
    /// Whoever governs the run decides.
    Overseen(TaskIndex),
}

/// Work that is under way.
#[derive(Debug)]
struct Work {
    /// Tells it from earlier work at the same task.
    number: u64,
    is_told_to_stop: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Check(Phase, u32),
    /// A body, and the model call that it waits for: who pays, and what is held.
    Body(Option<(TaskIndex, HoldId, Ask)>),
    /// A body that waits for what it has made.
    Waits,
}

/// What the core asks of whoever drives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Condition,
    Items,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    No,
    Asked,
    Reached,
}

struct World<'a> {
    chance: Chance,
    mood: Mood,
    now: Timestamp,
    record: Record,
    was_started: bool,
    // One of each for all, because nothing reads them back.
    attempt: AttemptId,
    call: CallId,
    session: SessionId,
    state: State,
    accounts: Arc<Accounts>,
    work: Vec<Option<Work>>,
    launched: u64,
    events: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    scheduled: u64,
    pause: Pause,
    whims: u32,
    is_finished: bool,
    /// Whether somebody governs the run.
    is_overseen: bool,
    commands: Vec<Command>,
    questions: VecDeque<(TaskIndex, Asked)>,
    watch: Watch,
    report: &'a mut Report,
    series: &'a mut Series,
}

impl<'a> World<'a> {
    fn new(
        chance: Chance,
        report: &'a mut Report,
        series: &'a mut Series,
        grow: fn(&Chance) -> TaskSpec,
    ) -> Kept<Self> {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let width = forest::width(&chance);
        let mood = Mood::by(&chance);
        let run = RunId::generate(&StandsAt(now), chance.rng());
        let tree = grow(&chance);
        let planted = flatten(tree, || TaskId::generate(&StandsAt(now), chance.rng()));
        let accounts = Accounts::new();
        let mut builder = Builder::new(width);
        let mut record = Record::new(run, width);
        if let Some(root) = planted.first() {
            record.write(now, None, EventBody::RunCreated(Box::new(created(root))));
        }
        for Planted { id, parent, spec } in planted {
            accounts.open(id, parent, &spec.budget);
            builder.add(id, parent, Arc::clone(&spec)).map_err(|error| error.to_string())?;
            record.write(now, Some(id), EventBody::TaskCreated(TaskCreated { parent, spec }));
        }
        let state = builder.build().map_err(|error| error.to_string())?;
        series.note(format_args!("{} tasks, width {width}, {mood:?}", state.len()));
        Ok(Self {
            watch: Watch::begin(&state, width.get()),
            attempt: AttemptId::generate(&StandsAt(now), chance.rng()),
            call: CallId::generate(&StandsAt(now), chance.rng()),
            session: SessionId::generate(&StandsAt(now), chance.rng()),
            whims: mood.whims,
            chance,
            mood,
            now,
            record,
            was_started: false,
            state,
            accounts: Arc::new(accounts),
            work: Vec::new(),
            launched: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            pause: Pause::No,
            is_finished: false,
            is_overseen: false,
            commands: Vec::new(),
            questions: VecDeque::new(),
            report,
            series,
        })
    }

    fn end(&mut self) -> Kept {
        if !self.is_finished {
            return Err("the run had ended, and goes on after a crash".to_owned());
        }
        self.audit()?;
        let open = self.accounts.unsettled();
        if !open.is_empty() {
            return Err(format!("the run has ended, and {open:?} are held"));
        }
        if self.state.slots_used() > 0 {
            return Err(format!("the run has ended, and holds {} places", self.state.slots_used()));
        }
        let root = self.state.root();
        let completed = self.state.state_of(root) == TaskState::Completed;
        self.report.completed += u64::from(completed);
        self.report.tasks += self.state.len() as u64;
        Ok(())
    }

    fn audit(&self) -> Kept {
        self.watch.all(&self.state, &self.accounts)?;
        self.watch.none_waits_for_nothing(&self.state)
    }
}

fn created(root: &Planted) -> RunCreated {
    RunCreated {
        name: "simulated".parse().expect("letters are a name"),
        workspace: "/".to_owned(),
        mode: PermissionMode::Edit,
        budget: root.spec.budget.clone(),
        root: root.id,
        setup: serde_json::Value::Null,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
