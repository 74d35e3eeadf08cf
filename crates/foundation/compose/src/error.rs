//! Why a prompt could not be composed.

use std::fmt;

/// Why a prompt could not be composed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The text is not a template.
    #[error("{template}:{line}:{column}: {reason}")]
    Syntax { template: String, line: usize, column: usize, reason: String },
    /// The template or its output is larger than a prompt ever is.
    #[error("template {template:?} has {found} {unit}, at most {limit} are allowed")]
    TooLarge { template: String, found: usize, limit: usize, unit: &'static str },
    /// Rendering went on for longer than a prompt ever takes.
    #[error("template {template:?} was stopped after {limit} steps")]
    TooManySteps { template: String, limit: usize },
    /// A template of that name exists already.
    #[error("template {template:?} exists already")]
    Duplicate { template: String },
    /// Templates include each other in a circle.
    #[error("templates include each other: {}", circle.join(" -> "))]
    Cycle { circle: Vec<String> },
    /// The template and its variables do not fit together; all reasons at once.
    #[error("{}", Lines(faults))]
    Faults { faults: Vec<Fault> },
    /// Two fragments have the same name, so that their order would be left to chance.
    #[error("two fragments are named {name:?}")]
    DuplicateFragment { name: String },
}

/// One place where a template and its variables do not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The template at fault.
    pub template: String,
    /// The line, counted from one; nothing where the fault is that something is absent.
    pub line: Option<usize>,
    /// The column in characters, counted from one.
    pub column: Option<usize>,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at a place of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Problem {
    /// The template names a variable that is not there.
    #[error("unresolved variable {name:?}{}", Hint(hint))]
    Unresolved { name: String, hint: Option<String> },
    /// A variable is supplied that the template never names.
    #[error("variable {name:?} is supplied but never used{}", Hint(hint))]
    Unused { name: String, hint: Option<String> },
    /// The template includes one that is not there.
    #[error("no template {name:?} to include{}", Hint(hint))]
    UnknownInclude { name: String, hint: Option<String> },
    /// A loop needs a list or a table.
    #[error("each needs a list or a table, {name:?} is {found}")]
    NotAList { name: String, found: &'static str },
    /// Only variables, `if`, `each`, includes and comments are allowed.
    #[error("{found} is not supported in a prompt; variables, if, each, includes and comments are")]
    Unsupported { found: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.template)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

struct Hint<'a>(&'a Option<String>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

struct Lines<'a>(&'a [Fault]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}
