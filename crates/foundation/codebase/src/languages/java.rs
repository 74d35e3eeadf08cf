//! Java: what is `public` or `protected`, in what is so as well; members of an interface are public.

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

use crate::reader::{Reader, join};

/// What declarations stand in.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    is_exported: bool,
    /// Whether members need not say that they are public.
    is_open: bool,
}

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    members(reader, root, Scope { name: "", is_exported: true, is_open: false });
}

fn members(reader: &mut Reader<'_>, body: Node<'_>, scope: Scope<'_>) {
    for (_, member) in reader.children(body) {
        let exported = scope.is_exported && is_exported(reader, member, scope);
        let name = join(scope.name, ".", reader.named(member, "name"));
        match member.kind() {
            "class_declaration" | "record_declaration" => {
                self::type_of(reader, member, &name, exported, false);
            }
            "interface_declaration" | "annotation_type_declaration" => {
                self::type_of(reader, member, &name, exported, true);
            }
            "enum_declaration" => self::type_of(reader, member, &name, exported, false),
            "method_declaration"
            | "constructor_declaration"
            | "compact_constructor_declaration"
            | "annotation_type_element_declaration" => {
                let signature = reader.header(member, &["body"]);
                reader.add(SymbolKind::Method, name, signature, exported, member);
            }
            "field_declaration" | "constant_declaration" => {
                let before = reader.header(member, &["declarator", ","]);
                for (called, declarator) in reader.children(member) {
                    if called == "declarator" {
                        let own = reader.header(declarator, &["value"]);
                        let name = join(scope.name, ".", reader.named(declarator, "name"));
                        let signature = format!("{before} {own}");
                        reader.add(SymbolKind::Field, name, signature, exported, declarator);
                    }
                }
            }
            "enum_constant" => {
                let own = reader.named(member, "name");
                reader.add(SymbolKind::Variant, name, own, scope.is_exported, member);
            }
            "enum_body_declarations" => reader.within(|reader| members(reader, member, scope)),
            _ => {}
        }
    }
}

fn type_of(reader: &mut Reader<'_>, item: Node<'_>, name: &str, is_exported: bool, is_open: bool) {
    let signature = reader.header(item, &["body"]);
    reader.add(SymbolKind::Type, name, signature, is_exported, item);
    if let Some(body) = item.child_by_field_name("body") {
        reader.within(|reader| members(reader, body, Scope { name, is_exported, is_open }));
    }
}

fn is_exported(reader: &Reader<'_>, member: Node<'_>, scope: Scope<'_>) -> bool {
    let mut children = reader.children(member).into_iter();
    let modifiers = children.find(|(_, it)| it.kind() == "modifiers").map(|(_, it)| it);
    let says = |word: &str| modifiers.is_some_and(|it| reader.has(it, word));
    says("public") || says("protected") || scope.is_open && !says("private")
}
