//! `goals.get`: the plan of a goal, and what doing it could cost.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Body, Budget, EventBody, Position, RunId, Store, TaskId, TaskName, TaskSpec, TaskState, Usd,
    check::CheckKind,
    spec::{GraphHold, GraphPlan, Made, OnFailure},
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    runs::goal::{BUILD, PLAN, WORDS},
    workflows::{PlannedTask, costs},
};
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    graph::task_of,
    models::{Keys, Models},
    operations::runs,
};

pub use crate::graph::{GoalPlan, Node};

/// Which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
}

/// A goal, and how it is to be reached.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// The run.
    pub run: RunId,
    /// The goal, in its own words.
    pub goal: String,
    /// The suite that has to pass before each task is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<Vec<String>>,
    /// Whether the run only makes the plan.
    pub plan_only: bool,
    /// The plan as it was handed over, once there is one that can be done. `runs.start` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<GoalPlan>,
    /// Its tasks as they would be done.
    pub tasks: Vec<PlannedTask>,
    /// How many of them could be at work at once, if the run is as wide.
    pub width: u64,
    /// What is left of the dollars of the run, where it may use only so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Usd>,
    /// The most that its tasks can cost; none where nothing bounds them.
    pub worst_case: Option<Usd>,
    /// Why nothing does.
    pub unbounded: Vec<String>,
}

/// `goals.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "goals.get";
    const DOC: &'static str =
        "Returns the plan of a goal, and the most that doing it could cost; spends nothing.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Goal;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Goal, Error> {
        let (inner, run) = (&formwork.inner, params.run);
        let row = runs::named(&*inner.store, run).await?;
        let found = Found::read(&*inner.store, run).await?;
        let setup = runs::recorded(&*inner.store, run).await?;
        let Some(held) = found.held else {
            let reason = format!("run {run} is none of a goal");
            return Err(Error::Goal { reason });
        };
        let cap = setup.config.budget.as_ref().and_then(|budget| budget.usd);
        let left = cap.map(|cap| {
            let left = cap.as_nanos().saturating_sub(row.cost.as_nanos());
            Usd::from_nanos(left.max(0))
        });
        let unread = |source| Error::Setup { run, source };
        let plan: Option<GoalPlan> =
            found.plan.map(serde_json::from_value).transpose().map_err(unread)?;
        let mut goal = Goal {
            run,
            goal: found.words,
            suite: setup.integrates.as_ref().map(|test| test.argv.clone()),
            plan_only: found.plan_only,
            plan,
            tasks: Vec::new(),
            width: 0,
            left,
            worst_case: None,
            unbounded: Vec::new(),
        };
        let Some(plan) = &goal.plan else { return Ok(goal) };
        let none = Made::default();
        let of = |node: &Node| task_of(&setup.agents, &none, node.clone(), &held);
        let tasks = plan.nodes.iter().map(of).collect::<Result<Vec<TaskSpec>, Error>>()?;
        let body = Body::Subtasks { tasks, on_failure: OnFailure::ContinueIndependent };
        let name = TaskName::parse(BUILD).expect("letters are a name");
        let budget = Budget { usd: left, ..Budget::default() };
        let root = TaskSpec { budget, ..TaskSpec::new(name, body) };
        let seams = (
            Arc::new(formwork_protocols::NoSecrets) as _,
            Arc::clone(&inner.rng),
            Arc::clone(&inner.clock),
        );
        // No key is read: nothing is asked.
        let keys = Keys::none();
        let models =
            Models::connect(&setup.config, &keys, (&inner.base, None), &inner.providers, seams)?;
        let planned = costs(formwork, &setup, &models, &root)?;
        // The first holds the others.
        goal.tasks = planned.tasks.into_iter().skip(1).collect();
        (goal.width, goal.worst_case) = (planned.width, planned.worst_case);
        goal.unbounded = planned.unbounded;
        Ok(goal)
    }
}

/// What the log tells of a goal.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The goal, in its own words.
    pub(crate) words: String,
    /// How the tasks of its plan are held; none where the run is of no goal.
    pub(crate) held: Option<GraphHold>,
    /// The plan, once there is one that can be done.
    pub(crate) plan: Option<Value>,
    plan_only: bool,
    planner: Option<TaskId>,
    claimed: Option<Value>,
}

impl Found {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) async fn read(store: &dyn Store, run: RunId) -> Result<Self, Error> {
        let kinds = ["run.created", "task."].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let (mut found, mut after) =
            (Self { plan_only: true, ..Self::default() }, Position::default());
        loop {
            let events = store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(found) };
            after = last.position;
            for event in events {
                found.take(event.task, event.body);
            }
        }
    }

    fn take(&mut self, task: Option<TaskId>, body: EventBody) {
        match body {
            EventBody::RunCreated(created) => {
                let words = created.setup.get("vars").and_then(|vars| vars.get(WORDS));
                self.words = words.and_then(Value::as_str).unwrap_or_default().to_owned();
            }
            EventBody::TaskCreated(created) => {
                if let Body::Graph(graph) = &created.spec.body {
                    self.plan_only = false;
                    self.held = Some(graph.held.clone());
                    if let GraphPlan::Given(plan) = &graph.plan {
                        self.plan = Some(plan.clone());
                    }
                }
                let held = created.spec.postchecks.iter().find_map(|check| match &check.kind {
                    CheckKind::Graph(held) => Some((**held).clone()),
                    _ => None,
                });
                if let Some(held) = held.filter(|_| created.spec.name.as_str() == PLAN) {
                    self.planner = task;
                    self.held = Some(held);
                }
            }
            EventBody::TaskMoved(moved) if task.is_some() && task == self.planner => {
                if let Some(output) = moved.claim.and_then(|claim| claim.output.clone()) {
                    self.claimed = Some(output);
                }
                if moved.to == TaskState::Completed {
                    self.plan = self.claimed.take();
                }
            }
            _ => {}
        }
    }
}
