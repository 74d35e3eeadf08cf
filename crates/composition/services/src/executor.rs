//! The work of tasks, done by everything that is there: sessions of agents, commands, native functions, checks.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_browser::Browsers;
use formwork_compose::{Library, Template};
use formwork_context::outside;
use formwork_policy::{Grants, Rules};
use formwork_protocols::{
    AgentName, Approver, Body, CallId, Cancel, Claim, Clock, Escalation, EventBody, Model,
    PermissionMode, Position, Principal, ProviderFault, Replay, Rng, RunId, RunOutcome, Scrub,
    SessionId, Span, Store, StoreError, StuckPattern, TaskId, TaskSpec, TaskState, Tool, ToolClass,
    ToolName, ToolSpec, Toolbox,
    check::{Phase, Verdict},
    model::ToolCalls,
    store::Selection,
};
use formwork_sandbox::{Command, Exit, Protection, Sandbox};
use formwork_scheduler::{
    AttemptEnd, AttemptJob, CheckJob, Executor, LastWords, Natives, ServiceEnd, ServiceJob,
};
use formwork_session::{
    Carried, Farewell, Heard, Limits, Opening, Seams, Session, SessionEnd, SessionSpec,
};
use formwork_tool::{
    Around, Gate, LOAD_TOOLS, Lookup, Outside, Parts, Pipeline, Registry, builtin,
    custom::{self as written, CustomTool},
};
use formwork_write_safety::{Reads, Root, Sealing, Snapshots, Trash, Workspace, WriteRules};
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    apart::Home,
    approval::{Taped, approved},
    baseline::Baselines,
    bounds::Bounds,
    checks::Shares,
    commits::Committer,
    consult::Consult,
    custom,
    gates::{Gates, TapedGate},
    guarded::{self, Own, Shapes},
    inbox::FromLog,
    making::{self, Maker},
    models::Models,
    network::Whose,
    operations::runs::Ending,
    outside,
    reach::Reach,
    reading,
    remote::{self, CheckHere, Remotes},
    repository::{self, LOAD_SKILL, LoadSkill, Repository},
    run_tests::{self, RUN_TESTS, RunTests},
    setup::{self, RunSetup},
    tape::{self, Pairs, Played, Talk, Tape},
    toolset,
    unasked::{Unasked, Writers},
    watched::Watched,
};

/// How long a program may run that an agent started, unless its rules say otherwise.
const EXEC_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a task by command may run, unless the task says otherwise.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3_600);

/// What an agent is told whose model takes no tools, behind a prompt that may speak of some.
pub(crate) const NO_TOOLS: &str = "\n\nYou have no tools here: nothing can be called, end_task neither. Answer in words; your \
    last message is taken for your result.";

/// How many bytes of a command's output become what it claims.
const CLAIM_BYTES: usize = 4 * 1024;

/// A conversation beside a task's own.
pub(crate) struct Aside<'a> {
    /// Who speaks for the model.
    pub(crate) agent: &'a AgentName,
    /// What it is asked.
    pub(crate) user: String,
    /// What it may do, where that is not what the run may.
    pub(crate) mode: Option<PermissionMode>,
    /// Where it stops.
    pub(crate) limits: Limits,
}

/// What a run works with.
#[derive(Clone)]
pub(crate) struct Workshop {
    pub(crate) setup: Arc<RunSetup>,
    pub(crate) models: Arc<Models>,
    pub(crate) root: Arc<Root>,
    pub(crate) reads: Reads,
    pub(crate) trash: Arc<Trash>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// The environment of whoever runs Formwork.
    pub(crate) environment: BTreeMap<OsString, OsString>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) protection: Protection,
    /// Whether parts of writable folders can be kept from programs.
    pub(crate) sealing: Arc<OnceCell<Sealing>>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) secrets: Arc<formwork_secrets::Registry>,
    pub(crate) scrub: Arc<dyn Scrub>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    /// The embedder's own tools, beside the built-in ones.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) natives: Natives,
    /// What git would run, when the first task of this process began.
    pub(crate) unasked: Arc<OnceCell<Unasked>>,
    /// What there was that shapes runs, before anything of this process has been done.
    pub(crate) shapes: Arc<OnceCell<Shapes>>,
    /// Whether what a process left open that died was looked at.
    pub(crate) settled: Arc<OnceCell<()>>,
    /// What from outside the run has read.
    pub(crate) outside: Arc<OnceCell<Arc<Outside>>>,
    /// What the checks may use of the budgets of their tasks.
    pub(crate) shares: Arc<Shares>,
    /// A folder for what is needed for a while.
    pub(crate) temporary: PathBuf,
    /// The agents that were asked for anything in this process.
    pub(crate) asked: Arc<Mutex<BTreeSet<AgentName>>>,
    /// The conversations that wait for what their checks say.
    pub(crate) waiting: Arc<Mutex<HashMap<SessionId, Session>>>,
    /// Is asked about what the rules leave open.
    pub(crate) approver: Arc<dyn Approver>,
    /// The folder of the person's own config.
    pub(crate) configured: Option<PathBuf>,
    /// What was answered before, where a run is carried out again without anybody to ask.
    pub(crate) tape: Option<Arc<Tape>>,
    /// The tasks that work in workspaces of their own, each with all that it works with there.
    pub(crate) apart: Arc<tokio::sync::Mutex<HashMap<TaskId, Arc<Workshop>>>>,
    /// Held by whoever brings what was done apart into the workspace of the run, where a suite has to pass with it.
    pub(crate) merging: Arc<tokio::sync::Mutex<()>>,
    /// The workspace of the run, where this is one of a task's own.
    pub(crate) home: Option<Arc<Home>>,
    /// What is done once all tasks of the run have ended; nothing where a run is only carried out again.
    pub(crate) ending: Option<Arc<Ending>>,
    /// What conversations have opened in browsers.
    pub(crate) browsers: Arc<Browsers>,
    /// The ends of the run to workers elsewhere.
    pub(crate) remotes: Arc<Remotes>,
    /// Whether this is what a worker works with, for runs elsewhere.
    pub(crate) is_bench: bool,
}

/// Returns the names from the root to the task of an attempt.
fn path(job: &AttemptJob) -> String {
    job.path.to_string()
}

impl Workshop {
    /// Holds the rules of an agent against the tools that there are.
    ///
    /// # Errors
    /// [`Error::Rules`] when one does not parse, or names a tool that does not exist.
    pub(crate) fn check_rules(&self, agent: &Agent) -> Result<(), Error> {
        let specs = self.specs();
        setup::policy(&self.setup.config, agent, &specs, &self.protection).map(drop)
    }

    /// Describes every tool that an agent can be given.
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = toolset::built_in();
        specs.extend(custom::specs(self.setup.tools.iter().cloned()));
        specs.extend(self.tools.iter().map(|tool| tool.spec().clone()));
        specs.extend(self.is_bench.then(|| remote::check_spec(Replay::Once)));
        specs
    }

    /// Returns the folder of Formwork itself.
    fn state(&self) -> &Path {
        self.temporary.parent().unwrap_or(&self.temporary)
    }

    /// Returns what may be written at all: what the config allows.
    pub(crate) fn scope(&self) -> Result<WriteRules, Error> {
        let scope = self.setup.config.permissions.as_ref().and_then(|rules| rules.scope.as_ref());
        let state = self.state();
        let (hooks, tools) = (self.setup.config.hooks.as_slice(), self.setup.tools.as_slice());
        let own = Own { state, besides: self.configured.as_deref(), hooks, tools };
        guarded::scope(self.root.path(), own, scope.map(Vec::as_slice))
    }

    /// Returns what a task may write: what the config allows, narrowed by the task's own rules.
    pub(crate) fn rules(&self, spec: &TaskSpec) -> Result<WriteRules, Error> {
        let around = self.scope()?;
        let write = spec.write_paths.clone().unwrap_or_else(|| vec!["**".to_owned()]);
        let mut rules = around.narrowed(&WriteRules::parse(&write, &spec.protected_paths)?);
        for within in spec.made.iter().flat_map(|made| &made.within) {
            rules = rules.narrowed(&WriteRules::parse(within, &[])?);
        }
        Ok(rules)
    }

    /// Returns what the programs of a task may write that are its own and not an agent's: nothing where the run only looks.
    pub(crate) fn program_rules(&self, spec: &TaskSpec) -> Result<WriteRules, Error> {
        let rules = self.rules(spec)?;
        Ok(match self.setup.mode() < PermissionMode::Edit {
            true => rules.narrowed(&WriteRules::nothing()),
            false => rules,
        })
    }

    /// Puts the tools of one session of an agent behind its pipeline.
    async fn toolbox(
        &self,
        job: &AttemptJob,
        agent: &AgentName,
        talk: Option<Arc<Talk>>,
        mode: Option<PermissionMode>,
    ) -> Result<Arc<dyn Toolbox>, Error> {
        let who = (&self.agent(agent)?.agent, Principal::agent(agent));
        let pairs = Pairs::default();
        let pipeline =
            self.pipeline(job, who, talk.clone().map(|talk| (talk, &pairs)), mode).await?;
        if let (Some(talk), Some(tape)) = (talk, self.tape.clone()) {
            return Ok(Arc::new(Played { tools: Arc::new(pipeline), tape, talk, pairs }));
        }
        Ok(Arc::new(pipeline))
    }

    /// Puts the tools that `agent` may call behind a pipeline whose calls are made by `principal`.
    pub(crate) async fn pipeline(
        &self,
        job: &AttemptJob,
        (agent, principal): (&Agent, Principal),
        talk: Option<(Arc<Talk>, &Pairs)>,
        mode: Option<PermissionMode>,
    ) -> Result<Pipeline, Error> {
        let by_hand = matches!(job.spec.body, Body::Call(_));
        let made = job.spec.made.as_deref();
        // Who only looks opens nothing and ends nothing: its last message is its answer.
        let only_looks = mode == Some(PermissionMode::Ask);
        // What was made does no more than its maker may.
        let most = made.and_then(|made| made.mode);
        let most = most.map(|most| most.min(self.setup.mode()));
        let mode = mode.into_iter().chain(most).min();
        let mut config = Cow::Borrowed(&self.setup.config);
        if let Some(mode) = mode {
            config.to_mut().permissions.get_or_insert_default().mode = Some(mode);
        }
        let rules = self.rules(&job.spec)?;
        let made_by = self.makers(&job.spec)?;
        let agents: Vec<&Agent> = made_by.iter().copied().chain([agent]).collect();
        let in_name_of = agents.clone();
        let whose = Whose { run: job.run, task: Some(job.task), agents };
        let Bounds { protection, reach, told } = self.bounds(&rules, whose).await?;
        let bounded = protection.clone();
        let workspace = Workspace::new(Arc::clone(&self.root), rules, self.reads.session())
            .keeping(Arc::clone(&self.snapshots));
        let exec = agent.document().tools.exec.as_ref();
        let timeout = exec.and_then(|exec| exec.timeout);
        let specs = self.specs();
        let specs: Vec<&ToolSpec> = specs.iter().collect();
        let bare = setup::policy(&config, agent, specs.iter().copied(), &self.protection)?;
        let (mut policy, allowed) = match made {
            Some(made) => making::within(made, bare, made_by.iter().copied(), &specs)?,
            None => bare,
        };
        if job.spec.target.is_some() {
            let mut stay = Rules::new(PermissionMode::Auto);
            stay.exec_secrets_stay = Some(
                "the programs of this task run at a worker, and no secret leaves this place"
                    .to_owned(),
            );
            policy = policy.narrow(stay);
        }
        let maker = Maker {
            spec: Arc::clone(&job.spec),
            policy: policy.clone(),
            tools: specs
                .iter()
                .filter(|tool| allowed.tools.contains(&tool.definition.name))
                .copied()
                .cloned()
                .collect(),
            agents: self
                .setup
                .agents
                .iter()
                .map(|(name, own)| (name.clone(), making::Hand::of(&own.agent)))
                .collect(),
            ledger: Arc::clone(&job.ledger),
            lookup: self.lookup(),
        };
        let mut registry = Registry::new();
        let parts = builtin::Builtins {
            workspace,
            trash: Arc::clone(&self.trash),
            sandbox: Arc::clone(&self.sandbox),
            protection: protection.clone(),
            bounds: told,
            exec_timeout: timeout.map_or(EXEC_TIMEOUT, |span| span.as_duration()),
            store: Arc::clone(&self.store) as _,
            control: Arc::clone(&job.control),
            clock: Arc::clone(&self.clock),
            commits: Some(Arc::new(self.committer(principal.clone(), job.token))),
            makes: Some(Arc::new(maker)),
            http: setup::http(&config)?,
            look_at: reading::look_at,
        };
        let tools = |source| Error::Tools { source };
        builtin::register(&mut registry, parts).map_err(tools)?;
        registry.add(Arc::new(LoadSkill::new(Arc::clone(&self.root)))).map_err(tools)?;
        registry.add(Arc::new(Consult::new(self, job))).map_err(tools)?;
        let has_tests = self.setup.tests.is_some();
        let run_tests = RunTests {
            spec: run_tests::spec(),
            tests: self.setup.tests.clone(),
            root: self.root.path().to_owned(),
            sandbox: Arc::clone(&self.sandbox),
            protection: protection.clone(),
            scrub: Arc::clone(&self.scrub),
            timeout: timeout.unwrap_or(Span::from(EXEC_TIMEOUT)),
        };
        registry.add(Arc::new(run_tests)).map_err(tools)?;
        let seams = written::Seams {
            root: self.root.path().to_owned(),
            sandbox: Arc::clone(&self.sandbox),
            protection,
            longest: timeout.map_or(EXEC_TIMEOUT, |span| span.as_duration()),
            http: setup::http(&config)?,
            secrets: Arc::clone(&self.secrets),
            since: self.setup.programs.clone().map(Arc::new),
        };
        if self.is_bench {
            let check = CheckHere {
                spec: remote::check_spec(Replay::Once),
                verifier: self.verifier(self.root.path(), bounded.clone()),
            };
            registry.add(Arc::new(check)).map_err(tools)?;
        }
        for tool in formwork_browser::tools(&self.browsers, setup::http(&config)?) {
            registry.add(tool).map_err(tools)?;
        }
        for document in &self.setup.tools {
            let tool = CustomTool::new(document.clone(), seams.clone()).map_err(tools)?;
            registry.add(Arc::new(tool)).map_err(tools)?;
        }
        for tool in &self.tools {
            registry.add(Arc::clone(tool)).map_err(tools)?;
        }
        let has_skills = self.setup.briefing.as_ref().is_some_and(|told| told.has_skills);
        let mut tools_allowed = registry.select(|spec| {
            let name = &spec.definition.name;
            let is_fit = (!only_looks || spec.class != ToolClass::Lifecycle)
                && (has_skills || name.as_str() != LOAD_SKILL)
                && (has_tests || name.as_str() != RUN_TESTS);
            is_fit && allowed.tools.contains(name)
        });
        if job.spec.target.is_some() {
            tools_allowed.retain(|tool| !remote::is_of_the_run(tool.spec()));
        }
        if let Some(label) = job.spec.target.as_ref().filter(|_| talk.is_none()) {
            let programs = timeout.map_or(EXEC_TIMEOUT, |span| span.as_duration());
            let whose = (in_name_of, policy.mode(), programs);
            tools_allowed = self.elsewhere(job, label, tools_allowed, whose).await?;
        }
        if let (Some(tape), Some((talk, pairs))) = (&self.tape, &talk) {
            tools_allowed = tape::played(tools_allowed, tape, talk, pairs);
        }
        let hooks = &self.setup.config.hooks;
        let mut gate: Option<Arc<dyn Gate>> = None;
        if talk.is_none()
            // What a hook is stands in the workspace of the run, whoever is asked about.
            && let Some(gates) = Gates::new(
                hooks,
                (&self.sandbox, bounded),
                (self.top(), self.setup.programs.as_ref()),
            )?
        {
            gate = Some(Arc::new(gates));
        }
        let mut approver = Arc::clone(&self.approver);
        let mut around: Option<Arc<dyn Around>> = None;
        match &talk {
            Some((talk, pairs)) => {
                let (talk, pairs) = (Arc::clone(talk), Arc::clone(pairs));
                if hooks.iter().any(|hook| hook.event.is_gate()) {
                    let (talk, pairs) = (Arc::clone(&talk), Arc::clone(&pairs));
                    gate = Some(Arc::new(TapedGate { talk, pairs }));
                }
                approver = Arc::new(Taped { talk, pairs });
            }
            // What is changed elsewhere is not to be seen here, and a worker keeps no record.
            None if self.is_bench || job.spec.target.is_some() => {}
            None => {
                around = Some(Arc::new(Watched {
                    baselines: Arc::clone(&self.baselines),
                    token: job.token,
                    clock: Arc::clone(&self.clock),
                    principal: Principal::system("services"),
                    reach,
                    free: self.tools.iter().map(|it| it.spec().definition.name.clone()).collect(),
                    before: Mutex::default(),
                }));
            }
        }
        let approved = approved(&*self.store, job.run, job.resumes).await?;
        let loaded = match by_hand {
            // Whoever names a tool needs not be told of it first.
            true => allowed.deferred.iter().cloned().collect(),
            false => self.loaded(job).await?,
        };
        Pipeline::new(Parts {
            tools: tools_allowed,
            deferred: allowed.deferred,
            loaded,
            policy: Arc::new(policy),
            approver,
            gate,
            outside: Arc::clone(self.outside(job.run).await?),
            grants: Grants::new(self.setup.approvals.iter().cloned().chain(approved)),
            around,
            apart: self.home.is_some() || job.spec.target.is_some(),
            control: Arc::clone(&job.control),
            ledger: Arc::clone(&job.ledger),
            secrets: Arc::clone(&self.secrets),
            scrub: Arc::clone(&self.scrub),
            clock: Arc::clone(&self.clock),
            principal,
            lookup: self.lookup(),
            look_at: reading::look_at,
        })
        .map_err(tools)
    }

    /// Returns what commits in the name of `principal`.
    fn committer(&self, principal: Principal, token: Option<u64>) -> Committer {
        Committer {
            store: Arc::clone(&self.store),
            ground: self.baselines.ground(),
            scrub: Arc::clone(&self.scrub),
            clock: Arc::clone(&self.clock),
            environment: self.environment.clone(),
            principal,
            token,
        }
    }

    /// Finds out once what was left open by a process that died, before anything else of the run is done.
    ///
    /// # Errors
    /// [`Error::Workspace`] when a file or the repository cannot be looked at; [`Error::Store`].
    pub(crate) async fn settle(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        let settle = async || {
            // What was committed has an end in the log before what else was changed is told.
            self.committer(Principal::system("services"), token).finish(run).await?;
            self.baselines.settle(run, token).await
        };
        self.settled.get_or_try_init(settle).await.copied()
    }

    /// Returns where programs are looked for: what lies in the workspace stands in for none.
    pub(crate) fn lookup(&self) -> Lookup {
        Lookup {
            path: self.environment.get(OsStr::new("PATH")).cloned().unwrap_or_default(),
            roots: BTreeSet::from([self.root.path().to_owned(), self.top().to_owned()]),
        }
    }

    /// Tells whether a process before this one has told a conversation what its attempt begins with: that
    /// is the first that is said in it.
    async fn was_told(&self, job: &AttemptJob, session: SessionId) -> Result<bool, Error> {
        let kinds = ["attempt.started", "session.message"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(job.run), task: None, kinds };
        let (mut begun, mut after) = (false, Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(false) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::AttemptStarted(started) => begun |= started.attempt == job.attempt,
                    EventBody::SessionMessage(said) if begun && said.session == session => {
                        return Ok(true);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns what from outside the run has read, by this process or by one before it. All of its sessions
    /// share it: what one has read reaches the others through files, notes and results.
    async fn outside(&self, run: RunId) -> Result<&Arc<Outside>, Error> {
        let read = async || {
            let mut found = outside::read(&*self.store, run).await?;
            found.extend(self.setup.outside.iter().cloned());
            Ok(Arc::new(Outside::new(found)))
        };
        self.outside.get_or_try_init(read).await
    }

    /// Returns the deferred tools that the conversation to be taken up has loaded.
    async fn loaded(&self, job: &AttemptJob) -> Result<Vec<ToolName>, Error> {
        let Some(session) = job.resumes else { return Ok(Vec::new()) };
        let kinds = vec!["tool.requested".to_owned()];
        let selection = Selection { run: Some(job.run), task: None, kinds };
        let (mut loaded, mut after) = (Vec::new(), Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(loaded) };
            after = last.position;
            for event in events {
                let EventBody::ToolRequested(made) = event.body else { continue };
                if made.session == session && made.tool == LOAD_TOOLS {
                    let names = made.arguments["names"].as_array().cloned().unwrap_or_default();
                    let texts = names.iter().filter_map(Value::as_str);
                    loaded.extend(texts.filter_map(|name| ToolName::parse(name).ok()));
                }
            }
        }
    }

    pub(crate) fn agent(&self, name: &AgentName) -> Result<&setup::AgentSetup, Error> {
        self.setup.agents.get(name).ok_or_else(|| Error::NoSuchAgent {
            agent: name.clone(),
            known: self.setup.agents.keys().map(AgentName::as_str).collect::<Vec<_>>().join(", "),
        })
    }

    /// Tells whether the model of an agent is offered tools, by whatever means.
    fn takes_tools(&self, agent: &AgentName) -> Result<bool, Error> {
        let model = &self.agent(agent)?.model;
        let info = self.models.catalog().info(model);
        let source = |source| Error::Model { model: model.clone(), source: Box::new(source) };
        Ok(info.map_err(source)?.tool_calls != ToolCalls::None)
    }

    /// Puts variables and results into a prompt. A value is never read as a template.
    pub(crate) fn prompt(&self, text: &str, job: &AttemptJob) -> Result<String, Error> {
        let fault = |error: formwork_compose::Error| Error::Prompt { reason: error.to_string() };
        let template = Template::parse("prompt", text).map_err(fault)?;
        let library = Library::default();
        let mut known = Map::clone(&job.variables);
        known.insert("tasks".to_owned(), Value::Object(Map::clone(&job.results)));
        // The engine is strict both ways, and a workflow's variables need not all be in each prompt.
        let named = library.variables(&template).map_err(fault)?;
        known.retain(|name, _| named.contains(name));
        known.values_mut().for_each(shown);
        library.render(&template, &known).map_err(fault)
    }

    /// Begins the conversation of an attempt, or takes up the one that goes on.
    async fn session(
        &self,
        job: &AttemptJob,
        agent: &AgentName,
        prompt: &str,
    ) -> Result<Session, Error> {
        let takes_tools = self.takes_tools(agent)?;
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(agent.clone());
        if let Some(id) = job.resumes
            && let Some(mut waiting) = self.lock().remove(&id)
        {
            let evidence = evidence(&job.evidence, takes_tools);
            if !evidence.is_empty() {
                waiting.answer(&evidence)?;
            }
            return Ok(waiting);
        }
        let chosen = self.agent(agent)?;
        let talk =
            self.tape.as_ref().map(|tape| (tape, tape.talk(&path(job), job.resumes.is_some())));
        let model = match &talk {
            // Nobody is asked, so no key is needed.
            Some((tape, talk)) => {
                let model = &chosen.model;
                let unknown =
                    |source| Error::Model { model: model.clone(), source: Box::new(source) };
                tape.model(self.models.catalog().info(model).map_err(unknown)?, talk)
            }
            None => self.models.model(&chosen.model)?,
        };
        let most = model.info.max_output_tokens;
        let defaults = Limits::default();
        let limits = Limits {
            max_rounds: chosen.agent.document().budget.rounds,
            max_output_tokens: most
                .map_or(defaults.max_output_tokens, |most| most.min(defaults.max_output_tokens)),
            ..defaults
        };
        let spec = SessionSpec {
            run: job.run,
            task: job.task,
            agent: agent.clone(),
            agent_version: chosen.agent.version().to_owned(),
            principal: Principal::agent(agent),
            summary: self.summary_model(chosen, &model, talk.as_ref())?,
            model,
            rules: chosen.agent.document().session,
            limits,
            token: job.token,
            call: None,
        };
        let heard = self.heard(job, talk.as_ref().map(|(_, talk)| talk));
        let carried = talk.as_ref().and_then(|(_, talk)| talk.carried());
        let seams = Seams {
            heard,
            tools: self.toolbox(job, agent, talk.map(|(_, talk)| talk), None).await?,
            store: Arc::clone(&self.store) as _,
            ledger: Arc::clone(&job.ledger),
            control: Arc::clone(&job.control),
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&self.rng),
            scrub: Arc::clone(&self.scrub),
        };
        let evidence = evidence(&job.evidence, takes_tools);
        if let Some(id) = job.resumes {
            let opened = self.opened(job).await?;
            let mut session = Session::resume(spec, id, opened, seams).await?;
            if !evidence.is_empty() && !self.was_told(job, id).await? {
                session.answer(&evidence)?;
            }
            return Ok(session);
        }
        let mut system = chosen
            .agent
            .system_prompt(&Map::new())
            .map_err(|error| Error::Prompt { reason: error.to_string() })?;
        if !takes_tools {
            system.push_str(NO_TOOLS);
        }
        let briefing = self.setup.briefing.as_ref();
        system.push_str(briefing.map_or("", |told| told.text.as_str()));
        let instructions = briefing.map_or(&[][..], |told| told.files.as_slice());
        let instructions = instructions.iter().map(repository::Told::instructed).collect();
        let mut user = self.prompt(prompt, job)?;
        if let Some(schema) = schema_of(&job.spec).filter(|_| takes_tools) {
            user.push_str("\n\nCall end_task with an `output` that follows this JSON Schema:\n");
            user.push_str(&schema.to_string());
        }
        if !evidence.is_empty() {
            user.push_str("\n\nAn earlier attempt was not accepted:\n");
            user.push_str(&evidence);
        }
        let attached = job.spec.attached.clone();
        let opening = Opening { system, user, attached, instructions };
        // A task that another has made begins a conversation of its own.
        let Some(after) = self.setup.after.filter(|_| job.spec.made.is_none()) else {
            return Ok(Session::start(spec, &opening, seams)?);
        };
        let carried = match carried {
            Some(carried) => carried,
            None => Carried::read(&*self.store, after.of_run, after.of_session).await?,
        };
        let mut session = Session::carry_on(spec, &carried, &opening, seams)?;
        if after.compact {
            session.compact();
        }
        Ok(session)
    }

    /// Returns what a conversation hears besides its task; what it heard, where a run is carried out again.
    fn heard(&self, job: &AttemptJob, talk: Option<&Arc<Talk>>) -> Heard {
        if let Some(talk) = talk {
            return tape::heard(talk);
        }
        let inbox = Arc::new(FromLog::new(Arc::clone(&self.store), job.run));
        match &self.setup.briefing {
            Some(told) => Heard { guide: Arc::new(Repository::new(&self.root, told)), inbox },
            None => Heard { inbox, ..Heard::default() },
        }
    }

    /// Returns the model that sums up conversations of an agent, where it is another one than its own.
    pub(crate) fn summary_model(
        &self,
        chosen: &setup::AgentSetup,
        own: &Model,
        talk: Option<&(&Arc<Tape>, Arc<Talk>)>,
    ) -> Result<Option<Model>, Error> {
        let Some(summary) = &chosen.summary else { return Ok(None) };
        if *summary == own.info.model {
            return Ok(None);
        }
        let Some((tape, talk)) = talk else { return self.models.model(summary).map(Some) };
        let unknown = |source| Error::Model { model: summary.clone(), source: Box::new(source) };
        let info = self.models.catalog().info(summary).map_err(unknown)?;
        Ok(Some(tape.model(info, talk)))
    }

    async fn converse(
        &self,
        job: &AttemptJob,
        agent: &AgentName,
        prompt: &str,
        cancel: &Cancel,
    ) -> Result<AttemptEnd, Error> {
        let mut session = self.session(job, agent, prompt).await?;
        let end = session.run(cancel).await?;
        // The window may have been too small for it, and another goes on in its place.
        let id = session.id();
        self.lock().insert(id, session);
        let (session, files_changed) = (Some(id), self.files_changed(job).await?);
        Ok(match end {
            SessionEnd::Claimed { claim, .. } => {
                AttemptEnd::Claimed { claim, session, files_changed }
            }
            SessionEnd::Cancelled => AttemptEnd::Interrupted { session },
            other => AttemptEnd::Failed { why: escalation(other), session, files_changed },
        })
    }

    /// Holds a conversation beside the task's own, from its beginning to its end.
    pub(crate) async fn talk_aside(
        &self,
        job: &AttemptJob,
        aside: Aside<'_>,
        cancel: &Cancel,
    ) -> Result<(SessionId, SessionEnd), Error> {
        let Aside { agent, user, mode, limits } = aside;
        let chosen = self.agent(agent)?;
        let model = self.models.model(&chosen.model)?;
        let most = model.info.max_output_tokens.unwrap_or(limits.max_output_tokens);
        let limits = Limits { max_output_tokens: most.min(limits.max_output_tokens), ..limits };
        let spec = SessionSpec {
            run: job.run,
            task: job.task,
            agent: agent.clone(),
            agent_version: chosen.agent.version().to_owned(),
            principal: Principal::agent(agent),
            summary: self.summary_model(chosen, &model, None)?,
            model,
            rules: chosen.agent.document().session,
            limits,
            token: job.token,
            call: None,
        };
        let seams = Seams {
            // What a repository tells must not sway who judges a change of it.
            heard: Heard::default(),
            tools: self.toolbox(job, agent, None, mode).await?,
            store: Arc::clone(&self.store) as _,
            ledger: Arc::clone(&job.ledger),
            control: Arc::clone(&job.control),
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&self.rng),
            scrub: Arc::clone(&self.scrub),
        };
        let mut system = chosen
            .agent
            .system_prompt(&Map::new())
            .map_err(|error| Error::Prompt { reason: error.to_string() })?;
        if !self.takes_tools(agent)? {
            system.push_str(NO_TOOLS);
        }
        let opening = Opening { system, user, attached: Vec::new(), instructions: Vec::new() };
        let mut session = Session::start(spec, &opening, seams)?;
        let end = session.run(cancel).await?;
        // The window may have been too small for it, and another went on in its place.
        let id = session.id();
        session.close(Farewell::Accepted("read")).await?;
        Ok((id, end))
    }

    /// Runs a task's own command.
    async fn by_command(
        &self,
        job: &AttemptJob,
        argv: &[String],
        cancel: &Cancel,
    ) -> Result<AttemptEnd, Error> {
        if job.continues && !self.was_stopped(job).await? {
            // It may have done its work before the process died, and may not be done twice unasked.
            let told = argv.join(" ");
            let detail =
                format!("the run stopped while {told} ran; whether it took effect is unknown");
            return Ok(failed(Escalation::OutcomeUnknown { detail }));
        }
        let mode = self.setup.mode();
        // What decides a check looks.
        let is_look = job.spec.made.as_ref().is_some_and(|it| it.mode == Some(PermissionMode::Ask));
        if mode < PermissionMode::Edit && (!is_look || self.protection == Protection::None) {
            // A run that was begun in a wider mode, or a task that came to be while it went on.
            let detail = format!("a run in mode {} runs no {}", mode.as_str(), argv.join(" "));
            return Ok(failed(Escalation::Refused { detail }));
        }
        if let Some(label) = &job.spec.target {
            let longest = job.spec.timeout.map_or(COMMAND_TIMEOUT, |span| span.as_duration());
            return self.command_there(job, (argv, label, longest), cancel).await;
        }
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let bounds = self.bounds(&self.program_rules(&job.spec)?, whose).await?;
        let mut command = Command::new(argv.to_vec(), self.root.path(), bounds.protection);
        command.timeout = job.spec.timeout.map_or(COMMAND_TIMEOUT, |span| span.as_duration());
        let token = CancellationToken::new();
        let running = Box::pin(async {
            let running = self.sandbox.run(command, token.clone(), None);
            tokio::pin!(running);
            tokio::select! {
                finished = &mut running => finished,
                () = cancel.cancelled() => {
                    token.cancel();
                    running.await
                }
            }
        });
        let within = (job.run, job.task, job.token);
        let finished = self.watched(within, bounds.reach, running).await?;
        Ok(match finished {
            Err(error) => failed(Escalation::BodyFailed { detail: crate::error::chain(&error) }),
            Ok(finished) if finished.exit == Exit::Cancelled => {
                AttemptEnd::Interrupted { session: None }
            }
            Ok(finished) => {
                let mut output = finished.combined.preview();
                for refusal in &finished.refused {
                    output.push_str(&format!("\n[{refusal}]"));
                }
                let output = self.scrub.scrub_text(&output).into_owned();
                let told = formwork_protocols::text::tail(&output, CLAIM_BYTES).trim_end();
                if finished.succeeded() {
                    // What a schema is held against has to be told apart from words.
                    let mut output: Option<Value> = schema_of(&job.spec)
                        .filter(|_| finished.stdout.left_out() == 0)
                        .and_then(|_| serde_json::from_str(finished.stdout.preview().trim()).ok());
                    if let Some(output) = &mut output {
                        self.scrub.scrub_value(output);
                    }
                    let claim = Claim { summary: told.to_owned(), output };
                    AttemptEnd::Claimed { claim, session: None, files_changed: 0 }
                } else {
                    let last = formwork_protocols::text::tail(told, 400);
                    let detail = format!("{} ended with {}: {last}", argv.join(" "), finished.exit);
                    failed(Escalation::BodyFailed { detail })
                }
            }
        })
    }

    /// Does a piece of work that may change files without telling which, and records what it has changed where it can write.
    pub(crate) async fn watched<T>(
        &self,
        (run, task, token): (RunId, TaskId, Option<u64>),
        reach: Reach,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let id = CallId::generate(&*self.clock, &*self.rng);
        let (watch, begun, blobs) = self.baselines.before((run, token), id, reach).await?;
        self.baselines.append(run, Some(task), token, vec![begun], blobs).await?;
        let done = work.await;
        let found = self.baselines.after(&watch).await?;
        self.baselines.append(run, Some(task), token, found, Vec::new()).await?;
        watch.end();
        Ok(done)
    }

    /// Tells whether an attempt was broken off on request: then its command was ended for certain, and
    /// whoever takes the run up again wants it run again.
    async fn was_stopped(&self, job: &AttemptJob) -> Result<bool, Error> {
        let places = async |task: Option<TaskId>, kind: &str| -> Result<Vec<Position>, Error> {
            let kinds = vec![kind.to_owned()];
            let selection = Selection { run: Some(job.run), task, kinds };
            let (mut found, mut after) = (Vec::new(), Position::default());
            loop {
                let events = self.store.read(after, &selection, 1_000).await?;
                let Some(last) = events.last() else { return Ok(found) };
                after = last.position;
                found.extend(events.iter().map(|event| event.position));
            }
        };
        let began = places(Some(job.task), "attempt.started").await?.pop();
        let paused = places(None, "run.paused").await?.pop();
        let resumed = places(None, "run.resumed").await?;
        // This process is the one that resumed it after the pause; had another done so, it died with it.
        let since = resumed.iter().filter(|resumed| Some(**resumed) > paused).count();
        Ok(paused > began && since == 1)
    }

    /// Finds the parts of a conversation that were opened and not closed, outermost first.
    async fn opened(&self, job: &AttemptJob) -> Result<Vec<TaskId>, Error> {
        let tasks = self.store.tasks(job.run).await?;
        let (mut opened, mut parent) = (Vec::new(), job.task);
        while let Some(open) = tasks.iter().find(|task| {
            task.parent == Some(parent) && task.body == "inline" && !task.state.is_terminal()
        }) {
            opened.push(open.task);
            parent = open.task;
        }
        Ok(opened)
    }

    /// Counts the files that a task's calls have changed.
    pub(crate) async fn files_changed(&self, job: &AttemptJob) -> Result<u64, Error> {
        let selection = Selection {
            run: Some(job.run),
            task: Some(job.task),
            kinds: vec!["file.changed".to_owned()],
        };
        let (mut paths, mut after) = (BTreeSet::new(), Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(paths.len() as u64) };
            after = last.position;
            for event in events {
                if let EventBody::FileChanged(change) = event.body {
                    paths.insert(change.path);
                }
            }
        }
    }

    /// Looks at what git would run, before anything else of this process has.
    async fn look(&self) {
        let root = Arc::clone(&self.root);
        let take = || tokio::task::spawn_blocking(move || Unasked::take(root.path()));
        // Without a first look there is nothing to compare with, and the next task looks again.
        let _ = self.unasked.get_or_try_init(take).await;
        let root = Arc::clone(&self.root);
        let take = || tokio::task::spawn_blocking(move || Shapes::take(root.path()));
        let _ = self.shapes.get_or_try_init(take).await;
    }

    /// Says what has come since the first look that later runs would obey, and nobody may write.
    pub(crate) async fn shaped(&self) -> Option<String> {
        let before = self.shapes.get().cloned()?;
        let rules = self.scope().ok()?;
        let (root, own) = (Arc::clone(&self.root), self.state().to_owned());
        let look = move || before.made(root.path(), &rules, &own);
        let path = tokio::task::spawn_blocking(look).await.ok()??;
        Some(format!(
            "{} was made while it worked, and later runs would obey it: remove it, or have whoever starts the run \
             name it in the scope of the config",
            path.display()
        ))
    }

    /// Says what came to be since the first look that git would run unasked.
    pub(crate) async fn planted(&self) -> Option<String> {
        let before = self.unasked.get().cloned()?;
        let root = Arc::clone(&self.root);
        let writers = match self.protection {
            Protection::None => Writers::Programs,
            Protection::Restricted(_) => Writers::People,
        };
        let look = move || before.changed(root.path(), writers);
        let planted = match tokio::task::spawn_blocking(look).await {
            Ok(planted) => planted?.to_string(),
            Err(error) => format!("what git would run unasked could not be looked at: {error}"),
        };
        Some(format!("{planted}{LOOK_FIRST}"))
    }

    /// Refuses the work of a task during which something came to be that git would run unasked, and has a claim fail
    /// beside which there is what later runs would obey.
    async fn judged(&self, end: AttemptEnd) -> AttemptEnd {
        let (session, files_changed) = match end {
            AttemptEnd::Claimed { session, files_changed, .. }
            | AttemptEnd::Failed { session, files_changed, .. } => (session, files_changed),
            AttemptEnd::Interrupted { .. } => return end,
        };
        let failed = |why| AttemptEnd::Failed { why, session, files_changed };
        if let Some(detail) = self.planted().await {
            return failed(Escalation::Refused { detail });
        }
        match end {
            AttemptEnd::Claimed { .. } => match self.shaped().await {
                // Whoever made it can mend it.
                Some(detail) => failed(Escalation::BodyFailed { detail }),
                None => end,
            },
            _ => end,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Session>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Executor for Workshop {
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError> {
        let within = (job.run, job.task, job.token);
        match Box::pin(self.own_place(within, &job.spec)).await {
            Ok(Some(own)) => return Box::pin(own.attempt(job, cancel)).await,
            Ok(None) => {}
            Err(error) => return broken(error),
        }
        self.look().await;
        match self.awaits_worker((job.run, job.task), &job.spec, cancel).await {
            Ok(None) => {}
            Ok(Some(end)) => return Ok(end),
            Err(error) => return broken(error),
        }
        let entered = async {
            self.settle(job.run, job.token).await?;
            self.baselines.enter(job.run, job.task, &job.spec, job.token).await.map(drop)
        };
        let done = match (entered.await, &job.spec.body) {
            (Err(error), _) => Err(error),
            (Ok(()), Body::Agent { agent, prompt }) => {
                self.converse(&job, agent, prompt, cancel).await
            }
            (Ok(()), Body::Command { argv }) => Box::pin(self.by_command(&job, argv, cancel)).await,
            (Ok(()), Body::Native { .. }) => {
                let within = (job.run, job.task, job.token);
                let attempt = async { self.natives.attempt(job.clone(), cancel).await };
                self.watched(within, Reach::Anywhere, attempt).await
            }
            (Ok(()), Body::Graph(graph)) => self.graph(&job, graph, cancel).await,
            (Ok(()), Body::Call(call)) => Box::pin(self.by_hand(&job, call, cancel)).await,
            (Ok(()), body) => Err(Error::Body { body: body.as_str() }),
        };
        Ok(self.judged(done.or_else(broken)?).await)
    }

    async fn check(&self, job: CheckJob, cancel: &Cancel) -> Result<Verdict, StoreError> {
        let within = (job.run, job.task, job.token);
        // What comes before its work, and what follows once that is merged, has the run's workspace.
        if matches!(job.phase, Phase::Exit | Phase::Retry) {
            match Box::pin(self.own_place(within, &job.spec)).await {
                Ok(Some(own)) => return Box::pin(own.check(job, cancel)).await,
                Ok(None) => {}
                Err(error) => return unmade(&job, error),
            }
        }
        self.look().await;
        // Who takes a run up may have checks alone left to make.
        if let Err(error) = self.settle(job.run, job.token).await {
            return unmade(&job, error);
        }
        let verdict = self.decided(&job, cancel).await?;
        // A command that is run as a check, or that mends one, writes as well as any other.
        let planted = match self.planted().await {
            None => self.shaped().await,
            planted => planted,
        };
        Ok(match planted {
            Some(reason) => Verdict { passed: false, reason, ..verdict },
            None => verdict,
        })
    }

    async fn serve(&self, job: ServiceJob, cancel: &Cancel) -> ServiceEnd {
        // It may write, as any program of a task may.
        self.look().await;
        self.serve_until(&job, cancel).await
    }

    async fn is_ready(&self, job: &ServiceJob) -> Result<(), String> {
        self.looks_ready(job).await
    }

    fn leave(&self, session: SessionId, task: TaskState, reason: &str) -> Option<LastWords> {
        let session = self.lock().remove(&session)?;
        let farewell = match task {
            TaskState::Completed => Farewell::Accepted(reason),
            _ => Farewell::GivenUp(reason),
        };
        // What was said last is a sentence of ours, which can always be recorded.
        let (events, blobs) = session.retire(farewell).ok()?;
        Some(LastWords { events, blobs })
    }

    async fn ending(&self, outcome: RunOutcome, token: u64) -> Result<RunOutcome, StoreError> {
        let run = outcome.run;
        let outcome = match &self.ending {
            Some(ending) => Box::pin(ending.of(outcome, token)).await?,
            None => outcome,
        };
        self.baselines.rest(run);
        Ok(outcome)
    }

    fn is_scripted(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was never asked has no part in it.
        let took_part =
            |name: &AgentName| !self.setup.helpers.contains(name) || asked.contains(name);
        self.setup.agents.iter().filter(|(name, _)| took_part(name)).any(|(_, agent)| {
            self.models.catalog().info(&agent.model).is_ok_and(|info| info.scripted)
        })
    }
}

/// How the reason ends for which work is refused, whatever else came of it.
pub(crate) const LOOK_FIRST: &str = "; look at it before you use git here";

/// The same executor, without anything to ask or to change: everything answers what it answered.
pub(crate) struct Replayed {
    pub(crate) workshop: Workshop,
    pub(crate) tape: Arc<Tape>,
}

#[async_trait]
impl Executor for Replayed {
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError> {
        let path = path(&job);
        let playing = async {
            let ended = |done: Result<AttemptEnd, Error>| {
                done.or_else(broken).map(|end| self.tape.judged(&path, end))
            };
            let end = match &job.spec.body {
                Body::Agent { agent, prompt } => {
                    ended(self.workshop.converse(&job, agent, prompt, cancel).await)
                }
                Body::Graph(graph) => ended(self.workshop.graph(&job, graph, cancel).await),
                _ => Ok(self.tape.attempt(&path, cancel).await),
            };
            self.tape.attempted(&path, cancel).await;
            end
        };
        Box::pin(self.tape.playing.follow(&path, cancel, playing)).await
    }

    async fn check(&self, job: CheckJob, cancel: &Cancel) -> Result<Verdict, StoreError> {
        // By its names, for some tasks are made while the run goes on.
        let path = job.path.to_string();
        let playing = self.tape.check(&path, (job.phase, job.index), cancel);
        Ok(self.tape.playing.follow(&path, cancel, playing).await.unwrap_or_else(|| {
            Verdict::bare(
                job.check.name.clone(),
                false,
                "the record ends before this check".to_owned(),
            )
        }))
    }

    /// Starts nothing: whoever needed it is answered what it was answered then.
    async fn serve(&self, _: ServiceJob, cancel: &Cancel) -> ServiceEnd {
        cancel.cancelled().await;
        ServiceEnd { how: "was not started".to_owned(), excerpt: String::new(), output: None }
    }

    fn idle(&self, under_way: usize) {
        self.tape.playing.idle(under_way);
    }

    fn leave(&self, session: SessionId, task: TaskState, reason: &str) -> Option<LastWords> {
        self.workshop.leave(session, task, reason)
    }

    fn is_scripted(&self) -> bool {
        self.workshop.is_scripted()
    }
}

/// Writes every text of a value as a model is shown what comes from outside: it may be what a command printed.
fn shown(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(written) = outside(text) {
                *text = written;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shown),
        Value::Object(map) => map.values_mut().for_each(shown),
        _ => {}
    }
}

/// Says why an attempt could not be made.
///
/// # Errors
/// What the log could not do: what was begun may have taken effect without a word of it.
fn broken(error: Error) -> Result<AttemptEnd, StoreError> {
    let error = error.beside_the_log()?;
    let detail = crate::error::chain(&error);
    Ok(failed(match error {
        Error::Model { .. } | Error::Transport { .. } => Escalation::ProviderFailed { detail },
        // It would be the same prompt at every attempt.
        Error::Prompt { .. } => Escalation::CannotBegin { detail },
        _ => Escalation::BodyFailed { detail },
    }))
}

/// Says why a check could not be begun.
///
/// # Errors
/// What the log could not do.
fn unmade(job: &CheckJob, error: Error) -> Result<Verdict, StoreError> {
    let error = error.beside_the_log()?;
    Ok(Verdict::bare(&*job.check.name, false, crate::error::chain(&error)))
}

/// Says that a body gave up without a conversation to go on in.
pub(crate) const fn failed(why: Escalation) -> AttemptEnd {
    AttemptEnd::Failed { why, session: None, files_changed: 0 }
}

/// Returns the schema that a task's result has to follow, if it has to follow one.
pub(crate) fn schema_of(spec: &TaskSpec) -> Option<&Value> {
    spec.postchecks.iter().find_map(|check| match &check.kind {
        formwork_protocols::check::CheckKind::Output(output) => Some(&output.schema),
        _ => None,
    })
}

/// Says what the failed checks found, for the model to mend.
fn evidence(verdicts: &[Verdict], takes_tools: bool) -> String {
    let failed = verdicts.iter().filter(|verdict| !verdict.passed);
    let told: Vec<String> =
        failed.map(|verdict| outside(&verdict.for_model()).into_owned()).collect();
    if told.is_empty() {
        return String::new();
    }
    let then = if takes_tools { "then call end_task again" } else { "then say so" };
    format!("The task is not done:\n{}Mend it, {then}.", told.join("\n"))
}

/// Says why a task whose conversation ended so is given up.
pub(crate) fn escalation(end: SessionEnd) -> Escalation {
    match end {
        SessionEnd::Refused { detail } => Escalation::Refused { detail },
        SessionEnd::Stuck { pattern, detail } => {
            Escalation::Stuck { pattern: Some(pattern), detail }
        }
        SessionEnd::Unkept { rule, detail } => Escalation::Refused {
            detail: format!(
                "the agent's rule {rule} is not kept, however often it was told: {detail}"
            ),
        },
        SessionEnd::ProseCalls { answers } => Escalation::Stuck {
            pattern: Some(StuckPattern::ProseCalls),
            detail: format!(
                "the model wrote its tool calls as text, {answers} answers in a row; where it has no others, \
                 tool_calls = \"text\" below its name in the config has them read"
            ),
        },
        SessionEnd::OverBudget(over) => {
            // Ids are other ones in a run that is carried out again, and say nothing to a reader.
            let told = over.to_string();
            let bare = told.strip_prefix(&format!("task {} has ", over.task));
            Escalation::BudgetExhausted { detail: bare.unwrap_or(&told).to_owned() }
        }
        SessionEnd::ProviderFailed(error) if error.fault == ProviderFault::Cancelled => {
            Escalation::BodyFailed { detail: error.to_string() }
        }
        SessionEnd::ProviderFailed(error) if error.fault.is_retryable() => {
            Escalation::Unreachable { detail: error.to_string() }
        }
        SessionEnd::ProviderFailed(error) | SessionEnd::ContextOverflow(error) => {
            Escalation::ProviderFailed { detail: error.to_string() }
        }
        SessionEnd::Overrun(error) => Escalation::BudgetExhausted { detail: error.to_string() },
        SessionEnd::RoundsExhausted { rounds } => Escalation::BudgetExhausted {
            detail: format!("the agent's {rounds} model calls are used up"),
        },
        SessionEnd::TimedOut { after } => Escalation::TimedOut { after },
        other => Escalation::BodyFailed { detail: format!("the conversation ended: {other:?}") },
    }
}
