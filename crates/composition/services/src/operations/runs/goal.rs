//! A goal: planned by an agent, its tasks done apart, each merged once it passes with all that was merged before.

use formwork_protocols::{
    AgentName, Body, PermissionMode, TaskName, TaskSpec, WorkflowName,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, Parser},
    spec::{Graph, GraphHold, Isolation, Made, OnFailure, Retries},
};
use formwork_scheduler::workflow::{Plan, output_check};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Error, Formwork, graph::SUITE_TIMEOUT};

/// What a run of a goal is called, and its two parts.
const NAME: &str = "goal";
const PLAN: &str = "plan";
const BUILD: &str = "build";

/// How many tasks a plan has at the most where nobody says otherwise.
const TASKS: u32 = 12;

/// The variable by which the goal is put into the prompt.
const REQUEST: &str = "request";

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
}

/// Makes the plan of the run, one that has the plan of the goal made and does it, and the suite that has to pass before
/// each of its tasks is merged.
pub(super) fn plan(
    formwork: &Formwork,
    asked: Goal,
) -> Result<(Plan, Option<CommandCheck>), Error> {
    let unusable = |reason: &str| Error::Goal { reason: reason.to_owned() };
    if asked.prompt.trim().is_empty() {
        return Err(unusable("the goal has no words"));
    }
    let most = asked.tasks.unwrap_or(TASKS);
    if most == 0 {
        return Err(unusable("a plan has at least one task"));
    }
    let test = match asked.test {
        Some(argv) if argv.first().is_none_or(|program| program.trim().is_empty()) => {
            return Err(unusable("a command names a program"));
        }
        Some(argv) => {
            let parse = Parser::of(&argv);
            Some(CommandCheck { argv, parse, expect: Expect::Pass })
        }
        None => crate::project::commands(formwork.workspace()).tests,
    };
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
        agent: agent(asked.agent, "coder"),
        isolation: Isolation::Snapshot,
        protected_paths: asked.protect,
    };
    let output = output_check(schema(most)).map_err(|reason| Error::Goal { reason })?;
    let graph = CheckKind::Graph(Box::new(held.clone()));
    let first = TaskSpec {
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
    };
    let mut tasks = vec![first];
    if !asked.plan_only {
        let suite = test.clone().map(|test| {
            CheckSpec::new(test.argv.join(" "), CheckKind::Command(test), SUITE_TIMEOUT)
        });
        tasks.push(TaskSpec {
            description: "Has the tasks of the plan done.".to_owned(),
            depends_on: vec![named(PLAN)],
            postchecks: suite.into_iter().collect(),
            ..TaskSpec::new(named(BUILD), Body::Graph(Box::new(Graph { of: named(PLAN), held })))
        });
    }
    let body = Body::Subtasks { tasks, on_failure: OnFailure::ContinueIndependent };
    let name = WorkflowName::parse(NAME).expect("letters are a name");
    let request = request(&asked.prompt, most, test.as_ref());
    let variables = Map::from_iter([(REQUEST.to_owned(), Value::String(request))]);
    Ok((Plan::of(name, TaskSpec::new(named(NAME), body), variables), test))
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
                    "write_paths": words,
                    "usd": { "type": "string", "description": "dollars that it may use, as in 0.25" },
                },
            },
        } },
    })
}
