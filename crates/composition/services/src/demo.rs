//! Which model a demonstration uses: a real one where there is one, else a script that says so.

use std::path::Path;

use formwork_protocols::ModelRef;
use formwork_transport::{ProviderKind, Seams, discover};
use serde_json::{Value, json};

use crate::{
    Error,
    config::{Config, Layer, Origin},
    models::DEFAULT_CATEGORY,
};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A real model if one is configured or found, else the script.
    Any,
    /// The script.
    Scripted,
    /// This one.
    Model(ModelRef),
}

/// What was chosen.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The model.
    pub model: ModelRef,
    /// The config that it needs.
    pub layer: Layer,
    /// In a line, what it is and why.
    pub told: String,
}

/// Providers whose keys are known by these names, for `--model` without any config.
const KNOWN: [(&str, ProviderKind, &str); 4] = [
    ("anthropic", ProviderKind::Anthropic, "ANTHROPIC_API_KEY"),
    ("google", ProviderKind::Google, "GEMINI_API_KEY"),
    ("openai", ProviderKind::OpenAi, "OPENAI_API_KEY"),
    ("openrouter", ProviderKind::OpenRouter, "OPENROUTER_API_KEY"),
];

/// Chooses the model. `script` is where the scripted one's words are; `variable` looks into the environment.
///
/// # Errors
/// [`Error::NoModel`] when a model is asked for whose provider is neither configured nor known with a key.
pub async fn choose(
    asked: Asked,
    config: &Config,
    script: &Path,
    variable: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Chosen, Error> {
    match asked {
        Asked::Scripted => Ok(scripted(script)),
        Asked::Model(model) => named(model, config, variable).await,
        Asked::Any => {
            let default =
                config.categories.iter().find(|(name, _)| name.as_str() == DEFAULT_CATEGORY);
            if let Some((_, model)) = default {
                let told = format!("{model}, as the config says");
                return Ok(Chosen { model: model.clone(), layer: nothing(), told });
            }
            Ok(found().await.unwrap_or_else(|| scripted(script)))
        }
    }
}

fn scripted(script: &Path) -> Chosen {
    let model: ModelRef = "script/demo".parse().expect("this is a provider and a model");
    // A price of its own makes the spend visible; nobody is billed for a script.
    let values = json!({
        "providers": { "script": { "kind": "scripted", "base_url": script.display().to_string() } },
        "models": { "script/demo": { "price": { "input": "1", "output": "4" } } },
    });
    let told = "scripted: the words are from a script, all else is real \
                (--model provider/model uses a real one)";
    Chosen { model, layer: layer("the scripted model", values), told: told.to_owned() }
}

/// Looks for a server on this machine that has a model.
async fn found() -> Option<Chosen> {
    let found = discover(&Seams::default()).await.into_iter().find(|it| !it.models.is_empty())?;
    let first = found.models.first()?;
    let model = ModelRef { provider: found.endpoint.name.clone(), model: first.name.clone() };
    let told = format!("{model}, found at {}", found.endpoint.base_url);
    let layer = local(&model, found.endpoint.kind, &found.endpoint.base_url);
    Some(Chosen { model, layer, told })
}

/// Finds the provider of a model that was asked for.
async fn named(
    model: ModelRef,
    config: &Config,
    variable: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Chosen, Error> {
    if config.providers.contains_key(&model.provider) {
        let told = format!("{model}, as asked");
        return Ok(Chosen { model, layer: nothing(), told });
    }
    let known = KNOWN.iter().find(|(name, _, key)| {
        *name == model.provider.as_str() && variable(key).is_some_and(|key| !key.is_empty())
    });
    if let Some((name, kind, key)) = known {
        let values = json!({ "providers": { *name: { "kind": kind, "api_key": { "env": key } } } });
        let told = format!("{model}, with the key in {key}");
        return Ok(Chosen { model, layer: layer("--model", values), told });
    }
    let servers = discover(&Seams::default()).await;
    match servers.into_iter().find(|it| it.endpoint.name == model.provider) {
        Some(found) => {
            let told = format!("{model}, found at {}", found.endpoint.base_url);
            let layer = local(&model, found.endpoint.kind, &found.endpoint.base_url);
            Ok(Chosen { model, layer, told })
        }
        None => Err(Error::NoModel { model }),
    }
}

fn local(model: &ModelRef, kind: ProviderKind, base_url: &str) -> Layer {
    layer(
        "found on this machine",
        json!({
            "providers": { model.provider.as_str(): { "kind": kind, "base_url": base_url } },
            "models": { model.to_string(): { "price": "local" } },
        }),
    )
}

fn layer(flag: &str, values: Value) -> Layer {
    let values = match values {
        Value::Object(values) => values,
        _ => serde_json::Map::new(),
    };
    Layer::from_values(Origin::Flag { flag: flag.to_owned() }, values)
}

fn nothing() -> Layer {
    layer("the config", Value::Null)
}
