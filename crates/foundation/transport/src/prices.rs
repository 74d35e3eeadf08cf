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
    #[serde(rename = "deepseek")]
    DeepSeek,
    Mistral,
    #[serde(rename = "xai")]
    XAi,
}

impl Vendor {
    /// Returns whose models an endpoint serves at their maker's price: by its wire, or, where many servers speak the
    /// same wire, by the host of its `base_url`.
    pub fn of(kind: ProviderKind, base_url: &str) -> Option<Self> {
        match kind {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => Some(Self::OpenAi),
            ProviderKind::Anthropic => Some(Self::Anthropic),
            ProviderKind::Google => Some(Self::Google),
            ProviderKind::OpenAiCompatible => match url::Url::parse(base_url).ok()?.host_str()? {
                "api.deepseek.com" => Some(Self::DeepSeek),
                "api.mistral.ai" => Some(Self::Mistral),
                "api.x.ai" => Some(Self::XAi),
                _ => None,
            },
            ProviderKind::OpenRouter
            | ProviderKind::Ollama
            | ProviderKind::Vllm
            | ProviderKind::LlamaCpp
            | ProviderKind::LmStudio
            | ProviderKind::Scripted
            | ProviderKind::Recorded => None,
        }
    }
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

    /// Returns what is known of a vendor's model `name`.
    ///
    /// A dated name (`gpt-5-2025-08-07`, `claude-sonnet-4-5-20250929`) is the model without its date. Only the makers'
    /// own endpoints are looked up ([`Vendor::of`]): what others ask for the same model is theirs to say.
    pub fn get(&self, vendor: Vendor, name: &str) -> Option<&PricedModel> {
        let find = |name: &str| {
            self.models.iter().find(|model| model.vendor == vendor && model.name == name)
        };
        find(name).or_else(|| find(without_date(name)?))
    }

    /// Returns the names of the models of a vendor that are known.
    pub fn names(&self, vendor: Vendor) -> impl Iterator<Item = &str> {
        let models = self.models.iter().filter(move |model| model.vendor == vendor);
        models.map(|model| model.name.as_str())
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
            assert!(model.cache_read.is_none_or(|read| read < model.input), "{name}");
            assert!(model.cache_write.is_none_or(|write| write >= model.input), "{name}");
            assert!(u64::from(model.max_output_tokens) <= model.context_tokens, "{name}");
        }
    }

    #[test]
    fn a_dated_name_is_the_model_without_its_date() {
        let prices = Prices::built_in().unwrap();
        let find = |name| prices.get(Vendor::OpenAi, name).map(|model| model.name.as_str());

        assert_eq!(find("gpt-5"), Some("gpt-5"));
        assert_eq!(find("gpt-5-2025-08-07"), Some("gpt-5"));
        assert_eq!(find("gpt-5-20250807"), Some("gpt-5"));
        assert_eq!(find("gpt-5-2025-08-0"), None);
        assert_eq!(find("gpt-5-turbo"), None);
        assert_eq!(find("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"), None);
        assert_eq!(prices.get(Vendor::Mistral, "gpt-5"), None);
    }

    #[test]
    fn a_vendor_is_known_by_its_wire_or_by_the_host_of_its_own_endpoint() {
        let compatible = |url| Vendor::of(ProviderKind::OpenAiCompatible, url);

        assert_eq!(Vendor::of(ProviderKind::Anthropic, ""), Some(Vendor::Anthropic));
        assert_eq!(compatible("https://api.deepseek.com/v1"), Some(Vendor::DeepSeek));
        assert_eq!(compatible("https://API.MISTRAL.AI/v1"), Some(Vendor::Mistral));
        assert_eq!(compatible("https://api.x.ai/v1"), Some(Vendor::XAi));
        assert_eq!(compatible("https://api.x.ai.example.com/v1"), None);
        assert_eq!(compatible("https://gateway.example.com/api.x.ai"), None);
        assert_eq!(compatible("not an address"), None);
        assert_eq!(Vendor::of(ProviderKind::OpenRouter, "https://api.x.ai/v1"), None);
    }

    #[test]
    fn every_vendor_has_models() {
        let prices = Prices::built_in().unwrap();
        let all = [
            Vendor::OpenAi,
            Vendor::Anthropic,
            Vendor::Google,
            Vendor::DeepSeek,
            Vendor::Mistral,
            Vendor::XAi,
        ];

        assert!(all.iter().all(|vendor| prices.names(*vendor).next().is_some()));
    }
}
