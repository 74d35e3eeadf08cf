//! A change that git knows, judged by an agent: a run of one task whose only work is its exit check.

use std::{path::PathBuf, sync::Arc};

use formwork_protocols::{
    AgentName, Body, Span, TaskName, TaskSpec, WorkflowName,
    check::{AgentCheck, CheckKind, CheckSpec, GitChange, Severity},
    spec::OnFailure,
};
use formwork_scheduler::workflow::Plan;
use serde_json::{Map, Value};

use crate::{Error, Formwork, checks::sight};

/// What a run and its task are called.
pub(crate) const NAME: &str = "review";

/// How long a look at one part may take: as any check.
pub(super) const TIMEOUT: Span = Span::from_secs(600);

/// The variable by which what a person asks for is put into the prompt.
const REQUEST: &str = "request";

/// What is asked where nobody asks for anything in particular.
const ASKED: &str = "Judge this change: whether it is right, whole and safe to take.";

/// Makes the plan. That there is such a change is found out here, before anybody is paid to look at it.
pub(super) async fn plan(
    formwork: &Formwork,
    change: GitChange,
    prompt: Option<String>,
    agent: Option<AgentName>,
) -> Result<Plan, Error> {
    let inner = &formwork.inner;
    let (root, scrub, of) = (Arc::clone(&inner.root), Arc::clone(&inner.scrub), change.clone());
    let index = inner.environment.get(std::ffi::OsStr::new("GIT_INDEX_FILE")).map(PathBuf::from);
    let look = move || sight::of_git(root.path(), &of, index.as_deref(), &*scrub).map(drop);
    tokio::task::spawn_blocking(look).await.map_err(|error| Error::Panicked {
        what: "a look at a change",
        reason: error.to_string(),
    })??;
    let request = match prompt.filter(|text| !text.trim().is_empty()) {
        Some(text) => format!("{ASKED}\n\nIn particular:\n{text}"),
        None => ASKED.to_owned(),
    };
    let check = AgentCheck {
        agent: agent.unwrap_or_else(reviewer),
        prompt: format!("{{{{{REQUEST}}}}}"),
        block: Severity::Major,
        anchored: true,
        looks_at: Some(change),
    };
    let check = CheckSpec::new(NAME, CheckKind::Agent(check), TIMEOUT);
    let task = TaskName::parse(NAME).expect("letters are a name");
    let body = Body::Subtasks { tasks: Vec::new(), on_failure: OnFailure::default() };
    let root = TaskSpec { postchecks: vec![check], ..TaskSpec::new(task, body) };
    let name = WorkflowName::parse(NAME).expect("letters are a name");
    let variables = Map::from_iter([(REQUEST.to_owned(), Value::String(request))]);
    Ok(Plan::of(name, root, variables))
}

/// Returns the agent that judges unless somebody names another.
pub(super) fn reviewer() -> AgentName {
    AgentName::parse("reviewer").expect("the names of built-in agents follow the rule")
}
