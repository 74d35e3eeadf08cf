//! Writes the canonical text in one pass: what is not sorted as it comes is put in order where its map
//! ends, so that no value is built in between.

use std::{cmp::Ordering, ops::Range};

use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::{Error, Value};

use super::Scratch;

/// By these names `serde_json` hands on text that is JSON already.
const VERBATIM: [&str; 2] = ["$serde_json::private::RawValue", "$serde_json::private::Number"];

/// The text so far.
pub(super) struct Writer<'a> {
    text: &'a mut Vec<u8>,
    /// How many levels the deepest value has; 1 for a value without others in it.
    pub(super) deepest: usize,
    level: usize,
    entries: &'a mut Vec<Entry>,
    sorted: &'a mut Vec<u8>,
    see: &'a mut dyn FnMut(&str),
}

/// Where an entry of a map stands in the text: `"key":value`.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    key: Range<usize>,
    end: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(scratch: &'a mut Scratch, see: &'a mut dyn FnMut(&str)) -> Self {
        let Scratch { text, entries, sorted } = scratch;
        Self { text, deepest: 0, level: 0, entries, sorted, see }
    }

    fn enter(&mut self) {
        self.level += 1;
        self.deepest = self.deepest.max(self.level);
    }

    fn leaf(&mut self) {
        self.deepest = self.deepest.max(self.level + 1);
    }

    /// Shows what was written from `start` on.
    fn show(&mut self, start: usize) {
        let written = self.text.get(start..).unwrap_or_default();
        if let Ok(text) = std::str::from_utf8(written) {
            (self.see)(text);
        }
    }

    fn verbatim(&mut self, text: &str) {
        self.leaf();
        self.text.extend_from_slice(text.as_bytes());
    }

    fn number<T: Serialize>(&mut self, number: T) -> Result<(), Error> {
        self.leaf();
        let start = self.text.len();
        serde_json::to_writer(&mut *self.text, &number)?;
        self.show(start);
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.leaf();
        (self.see)(text);
        serde_json::to_writer(&mut *self.text, text)
    }

    /// Writes a key; what is no text becomes one, as `serde_json` does it.
    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<Range<usize>, Error> {
        let start = self.text.len();
        serde_json::to_writer(&mut *self.text, key)?;
        match self.text.get(start) {
            Some(b'"') => {}
            Some(b'0'..=b'9' | b'-' | b't' | b'f') => {
                self.text.insert(start, b'"');
                self.text.push(b'"');
            }
            _ => return Err(Error::custom("key must be a string")),
        }
        let key = start..self.text.len();
        let shown = unquoted(self.text, &key)?;
        (self.see)(&shown);
        Ok(key)
    }

    /// Writes the name of a field, which nearly always says what it is without an escape.
    fn name(&mut self, name: &'static str) -> Result<Range<usize>, Error> {
        if !name.bytes().all(|byte| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~')) {
            return self.key(name);
        }
        let start = self.text.len();
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(b'"');
        (self.see)(name);
        Ok(start..self.text.len())
    }

    /// Writes `"name":` before the data of a variant.
    fn variant(&mut self, name: &'static str) -> Result<(), Error> {
        self.enter();
        self.text.push(b'{');
        self.name(name)?;
        self.text.push(b':');
        Ok(())
    }

    fn leave_variant(&mut self) {
        self.level -= 1;
        self.text.push(b'}');
    }

    /// Puts the entries of the innermost map, which begin at `base`, in order.
    fn sort(&mut self, base: usize) -> Result<(), Error> {
        let Self { text, entries: all, sorted, .. } = self;
        let entries = all.get_mut(base..).unwrap_or_default();
        let mut is_sorted = true;
        for pair in entries.windows(2) {
            is_sorted &= compare(text, &pair[0], &pair[1])? == Ordering::Less;
        }
        let Some(first) = entries.first().map(|entry| entry.key.start).filter(|_| !is_sorted)
        else {
            all.truncate(base);
            return Ok(());
        };
        let mut unread = None;
        entries.sort_by(|one, other| {
            compare(text, one, other).unwrap_or_else(|error| {
                unread = Some(error);
                Ordering::Equal
            })
        });
        if let Some(error) = unread {
            return Err(error);
        }
        sorted.clear();
        for (at, entry) in entries.iter().enumerate() {
            // Of two entries with one key the later is meant, as in a map that was built.
            if let Some(next) = entries.get(at + 1)
                && compare(text, entry, next)? == Ordering::Equal
            {
                continue;
            }
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(text.get(entry.key.start..entry.end).unwrap_or_default());
        }
        text.truncate(first);
        text.extend_from_slice(sorted);
        all.truncate(base);
        Ok(())
    }
}

/// Compares two keys by the bytes of what they say.
fn compare(text: &[u8], one: &Entry, other: &Entry) -> Result<Ordering, Error> {
    let inner = |entry: &Entry| text.get(entry.key.start + 1..entry.key.end - 1);
    if let (Some(one), Some(other)) = (inner(one), inner(other))
        && !one.contains(&b'\\')
        && !other.contains(&b'\\')
    {
        return Ok(one.cmp(other));
    }
    Ok(unquoted(text, &one.key)?.as_bytes().cmp(unquoted(text, &other.key)?.as_bytes()))
}

/// Returns what a key says, without its quotes and escapes.
fn unquoted<'t>(text: &'t [u8], key: &Range<usize>) -> Result<std::borrow::Cow<'t, str>, Error> {
    let quoted = text.get(key.clone()).unwrap_or_default();
    let plain = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if plain.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted).map(Into::into);
    }
    std::str::from_utf8(plain).map(Into::into).map_err(Error::custom)
}

/// A list that is open.
pub(super) struct List<'w, 'a> {
    writer: &'w mut Writer<'a>,
    is_empty: bool,
    is_variant: bool,
}

/// A map that is open.
pub(super) struct Entries<'w, 'a> {
    writer: &'w mut Writer<'a>,
    base: usize,
    key: Range<usize>,
    is_variant: bool,
    is_verbatim: bool,
}

impl<'w, 'a> List<'w, 'a> {
    fn open(writer: &'w mut Writer<'a>, is_variant: bool) -> Self {
        writer.enter();
        writer.text.push(b'[');
        Self { writer, is_empty: true, is_variant }
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if !self.is_empty {
            self.writer.text.push(b',');
        }
        self.is_empty = false;
        value.serialize(&mut *self.writer)
    }

    fn close(self) {
        self.writer.text.push(b']');
        self.writer.level -= 1;
        if self.is_variant {
            self.writer.leave_variant();
        }
    }
}

impl<'w, 'a> Entries<'w, 'a> {
    fn open(writer: &'w mut Writer<'a>, is_variant: bool) -> Self {
        writer.enter();
        writer.text.push(b'{');
        let base = writer.entries.len();
        Self { writer, base, key: 0..0, is_variant, is_verbatim: false }
    }

    fn comma(&mut self) {
        if self.writer.entries.len() > self.base {
            self.writer.text.push(b',');
        }
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.comma();
        self.key = self.writer.key(key)?;
        self.writer.text.push(b':');
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.writer)?;
        let end = self.writer.text.len();
        self.writer.entries.push(Entry { key: self.key.clone(), end });
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        if self.is_verbatim {
            let Value::String(json) = serde_json::to_value(value)? else {
                return Err(Error::custom("raw JSON must be a text"));
            };
            return serde_json::from_str::<Value>(&json)?.serialize(&mut *self.writer);
        }
        self.comma();
        self.key = self.writer.name(name)?;
        self.writer.text.push(b':');
        self.value(value)
    }

    fn close(self) -> Result<(), Error> {
        if self.is_verbatim {
            return Ok(());
        }
        self.writer.sort(self.base)?;
        self.writer.text.push(b'}');
        self.writer.level -= 1;
        if self.is_variant {
            self.writer.leave_variant();
        }
        Ok(())
    }
}

macro_rules! numbers {
    ($($name:ident: $type:ty;)*) => {$(
        fn $name(self, value: $type) -> Result<(), Error> {
            self.number(value)
        }
    )*};
}

impl<'w, 'a> Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = List<'w, 'a>;
    type SerializeTuple = List<'w, 'a>;
    type SerializeTupleStruct = List<'w, 'a>;
    type SerializeTupleVariant = List<'w, 'a>;
    type SerializeMap = Entries<'w, 'a>;
    type SerializeStruct = Entries<'w, 'a>;
    type SerializeStructVariant = Entries<'w, 'a>;

    numbers! {
        serialize_i8: i8;
        serialize_i16: i16;
        serialize_i32: i32;
        serialize_i64: i64;
        serialize_u8: u8;
        serialize_u16: u16;
        serialize_u32: u32;
        serialize_u64: u64;
    }

    fn serialize_i128(self, value: i128) -> Result<(), Error> {
        serde_json::to_value(value)?.serialize(self)
    }

    fn serialize_u128(self, value: u128) -> Result<(), Error> {
        serde_json::to_value(value)?.serialize(self)
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        // JSON has no infinity, and `serde_json` writes null for it.
        if value.is_finite() { self.number(value) } else { self.serialize_unit() }
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.verbatim(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.string(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.string(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        let mut list = List::open(self, false);
        value.iter().try_for_each(|byte| list.push(byte))?;
        list.close();
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.verbatim("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.string(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.leave_variant();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'w, 'a>, Error> {
        Ok(List::open(self, false))
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'w, 'a>, Error> {
        Ok(List::open(self, false))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'w, 'a>, Error> {
        Ok(List::open(self, false))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List<'w, 'a>, Error> {
        self.variant(variant)?;
        Ok(List::open(self, true))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'w, 'a>, Error> {
        Ok(Entries::open(self, false))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Entries<'w, 'a>, Error> {
        if VERBATIM.contains(&name) {
            let base = self.entries.len();
            let (is_variant, is_verbatim) = (false, true);
            return Ok(Entries { writer: self, base, key: 0..0, is_variant, is_verbatim });
        }
        Ok(Entries::open(self, false))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries<'w, 'a>, Error> {
        self.variant(variant)?;
        Ok(Entries::open(self, true))
    }
}

macro_rules! lists {
    ($($trait:ident::$push:ident;)*) => {$(
        impl $trait for List<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn $push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.push(value)
            }

            fn end(self) -> Result<(), Error> {
                self.close();
                Ok(())
            }
        }
    )*};
}

lists! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

impl SerializeMap for Entries<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.value(value)
    }

    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

macro_rules! structs {
    ($($trait:ident,)*) => {$(
        impl $trait for Entries<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Error> {
                self.close()
            }
        }
    )*};
}

structs! { SerializeStruct, SerializeStructVariant, }
