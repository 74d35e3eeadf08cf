//! Programs that the tasks need while they work: started before the first of them, watched, and ended after the last.
//!
//! Nothing of the tasks is decided before all of them are ready. Where one ends by itself it is started again, as often as it
//! says, and no work begins meanwhile; then every task that is under way fails for it.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use formwork_protocols::{
    Blob, Cancel, Escalation, EventBody, Span, TaskState,
    event::{ServiceFailed, ServiceReady, ServiceStarted, ServiceStopped},
    spec::ServiceSpec,
    text,
};
use futures::FutureExt as _;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{drive::Drive, tree::one_line, work::Effect};
use crate::{
    core::Input,
    error::Error,
    executor::{Executor, ServiceEnd, ServiceJob},
};

/// How long is waited between two looks whether a service is ready: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How much of the end of an output stands in a reason.
const TOLD: usize = 400;

/// What comes of services, before somebody heeds it: two for each start.
const NEWS: usize = 64;

/// Something that came of a service.
pub(super) struct News {
    /// Its place among the services, and which start of it.
    at: usize,
    number: u32,
    what: What,
}

enum What {
    Ready {
        elapsed: Span,
    },
    /// It has ended; where that is for not being ready in time, with what the last look found.
    Ended {
        end: ServiceEnd,
        was_ready: bool,
        unready: Option<String>,
    },
}

/// A start of a service.
pub(super) struct Serve {
    at: usize,
    number: u32,
    /// Why its command stands for nothing.
    filled: Result<(), String>,
    job: ServiceJob,
}

/// A service, and where it stands.
struct Service {
    spec: ServiceSpec,
    number: u32,
    restarts: u32,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Off,
    Starting,
    Ready,
}

/// The services of a run.
pub(super) struct Services {
    all: Vec<Service>,
    stop: Cancel,
    jobs: JoinSet<()>,
    sender: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    /// Whether the tasks have begun to work with them.
    has_begun: bool,
    /// Whether one is given up, or all are no more needed.
    is_over: bool,
}

impl Services {
    pub(super) fn of(specs: &[ServiceSpec]) -> Self {
        let (sender, news) = mpsc::channel(NEWS);
        let off = |spec: &ServiceSpec| Service {
            spec: spec.clone(),
            number: 0,
            restarts: 0,
            standing: Standing::Off,
        };
        Self {
            all: specs.iter().map(off).collect(),
            stop: Cancel::new(),
            jobs: JoinSet::new(),
            sender,
            news,
            has_begun: false,
            is_over: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the next thing that comes of one. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// Tells whether one is not ready that the tasks need.
    pub(super) fn are_awaited(&self) -> bool {
        !self.is_over && self.all.iter().any(|one| one.standing == Standing::Starting)
    }

    /// Ends all of them at once.
    pub(super) async fn shutdown(&mut self) {
        self.jobs.shutdown().await;
    }
}

impl Drive {
    /// Starts all services. What is decided of the tasks is decided once they are ready.
    pub(super) fn start_services(&mut self) {
        for at in 0..self.services.all.len() {
            self.start_service(at);
        }
    }

    fn start_service(&mut self, at: usize) {
        let root = self.tree.state.root();
        let (task, spec) = (self.tree.state.id(root), Arc::clone(self.tree.state.spec(root)));
        let Some(one) = self.services.all.get_mut(at) else { return };
        one.number += 1;
        one.standing = Standing::Starting;
        let (number, mut service) = (one.number, one.spec.clone());
        let filled = self.fill(root, &mut service.argv).and_then(|()| match &mut service.ready {
            Some(ready) => self.fill(root, &mut ready.argv),
            None => Ok(()),
        });
        let argv = service.argv.clone();
        let started = ServiceStarted { service: service.name.clone(), number, argv };
        self.record(Some(task), EventBody::ServiceStarted(started));
        let job = ServiceJob { run: self.run, task, spec, service };
        // It is begun once it is recorded that it is.
        self.effects.push(Effect::Serve(Box::new(Serve { at, number, filled, job })));
    }

    /// Begins a service, and looks whether it is ready.
    pub(super) fn serve(&mut self, serve: Serve) {
        let Serve { at, number, filled, job } = serve;
        let (executor, sender) =
            (Arc::clone(&self.scheduler.executor), self.services.sender.clone());
        // One that is not ready in time is ended alone.
        let stop = self.services.stop.child();
        let teller = Teller { at, number, sender };
        self.services.jobs.spawn(async move {
            if let Err(how) = filled {
                return teller.tell(ended_by(how)).await;
            }
            let work = AssertUnwindSafe(served(&*executor, &job, &stop, &teller)).catch_unwind();
            if work.await.is_err() {
                teller.tell(ended_by("it panicked".to_owned())).await;
            }
        });
    }

    /// Heeds what came of a service.
    pub(super) fn heed_service(&mut self, news: News) {
        let News { at, number, what } = news;
        let root = self.tree.state.root();
        let id = self.tree.state.id(root);
        let (is_over, has_begun) = (self.services.is_over, self.services.has_begun);
        let Some(one) = self.services.all.get_mut(at) else { return };
        let service = one.spec.name.clone();
        match what {
            What::Ready { elapsed } => {
                one.standing = Standing::Ready;
                let ready = ServiceReady { service, number, elapsed };
                self.record(Some(id), EventBody::ServiceReady(ready));
                if !has_begun && !is_over && !self.services.are_awaited() {
                    self.services.has_begun = true;
                    // To wait for them was no work.
                    self.since = self.now();
                    self.begin_tasks(false, false);
                }
            }
            What::Ended { end, .. } if is_over => {
                one.standing = Standing::Off;
                let ServiceEnd { how, output, .. } = end;
                let output = self.keep(output);
                let stopped = ServiceStopped { service, number, reason: one_line(&how), output };
                self.record(Some(id), EventBody::ServiceStopped(Box::new(stopped)));
            }
            What::Ended { end, was_ready, unready } => {
                one.standing = Standing::Off;
                let again = has_begun && one.restarts < one.spec.restarts;
                one.restarts += u32::from(again);
                let ServiceEnd { how, excerpt, output } = end;
                let reason = match (unready, was_ready) {
                    (Some(found), _) => found,
                    (None, true) => format!("has ended ({how}) while tasks needed it"),
                    (None, false) => format!("has ended ({how}) before it was ready"),
                };
                let reason = one_line(&reason);
                let told = text::tail(excerpt.trim_end(), TOLD);
                let detail = if told.is_empty() {
                    reason.clone()
                } else {
                    format!("{reason}; it said: {}", one_line(told))
                };
                let output = self.keep(output);
                let failed = ServiceFailed {
                    service: service.clone(),
                    number,
                    was_ready,
                    reason,
                    excerpt,
                    output,
                    again,
                };
                self.record(Some(id), EventBody::ServiceFailed(Box::new(failed)));
                if again {
                    self.start_service(at);
                } else {
                    self.do_without(Escalation::ServiceFailed { service, detail });
                }
            }
        }
    }

    fn keep(&mut self, output: Option<Blob>) -> Option<formwork_protocols::BlobHash> {
        let output = output?;
        let hash = output.hash();
        self.blobs.push(output);
        Some(hash)
    }

    /// Gives up what needs a service that is not to be had.
    fn do_without(&mut self, why: Escalation) {
        self.services.is_over = true;
        self.services.stop.cancel();
        let root = self.tree.state.root();
        let state = self.tree.state.state_of(root);
        if self.services.has_begun {
            // Those that are under way fail for it, and not because the one around them does.
            let under_way: Vec<_> = self
                .tree
                .state
                .tasks()
                .filter(|task| *task != root && self.tree.state.is_leaf(*task))
                .collect();
            for task in under_way {
                self.decide_late(Input::TimedOut { task, why: why.clone() });
            }
            self.decide_late(Input::TimedOut { task: root, why });
        } else if state == TaskState::Created {
            self.decide_late(Input::Unready { why });
        } else if !self.is_aborting {
            // What was done before is not lost with it: it can be taken up once it is to be had.
            self.why_paused = why.to_string();
            self.unready = Some(why.to_string());
            self.pause();
        }
    }

    /// Ends all services, and goes on to show signs of life meanwhile.
    pub(super) async fn stop_services(&mut self) -> Result<(), Error> {
        self.services.is_over = true;
        self.services.stop.cancel();
        // One that was not begun yet is not begun any more.
        self.effects.retain(|effect| !matches!(effect, Effect::Serve(_)));
        while self.services.all.iter().any(|one| one.standing != Standing::Off) {
            if self.services.jobs.is_empty() {
                while let Ok(news) = self.services.news.try_recv() {
                    self.heed_service(news);
                }
                // Of what has told nothing by now nothing runs.
                self.services.all.iter_mut().for_each(|one| one.standing = Standing::Off);
                break;
            }
            tokio::select! {
                biased;
                Some(news) = self.services.news.recv() => self.heed_service(news),
                Some(_) = self.services.jobs.join_next() => {}
                () = sleep_until(self.renewal) => self.renew().await?,
            }
        }
        Ok(())
    }
}

/// Tells the run what comes of a start of a service.
struct Teller {
    at: usize,
    number: u32,
    sender: mpsc::Sender<News>,
}

impl Teller {
    async fn tell(&self, what: What) {
        // Nobody listens any more where the run is over.
        drop(self.sender.send(News { at: self.at, number: self.number, what }).await);
    }
}

/// Says that a service has ended of which nothing ran, or nobody knows what did.
fn ended_by(how: String) -> What {
    let end = ServiceEnd { how, excerpt: String::new(), output: None };
    What::Ended { end, was_ready: false, unready: None }
}

/// Runs a service until it ends, and tells when it is ready and how it ended.
async fn served(executor: &dyn Executor, job: &ServiceJob, stop: &Cancel, teller: &Teller) {
    let served = executor.serve(job.clone(), stop);
    tokio::pin!(served);
    let looked = tokio::select! {
        biased;
        end = &mut served => {
            return teller.tell(What::Ended { end, was_ready: false, unready: None }).await;
        }
        looked = until_ready(executor, job) => looked,
    };
    match looked {
        Ok(elapsed) => {
            teller.tell(What::Ready { elapsed }).await;
            let end = served.await;
            teller.tell(What::Ended { end, was_ready: true, unready: None }).await;
        }
        Err(found) => {
            stop.cancel();
            let end = served.await;
            teller.tell(What::Ended { end, was_ready: false, unready: Some(found) }).await;
        }
    }
}

/// Looks again and again whether a service is ready, and returns how long that took.
///
/// # Errors
/// What the last look found, where it has no more time.
async fn until_ready(executor: &dyn Executor, job: &ServiceJob) -> Result<Span, String> {
    let Some(ready) = &job.service.ready else { return Ok(Span::ZERO) };
    let began = Instant::now();
    let mut found = String::new();
    let looking = async {
        let mut pause = LOOK.0;
        while let Err(why) = executor.is_ready(job).await {
            found = why;
            sleep(pause).await;
            pause = (pause * 2).min(LOOK.1);
        }
    };
    let looked = timeout(ready.timeout.as_duration(), looking).await;
    looked.map(|()| Span::from(began.elapsed())).map_err(|_| {
        let found = one_line(&found);
        let found = if found.is_empty() { "no look at it has ended".to_owned() } else { found };
        format!("was not ready after {}: {found}", ready.timeout)
    })
}
