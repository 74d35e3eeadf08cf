//! A plan that an agent hands over: held against what there is, and its tasks made.

use std::collections::{BTreeMap, BTreeSet};

use formwork_policy::{Call, Decision, Meaning};
use formwork_protocols::{
    AgentName, Body, Cancel, Cancellation, Claim, Ending, Escalation, Span, TaskName, TaskOutcome,
    TaskSpec, ToolClass, ToolName, Usd,
    budget::Remaining,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, Issue, Parser, Severity, Verdict},
    spec::{Graph, GraphHold, GraphPlan, Isolation, Made, Retries},
    text,
};
use formwork_scheduler::{AttemptEnd, AttemptJob, CheckJob, workflow::handed_down};
use formwork_tool::builtin::Role;
use formwork_write_safety::WriteRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Error,
    error::chain,
    executor::Workshop,
    making,
    setup::{self, AgentSetup},
};

/// How long one run of the suite may take.
pub(crate) const SUITE_TIMEOUT: Span = Span::from_secs(1_800);

/// How much each task says of itself in the result of all.
const SAID_BYTES: usize = 1_000;

/// A plan, as it is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalPlan {
    /// Its tasks.
    pub nodes: Vec<Node>,
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name among those of the plan.
    pub name: TaskName,
    /// What it is to do.
    pub prompt: String,
    /// What kind of work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Who does it, whatever the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The tasks of the plan that have to be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskName>,
    /// Commands that have to succeed in its workspace, each a list of words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Vec<String>>,
    /// What it may write, as globs; anything where absent. An empty list is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_paths: Option<Vec<String>>,
    /// What it may use of the run's dollars; any of what is left where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
}

impl Workshop {
    /// Decides whether what a body hands over is a plan that can be done.
    ///
    /// # Errors
    /// [`Error::Rules`] when the config's own rules do not parse.
    pub(crate) fn judge_graph(&self, job: &CheckJob, held: &GraphHold) -> Result<Verdict, Error> {
        let output = job.claim.as_ref().and_then(|claim| claim.output.as_ref());
        let bare = |passed, reason: String| Verdict::bare(&*job.check.name, passed, reason);
        Ok(match self.nodes(output, held, &job.ledger.remaining(job.task))? {
            Ok(nodes) => {
                let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
                let count = names.len();
                let tasks = if count == 1 { "task" } else { "tasks" };
                bare(true, format!("{count} {tasks}: {}", names.join(", ")))
            }
            Err(faults) => {
                let reason = faults.first().cloned().unwrap_or_default();
                let issues = faults.iter().map(|fault| Issue::new(Severity::Major, fault.as_str()));
                Verdict { issues: issues.collect(), ..bare(false, reason) }
            }
        })
    }

    /// Makes the tasks of a plan, and waits until all of them have ended.
    ///
    /// # Errors
    /// As [`Workshop::judge_graph`].
    pub(crate) async fn graph(
        &self,
        job: &AttemptJob,
        graph: &Graph,
        cancel: &Cancel,
    ) -> Result<AttemptEnd, Error> {
        let failed = |why| AttemptEnd::Failed { why, session: None, files_changed: 0 };
        let output = match &graph.plan {
            GraphPlan::Of(task) => {
                job.results.get(task.as_str()).and_then(|result| result.get("output"))
            }
            GraphPlan::Given(plan) => Some(plan),
        };
        // What it may cost was looked at when it was made, and may be spent in part by now.
        let nodes = match self.nodes(output, &graph.held, &Remaining::default())? {
            Ok(nodes) => nodes,
            Err(faults) => {
                return Ok(failed(Escalation::CannotBegin { detail: faults.join("; ") }));
            }
        };
        // One that depends on what has failed by now is not made; the others go on.
        let mut refused = None;
        for node in nodes {
            let own = job.spec.made.as_deref().cloned().unwrap_or_default();
            let spec = task_of(&self.setup.agents, &own, node, &graph.held)?;
            if let Err(detail) = job.control.make(job.task, spec).await {
                refused.get_or_insert(detail);
            }
        }
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(AttemptEnd::Interrupted { session: None }),
            ended = job.control.results(job.task, Vec::new()) => ended,
        };
        let outcomes = match ended {
            Ok(outcomes) => outcomes,
            Err(detail) => return Ok(failed(Escalation::BodyFailed { detail })),
        };
        if let Some(first) = outcomes.iter().find(|outcome| is_cause(outcome)) {
            return Ok(failed(Escalation::ChildFailed { child: first.name.clone() }));
        }
        if let Some(detail) = refused {
            return Ok(failed(Escalation::BodyFailed { detail }));
        }
        Ok(AttemptEnd::Claimed { claim: told(&outcomes), session: None, files_changed: 0 })
    }

    /// Refuses a plan that cannot be done, before anything is.
    ///
    /// # Errors
    /// [`Error::Goal`] names all that is wrong with it; as [`Workshop::judge_graph`].
    pub(crate) fn can_do(
        &self,
        plan: &Value,
        held: &GraphHold,
        usd: Option<Usd>,
    ) -> Result<(), Error> {
        let left = Remaining { usd, ..Remaining::default() };
        self.nodes(Some(plan), held, &left)?.map(drop).map_err(|faults| {
            let reason = format!("the plan cannot be done: {}", faults.join("; "));
            Error::Goal { reason }
        })
    }

    /// Reads a plan, in an order in which each task comes behind those that it depends on; or says all that is
    /// wrong with it.
    fn nodes(
        &self,
        output: Option<&Value>,
        held: &GraphHold,
        left: &Remaining,
    ) -> Result<Result<Vec<Node>, Vec<String>>, Error> {
        let Some(output) = output else {
            return Ok(Err(vec!["no plan was handed over".to_owned()]));
        };
        let GoalPlan { nodes } = match serde_json::from_value(output.clone()) {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(vec![format!("the plan cannot be read: {error}")])),
        };
        let mut faults = Vec::new();
        if nodes.is_empty() {
            faults.push("the plan has no task".to_owned());
        }
        if nodes.len() > held.most as usize {
            faults.push(format!(
                "{} tasks are more than the {} that there may be",
                nodes.len(),
                held.most
            ));
        }
        let names: BTreeSet<&TaskName> = nodes.iter().map(|node| &node.name).collect();
        let mut seen = BTreeSet::new();
        for node in &nodes {
            if !seen.insert(&node.name) {
                faults.push(format!("two tasks are named {}", node.name));
            }
            for on in node.depends_on.iter().filter(|on| !names.contains(on)) {
                faults
                    .push(format!("task {} depends on {on}, which is not in the plan", node.name));
            }
            if node.prompt.trim().is_empty() {
                faults.push(format!("task {} is not told what to do", node.name));
            }
            if let Err(why) = hand(&self.setup.agents, node, held) {
                faults.push(format!("task {}: {why}", node.name));
            }
            let globs = node.write_paths.as_deref();
            if globs.is_some_and(<[String]>::is_empty) {
                let told = "write_paths names no path: name some, or leave it out for any; a task that only looks has \
                            the role research or review";
                faults.push(format!("task {}: {told}", node.name));
            }
            if let Err(error) = WriteRules::parse(globs.unwrap_or_default(), &[]) {
                faults.push(format!("task {}: write_paths: {}", node.name, chain(&error)));
            }
            if let Some(usd) = node.usd.filter(|usd| *usd < Usd::ZERO) {
                faults.push(format!("task {}: usd: wanted at least 0, found {usd}", node.name));
            }
            for argv in &node.checks {
                if let Err(why) = self.may_check(held, argv)? {
                    faults.push(format!("task {}: checks: {why}", node.name));
                }
            }
        }
        let wanted = nodes.iter().filter_map(|node| node.usd).fold(Usd::ZERO, Usd::saturating_add);
        if let Some(left) = left.usd.filter(|left| wanted > *left) {
            faults.push(format!("the tasks may use ${wanted} together, and ${left} are left"));
        }
        // What is not there cannot be waited for.
        let is_closed = nodes.iter().flat_map(|node| &node.depends_on).all(|on| names.contains(on));
        Ok(match ordered(nodes.clone()) {
            Ok(nodes) if faults.is_empty() => Ok(nodes),
            Err(circle) if is_closed => {
                let names: Vec<&str> = circle.iter().map(TaskName::as_str).collect();
                let told = format!("tasks wait for each other in a circle: {}", names.join(", "));
                faults.push(told);
                Err(faults)
            }
            _ => Err(faults),
        })
    }

    /// Tells whether a command that a plan names may be run unasked.
    fn may_check(&self, held: &GraphHold, argv: &[String]) -> Result<Result<(), String>, Error> {
        if argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Ok(Err("a command needs a program".to_owned()));
        }
        if let Some(word) = argv.iter().find(|word| word.contains("{{")) {
            return Ok(Err(format!("{word:?} has {{{{, which stands for a value in a command")));
        }
        let specs = self.specs();
        let agent = &self.agent(&held.agent)?.agent;
        let (policy, _) = setup::policy(&self.setup.config, agent, &specs, &self.protection)?;
        let tool = ToolName::parse("exec").expect("the names of built-in tools follow the rule");
        let within = self.lookup().within();
        let meaning = Meaning { within: Some(&within), ..Meaning::default() };
        let call = Call { argv: Some(argv), meaning, ..Call::new(&tool, ToolClass::Exec) };
        Ok(match policy.decide(&call) {
            Decision::Allow => Ok(()),
            Decision::Ask { why } | Decision::Deny { why } => {
                Err(format!("{} may not be run unasked: {why}", argv.join(" ")))
            }
        })
    }
}

/// Returns who does a task of a plan.
fn hand(
    agents: &BTreeMap<AgentName, AgentSetup>,
    node: &Node,
    held: &GraphHold,
) -> Result<AgentName, String> {
    let known = |name: &str| agents.keys().find(|known| known.as_str() == name);
    let found = match (&node.agent, node.role) {
        (Some(agent), _) => known(agent.as_str()),
        (None, Some(role)) => known(role.as_str()).or_else(|| known(role.built_in())),
        (None, None) => known(held.agent.as_str()),
    };
    found.cloned().ok_or_else(|| {
        let wanted = node.agent.as_ref().or(node.role.is_none().then_some(&held.agent));
        let wanted = wanted.map_or("of that role", AgentName::as_str);
        let known: Vec<&str> = agents.keys().map(AgentName::as_str).collect();
        format!("there is no agent {wanted}; there are {}", known.join(", "))
    })
}

/// Makes a task of a plan, within what `own` says of who has it made.
///
/// # Errors
/// [`Error::Goal`] where nobody can do it.
pub(crate) fn task_of(
    agents: &BTreeMap<AgentName, AgentSetup>,
    own: &Made,
    node: Node,
    held: &GraphHold,
) -> Result<TaskSpec, Error> {
    let name = hand(agents, &node, held).map_err(|reason| Error::Goal { reason })?;
    let most = agents.get(&name).map(|own| own.agent.document().budget.clone()).unwrap_or_default();
    let usd = node.usd.into_iter().chain(most.usd).min();
    let looks = node.role.and_then(Role::most);
    let isolation = if looks.is_some() { Isolation::None } else { held.isolation };
    let checks = node.checks.iter().map(|argv| {
        let kind = CheckKind::Command(CommandCheck {
            parse: Parser::of(argv),
            argv: argv.clone(),
            expect: Expect::Pass,
        });
        CheckSpec::new(argv.join(" "), kind, making::CHECK_TIMEOUT)
    });
    let body = Body::Agent { agent: name, prompt: making::prompt(&node.depends_on) };
    let mode = looks.into_iter().chain(own.mode).min();
    let mut spec = handed_down(TaskSpec {
        vars: Map::from_iter([(making::REQUEST.to_owned(), Value::String(node.prompt))]),
        postchecks: checks.collect(),
        depends_on: node.depends_on,
        retries: Retries::default(),
        budget: formwork_protocols::Budget { usd, ..most },
        write_paths: node.write_paths,
        protected_paths: held.protected_paths.clone(),
        isolation,
        made: Some(Box::new(Made { mode, ..own.clone() })),
        ..TaskSpec::new(node.name, body)
    });
    // It runs the whole suite.
    for check in spec.postchecks.iter_mut().filter(|check| check.kind == CheckKind::Merged) {
        check.timeout = SUITE_TIMEOUT;
    }
    Ok(spec)
}

/// Puts tasks in an order in which each comes behind those that it depends on, or returns those of a circle.
fn ordered(mut open: Vec<Node>) -> Result<Vec<Node>, Vec<TaskName>> {
    let mut done: Vec<Node> = Vec::with_capacity(open.len());
    while !open.is_empty() {
        let known: BTreeSet<TaskName> = done.iter().map(|node| node.name.clone()).collect();
        let (ready, rest): (Vec<Node>, Vec<Node>) =
            open.into_iter().partition(|node| node.depends_on.iter().all(|on| known.contains(on)));
        if ready.is_empty() {
            return Err(rest.into_iter().map(|node| node.name).collect());
        }
        done.extend(ready);
        open = rest;
    }
    Ok(done)
}

/// Tells whether a task failed by itself, and not because another one did.
fn is_cause(outcome: &TaskOutcome) -> bool {
    let is_for_another =
        matches!(outcome.ending, Ending::Cancelled { why: Cancellation::DependencyFailed { .. } });
    outcome.ending != Ending::Completed && !is_for_another
}

/// Says what the tasks say of themselves.
fn told(outcomes: &[TaskOutcome]) -> Claim {
    let (mut summary, mut output) = (String::new(), Map::new());
    for outcome in outcomes {
        let Some(claim) = &outcome.claim else { continue };
        let said = text::head(claim.summary.trim(), SAID_BYTES);
        summary.push_str(&format!("{}: {said}\n", outcome.name));
        if let Some(value) = &claim.output {
            output.insert(outcome.name.to_string(), value.clone());
        }
    }
    let output = (!output.is_empty()).then_some(Value::Object(output));
    Claim { summary: summary.trim_end().to_owned(), output }
}
