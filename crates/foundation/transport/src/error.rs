use formwork_protocols::{ModelRef, ProviderName, document::Diagnostics};

/// Why a provider or a model cannot be set up. What a call fails with is a
/// [`ProviderError`](formwork_protocols::ProviderError).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The text names no kind of provider.
    #[error("{text:?} is not a kind of provider: expected one of {expected}")]
    UnknownKind { text: String, expected: String },
    /// The base address cannot be used.
    #[error("provider {provider}: {text:?} is not a base address: {reason}")]
    BaseUrl { provider: ProviderName, text: String, reason: String },
    /// A header cannot be sent; its value is not shown, for it may be a secret.
    #[error("provider {provider}: header {name:?} cannot be sent: {reason}")]
    Header { provider: ProviderName, name: String, reason: String },
    /// The key cannot be sent; it is not shown.
    #[error("provider {provider}: its key cannot be sent: {reason}")]
    ApiKey { provider: ProviderName, reason: String },
    /// The HTTP client could not be made.
    #[error("provider {provider}: no HTTP client could be made: {reason}")]
    HttpClient { provider: ProviderName, reason: String },
    /// The script or recording could not be read.
    #[error("provider {provider}: {path} could not be read")]
    Unreadable { provider: ProviderName, path: String, source: std::io::Error },
    /// A recording cannot be used.
    #[error("provider {provider}: {path} cannot be replayed: {reason}")]
    Recording { provider: ProviderName, path: String, reason: String },
    /// The script or the catalogue has faults.
    #[error("{0}")]
    Document(Diagnostics),
    /// The document is not JSON.
    #[error("{source_name} is not JSON")]
    Json { source_name: String, source: serde_json::Error },
    /// The JSON holds what no document can, such as null.
    #[error("{source_name} holds what no document can: {reason}")]
    NotToml { source_name: String, reason: String },
    /// No provider of that name is configured.
    #[error("model {model}: no provider {provider:?} is configured; there is {known}", provider = model.provider.as_str())]
    UnknownProvider { model: ModelRef, known: String },
    /// A chain of models names one twice.
    #[error("model {model}: its chain of fallbacks names {fallback} twice")]
    RepeatedFallback { model: ModelRef, fallback: ModelRef },
    /// Nothing is known of what the model costs, so it is not called.
    #[error(
        "model {model} has no price: it is not in the catalogue and none is configured{}",
        hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default()
    )]
    NoPrice {
        model: ModelRef,
        /// The model that may be meant.
        hint: Option<String>,
    },
}

impl From<Diagnostics> for Error {
    fn from(faults: Diagnostics) -> Self {
        Self::Document(faults)
    }
}
