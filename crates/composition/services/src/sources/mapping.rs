//! What a delivery is called, by what it is known, and what is kept of it. Nothing here is told to whoever sent it.

use std::collections::BTreeMap;

use formwork_protocols::{BlobHash, EventName, VariableName};
use serde_json::{Map, Value};

use super::signature::{Headers, header};

/// The longest name of an event or a delivery that is read from a request.
const LONGEST: usize = 200;

/// Where something stands in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A header, in lower case.
    Header(String),
    /// A place in the body, as a JSON pointer.
    Pointer(String),
}

impl Place {
    /// Returns what stands there: a text, or a number as one. Nothing where a header is there twice, or anything else stands
    /// there, or it is longer than what has a name.
    fn read(&self, headers: Headers<'_>, body: &Value) -> Option<String> {
        let found = match self {
            Self::Header(name) => {
                std::str::from_utf8(header(headers, name).ok()??).ok()?.to_owned()
            }
            Self::Pointer(pointer) => match body.pointer(pointer)? {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            },
        };
        (!found.is_empty() && found.len() <= LONGEST).then_some(found)
    }
}

/// What becomes of a request that is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Where it says what it is of.
    pub(crate) from: Option<Place>,
    /// What an event is called by that.
    pub(crate) names: BTreeMap<String, EventName>,
    /// And all others.
    pub(crate) otherwise: Option<EventName>,
    /// Where it names the delivery.
    pub(crate) delivery: Option<Place>,
    /// What is kept of the body; all of it where empty.
    pub(crate) data: BTreeMap<VariableName, String>,
}

impl Mapping {
    /// Returns what an event is called, if it has a name.
    pub(crate) fn name(&self, headers: Headers<'_>, body: &Value) -> Option<&EventName> {
        let said = self.from.as_ref().and_then(|from| from.read(headers, body));
        said.and_then(|said| self.names.get(&said)).or(self.otherwise.as_ref())
    }

    /// Returns by what a delivery is known when it comes again: what it says of itself, else the hash of the body.
    pub(crate) fn delivery(&self, headers: Headers<'_>, body: &Value, raw: &[u8]) -> String {
        let said = self.delivery.as_ref().and_then(|place| place.read(headers, body));
        said.unwrap_or_else(|| BlobHash::of(raw).to_string())
    }

    /// Returns what is kept of the body. What a place does not hold is null.
    pub(crate) fn kept(&self, body: Value) -> Value {
        if self.data.is_empty() {
            return body;
        }
        let part = |pointer: &String| body.pointer(pointer).cloned().unwrap_or(Value::Null);
        let kept = self.data.iter().map(|(name, pointer)| (name.to_string(), part(pointer)));
        Value::Object(kept.collect::<Map<_, _>>())
    }
}

/// Returns the key under which a delivery is recorded once, whatever its name is made of.
pub(crate) fn key(delivery: &str) -> String {
    format!("delivery/{}", BlobHash::of(delivery.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mapping() -> Mapping {
        let name = |text: &str| EventName::parse(text).unwrap();
        Mapping {
            from: Some(Place::Header("x-event".to_owned())),
            names: BTreeMap::from([("push".to_owned(), name("pushed"))]),
            otherwise: None,
            delivery: Some(Place::Pointer("/id".to_owned())),
            data: BTreeMap::new(),
        }
    }

    #[test]
    fn behaviour_38_an_event_has_the_name_that_its_source_gives_it_or_none() {
        let (mapping, body) = (mapping(), Value::Null);
        let other = EventName::parse("other").unwrap();
        let lenient = Mapping { otherwise: Some(other.clone()), ..mapping.clone() };
        let push: Headers<'_> = &[("X-Event", b"push")];
        let twice: Headers<'_> = &[("X-Event", b"push"), ("x-event", b"push")];
        let star: Headers<'_> = &[("x-event", b"star")];

        assert_eq!(mapping.name(push, &body).unwrap().as_str(), "pushed");
        for headers in [twice, star, &[], &[("x-event", b"\xff")]] {
            assert_eq!(mapping.name(headers, &body), None, "{headers:?}");
            assert_eq!(lenient.name(headers, &body), Some(&other));
        }
    }

    #[test]
    fn behaviour_38_a_delivery_is_known_by_what_it_says_of_itself_and_else_by_its_body() {
        let mapping = mapping();
        let of = |body: &Value| mapping.delivery(&[], body, body.to_string().as_bytes());
        let nameless = json!({ "id": ["x"] });

        assert_eq!(of(&json!({ "id": "d-1", "try": 2 })), "d-1");
        assert_eq!(of(&json!({ "id": 17 })), "17");
        assert_eq!(of(&nameless), BlobHash::of(nameless.to_string().as_bytes()).to_string());
        assert_eq!(of(&json!({ "id": "x".repeat(201) })).len(), 64);
        assert_ne!(key("a"), key("b"));
    }

    #[test]
    fn behaviour_38_what_is_kept_of_a_body_is_what_was_chosen() {
        let name = |text: &str| VariableName::parse(text).unwrap();
        let data = BTreeMap::from([
            (name("number"), "/pull/number".to_owned()),
            (name("gone"), "/no/such".to_owned()),
        ]);
        let body = json!({ "pull": { "number": 3, "body": "long" } });

        assert_eq!(mapping().kept(body.clone()), body);
        let chosen = Mapping { data, ..mapping() };
        assert_eq!(chosen.kept(body), json!({ "number": 3, "gone": null }));
    }
}
