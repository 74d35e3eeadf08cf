//! What a server says of itself and its models.

use std::time::Duration;

use formwork_protocols::{ModelName, ProviderError};
use futures::future;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Clocks, Endpoint, RetryPolicy, Seams, client::Client, endpoint::ProviderKind, google,
    openai_chat, wire::join,
};

/// Where servers of models listen on one's own machine: Ollama, LM Studio, llama.cpp, vLLM.
pub const LOOPBACK_PORTS: [u16; 4] = [11_434, 1_234, 8_080, 8_000];

/// How long a server on loopback may take to answer a probe.
const PROBE_TIME: Duration = Duration::from_millis(300);

/// A model as its server lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedModel {
    /// Its name there.
    pub name: ModelName,
    /// How many tokens fit its window, where the server says.
    pub context_tokens: Option<u64>,
    /// How many parameters it has, where the server says.
    pub parameters: Option<u64>,
    /// How its weights are stored, where the server says.
    pub quantisation: Option<String>,
    /// Whether it is in memory, where the server says.
    pub loaded: Option<bool>,
}

/// A server that answered a probe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Discovered {
    /// Where it is; its kind was derived from what it answered.
    pub endpoint: Endpoint,
    /// Its models.
    pub models: Vec<ListedModel>,
}

impl Client {
    /// Asks for the models of the server.
    ///
    /// # Errors
    /// What the server refuses with, or why it could not be reached; nothing is tried twice.
    pub async fn list_models(&self) -> Result<Vec<ListedModel>, ProviderError> {
        if self.endpoint().kind == ProviderKind::Ollama {
            return self.ollama_models().await; // Its own list says more.
        }
        if self.endpoint().kind == ProviderKind::Google {
            let mut url = join(&google::v1beta(self.base()), "models");
            url.set_query(Some("pageSize=1000"));
            return Ok(google::listed(&self.get(url).await?));
        }
        let answer = self.get(join(&openai_chat::v1(self.base()), "models")).await?;
        Ok(listed(&answer))
    }

    /// Asks whether the server answers and takes the key.
    ///
    /// # Errors
    /// As [`Client::list_models`].
    pub async fn ping(&self) -> Result<(), ProviderError> {
        self.list_models().await.map(drop)
    }
}

/// Reads a list of models in OpenAI's form, with what servers add to it.
fn listed(answer: &Value) -> Vec<ListedModel> {
    let models = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = models.iter().filter_map(|model| {
        let number = |keys: &[&str]| keys.iter().find_map(|key| model.pointer(key)?.as_u64());
        let text = |keys: &[&str]| {
            keys.iter().find_map(|key| model.pointer(key)?.as_str()).filter(|text| !text.is_empty())
        };
        let state = text(&["/state", "/status/value"]);
        Some(ListedModel {
            name: text(&["/id"])?.parse().ok()?,
            // A loaded context is what really fits; a trained one is what could.
            context_tokens: number(&[
                "/loaded_context_length",
                "/max_model_len",
                "/meta/n_ctx",
                "/context_length",
                "/max_context_length",
                "/meta/n_ctx_train",
            ]),
            parameters: number(&["/meta/n_params"]),
            quantisation: text(&["/quantization", "/meta/ftype"]).map(str::to_owned),
            loaded: state.map(|state| state == "loaded"),
        })
    });
    listed.collect()
}

/// Looks for servers of models on this machine's usual ports; what does not answer within 300 ms is not there.
pub async fn discover(seams: &Seams) -> Vec<Discovered> {
    discover_at(&LOOPBACK_PORTS, seams).await
}

/// Looks for servers of models on these ports of 127.0.0.1.
pub async fn discover_at(ports: &[u16], seams: &Seams) -> Vec<Discovered> {
    let probes = ports.iter().map(|port| probe(format!("http://127.0.0.1:{port}"), seams));
    future::join_all(probes).await.into_iter().flatten().collect()
}

async fn probe(base_url: String, seams: &Seams) -> Option<Discovered> {
    let mut endpoint =
        Endpoint::new("probe".parse().ok()?, ProviderKind::OpenAiCompatible, base_url);
    endpoint.retry = RetryPolicy::NONE;
    let client = Client::new(endpoint, seams.clone()).ok()?;
    let root = client.base();
    let ask = |path: &str| {
        let asking = client.get(join(root, path));
        async { tokio::time::timeout(PROBE_TIME, asking).await.ok()?.ok() }
    };
    // All at once, so that a slow server costs the limit once.
    let (models, ollama, studio) =
        tokio::join!(ask("v1/models"), ask("api/version"), ask("api/v0/models"));
    let models = models?;
    models.get("data")?.as_array()?;
    let kind = kind(&models, ollama.as_ref(), studio.as_ref());
    // LM Studio says more of its models in a list of its own.
    let studio = studio.filter(|_| kind == ProviderKind::LmStudio);
    let models = listed(studio.as_ref().unwrap_or(&models));
    let mut endpoint = client.endpoint().clone();
    endpoint.name = kind.as_str().parse().ok()?;
    endpoint.kind = kind;
    endpoint.clocks = Clocks::default();
    endpoint.retry = RetryPolicy::default();
    Some(Discovered { endpoint, models })
}

/// Tells a server by what it answers.
fn kind(models: &Value, ollama: Option<&Value>, studio: Option<&Value>) -> ProviderKind {
    let owner = models.pointer("/data/0/owned_by").and_then(Value::as_str).unwrap_or_default();
    match owner {
        "llamacpp" => ProviderKind::LlamaCpp,
        "vllm" => ProviderKind::Vllm,
        _ if studio.is_some_and(|answer| answer.get("data").is_some()) => ProviderKind::LmStudio,
        _ if ollama.is_some_and(|answer| answer.get("version").is_some()) => ProviderKind::Ollama,
        _ => ProviderKind::OpenAiCompatible,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_window_is_what_the_server_says_of_it() {
        for (model, context_tokens) in [
            (json!({"id": "m", "max_model_len": 4096}), Some(4096)),
            (json!({"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}), Some(8192)),
            (json!({"id": "m", "meta": {"n_ctx_train": 131072}}), Some(131_072)),
            (
                json!({"id": "m", "max_context_length": 32768, "loaded_context_length": 4096}),
                Some(4096),
            ),
            (json!({"id": "m"}), None),
        ] {
            let models = listed(&json!({ "data": [model] }));
            assert_eq!(models[0].context_tokens, context_tokens);
        }
    }
}
