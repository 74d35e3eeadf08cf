//! `models.*`: what can be asked, and what it costs.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{CategoryName, ModelName, ModelRef, Price, ProviderName, Scrub};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams, discover};
use futures::future;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    models::{Models, endpoints},
};

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// What can be asked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The configured endpoints, and those found on this machine.
    pub endpoints: Vec<EndpointModels>,
    /// What agents ask for, mapped to what is there.
    pub categories: BTreeMap<CategoryName, ModelRef>,
}

/// An endpoint and its models.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EndpointModels {
    /// The name that models are prefixed with.
    pub provider: ProviderName,
    /// What kind of server it is.
    pub kind: ProviderKind,
    /// Its address.
    pub base_url: String,
    /// Whether the config names it; otherwise it was found.
    pub configured: bool,
    /// Its models.
    pub models: Vec<ModelRow>,
    /// Why it could not be asked.
    pub error: Option<String>,
}

/// A model in short.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ModelRow {
    /// The model.
    pub model: ModelRef,
    /// How many tokens fit its window.
    pub context_tokens: Option<u64>,
    /// What it costs; it is not called before that is known.
    pub price: Option<Price>,
}

/// `models.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "models.list";
    const DOC: &'static str = "Lists the models of every endpoint and what they cost.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let inner = &formwork.inner;
        let config = &inner.config;
        let (keys, models) = formwork.models(config)?;
        let seams = Seams {
            scrub: Arc::clone(&inner.scrub) as Arc<dyn Scrub>,
            rng: Arc::clone(&inner.rng),
            clock: Arc::clone(&inner.clock),
        };
        let configured = endpoints(config, &keys, &inner.base);
        let addresses: Vec<String> = configured.iter().map(|it| it.base_url.clone()).collect();
        let asked = future::join_all(configured.into_iter().map(|it| ask(it, &seams, &models)));
        let (mut listed, found) = future::join(asked, discover(&seams)).await;
        for found in found {
            let endpoint = found.endpoint;
            if addresses.iter().any(|known| known.starts_with(&endpoint.base_url)) {
                continue;
            }
            let rows = found.models.into_iter().map(|model| ModelRow {
                model: ModelRef { provider: endpoint.name.clone(), model: model.name },
                context_tokens: model.context_tokens,
                price: None,
            });
            listed.push(EndpointModels {
                provider: endpoint.name.clone(),
                kind: endpoint.kind,
                base_url: endpoint.base_url,
                configured: false,
                models: rows.collect(),
                error: None,
            });
        }
        Ok(Listed { endpoints: listed, categories: config.categories.clone() })
    }
}

/// Asks one endpoint for its models.
async fn ask(mut endpoint: Endpoint, seams: &Seams, models: &Models) -> EndpointModels {
    endpoint.retry = RetryPolicy::NONE;
    let mut listed = EndpointModels {
        provider: endpoint.name.clone(),
        kind: endpoint.kind,
        base_url: endpoint.base_url.clone(),
        configured: true,
        models: Vec::new(),
        error: None,
    };
    if matches!(endpoint.kind, ProviderKind::Scripted | ProviderKind::Recorded) {
        return listed;
    }
    let row = |name: ModelName, context_tokens: Option<u64>| {
        let model = ModelRef { provider: listed.provider.clone(), model: name };
        let info = models.catalog().info(&model).ok();
        ModelRow {
            context_tokens: info.as_ref().and_then(|info| info.context_tokens).or(context_tokens),
            price: info.and_then(|info| info.price),
            model,
        }
    };
    if let Some(reason) = models.missing_key(&listed.provider) {
        listed.error = Some(format!("its key cannot be had: {reason}"));
        return listed;
    }
    let answer = match Client::new(endpoint, seams.clone()) {
        Err(error) => Err(crate::error::chain(&error)),
        Ok(client) => client.list_models().await.map_err(|error| error.to_string()),
    };
    match answer {
        Ok(found) => {
            listed.models =
                found.into_iter().map(|model| row(model.name, model.context_tokens)).collect();
        }
        Err(error) => listed.error = Some(error),
    }
    listed
}
