//! What an Ollama server says of its models, and how it fetches one.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use formwork_protocols::{Cancel, ModelName, ProviderError, ProviderFault};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Client, Failure, INFO_TIME, Inner, tape::Answer};
use crate::{
    fault::Fault,
    frames::Frames,
    info::ListedModel,
    ollama::root,
    wire::{self, join},
};

/// The longest line that tells of a pull.
const LINE_LIMIT: usize = 64 * 1024;

/// The bytes of a number in a cache of keys and values that is not quantised.
const CACHE_NUMBER: u64 = 2;

/// How far a pull has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PullProgress {
    /// What is being done, in the server's words; `success` at the end.
    pub status: String,
    /// The layer that is being fetched.
    #[serde(default)]
    pub digest: Option<String>,
    /// Its size in bytes.
    #[serde(default)]
    pub total: Option<u64>,
    /// How many bytes of it are there.
    #[serde(default)]
    pub completed: Option<u64>,
}

impl Client {
    /// Asks an Ollama server what it knows of `model`: the window that it was trained for, its size, what it can do
    /// (`completion`, `tools`, `vision`, `thinking`), and what its window takes.
    ///
    /// # Errors
    /// What the server refuses with, or why it could not be reached; nothing is tried twice.
    pub async fn ollama_show(&self, model: &ModelName) -> Result<ListedModel, ProviderError> {
        let url = join(&root(self.base()), "api/show");
        let asking = self.inner.http.post(url).json(&json!({ "model": model.as_str() }));
        Ok(shown(model, &self.ask(asking, INFO_TIME).await?))
    }

    /// Asks an Ollama server which models it holds on disk.
    ///
    /// # Errors
    /// As [`Client::ollama_show`].
    pub async fn ollama_models(&self) -> Result<Vec<ListedModel>, ProviderError> {
        Ok(listed(&self.get(join(&root(self.base()), "api/tags")).await?, None))
    }

    /// Asks an Ollama server which models it holds in memory, each with the window that it was loaded with.
    ///
    /// # Errors
    /// As [`Client::ollama_show`].
    pub async fn ollama_loaded(&self) -> Result<Vec<ListedModel>, ProviderError> {
        Ok(listed(&self.get(join(&root(self.base()), "api/ps")).await?, Some(true)))
    }

    /// Has an Ollama server fetch `model`, and streams how far it has come; the first error ends the stream.
    ///
    /// Raising `cancel`, like dropping the stream, closes the connection at once; the server keeps what it has, so
    /// that a later pull goes on from there.
    pub fn ollama_pull(
        &self,
        model: &ModelName,
        cancel: Cancel,
    ) -> BoxStream<'static, Result<PullProgress, ProviderError>> {
        let pull = Pull {
            inner: Arc::clone(&self.inner),
            model: model.clone(),
            cancelled: Box::pin(async move { cancel.cancelled().await }),
            body: None,
            frames: Frames::lines(LINE_LIMIT),
            over: false,
        };
        let steps = stream::unfold(pull, |mut pull| async move {
            let step = pull.next().await?;
            Some((step, pull))
        });
        steps.boxed()
    }
}

/// A pull while it goes on.
struct Pull {
    inner: Arc<Inner>,
    model: ModelName,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    body: Option<BoxStream<'static, Result<Bytes, String>>>,
    frames: Frames,
    over: bool,
}

impl Pull {
    async fn next(&mut self) -> Option<Result<PullProgress, ProviderError>> {
        if self.over {
            return None;
        }
        // A layer that is checked may be silent for as long as a model that is loaded.
        let limit = self.inner.endpoint.clocks.first_token;
        let fault = |fault, message: String| Failure::new(Fault::new(fault, message));
        let step = tokio::select! {
            biased; // A cancelled pull must not send its request.
            () = &mut self.cancelled => {
                Err(fault(ProviderFault::Cancelled, "the pull was cancelled".to_owned()))
            }
            step = step(&self.inner, &self.model, &mut self.body, &mut self.frames) => step,
            () = sleep(limit.as_duration()) => {
                Err(fault(ProviderFault::Timeout, format!("the pull stood still for {limit}")))
            }
        };
        self.over = step.as_ref().map_or(true, |progress| progress.status == "success");
        if self.over {
            self.body = None; // Whatever is open is closed before anything else.
        }
        Some(step.map_err(|failure| self.inner.error(failure, 1)))
    }
}

async fn sleep(limit: Duration) {
    tokio::time::sleep(limit).await;
}

/// Reads on to the next line.
async fn step(
    inner: &Inner,
    model: &ModelName,
    body: &mut Option<BoxStream<'static, Result<Bytes, String>>>,
    frames: &mut Frames,
) -> Result<PullProgress, Failure> {
    let body = match body {
        Some(body) => body,
        empty => empty.insert(open(inner, model).await?),
    };
    loop {
        let line = frames.next().map_err(|error| {
            Failure::new(Fault::new(ProviderFault::Protocol, error.to_string()))
        })?;
        if let Some(line) = line {
            return serde_json::from_str(&line.data)
                .map_err(|_| Failure::new(Fault::of_answer(None, &line.data)));
        }
        match body.next().await {
            Some(Ok(bytes)) => frames.push(&bytes),
            Some(Err(error)) => {
                let message = format!("the connection was cut during the pull: {error}");
                return Err(Failure::new(Fault::new(ProviderFault::Transport, message)));
            }
            None => {
                let message = "the pull ended before the model was whole";
                return Err(Failure::new(Fault::new(ProviderFault::Transport, message)));
            }
        }
    }
}

async fn open(
    inner: &Inner,
    model: &ModelName,
) -> Result<BoxStream<'static, Result<Bytes, String>>, Failure> {
    let url = join(&root(&inner.base), "api/pull");
    let body = json!({ "model": model.as_str(), "stream": true });
    let mut asking = inner.http.post(url).json(&body);
    for (name, value) in wire::auth(&inner.endpoint).map_err(Failure::new)? {
        asking = asking.header(name, value);
    }
    let answer: Answer = asking.send().await.map_err(|error| inner.unreachable(&error))?.into();
    if !answer.is_success() {
        return Err(inner.refusal(answer).await);
    }
    Ok(answer.body)
}

fn listed(answer: &Value, loaded: Option<bool>) -> Vec<ListedModel> {
    let models = answer.get("models").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = models.iter().filter_map(|model| {
        let name = model.get("model").or_else(|| model.get("name"))?.as_str()?;
        Some(ListedModel {
            context_tokens: model.get("context_length").and_then(Value::as_u64),
            loaded,
            ..detailed(name.parse().ok()?, model)
        })
    });
    listed.collect()
}

/// Reads the details that stand beside a model in every answer.
fn detailed(name: ModelName, model: &Value) -> ListedModel {
    let detail = |key: &str| {
        let text = model.get("details")?.get(key)?.as_str()?;
        (!text.is_empty()).then_some(text)
    };
    ListedModel {
        parameters: detail("parameter_size").and_then(parameters),
        quantisation: detail("quantization_level").map(str::to_owned),
        ..ListedModel::named(name)
    }
}

fn shown(name: &ModelName, answer: &Value) -> ListedModel {
    let info = answer.get("model_info");
    let text = |key: &str| info?.get(key)?.as_str();
    let architecture = text("general.architecture").unwrap_or_default();
    let number = |key: &str| info?.get(format!("{architecture}.{key}"))?.as_u64();
    let layers = number("block_count");
    let heads = number("attention.head_count");
    // A head is as wide as its share of the embedding, unless the model says otherwise.
    let width = || number("embedding_length")?.checked_div(heads?);
    let key = number("attention.key_length").or_else(width);
    let value = number("attention.value_length").or_else(width);
    let cache = || {
        layers?
            .checked_mul(number("attention.head_count_kv").or(heads)?)?
            .checked_mul(key?.checked_add(value?)?)?
            .checked_mul(CACHE_NUMBER)
    };
    let capabilities = answer.get("capabilities").and_then(Value::as_array);
    let capabilities = capabilities.map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str);
    let capabilities: Vec<String> = capabilities.map(str::to_owned).collect();
    let listed = detailed(name.clone(), answer);
    let exact = info.and_then(|info| info.get("general.parameter_count")?.as_u64());
    ListedModel {
        context_tokens: number("context_length"),
        parameters: exact.or(listed.parameters),
        // Older servers say nothing of it.
        images: (!capabilities.is_empty()).then(|| capabilities.iter().any(|can| can == "vision")),
        capabilities,
        cache_bytes_per_token: cache(),
        ..listed
    }
}

/// Reads a size such as `7.6B` or `494.03M`.
fn parameters(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let zeros = match unit {
        "K" => 3,
        "M" => 6,
        "B" => 9,
        "T" => 12,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction:0<zeros$}");
    // A fraction of more digits than the unit has zeros would be less than a parameter.
    (!whole.is_empty() && fraction.len() <= zeros).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_to_the_last_digit() {
        for (text, size) in [
            ("7.6B", Some(7_600_000_000)),
            ("494.03M", Some(494_030_000)),
            ("1T", Some(1_000_000_000_000)),
            ("B", None),
            ("7.6", None),
            ("", None),
            ("7é", None),
            ("-1B", None),
        ] {
            assert_eq!(parameters(text), size, "{text}");
        }
    }
}
