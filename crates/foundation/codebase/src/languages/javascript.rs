//! JavaScript and TypeScript: what is exported by `export`, by `module.exports` or by `exports`, under the name by which
//! others know it.

use std::collections::{BTreeMap, BTreeSet};

use formwork_protocols::source::{Symbol, SymbolKind};
use tree_sitter::Node;

use crate::reader::{Reader, join};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
}

/// A name that a module exports apart from where it is declared.
struct Clause<'t> {
    /// What it calls it itself.
    own: &'t str,
    /// What others call it.
    outside: String,
    line: u64,
}

type Clauses<'t> = Vec<Clause<'t>>;

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    block(reader, root, "", true);
}

/// Reads the statements of a module or a namespace.
fn block(reader: &mut Reader<'_>, body: Node<'_>, name: &str, is_exported: bool) {
    let begin = reader.found().len();
    let mut clauses = Clauses::new();
    for (_, statement) in reader.children(body) {
        let hidden = Scope { name, is_exported: false };
        match statement.kind() {
            "export_statement" => {
                export(reader, statement, Scope { name, is_exported }, &mut clauses);
            }
            "expression_statement" => {
                for (_, inner) in reader.children(statement) {
                    match inner.kind() {
                        "assignment_expression" => {
                            assigned(reader, inner, Scope { name, is_exported }, &mut clauses);
                        }
                        _ => declaration(reader, inner, inner, hidden),
                    }
                }
            }
            _ => declaration(reader, statement, statement, hidden),
        }
    }
    if is_exported {
        hand_out(reader, begin, name, clauses);
    }
}

/// Makes what was declared known under the names that are exported.
fn hand_out(reader: &mut Reader<'_>, begin: usize, within: &str, clauses: Clauses<'_>) {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, symbol) in reader.found().iter().enumerate().skip(begin) {
        places.entry(symbol.name.clone()).or_default().push(at);
    }
    for Clause { own, outside, line } in clauses {
        let own = join(within, ".", own);
        let outside = join(within, ".", &outside);
        if !places.contains_key(&own) {
            // It was imported.
            let signature = format!("export {outside}");
            let kind = SymbolKind::Reexport;
            if !reader.keep(Symbol { kind, name: outside, signature, exported: true, line }) {
                return;
            }
            continue;
        }
        let below = format!("{own}.");
        let members =
            places.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below));
        let all = places.get_key_value(&own).into_iter().chain(members);
        for at in all.flat_map(|(_, places)| places) {
            let Some(symbol) = reader.found().get_mut(*at) else { continue };
            let exported = !is_hidden(symbol);
            if own == outside {
                symbol.exported = exported;
                continue;
            }
            let rest = symbol.name.get(own.len()..).unwrap_or_default();
            let other = Symbol { name: format!("{outside}{rest}"), exported, ..symbol.clone() };
            if !reader.keep(other) {
                return;
            }
        }
    }
}

/// Tells whether a member is its class's alone.
fn is_hidden(symbol: &Symbol) -> bool {
    let last = symbol.name.rsplit('.').next().unwrap_or_default();
    last.starts_with('#') || symbol.signature.split_whitespace().any(|word| word == "private")
}

fn clause<'t>(reader: &Reader<'t>, at: Node<'_>, own: &'t str, outside: &str) -> Clause<'t> {
    Clause { own, outside: outside.to_owned(), line: reader.line(at) }
}

fn export<'t>(
    reader: &mut Reader<'t>,
    node: Node<'_>,
    scope: Scope<'_>,
    clauses: &mut Clauses<'t>,
) {
    let children = reader.children(node);
    let is_default = children.iter().any(|(_, it)| it.kind() == "default");
    let from = node.child_by_field_name("source");
    if let Some(declared) = node.child_by_field_name("declaration") {
        if is_default {
            return default(reader, declared, scope);
        }
        return declaration(reader, declared, node, scope);
    }
    if let Some(value) = node.child_by_field_name("value") {
        if value.kind() == "identifier" {
            return clauses.push(clause(reader, value, reader.text(value), "default"));
        }
        return default(reader, value, scope);
    }
    for (_, child) in children {
        match child.kind() {
            "export_clause" => {
                for (_, it) in reader.children(child) {
                    if it.kind() != "export_specifier" {
                        continue;
                    }
                    let own = reader.named(it, "name");
                    let alias = reader.named(it, "alias");
                    let outside = if alias.is_empty() { own } else { alias };
                    if from.is_none() {
                        clauses.push(clause(reader, it, own, outside));
                    } else {
                        reexport(reader, outside, scope, it);
                    }
                }
            }
            "namespace_export" => {
                let name = reader.text(child).trim_start_matches('*').trim();
                let name = name.strip_prefix("as").unwrap_or(name).trim();
                reexport(reader, name, scope, child);
            }
            "*" => {
                let from = from.map(|it| reader.text(it)).unwrap_or_default();
                let name = format!("* from {}", from.trim_matches(['"', '\'']));
                reexport(reader, &name, scope, child);
            }
            // `export = name`.
            "identifier" => {
                clauses.push(clause(reader, child, reader.text(child), "export="));
            }
            _ => {}
        }
    }
}

fn reexport(reader: &mut Reader<'_>, name: &str, scope: Scope<'_>, node: Node<'_>) {
    let signature = format!("export {name}");
    let name = join(scope.name, ".", name);
    reader.add(SymbolKind::Reexport, name, signature, scope.is_exported, node);
}

/// Reads what a module exports by default.
fn default(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let name = join(scope.name, ".", "default");
    match node.kind() {
        "class_declaration" | "abstract_class_declaration" | "class" => {
            class(reader, node, node, &name, scope.is_exported);
        }
        kind => {
            let is_function = kind.contains("function");
            let signature = match is_function {
                true => reader.header(node, &["body"]),
                false => "export default".to_owned(),
            };
            let kind = if is_function { SymbolKind::Function } else { SymbolKind::Constant };
            reader.add(kind, name, signature, scope.is_exported, node);
        }
    }
}

/// Reads one declaration; `whole` is what it stands in with what is said before it.
fn declaration(reader: &mut Reader<'_>, node: Node<'_>, whole: Node<'_>, scope: Scope<'_>) {
    let exported = scope.is_exported;
    let name = join(scope.name, ".", reader.named(node, "name"));
    match node.kind() {
        "function_declaration" | "generator_function_declaration" | "function_signature" => {
            let signature = reader.header(node, &["body"]);
            reader.add(SymbolKind::Function, name, signature, exported, whole);
        }
        "class_declaration" | "abstract_class_declaration" => {
            class(reader, node, whole, &name, exported);
        }
        "interface_declaration" => {
            let signature = reader.header(node, &["body"]);
            reader.add(SymbolKind::Type, name.clone(), signature, exported, whole);
            members(reader, node, &name, exported);
        }
        "type_alias_declaration" => {
            let signature = reader.header(node, &[]);
            reader.add(SymbolKind::Type, name, signature, exported, whole);
        }
        "enum_declaration" => {
            let signature = reader.header(node, &["body"]);
            reader.add(SymbolKind::Type, name.clone(), signature, exported, whole);
            let Some(body) = node.child_by_field_name("body") else { return };
            for (called, it) in reader.children(body) {
                let own = match it.kind() {
                    "enum_assignment" => reader.named(it, "name"),
                    _ if called == "name" => reader.text(it),
                    _ => continue,
                };
                reader.add(SymbolKind::Variant, join(&name, ".", own), own, exported, it);
            }
        }
        "lexical_declaration" | "variable_declaration" => {
            for (_, it) in reader.children(node) {
                if it.kind() == "variable_declarator" {
                    variable(reader, it, scope);
                }
            }
        }
        "internal_module" | "module" => {
            let signature = reader.header(node, &["body"]);
            reader.add(SymbolKind::Module, name.clone(), signature, exported, whole);
            // Modules that are declared by a text export what they say.
            let is_open = exported || reader.named(node, "name").starts_with(['"', '\'']);
            if let Some(body) = node.child_by_field_name("body") {
                reader.within(|reader| block(reader, body, &name, is_open));
            }
        }
        "ambient_declaration" => {
            for (_, inner) in reader.children(node) {
                if inner.kind() != "ambient_declaration" {
                    declaration(reader, inner, whole, scope);
                }
            }
        }
        _ => {}
    }
}

fn class(reader: &mut Reader<'_>, node: Node<'_>, whole: Node<'_>, name: &str, exported: bool) {
    let signature = reader.header(node, &["body"]);
    reader.add(SymbolKind::Type, name, signature, exported, whole);
    members(reader, node, name, exported);
}

fn members(reader: &mut Reader<'_>, node: Node<'_>, within: &str, exported: bool) {
    let Some(body) = node.child_by_field_name("body") else { return };
    for (_, member) in reader.children(body) {
        let called = match member.kind() {
            "field_definition" => reader.named(member, "property"),
            _ => reader.named(member, "name"),
        };
        let (kind, own) = match member.kind() {
            "method_definition" | "method_signature" | "abstract_method_signature" => {
                (SymbolKind::Method, called)
            }
            "public_field_definition" | "field_definition" | "property_signature" => {
                (SymbolKind::Field, called)
            }
            "call_signature" => (SymbolKind::Method, "()"),
            "construct_signature" => (SymbolKind::Method, "new"),
            "index_signature" => (SymbolKind::Field, "[]"),
            _ => continue,
        };
        let is_hidden = own.starts_with('#') || {
            let mut inner = reader.children(member).into_iter();
            inner.any(|(_, it)| {
                it.kind() == "accessibility_modifier" && reader.text(it) == "private"
            })
        };
        let signature = match member.child_by_field_name("value") {
            Some(value) => called_like(reader, member, value),
            None => reader.header(member, &["body"]),
        };
        let name = join(within, ".", own);
        reader.add(kind, name, signature, exported && !is_hidden, member);
    }
}

/// Tells of what has a value: of a function how it is called, else nothing.
fn called_like(reader: &Reader<'_>, node: Node<'_>, value: Node<'_>) -> String {
    let before = reader.header(node, &["value", "body"]);
    match value.kind() {
        "arrow_function" | "function_expression" | "generator_function" => {
            format!("{before} = {}", reader.header(value, &["body", "=>"]))
        }
        _ => before,
    }
}

fn variable(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let Some(name) = node.child_by_field_name("name") else { return };
    if name.kind() != "identifier" {
        for own in bound(reader, name) {
            let called = join(scope.name, ".", own);
            reader.add(SymbolKind::Constant, called, own, scope.is_exported, name);
        }
        return;
    }
    let value = node.child_by_field_name("value");
    let signature = match value {
        Some(value) => called_like(reader, node, value),
        None => reader.header(node, &[]),
    };
    let is_function = value.is_some_and(|it| it.kind().contains("function"));
    let kind = if is_function { SymbolKind::Function } else { SymbolKind::Constant };
    let own = join(scope.name, ".", reader.text(name));
    if let Some(value) = value.filter(|it| it.kind() == "class") {
        return class(reader, value, node, &own, scope.is_exported);
    }
    reader.add(kind, own, signature, scope.is_exported, node);
}

/// Returns the names that a pattern binds.
fn bound<'t>(reader: &Reader<'t>, pattern: Node<'_>) -> BTreeSet<&'t str> {
    let mut names = BTreeSet::new();
    let mut cursor = pattern.walk();
    loop {
        let node = cursor.node();
        if matches!(node.kind(), "identifier" | "shorthand_property_identifier_pattern") {
            names.insert(reader.text(node));
        }
        // A default is no name.
        let is_default = cursor.field_name() == Some("right");
        if !is_default && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return names;
            }
        }
    }
}

/// Reads an export by assignment.
fn assigned<'t>(
    reader: &mut Reader<'t>,
    node: Node<'_>,
    scope: Scope<'_>,
    clauses: &mut Clauses<'t>,
) {
    let left: String = reader.named(node, "left").split_whitespace().collect();
    let Some(right) = node.child_by_field_name("right") else { return };
    let own = left.strip_prefix("module.exports").or_else(|| left.strip_prefix("exports"));
    match own.map(|own| own.strip_prefix('.').ok_or(own)) {
        Some(Ok(own)) if !own.contains(['.', '[']) => given(reader, own, right, scope, clauses),
        Some(Err("")) if left == "module.exports" => {
            if right.kind() != "object" {
                return given(reader, "module.exports", right, scope, clauses);
            }
            for (_, it) in reader.children(right) {
                match it.kind() {
                    "shorthand_property_identifier" => {
                        given(reader, reader.text(it), it, scope, clauses);
                    }
                    "method_definition" => {
                        let name = join(scope.name, ".", reader.named(it, "name"));
                        let signature = reader.header(it, &["body"]);
                        reader.add(SymbolKind::Function, name, signature, scope.is_exported, it);
                    }
                    "pair" => {
                        let key = reader.named(it, "key").trim_matches(['"', '\'']);
                        if let Some(value) = it.child_by_field_name("value") {
                            given(reader, key, value, scope, clauses);
                        }
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Reads a value that is exported under a name.
fn given<'t>(
    reader: &mut Reader<'t>,
    name: &str,
    value: Node<'_>,
    scope: Scope<'_>,
    clauses: &mut Clauses<'t>,
) {
    if matches!(value.kind(), "identifier" | "shorthand_property_identifier") {
        return clauses.push(clause(reader, value, reader.text(value), name));
    }
    let called = join(scope.name, ".", name);
    if value.kind() == "class" {
        return class(reader, value, value, &called, scope.is_exported);
    }
    let signature = match value.kind() {
        "arrow_function" | "function_expression" | "generator_function" => {
            format!("{name} = {}", reader.header(value, &["body", "=>"]))
        }
        _ => name.to_owned(),
    };
    let is_function = value.kind().contains("function");
    let kind = if is_function { SymbolKind::Function } else { SymbolKind::Constant };
    reader.add(kind, called, signature, scope.is_exported, value);
}
