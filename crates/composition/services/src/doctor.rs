//! What would break a run, found before it does, with what to do about it.

use std::process::{Command, Stdio};

use formwork_protocols::{Cancel, Message, ModelRequest, Role};
use formwork_sandbox::{Protections, Status, probe};
use serde::Serialize;

use crate::{
    Error, Formwork,
    config::SandboxMode,
    models::{DEFAULT_CATEGORY, Models},
    setup,
};

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It is as it should be.
    Sound,
    /// A run works without it, less well.
    Weak,
    /// A run breaks on it.
    Broken,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word.
    pub about: String,
    /// How grave it is.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Returns a finding.
    pub fn new(
        about: impl Into<String>,
        grade: Grade,
        found: impl Into<String>,
        advice: Option<&str>,
    ) -> Self {
        let advice = advice.map(str::to_owned);
        Self { about: about.into(), grade, found: found.into(), advice }
    }

    fn of(about: &str, error: &Error) -> Self {
        let found = crate::error::chain(error);
        Self { about: about.to_owned(), grade: Grade::Broken, found, advice: error.hint() }
    }
}

/// Looks at everything that a run needs. With `ask`, the model of the default category is asked a word.
pub async fn examine(formwork: &Formwork, ask: bool) -> Vec<Finding> {
    let mut findings = vec![store(formwork).await, git(), sandbox(formwork)];
    match formwork.agents() {
        Ok(agents) => {
            let found = format!("{} agents", agents.names().count());
            findings.push(Finding::new("agents", Grade::Sound, found, None));
        }
        Err(error) => findings.push(Finding::of("agents", &error)),
    }
    match formwork.models(&formwork.inner.config) {
        Err(error) => findings.push(Finding::of("models", &error)),
        Ok((_, models)) => findings.extend(model(formwork, &models, ask).await),
    }
    findings
}

async fn store(formwork: &Formwork) -> Finding {
    match formwork.store().head().await {
        Ok(head) => {
            let found = format!("the log is open and holds {head} events");
            Finding::new("store", Grade::Sound, found, None)
        }
        Err(error) => Finding::of("store", &Error::from(error)),
    }
}

fn git() -> Finding {
    let mut command = Command::new("git");
    command.arg("--version").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Finding::new("git", Grade::Sound, version, None)
        }
        _ => {
            let advice = "install git, so that agents can read the history";
            Finding::new("git", Grade::Weak, "git is not to be run", Some(advice))
        }
    }
}

fn sandbox(formwork: &Formwork) -> Finding {
    let mode = formwork.inner.config.sandbox.unwrap_or_default();
    let Protections { files, scopes, system_calls, whole_tree, .. } = probe();
    let found = format!(
        "files {files}, signals {scopes}, system calls {system_calls}, whole tree {whole_tree}"
    );
    let missing = [files, system_calls].iter().any(|status| matches!(status, Status::Missing(_)));
    match mode {
        SandboxMode::Off => {
            let advice = "set sandbox = \"on\" to confine them";
            Finding::new("sandbox", Grade::Weak, "off: processes are not confined", Some(advice))
        }
        SandboxMode::On if missing => {
            let advice =
                "set sandbox = \"off\", or pass --sandbox off, to run processes unconfined";
            Finding::new("sandbox", Grade::Broken, found, Some(advice))
        }
        _ => Finding::new("sandbox", Grade::Sound, found, None),
    }
}

/// Looks at the model of the default category: named, priced, there, and able to answer.
async fn model(formwork: &Formwork, models: &Models, ask: bool) -> Vec<Finding> {
    let config = &formwork.inner.config;
    let mode = setup::mode(config);
    let mut findings = vec![Finding::new(
        "permissions",
        Grade::Sound,
        format!("agents are in mode {}", mode.as_str()),
        None,
    )];
    let chosen = config.categories.iter().find(|(name, _)| name.as_str() == DEFAULT_CATEGORY);
    let Some((_, chosen)) = chosen else {
        let advice = "name one in the config, as in [categories] default = \"provider/model\", or pass --model";
        let found = "no model is mapped to the category default";
        findings.push(Finding::new("model", Grade::Broken, found, Some(advice)));
        return findings;
    };
    let model = match models.model(chosen) {
        Ok(model) => model,
        Err(error) => {
            findings.push(Finding::of("model", &error));
            return findings;
        }
    };
    if !ask || model.info.scripted {
        findings.push(Finding::new("model", Grade::Sound, format!("{chosen} is configured"), None));
        return findings;
    }
    let words = vec![Message::text(Role::User, "Answer with the one word: ready")];
    let mut request = ModelRequest::new(chosen.model.clone(), words);
    request.max_output_tokens = Some(16);
    findings.push(match model.provider.complete(request, Cancel::new()).await {
        Ok(answer) => {
            let millis = answer.elapsed.as_millis();
            let found =
                format!("{chosen} at {} answered in {millis} ms", answer.served_by.endpoint);
            Finding::new("model", Grade::Sound, found, None)
        }
        Err(error) => {
            let advice = match error.fault {
                formwork_protocols::ProviderFault::Auth => "check where its api_key comes from",
                formwork_protocols::ProviderFault::ModelNotFound => {
                    "`formwork models` lists what is there"
                }
                _ => "check that the server runs and that base_url is right",
            };
            Finding::new("model", Grade::Broken, error.to_string(), Some(advice))
        }
    });
    findings
}
