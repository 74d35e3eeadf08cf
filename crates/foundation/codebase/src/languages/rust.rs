//! Rust: what is `pub` and not held within the crate, in what is so as well; what `pub use` hands on of a module that stands in
//! the same file is declared where it is handed on. Trait implementations and derives are not looked at, nor what a condition
//! never lets be.

mod condition; // What `cfg` says.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use formwork_protocols::source::{Place, Symbol, SymbolKind};
use tree_sitter::Node;

use crate::reader::{Reader, join};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    /// How long the name is of the innermost thing around them that is not `pub`, of those that stand in this file; 0 where there is
    /// none, and code elsewhere may use them.
    closed: usize,
    /// Whether they are as visible as what they stand in, without saying so.
    inherits: bool,
    is_type: bool,
    /// What a method needs to know of its `impl`, put before its signature.
    before: &'a str,
    /// The types that the file declares, and whether they are exported.
    types: &'a BTreeMap<String, bool>,
}

/// What a file declares, beside its symbols.
#[derive(Default)]
struct Known {
    /// Of each symbol: how long the name is of the innermost of it and what it stands in that is not `pub`.
    closed: Vec<usize>,
    used: Vec<Used>,
    /// What paths may begin with that lead into this crate.
    local: BTreeSet<String>,
}

/// Something that a `pub use` hands on.
struct Used {
    /// Where it is handed on.
    within: String,
    path: String,
    /// What it is called in this file; nothing where it comes from elsewhere.
    of: Option<String>,
    /// What it is called where it is handed on; nothing where that is all that it holds.
    called: Option<String>,
    /// The symbol that tells of it.
    symbol: usize,
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    let mut types = BTreeMap::new();
    declared(reader, root, &mut types);
    let scope =
        Scope { name: "", closed: 0, inherits: false, is_type: false, before: "", types: &types };
    let mut known = Known::default();
    items(reader, &mut known, root, scope);
    hand_on(reader, known);
}

/// Returns what has to declare a file for others to reach it; nothing for one that a crate begins with.
pub(crate) fn place(path: &str) -> Option<Place> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_first = matches!(stem, "lib" | "main" | "build")
        || matches!(last(folder).as_str(), "bin" | "tests" | "examples" | "benches");
    if is_first {
        return None;
    }
    let (name, above) = match stem {
        "mod" if folder.is_empty() => return None,
        "mod" => (last(folder), folder.rsplit_once('/').map_or("", |(above, _)| above)),
        stem => (stem.to_owned(), folder),
    };
    let mut by: Vec<String> =
        ["lib.rs", "main.rs", "mod.rs"].iter().map(|file| join(above, "/", file)).collect();
    if !above.is_empty() {
        by.push(format!("{above}.rs"));
    }
    Some(Place { name, by })
}

/// How many symbols are looked at to find out what is handed on.
const MAX_LOOKED_AT: usize = 256 * 1024;

/// Says of what comes from another crate where it comes from, and puts what comes from modules in this file where it is handed on,
/// the innermost first.
fn hand_on(reader: &mut Reader<'_>, mut known: Known) {
    for Used { path, called, symbol, .. } in &known.used {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let is_own = matches!(first, "crate" | "self" | "super") || known.local.contains(first);
        let Some(called) = called.as_ref().filter(|_| !is_own && !rest.is_empty()) else {
            continue;
        };
        // They are parts of one.
        let of = if matches!(first, "core" | "alloc") { "std" } else { first };
        let alias = match rest.rsplit("::").next() {
            Some(last) if last == called => String::new(),
            _ => format!(" as {called}"),
        };
        if let Some(symbol) = reader.found().get_mut(*symbol) {
            symbol.signature = format!("pub use {of}::{rest}{alias}");
        }
    }
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    if known.used.iter().any(|used| used.of.is_some()) {
        for (at, symbol) in reader.found().iter().enumerate() {
            places.entry(symbol.name.clone()).or_default().push(at);
        }
    }
    let mut is_replaced = vec![false; reader.found().len()];
    known.used.sort_by_cached_key(|used| Reverse(used.within.matches("::").count()));
    let mut looked_at = 0;
    for Used { within, of, called, symbol, .. } in known.used {
        let Some(of) = of else { continue };
        let outside = match &called {
            Some(called) => join(&within, "::", called),
            None => within.clone(),
        };
        // Below what is named first all has to be open.
        let rest = of.get(within.len()..).unwrap_or_default().trim_start_matches(':');
        let first = of.len() - rest.len() + rest.find("::").unwrap_or(rest.len());
        let below = format!("{of}::");
        let members =
            places.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        let own = places.get_key_value(&of).into_iter().filter(|_| called.is_some());
        // Of a type `*` brings its variants.
        let is_module =
            called.is_some()
                || places.get(&of).into_iter().flatten().any(|at| {
                    reader.found().get(*at).is_some_and(|it| it.kind == SymbolKind::Module)
                });
        let (mut brought, mut is_here): (Vec<(usize, String)>, _) = (Vec::new(), false);
        for (name, at) in
            own.chain(members).flat_map(|(name, at)| at.iter().map(move |at| (name, *at)))
        {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return reader.give_up();
            }
            let is_open = known.closed.get(at).is_some_and(|closed| *closed <= first);
            let is_variant =
                reader.found().get(at).is_some_and(|it| it.kind == SymbolKind::Variant);
            let is_told = is_replaced.get(at).copied().unwrap_or_default();
            if at == symbol || is_told || !is_open || !is_module && !is_variant {
                continue;
            }
            is_here = true;
            let rest = name.get(of.len()..).unwrap_or_default();
            let name = match outside.is_empty() {
                true => rest.trim_start_matches(':').to_owned(),
                false => format!("{outside}{rest}"),
            };
            // What is declared there goes before.
            is_here &= name != of;
            if name != of && (called.is_some() || !places.contains_key(&name)) {
                brought.push((at, name));
            }
        }
        let closed = known.closed.get(symbol).copied().unwrap_or_default();
        let exported = closed == 0;
        if let Some(is_replaced) = is_replaced.get_mut(symbol) {
            *is_replaced = is_here;
        }
        for (at, name) in brought {
            let Some(symbol) = reader.found().get(at).cloned() else { continue };
            places.entry(name.clone()).or_default().push(reader.found().len());
            known.closed.push(closed);
            is_replaced.push(false);
            if !reader.keep(Symbol { name, exported, ..symbol }) {
                return;
            }
        }
    }
    let mut replaced = is_replaced.into_iter();
    reader.found().retain(|_| !replaced.next().unwrap_or_default());
}

/// Collects the types that stand at the top of a file.
fn declared(reader: &Reader<'_>, root: Node<'_>, types: &mut BTreeMap<String, bool>) {
    for (item, _) in there(reader, root) {
        if matches!(item.kind(), "struct_item" | "enum_item" | "union_item" | "type_item") {
            let exported = is_pub(reader, item);
            // One of several that a condition chooses from.
            *types.entry(reader.named(item, "name").to_owned()).or_default() |= exported;
        }
    }
}

/// Lists what stands in something, but for what a condition never lets be, and whether it is a macro for everybody.
fn there<'n>(reader: &Reader<'_>, node: Node<'n>) -> Vec<(Node<'n>, bool)> {
    let (mut is_never, mut is_macro) = (false, false);
    let mut found = Vec::new();
    for (_, item) in reader.children(node) {
        match item.kind() {
            "inner_attribute_item" if condition::is_never(reader.text(item)) => return Vec::new(),
            "attribute_item" => {
                let text = reader.text(item);
                is_never |= condition::is_never(text);
                let text =
                    text.trim_start_matches(|c: char| c.is_whitespace() || c == '#' || c == '[');
                is_macro |= text.starts_with("macro_export");
            }
            _ => {
                if !is_never {
                    found.push((item, is_macro));
                }
                // Between an attribute and what it is about stands nothing.
                (is_never, is_macro) = (false, false);
            }
        }
    }
    found
}

fn items(reader: &mut Reader<'_>, known: &mut Known, node: Node<'_>, scope: Scope<'_>) {
    for (item, is_macro) in there(reader, node) {
        self::item(reader, known, item, scope, is_macro);
    }
}

/// Adds a symbol, and how far one may use it.
fn add(
    reader: &mut Reader<'_>,
    known: &mut Known,
    kind: SymbolKind,
    (name, closed): (&str, usize),
    signature: String,
    node: Node<'_>,
) {
    let many = reader.found().len();
    reader.add(kind, name, signature, closed == 0, node);
    if reader.found().len() > many {
        known.closed.push(closed);
    }
}

fn item(
    reader: &mut Reader<'_>,
    known: &mut Known,
    item: Node<'_>,
    scope: Scope<'_>,
    is_macro: bool,
) {
    let name = join(scope.name, "::", reader.named(item, "name"));
    if matches!(item.kind(), "mod_item" | "enum_item") {
        known.local.insert(reader.named(item, "name").to_owned());
    }
    let is_open = scope.inherits || is_pub(reader, item);
    let closed = if is_open { scope.closed } else { name.len() };
    let own = (name.as_str(), closed);
    let header = |without: &[&str]| format!("{}{}", scope.before, reader.header(item, without));
    match item.kind() {
        "function_item" | "function_signature_item" => {
            let kind = if scope.is_type { SymbolKind::Method } else { SymbolKind::Function };
            let signature = header(&["body"]);
            add(reader, known, kind, own, signature, item);
        }
        "const_item" | "static_item" => {
            let signature = header(&["value"]);
            add(reader, known, SymbolKind::Constant, own, signature, item);
        }
        "type_item" | "associated_type" => {
            let signature = header(&[]);
            add(reader, known, SymbolKind::Type, own, signature, item);
        }
        "struct_item" | "union_item" => {
            let signature = header(&["field_declaration_list"]);
            add(reader, known, SymbolKind::Type, own, signature, item);
            if let Some(body) = item.child_by_field_name("body") {
                fields(reader, known, body, own);
            }
        }
        "enum_item" => {
            let signature = header(&["body"]);
            add(reader, known, SymbolKind::Type, own, signature, item);
            if let Some(body) = item.child_by_field_name("body") {
                variants(reader, known, body, own);
            }
        }
        "trait_item" => {
            let signature = header(&["body"]);
            add(reader, known, SymbolKind::Type, own, signature, item);
            let scope = Scope { name: &name, closed, inherits: true, is_type: true, ..scope };
            body(reader, known, item, scope);
        }
        "impl_item" if item.child_by_field_name("trait").is_none() => {
            self::own(reader, known, item, scope);
        }
        "mod_item" => {
            let signature = header(&["body"]);
            add(reader, known, SymbolKind::Module, own, signature, item);
            let types = &BTreeMap::new();
            let scope =
                Scope { name: &name, closed, inherits: false, is_type: false, before: "", types };
            body(reader, known, item, scope);
        }
        "foreign_mod_item" => body(reader, known, item, scope),
        "macro_definition" => {
            let name = reader.named(item, "name");
            let signature = format!("macro_rules! {name}");
            let closed = if is_macro { 0 } else { usize::MAX };
            add(reader, known, SymbolKind::Macro, (name, closed), signature, item);
        }
        "use_declaration" => {
            let handing = Handing { item, is_pub: is_pub(reader, item) };
            if let Some(argument) = item.child_by_field_name("argument") {
                reader.within(|reader| used(reader, known, argument, scope, "", handing));
            }
        }
        _ => {}
    }
}

fn body(reader: &mut Reader<'_>, known: &mut Known, item: Node<'_>, scope: Scope<'_>) {
    if let Some(body) = item.child_by_field_name("body") {
        reader.within(|reader| items(reader, known, body, scope));
    }
}

/// Reads an `impl` of a type's own.
fn own(reader: &mut Reader<'_>, known: &mut Known, item: Node<'_>, scope: Scope<'_>) {
    let Some(of) = item.child_by_field_name("type") else { return };
    let base = of.child_by_field_name("type").filter(|_| of.kind() == "generic_type");
    let base = reader.text(base.unwrap_or(of)).to_owned();
    let is_generic = item.child_by_field_name("type_parameters").is_some()
        || of.kind() == "generic_type"
        || reader.has(item, "where_clause");
    let before = match is_generic {
        true => format!("{}: ", reader.header(item, &["body"])),
        false => String::new(),
    };
    let name = join(scope.name, "::", &base);
    let is_open = scope.types.get(&base).copied().unwrap_or(true);
    let closed = if is_open { scope.closed } else { name.len() };
    let scope = Scope { name: &name, closed, is_type: true, before: &before, ..scope };
    body(reader, known, item, scope);
}

fn variants(
    reader: &mut Reader<'_>,
    known: &mut Known,
    node: Node<'_>,
    (within, closed): (&str, usize),
) {
    for (variant, _) in there(reader, node) {
        if variant.kind() == "enum_variant" {
            let name = join(within, "::", reader.named(variant, "name"));
            let signature = reader.header(variant, &["value"]);
            add(reader, known, SymbolKind::Variant, (&name, closed), signature, variant);
        }
    }
}

/// Reads the fields that have names; those that have none stand in the signature.
fn fields(
    reader: &mut Reader<'_>,
    known: &mut Known,
    node: Node<'_>,
    (within, closed): (&str, usize),
) {
    for (field, _) in there(reader, node) {
        if field.kind() == "field_declaration" {
            let name = join(within, "::", reader.named(field, "name"));
            let closed = if is_pub(reader, field) { closed } else { name.len() };
            let signature = reader.header(field, &[]);
            add(reader, known, SymbolKind::Field, (&name, closed), signature, field);
        }
    }
}

/// A `use`.
#[derive(Clone, Copy)]
struct Handing<'n> {
    item: Node<'n>,
    is_pub: bool,
}

/// Names what a `pub use` brings. Where in its crate that comes from is nothing to those who use it; of another crate it is something
/// else.
fn used(
    reader: &mut Reader<'_>,
    known: &mut Known,
    node: Node<'_>,
    scope: Scope<'_>,
    above: &str,
    handing: Handing<'_>,
) {
    let path = |text: &str| text.split_whitespace().collect::<String>();
    let (own, called) = match node.kind() {
        "use_list" => {
            for (_, child) in reader.children(node).into_iter().filter(|(_, it)| it.is_named()) {
                reader.within(|reader| used(reader, known, child, scope, above, handing));
            }
            return;
        }
        "scoped_use_list" => {
            let above = join(above, "::", &path(reader.named(node, "path")));
            if let Some(list) = node.child_by_field_name("list") {
                reader.within(|reader| used(reader, known, list, scope, &above, handing));
            }
            return;
        }
        "use_wildcard" => (path(reader.text(node)).trim_end_matches(['*', ':']).to_owned(), None),
        "use_as_clause" => {
            (path(reader.named(node, "path")), Some(reader.named(node, "alias").to_owned()))
        }
        "self" => (String::new(), Some(above.rsplit("::").next().unwrap_or_default().to_owned())),
        "scoped_identifier" => {
            (path(reader.text(node)), Some(reader.named(node, "name").to_owned()))
        }
        _ => (path(reader.text(node)), Some(reader.text(node).to_owned())),
    };
    let own = own.strip_suffix("::self").unwrap_or(&own);
    // `::` leads out of the crate, as most names do.
    let path = if own.is_empty() { above.to_owned() } else { join(above, "::", own) };
    let path = path.trim_start_matches(':').to_owned();
    if !handing.is_pub {
        known.local.extend(called.filter(|_| path.contains("::")));
        return;
    }
    let name = called.clone().unwrap_or_else(|| format!("{path}::*"));
    let signature = format!("pub use {name}");
    let symbol = reader.found().len();
    let name = join(scope.name, "::", &name);
    add(reader, known, SymbolKind::Reexport, (&name, scope.closed), signature, handing.item);
    known.local.extend(called.clone().filter(|_| path.contains("::")));
    let of = within_file(reader, scope.name, &path);
    known.used.push(Used { within: scope.name.to_owned(), path, of, called, symbol });
}

/// Returns the name that a path has in this file; nothing where it leads out of it.
fn within_file(reader: &Reader<'_>, scope: &str, path: &str) -> Option<String> {
    let mut base = scope;
    let mut rest = path;
    loop {
        let (first, after) = rest.split_once("::").unwrap_or((rest, ""));
        match first {
            "self" => {}
            "super" if base.is_empty() => return None,
            "super" => base = base.rsplit_once("::").map_or("", |(above, _)| above),
            "crate" => {
                let file = reader.path.rsplit('/').next().unwrap_or_default();
                let is_root = matches!(file, "lib.rs" | "main.rs");
                base = Some("").filter(|_| is_root && rest == path)?;
            }
            "" => return None,
            _ => return Some(join(base, "::", rest)),
        }
        rest = after;
    }
}

/// Tells whether an item is `pub` to everybody.
fn is_pub(reader: &Reader<'_>, item: Node<'_>) -> bool {
    let mut children = reader.children(item).into_iter();
    children.any(|(_, it)| it.kind() == "visibility_modifier" && reader.text(it).trim() == "pub")
}
