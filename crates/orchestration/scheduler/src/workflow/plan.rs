//! What can be run: parsed, resolved, and acyclic.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicUsize},
};

use formwork_protocols::{
    AgentName, Attachment, Body, Budget, TaskName, TaskSpec, Usd, WorkflowName,
    budget::OnExhausted,
    check::{CheckKind, CheckSpec, CommandCheck, Compare, Fix, Phase},
    document::{self, Diagnostic, Diagnostics, Document, Parsed, nearest_hint},
    spec::{OnFailure, Retries, ServiceSpec},
    time::Span,
};
use serde_json::{Map, Value};

use super::{
    check, contract,
    document::{TaskDocument, WorkflowDocument},
    extent, graph,
    refer::{Level, Side},
    scope,
};

/// The names that a workflow may refer to.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The agents that there are.
    pub agents: BTreeSet<AgentName>,
    /// The native functions that there are.
    pub natives: BTreeSet<String>,
    /// The native checks that there are.
    pub native_checks: BTreeSet<String>,
    /// The commands of the project, for ready-made checks.
    pub project: ProjectCommands,
    /// The texts of the contracts that tasks name, by their paths, or why one cannot be read.
    pub contracts: BTreeMap<String, Result<String, String>>,
    /// The tools that there are; where none is named, every one is taken for granted.
    pub tools: BTreeSet<String>,
    /// The workflows that checks may name, by their names.
    pub workflows: BTreeMap<WorkflowName, WrittenWorkflow>,
    /// The workflows whose checks led here, outermost first; none where one is read for itself.
    pub within: Vec<WorkflowName>,
    /// The variables whose values the workflow does not say itself, where a check reads it: what a task has said is put in.
    pub outside: BTreeSet<String>,
    /// How many workflows were read so far for the outermost check that led here.
    pub read: Arc<AtomicUsize>,
}

/// A workflow that a check may name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct WrittenWorkflow {
    pub file: String,
    pub text: String,
}

/// How a project is tested and linted, as far as its manifests tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct ProjectCommands {
    pub tests: Option<CommandCheck>,
    pub lint: Option<CommandCheck>,
}

/// A workflow that can be run: every name leads somewhere and nothing waits for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    name: WorkflowName,
    root: TaskSpec,
    variables: Map<String, Value>,
}

/// The variable by which a single task is put into its prompt.
const REQUEST: &str = "request";

/// What a run of a single task is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct SingleTask {
    /// The agent.
    pub agent: AgentName,
    /// What it is asked, word for word.
    pub prompt: String,
    /// What must hold when it says that it is done.
    pub postchecks: Vec<CheckSpec>,
    /// What happens when it does not.
    pub retries: Retries,
    /// How long it may take.
    pub timeout: Option<Span>,
}

impl Plan {
    /// Reads a workflow. `values` are what is set from outside for its variables.
    ///
    /// # Errors
    /// Every fault of the document with its place: shape, names, circles, budgets, globs, variables.
    pub fn parse(
        source: &str,
        text: &str,
        known: &Known,
        values: &Map<String, Value>,
    ) -> Result<Self, Diagnostics> {
        let parsed = match document::parse::<WorkflowDocument>(source, text) {
            Ok(parsed) => parsed,
            Err(mut faults) => {
                let rest = document::salvage(source, text);
                let more = rest.map(|rest| meaning(&rest, known, values).faults);
                let more = more.unwrap_or_default();
                // What a task misses it may have under the wrong key.
                let follows = |fault: &Diagnostic| {
                    faults.iter().any(|shape| shape.key.starts_with(&fault.key))
                };
                let more: Vec<_> = more.into_iter().filter(|fault| !follows(fault)).collect();
                faults.merge(more);
                return Err(faults);
            }
        };
        let Meaning { variables, services, tasks, faults } = meaning(&parsed, known, values);
        Diagnostics::from_iter(faults).or(())?;
        let workflow = &parsed.value;
        // The names of workflows and of tasks follow one rule.
        let name = TaskName::parse(workflow.name.as_str())
            .map_err(|error| parsed.diagnostic("/name", error.to_string()))?;
        let root = TaskSpec {
            description: workflow.description.clone(),
            budget: workflow.budget.clone(),
            services,
            ..TaskSpec::new(name, Body::Subtasks { tasks, on_failure: workflow.on_failure })
        };
        Ok(Self { name: workflow.name.clone(), root: scope::handed_down(root), variables })
    }

    /// Makes a workflow of one task.
    pub fn single(name: WorkflowName, task: SingleTask, budget: Budget) -> Self {
        let SingleTask { agent, prompt, postchecks, retries, timeout } = task;
        // What a person writes is no template: it is put in as a value, and values are never read again.
        let variables = Map::from_iter([(REQUEST.to_owned(), Value::String(prompt))]);
        let prompt = format!("{{{{{REQUEST}}}}}");
        let task = TaskName::parse(name.as_str())
            .expect("the names of workflows and of tasks follow one rule");
        let body = Body::Agent { agent, prompt };
        let root = TaskSpec { postchecks, retries, timeout, budget, ..TaskSpec::new(task, body) };
        Self { name, root, variables }
    }

    /// Makes a workflow of a task that was put together by hand. What holds around a task holds for what is below it
    /// too, and what is protected is checked, as in a workflow that was read.
    pub fn of(name: WorkflowName, root: TaskSpec, variables: Map<String, Value>) -> Self {
        Self { name, root: scope::handed_down(root), variables }
    }

    /// Has a workflow of one task shown images and documents with its prompt, whose bytes are put into the log with it.
    pub fn attach(&mut self, attached: Vec<Attachment>) {
        self.root.attached = attached;
    }

    /// Binds a workflow of one task to a contract, whose text is given.
    ///
    /// # Errors
    /// Every fault of the contract with its line.
    pub fn bind(&mut self, path: &str, text: &str, known: &Known) -> Result<(), Diagnostics> {
        let read = contract::contract(path, text)?;
        Diagnostics::from_iter(contract::unknown_tools(&read, text, &known.tools)).or(())?;
        let name = self.root.name.clone();
        let root = std::mem::replace(
            &mut self.root,
            TaskSpec::new(name, Body::Native { function: String::new() }),
        );
        self.root = contract::bound(root, read, text.to_owned());
        Ok(())
    }

    /// Takes a workflow as a log tells it: what was carried out once was sound.
    pub const fn from_record(
        name: WorkflowName,
        root: TaskSpec,
        variables: Map<String, Value>,
    ) -> Self {
        Self { name, root, variables }
    }

    /// Returns its name.
    pub const fn name(&self) -> &WorkflowName {
        &self.name
    }

    /// Returns the root task with all below it.
    pub const fn root(&self) -> &TaskSpec {
        &self.root
    }

    /// Returns the values of its variables.
    pub const fn variables(&self) -> &Map<String, Value> {
        &self.variables
    }

    /// Returns the agents that it asks for, those of its checks among them.
    pub fn agents(&self) -> BTreeSet<&AgentName> {
        fn collect<'a>(task: &'a TaskSpec, found: &mut BTreeSet<&'a AgentName>) {
            for check in task.prechecks.iter().chain(&task.postchecks) {
                found.extend(check::agents(check));
                below(check).iter().for_each(|task| collect(task, found));
            }
            match &task.body {
                Body::Agent { agent, .. } => {
                    found.insert(agent);
                }
                body => body.below().iter().for_each(|task| collect(task, found)),
            }
        }
        let mut found = BTreeSet::new();
        collect(&self.root, &mut found);
        found
    }

    /// Returns the first check that has a fix, with its task.
    pub fn mended(&self) -> Option<(&TaskSpec, &CheckSpec)> {
        let mut open = vec![&self.root];
        while let Some(task) = open.pop() {
            let mut checks = Phase::ALL.into_iter().flat_map(|phase| task.checks(phase));
            if let Some(check) = checks.find(|check| check.fix.is_some()) {
                return Some((task, check));
            }
            open.extend(task.body.below().iter().rev());
        }
        None
    }

    /// Caps the whole run by `budget` too: the tighter of both holds.
    pub fn cap(&mut self, budget: &Budget) {
        scope::cap(&mut self.root, budget);
    }

    /// Holds what is written down against the caps of the tree that are said of it. What nobody says binds only what is added
    /// while it runs.
    ///
    /// # Errors
    /// [`Beyond`](super::Beyond) names a task that has more.
    pub fn held(&self) -> Result<(), extent::Beyond> {
        extent::beyond(&self.root).map_or(Ok(()), Err)
    }

    /// Caps each task that an agent works on by what `budget` says of that agent too.
    pub fn cap_agents<'a>(&mut self, budget: impl Fn(&AgentName) -> Option<&'a Budget>) {
        let mut open = vec![&mut self.root];
        while let Some(task) = open.pop() {
            if let Body::Agent { agent, .. } = &task.body
                && let Some(budget) = budget(agent)
            {
                scope::cap(task, budget);
            }
            for check in task.prechecks.iter_mut().chain(&mut task.postchecks) {
                let budgets: Vec<&Budget> = check::agents(check).filter_map(&budget).collect();
                budgets.into_iter().for_each(|budget| tighten(&mut check.budget, budget));
                if let CheckKind::Workflow(workflow) = &mut check.kind {
                    open.extend(&mut workflow.tasks);
                }
            }
            open.extend(task.body.below_mut());
        }
    }
}

/// Returns the tasks that decide a check, where any do.
pub(super) fn below(check: &CheckSpec) -> &[TaskSpec] {
    match &check.kind {
        CheckKind::Workflow(workflow) => &workflow.tasks,
        _ => &[],
    }
}

/// Lets the tighter of both hold.
pub(crate) fn tighten(own: &mut Budget, budget: &Budget) {
    own.on_exhausted = stricter(own, budget);
    own.usd = tighter(own.usd, budget.usd);
    own.tokens = tighter(own.tokens, budget.tokens);
    own.rounds = tighter(own.rounds, budget.rounds);
    own.tool_calls = tighter(own.tool_calls, budget.tool_calls);
    own.wall = tighter(own.wall, budget.wall);
    own.diff_lines = tighter(own.diff_lines, budget.diff_lines);
    own.tree = match (own.tree, budget.tree) {
        (Some(own), Some(tree)) => Some(own.tighter(tree)),
        (own, tree) => own.or(tree),
    };
}

/// Returns what happens once the caps of both are used up: a cap keeps what was said with it, or the default of
/// whoever set it, whatever the other says.
fn stricter(own: &Budget, budget: &Budget) -> Option<OnExhausted> {
    let said = own.on_exhausted.or(budget.on_exhausted);
    if !budget.is_decided_about() || said.is_none() {
        return said;
    }
    let theirs = budget.on_exhausted.unwrap_or_default();
    let ours = match own.is_decided_about() {
        true => Some(own.on_exhausted.unwrap_or_default()),
        false => own.on_exhausted,
    };
    Some(ours.filter(|ours| theirs.laxer_than(*ours)).unwrap_or(theirs))
}

/// What a workflow means, and what is wrong with it.
struct Meaning {
    variables: Map<String, Value>,
    services: Vec<ServiceSpec>,
    tasks: Vec<TaskSpec>,
    faults: Vec<Diagnostic>,
}

/// Reads what a workflow means.
fn meaning(
    parsed: &Parsed<WorkflowDocument>,
    known: &Known,
    values: &Map<String, Value>,
) -> Meaning {
    let (document, workflow) = (&parsed.document, &parsed.value);
    let outputs = BTreeMap::new();
    let mut reader = Reader { document, known, workflow, outputs, faults: Vec::new() };
    let variables = reader.variables(values);
    reader.outputs("/tasks", &workflow.tasks);
    if workflow.on_failure == OnFailure::Ignore {
        let hint = "let a task around its subtasks do without them".to_owned();
        reader.fault("/on_failure", "a workflow cannot do without its tasks", Some(hint));
    }
    reader.budget("", &workflow.budget, &Budget::default());
    reader.tree("", workflow.budget.tree, &workflow.tasks);
    let services = reader.services(&workflow.services);
    let tasks = reader.tasks("/tasks", &workflow.tasks, &[], &workflow.budget);
    Meaning { variables, services, tasks, faults: reader.faults }
}

/// Returns the smaller of two caps, or the one that there is.
fn tighter<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Reads a workflow whose shape is sound, and collects what is wrong with its meaning.
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document,
    pub(super) known: &'a Known,
    pub(super) workflow: &'a WorkflowDocument,
    /// The names that tasks give to their results, each with its task.
    pub(super) outputs: BTreeMap<&'a str, &'a TaskName>,
    pub(super) faults: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    /// Collects the names that tasks give to their results, at whatever level.
    fn outputs(&mut self, place: &str, tasks: &'a [TaskDocument]) {
        for (at, task) in tasks.iter().enumerate() {
            let place = format!("{place}/{at}");
            if let Some(name) = &task.output {
                let variables = &self.workflow.variables;
                let message = if RESERVED.contains(&name.as_str()) {
                    Some(format!("an output cannot be named {name}: something else stands there"))
                } else if variables.contains_key(name) {
                    Some(format!("output {name} has the name of a variable"))
                } else if let Some(other) = self.outputs.get(name.as_str()) {
                    Some(format!("output {name} has the name of that of task {other}"))
                } else {
                    self.outputs.insert(name.as_str(), &task.name);
                    None
                };
                if let Some(message) = message {
                    self.fault(&format!("{place}/output"), message, None);
                }
            }
            self.outputs(
                &format!("{place}/subtasks"),
                task.subtasks.as_deref().unwrap_or_default(),
            );
        }
    }
}

/// What stands for something else in prompts and expressions.
const RESERVED: [&str; 4] = ["tasks", "vars", "item", "index"];

impl Reader<'_> {
    pub(super) fn fault(&mut self, place: &str, message: impl Into<String>, hint: Option<String>) {
        let fault = Diagnostic { hint, ..self.document.diagnostic(place, message) };
        self.faults.push(fault);
    }

    /// Settles the values of the variables.
    fn variables(&mut self, values: &Map<String, Value>) -> Map<String, Value> {
        let declared = &self.workflow.variables;
        let mut settled = Map::new();
        for (name, variable) in declared {
            let place = format!("/variables/{name}");
            match values.get(name.as_str()).or(variable.default.as_ref()) {
                Some(value) => {
                    settled.insert(name.to_string(), value.clone());
                }
                None if variable.required => {
                    let message = format!("variable {name} is required and nobody sets it");
                    self.fault(&place, message, Some(format!("set it, as with --var {name}=…")));
                }
                None => {
                    settled.insert(name.to_string(), Value::String(String::new()));
                }
            }
            if name.as_str() == "tasks" {
                let message = "a variable cannot be named tasks: the results of tasks stand there";
                self.fault(&place, message, None);
            }
        }
        for name in
            values.keys().filter(|name| !declared.keys().any(|known| known.as_str() == **name))
        {
            let hint = nearest_hint(name, declared.keys().map(|known| known.as_str()));
            self.fault(
                "/variables",
                format!("{name} is set and the workflow has no such variable"),
                hint,
            );
        }
        settled
    }

    /// Reads the tasks of one level. `around` are the levels above with their siblings, nearest last.
    fn tasks(
        &mut self,
        place: &str,
        tasks: &[TaskDocument],
        around: &[Level<'_>],
        budget: &Budget,
    ) -> Vec<TaskSpec> {
        self.names(place, tasks);
        self.dependencies(place, tasks);
        let mut specs = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            let mut levels = around.to_vec();
            levels.push(Level { beside: tasks, task });
            let place = format!("{place}/{at}");
            if let Some(spec) = self.task(&place, task, &levels, budget) {
                specs.push(spec);
            }
        }
        specs
    }

    /// Finds names that are given twice.
    fn names(&mut self, place: &str, tasks: &[TaskDocument]) {
        let mut first: BTreeMap<&TaskName, usize> = BTreeMap::new();
        for (at, task) in tasks.iter().enumerate() {
            if let Some(other) = first.get(&task.name) {
                let message = format!("task {} has the name of tasks[{other}]", task.name);
                self.fault(&format!("{place}/{at}/name"), message, None);
            } else {
                first.insert(&task.name, at);
            }
        }
    }

    /// Finds dependencies that lead nowhere or in a circle.
    fn dependencies(&mut self, place: &str, tasks: &[TaskDocument]) {
        let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        for (at, task) in tasks.iter().enumerate() {
            for (on, name) in task.depends_on.iter().enumerate() {
                if !names.contains(&name.as_str()) {
                    let hint = nearest_hint(name.as_str(), names.iter().copied());
                    let message = format!("there is no task {name} beside {}", task.name);
                    self.fault(&format!("{place}/{at}/depends_on/{on}"), message, hint);
                }
            }
        }
        let edges: Vec<(&str, Vec<&str>)> = tasks
            .iter()
            .map(|task| {
                (task.name.as_str(), task.depends_on.iter().map(TaskName::as_str).collect())
            })
            .collect();
        for circle in graph::cycles(&edges) {
            let at = names.iter().position(|name| circle.first() == Some(name)).unwrap_or(0);
            let message = format!("tasks wait for each other in a circle: {}", circle.join(" → "));
            self.fault(&format!("{place}/{at}/depends_on"), message, None);
        }
    }

    fn task(
        &mut self,
        place: &str,
        task: &TaskDocument,
        levels: &[Level<'_>],
        budget: &Budget,
    ) -> Option<TaskSpec> {
        self.budget(place, &task.budget, budget);
        self.tree(place, task.budget.tree, extent::written(task));
        self.write_paths(place, task);
        let protected = format!("{place}/protected_paths");
        check::globs(self.document, &protected, &task.protected_paths, &mut self.faults);
        let prechecks = self.checks(place, task, Phase::Entry, levels);
        let checks = self.checks(place, task, Phase::Exit, levels);
        let postchecks = self.output(place, task).into_iter().chain(checks).collect();
        let around = format!("{place}/on_success");
        let on_success = self.executions(&around, &task.on_success, levels, Side::Around);
        let within = format!("{place}/before_retry");
        let before_retry = self.executions(&within, &task.before_retry, levels, Side::Within);
        self.one_scope(place, task);
        if let Some(when) = &task.when {
            self.expression(&format!("{place}/when"), when, levels, Side::Around);
        }
        let body = self.body(place, task, levels, budget)?;
        if !task.before_retry.is_empty()
            && task.retries.of(&body).max == 0
            && task.retries.max.is_none()
        {
            let hint = "say how often it is tried again, as in retries = { max = 1 }".to_owned();
            let message = format!("a {} is not tried again unless retries say so", body.as_str());
            self.fault(&within, message, Some(hint));
        }
        let works = matches!(body, Body::Agent { .. } | Body::Command { .. });
        if !task.isolation.is_none() && !works {
            let message = "isolation belongs to a task by an agent or a command";
            self.fault(&format!("{place}/isolation"), message, None);
        }
        if !task.isolation.is_none() && task.postchecks.iter().any(|it| it.workflow.is_some()) {
            let message = "what a workflow decides as an exit check does not see a workspace of the task's own";
            self.fault(&format!("{place}/isolation"), message, None);
        }
        if task.target.is_some() {
            self.target(place, task, works);
        }
        let spec = TaskSpec {
            description: task.description.clone(),
            depends_on: task.depends_on.clone(),
            when: task.when.clone(),
            output: task.output.clone(),
            prechecks,
            postchecks,
            on_success,
            before_retry,
            retries: task.retries.of(&body),
            timeout: task.timeout,
            idle: task.idle,
            budget: task.budget.clone(),
            write_paths: task.write_paths.clone(),
            protected_paths: task.protected_paths.clone(),
            isolation: task.isolation,
            target: task.target.clone(),
            ..TaskSpec::new(task.name.clone(), body)
        };
        let spec = match &task.spec {
            Some(path) => self.bound(&format!("{place}/spec"), path, spec),
            None => spec,
        };
        Some(self.each(place, task, levels, spec))
    }

    /// Refuses what does not hold of a workspace that is elsewhere: nothing is looked at in the wrong place.
    fn target(&mut self, place: &str, task: &TaskDocument, works: bool) {
        let target = format!("{place}/target");
        if !works {
            self.fault(&target, "target belongs to a task by an agent or a command", None);
        }
        let refused = [
            (
                "isolation",
                !task.isolation.is_none(),
                "a worker works in a workspace of its own already",
            ),
            ("spec", task.spec.is_some(), "requirements are held against the workspace of the run"),
            (
                "budget/diff_lines",
                task.budget.diff_lines.is_some(),
                "what is changed at a worker is not compared line by line",
            ),
        ];
        for (key, given, why) in refused {
            if given {
                let message = format!("a task with a target has no {key}: {why}");
                self.fault(&format!("{place}/{key}"), message, None);
            }
        }
        let phases = [("prechecks", &task.prechecks), ("postchecks", &task.postchecks)];
        for (key, checks) in phases {
            for (at, check) in checks.iter().enumerate() {
                let place = format!("{place}/{key}/{at}");
                if check.command.is_none() {
                    let message = "a check of a task with a target is a command: it is run by the worker, and what else a \
                                   check looks at is the workspace of the run";
                    self.fault(&place, message, None);
                }
                for (key, given) in
                    [("control", check.control.is_some()), ("fix", check.fix.is_some())]
                {
                    if given {
                        let message = format!("a check of a task with a target has no {key}");
                        self.fault(&format!("{place}/{key}"), message, None);
                    }
                }
            }
        }
    }

    /// Binds a task to its contract, whose faults are told at their own place.
    fn bound(&mut self, place: &str, path: &str, spec: TaskSpec) -> TaskSpec {
        if !matches!(spec.body, Body::Agent { .. } | Body::Command { .. } | Body::Native { .. }) {
            self.fault(place, "spec belongs to a task that works itself", None);
            return spec;
        }
        match self.known.contracts.get(path) {
            None => self.fault(place, format!("there is no file {path}"), None),
            Some(Err(why)) => self.fault(place, format!("{path} cannot be read: {why}"), None),
            Some(Ok(text)) => match contract::contract(path, text) {
                Err(faults) => self.faults.extend(faults),
                Ok(read) => {
                    self.faults.extend(contract::unknown_tools(&read, text, &self.known.tools));
                    return contract::bound(spec, read, text.clone());
                }
            },
        }
        spec
    }

    /// What may be written are paths: a list of none reads as nothing to one and as no rule at all to another.
    fn write_paths(&mut self, place: &str, task: &TaskDocument) {
        let Some(globs) = &task.write_paths else { return };
        let place = format!("{place}/write_paths");
        if globs.is_empty() {
            let hint = "name paths, as in [\"src/**\"]; for a task that may write nothing, protected_paths = [\"**\"]; \
                        leave the key out for all that the config allows";
            self.fault(&place, "write_paths names no path", Some(hint.to_owned()));
        }
        check::globs(self.document, &place, globs, &mut self.faults);
    }

    /// What may be written is said once on the way from the root to a task: two lists of globs have no
    /// third that says both.
    fn one_scope(&mut self, place: &str, task: &TaskDocument) {
        let below = task.subtasks.as_deref().unwrap_or_default();
        if task.write_paths.is_some()
            && let Some(other) = scope::scoped(below)
        {
            let message = format!("task {} below has write_paths of its own", other.name);
            let hint = "give write_paths to one of the two".to_owned();
            self.fault(&format!("{place}/write_paths"), message, Some(hint));
        }
    }

    fn checks(
        &mut self,
        place: &str,
        task: &TaskDocument,
        phase: Phase,
        levels: &[Level<'_>],
    ) -> Vec<CheckSpec> {
        let (key, checks) = match phase {
            Phase::Entry => ("prechecks", &task.prechecks),
            _ => ("postchecks", &task.postchecks),
        };
        let mut specs = Vec::new();
        for (at, written) in checks.iter().enumerate() {
            let vars = written.vars.iter().flatten();
            let outside = vars.filter(|(_, value)| {
                value.as_str().is_some_and(|text| self.is_from_outside(text, levels, Side::Around))
            });
            let outside = outside.map(|(name, _)| name.clone()).collect();
            let around =
                check::Around { document: self.document, known: self.known, phase, outside };
            let place = format!("{place}/{key}/{at}");
            let Some(spec) = check::check(&around, &place, written, &mut self.faults) else {
                continue;
            };
            if let CheckKind::Agent(asked) = &spec.kind {
                self.template(&format!("{place}/prompt"), &asked.prompt, levels, Side::Around);
            }
            if let Some(Fix::Agent { prompt, .. }) = &spec.fix {
                self.template(&format!("{place}/fix/prompt"), prompt, levels, Side::Around);
            }
            let argv = written.command.as_deref().unwrap_or_default();
            self.words(&format!("{place}/command"), argv, levels, Side::Around);
            let suite = written.suite.as_deref().unwrap_or_default();
            self.words(&format!("{place}/suite"), suite, levels, Side::Around);
            let is_known = task.prechecks.iter().any(|before| before.suite == written.suite);
            if phase == Phase::Exit && written.compare == Some(Compare::New) && !is_known {
                let message = "nobody finds out what fails before the task begins";
                let hint = "name the same suite among the prechecks".to_owned();
                self.fault(&format!("{place}/compare"), message, Some(hint));
            }
            for (name, value) in written.vars.iter().flatten() {
                if let Some(text) = value.as_str().filter(|text| text.contains("{{")) {
                    self.template(&format!("{place}/vars/{name}"), text, levels, Side::Around);
                }
            }
            specs.push(spec);
        }
        specs
    }

    /// A task's caps are carved out of those around it.
    fn budget(&mut self, place: &str, own: &Budget, around: &Budget) {
        if let Err((key, message)) = own.check() {
            self.fault(&format!("{place}/budget/{key}"), message, None);
        }
        let usd = |amount: Usd| format!("${amount}");
        let too_much = [
            larger(own.usd, around.usd).map(|(a, b)| ("usd", usd(a), usd(b))),
            larger(own.tokens, around.tokens)
                .map(|(a, b)| ("tokens", a.to_string(), b.to_string())),
            larger(own.rounds, around.rounds)
                .map(|(a, b)| ("rounds", a.to_string(), b.to_string())),
            larger(own.tool_calls, around.tool_calls)
                .map(|(a, b)| ("tool_calls", a.to_string(), b.to_string())),
            larger(own.wall, around.wall).map(|(a, b)| ("wall", a.to_string(), b.to_string())),
            larger(own.diff_lines, around.diff_lines)
                .map(|(a, b)| ("diff_lines", a.to_string(), b.to_string())),
        ];
        for (key, own, around) in too_much.into_iter().flatten() {
            let message = format!("{own} is more than the {around} of the budget around it");
            self.fault(&format!("{place}/budget/{key}"), message, None);
        }
    }

    fn body(
        &mut self,
        place: &str,
        task: &TaskDocument,
        levels: &[Level<'_>],
        budget: &Budget,
    ) -> Option<Body> {
        let bodies = [
            ("agent", task.agent.is_some()),
            ("command", task.command.is_some()),
            ("native", task.native.is_some()),
            ("subtasks", task.subtasks.is_some()),
            ("wait_for", task.wait_for.is_some()),
            ("decision", task.decision.is_some()),
        ];
        let given: Vec<&str> =
            bodies.iter().filter(|(_, given)| *given).map(|(body, _)| *body).collect();
        if given.len() != 1 {
            let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
            let message = format!(
                "a task is exactly one of agent, command, native, subtasks, wait_for and decision; found {found}"
            );
            self.fault(place, message, None);
        }
        if task.prompt.is_some() && task.agent.is_none() {
            self.fault(&format!("{place}/prompt"), "a prompt needs an agent", None);
        }
        if task.on_failure.is_some() && task.subtasks.is_none() {
            self.fault(&format!("{place}/on_failure"), "on_failure belongs to subtasks", None);
        }
        // What is there is read even where it is too much, so that all faults are told at once.
        let agent = task.agent.as_ref().and_then(|agent| self.agent(place, task, agent, levels));
        let command = task.command.as_ref().and_then(|argv| {
            let place = format!("{place}/command");
            self.words(&place, argv, levels, Side::Within);
            check::argv_is_sound(self.document, &place, argv, &mut self.faults)
                .then(|| Body::Command { argv: argv.clone() })
        });
        let native = task.native.as_ref().map(|function| {
            if !self.known.natives.contains(function) {
                let hint = nearest_hint(function, self.known.natives.iter().map(String::as_str));
                let message = format!("there is no native function {function}");
                self.fault(&format!("{place}/native"), message, hint);
            }
            Body::Native { function: function.clone() }
        });
        let subtasks = task.subtasks.as_ref().map(|tasks| {
            if tasks.is_empty() {
                self.fault(&format!("{place}/subtasks"), "subtasks is an empty list", None);
            }
            let around = Budget {
                usd: task.budget.usd.or(budget.usd),
                tokens: task.budget.tokens.or(budget.tokens),
                rounds: task.budget.rounds.or(budget.rounds),
                tool_calls: task.budget.tool_calls.or(budget.tool_calls),
                wall: task.budget.wall.or(budget.wall),
                diff_lines: task.budget.diff_lines.or(budget.diff_lines),
                ..Budget::default()
            };
            let tasks = self.tasks(&format!("{place}/subtasks"), tasks, levels, &around);
            let on_failure = task.on_failure.unwrap_or_default();
            Body::Subtasks { tasks, on_failure }
        });
        let wait = task.wait_for.as_ref();
        let wait = wait.map(|wait| self.wait_for(&format!("{place}/wait_for"), wait, levels));
        let decision = task.decision.as_ref();
        let decision =
            decision.map(|asked| self.decision(&format!("{place}/decision"), asked, levels));
        agent.or(command).or(native).or(subtasks).or(wait).or(decision)
    }
}

/// Returns both caps where the first is the larger one.
fn larger<T: Ord + Copy>(own: Option<T>, around: Option<T>) -> Option<(T, T)> {
    match (own, around) {
        (Some(own), Some(around)) if own > around => Some((own, around)),
        _ => None,
    }
}
