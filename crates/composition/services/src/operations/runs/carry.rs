//! A run that is carried out, and taken up again where its log was away for a while.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use formwork_protocols::{RunId, RunOutcome, StoreError};
use formwork_scheduler::{NewRun, Scheduler, Signals};

use super::{Ending, ended, kept, leftover, named, own, recorded, scheduler, workshop};
use crate::{
    Error, Formwork,
    capability::Caller,
    executor::Workshop,
    formwork::Inner,
    observers::{Observers, Ready},
    presence::Presence,
    trust,
};

/// How long it is waited before the log is tried again: at first, and at the most.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// All that a run goes on with in this process.
pub(super) struct Carried {
    pub(super) scheduler: Scheduler,
    pub(super) present: Presence,
    pub(super) ending: Arc<Ending>,
    pub(super) workshop: Arc<Workshop>,
    pub(super) observers: Observers,
}

impl Carried {
    /// Carries it out to its end, from its beginning where it is `new`, else from where it was left.
    async fn go(
        self,
        run: RunId,
        new: Option<NewRun>,
        signals: &Signals,
    ) -> Result<RunOutcome, Error> {
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
        observers.finish().await;
        done
    }
}

/// Puts together what a run goes on with that was left.
///
/// # Errors
/// What stands in its way: it has ended, it came from a file, its workspace is another, what it stood on is no longer trusted.
pub(super) async fn taken_up(
    formwork: &Formwork,
    caller: &Caller,
    run: RunId,
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
    let head = formwork.inner.store.head().await?;
    let observers = Ready::of(&workshop)?.begin(&workshop, run, head).await?;
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
        let mut done = carried.go(run, new, &watched).await;
        let mut left = weak.upgrade().map_or(Duration::ZERO, |inner| inner.log_wait());
        let mut pause = FIRST;
        while let Err(error) = &done
            && is_away(error)
            && !left.is_zero()
        {
            let told = error.to_string();
            tell(&weak, Some(told));
            let wait = pause.min(left);
            tokio::select! {
                biased;
                () = watched.pause.cancelled() => break,
                () = watched.abort.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
            left -= wait;
            let Some(inner) = weak.upgrade() else { break };
            let formwork = Formwork { inner };
            match Box::pin(taken_up(&formwork, &caller, run)).await {
                Ok(carried) => {
                    drop(formwork);
                    tell(&weak, None);
                    done = carried.go(run, None, &watched).await;
                    pause = FIRST;
                }
                // It ended before the log went away: what was left to do is told by what it failed with.
                Err(Error::NotResumable { .. }) => break,
                Err(error) => {
                    done = Err(error);
                    pause = (pause * 2).min(LONGEST);
                }
            }
        }
        tell(&weak, None);
        done
    });
}

/// Tells whether something failed because the log is away for a while: somebody else holds it, its disk is full, its server is
/// not there.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Store(StoreError::Unavailable { at, reason } | StoreError::Open { at, reason }) => {
            let passes = [formwork_trace::LOCKED, formwork_trace::FULL];
            at.starts_with("postgres:") || passes.contains(&reason.as_str())
        }
        Error::State { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
        _ => false,
    }
}

fn tell(formwork: &Weak<Inner>, away: Option<String>) {
    if let Some(inner) = formwork.upgrade() {
        inner.away.send_if_modified(|told| {
            let is_new = *told != away;
            *told = away;
            is_new
        });
    }
}
