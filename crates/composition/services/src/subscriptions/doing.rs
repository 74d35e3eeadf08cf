//! What an action does: a program is run, a workflow, or something is sent.

use std::time::Duration;

use async_trait::async_trait;
use formwork_dispatch::{ActionKind, Did, Failure, Host, Job, Origin, Webhook};
use formwork_policy::{HostPatterns, named_files, run_files, uncached};
use formwork_protocols::{
    Cancel, EventBody, OutcomeCode, PermissionMode, Position, Principal, RunId, RunOutcome, Span,
    StoreError, SubscriptionName, WorkflowName, store::RunRow, store::Selection, text,
};
use formwork_sandbox::{Caps, Command, Exit, Protection};
use formwork_tool::Post;
use formwork_write_safety::WriteRules;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::secrets_of;
use crate::{
    Error, Formwork,
    capability::{Caller, Scope},
    documents::WORKFLOWS,
    error::chain,
    executor::Workshop,
    network::Whose,
    operations::runs::{self, Cause, Resume, ResumeParams, StartParams, Work},
    setup::{self, RunSetup},
    trust::Brought,
};

/// The variable by which a program tells a second time from the first.
const KEY: &str = "FORMWORK_DISPATCH_KEY";

/// The header by which a server does.
const KEY_HEADER: &str = "idempotency-key";

/// How much of what a program says is kept.
const SAID: Caps = Caps { head: 1_000, tail: 1_000, whole: 16 << 20 };

/// How much of it is told.
const TOLD: usize = 1_000;

/// How long it is waited before a run that another process works on is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Does what subscriptions say.
pub(crate) struct Doing {
    formwork: Formwork,
    workshop: Workshop,
}

impl Doing {
    /// Makes ready to do it, by the config as it is now.
    ///
    /// # Errors
    /// What stands in the way of any program or request: keys, rules, a protection that cannot be had.
    pub(crate) async fn new(formwork: &Formwork) -> Result<Self, Error> {
        let config = formwork.inner.config.clone();
        let (keys, models) = formwork.models(&config)?;
        let setup = RunSetup {
            config,
            agents: Default::default(),
            helpers: Default::default(),
            width: 1,
            commit: None,
            briefing: None,
            tests: None,
            tools: Vec::new(),
            after: None,
            outside: Vec::new(),
            headless: true,
            approvals: Vec::new(),
            integrates: None,
            kind: setup::Kind::Other,
            stands_on: Default::default(),
            programs: None,
            own_mode: false,
            hand: None,
            caused_by: Vec::new(),
        };
        let workshop = runs::workshop(formwork, setup, keys.registry, models)?;
        workshop.check_network().await?;
        setup::http(&workshop.setup.config)?;
        Ok(Self { formwork: formwork.clone(), workshop })
    }

    async fn command(
        &self,
        job: &Job,
        argv: &[String],
        timeout: Span,
        cancel: &Cancel,
    ) -> Result<Did, Failure> {
        let workshop = &self.workshop;
        let mode = workshop.setup.mode();
        let told = argv.join(" ");
        if mode < PermissionMode::Edit && workshop.protection == Protection::None {
            return Err(Failure::Final(format!(
                "nothing here keeps {told} from writing, and in mode {} nothing is changed",
                mode.as_str()
            )));
        }
        let root = workshop.root.path();
        let (state, folder) = (self.formwork.state().to_owned(), root.to_owned());
        let files = run_files(root, argv);
        let look = move || {
            let is_trusted =
                |path: &std::path::PathBuf| Brought::is_trusted_program(path, &state, &folder);
            files.into_iter().find(|path| path.exists() && !is_trusted(path))
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(None) => {}
            Ok(Some(path)) => {
                let path = path.display();
                return Err(Failure::Failed(format!("{path} is not trusted as it stands")));
            }
            Err(error) => return Err(Failure::Failed(format!("{told} was not run: {error}"))),
        }
        // What changes files is a workflow's: there it is a task, with a record and a way back.
        let failed = |error: Error| Failure::Failed(chain(&error));
        let rules = workshop.scope().map_err(failed)?.narrowed(&WriteRules::nothing());
        let whose = Whose { run: job.log, task: None, agents: Vec::new() };
        let bounds = workshop.bounds(&rules, whose).await.map_err(failed)?;
        let mut command = Command::new(argv.to_vec(), root, bounds.protection);
        command.timeout = timeout.as_duration();
        command.caps = SAID;
        command.set.insert(KEY.into(), job.key().into());
        let named = named_files(root, argv);
        command.set.extend(uncached(&named).map(|(name, value)| (name.into(), value.into())));
        command.stdin = Some(job.document().to_string().into_bytes().into());
        let token = CancellationToken::new();
        let mut running = Box::pin(workshop.sandbox.run(command, token.clone(), None));
        let finished = tokio::select! {
            finished = &mut running => finished,
            () = cancel.cancelled() => {
                token.cancel();
                running.await
            }
        };
        let finished = finished.map_err(|error| Failure::Failed(chain(&error)))?;
        if finished.exit == Exit::Cancelled {
            return Err(Failure::Stopped);
        }
        let mut said = finished.combined.preview();
        for refusal in &finished.refused {
            said.push_str(&format!("\n[{refusal}]"));
        }
        let said = workshop.scrub.scrub_text(&said).into_owned();
        let said = text::tail(said.trim(), TOLD).to_owned();
        match finished.succeeded() {
            true => Ok(Did { said }),
            false if said.is_empty() => {
                Err(Failure::Failed(format!("{told} ended with {}", finished.exit)))
            }
            false => Err(Failure::Failed(format!("{told} ended with {}: {said}", finished.exit))),
        }
    }

    async fn workflow(
        &self,
        job: &Job,
        workflow: &WorkflowName,
        cancel: &Cancel,
    ) -> Result<Did, Failure> {
        let failed = |error: Error| Failure::Failed(chain(&error));
        let vars = job.variables().map_err(Failure::Final)?;
        let run = job.run.ok_or_else(|| Failure::Final("the run has no name".to_owned()))?;
        let store = self.formwork.store();
        // What a subscription has done may be done by itself, and nothing else.
        let by = Principal::subscription(&job.subscription.name);
        let caller = Caller::new(by, [Scope::Read, Scope::Run]);
        loop {
            let row = store.run(run).await.map_err(|error| failed(error.into()))?;
            match row {
                Some(row) if row.state.is_terminal() => return ended(&row),
                Some(_) => {
                    let resumed = self.formwork.call::<Resume>(&caller, ResumeParams { run });
                    Box::pin(resumed).await.map_err(failed)?;
                }
                None => {
                    let params = self.begun_with(workflow, vars.clone()).map_err(failed)?;
                    let cause = Cause { run, by: job.caused_by.clone() };
                    let begun = runs::begin(&self.formwork, &caller, params, Some(cause));
                    Box::pin(begun).await.map_err(failed)?;
                }
            }
            let outcome = self.formwork.wait(run);
            let mut outcome = Box::pin(outcome);
            let outcome = tokio::select! {
                outcome = &mut outcome => outcome,
                () = cancel.cancelled() => {
                    self.formwork.interrupt(run);
                    let _ = outcome.await;
                    return Err(Failure::Stopped);
                }
            };
            match outcome {
                Ok(outcome) => return came_to(&outcome, cancel),
                // Somebody has taken it up by hand, or its process has only just died.
                Err(Error::Store(StoreError::NotOwner { .. })) => tokio::select! {
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                    () = cancel.cancelled() => return Err(Failure::Stopped),
                },
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns what a run of a workflow is begun with.
    fn begun_with(
        &self,
        workflow: &WorkflowName,
        vars: Map<String, Value>,
    ) -> Result<StartParams, Error> {
        let workspace = self.formwork.workspace();
        let source = format!("{WORKFLOWS}/{workflow}.toml");
        let text = crate::reading::document_of(workspace, &workspace.join(&source))
            .map_err(|_| Error::NoSuchWorkflow { name: workflow.to_string() })?;
        Ok(StartParams {
            work: Work::Workflow { source, text },
            vars,
            model: None,
            width: None,
            commit: false,
            mode: None,
            headless: true,
        })
    }

    async fn webhook(&self, job: &Job, webhook: &Webhook, cancel: &Cancel) -> Result<Did, Failure> {
        let config = &self.workshop.setup.config;
        let rules = setup::http(config).map_err(|error| Failure::Failed(chain(&error)))?;
        let to = Post::destination(&webhook.url).map_err(Failure::Final)?;
        let http = config.permissions.as_ref().and_then(|permissions| permissions.http.as_ref());
        let mut headers = vec![(KEY_HEADER.to_owned(), job.key())];
        for (name, value) in &webhook.headers {
            for secret in secrets_of(value) {
                let hosts = http.into_iter().flat_map(|http| &http.secrets);
                let hosts = hosts.filter(|(name, _)| name.as_str() == secret);
                let may_go = hosts
                    .filter_map(|(_, hosts)| HostPatterns::parse(hosts).ok())
                    .any(|hosts| hosts.matches(&to));
                if !may_go {
                    return Err(Failure::Final(format!(
                        "secret {secret} may not be sent to {to}: [permissions.http.secrets] says where each may go"
                    )));
                }
            }
            let mut value = Value::String(value.clone());
            self.workshop
                .secrets
                .substitute(&mut value)
                .map_err(|error| Failure::Final(format!("header {name} cannot be set: {error}")))?;
            headers.push((name.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        let post = Post { url: webhook.url.clone(), headers, body: job.document().to_string() };
        let sent = post.send(&rules, cancel).await;
        if cancel.is_cancelled() {
            return Err(Failure::Stopped);
        }
        let (status, said) = sent.map_err(|error| Failure::Failed(error.message))?;
        let said = self.workshop.scrub.scrub_text(&said).into_owned();
        match status {
            200..300 => Ok(Did { said: format!("{status} {said}").trim_end().to_owned() }),
            _ => {
                Err(Failure::Failed(format!("{to} answered {status} {said}").trim_end().to_owned()))
            }
        }
    }
}

impl Doing {
    /// Returns what is known of the log of a source of this workspace; the name of the source stands for that of a workflow.
    async fn source(&self, log: RunId) -> Result<Option<Origin>, StoreError> {
        let kinds = vec!["external.received".to_owned()];
        let selection = Selection { run: Some(log), task: None, kinds };
        let events = self.formwork.store().read(Position::default(), &selection, 1).await?;
        let Some(EventBody::ExternalReceived(first)) = events.into_iter().next().map(|it| it.body)
        else {
            return Ok(None);
        };
        let workspace = self.formwork.workspace().display().to_string();
        let workflow = WorkflowName::parse(first.source.as_str()).ok();
        let workflow = workflow.filter(|_| RunId::of_source(&workspace, &first.source) == log);
        Ok(workflow.map(|workflow| Origin { workflow, caused_by: Vec::new() }))
    }
}

/// Says how a run ended that a process before this one has carried out.
fn ended(row: &RunRow) -> Result<Did, Failure> {
    let RunRow { run, code, reason, .. } = row;
    match code {
        Some(OutcomeCode::Completed) => Ok(Did { said: format!("run {run} completed") }),
        _ => {
            let code = code.map_or_else(|| row.state.to_string(), |code| code.to_string());
            let reason = reason.as_deref().unwrap_or_default();
            Err(Failure::Failed(format!("run {run} ended as {code}: {reason}")))
        }
    }
}

/// Says what became of a run that this process has carried out.
fn came_to(outcome: &RunOutcome, cancel: &Cancel) -> Result<Did, Failure> {
    let RunOutcome { run, code, reason, .. } = outcome;
    match code {
        OutcomeCode::Completed => Ok(Did { said: format!("run {run} completed") }),
        OutcomeCode::Interrupted if cancel.is_cancelled() => Err(Failure::Stopped),
        OutcomeCode::Interrupted => Err(Failure::Final(format!(
            "run {run} was paused, and goes on by `formwork runs resume`: {reason}"
        ))),
        _ => Err(Failure::Failed(format!("run {run} ended as {code}: {reason}"))),
    }
}

#[async_trait]
impl Host for Doing {
    async fn origin(&self, run: RunId) -> Result<Option<Origin>, StoreError> {
        // What came from a file was made up by whoever made the file.
        if self.formwork.trace().is_imported(run).await? {
            return Ok(None);
        }
        let kinds = vec!["run.created".to_owned()];
        let selection = Selection { run: Some(run), task: None, kinds };
        let events = self.formwork.store().read(Position::default(), &selection, 1).await?;
        let created = events.into_iter().find_map(|event| match event.body {
            EventBody::RunCreated(created) => Some(created),
            _ => None,
        });
        let Some(mut created) = created else { return self.source(run).await };
        // A log may hold the runs of several workspaces, and what one of them trusts is told of its own runs.
        if std::path::Path::new(&created.workspace) != self.formwork.workspace() {
            return Ok(None);
        }
        let caused_by = created.setup.get_mut("caused_by").map(Value::take).unwrap_or_default();
        let caused_by: Vec<SubscriptionName> =
            serde_json::from_value(caused_by).unwrap_or_default();
        Ok(Some(Origin { workflow: created.name.clone(), caused_by }))
    }

    async fn act(&self, job: &Job, cancel: &Cancel) -> Result<Did, Failure> {
        let Some(action) = job.what() else {
            return Err(Failure::Final("the document has no such action any more".to_owned()));
        };
        match &action.kind {
            ActionKind::Command { argv, timeout } => {
                Box::pin(self.command(job, argv, *timeout, cancel)).await
            }
            ActionKind::Workflow { workflow, .. } => {
                Box::pin(self.workflow(job, workflow, cancel)).await
            }
            ActionKind::Webhook(webhook) => Box::pin(self.webhook(job, webhook, cancel)).await,
            _ => Err(Failure::Final("nothing here does such an action".to_owned())),
        }
    }
}
