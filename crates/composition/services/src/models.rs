//! From config to models that can be called.

use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc};

use formwork_agent::{Agent, ModelChoice};
use formwork_protocols::{
    AgentName, CategoryName, Clock, Model, ModelRef, Provider, ProviderName, Rng, Scrub,
};
use formwork_secrets::{Registry, SecretName};
use formwork_transport::{Catalog, Endpoint, ModelOverride, ProviderKind, Seams};
use secrecy::SecretString;

use crate::{Error, config::Config};

/// The category that agents ask for unless they say otherwise.
pub(crate) const DEFAULT_CATEGORY: &str = "default";

/// The category that sums up what no longer fits a window; the model that is asked does so where it is not mapped.
const CHEAP_CATEGORY: &str = "cheap";

/// The environment, as those who look up keys see it.
pub(crate) fn lookup(
    environment: &BTreeMap<OsString, OsString>,
) -> impl Fn(&str) -> Option<String> + '_ {
    |name| environment.get(OsString::from(name).as_os_str())?.to_str().map(str::to_owned)
}

/// The keys of providers, and the secrets that tools may be given.
pub(crate) struct Keys {
    pub(crate) registry: Registry,
    of_providers: BTreeMap<String, SecretString>,
    /// Providers whose key cannot be had, and why. Only who asks one of them has to know.
    missing: BTreeMap<ProviderName, String>,
}

impl Keys {
    /// Reads every key and secret from where the config says it comes from.
    ///
    /// A provider whose key cannot be had is in nobody's way who does not ask it.
    ///
    /// # Errors
    /// [`Error::Secret`] names the secrets that cannot be had.
    pub(crate) fn read(
        config: &Config,
        environment: &BTreeMap<OsString, OsString>,
        base: &Path,
    ) -> Result<Self, Error> {
        let lookup = lookup(environment);
        let mut registry = Registry::resolve(&config.secrets, &lookup, base).map_err(|errors| {
            let reasons: Vec<String> = errors.iter().map(told).collect();
            Error::Secret { reason: reasons.join("; ") }
        })?;
        let (mut of_providers, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for (provider, settings) in &config.providers {
            let Some(source) = &settings.api_key else { continue };
            let named = SecretName::parse(format!("provider-{provider}"));
            let read = named.and_then(|name| {
                let key = source.resolve_key(&name, &lookup, base)?;
                // It is scrubbed wherever it turns up, and no tool is given it. One that cannot be is not used.
                let taken = registry.insert_apart(name, key.clone());
                taken.map_err(|why| source.unusable(why))?;
                Ok(key)
            });
            match read {
                Ok(key) => drop(of_providers.insert(provider.to_string(), key)),
                Err(error) => drop(missing.insert(provider.clone(), told(&error))),
            }
        }
        Ok(Self { registry, of_providers, missing })
    }
}

impl Keys {
    /// Returns no keys at all: enough to see whether models could be asked, and never to ask one.
    pub(crate) fn none() -> Self {
        Self {
            registry: Registry::default(),
            of_providers: BTreeMap::new(),
            missing: BTreeMap::new(),
        }
    }
}

/// Joins an error and its causes.
fn told(error: &formwork_secrets::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Returns the endpoints that the config names.
pub(crate) fn endpoints(config: &Config, keys: &Keys, base: &Path) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for (name, settings) in &config.providers {
        let given = settings.base_url.clone();
        let address = given.or_else(|| settings.kind.default_base_url().map(str::to_owned));
        let mut address = address.unwrap_or_default();
        if matches!(settings.kind, ProviderKind::Scripted | ProviderKind::Recorded) {
            address = base.join(address).display().to_string();
        }
        let mut endpoint = Endpoint::new(name.clone(), settings.kind, address);
        if let Some(key) = keys.of_providers.get(name.as_str()) {
            endpoint = endpoint.with_api_key(key.clone());
        }
        endpoint.clocks = settings.clocks.unwrap_or_default();
        endpoint.retry = settings.retry.unwrap_or_default();
        // A server that loads models on demand is told how large a window they are to have.
        endpoint.context_tokens = config
            .models
            .iter()
            .filter(|(model, _)| model.provider == *name)
            .filter_map(|(_, known)| known.context_tokens)
            .max();
        endpoints.push(endpoint);
    }
    endpoints
}

/// The models that can be called.
pub(crate) struct Models {
    catalog: Catalog,
    categories: BTreeMap<CategoryName, ModelRef>,
    missing: BTreeMap<ProviderName, String>,
    /// Whether what is asked and answered is kept.
    recording: bool,
}

impl Models {
    /// Connects the endpoints that the config names, and the embedder's own providers. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Transport`] when an endpoint cannot be used as it is configured.
    pub(crate) fn connect(
        config: &Config,
        keys: &Keys,
        (base, record): (&Path, Option<&Path>),
        own: &[Arc<dyn Provider>],
        seams: (Arc<dyn Scrub>, Arc<dyn Rng>, Arc<dyn Clock>),
    ) -> Result<Self, Error> {
        let (scrub, rng, clock) = seams;
        let seams = Seams { scrub, rng, clock };
        let mut endpoints = endpoints(config, keys, base);
        for endpoint in &mut endpoints {
            endpoint.record = record.map(Path::to_owned);
        }
        let mut catalog = Catalog::new(endpoints, &seams).map_err(Error::transport)?;
        for provider in own {
            catalog = catalog.with_provider(ProviderKind::OpenAiCompatible, Arc::clone(provider));
        }
        for (model, known) in &config.models {
            let word = ModelOverride {
                context_tokens: known.context_tokens,
                max_output_tokens: known.max_output_tokens,
                price: known.price.map(crate::config::PriceConfig::price),
                tool_calls: known.tool_calls.map(crate::config::ToolCallsConfig::tool_calls),
                images: known.images,
                fallback: known.fallback.clone(),
            };
            catalog = catalog.with_model(model.clone(), word);
        }
        let missing = keys.missing.clone();
        Ok(Self {
            catalog,
            categories: config.categories.clone(),
            missing,
            recording: record.is_some(),
        })
    }

    /// Returns the model that an agent thinks with.
    ///
    /// # Errors
    /// [`Error::NoSuchCategory`] when it asks for one that nothing is mapped to.
    pub(crate) fn choice(&self, agent: &Agent) -> Result<ModelRef, Error> {
        self.chosen(agent.name(), &agent.document().model)
    }

    /// Returns the model that a choice of an agent leads to.
    ///
    /// # Errors
    /// [`Error::NoSuchCategory`] when nothing is mapped to it.
    pub(crate) fn chosen(
        &self,
        agent: &AgentName,
        choice: &ModelChoice,
    ) -> Result<ModelRef, Error> {
        match choice {
            ModelChoice::Model(model) => Ok(model.clone()),
            ModelChoice::Category(category) => self.category(agent, category),
        }
    }

    /// Returns the model that sums conversations up, if one is named for it.
    pub(crate) fn cheap(&self) -> Option<&ModelRef> {
        let (_, model) =
            self.categories.iter().find(|(name, _)| name.as_str() == CHEAP_CATEGORY)?;
        Some(model)
    }

    fn category(&self, agent: &AgentName, category: &CategoryName) -> Result<ModelRef, Error> {
        self.categories.get(category).cloned().ok_or_else(|| Error::NoSuchCategory {
            agent: agent.clone(),
            category: category.clone(),
        })
    }

    /// Returns a model that is ready to be called.
    ///
    /// # Errors
    /// [`Error::Model`] when its provider is not configured or it has no price, [`Error::Key`] when the
    /// provider's key cannot be had.
    pub(crate) fn model(&self, model: &ModelRef) -> Result<Model, Error> {
        for asked in std::iter::once(model).chain(self.catalog.fallbacks(model)) {
            if let Some(reason) = self.missing.get(&asked.provider) {
                let what = format!("the key of provider {}", asked.provider);
                return Err(Error::Key { what, reason: reason.clone() });
            }
        }
        let ready = self
            .catalog
            .model(model)
            .map_err(|source| Error::Model { model: model.clone(), source: Box::new(source) })?;
        if self.recording && ready.info.scripted {
            return Err(Error::NotRecordable { model: model.clone() });
        }
        Ok(ready)
    }

    /// Says why the key of a provider cannot be had, if it cannot.
    pub(crate) fn missing_key(&self, provider: &ProviderName) -> Option<&str> {
        self.missing.get(provider).map(String::as_str)
    }

    /// Returns what is known of models, for those who list them.
    pub(crate) const fn catalog(&self) -> &Catalog {
        &self.catalog
    }
}
