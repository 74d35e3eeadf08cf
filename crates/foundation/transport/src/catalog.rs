//! From configured endpoints to models that are ready to be called.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use formwork_protocols::{
    Model, ModelRef, Price, Provider, ProviderName,
    document::nearest,
    model::{ModelInfo, ToolCalls},
};

use crate::{
    Endpoint, Error, Prices, Seams, Vendor,
    client::Client,
    endpoint::ProviderKind,
    fallback::{Fallback, Link},
    recorded::Recorded,
    scripted::Scripted,
    text_calls::InText,
};

/// What the operator says of a model; it goes before what the catalogue says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelOverride {
    /// How many tokens fit its window.
    pub context_tokens: Option<u64>,
    /// How many tokens it can answer with.
    pub max_output_tokens: Option<u32>,
    /// What it costs; [`Price::LOCAL`] for a model on one's own machine.
    pub price: Option<Price>,
    /// How it takes tools.
    pub tool_calls: Option<ToolCalls>,
    /// Whether it takes images.
    pub images: Option<bool>,
    /// The models that are asked in its place, in this order, where it gives up. Their own chains do not count.
    pub fallback: Vec<ModelRef>,
}

/// The models that can be called: each needs a configured provider and a known price.
#[derive(Default)]
pub struct Catalog {
    prices: Option<Prices>,
    providers: BTreeMap<ProviderName, Known>,
    overrides: BTreeMap<ModelRef, ModelOverride>,
}

struct Known {
    /// Whose prices it has: of a recording, those of the server whose words are replayed.
    vendor: Option<Vendor>,
    /// Whether its words come from no model.
    is_canned: bool,
    provider: Arc<dyn Provider>,
}

/// Makes the provider for an endpoint.
///
/// # Errors
/// What [`Client::new`], [`Scripted::read`] and [`Recorded::read`] return.
pub fn connect(endpoint: Endpoint, seams: &Seams) -> Result<Arc<dyn Provider>, Error> {
    Ok(match endpoint.kind {
        ProviderKind::Recorded => Arc::new(Recorded::read(endpoint, seams.clone())?),
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
            if endpoint.kind == ProviderKind::Recorded {
                let recorded = Recorded::read(endpoint, seams.clone())?;
                let (name, kind) = (recorded.name().clone(), recorded.kind());
                let vendor = Vendor::of(kind, "");
                let known = Known { vendor, is_canned: true, provider: Arc::new(recorded) };
                catalog.providers.insert(name, known);
                continue;
            }
            let is_canned = endpoint.kind == ProviderKind::Scripted;
            let vendor = Vendor::of(endpoint.kind, &endpoint.base_url);
            let provider = connect(endpoint, seams)?;
            let known = Known { vendor, is_canned, provider };
            catalog.providers.insert(known.provider.name().clone(), known);
        }
        Ok(catalog)
    }

    /// Returns it with a provider of the caller's own, which takes the place of one of the same name.
    #[must_use]
    pub fn with_provider(mut self, kind: ProviderKind, provider: Arc<dyn Provider>) -> Self {
        let is_canned = matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded);
        let vendor = Vendor::of(kind, "");
        self.providers.insert(provider.name().clone(), Known { vendor, is_canned, provider });
        self
    }

    /// Returns it with the operator's word on a model.
    #[must_use]
    pub fn with_model(mut self, model: ModelRef, word: ModelOverride) -> Self {
        self.overrides.insert(model, word);
        self
    }

    /// Returns what is known of a model. One whose chain has a script or a recording
    /// in it counts as scripted.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`] when no provider of its name, or of a name in its chain, is configured.
    pub fn info(&self, model: &ModelRef) -> Result<ModelInfo, Error> {
        let known = self.provider(model)?;
        let (vendor, scripted) = (known.vendor, known.is_canned);
        let word = self.overrides.get(model).cloned().unwrap_or_default();
        let prices = self.prices.as_ref().zip(vendor);
        let known = prices.and_then(|(prices, of)| prices.get(of, model.model.as_str()));
        let mut may_be_scripted = scripted;
        for fallback in &word.fallback {
            may_be_scripted |= self.provider(fallback)?.is_canned;
        }
        Ok(ModelInfo {
            model: model.clone(),
            context_tokens: word.context_tokens.or(known.map(|known| known.context_tokens)),
            max_output_tokens: word
                .max_output_tokens
                .or(known.map(|known| known.max_output_tokens)),
            price: word
                .price
                // Words that come from no model cost nothing unless the operator wants to see them cost.
                .or(scripted.then_some(Price::LOCAL))
                .or(known.map(|known| known.price())),
            tool_calls: word.tool_calls.unwrap_or_default(),
            images: word.images,
            scripted: may_be_scripted,
        })
    }

    /// Returns a model that is ready to be called, with its chain of fallbacks.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`] when no provider of its name is configured, [`Error::NoPrice`] when nobody says
    /// what it costs, [`Error::RepeatedFallback`] when its chain goes in a circle; the same for each model of the
    /// chain. Nothing was sent.
    pub fn model(&self, model: &ModelRef) -> Result<Model, Error> {
        let info = self.info(model)?;
        let first = self.link(model)?;
        let chain = self.fallbacks(model);
        let mut seen = vec![model];
        let mut rest = Vec::with_capacity(chain.len());
        for fallback in chain {
            if seen.contains(&fallback) {
                let (model, fallback) = (model.clone(), fallback.clone());
                return Err(Error::RepeatedFallback { model, fallback });
            }
            seen.push(fallback);
            rest.push(self.link(fallback)?);
        }
        let price = first.price;
        if rest.is_empty() {
            return Ok(Model { info, price, ceiling: price, provider: first.provider });
        }
        let chain = Fallback::new(first, rest);
        Ok(Model { info, price, ceiling: chain.ceiling(), provider: Arc::new(chain) })
    }

    /// Returns the models that are asked in place of this one.
    pub fn fallbacks(&self, model: &ModelRef) -> &[ModelRef] {
        self.overrides.get(model).map_or(&[], |word| &word.fallback)
    }

    /// Returns one model of a chain.
    fn link(&self, model: &ModelRef) -> Result<Link, Error> {
        let info = self.info(model)?;
        let price = info.price.ok_or_else(|| self.no_price(model))?;
        let mut provider = Arc::clone(&self.provider(model)?.provider);
        if info.tool_calls == ToolCalls::Text {
            provider = Arc::new(InText::new(provider));
        }
        let model = model.clone();
        let (max_output_tokens, images) = (info.max_output_tokens, info.images);
        Ok(Link { model, price, max_output_tokens, images, provider })
    }

    /// Says that nobody knows what a model costs, and which one of its provider may be meant.
    fn no_price(&self, model: &ModelRef) -> Error {
        let configured = self.configured().filter(|known| known.provider == model.provider);
        let mut known: Vec<String> = configured.map(ToString::to_string).collect();
        let vendor = self.provider(model).ok().and_then(|of| of.vendor);
        if let Some((prices, of)) = self.prices.as_ref().zip(vendor) {
            known.extend(prices.names(of).map(|name| format!("{}/{name}", model.provider)));
        }
        let wrong = model.to_string();
        let others = known.iter().map(String::as_str).filter(|known| *known != wrong);
        let hint = nearest(&wrong, others).map(|name| format!("nearest is {name:?}"));
        Error::NoPrice { hint, model: model.clone() }
    }

    /// Returns the names of the providers.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderName> {
        self.providers.keys()
    }

    /// Returns the models on which the operator has a word.
    pub fn configured(&self) -> impl Iterator<Item = &ModelRef> {
        self.overrides.keys()
    }

    fn provider(&self, model: &ModelRef) -> Result<&Known, Error> {
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
    fn behaviour_14_a_model_without_a_price_is_refused_before_any_call() {
        let error = catalog().model(&model("local/qwen3")).unwrap_err();

        assert_eq!(
            error.to_string(),
            "model local/qwen3 has no price: it is not in the catalogue and none is configured"
        );
    }

    #[test]
    fn a_model_that_is_misspelt_is_told_with_the_nearest() {
        let word = ModelOverride { price: Some(Price::LOCAL), ..ModelOverride::default() };
        let known = catalog().with_model(model("local/qwen3"), word);
        let hint = |name: &str| {
            let error = known.model(&model(name)).unwrap_err().to_string();
            error.split_once("; ").map(|(_, hint)| hint.to_owned())
        };

        assert_eq!(hint("cloud/gpt5").as_deref(), Some("nearest is \"cloud/gpt-5\""));
        assert_eq!(hint("local/qwne3").as_deref(), Some("nearest is \"local/qwen3\""));
        assert_eq!(hint("local/something-else"), None);
    }

    #[test]
    fn a_chain_is_reserved_at_its_dearest_and_names_nobody_twice() {
        let chain = |names: &[&str]| ModelOverride {
            fallback: names.iter().map(|name| model(name)).collect(),
            ..ModelOverride::default()
        };
        let asked = |names: &[&str]| {
            catalog().with_model(model("demo/m"), chain(names)).model(&model("demo/m"))
        };

        let found = asked(&["cloud/gpt-5-mini", "cloud/gpt-5"]).unwrap();
        assert_eq!((found.price, found.info.scripted), (Price::LOCAL, true));
        assert_eq!(found.ceiling, catalog().model(&model("cloud/gpt-5")).unwrap().price);

        assert_eq!(
            asked(&["cloud/gpt-5", "demo/m"]).unwrap_err().to_string(),
            "model demo/m: its chain of fallbacks names demo/m twice"
        );
        assert!(matches!(asked(&["local/qwen3"]), Err(Error::NoPrice { .. })));
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
    fn a_model_that_is_declared_so_has_its_calls_read_from_its_words() {
        let word = ModelOverride {
            price: Some(Price::LOCAL),
            tool_calls: Some(ToolCalls::Text),
            ..ModelOverride::default()
        };
        let script = r#"{"format_version": 1, "turns": [
            {"text": "<tool_call>{\"name\": \"fs.read\", \"arguments\": {}}</tool_call>"}]}"#;
        let script = Script::parse("turns.json", script).unwrap();
        let script = Scripted::new("demo".parse().unwrap(), "demo", script);
        let found = catalog()
            .with_provider(ProviderKind::Scripted, Arc::new(script))
            .with_model(model("demo/m"), word)
            .model(&model("demo/m"))
            .unwrap();

        let mut request = crate::replay::rich_request();
        request.messages.truncate(3);
        let answer = found.provider.complete(request, formwork_protocols::Cancel::new());
        let answer = futures::executor::block_on(answer).unwrap();

        assert_eq!(answer.message.tool_calls().count(), 1);
        assert_eq!(answer.stop, formwork_protocols::model::StopReason::ToolUse);
    }

    #[test]
    fn a_script_costs_nothing_and_is_known_for_one() {
        let found = catalog().model(&model("demo/any")).unwrap();

        assert!(found.info.scripted);
        assert_eq!(found.price, Price::LOCAL);
    }
}
