//! `models.*`: what can be asked, what it costs, what it can do, and how one is fetched.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{Cancel, CategoryName, ModelRef, Price, ProviderName, Scrub};
use formwork_transport::{
    Client, Endpoint, ListedModel, ProviderInfo, ProviderKind, PullProgress, RetryPolicy, Seams,
    discover,
};
use futures::{StreamExt as _, future};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    models::{Models, endpoints},
    tool_probe::{self, ToolProbe},
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
    /// What kind of server it is configured as, or was found to be.
    pub kind: ProviderKind,
    /// What answers there, where that is another kind of server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers_as: Option<ProviderKind>,
    /// The server's own version, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
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
    /// How many parameters it has, where its server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// How its weights are stored, where its server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantisation: Option<String>,
    /// Whether it is in memory, where its server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<bool>,
    /// What it can do, in its server's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// The memory that its whole window takes beside its weights, in bytes, where its server tells enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
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
        let servers = Servers::of(formwork)?;
        let mut listed = servers.all(How::Kept).await;
        let found = discover(&servers.seams).await;
        listed.extend(found.into_iter().filter_map(|found| servers.found(found)));
        let categories = formwork.inner.config.categories.clone();
        Ok(Listed { endpoints: listed, categories })
    }
}

/// Whom to ask.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeParams {
    /// A provider, a model as `provider/model`, or an address; every configured provider where absent.
    pub target: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Probed {
    /// The endpoints that were asked, just now.
    pub endpoints: Vec<EndpointModels>,
    /// What a model did that was asked for one tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolProbe>,
}

/// `models.probe`
pub struct Probe;

#[async_trait]
impl Operation for Probe {
    const NAME: &'static str = "models.probe";
    const DOC: &'static str =
        "Asks servers what they are and what their models can do; one model also for a tool call.";
    // A model that is asked for a call is paid for.
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Read;
    type Params = ProbeParams;
    type Output = Probed;

    async fn run(formwork: &Formwork, _: &Caller, params: ProbeParams) -> Result<Probed, Error> {
        let servers = Servers::of(formwork)?;
        let Some(target) = params.target else {
            return Ok(Probed { endpoints: servers.all(How::Fresh).await, tools: None });
        };
        if target.starts_with("http://") || target.starts_with("https://") {
            let name = "there".parse().expect("this is the name of a provider");
            let endpoint = Endpoint::new(name, ProviderKind::OpenAiCompatible, target);
            let mut probed = servers.ask(endpoint, How::Fresh).await;
            probed.configured = false;
            probed.kind = probed.answers_as.take().unwrap_or(probed.kind);
            return Ok(Probed { endpoints: vec![probed], tools: None });
        }
        if let Ok(model) = target.parse::<ModelRef>() {
            return servers.model(&model).await;
        }
        let endpoint = servers.endpoints.iter().find(|endpoint| endpoint.name.as_str() == target);
        let endpoint = endpoint.ok_or_else(|| servers.unknown(&target))?;
        let endpoints = vec![servers.ask(endpoint.clone(), How::Fresh).await];
        Ok(Probed { endpoints, tools: None })
    }
}

/// Which model to fetch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullParams {
    /// The model.
    pub model: ModelRef,
}

/// A model that is there now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Pulled {
    /// The model.
    pub model: ModelRef,
    /// How many bytes were fetched or were there already, as far as the server told.
    pub bytes: u64,
}

/// `models.pull`
pub struct Pull;

#[async_trait]
impl Operation for Pull {
    const NAME: &'static str = "models.pull";
    const DOC: &'static str = "Has a server fetch a model, where the kind of server can.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = PullParams;
    type Output = Pulled;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: PullParams,
    ) -> Result<Pulled, Error> {
        formwork.pull(caller, params, |_| {}).await
    }
}

impl Formwork {
    /// Carries out [`Pull`], and tells how far it has come. Dropping it closes the connection; a server keeps what it
    /// has fetched, so that a later pull goes on from there.
    ///
    /// # Errors
    /// [`Error::Scope`] when the caller may not ask for it, [`Error::CannotPull`] where the kind of server fetches
    /// nothing on request, [`Error::Provider`] with what the server says.
    pub async fn pull(
        &self,
        caller: &Caller,
        params: PullParams,
        mut tell: impl FnMut(&PullProgress) + Send,
    ) -> Result<Pulled, Error> {
        caller.may::<Pull>()?;
        let model = params.model;
        let servers = Servers::of(self)?;
        let endpoint = servers.endpoint(&model)?;
        if endpoint.kind != ProviderKind::Ollama {
            return Err(Error::CannotPull { model, kind: endpoint.kind });
        }
        let client = servers.client(endpoint.clone())?;
        let mut layers: BTreeMap<String, u64> = BTreeMap::new();
        let mut steps = client.ollama_pull(&model.model, Cancel::new());
        while let Some(step) = steps.next().await {
            let step = step.map_err(Error::provider)?;
            tell(&step);
            if let (Some(digest), Some(total)) = (step.digest, step.total) {
                layers.insert(digest, total);
            }
        }
        self.inner.infos.forget(&client);
        Ok(Pulled { model, bytes: layers.values().sum() })
    }
}

/// Whether what was asked a moment ago counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Kept,
    Fresh,
}

/// The servers that a config names, and how to ask them.
pub(crate) struct Servers<'a> {
    formwork: &'a Formwork,
    models: Models,
    endpoints: Vec<Endpoint>,
    seams: Seams,
}

impl<'a> Servers<'a> {
    pub(crate) fn of(formwork: &'a Formwork) -> Result<Self, Error> {
        let inner = &formwork.inner;
        let (keys, models) = formwork.models(&inner.config)?;
        let endpoints = endpoints(&inner.config, &keys, &inner.base);
        let seams = Seams {
            scrub: Arc::clone(&inner.scrub) as Arc<dyn Scrub>,
            rng: Arc::clone(&inner.rng),
            clock: Arc::clone(&inner.clock),
        };
        Ok(Self { formwork, models, endpoints, seams })
    }

    /// Returns the models of the config.
    pub(crate) const fn models(&self) -> &Models {
        &self.models
    }

    /// Asks every configured endpoint, all at once.
    pub(crate) async fn all(&self, how: How) -> Vec<EndpointModels> {
        let asking = self.endpoints.iter().map(|endpoint| self.ask(endpoint.clone(), how));
        future::join_all(asking).await
    }

    fn endpoint(&self, model: &ModelRef) -> Result<&Endpoint, Error> {
        let found = self.endpoints.iter().find(|endpoint| endpoint.name == model.provider);
        found.ok_or_else(|| self.unknown(model.provider.as_str()))
    }

    fn unknown(&self, name: &str) -> Error {
        let known: Vec<_> = self.endpoints.iter().map(|it| it.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::NoProvider { name: name.to_owned(), known }
    }

    fn client(&self, mut endpoint: Endpoint) -> Result<Client, Error> {
        if let Some(reason) = self.models.missing_key(&endpoint.name) {
            let what = format!("the key of provider {}", endpoint.name);
            return Err(Error::Key { what, reason: reason.to_owned() });
        }
        endpoint.retry = RetryPolicy::NONE;
        Client::new(endpoint, self.seams.clone()).map_err(Error::transport)
    }

    /// Asks one endpoint what it is and what it holds.
    pub(crate) async fn ask(&self, endpoint: Endpoint, how: How) -> EndpointModels {
        let mut listed = EndpointModels {
            provider: endpoint.name.clone(),
            kind: endpoint.kind,
            answers_as: None,
            version: None,
            base_url: endpoint.base_url.clone(),
            configured: true,
            models: Vec::new(),
            error: None,
        };
        if matches!(endpoint.kind, ProviderKind::Scripted | ProviderKind::Recorded) {
            return listed;
        }
        match self.info(endpoint, how).await {
            Err(error) => listed.error = Some(crate::error::chain(&error)),
            Ok(info) => {
                listed.answers_as = (info.kind != listed.kind).then_some(info.kind);
                listed.version = info.version;
                let rows = info.models.into_iter().map(|model| self.row(&listed.provider, model));
                listed.models = rows.collect();
            }
        }
        listed
    }

    async fn info(&self, endpoint: Endpoint, how: How) -> Result<ProviderInfo, Error> {
        let client = self.client(endpoint)?;
        let infos = &self.formwork.inner.infos;
        let info = match how {
            How::Kept => infos.get(&client).await,
            How::Fresh => infos.fresh(&client).await,
        };
        info.map_err(Error::provider)
    }

    /// Puts together what is known of a model: the operator's word first, then its server's.
    fn row(&self, provider: &ProviderName, model: ListedModel) -> ModelRow {
        let cache_bytes = model.cache_bytes();
        let name = ModelRef { provider: provider.clone(), model: model.name };
        let info = self.models.catalog().info(&name).ok();
        ModelRow {
            context_tokens: info
                .as_ref()
                .and_then(|info| info.context_tokens)
                .or(model.context_tokens),
            price: info.and_then(|info| info.price),
            model: name,
            parameters: model.parameters,
            quantisation: model.quantisation,
            loaded: model.loaded,
            capabilities: model.capabilities,
            cache_bytes,
        }
    }

    /// Describes a server that was found on this machine, unless it is configured.
    fn found(&self, found: formwork_transport::Discovered) -> Option<EndpointModels> {
        let endpoint = found.endpoint;
        if self.endpoints.iter().any(|known| known.base_url.starts_with(&endpoint.base_url)) {
            return None;
        }
        let rows = found.models.into_iter().map(|model| self.row(&endpoint.name, model));
        Some(EndpointModels {
            models: rows.collect(),
            provider: endpoint.name,
            kind: endpoint.kind,
            answers_as: None,
            version: None,
            base_url: endpoint.base_url,
            configured: false,
            error: None,
        })
    }

    /// Asks for one model in detail, and the model itself for a tool call.
    async fn model(&self, model: &ModelRef) -> Result<Probed, Error> {
        let endpoint = self.endpoint(model)?.clone();
        let kind = endpoint.kind;
        let mut probed = self.ask(endpoint.clone(), How::Fresh).await;
        probed.models.clear();
        let is_canned = matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded);
        if probed.error.is_none() && !is_canned {
            let client = self.client(endpoint)?;
            let found = self.formwork.inner.infos.model(&client, &model.model).await;
            match found {
                Ok(found) => probed.models.extend(found.map(|it| self.row(&model.provider, it))),
                Err(error) => probed.error = Some(error.to_string()),
            }
        }
        let tools = match probed.error {
            None => Some(tool_probe::probe(&self.models.model(model)?, kind, Cancel::new()).await),
            Some(_) => None,
        };
        Ok(Probed { endpoints: vec![probed], tools })
    }
}

/// Tells whether a server that was asked is one that a model has to be fetched to.
pub(crate) const fn lists_what_it_holds(kind: ProviderKind) -> bool {
    // llama.cpp takes any name for its one model; companies answer to names that they do not list.
    matches!(kind, ProviderKind::Ollama | ProviderKind::Vllm | ProviderKind::LmStudio)
}
