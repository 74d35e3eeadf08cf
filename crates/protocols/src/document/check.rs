//! Compares a document's tree with the JSON Schema of its type and collects every difference.
//!
//! The vocabulary is what `schemars` derives from Rust types. `pattern` and `format` of strings are left to the types
//! themselves: they are run afterwards and say better what they wanted.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::nearest::nearest_hint;
use super::path::{KeyPath, type_name};
use super::reserved::Reserved;

/// References and choices followed without reading further into the document; a derived schema needs few.
const MAX_HOPS: usize = 16;

/// A difference between the document and its schema.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) path: KeyPath,
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// What to leave out so that the rest of the document can still be read.
    pub(crate) cut: Option<KeyPath>,
    /// Whether a key is missing, rather than a present one wrong.
    pub(crate) is_absence: bool,
}

/// Walks a document and its schema side by side.
pub(crate) struct Checker<'s> {
    root: &'s Value,
    reserved: &'s [Reserved],
    path: KeyPath,
    faults: Vec<Fault>,
}

/// What the parts of a schema together say about one table.
#[derive(Default)]
struct Shape<'s> {
    properties: BTreeMap<&'s str, Vec<&'s Value>>,
    required: Vec<&'s str>,
    /// The schema of keys that are not named.
    others: Option<&'s Value>,
    /// Whether keys that are not named are refused.
    closed: bool,
    /// Properties that tell branches of a choice apart and hold none of their names.
    tags: BTreeMap<&'s str, Vec<&'s str>>,
    /// Keys of which one has to be there to tell which branch of a choice is meant.
    one_of: Vec<&'s str>,
    /// Keys each of which is a branch of a choice by itself, and those of them that are there together.
    several: Option<(Vec<&'s str>, Vec<&'s str>)>,
    smallest: Option<u64>,
    largest: Option<u64>,
}

/// How well a branch of a choice suits a value: fewer wrong, then more right.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Misfit {
    wrong: usize,
    right: std::cmp::Reverse<usize>,
}

impl<'s> Checker<'s> {
    pub(crate) fn new(root: &'s Value, reserved: &'s [Reserved]) -> Self {
        Self { root, reserved, path: KeyPath::default(), faults: Vec::new() }
    }

    pub(crate) fn root(&mut self, table: &DeTable<'_>, span: Range<usize>) {
        self.table(self.root, table, span);
        let told = self.faults.iter().map(|fault| fault.span.clone()).collect();
        self.numbers(table, &told);
    }

    /// Refuses numbers that JSON has no word for, wherever they stand: the log would hold nothing in their place.
    fn numbers(&mut self, table: &DeTable<'_>, told: &HashSet<Range<usize>>) {
        for (key, value) in table {
            self.path.push_key(key.get_ref());
            self.number(value, told);
            self.path.pop();
        }
    }

    fn number(&mut self, value: &Spanned<DeValue<'_>>, told: &HashSet<Range<usize>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.numbers(table, told),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push_index(index);
                    self.number(item, told);
                    self.path.pop();
                }
            }
            DeValue::Float(found) => {
                let is_finite = found.as_str().parse::<f64>().is_ok_and(f64::is_finite);
                if !is_finite && !told.contains(&value.span()) {
                    let what = match found.as_str().contains(|it: char| it.is_ascii_digit()) {
                        true => "is too large a number",
                        false => "is no number here",
                    };
                    self.refuse(value.span(), format!("{} {what}", found.as_str()), None);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
    }

    pub(crate) fn finish(self) -> Vec<Fault> {
        self.faults
    }

    fn value(&mut self, schema: &'s Value, value: &Spanned<DeValue<'_>>) {
        let schema = self.resolve(schema);
        match value.get_ref() {
            DeValue::Table(table) if self.admits(schema, "object", 0) => {
                self.table(schema, table, value.span());
            }
            DeValue::Array(items) if self.admits(schema, "array", 0) => {
                self.array(schema, items, value.span());
            }
            other if admitted_types(other).iter().any(|kind| self.admits(schema, kind, 0)) => {
                self.scalar(schema, other, value.span());
            }
            other => self.wrong_type(schema, other, value.span()),
        }
    }

    fn table(&mut self, schema: &'s Value, table: &DeTable<'_>, span: Range<usize>) {
        let mut shape = Shape::default();
        self.gather(schema, table, &mut shape, 0);

        let before = self.faults.len();
        for (key, value) in table {
            self.path.push_key(key.get_ref());
            let name = key.get_ref().as_ref();
            match (shape.properties.get(name), shape.tags.get(name)) {
                (_, Some(names)) => self.tag_value(names, value),
                (Some(schemas), None) => {
                    for schema in schemas {
                        self.value(schema, value);
                    }
                }
                (None, None) => self.unnamed_key(&shape, key, value),
            }
            self.path.pop();
        }
        for name in shape.required.iter().filter(|name| !table.contains_key(**name)) {
            self.absence(span.clone(), format!("missing key {name:?}"));
        }
        if let Some((names, found)) = &shape.several {
            let (names, found) = (quoted(names, ", "), quoted(found, " and "));
            let message = format!("wanted one of the keys {names}, found {found}");
            self.refuse(span.clone(), message, None);
        }
        let told = self.faults.len() > before;
        if !shape.one_of.is_empty() && !told {
            let names = quoted(&shape.one_of, ", ");
            self.absence(span.clone(), format!("missing one of the keys {names}"));
        }
        let found = u64::try_from(table.len()).unwrap_or(u64::MAX);
        self.size(span, (shape.smallest, shape.largest), found, "key");
    }

    fn unnamed_key(
        &mut self,
        shape: &Shape<'s>,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let name = key.get_ref().as_ref();
        if self.reserved.iter().any(|r| r.reserves_key(self.path.segments())) {
            self.refuse_key(key.span(), format!("{name:?} is not yet supported"), None);
        } else if let Some(schema) = shape.others {
            self.value(schema, value);
        } else if shape.closed {
            let hint = nearest_hint(name, shape.properties.keys().copied());
            self.refuse_key(key.span(), format!("unknown key {name:?}"), hint);
        }
    }

    /// Refuses the value of a tag, which is known to be none of `names`.
    fn tag_value(&mut self, names: &[&'s str], value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::String(found) => self.unknown_value(found, names, value.span()),
            other => {
                let message = format!("wanted a string, found {}", type_name(other));
                self.refuse(value.span(), message, None);
            }
        }
    }

    fn unknown_value(&mut self, found: &str, names: &[&str], span: Range<usize>) {
        let reserves = |r: &Reserved| r.reserves_value(self.path.segments(), found);
        if self.reserved.iter().any(reserves) {
            self.refuse(span, format!("{found:?} is not yet supported"), None);
        } else {
            let hint = nearest_hint(found, names.iter().copied());
            self.refuse(span, format!("unknown value {found:?}"), hint);
        }
    }

    /// Collects what `schema` says about `table`, its references, parts and chosen branches included.
    fn gather(&self, schema: &'s Value, table: &DeTable<'_>, shape: &mut Shape<'s>, hops: usize) {
        let Some(object) = schema.as_object().filter(|_| hops < MAX_HOPS) else { return };
        if let Some(target) = self.reference(object) {
            self.gather(target, table, shape, hops + 1);
        }
        for (name, property) in
            object.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            shape.properties.entry(name).or_default().push(property);
        }
        let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !shape.required.contains(&name) {
                shape.required.push(name);
            }
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            match object.get(keyword) {
                Some(Value::Bool(false)) => shape.closed = true,
                Some(others @ Value::Object(_)) => shape.others = Some(others),
                _ => {}
            }
        }
        if let Some(patterns) = object.get("patternProperties").and_then(Value::as_object) {
            // The keys themselves are parsed by their type; only the values are checked here.
            shape.others = shape.others.or_else(|| patterns.values().next());
        }
        let smallest = object.get("minProperties").and_then(Value::as_u64);
        shape.smallest = shape.smallest.or(smallest);
        let largest = object.get("maxProperties").and_then(Value::as_u64);
        shape.largest = shape.largest.or(largest);

        for part in branches(object, "allOf") {
            self.gather(part, table, shape, hops + 1);
        }
        for keyword in ["oneOf", "anyOf"] {
            let all: Vec<&'s Value> = branches(object, keyword)
                .filter(|branch| self.admits(branch, "object", 0))
                .collect();
            self.gather_choice(&all, table, shape, hops + 1);
        }
    }

    /// Collects what the branch of a choice says that `table` was most probably meant to be.
    fn gather_choice(
        &self,
        all: &[&'s Value],
        table: &DeTable<'_>,
        shape: &mut Shape<'s>,
        hops: usize,
    ) {
        if let Some((tag, names)) = self.tag(all, hops) {
            let found = table.get(tag).map(|value| value.get_ref());
            let position = found
                .and_then(DeValue::as_str)
                .and_then(|found| names.iter().position(|name| *name == found));
            if let Some(branch) = position.and_then(|position| all.get(position)) {
                self.gather(branch, table, shape, hops);
                return;
            }
            // Which branch is meant is unknown, so the keys of all of them are let pass.
            self.gather_names(all, shape, hops);
            if found.is_some() {
                shape.tags.insert(tag, names);
            } else {
                shape.required.push(tag);
            }
            return;
        }

        // A choice by one key each is none where several are there, whatever they hold.
        if let Some(names) = self.single_keys(all, hops) {
            let is_there = |name: &&&'s str| table.contains_key(**name);
            let found: Vec<&'s str> = names.iter().filter(is_there).copied().collect();
            if found.len() > 1 {
                self.gather_names(all, shape, hops);
                shape.several = Some((names, found));
                return;
            }
        }

        let names_any = |branch| {
            let named = self.named(branch, hops);
            named.iter().any(|(name, _)| table.contains_key(*name))
        };
        let best = all
            .iter()
            .map(|branch| (self.misfit(branch, table, hops), *branch))
            .min_by(|(a, _), (b, _)| a.cmp(b));
        match best {
            Some((misfit, branch))
                if all.len() > 1
                    && misfit.right.0 == 0
                    && misfit.wrong > 0
                    && !names_any(branch) =>
            {
                self.gather_names(all, shape, hops);
                shape.one_of.extend(all.iter().filter_map(|branch| {
                    let required = self.resolve(branch).get("required")?.as_array()?;
                    required.first()?.as_str()
                }));
            }
            Some((_, branch)) => self.gather(branch, table, shape, hops),
            None => {}
        }
    }

    /// Returns the one key that each of several branches consists of, where that is so.
    fn single_keys(&self, all: &[&'s Value], hops: usize) -> Option<Vec<&'s str>> {
        if all.len() < 2 {
            return None;
        }
        all.iter()
            .map(|branch| match &self.named(branch, hops)[..] {
                [(name, _)] if is_closed(self.resolve(branch)) => Some(*name),
                _ => None,
            })
            .collect()
    }

    /// Takes over the names of the keys of all branches, without what they hold.
    fn gather_names(&self, all: &[&'s Value], shape: &mut Shape<'s>, hops: usize) {
        shape.closed |= all.iter().all(|branch| is_closed(self.resolve(branch)));
        for branch in all {
            for (name, _) in self.named(branch, hops) {
                shape.properties.entry(name).or_default();
            }
        }
    }

    /// Returns the property whose constant tells the branches apart, and that constant of each.
    fn tag(&self, all: &[&'s Value], hops: usize) -> Option<(&'s str, Vec<&'s str>)> {
        if all.len() < 2 {
            return None;
        }
        let named: Vec<_> = all.iter().map(|branch| self.named(branch, hops)).collect();
        named.first()?.iter().find_map(|(tag, _)| {
            let names: Option<Vec<&'s str>> = named
                .iter()
                .map(|branch| {
                    let (_, schema) = branch.iter().find(|(name, _)| name == tag)?;
                    constant(schema)
                })
                .collect();
            Some((*tag, names?))
        })
    }

    fn misfit(&self, branch: &'s Value, table: &DeTable<'_>, hops: usize) -> Misfit {
        let named = self.named(branch, hops);
        let (mut wrong, mut right) = (0_usize, 0_usize);
        for (key, value) in table {
            match named.iter().find(|(name, _)| *name == key.get_ref().as_ref()) {
                Some((_, schema)) => {
                    let types = admitted_types(value.get_ref());
                    if types.iter().any(|kind| self.admits(schema, kind, hops)) {
                        right += 1;
                    } else {
                        wrong += 1;
                    }
                }
                None if is_closed(self.resolve(branch)) => wrong += 1,
                None => {}
            }
        }
        let required = self.resolve(branch).get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        wrong += names.filter(|name| !table.contains_key(*name)).count();
        Misfit { wrong, right: std::cmp::Reverse(right) }
    }

    /// Returns the properties that `schema` names, those of its references and parts included.
    fn named(&self, schema: &'s Value, hops: usize) -> Vec<(&'s str, &'s Value)> {
        let Some(object) = schema.as_object().filter(|_| hops < MAX_HOPS) else {
            return Vec::new();
        };
        let own = object.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut named: Vec<_> = own.map(|(name, schema)| (name.as_str(), schema)).collect();
        let parts = self.reference(object).into_iter().chain(branches(object, "allOf"));
        named.extend(parts.flat_map(|part| self.named(part, hops + 1)));
        named
    }

    fn array(&mut self, schema: &'s Value, items: &DeArray<'_>, span: Range<usize>) {
        let Some(schema) = self.narrow(schema, "array", 0) else { return };
        let prefix: Vec<&'s Value> = branches(schema, "prefixItems").collect();
        for (index, item) in items.iter().enumerate() {
            let wanted = prefix.get(index).copied().or_else(|| schema.get("items"));
            self.path.push_index(index);
            if let Some(wanted) = wanted {
                self.value(wanted, item);
            }
            self.path.pop();
        }
        let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
        let found = u64::try_from(items.len()).unwrap_or(u64::MAX);
        self.size(span, (bound("minItems"), bound("maxItems")), found, "item");
    }

    fn scalar(&mut self, schema: &'s Value, value: &DeValue<'_>, span: Range<usize>) {
        let mut leaves = Vec::new();
        for kind in admitted_types(value) {
            self.leaves(schema, kind, &mut leaves, 0);
        }
        // One branch that has nothing against the value is enough.
        let objections: Vec<Objection<'_>> =
            leaves.iter().filter_map(|leaf| object_to(leaf, value)).collect();
        if objections.len() < leaves.len() || leaves.is_empty() {
            return;
        }
        let choices: Vec<&str> =
            objections.iter().flat_map(|o| o.choices.iter().copied()).collect();
        match value {
            DeValue::String(found) if !choices.is_empty() => {
                self.unknown_value(found, &choices, span);
            }
            _ => {
                if let Some(objection) = objections.into_iter().next() {
                    self.refuse(span, objection.message, None);
                }
            }
        }
    }

    /// Collects the branches of `schema` that admit values of type `kind`, references and choices resolved.
    fn leaves(
        &self,
        schema: &'s Value,
        kind: &str,
        into: &mut Vec<&'s Map<String, Value>>,
        hops: usize,
    ) {
        let Some(object) = schema.as_object().filter(|_| hops < MAX_HOPS) else { return };
        if !self.admits(schema, kind, hops) {
            return;
        }
        let inner: Vec<&'s Value> = self
            .reference(object)
            .into_iter()
            .chain(["oneOf", "anyOf", "allOf"].into_iter().flat_map(|k| branches(object, k)))
            .collect();
        if inner.is_empty() {
            into.push(object);
        }
        for branch in inner {
            self.leaves(branch, kind, into, hops + 1);
        }
    }

    /// Returns the part of `schema` that speaks of values of type `kind`.
    fn narrow(&self, schema: &'s Value, kind: &str, hops: usize) -> Option<&'s Map<String, Value>> {
        let mut leaves = Vec::new();
        self.leaves(schema, kind, &mut leaves, hops);
        leaves.into_iter().next()
    }

    fn wrong_type(&mut self, schema: &'s Value, found: &DeValue<'_>, span: Range<usize>) {
        let mut wanted = Vec::new();
        for (kind, name) in TYPE_NAMES {
            if self.admits(schema, kind, 0) && !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        if wanted.contains(&"a number") {
            wanted.retain(|name| *name != "an integer");
        }
        let wanted = if wanted.is_empty() { "nothing".to_owned() } else { wanted.join(" or ") };
        let mut message = format!("wanted {wanted}, found {}", type_name(found));
        let hint = match found {
            DeValue::Datetime(_) if wanted.contains("string") => {
                Some("write it in quotes".to_owned())
            }
            _ => None,
        };
        if wanted == "nothing" {
            message = format!("wanted no value here, found {}", type_name(found));
        }
        self.refuse(span, message, hint);
    }

    /// Reports whether `schema` may hold a value of JSON type `kind`.
    fn admits(&self, schema: &'s Value, kind: &str, hops: usize) -> bool {
        let object = match schema {
            Value::Bool(any) => return *any,
            Value::Object(object) => object,
            _ => return true,
        };
        if hops >= MAX_HOPS {
            return true;
        }
        let by_type = match object.get("type") {
            Some(Value::String(name)) => fits(name, kind),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).any(|name| fits(name, kind))
            }
            _ => true,
        };
        let constants = object
            .get("enum")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .or_else(|| object.get("const").map(std::slice::from_ref));
        let by_constant = constants.is_none_or(|all| all.iter().any(|c| fits(json_type(c), kind)));
        let by_reference =
            self.reference(object).is_none_or(|target| self.admits(target, kind, hops + 1));
        let by_parts = branches(object, "allOf").all(|part| self.admits(part, kind, hops + 1));
        let by_choice = ["oneOf", "anyOf"].into_iter().all(|keyword| {
            let mut any = branches(object, keyword).peekable();
            any.peek().is_none() || any.any(|branch| self.admits(branch, kind, hops + 1))
        });
        by_type && by_constant && by_reference && by_parts && by_choice
    }

    fn resolve(&self, schema: &'s Value) -> &'s Value {
        let mut schema = schema;
        for _ in 0..MAX_HOPS {
            let plain = schema.as_object().filter(|object| {
                !["properties", "oneOf", "anyOf", "allOf"].iter().any(|k| object.contains_key(*k))
            });
            match plain.and_then(|object| self.reference(object)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    fn reference(&self, object: &'s Map<String, Value>) -> Option<&'s Value> {
        let pointer = object.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn size(
        &mut self,
        span: Range<usize>,
        (smallest, largest): (Option<u64>, Option<u64>),
        found: u64,
        unit: &str,
    ) {
        if let Some(wanted) = smallest.filter(|wanted| found < *wanted) {
            self.refuse(
                span,
                format!("wanted at least {}, found {found}", counted(wanted, unit)),
                None,
            );
        } else if let Some(wanted) = largest.filter(|wanted| found > *wanted) {
            self.refuse(
                span,
                format!("wanted at most {}, found {found}", counted(wanted, unit)),
                None,
            );
        }
    }

    fn refuse(&mut self, span: Range<usize>, message: String, hint: Option<String>) {
        let path = self.path.clone();
        let cut = Some(path.clone());
        self.faults.push(Fault { path, span, message, hint, cut, is_absence: false });
    }

    /// Refuses the key at the current path; it is reported as a fault of its table.
    fn refuse_key(&mut self, span: Range<usize>, message: String, hint: Option<String>) {
        let cut = Some(self.path.clone());
        let mut path = self.path.clone();
        path.pop();
        self.faults.push(Fault { path, span, message, hint, cut, is_absence: false });
    }

    fn absence(&mut self, span: Range<usize>, message: String) {
        let path = self.path.clone();
        self.faults.push(Fault { path, span, message, hint: None, cut: None, is_absence: true });
    }
}

/// Lists names as they are written.
fn quoted(names: &[&str], between: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    names.join(between)
}

/// Why a branch of a schema refuses a scalar.
struct Objection<'s> {
    message: String,
    choices: Vec<&'s str>,
}

impl Objection<'_> {
    fn new(message: String) -> Self {
        Self { message, choices: Vec::new() }
    }
}

/// JSON types in the order in which a message lists them, with their names in TOML.
const TYPE_NAMES: [(&str, &str); 6] = [
    ("string", "a string"),
    ("integer", "an integer"),
    ("number", "a number"),
    ("boolean", "a boolean"),
    ("array", "an array"),
    ("object", "a table"),
];

/// Returns the JSON types that may hold `value`, the most specific first.
fn admitted_types(value: &DeValue<'_>) -> &'static [&'static str] {
    match value {
        DeValue::String(_) => &["string"],
        DeValue::Integer(_) => &["integer"],
        DeValue::Float(_) => &["number"],
        DeValue::Boolean(_) => &["boolean"],
        DeValue::Array(_) => &["array"],
        DeValue::Table(_) => &["object"],
        // No JSON type is a TOML date; it is written as a string in quotes.
        DeValue::Datetime(_) => &[],
    }
}

fn counted(count: u64, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Reports whether a value of JSON type `kind` is one of schema type `wanted`.
fn fits(wanted: &str, kind: &str) -> bool {
    wanted == kind || (wanted == "number" && kind == "integer")
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_closed(schema: &Value) -> bool {
    let closes = |keyword| schema.get(keyword) == Some(&Value::Bool(false));
    closes("additionalProperties") || closes("unevaluatedProperties")
}

fn branches<'s>(
    object: &'s Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'s Value> + use<'s> {
    object.get(keyword).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the one string that `schema` allows.
fn constant(schema: &Value) -> Option<&str> {
    if let Some(text) = schema.get("const").and_then(Value::as_str) {
        return Some(text);
    }
    match schema.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
        Some([Value::String(only)]) => Some(only),
        _ => None,
    }
}

fn object_to<'s>(leaf: &'s Map<String, Value>, value: &DeValue<'_>) -> Option<Objection<'s>> {
    match value {
        DeValue::String(found) => object_to_string(leaf, found),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(found) => object_to_integer(leaf, found),
            Err(_) => Some(Objection::new(format!("{number} is too large a number"))),
        },
        DeValue::Float(number) => {
            object_to_float(leaf, number.as_str().parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(found) => {
            let wanted = leaf.get("const")?.as_bool()?;
            (wanted != *found).then(|| Objection::new(format!("wanted {wanted}, found {found}")))
        }
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn object_to_string<'s>(leaf: &'s Map<String, Value>, found: &str) -> Option<Objection<'s>> {
    let listed = leaf.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let constants = listed.or_else(|| leaf.get("const").map(std::slice::from_ref));
    if let Some(constants) = constants {
        let choices: Vec<&str> = constants.iter().filter_map(Value::as_str).collect();
        if choices.contains(&found) {
            return None;
        }
        return Some(Objection { message: format!("unknown value {found:?}"), choices });
    }
    let bound = |keyword| leaf.get(keyword).and_then(Value::as_u64);
    let length = u64::try_from(found.chars().count()).unwrap_or(u64::MAX);
    if let Some(wanted) = bound("minLength").filter(|wanted| length < *wanted) {
        let message = match length {
            0 => "wanted some text, found an empty string".to_owned(),
            _ => format!("wanted at least {}, found {length}", counted(wanted, "character")),
        };
        return Some(Objection::new(message));
    }
    let wanted = bound("maxLength").filter(|wanted| length > *wanted)?;
    Some(Objection::new(format!("wanted at most {}, found {length}", counted(wanted, "character"))))
}

fn object_to_integer<'s>(leaf: &'s Map<String, Value>, found: i128) -> Option<Objection<'s>> {
    let format = leaf.get("format").and_then(Value::as_str);
    let (least, most) = match format {
        Some("int8") => (i8::MIN.into(), i8::MAX.into()),
        Some("int16") => (i16::MIN.into(), i16::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        Some("int64" | "int") => (i64::MIN.into(), i64::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64" | "uint") => (0, u64::MAX.into()),
        _ => (i128::MIN, i128::MAX),
    };
    let bound = |keyword: &str, step: i128| {
        let number = leaf.get(keyword)?;
        number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .map(|bound| bound.saturating_add(step))
    };
    let least = [bound("minimum", 0), bound("exclusiveMinimum", 1)]
        .into_iter()
        .flatten()
        .fold(least, i128::max);
    let most = [bound("maximum", 0), bound("exclusiveMaximum", -1)]
        .into_iter()
        .flatten()
        .fold(most, i128::min);
    if let Some(wanted) = leaf.get("const").and_then(Value::as_i64) {
        return (i128::from(wanted) != found)
            .then(|| Objection::new(format!("wanted {wanted}, found {found}")));
    }
    if found < least {
        return Some(Objection::new(format!("wanted at least {least}, found {found}")));
    }
    (found > most).then(|| Objection::new(format!("wanted at most {most}, found {found}")))
}

fn object_to_float<'s>(leaf: &'s Map<String, Value>, found: f64) -> Option<Objection<'s>> {
    let bound = |keyword| leaf.get(keyword).and_then(Value::as_f64);
    if let Some(wanted) = bound("minimum").filter(|wanted| found < *wanted) {
        return Some(Objection::new(format!("wanted at least {wanted}, found {found}")));
    }
    let wanted = bound("maximum").filter(|wanted| found > *wanted)?;
    Some(Objection::new(format!("wanted at most {wanted}, found {found}")))
}
