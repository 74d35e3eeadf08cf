//! `formwork goal`: a plan, and its tasks done apart and merged one by one.

use std::path::Path;

use anyhow::Context as _;
use formwork_protocols::{OutcomeCode, PermissionMode};
use formwork_services::{
    operations::runs::{Given, Goal as Asked, StartParams, Work},
    reading,
};
use serde_json::Value;

use crate::{
    args::{Global, Goal, RunOptions},
    asking,
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn goal(global: &Global, terminal: &Terminal, args: Goal) -> Result<OutcomeCode, Fault> {
    let plan = args.plan.as_deref().map(|named| given(global, named)).transpose()?;
    let prompt = match args.text.or(args.message) {
        Some(text) if text == "-" => super::run::standard_input()?,
        Some(text) if !text.trim().is_empty() => text,
        None if plan.is_some() => String::new(),
        _ => return Err(Fault::usage("the goal has no words")),
    };
    let mode = args.mode.unwrap_or(PermissionMode::Edit);
    if mode < PermissionMode::Edit {
        let told =
            format!("a goal is reached by changes, and the mode {} makes none", mode.as_str());
        return Err(Fault::usage(told));
    }
    let options = RunOptions {
        mode: Some(mode),
        usd: args.budget,
        allow: args.allow,
        sandbox: args.sandbox,
        ..RunOptions::default()
    };
    let work = Work::Goal(Asked {
        prompt,
        planner: args.planner,
        agent: args.agent,
        test: super::rounds::command("--test", args.test)?,
        tasks: args.tasks,
        protect: args.protect,
        plan_only: args.plan_only,
        plan,
        usd: args.budget,
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

/// Reads which plan is to be done: that of a run, or one in a file.
fn given(global: &Global, named: &str) -> Result<Given, Fault> {
    if let Ok(run) = named.parse() {
        return Ok(Given::Of(run));
    }
    let (here, file) = (global.dir.as_deref().unwrap_or(Path::new(".")), Path::new(named));
    let text = reading::document_of(here, file)
        .with_context(|| format!("--plan {named} is no run, and no file that can be read"))
        .map_err(Fault::setup)?;
    let document: Value = serde_json::from_str(&text)
        .with_context(|| format!("the plan {named} is no JSON"))
        .map_err(Fault::setup)?;
    // What `--json` printed holds more than the plan.
    let within = document.pointer("/goal/plan").or_else(|| document.get("plan"));
    Ok(Given::Nodes(within.cloned().unwrap_or(document)))
}
