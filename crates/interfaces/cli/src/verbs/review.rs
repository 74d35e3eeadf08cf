//! `formwork review`: a change, judged before it is taken.

use formwork_protocols::{OutcomeCode, check::GitChange};
use formwork_services::{
    config::{Layer, Origin},
    operations::runs::{StartParams, Work},
};
use serde_json::json;

use crate::{
    args::{Global, Review},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn review(
    global: &Global,
    terminal: &Terminal,
    args: Review,
) -> Result<OutcomeCode, Fault> {
    let Review { paths, base, staged, message, agent, model, usd, record } = args;
    let prompt = match message {
        Some(text) if text == "-" => Some(super::run::standard_input()?),
        Some(text) if text.trim().is_empty() => {
            return Err(Fault::usage("what to look for has no words"));
        }
        other => other,
    };
    let mut flags = Vec::new();
    if let Some(usd) = usd {
        let origin = Origin::Flag { flag: "--usd".to_owned() };
        flags.push(Layer::set(origin, "budget.usd", json!(usd)));
    }
    let settings = Settings::load(global, flags, Need::Effect)?;
    let paths: Vec<String> =
        paths.iter().map(|path| super::check::below(&settings, path)).collect::<Result<_, _>>()?;
    let change = GitChange { base, staged, paths };
    let more = |builder, _: &Settings| super::run::equipped(builder, record.as_deref(), None);
    super::with_settings(settings, more, async |formwork, caller, _| {
        let params = StartParams {
            work: Work::Review { change, prompt, agent },
            vars: serde_json::Map::new(),
            model,
            width: None,
            commit: false,
            mode: None,
            headless: true,
        };
        super::run::start(&formwork, &caller, terminal, params, None).await
    })
}
