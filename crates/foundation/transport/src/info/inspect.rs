use std::time::Duration;

use formwork_protocols::{ModelName, ProviderError};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::{ListedModel, listed};
use crate::{
    client::{Client, INFO_TIME},
    endpoint::{Endpoint, ProviderKind},
    ollama::root,
    wire::join,
};

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProviderInfo {
    /// What kind of server it is: by what it answered where that tells, else what it was configured as.
    pub kind: ProviderKind,
    /// Its own version, where it tells.
    pub version: Option<String>,
    /// Its models.
    pub models: Vec<ListedModel>,
    /// How long it took to list them.
    pub answered_in: Duration,
}

impl Client {
    /// Asks the server what it is and which models it holds. A server of one's own is also asked in the ways of those
    /// kinds that say more; one of a company that sells models is only asked for its list.
    ///
    /// # Errors
    /// What the server refuses with, or why it could not be reached; nothing is tried twice.
    pub async fn inspect(&self) -> Result<ProviderInfo, ProviderError> {
        if !is_sold(self.endpoint(), self.base()) {
            return of_own(self, INFO_TIME).await;
        }
        let begun = Instant::now();
        let models = self.list_models().await?;
        let kind = self.endpoint().kind;
        Ok(ProviderInfo { kind, version: None, models, answered_in: begun.elapsed() })
    }

    /// Asks the server for one model, in more detail where it has more; nothing where it does not hold it.
    ///
    /// # Errors
    /// As [`Client::inspect`].
    pub async fn inspect_model(
        &self,
        name: &ModelName,
    ) -> Result<Option<ListedModel>, ProviderError> {
        let info = self.inspect().await?;
        let Some(found) = info.find(name).cloned() else { return Ok(None) };
        if info.kind != ProviderKind::Ollama {
            return Ok(Some(found));
        }
        let shown = self.ollama_show(&found.name).await?;
        Ok(Some(ListedModel {
            // One that is loaded has the window that it was loaded with.
            context_tokens: found.context_tokens.or(shown.context_tokens),
            loaded: found.loaded,
            ..shown
        }))
    }
}

impl ProviderInfo {
    /// Returns the model of that name. Ollama takes a name without a tag for its `latest`.
    pub fn find(&self, name: &ModelName) -> Option<&ListedModel> {
        let exact = self.models.iter().find(|model| model.name == *name);
        exact.or_else(|| {
            let latest = format!("{}:latest", name.as_str());
            let is_ollama = self.kind == ProviderKind::Ollama;
            self.models.iter().find(|model| is_ollama && model.name.as_str() == latest)
        })
    }
}

/// Tells whether the endpoint is that of a company that sells models.
fn is_sold(endpoint: &Endpoint, base: &Url) -> bool {
    let own = endpoint.kind.default_base_url().and_then(|own| Url::parse(own).ok());
    endpoint.kind == ProviderKind::Google || own.is_some_and(|own| own.host() == base.host())
}

/// Asks a server of one's own all that a kind of server is known by; an answer to each may take `limit`.
///
/// # Errors
/// Why it does not list its models, by whichever way.
pub(super) async fn of_own(
    client: &Client,
    limit: Duration,
) -> Result<ProviderInfo, ProviderError> {
    let root = root(client.base());
    let begun = Instant::now();
    let ask = |path: &str| client.get_within(join(&root, path), limit);
    let list = async {
        let answer = ask("v1/models").await;
        (answer, begun.elapsed())
    };
    // All at once, so that a slow server costs the limit once.
    let ((list, answered_in), ollama, studio, props) =
        tokio::join!(list, ask("api/version"), ask("api/v0/models"), ask("props"));
    let said = Said {
        list: list.as_ref().ok(),
        ollama: ollama.ok(),
        studio: studio.ok(),
        props: props.ok(),
    };
    let kind = said.kind();
    if kind.is_none()
        && let Err(error) = list
    {
        return Err(error);
    }
    let kind = kind.unwrap_or(client.endpoint().kind);
    let mut models = match &said.studio {
        // LM Studio says more of its models in a list of its own.
        Some(studio) if kind == ProviderKind::LmStudio => listed(studio),
        _ => said.list.map(listed).unwrap_or_default(),
    };
    let mut version = None;
    match kind {
        ProviderKind::Ollama => {
            version = said.ollama.as_ref().and_then(|told| text(told, "/version"));
            models = of_ollama(client).await?;
        }
        ProviderKind::LlamaCpp => {
            if let Some(props) = &said.props {
                version = text(props, "/build_info");
                models.iter_mut().for_each(|model| with_props(model, props));
            }
        }
        ProviderKind::Vllm => {
            let told = ask("version").await.ok();
            version = told.as_ref().and_then(|told| text(told, "/version"));
            models.iter_mut().for_each(|model| model.loaded = Some(true));
        }
        _ => {}
    }
    Ok(ProviderInfo { kind, version, models, answered_in })
}

/// Lists the models that an Ollama server has on disk, with what it says of those in memory.
async fn of_ollama(client: &Client) -> Result<Vec<ListedModel>, ProviderError> {
    let (on_disk, in_memory) = tokio::join!(client.ollama_models(), client.ollama_loaded());
    let (mut models, in_memory) = (on_disk?, in_memory.ok());
    for model in &mut models {
        let Some(in_memory) = &in_memory else { break };
        let found = in_memory.iter().find(|loaded| loaded.name == model.name);
        model.loaded = Some(found.is_some());
        model.context_tokens = found.and_then(|found| found.context_tokens);
    }
    Ok(models)
}

/// Adds what llama.cpp's server says of the one model that it serves.
fn with_props(model: &mut ListedModel, props: &Value) {
    let says = |key: &str| props.pointer(key).and_then(Value::as_bool) == Some(true);
    model.loaded = model.loaded.or(Some(!says("/is_sleeping")));
    let window = props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
    model.context_tokens = window.or(model.context_tokens);
    model.images = props.pointer("/modalities/vision").and_then(Value::as_bool).or(model.images);
    for (key, word) in [
        ("/chat_template_caps/supports_tools", "tools"),
        ("/modalities/vision", "vision"),
        ("/modalities/audio", "audio"),
    ] {
        if says(key) && !model.capabilities.iter().any(|known| known == word) {
            model.capabilities.push(word.to_owned());
        }
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.pointer(key)?.as_str().map(str::to_owned)
}

/// What a server answered to each question.
struct Said<'a> {
    list: Option<&'a Value>,
    ollama: Option<Value>,
    studio: Option<Value>,
    props: Option<Value>,
}

impl Said<'_> {
    /// Tells a server by what it answers; nothing where it could be any.
    fn kind(&self) -> Option<ProviderKind> {
        let first = |key: &str| self.list?.pointer("/data/0")?.get(key);
        let owner = first("owned_by").and_then(Value::as_str).unwrap_or_default();
        let has = |answer: &Option<Value>, key: &str| {
            answer.as_ref().is_some_and(|answer| answer.get(key).is_some())
        };
        Some(match owner {
            "llamacpp" => ProviderKind::LlamaCpp,
            "vllm" => ProviderKind::Vllm,
            _ if has(&self.props, "default_generation_settings") => ProviderKind::LlamaCpp,
            _ if has(&self.studio, "data") => ProviderKind::LmStudio,
            _ if has(&self.ollama, "version") => ProviderKind::Ollama,
            _ if first("pricing").is_some() && first("top_provider").is_some() => {
                ProviderKind::OpenRouter
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_is_shows_in_what_it_answers() {
        let list = |model: Value| Some(json!({ "object": "list", "data": [model] }));
        for (models, ollama, studio, props, kind) in [
            (list(json!({"owned_by": "llamacpp"})), None, None, None, Some(ProviderKind::LlamaCpp)),
            (list(json!({"owned_by": "vllm"})), None, None, None, Some(ProviderKind::Vllm)),
            (
                list(json!({"owned_by": "organization_owner"})),
                None,
                list(json!({"id": "m", "state": "loaded"})),
                None,
                Some(ProviderKind::LmStudio),
            ),
            // Ollama lists nothing as null.
            (
                Some(json!({"object": "list", "data": null})),
                Some(json!({"version": "0.13.0"})),
                None,
                None,
                Some(ProviderKind::Ollama),
            ),
            (
                None,
                None,
                None,
                Some(json!({"default_generation_settings": {"n_ctx": 1}})),
                Some(ProviderKind::LlamaCpp),
            ),
            (
                list(json!({"pricing": {}, "top_provider": {}})),
                None,
                None,
                None,
                Some(ProviderKind::OpenRouter),
            ),
            // A gateway says so of whatever it passes on.
            (list(json!({"owned_by": "openai"})), None, None, None, None),
            // A page for people at a path that is none.
            (list(json!({})), Some(json!("<html>")), Some(json!({})), Some(json!([])), None),
        ] {
            let told = format!("{models:?} {ollama:?} {studio:?} {props:?}");
            let said = Said { list: models.as_ref(), ollama, studio, props };
            assert_eq!(said.kind(), kind, "{told}");
        }
    }
}
