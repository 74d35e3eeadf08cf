//! `formwork config`: what holds, and where it came from.

use formwork_protocols::{OutcomeCode, text::address};
use serde_json::{Map, Value, json};

use crate::{
    args::{Config, Global},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn config(
    global: &Global,
    terminal: &Terminal,
    args: Config,
) -> Result<OutcomeCode, Fault> {
    let Config::Show { origin: with_origin } = args;
    let settings = Settings::load(global, Vec::new(), Need::Look)?;
    let database = settings.layered.config.database_url.clone();
    let mut entries: Vec<(String, Value, String)> = settings
        .layered
        .entries
        .iter()
        .map(|(key, value, origin)| (key.clone(), value.clone(), origin.to_string()))
        .collect();
    if database.is_none() {
        let url = formwork_services::default_database_url(&settings.state);
        entries.push(("database_url".to_owned(), Value::String(url), "built-in".to_owned()));
    }
    for (key, value) in formwork_services::built_in() {
        if !entries.iter().any(|(known, _, _)| *known == key) {
            entries.push((key, value, "built-in".to_owned()));
        }
    }
    for (key, value, _) in &mut entries {
        if let Value::String(url) = value
            && (key == "database_url" || key.ends_with(".base_url"))
        {
            *url = address(url).into_owned();
        }
    }
    entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let document: Map<String, Value> = entries
        .iter()
        .map(|(key, value, origin)| {
            (
                key.clone(),
                if with_origin {
                    json!({ "value": value, "origin": origin })
                } else {
                    value.clone()
                },
            )
        })
        .collect();
    terminal.result(&json!({ "config": document }), || {
        let width = entries.iter().map(|(key, value, _)| key.len() + value.to_string().len()).max();
        let width = width.unwrap_or(0).min(60) + 3;
        let mut text = String::new();
        for (key, value, origin) in &entries {
            let line = format!("{key} = {value}");
            if with_origin {
                text.push_str(&format!("{line:<width$}  # {origin}\n"));
            } else {
                text.push_str(&format!("{line}\n"));
            }
        }
        if let Some(project) = settings.project.as_ref().filter(|it| it.untrusted.is_some()) {
            text.push_str(&format!(
                "# {} is not trusted and has no effect; it sets {}\n",
                project.path.display(),
                project.reaching.join(", ")
            ));
        }
        text
    })?;
    Ok(OutcomeCode::Completed)
}
