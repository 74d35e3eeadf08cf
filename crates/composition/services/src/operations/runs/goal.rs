//! A goal: planned by an agent, its tasks done apart, each merged once it passes with all that was merged before.

use formwork_protocols::{
    AgentName, Body, Budget, PermissionMode, RunId, TaskName, TaskSpec, Usd, WorkflowName,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, Parser},
    spec::{Graph, GraphHold, GraphPlan, Isolation, Made, OnFailure, Retries},
};
use formwork_sandbox::{Command, Protection};
use formwork_scheduler::workflow::{Plan, output_check};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{named, own, recorded};
use crate::{Error, Formwork, error::chain, graph::SUITE_TIMEOUT, operations::goals::Found};

/// What a run of a goal is called, and its two parts.
const NAME: &str = "goal";
pub(crate) const PLAN: &str = "plan";
pub(crate) const BUILD: &str = "build";

/// How many tasks a plan has at the most where nobody says otherwise.
const TASKS: u32 = 12;

/// The variable by which the goal is put into the prompt, and the one that holds its own words.
const REQUEST: &str = "request";
pub(crate) const WORDS: &str = "goal";

/// What is to be reached.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// The goal, in words.
    pub prompt: String,
    /// Who makes the plan; `researcher` unless somebody says otherwise.
    pub planner: Option<AgentName>,
    /// Who does a task whose plan names nobody; `coder` unless somebody says otherwise.
    pub agent: Option<AgentName>,
    /// The suite that has to pass before each task is merged, and at the end; the project's own where absent, if it
    /// has one that is known.
    pub test: Option<Vec<String>>,
    /// How many tasks the plan may have; 12 where absent.
    pub tasks: Option<u32>,
    /// What none of the tasks may touch, as globs.
    pub protect: Vec<String>,
    /// Whether only the plan is made.
    pub plan_only: bool,
    /// The plan, where there is one already: then nobody is asked to make one.
    pub plan: Option<Given>,
    /// The most that it may cost, besides what is configured. Where absent, and a run has made the plan, what is left of
    /// that run's.
    pub usd: Option<Usd>,
}

/// A plan that is there already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// A run has made it. What is not said is as it was for that run: its goal, suite, agent, what is protected, and what is
    /// left of its dollars.
    Of(RunId),
    /// It is this: `nodes`, as [`GoalPlan`](crate::operations::goals::GoalPlan) has them.
    Nodes(Value),
}

/// A goal that is begun.
pub(super) struct Begun {
    /// The tasks of the run.
    pub(super) plan: Plan,
    /// The suite that has to pass before each task is merged.
    pub(super) test: Option<CommandCheck>,
    /// The plan of the goal, where it is there already, and how its tasks are held.
    pub(super) given: Option<(Value, GraphHold)>,
    /// Who was asked for by name to do the tasks.
    pub(super) agent: Option<AgentName>,
}

/// Puts in what is not said and what another run knows that has made the plan.
///
/// # Errors
/// [`Error::Goal`] where that run has no plan; [`Error::OtherWorkspace`], [`Error::Imported`], [`Error::Store`].
pub(super) async fn settled(formwork: &Formwork, mut asked: Goal) -> Result<Goal, Error> {
    if asked.plan.is_some() && asked.plan_only {
        let reason = "a plan that is there is not made once more".to_owned();
        return Err(Error::Goal { reason });
    }
    let Some(Given::Of(run)) = asked.plan else { return Ok(asked) };
    let store = &*formwork.inner.store;
    let row = named(store, run).await?;
    own(formwork, run, "carried out").await?;
    if std::path::Path::new(&row.workspace) != formwork.workspace() {
        return Err(Error::elsewhere(run, row.workspace));
    }
    let found = Found::read(store, run).await?;
    let (Some(plan), Some(held)) = (found.plan, found.held) else {
        let reason = format!("run {run} has made no plan that can be done");
        return Err(Error::Goal { reason });
    };
    let setup = recorded(store, run).await?;
    let cap = setup.config.budget.as_ref().and_then(|budget| budget.usd);
    let left = cap.map(|cap| Usd::from_nanos(cap.as_nanos().saturating_sub(row.cost.as_nanos())));
    if asked.prompt.trim().is_empty() {
        asked.prompt = found.words;
    }
    asked.plan = Some(Given::Nodes(plan));
    // One that could not work there was asked of nobody.
    let agent = Some(held.agent).filter(|agent| setup.agents.contains_key(agent));
    asked.agent = asked.agent.or(agent);
    asked.test = asked.test.or_else(|| setup.integrates.map(|test| test.argv));
    asked.tasks = asked.tasks.or(Some(held.most));
    asked.usd = asked.usd.or(left.map(|left| left.max(Usd::ZERO)));
    asked.protect.extend(held.protected_paths);
    asked.protect.sort();
    asked.protect.dedup();
    Ok(asked)
}

/// Makes the plan of the run, one that has the plan of the goal made and does it, or only one of both, and finds the suite
/// that has to pass before each of its tasks is merged.
///
/// # Errors
/// [`Error::Goal`] where one part of it can come to nothing.
pub(super) fn plan(formwork: &Formwork, asked: Goal) -> Result<Begun, Error> {
    let unusable = |reason: &str| Error::Goal { reason: reason.to_owned() };
    let given = match asked.plan {
        Some(Given::Nodes(nodes)) => Some(nodes),
        Some(Given::Of(_)) | None => None,
    };
    if asked.prompt.trim().is_empty() && given.is_none() {
        return Err(unusable("the goal has no words"));
    }
    let most = asked.tasks.unwrap_or(TASKS);
    if most == 0 {
        return Err(unusable("a plan has at least one task"));
    }
    let test = suite(formwork, asked.test)?;
    formwork_verify::Paths::parse(&asked.protect)
        .map_err(|error| Error::Goal { reason: error.to_string() })?;
    let agent = |name: Option<AgentName>, built_in: &str| {
        name.unwrap_or_else(|| {
            AgentName::parse(built_in).expect("the names of built-in agents follow the rule")
        })
    };
    let named = |name: &str| TaskName::parse(name).expect("letters are a name");
    let held = GraphHold {
        most,
        agent: agent(asked.agent.clone(), "coder"),
        isolation: Isolation::Snapshot,
        protected_paths: asked.protect,
    };
    let mut tasks = Vec::new();
    let mut variables =
        Map::from_iter([(WORDS.to_owned(), Value::String(asked.prompt.trim().to_owned()))]);
    if given.is_none() {
        let output = output_check(schema(most)).map_err(|reason| Error::Goal { reason })?;
        let graph = CheckKind::Graph(Box::new(held.clone()));
        tasks.push(TaskSpec {
            description: "Makes the plan.".to_owned(),
            postchecks: vec![output, CheckSpec::new("the plan can be done", graph, SUITE_TIMEOUT)],
            retries: Retries::default(),
            // Whoever it is, and whatever it may do elsewhere.
            made: Some(Box::new(Made { mode: Some(PermissionMode::Plan), ..Made::default() })),
            ..TaskSpec::new(
                named(PLAN),
                Body::Agent {
                    agent: agent(asked.planner, "researcher"),
                    prompt: format!("{{{{{REQUEST}}}}}"),
                },
            )
        });
        let request = request(&asked.prompt, most, test.as_ref());
        variables.insert(REQUEST.to_owned(), Value::String(request));
    }
    if !asked.plan_only {
        let suite = test.clone().map(|test| {
            CheckSpec::new(test.argv.join(" "), CheckKind::Command(test), SUITE_TIMEOUT)
        });
        let (plan, depends_on) = match &given {
            Some(nodes) => (GraphPlan::Given(nodes.clone()), Vec::new()),
            None => (GraphPlan::Of(named(PLAN)), vec![named(PLAN)]),
        };
        let graph = Graph { plan, held: held.clone() };
        tasks.push(TaskSpec {
            description: "Has the tasks of the plan done.".to_owned(),
            depends_on,
            postchecks: suite.into_iter().collect(),
            ..TaskSpec::new(named(BUILD), Body::Graph(Box::new(graph)))
        });
    }
    let body = Body::Subtasks { tasks, on_failure: OnFailure::ContinueIndependent };
    let name = WorkflowName::parse(NAME).expect("letters are a name");
    let mut plan = Plan::of(name, TaskSpec::new(named(NAME), body), variables);
    plan.cap(&Budget { usd: asked.usd, ..Budget::default() });
    let given = given.map(|nodes| (nodes, held));
    Ok(Begun { plan, test, given, agent: asked.agent })
}

/// Returns the suite, if its program is there: after all work it would be too late to tell.
fn suite(formwork: &Formwork, test: Option<Vec<String>>) -> Result<Option<CommandCheck>, Error> {
    let test = match test {
        Some(argv) if argv.first().is_none_or(|program| program.trim().is_empty()) => {
            let reason = "a command names a program".to_owned();
            return Err(Error::Goal { reason });
        }
        Some(argv) => {
            let parse = Parser::of(&argv);
            Some(CommandCheck { argv, parse, expect: Expect::Pass })
        }
        None => crate::project::commands(formwork.workspace()).tests,
    };
    if let Some(CommandCheck { argv, .. }) = &test {
        let command = Command::new(argv.clone(), formwork.workspace(), Protection::None);
        formwork.inner.sandbox.look_for(&command).map_err(|error| {
            let reason =
                format!("the suite `{}` cannot be started: {}", argv.join(" "), chain(&error));
            Error::Goal { reason }
        })?;
    }
    Ok(test)
}

/// Says what a plan is, for whoever makes it.
fn request(goal: &str, most: u32, test: Option<&CommandCheck>) -> String {
    let suite = test.map_or_else(String::new, |test| {
        format!(
            " Before it is merged, `{}` has to pass with all that was merged before.",
            test.argv.join(" ")
        )
    });
    format!(
        "Make a plan for this goal. Look at the workspace first; change nothing.\n\n{}\n\n\
         A plan is a list of at most {most} tasks; few are better than many. Each is done by somebody who sees nothing but its \
         `prompt` and a workspace of its own, which holds the merged work of the tasks in `depends_on`: say what is wanted, \
         where, and how it is known to be done. Tasks that do not depend on each other are done beside each other: two of \
         them should not change the same file.{suite} `checks` are commands, each a list of words, that have to succeed in \
         its workspace. `role` is code, test, research or review; the last two change nothing.",
        goal.trim_end()
    )
}

/// Returns the form of a plan.
fn schema(most: u32) -> Value {
    let name = json!({ "type": "string", "pattern": "^[a-z0-9_-]{1,64}$" });
    let words = json!({ "type": "array", "items": { "type": "string" } });
    json!({
        "type": "object",
        "required": ["nodes"],
        "additionalProperties": false,
        "properties": { "nodes": {
            "type": "array", "minItems": 1, "maxItems": most,
            "items": {
                "type": "object",
                "required": ["name", "prompt"],
                "additionalProperties": false,
                "properties": {
                    "name": name,
                    "prompt": { "type": "string", "minLength": 1 },
                    "role": { "enum": ["research", "code", "test", "review"] },
                    "agent": { "type": "string" },
                    "depends_on": { "type": "array", "items": name },
                    "checks": { "type": "array", "items": words },
                    "write_paths": { "type": "array", "minItems": 1, "items": { "type": "string" } },
                    "usd": { "type": "string", "description": "dollars that it may use, as in 0.25" },
                },
            },
        } },
    })
}
