//! Edit, test, lint, review, until all of it passes: a run of one task whose attempts are the rounds.

use formwork_protocols::{
    AgentName, Body, Span, TaskName, TaskSpec, WorkflowName,
    check::{
        AgentCheck, CheckKind, CheckSpec, CommandCheck, Compare, DiffCheck, Expect, Severity,
        SuiteCheck,
    },
    spec::Retries,
};
use formwork_scheduler::workflow::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::review;
use crate::{Error, Formwork};

/// What a run and its task are called.
const NAME: &str = "loop";

/// How many rounds there are where nobody says otherwise.
const ROUNDS: u32 = 8;

/// How many lines and files all rounds together may change where nobody says otherwise: more than that is read by
/// nobody.
const MAX_LINES: u64 = 2_000;
const MAX_FILES: u64 = 60;

/// How long one run of a suite or a linter may take: a cold build and a long suite fit.
const TIMEOUT: Span = Span::from_secs(1_800);

/// How often all may be as it was in an earlier round: the first time another plan is asked for.
const REPEATS: u32 = 2;

/// The variable by which the task is put into the prompt.
const REQUEST: &str = "request";

/// What is to be done in rounds, and what ends them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rounds {
    /// The task.
    pub prompt: String,
    /// `coder` unless somebody says otherwise.
    pub agent: Option<AgentName>,
    /// The suite of tests, as an argument vector; the project's own where absent, if it has one that is known.
    pub test: Option<Vec<String>>,
    /// The linter.
    pub lint: Option<Vec<String>>,
    /// Whether an agent has to approve of the change.
    pub review: bool,
    /// `reviewer` unless somebody says otherwise.
    pub reviewer: Option<AgentName>,
    /// How many rounds there may be; 8 where absent.
    pub rounds: Option<u32>,
    /// Whether tests that failed before the first edit may go on failing.
    pub known_failures: bool,
    /// How many lines may be changed, added and removed together; 2,000 where absent.
    pub max_lines: Option<u64>,
    /// How many files may be changed; 60 where absent.
    pub max_files: Option<u64>,
    /// What must not be touched, as globs.
    pub protect: Vec<String>,
}

/// What the exit check by the suite is called.
pub(crate) const SUITE: &str = "tests";

/// Makes the plan.
pub(super) fn plan(formwork: &Formwork, asked: Rounds) -> Result<Plan, Error> {
    let unusable = |reason: &str| Error::Rounds { reason: reason.to_owned() };
    let Rounds { prompt, agent, test, lint, review, reviewer, rounds, .. } = asked;
    if prompt.trim().is_empty() {
        return Err(unusable("the task has no words"));
    }
    let rounds = rounds.unwrap_or(ROUNDS);
    if rounds == 0 {
        return Err(unusable("there is at least one round"));
    }
    for argv in [&test, &lint].into_iter().flatten() {
        if argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(unusable("a command names a program"));
        }
    }
    formwork_verify::Paths::parse(&asked.protect)
        .map_err(|error| Error::Rounds { reason: error.to_string() })?;
    let suite = match test {
        Some(argv) => Some((formwork_protocols::check::Parser::of(&argv), argv)),
        None => crate::project::commands(formwork.workspace())
            .tests
            .map(|command| (command.parse, command.argv)),
    };
    if suite.is_none() && lint.is_none() && !review {
        return Err(unusable(
            "nothing would tell when it is done: name a suite of tests, a linter or a review",
        ));
    }
    let mut prechecks = Vec::new();
    let mut postchecks = vec![CheckSpec {
        max_rounds: Some(REPEATS),
        ..CheckSpec::new("progress", CheckKind::Progress, TIMEOUT)
    }];
    let size = DiffCheck {
        max_lines: Some(asked.max_lines.unwrap_or(MAX_LINES)),
        max_files: Some(asked.max_files.unwrap_or(MAX_FILES)),
        allow_empty: true,
    };
    postchecks.push(CheckSpec::new("size", CheckKind::Diff(size), TIMEOUT));
    let mut told = Vec::new();
    if let Some((parse, argv)) = suite {
        told.push(argv.join(" "));
        let compare = if asked.known_failures { Compare::New } else { Compare::All };
        let suite = CheckKind::Suite(SuiteCheck { argv, parse, compare });
        prechecks.push(CheckSpec::new("tests before", suite.clone(), TIMEOUT));
        postchecks.push(CheckSpec::new(SUITE, suite, TIMEOUT));
    }
    if let Some(argv) = lint {
        told.push(argv.join(" "));
        let lint = CommandCheck { argv, parse: None, expect: Expect::Pass };
        postchecks.push(CheckSpec::new("lint", CheckKind::Command(lint), TIMEOUT));
    }
    if review {
        told.push("a review".to_owned());
        let check = AgentCheck {
            agent: reviewer.unwrap_or_else(review::reviewer),
            prompt: "Judge this change: whether it does what the task asks, rightly and wholly."
                .to_owned(),
            block: Severity::Major,
            anchored: true,
            looks_at: None,
        };
        postchecks.push(CheckSpec::new("review", CheckKind::Agent(check), review::TIMEOUT));
    }
    let request = format!(
        "{}\n\nOnce you say that you are done, this is held against your work: {}. What does not pass comes back \
         to you. A test is not changed, left out or taken away to make it pass unless the task asks for it.",
        prompt.trim_end(),
        told.join(", ")
    );
    let agent = agent.unwrap_or_else(|| {
        AgentName::parse("coder").expect("the names of built-in agents follow the rule")
    });
    let body = Body::Agent { agent, prompt: format!("{{{{{REQUEST}}}}}") };
    let retries = Retries { max: rounds - 1, ..Retries::default() };
    let task = TaskName::parse(NAME).expect("letters are a name");
    let root = TaskSpec {
        prechecks,
        postchecks,
        retries,
        protected_paths: asked.protect,
        ..TaskSpec::new(task, body)
    };
    let name = WorkflowName::parse(NAME).expect("letters are a name");
    let variables = Map::from_iter([(REQUEST.to_owned(), Value::String(request))]);
    Ok(Plan::of(name, root, variables))
}
