//! What models cost, by a dated catalogue that the crate carries.

use formwork_protocols::{
    Price, Usd,
    document::{self, DocumentType},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, endpoint::ProviderKind};

/// The catalogue of this version.
const CATALOGUE: &str = include_str!("prices.toml");

/// What models cost, as far as their makers publish it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The models.
    pub models: Vec<PricedModel>,
}

impl DocumentType for Prices {
    const NAME: &'static str = "prices";
}

/// A model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PricedModel {
    /// Who makes and serves it.
    pub vendor: Vendor,
    /// Its name, without a date.
    pub name: String,
    /// A million tokens of input.
    pub input: Usd,
    /// A million tokens of output, reasoning included.
    pub output: Usd,
    /// A million tokens read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Usd>,
    /// A million tokens written to the cache, for its shortest life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Usd>,
    /// How many tokens fit its window at this price.
    pub context_tokens: u64,
    /// How many tokens it can answer with.
    pub max_output_tokens: u32,
    /// The page that says so.
    pub source: String,
    /// The month for which it is known to say so, as `2026-01`.
    pub as_of: String,
}

/// Who makes and serves a model at a price of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant is the company that it names")]
pub enum Vendor {
    #[serde(rename = "openai")]
    OpenAi,
    Anthropic,
    Google,
}

impl PricedModel {
    /// Returns the price.
    pub const fn price(&self) -> Price {
        Price {
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: None,
        }
    }
}

impl Prices {
    /// Returns the catalogue that this version carries.
    ///
    /// # Errors
    /// [`Error::Document`] when the file has a fault, which the crate's tests rule out.
    pub fn built_in() -> Result<Self, Error> {
        Self::parse("prices.toml", CATALOGUE)
    }

    /// Reads a catalogue.
    ///
    /// # Errors
    /// [`Error::Document`] with every fault and its place.
    pub fn parse(source: &str, text: &str) -> Result<Self, Error> {
        Ok(document::parse::<Self>(source, text)?.value)
    }

    /// Returns what is known of the model `name` at an endpoint of that kind.
    ///
    /// A dated name (`gpt-5-2025-08-07`, `claude-sonnet-4-5-20250929`) is the model without its date. Only the makers'
    /// own endpoints are looked up: what others ask for the same model is theirs to say.
    pub fn get(&self, kind: ProviderKind, name: &str) -> Option<&PricedModel> {
        let vendor = vendor(kind)?;
        let find = |name: &str| {
            self.models.iter().find(|model| model.vendor == vendor && model.name == name)
        };
        find(name).or_else(|| find(without_date(name)?))
    }

    /// Returns the names of the models that are known at an endpoint of that kind.
    pub fn names(&self, kind: ProviderKind) -> impl Iterator<Item = &str> {
        let of = vendor(kind);
        let models = self.models.iter().filter(move |model| Some(model.vendor) == of);
        models.map(|model| model.name.as_str())
    }
}

const fn vendor(kind: ProviderKind) -> Option<Vendor> {
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses => Some(Vendor::OpenAi),
        ProviderKind::Anthropic => Some(Vendor::Anthropic),
        ProviderKind::Google => Some(Vendor::Google),
        ProviderKind::OpenRouter
        | ProviderKind::Ollama
        | ProviderKind::Vllm
        | ProviderKind::LlamaCpp
        | ProviderKind::LmStudio
        | ProviderKind::OpenAiCompatible
        | ProviderKind::Scripted
        | ProviderKind::Recorded => None,
    }
}

/// Returns `name` without `-YYYYMMDD` or `-YYYY-MM-DD` at its end.
fn without_date(name: &str) -> Option<&str> {
    for pattern in ["-dddddddd", "-dddd-dd-dd"] {
        let start = name.len().checked_sub(pattern.len())?;
        let Some(end) = name.get(start..) else { continue };
        let fits = end.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
            b'd' => byte.is_ascii_digit(),
            wanted => byte == wanted,
        });
        if fits {
            return name.get(..start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_entry_of_the_catalogue_is_dated_sourced_and_plausible() {
        let prices = Prices::built_in().unwrap();

        let mut seen = HashSet::new();
        for model in &prices.models {
            let name = &model.name;
            assert!(seen.insert((model.vendor, name)), "{name} stands twice");
            assert!(model.source.starts_with("https://"), "{name}");
            assert!(model.as_of.len() == 7 && model.as_of.starts_with("20"), "{name}");
            assert!(Usd::ZERO < model.input && model.input < model.output, "{name}");
            assert!(model.cache_read.is_some_and(|read| read < model.input), "{name}");
            assert!(model.cache_write.is_none_or(|write| write >= model.input), "{name}");
            assert!(u64::from(model.max_output_tokens) <= model.context_tokens, "{name}");
        }
    }

    #[test]
    fn a_dated_name_is_the_model_without_its_date() {
        let prices = Prices::built_in().unwrap();
        let find = |name| prices.get(ProviderKind::OpenAi, name).map(|model| model.name.as_str());

        assert_eq!(find("gpt-5"), Some("gpt-5"));
        assert_eq!(find("gpt-5-2025-08-07"), Some("gpt-5"));
        assert_eq!(find("gpt-5-20250807"), Some("gpt-5"));
        assert_eq!(find("gpt-5-2025-08-0"), None);
        assert_eq!(find("gpt-5-pro"), None);
        assert_eq!(find("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"), None);
        assert_eq!(prices.get(ProviderKind::OpenAiCompatible, "gpt-5"), None);
    }
}
