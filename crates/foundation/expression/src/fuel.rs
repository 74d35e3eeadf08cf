//! How many steps an expression takes and how much it makes: each turn of a `map`, `filter`, `all` or `exists` costs,
//! and what it makes costs by its size.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cel::{
    ExecutionError, Value,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, operators},
};

/// What an expression may use up: a hundred thousand turns, or that many small values.
/// Measured without optimisation they take a third of a second.
pub(crate) const FUEL: u64 = 100_000;

/// So many bytes of a text cost as much as a turn.
const BYTES: u64 = 64;

/// The name of the function that counts. No expression can call it: it is no name of the language.
pub(crate) const TICK: &str = "@tick";

/// The name of our own `matches`, which stands in for the engine's: that one reads its pattern anew each time.
pub(crate) const MATCHES: &str = "@matches";

/// What goes through all that it is given, and so costs by the size of that.
const BY_SIZE: &[&str] = &[
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    "bytes",
    "contains",
    "endsWith",
    "lines",
    "matches",
    "size",
    "split",
    "startsWith",
    "string",
    "trim",
];

/// What is left.
#[derive(Debug, Clone)]
pub(crate) struct Fuel(Arc<AtomicU64>);

impl Fuel {
    pub(crate) fn full() -> Self {
        Self(Arc::new(AtomicU64::new(FUEL)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Pays for a turn and for what it made, or is given.
    pub(crate) fn burn(&self, made: Value) -> Result<Value, ExecutionError> {
        self.pay(cost(&made))?;
        Ok(made)
    }

    /// Pays for what is about to be done.
    pub(crate) fn pay(&self, cost: u64) -> Result<(), ExecutionError> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(cost);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 {
            return Err(ExecutionError::function_error("tick", "too many steps"));
        }
        Ok(())
    }
}

fn cost(value: &Value) -> u64 {
    let bytes = |count: usize| 1 + count as u64 / BYTES;
    match value {
        Value::List(list) => list.iter().map(cost).fold(1, u64::saturating_add),
        Value::Map(map) => {
            map.map.values().map(|value| 1 + cost(value)).fold(1, u64::saturating_add)
        }
        Value::String(text) => bytes(text.len()),
        Value::Bytes(raw) => bytes(raw.len()),
        _ => 1,
    }
}

/// Puts a meter into each turn of an expression.
pub(crate) fn meter(tree: &mut IdedExpr) {
    match &mut tree.expr {
        Expr::Comprehension(turns) => meter_turns(turns),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| meter(target));
            call.args.iter_mut().for_each(meter);
            if BY_SIZE.contains(&call.func_name.as_str()) {
                let given = call.target.iter_mut().map(|target| &mut **target);
                given.chain(&mut call.args).filter(|given| !is_own(given)).for_each(wrap);
            }
            if call.func_name == "matches" {
                MATCHES.clone_into(&mut call.func_name);
            }
            // Texts and lists that are put together grow as fast as they are written down.
            let is_step = call.args.first().is_some_and(is_own);
            if call.func_name == operators::ADD && !is_step {
                wrap(tree);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(meter),
        Expr::Select(select) => meter(&mut select.operand),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr)),
        Expr::Struct(made) => {
            made.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr));
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

fn meter_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => meter(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            meter(&mut entry.key);
            meter(&mut entry.value);
        }
    }
}

fn meter_turns(turns: &mut ComprehensionExpr) {
    for part in [
        &mut turns.iter_range,
        &mut turns.accu_init,
        &mut turns.loop_cond,
        &mut turns.loop_step,
        &mut turns.result,
    ] {
        meter(part);
    }
    // The engine builds a list in one go where it knows the form of a step, so that form has to stay: only
    // what is added to the list is wrapped, and the condition of a filter.
    if !meter_list(&mut turns.loop_step, &turns.accu_var) {
        wrap(&mut turns.loop_cond);
    }
}

/// Meters a step of the form `made + [one]`, or `condition ? made + [one] : made`.
fn meter_list(step: &mut IdedExpr, made: &str) -> bool {
    let Expr::Call(call) = &mut step.expr else { return false };
    match (call.func_name.as_str(), call.args.as_mut_slice()) {
        (operators::CONDITIONAL, [condition, step, _]) => {
            let is_list = meter_list(step, made);
            if is_list {
                wrap(condition);
            }
            is_list
        }
        (operators::ADD, [before, added]) => match (&before.expr, &mut added.expr) {
            (Expr::Ident(name), Expr::List(list)) if name == made => {
                list.elements.iter_mut().for_each(wrap);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// Tells whether it is a name of the engine's own, by which it knows the form of a turn.
fn is_own(tree: &IdedExpr) -> bool {
    matches!(&tree.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn wrap(tree: &mut IdedExpr) {
    let id = tree.id;
    let inner = std::mem::take(tree);
    let call = CallExpr { func_name: TICK.to_owned(), target: None, args: vec![inner] };
    *tree = IdedExpr { id, expr: Expr::Call(call) };
}
