//! Go: what begins with a capital letter, unless it is a method of a type that does not, or stands in a test.

use formwork_protocols::source::SymbolKind;
use tree_sitter::Node;

use crate::reader::{Reader, join};

pub(super) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    for (_, item) in reader.children(root) {
        match item.kind() {
            "function_declaration" => {
                let name = reader.named(item, "name");
                let signature = reader.header(item, &["body"]);
                let exported = is_exported(reader, name);
                reader.add(SymbolKind::Function, name, signature, exported, item);
            }
            "method_declaration" => method(reader, item),
            "type_declaration" => {
                for (_, spec) in reader.children(item) {
                    if matches!(spec.kind(), "type_spec" | "type_alias") {
                        self::spec(reader, spec);
                    }
                }
            }
            "const_declaration" | "var_declaration" => values(reader, item, item),
            _ => {}
        }
    }
}

/// Nobody can import what stands in a test.
fn is_exported(reader: &Reader<'_>, name: &str) -> bool {
    name.starts_with(char::is_uppercase) && !reader.path.ends_with("_test.go")
}

fn method(reader: &mut Reader<'_>, item: Node<'_>) {
    let receiver = reader.named(item, "receiver");
    // `(c *Circle[T])` names Circle.
    let inner = receiver.trim_matches(|c: char| matches!(c, '(' | ')' | ',') || c.is_whitespace());
    let inner = inner.split('[').next().unwrap_or_default();
    let of = inner.rsplit(|c: char| !c.is_alphanumeric() && c != '_');
    let of = of.clone().find(|it| !it.is_empty()).unwrap_or_default();
    let name = reader.named(item, "name");
    let exported = is_exported(reader, name) && is_exported(reader, of);
    // What the receiver is called is the body's matter.
    let receiver = item.child_by_field_name("receiver").map(|it| reader.children(it));
    let declared = receiver.into_iter().flatten().map(|(_, it)| reader.named_whole(it, "type"));
    let of_type = declared.collect::<String>();
    let rest = reader.header(item, &["func", "receiver", "body"]);
    let signature = format!("func ({of_type}) {rest}");
    reader.add(SymbolKind::Method, join(of, ".", name), signature, exported, item);
}

fn spec(reader: &mut Reader<'_>, spec: Node<'_>) {
    let name = reader.named(spec, "name");
    let exported = is_exported(reader, name);
    let Some(of) = spec.child_by_field_name("type") else { return };
    let kind = SymbolKind::Type;
    match of.kind() {
        "struct_type" => {
            let signature = format!("type {} struct", reader.header(spec, &["type"]));
            reader.add(kind, name, signature, exported, spec);
            for (_, list) in reader.children(of) {
                for (_, field) in reader.children(list) {
                    if field.kind() == "field_declaration" {
                        self::field(reader, field, name, exported);
                    }
                }
            }
        }
        "interface_type" => {
            // What has to be there is all that an interface says.
            let mut elements: Vec<String> = Vec::new();
            for (_, element) in reader.children(of).into_iter().filter(|(_, it)| it.is_named()) {
                match element.kind() {
                    "method_elem" => {
                        let own = reader.named(element, "name");
                        let signature = reader.header(element, &[]);
                        let exported = exported && is_exported(reader, own);
                        let name = join(name, ".", own);
                        reader.add(SymbolKind::Method, name, signature, exported, element);
                    }
                    _ => elements.push(reader.whole(element)),
                }
            }
            let of = match elements.is_empty() {
                true => String::new(),
                false => format!(" {{ {} }}", elements.join("; ")),
            };
            let signature = format!("type {} interface{of}", reader.header(spec, &["type"]));
            reader.add(kind, name, signature, exported, spec);
        }
        _ => {
            let signature = format!("type {}", reader.header(spec, &[]));
            reader.add(kind, name, signature, exported, spec);
        }
    }
}

fn field(reader: &mut Reader<'_>, field: Node<'_>, within: &str, exported: bool) {
    let children = reader.children(field);
    let names: Vec<&str> = children
        .iter()
        .filter(|(called, _)| *called == "name")
        .map(|(_, it)| reader.text(*it))
        .collect();
    let of = reader.header(field, &["name", "tag", ","]);
    // One that is embedded goes by the name of its type.
    let embedded = of.rsplit('.').next().unwrap_or_default();
    let embedded = embedded.split('[').next().unwrap_or_default().trim_start_matches('*');
    let is_embedded = names.is_empty();
    let names = if is_embedded { vec![embedded] } else { names };
    for name in names {
        let exported = exported && is_exported(reader, name);
        let signature = if is_embedded { of.clone() } else { format!("{name} {of}") };
        reader.add(SymbolKind::Field, join(within, ".", name), signature, exported, field);
    }
}

fn values(reader: &mut Reader<'_>, list: Node<'_>, item: Node<'_>) {
    let word = if item.kind() == "const_declaration" { "const" } else { "var" };
    for (_, spec) in reader.children(list) {
        if spec.kind() == "var_spec_list" {
            reader.within(|reader| values(reader, spec, item));
        }
        if !matches!(spec.kind(), "const_spec" | "var_spec") {
            continue;
        }
        let of = spec.child_by_field_name("type").map(|it| reader.whole(it));
        for (called, name) in reader.children(spec) {
            if called == "name" && name.kind() == "identifier" {
                let text = reader.text(name);
                let signature = match &of {
                    Some(of) => format!("{word} {text} {of}"),
                    None => format!("{word} {text}"),
                };
                let exported = is_exported(reader, text);
                reader.add(SymbolKind::Constant, text, signature, exported, name);
            }
        }
    }
}
