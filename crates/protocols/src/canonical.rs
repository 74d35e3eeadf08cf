//! The one form of a JSON value whose bytes are hashed: sorted keys, no white space.
//!
//! A dependency may switch the order of `serde_json`'s maps for the whole program, so a digest is
//! never taken over what `serde_json` itself writes.

mod writer;

use serde::{Serialize, ser::Error as _};

/// A canonical text that was just written, with what was noticed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canonical<'s> {
    /// The text: keys sorted by their bytes, no white space.
    pub text: &'s str,
    /// How many levels of lists and maps there are, with the innermost value as one more.
    pub depth: usize,
}

/// Returns the canonical text of a value: keys sorted by their bytes, no white space.
///
/// # Errors
/// [`serde_json::Error`] when the value cannot be JSON, as a map whose keys are no texts.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let mut scratch = Scratch::default();
    scratch.write(value, &mut |_| {})?;
    String::from_utf8(scratch.text).map_err(serde_json::Error::custom)
}

/// Room for canonical texts that are written one after another, so that only the longest of them asks for memory.
#[derive(Debug, Default)]
pub struct Scratch {
    text: Vec<u8>,
    /// The entries of every map that is open, the innermost last.
    entries: Vec<writer::Entry>,
    /// The entries of a map that are put in order.
    sorted: Vec<u8>,
}

impl Scratch {
    /// Writes the canonical text of a value in the place of the one before, and shows each text, key and number of it to
    /// `see`, so that whoever looks for something in it needs no second pass.
    ///
    /// # Errors
    /// [`serde_json::Error`] as of [`to_string`].
    pub fn write<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        see: &mut dyn FnMut(&str),
    ) -> Result<Canonical<'_>, serde_json::Error> {
        self.text.clear();
        self.entries.clear();
        let mut writer = writer::Writer::new(self, see);
        value.serialize(&mut writer)?;
        let depth = writer.deepest;
        let text = std::str::from_utf8(&self.text).map_err(serde_json::Error::custom)?;
        Ok(Canonical { text, depth })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json, value::RawValue};

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({ "b": 1, "a": { "d": [{ "f": 1, "e": "x\n" }], "c": null } });

        let text = to_string(&value).unwrap();

        assert_eq!(text, r#"{"a":{"c":null,"d":[{"e":"x\n","f":1}]},"b":1}"#);
    }

    /// The canonical text by way of a value, as it was first written: the texts in logs that exist.
    fn by_value<T: Serialize + ?Sized>(value: &T) -> String {
        fn write(value: &Value, text: &mut String) {
            match value {
                Value::Object(map) => {
                    let mut entries: Vec<_> = map.iter().collect();
                    entries.sort_unstable_by_key(|(key, _)| *key);
                    text.push('{');
                    for (at, (key, value)) in entries.into_iter().enumerate() {
                        text.push_str(if at > 0 { "," } else { "" });
                        text.push_str(&serde_json::to_string(key).unwrap());
                        text.push(':');
                        write(value, text);
                    }
                    text.push('}');
                }
                Value::Array(items) => {
                    text.push('[');
                    for (at, item) in items.iter().enumerate() {
                        text.push_str(if at > 0 { "," } else { "" });
                        write(item, text);
                    }
                    text.push(']');
                }
                leaf => text.push_str(&serde_json::to_string(leaf).unwrap()),
            }
        }
        let mut text = String::new();
        write(&serde_json::to_value(value).unwrap(), &mut text);
        text
    }

    #[derive(Debug, Clone, Serialize)]
    enum Kind {
        Plain,
        Wrapped(i64),
        Pair(f32, f64),
        Named { zone: char, area: Option<Box<Sample>> },
    }

    #[derive(Debug, Clone, Serialize)]
    struct Sample {
        zeta: String,
        kind: Kind,
        #[serde(rename = "alpha \"quoted\"")]
        alpha: Vec<u8>,
        numbers: BTreeMap<i32, bool>,
        texts: BTreeMap<String, Value>,
        unit: (),
        #[serde(flatten)]
        rest: BTreeMap<String, u64>,
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn samples() -> impl Strategy<Value = Sample> {
        let kind = prop_oneof![
            Just(Kind::Plain),
            any::<i64>().prop_map(Kind::Wrapped),
            (any::<f32>(), any::<f64>()).prop_map(|(one, two)| Kind::Pair(one, two)),
            any::<char>().prop_map(|zone| Kind::Named { zone, area: None }),
        ];
        let texts = prop::collection::btree_map(any::<String>(), values(), 0..4);
        // Among the flattened keys are some that the fields have too.
        let rest = prop::collection::btree_map("[a-z]|zeta|unit", any::<u64>(), 0..4);
        let numbers = prop::collection::btree_map(any::<i32>(), any::<bool>(), 0..4);
        let made = (any::<String>(), kind, any::<Vec<u8>>(), numbers, texts, rest);
        made.prop_map(|(zeta, kind, alpha, numbers, texts, rest)| {
            let inner = Sample { zeta, kind, alpha, numbers, texts, unit: (), rest };
            let kind = Kind::Named { zone: 'ü', area: Some(Box::new(inner.clone())) };
            Sample { kind, ..inner }
        })
    }

    proptest! {
        #[test]
        fn one_pass_writes_what_the_way_by_a_value_wrote(sample in samples(), value in values()) {
            prop_assert_eq!(to_string(&sample).unwrap(), by_value(&sample));
            prop_assert_eq!(to_string(&value).unwrap(), by_value(&value));
        }
    }

    #[test]
    fn each_text_key_and_number_is_shown() {
        let value = json!({ "key\n": ["text", 17, -0.5, true, null], "b": {} });
        let mut seen = Vec::new();

        let mut scratch = Scratch::default();
        let canonical = scratch.write(&value, &mut |text| seen.push(text.to_owned())).unwrap();

        seen.sort();
        assert_eq!(seen, ["-0.5", "17", "b", "key\n", "text"]);
        assert_eq!(canonical.depth, 3);
    }

    #[test]
    fn texts_of_one_scratch_know_nothing_of_each_other() {
        let mut scratch = Scratch::default();
        let broken = BTreeMap::from([("a", BTreeMap::from([(vec![1], 1)]))]);

        let long = scratch.write(&json!({ "b": [1, 2, 3], "a": { "d": 4, "c": 5 } }), &mut |_| {});
        assert_eq!(long.unwrap().text, r#"{"a":{"c":5,"d":4},"b":[1,2,3]}"#);
        assert!(scratch.write(&broken, &mut |_| {}).is_err());
        let short = scratch.write(&json!({ "y": 1, "x": 2 }), &mut |_| {}).unwrap();

        assert_eq!((short.text, short.depth), (r#"{"x":2,"y":1}"#, 2));
    }

    #[test]
    fn raw_json_is_put_in_order_too() {
        let raw = RawValue::from_string(r#"{ "b": [1, 2], "a": "x" }"#.to_owned()).unwrap();

        let text = to_string(&BTreeMap::from([("raw", raw)])).unwrap();

        assert_eq!(text, r#"{"raw":{"a":"x","b":[1,2]}}"#);
    }

    #[test]
    fn a_key_that_is_no_text_is_an_error() {
        let error = to_string(&BTreeMap::from([(vec![1], 1)])).unwrap_err();

        assert_eq!(error.to_string(), "key must be a string");
    }
}
