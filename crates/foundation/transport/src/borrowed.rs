//! Values as they stand in the bytes of an event, borrowed from them as far as they have no escapes.
//!
//! Nearly all of the work of a stream is reading its events. So a wire names what it looks at and nothing else, nothing is
//! read into a tree, and nothing is copied before it is kept.

use std::{borrow::Cow, fmt, ops::Deref};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::mend::mended;

/// The key of a field. One with an escape is no key that a wire knows, and is passed over as an empty one.
struct Key<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(key))
    }

    fn visit_str<E>(self, _: &str) -> Result<Key<'de>, E> {
        Ok(Key(""))
    }
}

/// A text and nothing else.
#[derive(Debug, Deserialize)]
pub(crate) struct Str<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A text; whatever else stands in its place is none.
#[derive(Debug)]
pub(crate) struct Lenient<'a>(Option<Cow<'a, str>>);

impl Lenient<'_> {
    /// Tells whether a text stands there.
    pub(crate) const fn is_text(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for Lenient<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Lenient<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientVisitor)
    }
}

struct LenientVisitor;

impl<'de> Visitor<'de> for LenientVisitor {
    type Value = Lenient<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Lenient<'de>, E> {
        Ok(Lenient(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Lenient<'de>, E> {
        Ok(Lenient(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_unit<E>(self) -> Result<Lenient<'de>, E> {
        Ok(Lenient(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Lenient<'de>, E> {
        Ok(Lenient(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Lenient<'de>, E> {
        Ok(Lenient(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Lenient<'de>, E> {
        Ok(Lenient(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Lenient<'de>, E> {
        Ok(Lenient(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Lenient<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Lenient(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lenient<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Lenient(None))
    }
}

/// A count of tokens; what is no whole number counts nothing, and loses nothing else of its event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// More than any answer has, and few enough to be added up: what is larger counts as this.
const MOST: u64 = 1 << 50;

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

/// Reads a count into a field that holds no more than its number.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Count::deserialize(deserializer).map(|count| count.0)
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Count, E> {
        Ok(Count(Some(number.min(MOST))))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number, and a cast saturates"
    )]
    fn visit_f64<E>(self, number: f64) -> Result<Count, E> {
        let is_whole = number >= 0.0 && number.fract() == 0.0;
        Ok(Count(is_whole.then_some((number as u64).min(MOST))))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
}

/// What is read where it stands, field by field.
///
/// What serde derives returns each struct by value, through several results one within another: for the structs of an event,
/// which have many fields and use few, to move them about costs more than to read the JSON.
pub(crate) trait Fields<'de>: Default {
    /// Reads the value of a key, or passes it over.
    ///
    /// # Errors
    /// When it is not what it should be.
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads one JSON object.
///
/// # Errors
/// When it is none, or one of its values is not what it should be.
pub(crate) fn read<'de, T: Fields<'de>>(json: &'de str) -> Result<T, serde_json::Error> {
    let mut found = T::default();
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let is_there = Fill(&mut found).deserialize(&mut deserializer)?;
    deserializer.end()?;
    if is_there { Ok(found) } else { Err(serde::de::Error::custom("null is no object")) }
}

/// Passes a value over.
///
/// # Errors
/// When it is no JSON.
pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// Reads an object, or null, into its place, and tells whether there was one.
pub(crate) struct Fill<'x, T>(pub(crate) &'x mut T);

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for Fill<'_, T> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Fields<'de>> Visitor<'de> for Fill<'_, T> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            self.0.field(key, &mut map)?;
        }
        Ok(true)
    }
}

/// A list, whose first element needs no memory of its own: nearly every list in an event has no second one.
#[derive(Debug, Default)]
pub(crate) struct Few<T> {
    first: T,
    has_first: bool,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.has_first.then_some(&self.first).into_iter().chain(&self.rest)
    }
}

/// Reads a list, or null, into its place.
pub(crate) struct FillFew<'x, T>(pub(crate) &'x mut Few<T>);

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for FillFew<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Fields<'de>> Visitor<'de> for FillFew<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.0.has_first {
            let Some(is_there) = list.next_element_seed(Fill(&mut self.0.first))? else {
                return Ok(());
            };
            self.0.has_first = is_there;
        }
        loop {
            let mut next = T::default();
            match list.next_element_seed(Fill(&mut next))? {
                Some(true) => self.0.rest.push(next),
                Some(false) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Returns the JSON text of a call's arguments, whichever way they were sent: as a text that holds JSON, or as JSON.
pub(crate) fn arguments(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    match raw?.get() {
        "null" => None,
        text if text.starts_with('"') => {
            serde_json::from_str::<Str<'_>>(text).ok().map(|text| text.0).or_else(|| {
                let mended = mended(text)?;
                serde_json::from_str::<String>(&mended).ok().map(Cow::Owned)
            })
        }
        json => Some(json.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Event<'a> {
        text: Option<Str<'a>>,
        lenient: Vec<Lenient<'a>>,
        few: Few<Item<'a>>,
    }

    #[derive(Debug, Default)]
    struct Item<'a> {
        text: Option<Str<'a>>,
    }

    impl<'de> Fields<'de> for Item<'de> {
        fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
            match key {
                "text" => self.text = map.next_value()?,
                _ => skip(map)?,
            }
            Ok(())
        }
    }

    impl<'de> Fields<'de> for Event<'de> {
        fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
            match key {
                "text" => self.text = map.next_value()?,
                "lenient" => self.lenient = map.next_value()?,
                "few" => map.next_value_seed(FillFew(&mut self.few))?,
                _ => skip(map)?,
            }
            Ok(())
        }
    }

    #[test]
    fn what_has_no_escapes_is_borrowed_and_whatever_is_no_text_is_passed_over() {
        let json = r#"{"text":"plain","other":{"few":[1]},
            "few":[{"text":"one"},{"text":"t\u0077o"},null,{"text":null,"few":null},{"t\u0065xt":"x"}],
            "lenient":["a","\n",null,true,-1,1,1.5,["x"],{"y":["z"]}]}"#;

        let event: Event<'_> = read(json).unwrap();

        assert!(matches!(event.text, Some(Str(Cow::Borrowed("plain")))));
        let few: Vec<_> = event.few.iter().map(|event| event.text.as_deref()).collect();
        assert_eq!(few, [Some("one"), Some("two"), None, None]);
        let lenient: Vec<&str> = event.lenient.iter().map(Deref::deref).collect();
        assert_eq!(lenient, ["a", "\n", "", "", "", "", "", "", ""]);
    }

    #[test]
    fn what_is_no_object_or_more_than_one_is_an_error() {
        for json in ["", "null", "[]", "1", "{} {}", r#"{"text":1}"#, r#"{"few":{}}"#, "{"] {
            assert!(read::<Event<'_>>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn arguments_are_the_same_as_a_text_and_as_json() {
        let read = |json: &str| {
            let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
            arguments(Some(&raw)).map(Cow::into_owned)
        };

        assert_eq!(read(r#""{\"a\":1}""#).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(read(r#"{"a":1}"#).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(read("null"), None);
    }
}
