//! Everything wired together, and the builder that wires it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak},
    time::{Duration, SystemTime},
};

use formwork_auth::Guard;
use formwork_protocols::{
    Approver, Clock, Live, Provider, Rng, RunId, RunOutcome, Scrub, Span, Store, StoreError,
    SystemClock, SystemRng, Timestamp, Tool,
    overseer::{Choice, Overseer},
};
use formwork_sandbox::{Environment, Launcher, Sandbox};
use formwork_scheduler::{Natives, Signals};
use formwork_secrets::Scrubber;
use formwork_trace::{LapseBy, Look, Options, Trace};
use formwork_transport::InfoCache;

use formwork_worker::Hub;
use formwork_write_safety::{Root, Snapshots, Trash};
use futures::{StreamExt as _, stream::BoxStream};
use serde_json::Value;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{
    Error, baseline,
    config::{Config, SandboxMode},
    models::{Keys, Models},
    private,
    trust::{Brought, Parted},
};

/// Puts something around a log.
type Wrap = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

/// Puts Formwork together, with an embedded default for everything but the workspace.
pub struct Builder {
    workspace: PathBuf,
    state: Option<PathBuf>,
    configured: Option<PathBuf>,
    config: Config,
    base: Option<PathBuf>,
    environment: BTreeMap<OsString, OsString>,
    launcher: Option<PathBuf>,
    record: Option<PathBuf>,
    providers: Vec<Arc<dyn Provider>>,
    tools: Vec<Arc<dyn Tool>>,
    natives: Natives,
    clock: Arc<dyn Clock>,
    lapse: LapseBy,
    rng: Arc<dyn Rng>,
    around: Vec<Wrap>,
    lease: Option<Span>,
    approver: Option<Arc<dyn Approver>>,
    overseer: Option<(Arc<dyn Overseer>, Span)>,
    grant: Option<Vec<Choice>>,
    hub: Option<Hub>,
    use_of: Use,
    project: Option<Brought>,
}

/// What something is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Work,
    Reading,
}

impl Builder {
    /// Begins with a workspace.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            state: None,
            configured: None,
            config: Config::default(),
            base: None,
            environment: BTreeMap::new(),
            launcher: None,
            record: None,
            providers: Vec::new(),
            tools: Vec::new(),
            natives: Natives::new(),
            clock: Arc::new(SystemClock),
            lapse: LapseBy::default(),
            rng: Arc::new(SystemRng),
            around: Vec::new(),
            lease: None,
            approver: None,
            overseer: None,
            grant: None,
            hub: None,
            use_of: Use::Work,
            project: None,
        }
    }

    /// Opens what is there for reading alone: no folder and no file is made, and what cannot be written, on a full disk or in
    /// the folder of somebody else, is read all the same. Where there is no log, it holds nothing; what writes fails.
    #[must_use]
    pub const fn reading(mut self) -> Self {
        self.use_of = Use::Reading;
        self
    }

    /// Says where the log, the trash, the snapshots and what is trusted are; `.formwork/state` in the workspace otherwise,
    /// and then nothing that comes with the workspace can be trusted.
    #[must_use]
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Some(folder.into());
        self
    }

    /// Says where a person's own config is. Where that lies within the workspace, nobody writes it.
    #[must_use]
    pub fn configured(mut self, folder: impl Into<PathBuf>) -> Self {
        self.configured = Some(folder.into());
        self
    }

    /// Takes a config.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Names the workspace's own config, which was trusted and is part of what [`Builder::config`] took: a run that stands
    /// on it is resumed only while it is trusted.
    #[must_use]
    pub fn project(mut self, config: Brought) -> Self {
        self.project = Some(config);
        self
    }

    /// Says where relative paths of the config begin; at the workspace otherwise.
    #[must_use]
    pub fn base(mut self, folder: impl Into<PathBuf>) -> Self {
        self.base = Some(folder.into());
        self
    }

    /// Takes the environment that keys are looked up in and that processes see part of; none otherwise.
    #[must_use]
    pub fn environment<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.environment =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }

    /// Names the program that confines processes: one whose `main` begins with
    /// [`formwork_sandbox::launcher::intercept`], or an installed `formwork-launcher`.
    #[must_use]
    pub fn launcher(mut self, program: impl Into<PathBuf>) -> Self {
        self.launcher = Some(program.into());
        self
    }

    /// Keeps the traffic with providers in this folder, without secrets, so that it can be replayed: by a provider of
    /// kind `recorded` whose address the folder is.
    #[must_use]
    pub fn record(mut self, folder: impl Into<PathBuf>) -> Self {
        self.record = Some(folder.into());
        self
    }

    /// Adds a provider of one's own; it takes the place of a configured one of the same name.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds a tool of one's own.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Takes the functions that tasks may name as their bodies.
    #[must_use]
    pub fn natives(mut self, natives: Natives) -> Self {
        self.natives = natives;
        self
    }

    /// Takes another clock and another source of chance. Leases lapse by this clock too, whatever a server says.
    #[must_use]
    pub fn time(mut self, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        (self.clock, self.lapse) = (clock, LapseBy::Options);
        self.rng = rng;
        self
    }

    /// Puts something of one's own between Formwork and its log, which it is given: to count, to watch or to
    /// hold up what is recorded. Whatever it lets through is recorded as it is.
    #[must_use]
    pub fn around_log(
        mut self,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send + 'static,
    ) -> Self {
        self.around.push(Box::new(wrap));
        self
    }

    /// Says how long a run is owned without a sign of life; half a minute otherwise. After this, a run whose
    /// process died on another machine can be taken up.
    #[must_use]
    pub const fn lease(mut self, lease: Span) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Takes who is asked about calls that the rules leave open. Without one, such calls are refused, and the
    /// refusal says how to allow them beforehand.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Takes who governs runs: they are asked about tasks that would be given up and of which nobody within the run hears who
    /// could do something about it. Without one, and where they have not answered `within` so long, the task is given up and a
    /// person is asked in the inbox, who is answered for by what is assumed.
    #[must_use]
    pub fn overseer(mut self, overseer: Arc<dyn Overseer>, within: Span) -> Self {
        self.overseer = Some((overseer, within));
        self
    }

    /// Says what whoever governs runs may decide alone: all that can be done, where nobody says less. What they decide beyond it
    /// is not done, and a person is asked in the inbox.
    #[must_use]
    pub fn overseer_may(mut self, may: impl IntoIterator<Item = Choice>) -> Self {
        self.grant = Some(may.into_iter().collect());
        self
    }

    /// Takes where workers are connected, to which tasks with a target go. Without one, such tasks are refused.
    #[must_use]
    pub fn workers(mut self, hub: Hub) -> Self {
        self.hub = Some(hub);
        self
    }

    /// Tells where the log is and which version it has. Makes and changes nothing.
    ///
    /// # Errors
    /// [`Error::Store`] when it cannot be reached, or is no log.
    pub async fn look(&self) -> Result<Look, Error> {
        Ok(Trace::look(&self.database_url(), Options::default().wait).await?)
    }

    /// Tells which pages of the log's file are damaged, where it cannot even be opened for them.
    ///
    /// # Errors
    /// [`Error::Store`] when it cannot be reached.
    pub async fn pages(&self) -> Result<Vec<String>, Error> {
        Ok(Trace::pages_at(&self.database_url(), Options::default().wait).await?)
    }

    fn database_url(&self) -> String {
        self.config.database_url.clone().unwrap_or_else(|| {
            let own = self.workspace.join(".formwork/state");
            default_database_url(self.state.as_deref().unwrap_or(&own))
        })
    }

    /// Opens the workspace and the log. No key is read and nothing is sent before a run needs it.
    ///
    /// # Errors
    /// [`Error::Workspace`], [`Error::State`] and [`Error::Store`] name the folder or file.
    pub async fn build(self) -> Result<Formwork, Error> {
        let root = Arc::new(Root::open(&self.workspace)?);
        let own = self.state.is_none();
        let state = self.state.unwrap_or_else(|| root.path().join(".formwork/state"));
        let made = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::State { action, path, source }
        };
        let temporary = state.join("tmp");
        let reads = self.use_of == Use::Reading;
        if !reads {
            private::folder(&temporary).map_err(made("make the folder", &temporary))?;
        }
        if own && !reads {
            // What Formwork keeps within a workspace is not part of it.
            let ignore = state.join(".gitignore");
            fs::write(&ignore, "*\n").map_err(made("write", &ignore))?;
        }
        let record = self.record.map(|folder| {
            Recording::open(folder.clone()).map_err(made("make the folder", &folder))
        });
        let record = record.transpose()?;
        let scrub = Arc::new(LateScrub::default());
        let url = match &self.config.database_url {
            Some(url) => url.clone(),
            // Nothing was ever done here.
            None if reads && !state.exists() => "sqlite::memory:".to_owned(),
            None => default_database_url(&state),
        };
        if self.config.database_url.is_none() {
            is_no_log_that_was_emptied(&state)?;
        }
        let options = Options {
            scrub: Arc::clone(&scrub) as _,
            clock: Arc::clone(&self.clock),
            lapse: self.lapse,
            ..Options::default()
        };
        let trace = match self.use_of {
            Use::Work => Trace::open(&url, options).await?,
            Use::Reading => Trace::open_to_read(&url, options).await?,
        };
        let (trash, snapshots) = (state.join("trash"), state.join("snapshots"));
        let (trash, snapshots) = match self.use_of {
            Use::Work => (Trash::open(trash)?, Snapshots::open(snapshots)?),
            Use::Reading => (Trash::open_to_read(trash)?, Snapshots::at(snapshots)),
        };
        let environment = Environment::new(self.environment.clone());
        let mut sandbox = Sandbox::new(environment, &temporary).with_temporary(&temporary);
        if let Some(launcher) = &self.launcher {
            sandbox = sandbox.with_launcher(Launcher::new(launcher));
        }
        let store: Arc<dyn Store> =
            self.around.into_iter().fold(Arc::new(trace.clone()) as _, |log, wrap| wrap(log));
        let inner = Inner {
            guard: Guard::new(
                Arc::clone(&store) as _,
                Arc::clone(&self.clock),
                Arc::new(SystemRng),
            ),
            base: self.base.unwrap_or_else(|| root.path().to_owned()),
            trash: Arc::new(trash),
            snapshots: Arc::new(snapshots),
            root,
            state,
            configured: self.configured,
            config: self.config,
            environment: self.environment,
            has_launcher: self.launcher.is_some(),
            sandbox: Arc::new(sandbox),
            store,
            lease: self.lease,
            approver: self.approver,
            overseer: self.overseer,
            grant: self.grant,
            hub: self.hub,
            project: self.project,
            trace,
            scrub,
            record,
            providers: self.providers,
            tools: self.tools,
            natives: self.natives,
            clock: self.clock,
            rng: self.rng,
            infos: InfoCache::default(),
            running: Arc::default(),
            runs: Mutex::default(),
            requests: OnceLock::new(),
            away: watch::Sender::default(),
        };
        Ok(Formwork { inner: Arc::new(inner) })
    }
}

/// The folder where answers are kept. What was made for it goes again where nothing was kept.
pub(crate) struct Recording {
    folder: PathBuf,
    /// The folders that were made, the innermost first.
    made: Vec<PathBuf>,
}

impl Recording {
    fn open(folder: PathBuf) -> io::Result<Self> {
        let missing =
            folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists());
        let made = missing.map(Path::to_owned).collect();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, made })
    }

    fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // One that holds anything stays, and so do those around it.
        let _ = self.made.iter().try_for_each(fs::remove_dir);
    }
}

/// Formwork, open on a workspace. Clones share it.
#[derive(Clone)]
pub struct Formwork {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) base: PathBuf,
    pub(crate) root: Arc<Root>,
    pub(crate) state: PathBuf,
    pub(crate) configured: Option<PathBuf>,
    pub(crate) config: Config,
    pub(crate) environment: BTreeMap<OsString, OsString>,
    pub(crate) has_launcher: bool,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) store: Arc<dyn Store>,
    /// Who may ask from outside. Tokens are made of the machine's chance, whatever else is.
    guard: Guard,
    trace: Trace,
    pub(crate) scrub: Arc<LateScrub>,
    pub(crate) trash: Arc<Trash>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) record: Option<Recording>,
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) natives: Natives,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) lease: Option<Span>,
    /// Who is asked about calls, if anybody is there.
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) overseer: Option<(Arc<dyn Overseer>, Span)>,
    pub(crate) grant: Option<Vec<Choice>>,
    /// Where workers are connected, if this process takes any.
    pub(crate) hub: Option<Hub>,
    /// The workspace's own config, where the config stands on it.
    pub(crate) project: Option<Brought>,
    /// What servers of models said of themselves a moment ago.
    pub(crate) infos: InfoCache,
    running: Arc<Mutex<Runs>>,
    runs: Mutex<JoinSet<()>>,
    /// Passes on what is asked of the runs, from the first of them on.
    requests: OnceLock<Mutex<JoinSet<()>>>,
    /// Why the log is away that runs wait for.
    pub(crate) away: watch::Sender<BTreeMap<RunId, String>>,
}

impl Inner {
    /// Returns how long a run waits for a log that is away, all times together.
    pub(crate) fn log_wait(&self) -> Duration {
        self.config.log_wait.map_or(LOG_WAIT, Span::as_duration)
    }
}

/// The most runs that have ended and that nobody has waited for, of which the outcome is still kept: whoever waits does so soon
/// after the beginning, and the log keeps all.
const MOST_ENDED: usize = 1_000;

/// A run that this process carries out, or has carried out while nobody waited.
struct Running {
    /// Tells one from another of the same run, which was taken up again.
    number: u64,
    signals: Signals,
    done: Option<oneshot::Receiver<Result<RunOutcome, Error>>>,
}

/// The runs of this process.
#[derive(Default)]
struct Runs {
    runs: HashMap<RunId, Running>,
    /// Those that have ended and that nobody has waited for, in that order.
    ended: VecDeque<RunId>,
    begun: u64,
}

impl Runs {
    fn begin(
        &mut self,
        run: RunId,
        signals: Signals,
        done: oneshot::Receiver<Result<RunOutcome, Error>>,
    ) -> u64 {
        self.begun += 1;
        let number = self.begun;
        self.ended.retain(|ended| *ended != run);
        self.runs.insert(run, Running { number, signals, done: Some(done) });
        number
    }

    /// Takes note that one has ended; what nobody waits for is kept for a while.
    fn end(&mut self, run: RunId, number: u64) {
        match self.runs.get(&run) {
            Some(running) if running.number == number && running.done.is_none() => {
                self.runs.remove(&run);
            }
            Some(running) if running.number == number => {
                self.ended.push_back(run);
                if self.ended.len() > MOST_ENDED
                    && let Some(oldest) = self.ended.pop_front()
                {
                    self.runs.remove(&oldest);
                }
            }
            Some(_) | None => {}
        }
    }

    /// Takes what tells the outcome of a run.
    fn outcome(&mut self, run: RunId) -> Option<oneshot::Receiver<Result<RunOutcome, Error>>> {
        let done = self.runs.get_mut(&run)?.done.take();
        if self.ended.contains(&run) {
            self.ended.retain(|ended| *ended != run);
            self.runs.remove(&run);
        }
        done
    }
}

impl Formwork {
    /// Returns the log and its views.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.store)
    }

    /// Returns whoever knows the credentials of the log, and takes the tokens of those who ask from outside.
    pub fn guard(&self) -> &Guard {
        &self.inner.guard
    }

    /// Returns the log as a whole, for what only its own store can do.
    pub(crate) fn trace(&self) -> &Trace {
        &self.inner.trace
    }

    /// Returns the folder of state.
    pub(crate) fn state(&self) -> &Path {
        &self.inner.state
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Returns what takes secrets out, with all keys that can be had.
    pub(crate) fn scrub(&self) -> &dyn Scrub {
        // One that cannot be had is no secret that could be found.
        let _ = self.models(&self.inner.config);
        self.inner.scrub.as_ref()
    }

    /// Returns the root of the workspace.
    pub fn workspace(&self) -> &Path {
        self.inner.root.path()
    }

    /// Waits for a run that this process began or resumed, and returns its outcome. Once a run; of those that ended while
    /// nobody waited the outcome of the last thousand is kept, and the log has all.
    ///
    /// # Errors
    /// [`Error::Stopped`] when it could not be carried on, or is none of this process.
    pub async fn wait(&self, run: RunId) -> Result<RunOutcome, Error> {
        let done = lock(&self.inner.running).outcome(run);
        let stopped = |reason: &str| Error::Stopped { run, reason: reason.to_owned() };
        let done = done.ok_or_else(|| stopped("this process does not carry it out"))?;
        done.await.unwrap_or_else(|_| Err(stopped("its task ended without a word")))
    }

    /// Returns what tells which runs of this process wait for a log that is away, and why; nothing while none does. What holds
    /// already counts as a change that was not seen yet.
    pub fn away(&self) -> watch::Receiver<BTreeMap<RunId, String>> {
        let mut away = self.inner.away.subscribe();
        away.mark_changed();
        away
    }

    /// Breaks a run off, so that it can be resumed. Returns at once; [`Formwork::wait`] tells when it is done.
    pub fn interrupt(&self, run: RunId) {
        if let Some(running) = lock(&self.inner.running).runs.get(&run) {
            running.signals.pause.cancel();
        }
    }

    /// Returns what a run has changed in the workspace as a unified diff, whoever changed it meanwhile.
    ///
    /// # Errors
    /// [`Error::Workspace`] when a file cannot be read.
    pub async fn diff(&self, run: RunId) -> Result<String, Error> {
        let inner = &self.inner;
        let snapshots = Arc::clone(&inner.snapshots);
        let changes =
            baseline::since(&*inner.store, snapshots, Arc::clone(&inner.root), run).await?;
        Ok(changes.into_iter().map(|change| change.diff).collect())
    }

    /// Ends what is under way, so that it can be resumed, and closes the log.
    pub async fn close(&self) {
        self.end().await;
        self.inner.trace.close().await;
    }

    /// The same in a process that itself ends at once, which does not close a log that it has only read: see
    /// [`Trace::quit`].
    pub async fn leave(self) {
        self.end().await;
        self.inner.trace.clone().quit().await;
    }

    async fn end(&self) {
        for running in lock(&self.inner.running).runs.values() {
            running.signals.pause.cancel();
        }
        let runs = std::mem::take(&mut *lock(&self.inner.runs));
        runs.join_all().await;
        if let Some(requests) = self.inner.requests.get() {
            let mut requests = std::mem::take(&mut *lock(requests));
            requests.shutdown().await;
        }
    }

    /// Lists the agents of the workspace and the built-in ones, parted by what is trusted.
    ///
    /// # Errors
    /// [`Error::Documents`] lists every fault of their files.
    pub(crate) fn agents(&self) -> Result<Parted, Error> {
        let all = crate::documents::agents(self.workspace())?;
        Ok(Parted::of(&all, self.state(), self.workspace()))
    }

    /// Reads the keys and connects the providers. From here on, what is secret is known.
    pub(crate) fn models(&self, config: &Config) -> Result<(Keys, Models), Error> {
        let inner = &self.inner;
        let keys = Keys::read(config, &inner.environment, &inner.base)?;
        inner.scrub.learn(&keys.registry.scrubber());
        let seams = (
            Arc::clone(&inner.scrub) as Arc<dyn Scrub>,
            Arc::clone(&inner.rng),
            Arc::clone(&inner.clock),
        );
        let models = Models::connect(
            config,
            &keys,
            (&inner.base, inner.record.as_ref().map(Recording::folder)),
            &inner.providers,
            seams,
        )?;
        Ok((keys, models))
    }

    /// Carries work out on behalf of a run until that ends.
    pub(crate) fn spawn<F>(&self, run: RunId, signals: Signals, work: F)
    where
        F: Future<Output = Result<RunOutcome, Error>> + Send + 'static,
    {
        // Before the run is known here, so that no request falls between.
        self.inner.requests.get_or_init(|| {
            let mut tasks = JoinSet::new();
            tasks.spawn(pass_on(self.inner.store.watch(), Arc::downgrade(&self.inner)));
            Mutex::new(tasks)
        });
        let (tell, done) = oneshot::channel();
        let running = Arc::clone(&self.inner.running);
        let number = lock(&running).begin(run, signals, done);
        let mut runs = lock(&self.inner.runs);
        // What has ended is let go of, with all that it held.
        while runs.try_join_next().is_some() {}
        runs.spawn(async move {
            let outcome = work.await;
            lock(&running).end(run, number);
            // Nobody may wait for it; the log tells as much.
            let _ = tell.send(outcome);
        });
    }
}

impl fmt::Debug for Formwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Formwork")
            .field("workspace", &self.inner.root.path())
            .field("state", &self.inner.state)
            .finish_non_exhaustive()
    }
}

/// Tells the runs of this process that something was asked of them, by whatever process.
async fn pass_on(mut happening: BoxStream<'static, Live>, inner: Weak<Inner>) {
    while let Some(happened) = happening.next().await {
        let Some(inner) = inner.upgrade() else { return };
        match happened {
            Live::Event(event) if !event.body.needs_lease() => {
                if let Some(running) = lock(&inner.running).runs.get(&event.run) {
                    running.signals.look();
                }
            }
            // What was asked stands in the log, and each run finds its own.
            Live::Lagged(_) => {
                lock(&inner.running).runs.values().for_each(|run| run.signals.look());
            }
            Live::Event(_) | Live::Delta(_) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scrubber that learns what is secret when keys are read, for the first run and for each one after it.
#[derive(Default)]
pub(crate) struct LateScrub(RwLock<Option<Scrubber>>);

impl LateScrub {
    /// Takes more for secret. What was secret stays so: runs of other secrets go on beside this one, or are read again.
    fn learn(&self, scrubber: &Scrubber) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(match known.take() {
            Some(known) => known.and(scrubber),
            None => scrubber.clone(),
        });
    }

    fn known(&self) -> Option<Scrubber> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Scrub for LateScrub {
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.known() {
            Some(scrubber) => scrubber.scrub_text(text),
            None => Cow::Borrowed(text),
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        if let Some(scrubber) = self.known() {
            scrubber.scrub_value(value);
        }
    }
}

/// Returns where the log is unless the config says otherwise.
pub fn default_database_url(state: &Path) -> String {
    format!("sqlite://{}", state.join("formwork.db").display())
}

/// How long a run waits for a log that is away where the config does not say: as long as it takes to make room on a disk.
const LOG_WAIT: Duration = Duration::from_secs(600);

/// Checks that a log of nothing is a new one: beside one that was emptied are the snapshots of the runs that it knew.
fn is_no_log_that_was_emptied(state: &Path) -> Result<(), StoreError> {
    let file = state.join("formwork.db");
    let length = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    let is_empty = length(&file) == Some(0)
        && length(&state.join("formwork.db-wal")).is_none_or(|length| length == 0);
    if is_empty && is_older_than_what_is_kept(&file, &state.join("snapshots").join("trees")) {
        let at = file.display().to_string();
        let detail = "it has 0 bytes, and beside it are the snapshots of runs".to_owned();
        return Err(StoreError::Corrupt { at, detail });
    }
    Ok(())
}

/// Tells whether anything is kept, and the file was there before all of it: one that is made anew is not, as after the log was
/// removed, also where whoever made it was killed over that. Where a file system does not tell when, it counts as older.
fn is_older_than_what_is_kept(file: &Path, kept: &Path) -> bool {
    let kept = fs::read_dir(kept).into_iter().flatten().flatten();
    let kept: Vec<_> = kept.map(|entry| entry.metadata().and_then(|of| of.modified())).collect();
    let born = fs::metadata(file).and_then(|of| of.created());
    let is_newer = |born: SystemTime| kept.iter().all(|at| at.as_ref().is_ok_and(|at| *at < born));
    !kept.is_empty() && !born.is_ok_and(is_newer)
}

/// Returns what holds where no layer of config says anything, by dotted keys.
pub fn built_in() -> Vec<(String, Value)> {
    vec![
        ("log_wait".to_owned(), Value::String("10m".to_owned())),
        ("permissions.mode".to_owned(), Value::String("ask".to_owned())),
        ("instructions.files".to_owned(), serde_json::json!(["AGENTS.md"])),
        ("instructions.tokens".to_owned(), serde_json::json!(crate::repository::TOKENS)),
        ("sandbox".to_owned(), serde_json::to_value(SandboxMode::default()).unwrap_or(Value::Null)),
    ]
}

#[cfg(test)]
mod tests {
    use formwork_secrets::{Registry, SecretName};

    use super::*;

    #[test]
    fn a_second_run_with_other_secrets_adds_to_what_is_taken_out() {
        let registry = |name: &str, value: &str| {
            let mut registry = Registry::default();
            registry.insert(SecretName::parse(name).unwrap(), value.to_owned().into()).unwrap();
            registry.scrubber()
        };
        let scrub = LateScrub::default();
        let text = "first-secret and second-secret";

        let before = scrub.scrub_text(text).into_owned();
        scrub.learn(&registry("ONE", "first-secret"));
        scrub.learn(&registry("TWO", "second-secret"));

        assert_eq!(before, text);
        assert_eq!(scrub.scrub_text(text), "[secret:ONE] and [secret:TWO]");
    }

    #[test]
    fn a_log_that_was_emptied_is_told_from_one_that_is_made_anew() {
        let state = tempfile::tempdir().unwrap();
        let (log, trees) = (state.path().join("formwork.db"), state.path().join("snapshots/trees"));
        fs::create_dir_all(&trees).unwrap();
        fs::write(&log, "events").unwrap();
        let alone = is_no_log_that_was_emptied(state.path());
        fs::write(trees.join("tree"), "").unwrap();
        fs::File::options().write(true).truncate(true).open(&log).unwrap();
        let emptied = is_no_log_that_was_emptied(state.path());
        // What is kept is older than a log that is made now, whatever the clock of the file system tells apart.
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        fs::File::open(trees.join("tree")).unwrap().set_modified(long_ago).unwrap();
        fs::remove_file(&log).unwrap();
        fs::write(&log, "").unwrap();
        let tells_when = fs::metadata(&log).unwrap().created().is_ok();

        let anew = is_no_log_that_was_emptied(state.path());

        assert!(alone.is_ok() && matches!(emptied, Err(StoreError::Corrupt { .. })), "{emptied:?}");
        assert_eq!(anew.is_ok(), tells_when);
    }

    /// Ends a run at once; how does not matter here.
    fn carry_out(formwork: &Formwork, run: RunId) {
        let reason = "it is over".to_owned();
        formwork.spawn(run, Signals::default(), async move { Err(Error::Stopped { run, reason }) });
    }

    #[tokio::test]
    async fn nothing_is_kept_of_runs_that_are_over() {
        let folder = tempfile::tempdir().unwrap();
        let url = Some("sqlite::memory:".to_owned());
        let config = Config { database_url: url, ..Config::default() };
        let formwork = Builder::new(folder.path()).config(config).build().await.unwrap();
        let ids: Vec<RunId> = (1..=3_000).map(run_id).collect();
        let told = async |run: RunId| formwork.wait(run).await.unwrap_err().to_string();
        let over = |run: RunId| format!("run {run} stopped: it is over");
        let kept = || {
            let carried = lock(&formwork.inner.running);
            (carried.runs.len(), carried.ended.len())
        };

        for run in &ids[..1_000] {
            carry_out(&formwork, *run);
            assert_eq!(told(*run).await, over(*run));
        }
        let waited_for = kept();
        for run in &ids {
            carry_out(&formwork, *run);
        }
        // They are over in the order in which they began.
        let newest = told(ids[2_999]).await;
        let nobody = kept();
        // Whoever comes later is told of the last ones, and once.
        let (oldest, last) = (told(ids[0]).await, told(ids[2_998]).await);
        let again = told(ids[2_998]).await;

        assert_eq!(waited_for, (0, 0));
        assert_eq!(nobody, (MOST_ENDED, MOST_ENDED));
        assert!(oldest.ends_with("this process does not carry it out"), "{oldest}");
        assert_eq!((newest, last), (over(ids[2_999]), over(ids[2_998])));
        assert!(again.ends_with("this process does not carry it out"), "{again}");
        assert_eq!(kept(), (MOST_ENDED - 1, MOST_ENDED - 1));
        carry_out(&formwork, ids[0]);
        assert_eq!(lock(&formwork.inner.runs).len(), 1);
        formwork.close().await;
    }

    fn run_id(number: u32) -> RunId {
        format!("00000000-0000-7000-8000-{number:012x}").parse().unwrap()
    }
}
