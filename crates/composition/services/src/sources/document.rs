//! A source as a person writes it, and what that means once it has no fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};

use formwork_protocols::{
    EventName, SourceName, Span, VariableName,
    document::{self, Diagnostic, Diagnostics, DocumentType, Parsed, pointer},
};
use formwork_secrets::placeholders;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    mapping::{Mapping, Place},
    signature::{Encoding, Scheme},
};

/// How large a body may be where the document does not say.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The largest body that a document may let in: the largest that a forge sends.
const CEILING: usize = 25 * 1024 * 1024;

/// How far the time of a delivery may be from now where the document does not say: what the schemes in use ask for.
const TOLERANCE: Span = Span::from_secs(300);

/// The most secrets, names and places of a source.
const MOST: usize = 200;

/// The longest name of a header, and the longest pointer.
const LONGEST: usize = 200;

/// A source: who may tell of what happens outside, and as what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDocument {
    /// Its name, which is that of its file.
    pub name: SourceName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The last part of the address that it sends to; its name where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<SourceName>,
    /// The largest body that is taken, in bytes; a mebibyte where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 26214400))]
    pub max_bytes: Option<NonZeroU32>,
    /// What it signs with, as `{{secret:NAME}}`. Any of them counts, so that one can take the place of another.
    #[schemars(length(min = 1))]
    pub secrets: Vec<String>,
    /// How it signs.
    pub scheme: SchemeName,
    /// How exactly, where the scheme is `hmac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureDocument>,
    /// How far the time of a delivery may be from now, where the scheme signs one; five minutes where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub tolerance: Option<Span>,
    /// What an event is called.
    pub event: EventDocument,
    /// Where the name of a delivery stands, by which one that comes again is known; as the scheme has it where absent, and the
    /// hash of the body where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<PlaceDocument>,
    /// What is kept of the body: a name for each, and where it stands as a JSON pointer. All of it where empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<VariableName, String>,
}

/// How a source signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchemeName {
    /// `X-Hub-Signature-256`, over the body.
    Github,
    /// `X-Gitlab-Token`, which is the secret itself.
    Gitlab,
    /// `Stripe-Signature` with its time, over both and the body.
    Stripe,
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`, over the first two and the body.
    StandardWebhooks,
    /// A header of its own, over the body.
    Hmac,
}

impl SchemeName {
    /// Returns its name, as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Stripe => "stripe",
            Self::StandardWebhooks => "standard-webhooks",
            Self::Hmac => "hmac",
        }
    }

    /// Returns where the scheme says what an event is of.
    fn event(self) -> Option<Place> {
        Some(match self {
            Self::Github => Place::Header("x-github-event".to_owned()),
            Self::Gitlab => Place::Header("x-gitlab-event".to_owned()),
            Self::Stripe | Self::StandardWebhooks => Place::Pointer("/type".to_owned()),
            Self::Hmac => return None,
        })
    }

    /// Returns where the scheme names a delivery.
    fn delivery(self) -> Option<Place> {
        Some(match self {
            Self::Github => Place::Header("x-github-delivery".to_owned()),
            Self::Gitlab => Place::Header("idempotency-key".to_owned()),
            Self::Stripe => Place::Pointer("/id".to_owned()),
            Self::StandardWebhooks => Place::Header("webhook-id".to_owned()),
            Self::Hmac => return None,
        })
    }
}

/// How a source signs that has a header of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignatureDocument {
    /// The header.
    pub header: String,
    /// By which algorithm.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// How the signature is written.
    #[serde(default)]
    pub encoding: Encoding,
    /// What stands before it, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// By which algorithm a source signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// HMAC with SHA-256.
    #[default]
    HmacSha256,
}

/// What an event is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventDocument {
    /// The header that says what it is of; as the scheme has it where neither is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Where the body says so, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The name of the event by each of what that may say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, EventName>,
    /// The name of all others, which are refused where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<EventName>,
}

/// Where something stands in a request: exactly one of `header` and `pointer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceDocument {
    /// A header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// A place in the body, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

impl DocumentType for SourceDocument {
    const NAME: &'static str = "source";
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: SourceName,
    pub(crate) description: String,
    pub(crate) slug: SourceName,
    pub(crate) max_bytes: usize,
    /// The names of its secrets, the first one first.
    pub(crate) secrets: Vec<String>,
    pub(crate) scheme_name: SchemeName,
    pub(crate) scheme: Scheme,
    pub(crate) mapping: Mapping,
}

impl Source {
    /// Reads a source; `source` is the name of its file.
    ///
    /// # Errors
    /// [`Diagnostics`] lists every fault with its place.
    pub(crate) fn parse(source: &str, text: &str) -> Result<Self, Diagnostics> {
        match document::parse::<SourceDocument>(source, text) {
            Ok(parsed) => Reader { parsed: &parsed, faults: Vec::new() }
                .read()
                .map_err(|faults| faults.into_iter().collect()),
            Err(mut faults) => {
                // What can be read besides is held to its meaning as well.
                if let Some(rest) = document::salvage::<SourceDocument>(source, text) {
                    let more = Reader { parsed: &rest, faults: Vec::new() }.read();
                    faults.merge(more.err().into_iter().flatten());
                }
                Err(faults)
            }
        }
    }
}

/// Reads the meaning of a document whose form is right.
struct Reader<'a> {
    parsed: &'a Parsed<SourceDocument>,
    faults: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn fault(&mut self, at: &str, told: impl Into<String>) {
        self.faults.push(self.parsed.diagnostic(at, told));
    }

    fn read(mut self) -> Result<Source, Vec<Diagnostic>> {
        let document = &self.parsed.value;
        let stem = std::path::Path::new(self.parsed.document.source()).file_stem();
        if stem.and_then(|name| name.to_str()) != Some(document.name.as_str()) {
            let told = format!("a source stands in the file of its name, {}.toml", document.name);
            self.fault("/name", told);
        }
        let max_bytes = document
            .max_bytes
            .map_or(MAX_BYTES, |most| usize::try_from(most.get()).unwrap_or(usize::MAX));
        if max_bytes > CEILING {
            self.fault("/max_bytes", format!("no body has more than {CEILING} bytes"));
        }
        let secrets = self.secrets(&document.secrets);
        let scheme = self.scheme(document);
        let mapping = Mapping {
            from: self.place(
                "/event",
                document.event.header.as_deref(),
                document.event.pointer.as_deref(),
                document.scheme.event(),
            ),
            names: document.event.names.clone(),
            otherwise: document.event.otherwise.clone(),
            delivery: match &document.delivery {
                Some(place) => {
                    let (header, pointer) = (place.header.as_deref(), place.pointer.as_deref());
                    if header.is_none() && pointer.is_none() {
                        self.fault("/delivery", "a place is a header or a pointer");
                    }
                    self.place("/delivery", header, pointer, None)
                }
                None => document.scheme.delivery(),
            },
            data: document.data.clone(),
        };
        self.mapping(&mapping);
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        Ok(Source {
            name: document.name.clone(),
            description: document.description.clone(),
            slug: document.slug.clone().unwrap_or_else(|| document.name.clone()),
            max_bytes,
            secrets,
            scheme_name: document.scheme,
            scheme,
            mapping,
        })
    }

    fn secrets(&mut self, written: &[String]) -> Vec<String> {
        if written.is_empty() {
            self.fault("/secrets", "a source has at least one secret");
        }
        if written.len() > MOST {
            let told = format!("there are {} secrets, at most {MOST} are read", written.len());
            self.fault("/secrets", told);
        }
        let mut names = Vec::new();
        for (at, secret) in written.iter().enumerate() {
            match placeholders(&Value::String(secret.clone())).as_slice() {
                [name] if *secret == format!("{{{{secret:{name}}}}}") => names.push(name.clone()),
                // What was written may be a secret itself, and so it is not told.
                _ => self.fault(
                    &format!("/secrets/{at}"),
                    "a secret is named, as {{secret:NAME}}, and stands nowhere in a file",
                ),
            }
        }
        names
    }

    fn scheme(&mut self, document: &SourceDocument) -> Scheme {
        if document.signature.is_some() && document.scheme != SchemeName::Hmac {
            let told = format!("{} has a signature of its own", document.scheme.as_str());
            self.fault("/signature", told);
        }
        let is_timed = matches!(document.scheme, SchemeName::Stripe | SchemeName::StandardWebhooks);
        if document.tolerance.is_some() && !is_timed {
            let told = format!("{} signs no time", document.scheme.as_str());
            self.fault("/tolerance", told);
        }
        let tolerance = document.tolerance.unwrap_or(TOLERANCE);
        match document.scheme {
            SchemeName::Github => Scheme::Hmac {
                header: "x-hub-signature-256".to_owned(),
                encoding: Encoding::Hex,
                prefix: "sha256=".to_owned(),
            },
            SchemeName::Gitlab => Scheme::Token { header: "x-gitlab-token".to_owned() },
            SchemeName::Stripe => Scheme::Stripe { tolerance },
            SchemeName::StandardWebhooks => Scheme::Standard { tolerance },
            SchemeName::Hmac => {
                let Some(written) = &document.signature else {
                    self.fault("/scheme", "hmac says in [signature] which header it stands in");
                    return Scheme::Token { header: String::new() };
                };
                let header = self.header("/signature/header", &written.header);
                if written.prefix.len() > LONGEST || written.prefix.chars().any(char::is_control) {
                    self.fault(
                        "/signature/prefix",
                        format!("a prefix has up to {LONGEST} printable characters"),
                    );
                }
                Scheme::Hmac { header, encoding: written.encoding, prefix: written.prefix.clone() }
            }
        }
    }

    fn mapping(&mut self, mapping: &Mapping) {
        if mapping.names.is_empty() && mapping.otherwise.is_none() {
            self.fault("/event", "no event has a name: say names, otherwise, or both");
        }
        if !mapping.names.is_empty() && mapping.from.is_none() {
            self.fault("/event", "a header or a pointer says by what an event has its name");
        }
        let mut seen = BTreeSet::new();
        for said in mapping.names.keys() {
            if said.len() > LONGEST || !seen.insert(said) {
                let at = format!("/event{}", pointer(["names", said.as_str()]));
                self.fault(
                    &at,
                    format!("what a source says of an event has up to {LONGEST} bytes"),
                );
            }
        }
        for (what, found) in [("event/names", mapping.names.len()), ("data", mapping.data.len())] {
            if found > MOST {
                self.fault(
                    &format!("/{what}"),
                    format!("there are {found}, at most {MOST} are read"),
                );
            }
        }
        for (name, place) in &mapping.data {
            let at = pointer(["data", name.as_str()]);
            self.pointer(&at, place);
        }
    }

    /// Reads where something stands; as the scheme has it where the document does not say.
    fn place(
        &mut self,
        at: &str,
        header: Option<&str>,
        pointer: Option<&str>,
        otherwise: Option<Place>,
    ) -> Option<Place> {
        match (header, pointer) {
            (Some(_), Some(_)) => {
                self.fault(at, "it stands in a header or in the body, not in both");
                None
            }
            (Some(header), None) => {
                Some(Place::Header(self.header(&format!("{at}/header"), header)))
            }
            (None, Some(pointer)) => {
                Some(Place::Pointer(self.pointer(&format!("{at}/pointer"), pointer)))
            }
            (None, None) => otherwise,
        }
    }

    fn header(&mut self, at: &str, name: &str) -> String {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(may) {
            self.fault(at, format!("{name:?} is no name of a header"));
        }
        name.to_ascii_lowercase()
    }

    fn pointer(&mut self, at: &str, text: &str) -> String {
        if text.len() > LONGEST || !(text.is_empty() || text.starts_with('/')) {
            self.fault(at, format!("{text:?} is no JSON pointer, such as /action"));
        }
        text.to_owned()
    }
}
