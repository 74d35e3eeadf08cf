//! An expression: parsed once, evaluated as often as wanted.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
    thread,
};

use cel::{Context, Env, parser::Expression as Tree};
use serde_json::{Map, Value};

use crate::{
    error::Error,
    fuel::{self, FUEL},
    functions,
    value::{self, MAX_SEEN},
    walk::{self, Reference},
};

/// The most bytes of an expression. A condition of a workflow takes a line or two.
pub const MAX_BYTES: usize = 2_000;

/// The most levels of brackets while it is parsed.
const MAX_BRACKETS: u16 = 32;

/// The most levels of what was parsed; a chain of a hundred and more `+` is one.
const MAX_DEPTH: usize = 256;

/// The stack of the thread that parses or evaluates. Twenty levels of brackets take more than two MiB in a program that
/// was built without optimisation, and what is never touched is never given.
const STACK: usize = 64 * 1024 * 1024;

/// How much of what the engine says of a fault is passed on: it may repeat the values that it met.
const MAX_REASON: usize = 300;

static ENV: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(false)));

/// An expression that parses and calls only what exists. Clones share it.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    tree: Arc<Tree>,
    references: Arc<[Reference]>,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`Error`] where it is none, is too long or too deep, or calls what does not exist.
    pub fn parse(source: &str) -> Result<Self, Error> {
        if source.len() > MAX_BYTES {
            return Err(Error::TooLong { most: MAX_BYTES, found: source.len() });
        }
        if source.trim().is_empty() {
            let reason = "it is empty".to_owned();
            return Err(Error::Syntax { line: 1, column: 1, reason });
        }
        let (tree, references) = apart(|| {
            let mut tree = ENV
                .parser()
                .max_recursion_depth(MAX_BRACKETS)
                .parse(source)
                .map_err(|errors| syntax(&errors))?;
            if walk::is_deeper_than(&tree, MAX_DEPTH) {
                return Err(Error::TooDeep { most: MAX_DEPTH });
            }
            for name in walk::calls(&tree) {
                if !functions::is_known(name) {
                    return Err(Error::NoSuchFunction { name: name.to_owned() });
                }
            }
            let references = walk::references(&tree);
            fuel::meter(&mut tree);
            Ok((tree, references))
        })?;
        Ok(Self { source: source.into(), tree: Arc::new(tree), references: references.into() })
    }

    /// Returns it as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Lists what it refers to, in the order in which it is written, each path once.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        self.references.iter()
    }

    /// Returns its value over these names.
    ///
    /// # Errors
    /// [`Error::NoValue`] where it has none, [`Error::TooMuch`] and [`Error::TooDear`] beyond the bounds.
    pub fn evaluate(&self, known: &Map<String, Value>) -> Result<Value, Error> {
        let found = known.values().map(value::size).fold(0, usize::saturating_add);
        if found > MAX_SEEN {
            return Err(Error::TooMuch { most: MAX_SEEN, found });
        }
        apart(|| {
            let mut context = Context::with_env(Arc::clone(&ENV));
            let fuel = functions::add(&mut context);
            for (name, seen) in known {
                context.add_variable_from_value(name.as_str(), value::to_cel(seen));
            }
            match context.resolve(&self.tree) {
                Ok(found) => value::from_cel(&found),
                Err(_) if fuel.is_empty() => Err(Error::TooDear { most: FUEL }),
                Err(error) => {
                    let reason = one_line(&error.to_string());
                    Err(Error::NoValue { reason })
                }
            }
        })
    }

    /// Tells whether it is true over these names.
    ///
    /// # Errors
    /// Those of [`Expression::evaluate`], and [`Error::WrongType`] where its value is neither true nor false.
    pub fn test(&self, known: &Map<String, Value>) -> Result<bool, Error> {
        match self.evaluate(known)? {
            Value::Bool(holds) => Ok(holds),
            other => {
                let found = value::type_name(&other);
                Err(Error::WrongType { found, wanted: "true or false" })
            }
        }
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// Does something on a stack that is deep enough for it, and takes a panic of the engine for an error.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let broken = |what: &str| Err(Error::NoValue { reason: format!("the engine {what}") });
    thread::scope(|scope| {
        let caught = || catch_unwind(AssertUnwindSafe(work));
        let Ok(running) = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, caught)
        else {
            return broken("cannot be given a thread");
        };
        match running.join() {
            Ok(Ok(done)) => done,
            Ok(Err(_)) | Err(_) => broken("failed on it"),
        }
    })
}

/// Says where the first fault is, and what it is, without the parser's words about itself.
fn syntax(errors: &cel::ParseErrors) -> Error {
    let Some(first) = errors.errors.first() else {
        return Error::Syntax { line: 1, column: 1, reason: "it does not parse".to_owned() };
    };
    if first.msg.contains("Recursion limit") {
        return Error::TooDeep { most: MAX_BRACKETS.into() };
    }
    let place = |at: isize| usize::try_from(at).unwrap_or(1).max(1);
    let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    // The list of all that could have stood there helps nobody.
    let message = message.split(" expecting {").next().unwrap_or(message);
    let message = message.replace("'<EOF>'", "the end").replace("<EOF>", "the end");
    Error::Syntax {
        line: place(first.pos.0),
        column: place(first.pos.1),
        reason: one_line(&message),
    }
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    formwork_protocols::text::head(&words, MAX_REASON).to_owned()
}
