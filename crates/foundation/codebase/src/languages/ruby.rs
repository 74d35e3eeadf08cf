//! Ruby: what is public, by the words that say so in the body of its class.

use std::collections::BTreeMap;

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

use crate::{
    reader::{Reader, join},
    signature::Words,
};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
    /// What stands between it and a method.
    between: &'a str,
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    body(reader, root, Scope { name: "", is_exported: true, between: "" });
}

fn body(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let begin = reader.found().len();
    let mut is_open = true;
    // Names that were said to be something after they were declared.
    let mut said: BTreeMap<String, bool> = BTreeMap::new();
    for (_, statement) in reader.children(node) {
        match statement.kind() {
            // A word alone holds for all that follows.
            "identifier" => match reader.text(statement) {
                "private" | "protected" => is_open = false,
                "public" => is_open = true,
                "module_function" => {}
                _ => {}
            },
            "call" => call(reader, statement, scope, is_open, &mut said),
            _ => declaration(reader, statement, scope, is_open),
        }
    }
    for symbol in reader.found().iter_mut().skip(begin) {
        if let Some(is_open) = said.get(&symbol.name) {
            symbol.exported = scope.is_exported && *is_open;
        }
    }
}

fn declaration(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>, is_open: bool) {
    match node.kind() {
        "class" | "module" => {
            let own = reader.named(node, "name").split_whitespace().collect::<String>();
            let name = join(scope.name, "::", &own);
            let signature = reader.header(node, &["body", "end"]);
            let kind = if node.kind() == "class" { SymbolKind::Type } else { SymbolKind::Module };
            reader.add(kind, name.clone(), signature, scope.is_exported, node);
            if let Some(inner) = node.child_by_field_name("body") {
                let scope = Scope { name: &name, between: "#", ..scope };
                reader.within(|reader| body(reader, inner, scope));
            }
        }
        "singleton_class" => {
            if let Some(inner) = node.child_by_field_name("body") {
                let scope = Scope { between: ".", ..scope };
                reader.within(|reader| body(reader, inner, scope));
            }
        }
        "method" => {
            let own = reader.named(node, "name");
            let name = join(scope.name, scope.between, own);
            let kind =
                if scope.name.is_empty() { SymbolKind::Function } else { SymbolKind::Method };
            let signature = format!("def {own}{}", parameters(reader, node));
            reader.add(kind, name, signature, scope.is_exported && is_open, node);
        }
        "singleton_method" => {
            let own = reader.named(node, "name");
            let of = reader.named(node, "object");
            let of = if of == "self" { scope.name.to_owned() } else { of.to_owned() };
            let signature = format!("def self.{own}{}", parameters(reader, node));
            let name = join(&of, ".", own);
            reader.add(SymbolKind::Method, name, signature, scope.is_exported, node);
        }
        "assignment" => {
            let Some(left) = node.child_by_field_name("left") else { return };
            if left.kind() == "constant" {
                let own = reader.text(left);
                let name = join(scope.name, "::", own);
                reader.add(SymbolKind::Constant, name, own, scope.is_exported, node);
            }
        }
        _ => {}
    }
}

/// Returns what a method takes, with or without the parentheses that may stand around it.
fn parameters(reader: &Reader<'_>, node: Node<'_>) -> String {
    let Some(parameters) = node.child_by_field_name("parameters") else { return "()".to_owned() };
    let mut words = Words::new(reader.grammar);
    reader.write(parameters, &["(", ")"], &mut words);
    format!("({})", words.end())
}

/// Reads a call that says who may use something, or makes methods.
fn call(
    reader: &mut Reader<'_>,
    node: Node<'_>,
    scope: Scope<'_>,
    is_open: bool,
    said: &mut BTreeMap<String, bool>,
) {
    if node.child_by_field_name("receiver").is_some() {
        return;
    }
    let word = reader.named(node, "method");
    let Some(arguments) = node.child_by_field_name("arguments") else { return };
    let symbol = |it: Node<'_>| match it.kind() {
        "simple_symbol" => Some(reader.text(it).trim_start_matches(':').to_owned()),
        "string" => Some(reader.text(it).trim_matches(['"', '\'']).to_owned()),
        _ => None,
    };
    let children: Vec<Node<'_>> =
        reader.children(arguments).into_iter().map(|(_, it)| it).collect();
    let names: Vec<(String, Node<'_>)> =
        children.iter().filter_map(|it| symbol(*it).map(|name| (name, *it))).collect();
    match word {
        "private"
        | "protected"
        | "public"
        | "private_class_method"
        | "private_constant"
        | "public_class_method"
        | "module_function" => {
            let opens = word.starts_with("public") || word == "module_function";
            let between = match word {
                "private_class_method" | "public_class_method" => ".",
                "private_constant" => "::",
                _ => scope.between,
            };
            for (name, _) in names {
                said.insert(join(scope.name, between, &name), opens);
            }
            // What is declared where it is said.
            for it in children.into_iter().filter(|it| it.kind() == "method") {
                declaration(reader, it, scope, opens);
            }
        }
        "attr_reader" | "attr_writer" | "attr_accessor" => {
            for (name, at) in names {
                let exported = scope.is_exported && is_open;
                if word != "attr_writer" {
                    let called = join(scope.name, scope.between, &name);
                    let signature = format!("def {name}()");
                    reader.add(SymbolKind::Method, called, signature, exported, at);
                }
                if word != "attr_reader" {
                    let called = join(scope.name, scope.between, &format!("{name}="));
                    let signature = format!("def {name}=(value)");
                    reader.add(SymbolKind::Method, called, signature, exported, at);
                }
            }
        }
        _ => {}
    }
}
