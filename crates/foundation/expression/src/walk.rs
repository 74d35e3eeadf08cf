//! What stands in an expression: how deep it is, what it calls, and what it refers to.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

/// A path that an expression refers to: a name, and as many of its fields as are written out.
///
/// `tasks.build.text` and `tasks["build"].text` are the same path; `vars.list[0]` is `vars.list`. Names that a
/// `map`, `filter`, `all` or `exists` gives to what it looks at are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference(Vec<String>);

impl Reference {
    /// Returns the name and the fields. There is always a name.
    pub fn path(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    /// Returns the field of the name, if one is written out.
    pub fn field(&self) -> Option<&str> {
        self.0.get(1).map(String::as_str)
    }
}

/// Returns the parts of a node that are evaluated.
fn parts(tree: &IdedExpr) -> Vec<&IdedExpr> {
    fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
        match entry {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        }
    }
    match &tree.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Comprehension(turns) => vec![
            &turns.iter_range,
            &turns.accu_init,
            &turns.loop_cond,
            &turns.loop_step,
            &turns.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|one| entry(&one.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|one| entry(&one.expr)).collect(),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

/// Tells whether a node has more than `most` levels.
pub(crate) fn is_deeper_than(tree: &IdedExpr, most: usize) -> bool {
    let mut level = vec![tree];
    for _ in 0..most {
        level = level.into_iter().flat_map(parts).collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

/// Lists the names that are called, types that are made included.
pub(crate) fn calls(tree: &IdedExpr) -> Vec<&str> {
    let (mut open, mut found) = (vec![tree], Vec::new());
    while let Some(tree) = open.pop() {
        match &tree.expr {
            Expr::Call(call) => found.push(call.func_name.as_str()),
            Expr::Struct(made) => found.push(made.type_name.as_str()),
            _ => {}
        }
        open.extend(parts(tree).into_iter().rev());
    }
    found
}

/// Lists the paths that are referred to.
pub(crate) fn references(tree: &IdedExpr) -> Vec<Reference> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect<'a>(tree: &'a IdedExpr, bound: &mut Vec<&'a str>, found: &mut Vec<Reference>) {
    if let Some(path) = path(tree) {
        let is_bound = path
            .first()
            .is_some_and(|name| name.starts_with('@') || bound.iter().any(|bound| bound == name));
        let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
        if !is_bound && !found.iter().any(|known| known.0 == path) {
            found.push(Reference(path));
        }
        return;
    }
    if let Expr::Comprehension(turns) = &tree.expr {
        collect(&turns.iter_range, bound, found);
        collect(&turns.accu_init, bound, found);
        let before = bound.len();
        bound.extend([turns.iter_var.as_str(), turns.accu_var.as_str()]);
        bound.extend(turns.iter_var2.as_deref());
        for part in [&turns.loop_cond, &turns.loop_step, &turns.result] {
            collect(part, bound, found);
        }
        bound.truncate(before);
        return;
    }
    for part in parts(tree) {
        collect(part, bound, found);
    }
}

/// Returns the path that a node spells, if it spells one. Of one that goes on by an index that is no text,
/// the part before is told by its own node.
fn path(tree: &IdedExpr) -> Option<Vec<&str>> {
    match &tree.expr {
        Expr::Ident(name) => Some(vec![name.trim_start_matches('.')]),
        Expr::Select(select) => {
            let mut way = path(&select.operand)?;
            way.push(&select.field);
            Some(way)
        }
        Expr::Call(call) if call.func_name == cel::common::ast::operators::INDEX => {
            let [of, at] = call.args.as_slice() else { return None };
            let Expr::Literal(LiteralValue::String(name)) = &at.expr else { return None };
            let mut way = path(of)?;
            way.push(name.inner());
            Some(way)
        }
        _ => None,
    }
}
