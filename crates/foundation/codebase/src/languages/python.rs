//! Python: what does not begin with an underscore; in a module with `__all__`, what that names. What is deleted again is
//! nobody's, unless that hangs on a condition.

use std::collections::{BTreeMap, BTreeSet};

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

use crate::reader::{MAX_DEPTH, Reader, join};

/// Decorators that change how something is called.
const TELLING: [&str; 6] =
    ["property", "staticmethod", "classmethod", "abstractmethod", "overload", "cached_property"];

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
    is_class: bool,
    /// Whether it is carried out in any case.
    is_sure: bool,
    /// What the module says that it exports.
    all: Option<&'a BTreeSet<String>>,
}

impl Scope<'_> {
    fn exports(&self, name: &str) -> bool {
        let is_dunder = name.len() > 4 && name.starts_with("__") && name.ends_with("__");
        match self.all {
            Some(all) if !self.is_class => all.contains(name),
            _ => self.is_exported && (!name.starts_with('_') || is_dunder && self.is_class),
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    let all = all(reader, root);
    let all = all.as_ref();
    let scope = Scope { name: "", is_exported: true, is_class: false, is_sure: true, all };
    let mut deleted = Deleted::new();
    statements(reader, root, scope, &mut deleted);
    if deleted.is_empty() {
        return;
    }
    for (at, symbol) in reader.found().iter_mut().enumerate() {
        let ends = symbol.name.match_indices('.').map(|(end, _)| end).take(MAX_DEPTH);
        let above = ends.filter_map(|end| symbol.name.get(..end));
        let mut names = above.chain([symbol.name.as_str()]);
        if names.any(|name| deleted.get(name).is_some_and(|many| at < *many)) {
            symbol.exported = false;
        }
    }
}

/// How many symbols stood before a name was deleted, the last time.
type Deleted = BTreeMap<String, usize>;

/// Reads `__all__`; nothing where there is none, or where it is made by more than lists of names.
fn all(reader: &Reader<'_>, root: Node<'_>) -> Option<BTreeSet<String>> {
    let mut names: Option<BTreeSet<String>> = None;
    for (_, statement) in reader.children(root) {
        let text = reader.text(statement);
        if statement.kind() != "expression_statement" || !text.starts_with("__all__") {
            continue;
        }
        let (_, inner) = reader.children(statement).into_iter().next()?;
        let list = match inner.kind() {
            "assignment" | "augmented_assignment" => inner.child_by_field_name("right")?,
            _ => return None,
        };
        if !matches!(list.kind(), "list" | "tuple") || reader.named(inner, "left") != "__all__" {
            return None;
        }
        let names = names.get_or_insert_default();
        for (_, item) in reader.children(list).into_iter().filter(|(_, it)| it.is_named()) {
            if item.kind() != "string" {
                return None;
            }
            names.insert(reader.text(item).trim_matches(['"', '\'']).to_owned());
        }
    }
    names
}

fn statements(reader: &mut Reader<'_>, body: Node<'_>, scope: Scope<'_>, deleted: &mut Deleted) {
    for (_, statement) in reader.children(body) {
        match statement.kind() {
            "function_definition" => function(reader, statement, statement, scope, ""),
            "class_definition" => class(reader, statement, statement, scope, deleted),
            "decorated_definition" => decorated(reader, statement, scope, deleted),
            "delete_statement" if scope.is_sure => {
                let many = reader.found().len();
                for name in names(reader, statement) {
                    deleted.insert(join(scope.name, ".", name), many);
                }
            }
            "expression_statement" => {
                for (_, inner) in reader.children(statement) {
                    if inner.kind() == "assignment" {
                        assignment(reader, inner, scope);
                    }
                }
            }
            "type_alias_statement" => {
                let left = reader.named(statement, "left");
                let name = left.split('[').next().unwrap_or_default().trim();
                let signature = reader.header(statement, &[]);
                let exported = scope.exports(name);
                let name = join(scope.name, ".", name);
                reader.add(SymbolKind::Type, name, signature, exported, statement);
            }
            "import_from_statement" if !scope.is_class => imported(reader, statement, scope),
            // What is declared on a condition is declared.
            "if_statement" | "elif_clause" | "else_clause" | "try_statement" | "except_clause"
            | "finally_clause" | "with_statement" | "block" => {
                let scope = Scope { is_sure: false, ..scope };
                reader.within(|reader| statements(reader, statement, scope, deleted));
            }
            _ => {}
        }
    }
}

/// Returns the names that `del` names.
fn names<'t>(reader: &Reader<'t>, statement: Node<'_>) -> Vec<&'t str> {
    let children = |node| reader.children(node).into_iter().map(|(_, it)| it);
    let listed = children(statement).flat_map(|it| match it.kind() {
        "expression_list" | "tuple" | "list" | "parenthesized_expression" => children(it).collect(),
        _ => vec![it],
    });
    listed.filter(|it| it.kind() == "identifier").map(|it| reader.text(it)).collect()
}

fn decorated(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>, deleted: &mut Deleted) {
    let Some(inner) = node.child_by_field_name("definition") else { return };
    if inner.kind() == "class_definition" {
        return class(reader, inner, node, scope, deleted);
    }
    let mut before = String::new();
    for (_, decorator) in reader.children(node) {
        let text = reader.text(decorator);
        let name = text.trim_start_matches('@').trim();
        let last = name.rsplit('.').next().unwrap_or_default();
        let tells = TELLING.contains(&last) || matches!(last, "setter" | "getter" | "deleter");
        if decorator.kind() == "decorator" && tells {
            before.push_str(&format!("@{name} "));
        }
    }
    function(reader, inner, node, scope, &before);
}

fn function(
    reader: &mut Reader<'_>,
    item: Node<'_>,
    whole: Node<'_>,
    scope: Scope<'_>,
    before: &str,
) {
    let own = reader.named(item, "name");
    let kind = if scope.is_class { SymbolKind::Method } else { SymbolKind::Function };
    let signature = format!("{before}{}", reader.header(item, &["body"]));
    reader.add(kind, join(scope.name, ".", own), signature, scope.exports(own), whole);
}

fn class(
    reader: &mut Reader<'_>,
    item: Node<'_>,
    whole: Node<'_>,
    scope: Scope<'_>,
    deleted: &mut Deleted,
) {
    let own = reader.named(item, "name");
    let (name, is_exported) = (join(scope.name, ".", own), scope.exports(own));
    let signature = reader.header(item, &["body"]);
    reader.add(SymbolKind::Type, name.clone(), signature, is_exported, whole);
    if let Some(body) = item.child_by_field_name("body") {
        let scope = Scope { name: &name, is_exported, is_class: true, ..scope };
        reader.within(|reader| statements(reader, body, scope, deleted));
    }
}

fn assignment(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let Some(left) = node.child_by_field_name("left") else { return };
    let right = node.child_by_field_name("right");
    let of = node.child_by_field_name("type").map(|it| reader.whole(it));
    let kind = if scope.is_class { SymbolKind::Field } else { SymbolKind::Constant };
    let names = match left.kind() {
        "identifier" => vec![left],
        "pattern_list" | "tuple_pattern" | "list_pattern" => {
            reader.children(left).into_iter().map(|(_, it)| it).collect()
        }
        _ => Vec::new(),
    };
    for name in names.into_iter().filter(|it| it.kind() == "identifier") {
        let own = reader.text(name);
        if own == "__all__" {
            continue;
        }
        let mut signature = of.as_ref().map_or(own.to_owned(), |of| format!("{own}: {of}"));
        let is_alone = left.kind() == "identifier";
        if let Some(lambda) = right.filter(|it| is_alone && it.kind() == "lambda") {
            let header = reader.header(lambda, &["body", ":"]);
            signature.push_str(&format!(" = {header}"));
        }
        let exported = scope.exports(own);
        reader.add(kind, join(scope.name, ".", own), signature, exported, name);
    }
}

/// Reads what a module hands on: what `__all__` names, what is imported under its own name anew, and in an `__init__` what
/// comes from beside it.
fn imported(reader: &mut Reader<'_>, node: Node<'_>, scope: Scope<'_>) {
    let file = reader.path.rsplit('/').next().unwrap_or_default();
    let is_package = file.starts_with("__init__.py");
    let is_beside = reader.named(node, "module_name").starts_with('.');
    for (called, it) in reader.children(node) {
        let (name, is_anew) = match (called, it.kind()) {
            ("name", "aliased_import") => {
                let alias = reader.named(it, "alias");
                (alias, alias == reader.named(it, "name"))
            }
            ("name", _) => (reader.text(it), is_package && is_beside),
            (_, "wildcard_import") if is_package && is_beside => {
                let from = reader.named(node, "module_name");
                let signature = format!("from {from} import *");
                reader.add(SymbolKind::Reexport, format!("{from}.*"), signature, true, it);
                continue;
            }
            _ => continue,
        };
        let exported = scope.exports(name) && (is_anew || scope.all.is_some());
        reader.add(SymbolKind::Reexport, name, format!("import {name}"), exported, it);
    }
}
