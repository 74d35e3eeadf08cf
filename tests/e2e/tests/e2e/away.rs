//! A log that cannot be written for a moment, while something takes effect: nothing is done twice, and the run is taken up.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, EventBody, NewEvent, Principal, RunId, RunOutcome, Store, StoreError, store::Recorded,
};
use formwork_services::{
    Builder, Error, Formwork,
    capability::Caller,
    config::{Layer, Layers, Origin},
    operations::runs::{Resume, ResumeParams, Start, StartParams, Work},
};
use formwork_testkit::between::{Between, Through};
use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

/// A log that goes away once something has taken effect.
struct Away {
    /// What is there once it has.
    effect: PathBuf,
    is_back: Arc<AtomicBool>,
    goes: Goes,
}

/// For how long a log is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    /// For one append.
    Once,
    /// Until somebody lets it come back.
    ForLong,
    /// Until then as well, but whoever takes a run up can do that, and records nothing more.
    AgainAndAgain,
}

impl Away {
    fn is_there(&self) -> Result<(), StoreError> {
        let is_back = match self.goes {
            Goes::Once => self.effect.exists() && self.is_back.swap(true, Ordering::SeqCst),
            Goes::ForLong | Goes::AgainAndAgain => self.is_back.load(Ordering::SeqCst),
        };
        if !self.effect.exists() || is_back {
            return Ok(());
        }
        let reason = "it is locked by another process".to_owned();
        Err(StoreError::Unavailable { at: "here".to_owned(), reason })
    }
}

#[async_trait]
impl Between for Away {
    async fn append(&self, store: &dyn Store, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        let takes_up = |event: &NewEvent| matches!(event.body, EventBody::RunResumed(_));
        if self.goes != Goes::AgainAndAgain || !batch.events.iter().any(takes_up) {
            self.is_there()?;
        }
        store.append(batch).await
    }

    fn may_own(&self, _: RunId) -> Result<(), StoreError> {
        if self.goes == Goes::ForLong { self.is_there() } else { Ok(()) }
    }
}

/// Opens Formwork in a world, with a log that goes away and is waited for as the config says.
async fn open(world: &World, wait: &str, goes: Goes, is_back: &Arc<AtomicBool>) -> Formwork {
    world.repo.write("pay.sh", "echo paid >> paid.log\n").unwrap();
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let config = config.replace("sandbox = \"auto\"", "sandbox = \"off\"");
    let at = world.database().map(|url| format!("database_url = {url:?}\n")).unwrap_or_default();
    let mut layers = Layers::new();
    let origin = Origin::Flag { flag: "the test".to_owned() };
    let wait = format!("log_wait = {wait:?}\n");
    layers.push(Layer::parse(origin, &format!("{at}{wait}{config}")).unwrap());
    world.trust();
    let (effect, is_back) = (world.path("paid.log"), Arc::clone(is_back));
    Builder::new(world.repo.path())
        .state(world.state())
        .config(layers.merge().unwrap().config)
        .environment([("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .around_log(move |inner| Arc::new(Through::new(inner, Away { effect, is_back, goes })))
        .build()
        .await
        .unwrap()
}

/// Begins a run of these tasks.
async fn begin(formwork: &Formwork, tasks: &str) -> (Caller, RunId) {
    let caller = Caller::owner(Principal::parse("user:ada").unwrap());
    let text = format!("format_version = 1\nname = \"work\"\n{tasks}");
    let work = Work::Workflow { source: "work.toml".to_owned(), text };
    let params: StartParams = serde_json::from_value(json!({ "work": work })).unwrap();
    let run = formwork.call::<Start>(&caller, params).await.unwrap().run;
    (caller, run)
}

/// Runs a workflow of these tasks until its log is away, and takes it up. Returns what it stopped with and how it ended.
async fn run_twice(world: &World, tasks: &str) -> (Error, RunOutcome) {
    let formwork = open(world, "0s", Goes::Once, &Arc::default()).await;
    let (caller, run) = begin(&formwork, tasks).await;
    let stopped = formwork.wait(run).await.unwrap_err();
    let row = formwork.store().run(run).await.unwrap().unwrap();
    assert!(!row.state.is_terminal(), "{row:?}");
    formwork.call::<Resume>(&caller, ResumeParams { run }).await.unwrap();
    let outcome = formwork.wait(run).await.unwrap();
    formwork.close().await;
    (stopped, outcome)
}

#[track_caller]
fn assert_told(stopped: &Error) {
    let is_of_the_log = matches!(stopped, Error::Store(StoreError::Unavailable { .. }));
    assert!(is_of_the_log, "{stopped:?}");
    let hint = stopped.hint().unwrap();
    assert!(hint.contains("formwork runs resume"), "{hint}");
}

async fn a_call_that_cannot_be_recorded(world: World) {
    payer(&world);

    let (stopped, outcome) = run_twice(&world, PAY).await;

    assert_told(&stopped);
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    let failed = world.events("tool.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["data"]["error"], "outcome_unknown");
    let last = world.server.requests().pop().unwrap();
    assert!(
        last.text()
            .contains("the run stopped while this call ran: whether it took effect is unknown"),
        "{}",
        last.text()
    );
    assert_eq!(world.events("attempt.started").await.len(), 1);
    world.assert_sound().await;
}

async fn a_command_that_cannot_be_recorded(world: World) {
    let task = "[[tasks]]\nname = \"pay\"\ncommand = [\"sh\", \"pay.sh\"]\nretries = { max = 2 }\n";

    let (stopped, outcome) = run_twice(&world, task).await;

    assert_told(&stopped);
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    assert!(outcome.reason.contains("whether it took effect is unknown"), "{outcome}");
    assert_eq!(world.events("attempt.started").await.len(), 1);
    world.assert_sound().await;
}

async fn a_check_that_cannot_be_recorded(world: World) {
    let task = "[[tasks]]\nname = \"pay\"\ncommand = [\"true\"]\n\
                postchecks = [{ command = [\"sh\", \"pay.sh\"] }]\n";

    let (stopped, outcome) = run_twice(&world, task).await;

    assert_told(&stopped);
    // A check looks, and is made again.
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    let (started, finished) =
        (world.events("check.started").await, world.events("check.finished").await);
    assert_eq!((started.len(), finished.len()), (2, 1));
    assert_eq!(world.events("attempt.started").await.len(), 1);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_call_whose_log_is_away_is_not_made_again() {
    a_call_that_cannot_be_recorded(World::new().await).await;
}

#[tokio::test]
async fn pg_a_call_whose_log_is_away_is_not_made_again() {
    on_postgres(a_call_that_cannot_be_recorded).await;
}

#[tokio::test]
async fn a_command_whose_log_is_away_is_not_run_again() {
    a_command_that_cannot_be_recorded(World::new().await).await;
}

#[tokio::test]
async fn pg_a_command_whose_log_is_away_is_not_run_again() {
    on_postgres(a_command_that_cannot_be_recorded).await;
}

#[tokio::test]
async fn a_check_whose_log_is_away_is_made_again_and_gives_up_no_task() {
    a_check_that_cannot_be_recorded(World::new().await).await;
}

#[tokio::test]
async fn pg_a_check_whose_log_is_away_is_made_again_and_gives_up_no_task() {
    on_postgres(a_check_that_cannot_be_recorded).await;
}

const PAY: &str = "[[tasks]]\nname = \"pay\"\nagent = \"worker\"\nprompt = \"Pay once.\"\n";

/// Prepares an agent that pays by one call, and then says so.
fn payer(world: &World) {
    world.agent("worker", "one");
    let pay = ("exec", json!({ "command": ["sh", "pay.sh"] }));
    world.server.reply(&World::chat("one"), calls(&[pay]));
    world.server.reply(&World::chat("one"), ends("It is paid."));
}

async fn a_run_waits_for_its_log(world: World) {
    payer(&world);
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "1h", Goes::ForLong, &is_back).await;
    let mut away = formwork.away();
    let (_, run) = begin(&formwork, PAY).await;

    let told = away.wait_for(|told| !told.is_empty()).await.unwrap().get(&run).cloned();
    let state = formwork.store().run(run).await.unwrap().unwrap().state;
    is_back.store(true, Ordering::SeqCst);
    let outcome = formwork.wait(run).await.unwrap();

    assert_eq!(
        told.unwrap(),
        "the store at here cannot be written: it is locked by another process"
    );
    assert!(!state.is_terminal(), "{state:?}");
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert!(away.borrow_and_update().is_empty());
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    assert_eq!(world.events("attempt.started").await.len(), 1);
    assert_eq!(world.events("tool.failed").await[0]["data"]["error"], "outcome_unknown");
    formwork.close().await;
    world.assert_sound().await;
}

async fn a_wait_can_be_ended(world: World) {
    payer(&world);
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "1h", Goes::ForLong, &is_back).await;
    let mut away = formwork.away();
    let (caller, run) = begin(&formwork, PAY).await;
    away.wait_for(|told| !told.is_empty()).await.unwrap();

    formwork.interrupt(run);
    let stopped = formwork.wait(run).await.unwrap_err();
    is_back.store(true, Ordering::SeqCst);
    formwork.call::<Resume>(&caller, ResumeParams { run }).await.unwrap();
    let outcome = formwork.wait(run).await.unwrap();

    assert_told(&stopped);
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_waits_for_its_log_and_goes_on_without_doing_anything_twice() {
    a_run_waits_for_its_log(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_waits_for_its_log_and_goes_on_without_doing_anything_twice() {
    on_postgres(a_run_waits_for_its_log).await;
}

#[tokio::test]
async fn whoever_does_not_want_to_wait_for_the_log_ends_the_wait_and_resumes_later() {
    a_wait_can_be_ended(World::new().await).await;
}

#[tokio::test]
async fn pg_whoever_does_not_want_to_wait_for_the_log_ends_the_wait_and_resumes_later() {
    on_postgres(a_wait_can_be_ended).await;
}

async fn a_wait_runs_out(world: World) {
    payer(&world);
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "600ms", Goes::ForLong, &is_back).await;
    let (caller, run) = begin(&formwork, PAY).await;

    let stopped = formwork.wait(run).await.unwrap_err();
    let told = formwork.away().borrow().clone();
    is_back.store(true, Ordering::SeqCst);
    formwork.call::<Resume>(&caller, ResumeParams { run }).await.unwrap();
    let outcome = formwork.wait(run).await.unwrap();

    assert_told(&stopped);
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    assert_eq!(world.events("run.resumed").await.len(), 1);
    formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_waits_for_its_log_no_longer_than_it_may_and_is_resumed_later() {
    a_wait_runs_out(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_waits_for_its_log_no_longer_than_it_may_and_is_resumed_later() {
    on_postgres(a_wait_runs_out).await;
}

async fn a_log_is_lost_again_and_again(world: World) {
    payer(&world);
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "1h", Goes::AgainAndAgain, &is_back).await;
    let (caller, run) = begin(&formwork, PAY).await;

    let stopped = formwork.wait(run).await.unwrap_err();
    let taken_up = world.events("run.resumed").await.len();
    is_back.store(true, Ordering::SeqCst);
    formwork.call::<Resume>(&caller, ResumeParams { run }).await.unwrap();
    let outcome = formwork.wait(run).await.unwrap();

    assert_told(&stopped);
    assert_eq!(taken_up, 3);
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert_eq!(world.repo.read("paid.log").unwrap(), "paid\n");
    formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_loses_its_log_whenever_it_goes_on_is_taken_up_three_times_and_stops() {
    a_log_is_lost_again_and_again(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_loses_its_log_whenever_it_goes_on_is_taken_up_three_times_and_stops() {
    on_postgres(a_log_is_lost_again_and_again).await;
}

async fn two_runs_wait_at_once(world: World) {
    world.agent("worker", "one");
    world.server.answer(&World::chat("one"), |asked| match asked.text().contains("tool_call_id") {
        false => calls(&[("exec", json!({ "command": ["sh", "pay.sh"] }))]),
        true => ends("It is paid."),
    });
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "1h", Goes::ForLong, &is_back).await;
    let mut away = formwork.away();
    let (_, one) = begin(&formwork, PAY).await;
    let (_, other) = begin(&formwork, PAY).await;

    away.wait_for(|told| told.len() == 2).await.unwrap();
    formwork.interrupt(one);
    formwork.wait(one).await.unwrap_err();
    // That one waits no more is no word of the other.
    let left: Vec<RunId> = away.borrow_and_update().keys().copied().collect();
    is_back.store(true, Ordering::SeqCst);
    let outcome = formwork.wait(other).await.unwrap();

    assert_eq!(left, [other]);
    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    assert!(away.borrow_and_update().is_empty());
    formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn each_run_that_waits_for_the_log_is_told_of_by_itself() {
    two_runs_wait_at_once(World::new().await).await;
}

#[tokio::test]
async fn pg_each_run_that_waits_for_the_log_is_told_of_by_itself() {
    on_postgres(two_runs_wait_at_once).await;
}

#[tokio::test]
async fn observers_are_told_of_what_came_before_and_after_the_log_was_away_as_of_one_run() {
    let script = "cat >> told.jsonl; echo >> told.jsonl";
    let hook = format!(
        "[permissions]\nmode = \"auto\"\n[[hooks]]\nevent = \"tool.after\"\ntools = [\"exec\"]\n\
         command = [\"sh\", \"-c\", {script:?}]\n"
    );
    let world = World::with(&hook).await;
    payer(&world);
    let is_back = Arc::new(AtomicBool::new(false));
    let formwork = open(&world, "1h", Goes::ForLong, &is_back).await;
    let mut away = formwork.away();
    let (_, run) = begin(&formwork, PAY).await;
    away.wait_for(|told| !told.is_empty()).await.unwrap();

    is_back.store(true, Ordering::SeqCst);
    let outcome = formwork.wait(run).await.unwrap();

    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    // The call was made before, and how it ended is told after: it takes both to know whose end that is.
    let told = world.repo.read("told.jsonl").unwrap();
    let told: Vec<serde_json::Value> = told
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((&told[0]["kind"], &told[0]["tool"]), (&json!("tool.failed"), &json!("exec")));
    formwork.close().await;
}
