//! Why an expression does not parse, or has no value.

/// Why an expression does not parse, or has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// It is no expression. Lines and columns are counted from 1, columns in characters.
    #[error("not an expression at line {line}, column {column}: {reason}")]
    Syntax { line: usize, column: usize, reason: String },
    /// It is longer than an expression may be.
    #[error("an expression has at most {most} bytes, found {found}")]
    TooLong { most: usize, found: usize },
    /// It is nested deeper than an expression may be.
    #[error("an expression is nested at most {most} levels deep")]
    TooDeep { most: usize },
    /// It calls what does not exist.
    #[error("there is no function {name}")]
    NoSuchFunction { name: String },
    /// What it would look at is too much.
    #[error("an expression looks at no more than {most} bytes, found {found}")]
    TooMuch { most: usize, found: usize },
    /// It takes too many steps, or makes too much.
    #[error("it takes too many steps or makes too much: more than {most} altogether")]
    TooDear { most: u64 },
    /// It has no value: a key is missing, two types do not go together, a number is too large.
    #[error("{reason}")]
    NoValue { reason: String },
    /// It has a value of another type than was wanted.
    #[error("its value is {found}, wanted {wanted}")]
    WrongType { found: &'static str, wanted: &'static str },
}
