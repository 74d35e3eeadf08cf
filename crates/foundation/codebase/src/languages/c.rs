//! C and C++: what is not `static` and stands in no namespace without a name; of a class what is public or protected. A
//! definition under a qualified name is declared elsewhere, and that is what others see.

mod tokens; // A text as its words.
mod unseen; // What the grammar is not shown.

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

pub(crate) use self::unseen::without;
use crate::{
    reader::{Reader, join},
    signature::{self, Words},
};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
    is_class: bool,
    /// The `template` that stands before it.
    before: &'a str,
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    items(reader, root, Scope { name: "", is_exported: true, is_class: false, before: "" });
}

fn items(reader: &mut Reader<'_>, body: Node<'_>, scope: Scope<'_>) {
    let mut access = scope.is_exported;
    for (_, item) in reader.children(body) {
        if item.kind() == "access_specifier" {
            access = scope.is_exported && !reader.text(item).starts_with("private");
            continue;
        }
        self::item(reader, item, Scope { is_exported: access, ..scope });
    }
}

fn item(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>) {
    match item.kind() {
        "function_definition" | "declaration" | "field_declaration" => {
            declared(reader, item, scope);
        }
        "type_definition" => {
            if let Some(of) = item.child_by_field_name("type") {
                type_of(reader, of, item, scope);
            }
            for declarator in declarators(reader, item) {
                let mut words = before(reader, item, declarator);
                signature::write(declarator, reader.source(), &mut words);
                let own = own_name(reader, declarator);
                add(reader, SymbolKind::Type, own, &words.end(), scope, item);
            }
        }
        "struct_specifier" | "union_specifier" | "class_specifier" | "enum_specifier" => {
            type_of(reader, item, item, scope);
        }
        "namespace_definition" => {
            let own = reader.named(item, "name").split_whitespace().collect::<String>();
            let is_exported = scope.is_exported && !own.is_empty();
            let name = join(scope.name, "::", &own);
            body_of(reader, item, Scope { name: &name, is_exported, ..scope });
        }
        "linkage_specification" => {
            let Some(body) = item.child_by_field_name("body") else { return };
            match body.kind() {
                "declaration_list" => reader.within(|reader| items(reader, body, scope)),
                _ => reader.within(|reader| self::item(reader, body, scope)),
            }
        }
        "template_declaration" => {
            let parameters = item.child_by_field_name("parameters");
            let parameters = parameters.map(|it| reader.whole(it)).unwrap_or_default();
            let mut before = format!("{}template{parameters} ", scope.before);
            for (called, inner) in reader.children(item) {
                match inner.kind() {
                    "requires_clause" => before.push_str(&format!("{} ", reader.whole(inner))),
                    _ if called == "parameters" || !inner.is_named() => {}
                    _ => reader.within(|reader| {
                        self::item(reader, inner, Scope { before: &before, ..scope });
                    }),
                }
            }
        }
        "alias_declaration" | "concept_definition" => {
            let signature = reader.header(item, &[]);
            let own = reader.named(item, "name");
            add(reader, SymbolKind::Type, own, &signature, scope, item);
        }
        "using_declaration" => {
            let text = reader.whole(item);
            let own = text.rsplit([':', ' ']).next().unwrap_or_default();
            let is_all = text.starts_with("using namespace");
            if !is_all {
                add(reader, SymbolKind::Reexport, own, &format!("using {own}"), scope, item);
            }
        }
        "preproc_def" | "preproc_function_def" => {
            // One without a value marks that a header was read.
            let is_header =
                reader.path.rsplit('.').next().is_some_and(|it| it.starts_with(['h', 'H']));
            if is_header && item.child_by_field_name("value").is_some() {
                let own = reader.named(item, "name");
                let parameters = item.child_by_field_name("parameters");
                let parameters = parameters.map(|it| reader.whole(it)).unwrap_or_default();
                let signature = format!("#define {own}{parameters}");
                reader.add(SymbolKind::Macro, own, signature, true, item);
            }
        }
        // What is declared on a condition is declared.
        "preproc_ifdef" | "preproc_if" | "preproc_else" | "preproc_elif" | "preproc_elifdef" => {
            reader.within(|reader| items(reader, item, scope));
        }
        _ => {}
    }
}

fn body_of(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>) {
    if let Some(body) = item.child_by_field_name("body") {
        reader.within(|reader| items(reader, body, scope));
    }
}

fn add(
    reader: &mut Reader<'_>,
    kind: SymbolKind,
    own: &str,
    signature: &str,
    scope: Scope<'_>,
    node: Node<'_>,
) {
    if !own.is_empty() {
        let name = join(scope.name, "::", own);
        let signature = format!("{}{signature}", scope.before);
        reader.add(kind, name, signature, scope.is_exported, node);
    }
}

/// How many names one declaration may declare. What each says is put together anew, from all that is beside it.
const MOST_DECLARED: usize = 1_024;

/// Lists what one declaration declares; nothing where that is too much to be looked at.
fn declarators<'n>(reader: &mut Reader<'_>, item: Node<'n>) -> Vec<Node<'n>> {
    let children = reader.children(item).into_iter();
    let found: Vec<Node<'n>> =
        children.filter(|(called, _)| *called == "declarator").map(|(_, it)| it).collect();
    if found.len() > MOST_DECLARED {
        reader.give_up();
        return Vec::new();
    }
    found
}

/// Reads functions, variables and fields, and the type that they are declared with.
fn declared(reader: &mut Reader<'_>, item: Node<'_>, scope: Scope<'_>) {
    if let Some(of) = item.child_by_field_name("type") {
        type_of(reader, of, item, scope);
    }
    let is_static = {
        let mut children = reader.children(item).into_iter();
        let own = |(_, it): (_, Node<'_>)| {
            it.kind() == "storage_class_specifier" && reader.text(it) == "static"
        };
        children.any(own)
    };
    for declarator in declarators(reader, item) {
        let bare = match declarator.kind() {
            "init_declarator" => declarator.child_by_field_name("declarator").unwrap_or(declarator),
            _ => declarator,
        };
        let own = own_name(reader, bare);
        let is_function = is_function(bare);
        let kind = match (is_function, scope.is_class) {
            (true, true) => SymbolKind::Method,
            (true, false) => SymbolKind::Function,
            (false, true) => SymbolKind::Field,
            (false, false) => SymbolKind::Constant,
        };
        let mut words = before(reader, item, declarator);
        signature::write(bare, reader.source(), &mut words);
        for (called, part) in reader.children(item) {
            let says = matches!(
                part.kind(),
                "default_method_clause" | "delete_method_clause" | "pure_virtual_clause"
            );
            if says {
                signature::write(part, reader.source(), &mut words);
            } else if called == "default_value" && is_function {
                words.push("=");
                words.push(reader.text(part));
            }
        }
        let signature = words.end();
        // A static member belongs to its class; what is qualified is declared elsewhere.
        let is_own = scope.is_class || !is_static;
        let is_exported = scope.is_exported && is_own && !own.contains("::");
        add(reader, kind, own, &signature, Scope { is_exported, ..scope }, bare);
    }
}

/// Returns what stands before a declarator; what a type holds is told apart.
fn before(reader: &Reader<'_>, item: Node<'_>, declarator: Node<'_>) -> Words {
    let mut words = Words::new(reader.grammar);
    for (called, part) in reader.children(item) {
        match (called, part.kind()) {
            ("body" | "value" | "default_value" | "declarator", _)
            | (_, "field_initializer_list" | "," | ";" | "=") => {}
            ("type", _) if part.child_by_field_name("body").is_some() => {
                reader.write(part, &["body"], &mut words);
            }
            _ if part.start_byte() > declarator.start_byte() => {}
            _ => signature::write(part, reader.source(), &mut words),
        }
    }
    words
}

/// Reads a type with its members, where this is where it is defined.
fn type_of(reader: &mut Reader<'_>, node: Node<'_>, whole: Node<'_>, scope: Scope<'_>) {
    let is_type = matches!(
        node.kind(),
        "struct_specifier" | "union_specifier" | "class_specifier" | "enum_specifier"
    );
    let Some(body) = node.child_by_field_name("body").filter(|_| is_type) else { return };
    let mut own = reader.named(node, "name").to_owned();
    if own.is_empty() && whole.kind() == "type_definition" {
        // One without a name goes by that which it is given.
        let named = whole.child_by_field_name("declarator");
        own = named.map(|it| own_name(reader, it).to_owned()).unwrap_or_default();
    } else if !own.is_empty() {
        let signature = reader.header(node, &["body"]);
        add(reader, SymbolKind::Type, &own, &signature, scope, node);
    }
    // What a C enumeration holds stands beside it.
    let is_enum = node.kind() == "enum_specifier";
    let is_scoped =
        reader.children(node).iter().any(|(_, it)| matches!(it.kind(), "class" | "struct"));
    let name = match is_enum && !is_scoped {
        true => scope.name.to_owned(),
        false => join(scope.name, "::", &own),
    };
    if is_enum {
        let scope = Scope { name: &name, before: "", ..scope };
        for (_, it) in reader.children(body) {
            if it.kind() == "enumerator" {
                let own = reader.named(it, "name");
                add(reader, SymbolKind::Variant, own, own, scope, it);
            }
        }
        return;
    }
    // Members of a class are private until something else is said.
    let inner = Scope { name: &name, is_class: true, before: "", ..scope };
    reader.within(|reader| {
        let mut access = scope.is_exported && node.kind() != "class_specifier";
        for (_, member) in reader.children(body) {
            if member.kind() == "access_specifier" {
                access = scope.is_exported && !reader.text(member).starts_with("private");
                continue;
            }
            item(reader, member, Scope { is_exported: access, ..inner });
        }
    });
}

/// Returns the name that a declarator declares.
fn own_name<'t>(reader: &Reader<'t>, declarator: Node<'_>) -> &'t str {
    let mut at = declarator;
    loop {
        match at.kind() {
            "identifier"
            | "field_identifier"
            | "type_identifier"
            | "qualified_identifier"
            | "destructor_name"
            | "operator_name"
            | "template_function" => return reader.text(at),
            "operator_cast" => {
                let text = reader.text(at);
                return text.split('(').next().unwrap_or(text).trim();
            }
            _ => {}
        }
        let inner = at.child_by_field_name("declarator").or_else(|| {
            let children = reader.children(at).into_iter().map(|(_, it)| it);
            children
                .filter(|it| it.is_named())
                .find(|it| it.kind().ends_with("declarator") || it.kind().ends_with("identifier"))
        });
        match inner {
            Some(inner) => at = inner,
            None => return "",
        }
    }
}

/// Tells whether what is declared is called; a pointer to a function is not.
fn is_function(declarator: Node<'_>) -> bool {
    let mut at = declarator;
    loop {
        match at.kind() {
            "operator_cast" => return true,
            "function_declarator" => {
                let inner = at.child_by_field_name("declarator");
                return inner.is_some_and(|it| it.kind() != "parenthesized_declarator");
            }
            "pointer_declarator" | "reference_declarator" => {}
            _ => return false,
        }
        let inner = at.child_by_field_name("declarator").or_else(|| at.named_child(0));
        match inner {
            Some(inner) => at = inner,
            None => return false,
        }
    }
}
