//! What a worker works with: the same pipeline as a run's, over the workspace, the rules and the sandbox of its own place.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use formwork_agent::{Agent, AgentDocument, Source};
use formwork_protocols::{
    AgentName, Ask, AttemptId, Body, Cancel, Claim, HoldId, Ledger, ModelRef, OverBudget,
    Principal, Replay, RunId, SessionId, TaskId, TaskName, TaskSpec, ToolErrorKind, Usage, Usd,
    budget::{Crossing, Remaining},
    spec::Made,
    tool::TaskControl,
};
use formwork_scheduler::{AttemptJob, Results, TaskPath};
use formwork_tool::Pipeline;
use formwork_worker::{Announced, Answer, Bench, Bounds, Given, through};
use formwork_write_safety::Reads;
use serde_json::Map;

use crate::{
    Error, Formwork, custom,
    error::chain,
    executor::Workshop,
    operations::runs,
    remote,
    setup::{AgentSetup, Kind, RunSetup},
};

/// Of how many conversations it is remembered what they have read. One that comes back later reads again before it writes.
const MAX_SESSIONS: usize = 128;

/// Of how many runs at once.
const MAX_RUNS: usize = 32;

/// What a conversation does here is what it did here before, within the same bounds.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    task: TaskId,
    session: SessionId,
    agent: AgentName,
    bounds: Bounds,
}

/// A place where calls of runs elsewhere are carried out.
pub(crate) struct Workbench {
    formwork: Formwork,
    workshop: Workshop,
    announced: Vec<Announced>,
    runs: Mutex<VecDeque<(RunId, Workshop)>>,
    sessions: Mutex<VecDeque<(RunId, Key, Arc<Pipeline>)>>,
    /// Held while one is put together, so that two calls of a conversation have the same.
    making: tokio::sync::Mutex<()>,
}

impl Formwork {
    /// Returns what a worker works with here: the tools that work on this workspace, behind a pipeline of their own, under the
    /// config and the sandbox of this place. Nothing is recorded here: the record of a call is that of its run.
    ///
    /// # Errors
    /// What stands in the way of any call: the config, the sandbox, a document.
    pub async fn bench(&self) -> Result<Arc<dyn Bench>, Error> {
        let (keys, models) = self.models(&self.inner.config)?;
        let (trusted, _) = custom::trusted(self.workspace(), self.state())?;
        let tools: Vec<_> = trusted.into_iter().map(|found| found.document).collect();
        let programs = crate::trust::programs(self.workspace(), &self.inner.config.hooks, &tools);
        let setup = RunSetup {
            config: self.inner.config.clone(),
            agents: BTreeMap::new(),
            helpers: BTreeSet::new(),
            width: 1,
            commit: None,
            briefing: None,
            tests: crate::project::commands(self.workspace()).tests,
            tools,
            after: None,
            outside: Vec::new(),
            // Nobody is here to be asked: whoever started the worker has said what it may do.
            headless: true,
            approvals: Vec::new(),
            integrates: None,
            kind: Kind::Other,
            stands_on: BTreeMap::new(),
            programs: Some(programs),
            own_mode: false,
            hand: None,
            caused_by: Vec::new(),
        };
        let mut workshop = runs::workshop(self, setup, keys.registry, models)?;
        workshop.is_bench = true;
        workshop.check_network().await?;
        let specs = workshop.specs();
        let announced = specs
            .iter()
            .filter(|spec| remote::is_there(spec))
            .chain([&remote::check_spec(Replay::Once)])
            .map(|spec| Announced::of(&spec.definition))
            .collect();
        Ok(Arc::new(Workbench {
            formwork: self.clone(),
            workshop,
            announced,
            runs: Mutex::default(),
            sessions: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }))
    }
}

impl Workbench {
    /// Returns what a run works with here. What its conversations read is known to each other, and to no other run.
    fn of_run(&self, run: RunId) -> Workshop {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = runs.iter().find(|(known, _)| *known == run) {
            return known.clone();
        }
        let (reads, outside) = (Reads::new(), Arc::default());
        let own = Workshop { reads, outside, ..self.workshop.clone() };
        if runs.len() >= MAX_RUNS {
            runs.pop_front();
        }
        runs.push_back((run, own.clone()));
        own
    }

    async fn pipeline(&self, given: &Given) -> Result<Arc<Pipeline>, Error> {
        let _making = self.making.lock().await;
        let context = &given.context;
        let key = Key {
            task: context.task,
            session: context.session,
            agent: context.agent.clone(),
            bounds: given.bounds.clone(),
        };
        let known =
            |(run, known, _): &&(RunId, Key, Arc<Pipeline>)| *run == context.run && *known == key;
        let found = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.iter().find(known).map(|(_, _, pipeline)| Arc::clone(pipeline))
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let mut workshop = self.of_run(context.run);
        let hand = runs::hand();
        let by = narrowing(&hand, given.bounds.network.as_deref().unwrap_or_default());
        let mut setup = (*workshop.setup).clone();
        if given.bounds.network.is_none()
            && let Some(permissions) = &mut setup.config.permissions
        {
            permissions.network = None;
        }
        // They think nothing.
        let model: ModelRef = "none/none".parse().expect("two names are one of a model");
        for agent in &by {
            let own = AgentSetup { agent: agent.clone(), model: model.clone(), summary: None };
            setup.agents.insert(agent.name().clone(), own);
        }
        workshop.setup = Arc::new(setup);
        let spec = TaskSpec {
            protected_paths: given
                .bounds
                .write
                .iter()
                .flat_map(|globs| globs.protected.iter().cloned())
                .collect(),
            made: Some(Box::new(Made {
                by: by.iter().map(|agent| agent.name().clone()).collect(),
                within: given.bounds.write.iter().map(|globs| globs.write.clone()).collect(),
                ..Made::default()
            })),
            ..TaskSpec::new(
                TaskName::parse("call").expect("letters are a name"),
                Body::Agent { agent: context.agent.clone(), prompt: String::new() },
            )
        };
        let job = AttemptJob {
            run: context.run,
            task: context.task,
            path: TaskPath::new(Arc::new([]), spec.name.clone()),
            spec: Arc::new(spec),
            attempt: AttemptId::generate(&*workshop.clock, &*workshop.rng),
            number: 1,
            continues: false,
            resumes: None,
            evidence: Vec::new(),
            variables: Arc::new(Map::new()),
            results: Results::default(),
            control: Arc::new(Elsewhere),
            ledger: Arc::new(Elsewhere),
            token: None,
        };
        let who = (&hand, Principal::agent(&context.agent));
        let pipeline = Arc::new(Box::pin(workshop.pipeline(&job, who, None, None)).await?);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MAX_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back((context.run, key, Arc::clone(&pipeline)));
        Ok(pipeline)
    }
}

#[async_trait]
impl Bench for Workbench {
    fn tools(&self) -> Vec<Announced> {
        self.announced.clone()
    }

    async fn carry_out(&self, given: Given, cancel: &Cancel) -> Answer {
        if !self.announced.contains(&given.tool) {
            let told = format!("this worker has no {} of that kind", given.tool.name);
            return Answer::failed(ToolErrorKind::UnknownTool, told);
        }
        match self.pipeline(&given).await {
            Ok(pipeline) => through(&pipeline, &given, cancel).await,
            Err(error) => {
                let told = self.formwork.scrub().scrub_text(&chain(&error)).into_owned();
                Answer::failed(ToolErrorKind::Failed, told)
            }
        }
    }
}

/// Returns agents that may do what `hand` may, each with one list of where its programs connect to: what all of them may is
/// what the run lets.
fn narrowing(hand: &Agent, lists: &[Vec<String>]) -> Vec<Agent> {
    let agents = lists.iter().enumerate().map(|(at, hosts)| {
        let mut document: AgentDocument = hand.document().clone();
        document.name = AgentName::parse(format!("hosts-{at}")).ok()?;
        document.tools.exec.get_or_insert_default().hosts = Some(hosts.clone());
        Agent::new(document, "It narrows.", &BTreeMap::new(), Source::BuiltIn).ok()
    });
    agents.flatten().collect()
}

/// The tasks and the budgets of a run elsewhere: whoever has a call made there has seen to both.
struct Elsewhere;

impl Ledger for Elsewhere {
    fn reserve(&self, _: TaskId, _: HoldId, _: Ask) -> Result<(), OverBudget> {
        Ok(())
    }

    fn extend(&self, _: TaskId, _: HoldId, _: Ask) -> Result<(), OverBudget> {
        Ok(())
    }

    fn settle(&self, _: HoldId, _: &Usage, _: Usd) -> Vec<Crossing> {
        Vec::new()
    }

    fn count_tool_call(&self, _: TaskId) -> Result<Vec<Crossing>, OverBudget> {
        Ok(Vec::new())
    }

    fn remaining(&self, _: TaskId) -> Remaining {
        Remaining::default()
    }
}

#[async_trait]
impl TaskControl for Elsewhere {
    fn is_active(&self, _: TaskId) -> bool {
        true
    }

    async fn start(&self, _: TaskId, _: TaskName, _: String) -> Result<TaskId, String> {
        Err("no task is opened at a worker".to_owned())
    }

    async fn end(&self, _: TaskId, _: Claim) -> Result<TaskId, String> {
        Err("no task is ended at a worker".to_owned())
    }
}
