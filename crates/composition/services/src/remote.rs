//! Tasks whose calls, commands and checks are carried out by workers: the end that is the run's.
//!
//! All that was decided on a call is decided here, and recorded here. What goes out is what a worker cannot know: which tool,
//! with which arguments, and what the run lets be written and connected to, which the worker narrows by rules of its own.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_protocols::{
    AgentName, Append, Blob, CallId, Cancel, Claim, Clock, Escalation, EventBody, NewEvent,
    PermissionMode, Position, Principal, Replay, RunId, SessionId, Span, Store, TaskId, TaskSpec,
    Tool, ToolClass, ToolError, ToolErrorKind, ToolName, ToolOutput, ToolSpec, WorkerLabel,
    WorkerName,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, Verdict},
    message::ToolDefinition,
    store::Selection,
    text,
    tool::CallContext,
};
use formwork_scheduler::{AttemptEnd, AttemptJob, CheckJob};
use formwork_verify::{Baseline, Ground, Verifier};
use formwork_worker::{Bounds, Globs, Hub, Missing, Near, Tell};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Error, error::chain, executor::Workshop, executor::failed, setup};

/// The tool by which the command of a check is run, and that of a task. No model is offered it.
const CHECK: &str = "worker.check";

/// How long a worker is waited for, where a task does not have less time.
const WAIT: Duration = Duration::from_secs(600);

/// How long a call of a tool may take that has no limit of its own, such as a read of a large folder.
const LOOK: Duration = Duration::from_secs(600);

/// How much longer than its own limit a call may take, until it is taken for one that does not end.
const SLACK: Duration = Duration::from_secs(60);

/// How many bytes of a check's output come back from a worker; its beginning and its end, where there are more.
const OUTPUT_BYTES: usize = 2 << 20;

/// How many bytes of a command's output become what it claims.
const CLAIM_BYTES: usize = 4 * 1024;

/// The ends of a run to its workers, by label.
pub(crate) struct Remotes {
    pub(crate) hub: Option<Hub>,
    nears: tokio::sync::Mutex<HashMap<WorkerLabel, Arc<Near>>>,
}

impl Remotes {
    pub(crate) fn new(hub: Option<Hub>) -> Self {
        Self { hub, nears: tokio::sync::Mutex::default() }
    }
}

/// Says whether a tool works on what a worker has: files, programs, the repository.
pub(crate) fn is_there(tool: &ToolSpec) -> bool {
    match tool.definition.name.as_str() {
        "exec" | "shell" | "git" | "run_tests" => true,
        name if name.starts_with("fs.") => true,
        // What is written down as a command runs in a workspace; what asks a server can do so from here.
        name if name.starts_with("custom.") => tool.class != ToolClass::Network,
        _ => false,
    }
}

/// Says whether a tool works on the workspace of the run in a way that no worker can.
pub(crate) fn is_of_the_run(tool: &ToolSpec) -> bool {
    tool.definition.name.as_str() == "git.commit"
}

/// Finds a task with a target, in a tree.
pub(crate) fn targeted(task: &TaskSpec) -> Option<(&TaskSpec, &WorkerLabel)> {
    let own = task.target.as_ref().map(|label| (task, label));
    own.or_else(|| task.body.below().iter().find_map(targeted))
}

/// Refuses a tree with a target where there are no workers, and one whose changes are to be committed.
///
/// # Errors
/// [`Error::NoWorkers`] and [`Error::NotCommitted`].
pub(crate) fn fit(root: &TaskSpec, has_hub: bool, commits: bool) -> Result<(), Error> {
    let Some((task, label)) = targeted(root) else { return Ok(()) };
    let (task, label) = (task.name.clone(), label.clone());
    if !has_hub {
        return Err(Error::NoWorkers { task, label });
    }
    if commits {
        return Err(Error::NotCommitted { task, label });
    }
    Ok(())
}

/// Refuses to take up a run with a target where there are no workers.
///
/// # Errors
/// [`Error::NoWorkers`]; [`Error::Store`].
pub(crate) async fn still_fits(store: &dyn Store, run: RunId, has_hub: bool) -> Result<(), Error> {
    if has_hub {
        return Ok(());
    }
    let kinds = vec!["task.created".to_owned()];
    let (selection, mut after) =
        (Selection { run: Some(run), task: None, kinds }, Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(()) };
        after = last.position;
        for event in events {
            if let EventBody::TaskCreated(created) = &event.body {
                fit(&created.spec, false, false)?;
            }
        }
    }
}

/// Records what happens to the calls of a run.
struct RunLog {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    run: RunId,
}

#[async_trait]
impl Tell for RunLog {
    async fn tell(&self, task: TaskId, body: EventBody) {
        let event = NewEvent {
            task: Some(task),
            principal: Principal::system("workers"),
            at: self.clock.now(),
            body,
            idempotency_key: None,
        };
        // Also of a run that has ended or is another's by now: what a worker does comes from outside.
        let batch = Append { run: self.run, token: None, events: vec![event], blobs: Vec::new() };
        // Nothing is decided by it; where the log is away, whoever needs it finds out.
        let _ = self.store.append(batch).await;
    }
}

impl Workshop {
    /// Returns the end of a run to the workers with a label.
    ///
    /// # Errors
    /// [`Error::NoHub`]; [`Error::Store`].
    pub(crate) async fn near(&self, run: RunId, label: &WorkerLabel) -> Result<Arc<Near>, Error> {
        let mut nears = self.remotes.nears.lock().await;
        if let Some(near) = nears.get(label) {
            return Ok(Arc::clone(near));
        }
        let Some(hub) = self.remotes.hub.clone() else {
            return Err(Error::NoHub { label: label.clone() });
        };
        let before = self.answered_before(run, label).await?;
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let log = Arc::new(RunLog { store, clock, run });
        let near = Arc::new(Near::new(hub, label.clone(), before, log, WAIT));
        nears.insert(label.clone(), Arc::clone(&near));
        Ok(near)
    }

    /// Returns the worker that answered the calls under a label last, by the log.
    async fn answered_before(
        &self,
        run: RunId,
        label: &WorkerLabel,
    ) -> Result<Option<WorkerName>, Error> {
        let kinds = ["worker.connected", "worker.lost"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let (mut found, mut after) = (None, Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(found) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::WorkerConnected(it) if it.label == *label => {
                        found = Some(it.worker);
                    }
                    EventBody::WorkerLost(it) if it.label == *label => found = None,
                    _ => {}
                }
            }
        }
    }

    /// Returns what a task lets be written and connected to elsewhere, in the name of `agents`; where it may only look,
    /// nothing is written.
    fn bounds_there<'a>(
        &'a self,
        spec: &TaskSpec,
        agents: impl IntoIterator<Item = &'a Agent>,
        mode: PermissionMode,
    ) -> Bounds {
        let all = || vec!["**".to_owned()];
        let globs = |write: Vec<String>| Globs { write, protected: Vec::new() };
        let permissions = self.setup.config.permissions.as_ref();
        let scope = permissions.and_then(|permissions| permissions.scope.clone());
        let mut write: Vec<Globs> = scope.map(globs).into_iter().collect();
        write.push(Globs {
            write: spec.write_paths.clone().unwrap_or_else(all),
            protected: spec.protected_paths.clone(),
        });
        write.extend(spec.made.iter().flat_map(|made| &made.within).cloned().map(globs));
        if mode < PermissionMode::Edit {
            write.push(globs(Vec::new()));
        }
        Bounds { write, network: setup::network_lists(&self.setup.config, agents) }
    }

    /// Puts what is carried out elsewhere in the place of the tools that work on a workspace, and leaves out those that work on
    /// that of the run alone.
    pub(crate) async fn elsewhere(
        &self,
        job: &AttemptJob,
        label: &WorkerLabel,
        tools: Vec<Arc<dyn Tool>>,
        (agents, mode, programs): (Vec<&Agent>, PermissionMode, Duration),
    ) -> Result<Vec<Arc<dyn Tool>>, Error> {
        let near = self.near(job.run, label).await?;
        let bounds = Arc::new(self.bounds_there(&job.spec, agents, mode));
        let longest = |tool: &ToolSpec| match tool.class {
            ToolClass::Exec | ToolClass::Shell => programs + SLACK,
            _ => LOOK,
        };
        let tools =
            tools.into_iter().filter(|tool| !is_of_the_run(tool.spec())).map(
                |tool| match is_there(tool.spec()) {
                    true => {
                        let longest = longest(tool.spec());
                        near.tool(tool, Arc::clone(&bounds), longest)
                    }
                    false => tool,
                },
            );
        Ok(tools.collect())
    }

    /// Waits until there is a worker for a task, before anything is spent on it. Returns how its attempt ends where there is
    /// none.
    pub(crate) async fn awaits_worker(
        &self,
        (run, task): (RunId, TaskId),
        spec: &TaskSpec,
        cancel: &Cancel,
    ) -> Result<Option<AttemptEnd>, Error> {
        let Some(label) = &spec.target else { return Ok(None) };
        match self.near(run, label).await?.ready(task, cancel).await {
            Ok(_) => Ok(None),
            Err(Missing::Cancelled { .. }) => Ok(Some(AttemptEnd::Interrupted { session: None })),
            Err(missing @ Missing::None { .. }) => {
                Ok(Some(failed(Escalation::NoWorker { detail: missing.to_string() })))
            }
        }
    }

    /// Has a check by command made by the worker that the calls of its task go to.
    pub(crate) async fn check_there(
        &self,
        job: &CheckJob,
        label: &WorkerLabel,
        cancel: &Cancel,
    ) -> Result<Verdict, Error> {
        let name = &*job.check.name;
        if !matches!(job.check.kind, CheckKind::Command(_)) {
            let reason =
                "such a check looks at the workspace of the run, and its task works at a worker";
            return Ok(Verdict::not_run(name, reason));
        }
        let (run, task) = (job.run, job.task);
        let ran =
            self.run_there((run, task), &job.spec, (label, Replay::Idempotent), &job.check, cancel);
        match ran.await? {
            Ok((verdict, output)) => {
                let batch =
                    Append { run, token: job.token, events: Vec::new(), blobs: vec![output] };
                self.store.append(batch).await?;
                Ok(verdict)
            }
            Err(error) if error.kind == ToolErrorKind::Cancelled => {
                Err(Error::Checks { reason: error.message })
            }
            Err(error) => Ok(Verdict::not_run(name, self.scrub.scrub_text(&error.message))),
        }
    }

    /// Has the command of a task run by a worker.
    pub(crate) async fn command_there(
        &self,
        job: &AttemptJob,
        (argv, label, longest): (&[String], &WorkerLabel, Duration),
        cancel: &Cancel,
    ) -> Result<AttemptEnd, Error> {
        let kind = CheckKind::Command(CommandCheck {
            argv: argv.to_vec(),
            parse: None,
            expect: Expect::Pass,
        });
        let check = CheckSpec::new("command", kind, Span::from(longest));
        let within = (job.run, job.task);
        let ran = self.run_there(within, &job.spec, (label, Replay::Once), &check, cancel).await?;
        let (verdict, output) = match ran {
            Ok(ran) => ran,
            Err(error) => {
                let detail = self.scrub.scrub_text(&error.message).into_owned();
                return Ok(match error.kind {
                    ToolErrorKind::Cancelled => AttemptEnd::Interrupted { session: None },
                    ToolErrorKind::OutcomeUnknown => failed(Escalation::OutcomeUnknown { detail }),
                    _ => failed(Escalation::BodyFailed { detail }),
                });
            }
        };
        let output = String::from_utf8_lossy(output.bytes()).into_owned();
        let told = text::tail(&output, CLAIM_BYTES).trim_end();
        if verdict.passed {
            let wants = crate::executor::schema_of(&job.spec).is_some();
            let output = wants.then(|| serde_json::from_str(output.trim()).ok()).flatten();
            let claim = Claim { summary: told.to_owned(), output };
            return Ok(AttemptEnd::Claimed { claim, session: None, files_changed: 0 });
        }
        let last = text::tail(told, 400);
        let detail = format!("{} ended with {}: {last}", argv.join(" "), verdict.reason);
        Ok(failed(Escalation::BodyFailed { detail }))
    }

    /// Has a command run by a worker and judged there. Returns its verdict and its output, both scrubbed.
    async fn run_there(
        &self,
        (run, task): (RunId, TaskId),
        spec: &TaskSpec,
        (label, replay): (&WorkerLabel, Replay),
        check: &CheckSpec,
        cancel: &Cancel,
    ) -> Result<Result<(Verdict, Blob), ToolError>, Error> {
        let near = self.near(run, label).await?;
        let bounds = self.bounds_there(spec, self.makers(spec)?, self.setup.mode());
        let own = Arc::new(Named(check_spec(replay)));
        let tool = near.tool(own, Arc::new(bounds), check.timeout.as_duration() + SLACK);
        let context = CallContext {
            run,
            task,
            session: SessionId::generate(&*self.clock, &*self.rng),
            call: CallId::generate(&*self.clock, &*self.rng),
            agent: AgentName::parse("check").expect("letters are a name"),
        };
        let output = match tool.call(&context, json!({ "check": check }), cancel).await {
            Ok(output) => output,
            Err(error) => return Ok(Err(error)),
        };
        let unread = |reason: String| {
            let told = format!("what a worker said of {:?} cannot be read: {reason}", check.name);
            Ok(Err(ToolError::new(ToolErrorKind::OutcomeUnknown, told)))
        };
        // What may stand before it says that another worker answers than before.
        let Some(from) = output.text.find('{') else {
            return unread("it is no verdict".to_owned());
        };
        let mut told: Value = match serde_json::from_str(&output.text[from..]) {
            Ok(told) => told,
            Err(error) => return unread(error.to_string()),
        };
        self.scrub.scrub_value(&mut told);
        let Told { mut verdict, output: whole } = match serde_json::from_value(told) {
            Ok(told) => told,
            Err(error) => return unread(error.to_string()),
        };
        if let Some(worker) = output.worker {
            verdict.reason = format!("{} (at worker {worker})", verdict.reason);
        }
        verdict.check.clone_from(&check.name);
        let blob = Blob::new(whole.into_bytes());
        verdict.evidence.output = Some(blob.hash());
        Ok(Ok((verdict, blob)))
    }
}

/// What a worker says of a check.
#[derive(Serialize, Deserialize)]
struct Told {
    verdict: Verdict,
    output: String,
}

/// Describes the tool by which a check is made elsewhere.
pub(crate) fn check_spec(replay: Replay) -> ToolSpec {
    ToolSpec {
        definition: ToolDefinition {
            name: ToolName::parse(CHECK).expect("the name follows the rule"),
            description: "Runs the command of a check.".to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["check"],
                "properties": { "check": { "type": "object" } },
            }),
        },
        class: ToolClass::Exec,
        replay,
        tags: Vec::new(),
    }
}

/// A tool that is known here by its name alone.
struct Named(ToolSpec);

#[async_trait]
impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &CallContext, _: Value, _: &Cancel) -> Result<ToolOutput, ToolError> {
        Err(ToolError::new(ToolErrorKind::Failed, "it is carried out by workers alone"))
    }
}

/// The tool, where it is carried out.
pub(crate) struct CheckHere {
    pub(crate) spec: ToolSpec,
    pub(crate) verifier: Verifier,
}

fn check_of(arguments: &Value) -> Result<CheckSpec, ToolError> {
    let read: Result<CheckSpec, _> = serde_json::from_value(arguments["check"].clone());
    let invalid = |told: String| ToolError::new(ToolErrorKind::InvalidArguments, told);
    let check = read.map_err(|error| invalid(error.to_string()))?;
    match check.kind {
        CheckKind::Command(_) => Ok(check),
        _ => Err(invalid("a worker makes checks by command".to_owned())),
    }
}

#[async_trait]
impl Tool for CheckHere {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        match check_of(arguments).ok()?.kind {
            CheckKind::Command(CommandCheck { argv, .. }) => Some(argv),
            _ => None,
        }
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let check = check_of(&arguments)?;
        let began = Baseline::default();
        let ground = Ground { baseline: &began, changes: &() };
        let checked = self
            .verifier
            .check(&check, ground, cancel)
            .await
            .map_err(|error| ToolError::new(ToolErrorKind::Cancelled, chain(&error)))?;
        let output = checked.output.map(|blob| String::from_utf8_lossy(blob.bytes()).into_owned());
        let output = text::preview(&output.unwrap_or_default(), OUTPUT_BYTES).into_owned();
        let told = serde_json::to_string(&Told { verdict: checked.verdict, output });
        let told =
            told.map_err(|error| ToolError::new(ToolErrorKind::Failed, error.to_string()))?;
        let outside = formwork_tool::builtin::outside(&checked.reached);
        Ok(ToolOutput { outside, ..ToolOutput::text(told) })
    }
}
