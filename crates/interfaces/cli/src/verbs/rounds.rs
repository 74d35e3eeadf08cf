//! `formwork loop`: a task in rounds, until what is held against it passes.

use formwork_protocols::{OutcomeCode, PermissionMode};
use formwork_services::operations::runs::{Rounds, StartParams, Work};

use crate::{
    args::{Global, Loop, RunOptions},
    asking,
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn rounds(
    global: &Global,
    terminal: &Terminal,
    args: Loop,
) -> Result<OutcomeCode, Fault> {
    let Loop { text, message, test, lint, review, reviewer, rounds, budget, .. } = args;
    let prompt = match text.or(message) {
        Some(text) if text == "-" => super::run::standard_input()?,
        Some(text) if !text.trim().is_empty() => text,
        _ => return Err(Fault::usage("the task has no words")),
    };
    let mode = args.mode.unwrap_or(PermissionMode::Edit);
    if mode < PermissionMode::Edit {
        let told = format!("a loop edits, and the mode {} does not", mode.as_str());
        return Err(Fault::usage(told));
    }
    let options = RunOptions {
        mode: Some(mode),
        usd: budget,
        allow: args.allow,
        sandbox: args.sandbox,
        ..RunOptions::default()
    };
    let work = Work::Loop(Rounds {
        prompt,
        agent: args.agent,
        test: command("--test", test)?,
        lint: command("--lint", lint)?,
        review,
        reviewer,
        rounds,
        known_failures: args.known_failures,
        max_lines: args.max_lines,
        max_files: args.max_files,
        protect: args.protect,
    });
    let settings = Settings::load(global, super::run::flags(&options, None)?, Need::Effect)?;
    let (asker, desk) = asking::open(global, terminal, &settings.principal).unzip();
    let record = args.record;
    let more = |builder, _: &Settings| super::run::equipped(builder, record.as_deref(), asker);
    super::with_settings(settings, more, async |formwork, caller, _| {
        let params = StartParams {
            work,
            vars: serde_json::Map::new(),
            model: args.model,
            width: None,
            commit: args.commit,
            mode: options.mode,
            headless: false,
        };
        super::run::start(&formwork, &caller, terminal, params, desk).await
    })
}

/// Takes a command apart, as a shell would without running one.
pub(super) fn command(flag: &str, text: Option<String>) -> Result<Option<Vec<String>>, Fault> {
    let Some(text) = text else { return Ok(None) };
    match shlex::split(&text).filter(|words| !words.is_empty()) {
        Some(words) => Ok(Some(words)),
        None => Err(Fault::usage(format!("{flag} {text:?} is not a command"))),
    }
}
