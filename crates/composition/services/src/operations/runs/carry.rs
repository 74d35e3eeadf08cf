//! A run that is carried out, and taken up again where its log was away for a while.

use std::{
    io::ErrorKind,
    sync::{Arc, Weak},
    time::Duration,
};

use formwork_protocols::{EventBody, Live, Position, RunId, RunOutcome, store::Selection};
use formwork_scheduler::{NewRun, Scheduler, Signals};
use futures::{StreamExt as _, stream::BoxStream};
use tokio::time::Instant;

use super::{Ending, ended, kept, leftover, named, own, recorded, scheduler, workshop};
use crate::{
    Error, Formwork,
    capability::Caller,
    executor::Workshop,
    formwork::Inner,
    observers::{Observers, Ready, Told},
    presence::Presence,
    remote, trust,
};

/// How long it is waited before the log is tried again: at first, and at the most.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// For how long a run has to have gone on before its log counts as back for good.
const CALM: Duration = Duration::from_secs(60);

/// How often in a row a run may be taken up, go on for a moment and lose its log again.
const FALLS: u32 = 3;

/// All that a run goes on with in this process.
pub(super) struct Carried {
    pub(super) scheduler: Scheduler,
    pub(super) present: Presence,
    pub(super) ending: Arc<Ending>,
    pub(super) workshop: Arc<Workshop>,
    pub(super) observers: Observers,
}

impl Carried {
    /// Carries it out to its end, from its beginning where it is `new`, else from where it was left. Returns how that ended, and
    /// up to where its observers were told.
    async fn go(
        self,
        run: RunId,
        new: Option<NewRun>,
        signals: &Signals,
    ) -> (Result<RunOutcome, Error>, Option<Told>) {
        let Self { scheduler, present, ending, workshop, observers } = self;
        let done = async {
            let report = match new {
                Some(new) => scheduler.run(new, signals).await,
                None => scheduler.resume(run, signals).await,
            };
            let outcome = ended(report, present)?;
            ending.failed()?;
            workshop.tidy_up(run).await?;
            Ok(outcome)
        };
        let done = Box::pin(done).await;
        workshop.browsers.close().await;
        let told = observers.finish().await;
        (done, told)
    }
}

/// Puts together what a run goes on with that was left. Its observers are told of what comes from now on, or after what they
/// were `told` last.
///
/// # Errors
/// What stands in its way: it has ended, it came from a file, its workspace is another, what it stood on is no longer trusted.
pub(super) async fn taken_up(
    formwork: &Formwork,
    caller: &Caller,
    run: RunId,
    told: Option<Told>,
) -> Result<Carried, Error> {
    let row = named(&*formwork.inner.store, run).await?;
    own(formwork, run, "resumed").await?;
    if row.state.is_terminal() {
        return Err(Error::NotResumable { run, state: row.state });
    }
    if std::path::Path::new(&row.workspace) != formwork.workspace() {
        return Err(Error::elsewhere(run, row.workspace));
    }
    let mut setup = recorded(&*formwork.inner.store, run).await?;
    trust::still(&setup.stands_on, formwork.state(), formwork.workspace())?;
    kept::look(formwork, run).await?;
    remote::still_fits(&*formwork.inner.store, run, formwork.inner.hub.is_some()).await?;
    setup.narrow(&formwork.inner.config);
    let (keys, models) = formwork.models(&setup.config)?;
    let (width, headless) = (setup.width, setup.headless);
    let ending = Arc::new(Ending::new(formwork, caller, setup.kind, setup.commit.clone()));
    let workshop = workshop(formwork, setup, keys.registry, models)?;
    workshop.check_network().await?;
    let workshop = Arc::new(Workshop { ending: Some(Arc::clone(&ending)), ..workshop });
    let (scheduler, present) = scheduler(formwork, Arc::clone(&workshop), width)?;
    let scheduler = scheduler.headless(headless);
    leftover::sweep(&*formwork.inner.store, &formwork.inner.root, run).await?;
    let told = match told {
        Some(told) => told,
        None => Told::up_to(formwork.inner.store.head().await?),
    };
    let observers = Ready::of(&workshop)?.begin(&workshop, run, told).await?;
    Ok(Carried { scheduler, present, ending, workshop, observers })
}

/// Carries a run out in this process until it ends, or can no longer be carried on. While its log is away for a while it waits,
/// and then takes it up from what the log holds, as whoever resumes it would.
pub(super) fn carry(
    formwork: &Formwork,
    caller: &Caller,
    run: RunId,
    carried: Carried,
    new: Option<NewRun>,
) {
    let signals = Signals::default();
    let (watched, caller) = (signals.clone(), caller.clone());
    // A run does not keep open what it is a part of.
    let weak = Arc::downgrade(&formwork.inner);
    formwork.spawn(run, signals, async move {
        let gone = carried.go(run, new, &watched).await;
        let done = Box::pin(while_away(&weak, &caller, run, &watched, gone)).await;
        tell(&weak, run, None);
        done
    });
}

/// Takes a run up again and again whose log was away, until it ends by something else or the time to wait is over.
async fn while_away(
    weak: &Weak<Inner>,
    caller: &Caller,
    run: RunId,
    signals: &Signals,
    (mut done, mut told): (Result<RunOutcome, Error>, Option<Told>),
) -> Result<RunOutcome, Error> {
    let mut left = weak.upgrade().map_or(Duration::ZERO, |inner| inner.log_wait());
    let (mut pause, mut falls) = (FIRST, 0);
    while let Err(error) = &done
        && is_away(error)
        && !left.is_zero()
        && falls < FALLS
    {
        tell(weak, run, Some(error.to_string()));
        let began = Instant::now();
        tokio::select! {
            biased;
            () = signals.pause.cancelled() => break,
            () = signals.abort.cancelled() => break,
            () = tokio::time::sleep(pause.min(left)) => {}
        }
        let Some(inner) = weak.upgrade() else { break };
        let formwork = Formwork { inner };
        let (mut happening, mut went_on) = (formwork.inner.store.watch(), false);
        let taken = tokio::select! {
            biased;
            // A server that is not there is asked for a while, again and again.
            () = signals.pause.cancelled() => break,
            () = signals.abort.cancelled() => break,
            taken = Box::pin(taken_up(&formwork, caller, run, told.clone())) => taken,
        };
        done = match taken {
            Ok(carried) => {
                drop(formwork);
                let going = carried.go(run, None, signals);
                tokio::pin!(going);
                let (done, since) = tokio::select! {
                    biased;
                    gone = &mut going => gone,
                    () = recorded_of(&mut happening, run) => {
                        went_on = true;
                        tell(weak, run, None);
                        going.await
                    }
                };
                told = since.or(told);
                done
            }
            // It ended as the log went away, and whoever ended it was not told.
            Err(Error::NotResumable { .. }) => match outcome(&formwork, run).await {
                Some(outcome) => return Ok(outcome),
                None => break,
            },
            Err(error) => Err(error),
        };
        // To try takes time too, as where somebody else holds the log.
        let took = began.elapsed();
        let is_calm = went_on && took > CALM;
        left = if is_calm { left } else { left.saturating_sub(took) };
        pause = if is_calm { FIRST } else { (pause * 2).min(LONGEST) };
        // What fails whenever it has gone on for a moment is paid anew each time.
        falls = if is_calm || !went_on { 0 } else { falls + 1 };
    }
    done
}

/// Waits until something of a run is recorded.
async fn recorded_of(happening: &mut BoxStream<'static, Live>, run: RunId) {
    while let Some(happened) = happening.next().await {
        if matches!(happened, Live::Event(event) if event.run == run && event.body.needs_lease()) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Returns how a run ended, from the log.
async fn outcome(formwork: &Formwork, run: RunId) -> Option<RunOutcome> {
    let kinds = vec!["run.finished".to_owned()];
    let selection = Selection { run: Some(run), task: None, kinds };
    let events = formwork.inner.store.read(Position::default(), &selection, 1).await.ok()?;
    events.into_iter().find_map(|event| match event.body {
        EventBody::RunFinished(finished) => Some(finished.outcome),
        _ => None,
    })
}

/// Tells whether something failed because the log is away for a while: somebody else holds it, its disk is full, its server is
/// not there.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Store(error) => formwork_trace::passes(error),
        Error::State { source, .. } => {
            matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        }
        _ => false,
    }
}

fn tell(formwork: &Weak<Inner>, run: RunId, away: Option<String>) {
    if let Some(inner) = formwork.upgrade() {
        inner.away.send_if_modified(|told| match away {
            Some(why) => told.insert(run, why.clone()) != Some(why),
            None => told.remove(&run).is_some(),
        });
    }
}
