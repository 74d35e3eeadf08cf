//! One reader for every TOML document a person writes.
//!
//! A document is a Rust type. Its JSON Schema, derived from that type, is what [`parse`] checks the text
//! against and what [`schema`] hands to editors, so neither can drift from the other. All faults of a text are
//! reported at once, each with its place and the nearest valid name, and only a text without any becomes a value.
//!
//! ```
//! use formwork_protocols::document::{self, DocumentType};
//!
//! #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Greeting {
//!     text: String,
//!     #[serde(default)]
//!     retries: u8,
//! }
//!
//! impl DocumentType for Greeting {
//!     const NAME: &'static str = "greeting";
//! }
//!
//! let text = "format_version = 1\ntext = 'hello'\nretires = 2\n";
//! let faults = document::parse::<Greeting>("greeting.toml", text).unwrap_err();
//! assert_eq!(
//!     faults.to_string(),
//!     r#"greeting.toml:3:1: unknown key "retires"; nearest is "retries""#,
//! );
//! ```

mod check;
mod decode;
mod diagnostic;
mod nearest;
mod parsed;
mod path;
mod reserved;
mod tree;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use diagnostic::{Diagnostic, Diagnostics};
pub use nearest::{nearest, nearest_hint};
pub use parsed::{Document, Parsed};
pub use path::{KeyPath, Segment, pointer};
pub use reserved::Reserved;

/// The one `format_version` that this Formwork reads and writes.
pub const FORMAT_VERSION: i64 = 1;

/// The key that every document carries and that no document type declares itself.
pub(crate) const VERSION_KEY: &str = "format_version";

/// A Rust type that is written as a TOML document.
///
/// The type derives `Deserialize` and `JsonSchema`, denies unknown fields, and does not declare `format_version`:
/// the reader requires and checks that key for all documents alike.
pub trait DocumentType: DeserializeOwned + JsonSchema {
    /// What a person calls the document, such as `workflow`.
    const NAME: &'static str;

    /// Lists the keys and values that are designed but whose ability does not exist yet.
    ///
    /// They are refused by name as not yet supported, where others are refused as unknown.
    #[must_use]
    fn reserved() -> &'static [Reserved] {
        &[]
    }
}

/// Reads `text` as a `T`; `source` is the file name shown to people.
///
/// # Errors
/// Every fault of the text, sorted by position. Faults behind the first syntax error are not guessed at, because
/// the structure is uncertain from there on.
pub fn parse<T: DocumentType>(source: &str, text: &str) -> Result<Parsed<T>, Diagnostics> {
    parsed::parse(source, text)
}

/// Returns what `text` says besides its faults, so that its meaning can be checked as well.
///
/// Wrong keys and values are left out. There is nothing where that leaves a table without what it must
/// have, or where the syntax is wrong: what follows from that would be no fault of its own.
pub fn salvage<T: DocumentType>(source: &str, text: &str) -> Option<Parsed<T>> {
    parsed::salvage(source, text)
}

/// Returns the JSON Schema (draft 2020-12) of `T`, `format_version` included.
#[must_use]
pub fn schema<T: DocumentType>() -> Value {
    let mut schema = type_schema::<T>();
    let Some(root) = schema.as_object_mut() else { return schema };
    root.insert("title".to_owned(), json!(T::NAME));
    let version = json!({
        "description": "The version of this format.",
        "type": "integer",
        "const": FORMAT_VERSION,
    });
    if let Some(properties) = root.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    {
        properties.insert(VERSION_KEY.to_owned(), version);
    }
    if let Some(required) = root.entry("required").or_insert_with(|| json!([])).as_array_mut() {
        required.retain(|name| name != VERSION_KEY);
        required.insert(0, json!(VERSION_KEY));
    }
    schema
}

/// Returns the schema of `T` as derived, without the key that the reader itself owns.
pub(crate) fn type_schema<T: DocumentType>() -> Value {
    SchemaSettings::draft2020_12()
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}
