//! From configured endpoints to models that are ready to be called.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use formwork_protocols::{
    Model, ModelRef, Price, Provider, ProviderName,
    model::{ModelInfo, ToolCalls},
};

use crate::{
    Endpoint, Error, Prices, Seams, client::Client, endpoint::ProviderKind, scripted::Scripted,
};

/// What the operator says of a model; it goes before what the catalogue says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelOverride {
    /// How many tokens fit its window.
    pub context_tokens: Option<u64>,
    /// How many tokens it can answer with.
    pub max_output_tokens: Option<u32>,
    /// What it costs; [`Price::LOCAL`] for a model on one's own machine.
    pub price: Option<Price>,
    /// How it takes tools.
    pub tool_calls: Option<ToolCalls>,
}

/// The models that can be called: each needs a configured provider and a known price.
#[derive(Default)]
pub struct Catalog {
    prices: Option<Prices>,
    providers: BTreeMap<ProviderName, (ProviderKind, Arc<dyn Provider>)>,
    overrides: BTreeMap<ModelRef, ModelOverride>,
}

/// Makes the provider for an endpoint.
///
/// # Errors
/// What [`Client::new`] and [`Scripted::read`] return.
pub fn connect(endpoint: Endpoint, seams: &Seams) -> Result<Arc<dyn Provider>, Error> {
    Ok(match endpoint.kind {
        ProviderKind::Scripted => {
            Arc::new(Scripted::read(endpoint.name, Path::new(&endpoint.base_url))?)
        }
        _ => Arc::new(Client::new(endpoint, seams.clone())?),
    })
}

impl Catalog {
    /// Makes a catalogue of these endpoints, with the built-in prices. Nothing is sent.
    ///
    /// # Errors
    /// The first endpoint that cannot be used as it is configured.
    pub fn new(endpoints: Vec<Endpoint>, seams: &Seams) -> Result<Self, Error> {
        let mut catalog = Self { prices: Some(Prices::built_in()?), ..Self::default() };
        for endpoint in endpoints {
            let kind = endpoint.kind;
            let provider = connect(endpoint, seams)?;
            catalog = catalog.with_provider(kind, provider);
        }
        Ok(catalog)
    }

    /// Returns it with a provider of the caller's own, which takes the place of one of the same name.
    #[must_use]
    pub fn with_provider(mut self, kind: ProviderKind, provider: Arc<dyn Provider>) -> Self {
        self.providers.insert(provider.name().clone(), (kind, provider));
        self
    }

    /// Returns it with the operator's word on a model.
    #[must_use]
    pub fn with_model(mut self, model: ModelRef, word: ModelOverride) -> Self {
        self.overrides.insert(model, word);
        self
    }

    /// Returns what is known of a model.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`] when no provider of its name is configured.
    pub fn info(&self, model: &ModelRef) -> Result<ModelInfo, Error> {
        let (kind, _) = self.provider(model)?;
        let word = self.overrides.get(model).copied().unwrap_or_default();
        let known = self.prices.as_ref().and_then(|p| p.get(*kind, model.model.as_str()));
        let scripted = *kind == ProviderKind::Scripted;
        Ok(ModelInfo {
            model: model.clone(),
            context_tokens: word.context_tokens.or(known.map(|known| known.context_tokens)),
            max_output_tokens: word
                .max_output_tokens
                .or(known.map(|known| known.max_output_tokens)),
            price: word
                .price
                .or(known.map(|known| known.price()))
                // The words of a script cost nothing unless the operator wants to see them cost.
                .or(scripted.then_some(Price::LOCAL)),
            tool_calls: word.tool_calls.unwrap_or_default(),
            scripted,
        })
    }

    /// Returns a model that is ready to be called.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`] when no provider of its name is configured, [`Error::NoPrice`] when nobody says
    /// what it costs. Nothing was sent.
    pub fn model(&self, model: &ModelRef) -> Result<Model, Error> {
        let info = self.info(model)?;
        let (_, provider) = self.provider(model)?;
        let price = info.price.ok_or_else(|| Error::NoPrice { model: model.clone() })?;
        Ok(Model { info, price, provider: Arc::clone(provider) })
    }

    /// Returns the names of the providers.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderName> {
        self.providers.keys()
    }

    /// Returns the models on which the operator has a word.
    pub fn configured(&self) -> impl Iterator<Item = &ModelRef> {
        self.overrides.keys()
    }

    fn provider(&self, model: &ModelRef) -> Result<&(ProviderKind, Arc<dyn Provider>), Error> {
        self.providers.get(&model.provider).ok_or_else(|| {
            let known: Vec<_> = self.providers.keys().map(ProviderName::as_str).collect();
            Error::UnknownProvider {
                model: model.clone(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            }
        })
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("providers", &self.providers.keys())
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::scripted::Script;

    use super::*;

    fn catalog() -> Catalog {
        let openai = Endpoint::new(
            "cloud".parse().unwrap(),
            ProviderKind::OpenAi,
            "https://api.openai.com/v1",
        );
        let local = Endpoint::new(
            "local".parse().unwrap(),
            ProviderKind::LlamaCpp,
            "http://127.0.0.1:8080",
        );
        let script = Scripted::new("demo".parse().unwrap(), "demo", Script { turns: Vec::new() });
        Catalog::new(vec![openai, local], &Seams::default())
            .unwrap()
            .with_provider(ProviderKind::Scripted, Arc::new(script))
    }

    fn model(name: &str) -> ModelRef {
        name.parse().unwrap()
    }

    #[test]
    fn a_model_of_the_catalogue_has_its_price_and_window() {
        let found = catalog().model(&model("cloud/gpt-5")).unwrap();

        assert_eq!(found.price.input, "1.25".parse().unwrap());
        assert_eq!(found.info.context_tokens, Some(400_000));
        assert!(!found.info.scripted);
    }

    #[test]
    fn the_operators_word_goes_before_the_catalogues() {
        let word = ModelOverride {
            context_tokens: Some(1_000),
            price: Some(Price::LOCAL),
            ..ModelOverride::default()
        };
        let found =
            catalog().with_model(model("cloud/gpt-5"), word).model(&model("cloud/gpt-5")).unwrap();

        assert_eq!((found.price, found.info.context_tokens), (Price::LOCAL, Some(1_000)));
        assert_eq!(found.info.max_output_tokens, Some(128_000));
    }

    #[test]
    fn a_model_without_a_price_is_refused_before_any_call() {
        let error = catalog().model(&model("local/qwen3")).unwrap_err();

        assert_eq!(
            error.to_string(),
            "model local/qwen3 has no price: it is not in the catalogue and none is configured"
        );
    }

    #[test]
    fn a_provider_that_nobody_configured_is_named() {
        let error = catalog().model(&model("cluod/gpt-5")).unwrap_err();

        assert_eq!(
            error.to_string(),
            "model cluod/gpt-5: no provider \"cluod\" is configured; there is cloud, demo, local"
        );
    }

    #[test]
    fn a_script_costs_nothing_and_is_known_for_one() {
        let found = catalog().model(&model("demo/any")).unwrap();

        assert!(found.info.scripted);
        assert_eq!(found.price, Price::LOCAL);
    }
}
