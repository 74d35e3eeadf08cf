//! What a server says of itself and its models.

mod cache; // What was asked a moment ago is not asked again.
mod inspect; // What a server is, by what it answers.

use std::time::Duration;

use formwork_protocols::{ModelName, ProviderError};
use futures::future;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Clocks, Endpoint, RetryPolicy, Seams, client::Client, endpoint::ProviderKind, google,
    openai_chat, wire::join,
};

pub use {cache::InfoCache, inspect::ProviderInfo};

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
    /// What it can do, in the server's words, such as `tools`, `vision` and `thinking`; empty where it says nothing.
    pub capabilities: Vec<String>,
    /// Whether it takes images, where the server tells.
    pub images: Option<bool>,
    /// The memory that one token of its window takes, in bytes, at 16 bits a number, where the server tells the
    /// model's measures.
    pub cache_bytes_per_token: Option<u64>,
}

impl ListedModel {
    /// Returns a model of which nothing but its name is known.
    pub(crate) const fn named(name: ModelName) -> Self {
        Self {
            name,
            context_tokens: None,
            parameters: None,
            quantisation: None,
            loaded: None,
            capabilities: Vec::new(),
            images: None,
            cache_bytes_per_token: None,
        }
    }

    /// Returns the memory that its whole window takes beside its weights, in bytes, where the server tells enough.
    pub fn cache_bytes(&self) -> Option<u64> {
        self.cache_bytes_per_token?.checked_mul(self.context_tokens?)
    }
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
            capabilities: texts(model, &["/capabilities"]),
            images: images(model),
            cache_bytes_per_token: None,
        })
    });
    listed.collect()
}

/// Reads whether a model takes images: LM Studio names its type, OpenRouter what goes in.
fn images(model: &Value) -> Option<bool> {
    let takes = model.pointer("/architecture/input_modalities").and_then(Value::as_array);
    if let Some(takes) = takes {
        return Some(takes.iter().any(|what| what == "image"));
    }
    // Only LM Studio says both what type a model is and whether it is loaded.
    match (model.get("type")?.as_str()?, model.get("state")) {
        ("vlm", Some(_)) => Some(true),
        ("llm", Some(_)) => Some(false),
        _ => None,
    }
}

/// Returns the words of the first of these lists that is there.
fn texts(value: &Value, keys: &[&str]) -> Vec<String> {
    let list = keys.iter().find_map(|key| value.pointer(key)?.as_array());
    let words = list.into_iter().flatten().filter_map(Value::as_str);
    words.map(str::to_owned).collect()
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
    let info = inspect::of_own(&client, PROBE_TIME).await.ok()?;
    let mut endpoint = client.endpoint().clone();
    endpoint.name = info.kind.as_str().parse().ok()?;
    endpoint.kind = info.kind;
    endpoint.clocks = Clocks::default();
    endpoint.retry = RetryPolicy::default();
    Some(Discovered { endpoint, models: info.models })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whether_images_go_in_is_what_the_server_says_of_it() {
        for (model, images) in [
            (json!({"id": "m", "type": "vlm", "state": "loaded"}), Some(true)),
            (json!({"id": "m", "type": "llm", "state": "not-loaded"}), Some(false)),
            (
                json!({"id": "m", "architecture": {"input_modalities": ["text", "image"]}}),
                Some(true),
            ),
            (json!({"id": "m", "architecture": {"input_modalities": ["text"]}}), Some(false)),
            (json!({"id": "m", "type": "model"}), None),
            (json!({"id": "m"}), None),
        ] {
            assert_eq!(listed(&json!({ "data": [model] }))[0].images, images, "{model}");
        }
    }

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
