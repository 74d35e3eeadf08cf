//! Tasks that agents make while they work: what each is, within what its maker may do.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_policy::{Call, Decision, Meaning, Policy, ToolPatterns};
use formwork_protocols::{
    AgentName, Body, Budget, Ledger, Span, TaskName, TaskSpec, ToolClass, ToolError, ToolErrorKind,
    ToolName, ToolSpec,
    check::{CheckKind, CheckSpec, CommandCheck, Expect},
    spec::{Made, Retries},
    tool::{CREATE_TASK, CREATE_WORKFLOW, CallContext},
};
use formwork_scheduler::workflow::{cap_lines, output_check};
use formwork_tool::{
    Lookup,
    builtin::{Makes, Role, Wanted, WantedTree},
};
use formwork_write_safety::WriteRules;
use serde_json::Value;

use crate::{Error, consult::CONSULT, setup, setup::Allowed};

/// The variable by which what a task is asked is put into its prompt: the words of a model are no template.
pub(crate) const REQUEST: &str = "request";

/// How long a check may take that an agent has thought of, as that of a task in words.
pub(crate) const CHECK_TIMEOUT: Span = Span::from_secs(600);

/// The tool whose rules bind a command that a task is checked by.
const EXEC: &str = "exec";

/// The tool that every task may use that its agent may: to say that one is done is no work.
const END_TASK: &str = "end_task";

/// What an agent that makes tasks may do, and by whom they can be done.
pub(crate) struct Maker {
    /// The task whose conversation it is.
    pub(crate) spec: Arc<TaskSpec>,
    /// What its own calls are judged by.
    pub(crate) policy: Policy,
    /// The tools that it may use.
    pub(crate) tools: Vec<ToolSpec>,
    /// Who can be asked, and what each may use at the most.
    pub(crate) agents: BTreeMap<AgentName, Hand>,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Where the programs of its checks are looked for.
    pub(crate) lookup: Lookup,
}

/// Somebody who can be asked.
pub(crate) struct Hand {
    /// The most that it may use.
    budget: Budget,
    /// Whether it has the tool by which more than words is handed over.
    hands_over: bool,
}

impl Hand {
    pub(crate) fn of(agent: &Agent) -> Self {
        Self {
            budget: agent.document().budget.clone(),
            hands_over: names(agent, END_TASK, "lifecycle"),
        }
    }
}

/// Tells whether an agent may make tasks.
pub(crate) fn may_make(agent: &Agent) -> bool {
    [CREATE_TASK, CREATE_WORKFLOW].into_iter().any(|tool| names(agent, tool, "tasks"))
}

/// Tells whether an agent may ask others.
pub(crate) fn may_consult(agent: &Agent) -> bool {
    names(agent, CONSULT, "model")
}

/// Tells whether the allow-list of an agent names a tool, by its name or its tag.
fn names(agent: &Agent, tool: &str, tag: &str) -> bool {
    let tools = &agent.document().tools;
    let patterns = tools.allow.iter().chain(&tools.deferred);
    let name = ToolName::parse(tool).expect("the names of built-in tools follow the rule");
    let parsed = ToolPatterns::parse(patterns.map(String::as_str));
    parsed.is_ok_and(|patterns| patterns.matches(&name, &[tag.to_owned()]))
}

/// Narrows what an agent may do to what the task allows that another has made.
///
/// # Errors
/// [`Error::Rules`] when a pattern does not parse.
pub(crate) fn within<'a>(
    made: &Made,
    (mut policy, mut allowed): (Policy, Allowed),
    by: impl IntoIterator<Item = &'a Agent>,
    tools: &[&ToolSpec],
) -> Result<(Policy, Allowed), Error> {
    let is_end = |name: &ToolName| name.as_str() == END_TASK;
    for agent in by {
        let (mut rules, own) = setup::own_rules(agent, tools.iter().copied())?;
        if let Some(tools) = &mut rules.tools {
            tools.extend(allowed.tools.iter().filter(|name| is_end(name)).cloned());
        }
        allowed.tools.retain(|name| own.tools.contains(name) || is_end(name));
        policy = policy.narrow(rules);
    }
    for patterns in &made.tools {
        let patterns = ToolPatterns::parse(patterns.iter().map(String::as_str))
            .map_err(|error| Error::Rules { reason: error.to_string() })?;
        let named = |name: &ToolName| {
            let known = tools.iter().find(|tool| tool.definition.name == *name);
            known.is_some_and(|tool| patterns.matches(name, &tool.tags))
        };
        allowed.tools.retain(|name| named(name) || is_end(name));
    }
    allowed.deferred.retain(|name| allowed.tools.contains(name));
    Ok((policy, allowed))
}

#[async_trait]
impl Makes for Maker {
    async fn spec(
        &self,
        context: &CallContext,
        name: TaskName,
        wanted: Wanted,
    ) -> Result<TaskSpec, ToolError> {
        self.may_make()?;
        let agent = match (wanted.agent.clone(), wanted.role) {
            (Some(agent), _) => agent,
            (None, Some(role)) => self.who_does(role)?,
            (None, None) => context.agent.clone(),
        };
        let Some(hand) = self.agents.get(&agent) else {
            let known: Vec<&str> = self.agents.keys().map(AgentName::as_str).collect();
            let told =
                format!("agent: there is no agent {agent} here; there are {}", known.join(", "));
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        };
        if let Some(mode) = wanted.mode.filter(|mode| *mode > self.policy.mode()) {
            let own = self.policy.mode().as_str();
            return Err(denied(format!(
                "mode: {} is more than {own}, which is the most that this task may do",
                mode.as_str()
            )));
        }
        self.patterns(wanted.tools.as_deref().unwrap_or_default())?;
        WriteRules::parse(wanted.write_paths.as_deref().unwrap_or_default(), &[])
            .map_err(|error| invalid(format!("write_paths: {error}")))?;
        let budget = self.budget(context, &wanted, &hand.budget)?;
        let checks = wanted.checks.iter().map(|argv| self.check(argv));
        let mut postchecks: Vec<CheckSpec> = checks.collect::<Result<_, _>>()?;
        if let Some(schema) = wanted.output_schema.clone() {
            if !hand.hands_over {
                return Err(invalid(format!(
                    "output_schema: agent {agent} has no {END_TASK}, and hands over nothing but words"
                )));
            }
            let output = output_check(Value::Object(schema));
            // What has not the form that was asked for is put right before anything else is looked at.
            postchecks.insert(0, output.map_err(|why| invalid(format!("output_schema: {why}")))?);
        }
        let prompt = prompt(&wanted.depends_on);
        let mut made = self.within(context);
        let asked = wanted.mode.into_iter().chain(wanted.role.and_then(Role::most)).min();
        made.mode = asked.into_iter().chain(made.mode).min();
        made.tools.extend(wanted.tools);
        let mut spec = TaskSpec {
            description: wanted.title,
            depends_on: wanted.depends_on,
            vars: [(REQUEST.to_owned(), Value::String(wanted.prompt))].into_iter().collect(),
            postchecks,
            retries: Retries::default(),
            timeout: wanted.timeout,
            budget,
            write_paths: wanted.write_paths,
            protected_paths: self.spec.protected_paths.clone(),
            made: Some(Box::new(made)),
            ..TaskSpec::new(name, Body::Agent { agent, prompt })
        };
        cap_lines(&mut spec);
        Ok(spec)
    }

    async fn tree(
        &self,
        context: &CallContext,
        name: TaskName,
        wanted: WantedTree,
    ) -> Result<TaskSpec, ToolError> {
        self.may_make()?;
        let whole = Wanted {
            usd: wanted.usd,
            rounds: wanted.rounds,
            tool_calls: wanted.tool_calls,
            ..Wanted::default()
        };
        let budget = self.budget(context, &whole, &Budget::default())?;
        for (name, part) in &wanted.tasks {
            // Each is carved out of the whole, as it is of a workflow that was written down.
            if let Some(told) = beyond(part, &whole) {
                return Err(denied(format!("{name}: {told}")));
            }
        }
        let checks = wanted.checks.iter().map(|argv| self.check(argv));
        let postchecks = checks.collect::<Result<_, _>>()?;
        let beside: Vec<&TaskName> = wanted.tasks.iter().map(|(name, _)| name).collect();
        let stranger = wanted.tasks.iter().find_map(|(name, task)| {
            let stranger = task.depends_on.iter().find(|on| !beside.contains(on));
            stranger
                .map(|on| format!("{name}: there is no task {on} in this workflow to depend on"))
        });
        if let Some(told) = stranger {
            return Err(invalid(told));
        }
        let mut tasks = Vec::with_capacity(wanted.tasks.len());
        for (name, task) in wanted.tasks {
            let spec = self.spec(context, name.clone(), task).await;
            tasks.push(spec.map_err(|error| ToolError {
                message: format!("{name}: {}", error.message),
                ..error
            })?);
        }
        Ok(TaskSpec {
            description: wanted.title,
            depends_on: wanted.depends_on,
            postchecks,
            timeout: wanted.timeout,
            budget,
            protected_paths: self.spec.protected_paths.clone(),
            made: Some(Box::new(self.within(context))),
            ..TaskSpec::new(name, Body::Subtasks { tasks, on_failure: wanted.on_failure })
        })
    }
}

impl Maker {
    /// Refuses what would be made where nobody saw what it does.
    fn may_make(&self) -> Result<(), ToolError> {
        if self.spec.isolation.is_none() && self.spec.target.is_none() {
            return Ok(());
        }
        let told =
            "a task with a workspace of its own makes no others: they would not see what it does";
        Err(denied(told.to_owned()))
    }

    /// Returns what binds whatever is made here.
    fn within(&self, context: &CallContext) -> Made {
        let own = self.spec.made.as_deref().cloned().unwrap_or_default();
        // What a task makes decides no check, even where the task itself does.
        let mut made = Made { decides: None, ..own };
        if made.by.last() != Some(&context.agent) {
            made.by.push(context.agent.clone());
        }
        made.within.extend(self.spec.write_paths.clone());
        made
    }

    /// Returns the agent that does work of a kind: the project's own of that name, else the one that comes with the
    /// program.
    fn who_does(&self, role: Role) -> Result<AgentName, ToolError> {
        let names = [role.as_str(), role.built_in()];
        let found =
            names.iter().find_map(|name| self.agents.keys().find(|known| known.as_str() == *name));
        found.cloned().ok_or_else(|| {
            let known: Vec<&str> = self.agents.keys().map(AgentName::as_str).collect();
            let [own, built_in] = names;
            invalid(format!(
                "role: neither agent {own} nor agent {built_in} can work here; there are {}",
                known.join(", ")
            ))
        })
    }

    /// Holds the tools that are wanted against those that there are.
    fn patterns(&self, wanted: &[String]) -> Result<(), ToolError> {
        let parsed = ToolPatterns::parse(wanted.iter().map(String::as_str));
        let known = parsed.and_then(|patterns| patterns.resolve(&self.tools));
        known.map(drop).map_err(|error| invalid(format!("tools: {error}")))
    }

    /// Takes what is wanted out of what is left, and out of what the agent may use.
    fn budget(
        &self,
        context: &CallContext,
        wanted: &Wanted,
        most: &Budget,
    ) -> Result<Budget, ToolError> {
        let left = self.ledger.remaining(context.task);
        let over = |what: &str, wanted: String, left: String| {
            Err(denied(format!("{wanted} {what} are more than the {left} that are left")))
        };
        if let (Some(usd), Some(left)) = (wanted.usd, left.usd)
            && usd > left
        {
            return over("dollars", usd.to_string(), left.to_string());
        }
        if let (Some(rounds), Some(left)) = (wanted.rounds, left.rounds)
            && rounds > left
        {
            return over("model calls", rounds.to_string(), left.to_string());
        }
        if let (Some(calls), Some(left)) = (wanted.tool_calls, left.tool_calls)
            && calls > left
        {
            return over("tool calls", calls.to_string(), left.to_string());
        }
        let (usd, rounds) = (tighter(wanted.usd, most.usd), tighter(wanted.rounds, most.rounds));
        let tool_calls = tighter(wanted.tool_calls, most.tool_calls);
        Ok(Budget { usd, rounds, tool_calls, ..most.clone() })
    }

    /// Makes a check of a command, where the agent itself might run it unasked.
    fn check(&self, argv: &[String]) -> Result<CheckSpec, ToolError> {
        if argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(invalid("checks: a command needs a program".to_owned()));
        }
        if let Some(word) = argv.iter().find(|word| word.contains("{{")) {
            let told = format!("checks: {word:?} has {{{{, which stands for a value in a command");
            return Err(invalid(told));
        }
        let told = argv.join(" ");
        let tool = ToolName::parse(EXEC).expect("the names of built-in tools follow the rule");
        let within = self.lookup.within();
        let meaning = Meaning { within: Some(&within), ..Meaning::default() };
        let call = Call { argv: Some(argv), meaning, ..Call::new(&tool, ToolClass::Exec) };
        match self.policy.decide(&call) {
            Decision::Allow => {}
            Decision::Ask { why } | Decision::Deny { why } => {
                return Err(denied(format!("checks: {told} is not yours to run: {why}")));
            }
        }
        let command = CommandCheck {
            parse: formwork_protocols::check::Parser::of(argv),
            argv: argv.to_vec(),
            expect: Expect::Pass,
        };
        Ok(CheckSpec::new(told, CheckKind::Command(command), CHECK_TIMEOUT))
    }
}

/// Asks what is wanted, and shows the results of what came before.
pub(crate) fn prompt(depends_on: &[TaskName]) -> String {
    let mut prompt = format!("{{{{{REQUEST}}}}}");
    for name in depends_on {
        prompt.push_str(&format!(
            "\n\nWhat task {name} says of its work:\n{{{{tasks.{name}.text}}}}"
        ));
    }
    prompt
}

/// Says what a part asks for that is more than the whole has, if anything is.
fn beyond(part: &Wanted, whole: &Wanted) -> Option<String> {
    fn more<T: PartialOrd + std::fmt::Display>(
        key: &str,
        (own, whole): (Option<T>, Option<T>),
    ) -> Option<String> {
        let (own, whole) = own.zip(whole)?;
        (own > whole).then(|| format!("{key}: {own} is more than the {whole} of the whole"))
    }
    more("usd", (part.usd, whole.usd))
        .or_else(|| more("rounds", (part.rounds, whole.rounds)))
        .or_else(|| more("tool_calls", (part.tool_calls, whole.tool_calls)))
}

fn tighter<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn invalid(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, message)
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, message)
}
