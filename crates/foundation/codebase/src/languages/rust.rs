//! Rust: what is `pub` and not held within the crate, in what is so as well. Trait implementations and derives are not
//! looked at.

use std::collections::BTreeMap;

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

use crate::reader::{Reader, join};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
    /// Whether they are as visible as what they stand in, without saying so.
    inherits: bool,
    /// What a method needs to know of its `impl`, put before its signature.
    before: &'a str,
    /// The types that the file declares, and whether they are exported.
    types: &'a BTreeMap<String, bool>,
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    let mut types = BTreeMap::new();
    declared(reader, root, &mut types);
    let scope = Scope { name: "", is_exported: true, inherits: false, before: "", types: &types };
    items(reader, root, scope);
}

/// Collects the types that stand at the top of a file.
fn declared(reader: &Reader<'_>, root: Node<'_>, types: &mut BTreeMap<String, bool>) {
    for (_, item) in reader.children(root) {
        if matches!(item.kind(), "struct_item" | "enum_item" | "union_item" | "type_item") {
            let exported = is_pub(reader, item);
            // One of several that a condition chooses from.
            *types.entry(reader.named(item, "name").to_owned()).or_default() |= exported;
        }
    }
}

fn items(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let (mut is_test, mut is_macro) = (false, false);
    for (_, item) in reader.children(node) {
        if item.kind() == "attribute_item" {
            let text: String = reader.text(item).split_whitespace().collect();
            is_test |= text == "#[cfg(test)]";
            is_macro |= text.starts_with("#[macro_export");
            continue;
        }
        if !is_test {
            self::item(reader, item, scope, is_macro);
        }
        (is_test, is_macro) = (false, false);
    }
}

fn item(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>, is_macro: bool) {
    let exported = scope.is_exported && (scope.inherits || is_pub(reader, item));
    let name = join(scope.name, "::", reader.named(item, "name"));
    let header = |without: &[&str]| format!("{}{}", scope.before, reader.header(item, without));
    match item.kind() {
        "function_item" | "function_signature_item" => {
            let kind =
                if scope.name.is_empty() { SymbolKind::Function } else { SymbolKind::Method };
            let signature = header(&["body"]);
            reader.add(kind, name, signature, exported, item);
        }
        "const_item" | "static_item" => {
            let signature = header(&["value"]);
            reader.add(SymbolKind::Constant, name, signature, exported, item);
        }
        "type_item" | "associated_type" => {
            let signature = header(&[]);
            reader.add(SymbolKind::Type, name, signature, exported, item);
        }
        "struct_item" | "union_item" => {
            let signature = header(&["field_declaration_list"]);
            reader.add(SymbolKind::Type, name.clone(), signature, exported, item);
            if let Some(body) = item.child_by_field_name("body") {
                fields(reader, body, &name, exported);
            }
        }
        "enum_item" => {
            let signature = header(&["body"]);
            reader.add(SymbolKind::Type, name.clone(), signature, exported, item);
            if let Some(body) = item.child_by_field_name("body") {
                variants(reader, body, &name, exported);
            }
        }
        "trait_item" => {
            let signature = header(&["body"]);
            reader.add(SymbolKind::Type, name.clone(), signature, exported, item);
            let scope = Scope { name: &name, is_exported: exported, inherits: true, ..scope };
            body(reader, item, scope);
        }
        "impl_item" if item.child_by_field_name("trait").is_none() => own(reader, item, scope),
        "mod_item" => {
            let signature = header(&["body"]);
            reader.add(SymbolKind::Module, name.clone(), signature, exported, item);
            let types = &BTreeMap::new();
            let scope =
                Scope { name: &name, is_exported: exported, inherits: false, before: "", types };
            body(reader, item, scope);
        }
        "foreign_mod_item" => body(reader, item, scope),
        "macro_definition" => {
            let signature = format!("macro_rules! {}", reader.named(item, "name"));
            reader.add(SymbolKind::Macro, reader.named(item, "name"), signature, is_macro, item);
        }
        "use_declaration" if is_pub(reader, item) => {
            if let Some(argument) = item.child_by_field_name("argument") {
                reader.within(|reader| used(reader, argument, scope, "", item));
            }
        }
        _ => {}
    }
}

fn body(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>) {
    if let Some(body) = item.child_by_field_name("body") {
        reader.within(|reader| items(reader, body, scope));
    }
}

/// Reads an `impl` of a type's own.
fn own(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>) {
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
    let is_exported = scope.is_exported && scope.types.get(&base).copied().unwrap_or(true);
    let scope = Scope { name: &name, is_exported, before: &before, ..scope };
    body(reader, item, scope);
}

fn variants(reader: &mut Reader<'_>, node: Node<'_>, within: &str, exported: bool) {
    for (_, variant) in reader.children(node) {
        if variant.kind() == "enum_variant" {
            let name = join(within, "::", reader.named(variant, "name"));
            let signature = reader.header(variant, &["value"]);
            reader.add(SymbolKind::Variant, name, signature, exported, variant);
        }
    }
}

/// Reads the fields that have names; those that have none stand in the signature.
fn fields(reader: &mut Reader<'_>, node: Node<'_>, within: &str, exported: bool) {
    for (_, field) in reader.children(node) {
        if field.kind() == "field_declaration" {
            let exported = exported && is_pub(reader, field);
            let name = join(within, "::", reader.named(field, "name"));
            let signature = reader.header(field, &[]);
            reader.add(SymbolKind::Field, name, signature, exported, field);
        }
    }
}

/// Names what a `pub use` brings. Where it comes from is nothing to those who use it.
fn used(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>, above: &str, item: Node<'_>) {
    let path = |text: &str| text.split_whitespace().collect::<String>();
    let name = match node.kind() {
        "use_list" => {
            for (_, child) in reader.children(node).into_iter().filter(|(_, it)| it.is_named()) {
                reader.within(|reader| used(reader, child, scope, above, item));
            }
            return;
        }
        "scoped_use_list" => {
            let above = join(above, "::", &path(reader.named(node, "path")));
            if let Some(list) = node.child_by_field_name("list") {
                reader.within(|reader| used(reader, list, scope, &above, item));
            }
            return;
        }
        "use_wildcard" => join(above, "::", &path(reader.text(node))),
        "use_as_clause" => reader.named(node, "alias").to_owned(),
        "self" => above.rsplit("::").next().unwrap_or_default().to_owned(),
        "scoped_identifier" => reader.named(node, "name").to_owned(),
        _ => reader.text(node).to_owned(),
    };
    let signature = format!("pub use {name}");
    let name = join(scope.name, "::", &name);
    reader.add(SymbolKind::Reexport, name, signature, scope.is_exported, item);
}

/// Tells whether an item is `pub` to everybody.
fn is_pub(reader: &Reader<'_>, item: Node<'_>) -> bool {
    let mut children = reader.children(item).into_iter();
    children.any(|(_, it)| it.kind() == "visibility_modifier" && reader.text(it).trim() == "pub")
}
