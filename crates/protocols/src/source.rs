//! What source code declares, and who can tell.

use std::fmt;

/// A language of source code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the languages go by their names")]
pub enum Language {
    C,
    Cpp,
    Go,
    Java,
    JavaScript,
    Python,
    Ruby,
    Rust,
    TypeScript,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 9] = [
        Self::C,
        Self::Cpp,
        Self::Go,
        Self::Java,
        Self::JavaScript,
        Self::Python,
        Self::Ruby,
        Self::Rust,
        Self::TypeScript,
    ];

    /// Returns its name, as it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Go => "Go",
            Self::Java => "Java",
            Self::JavaScript => "JavaScript",
            Self::Python => "Python",
            Self::Ruby => "Ruby",
            Self::Rust => "Rust",
            Self::TypeScript => "TypeScript",
        }
    }

    /// Tells whether what is declared in one may be declared in the other instead: the same language, C and C++, or
    /// JavaScript and TypeScript.
    pub fn is_kin(self, other: Self) -> bool {
        let kin = |language| match language {
            Self::Cpp => Self::C,
            Self::TypeScript => Self::JavaScript,
            language => language,
        };
        kin(self) == kin(other)
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// What it is.
    pub kind: SymbolKind,
    /// Its name with those of what it stands in, as its language writes them: `shapes::Circle::area`, `Circle.area`.
    pub name: String,
    /// What whoever uses it relies on: its declaration without its body, its comments and how it is laid out.
    pub signature: String,
    /// Whether code elsewhere may use it, by the rules of its language.
    pub exported: bool,
    /// The line that it begins in, from 1.
    pub line: u64,
}

/// What a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SymbolKind {
    /// A constant, a variable or a static.
    Constant,
    /// A field, a property or an attribute.
    Field,
    /// A function.
    Function,
    /// A macro.
    Macro,
    /// A function of a type.
    Method,
    /// A module or a namespace.
    Module,
    /// Another name for what is declared elsewhere.
    Reexport,
    /// A type: a struct, a class, an interface, a trait, an alias.
    Type,
    /// One value of an enumeration.
    Variant,
}

impl SymbolKind {
    /// Returns its name, as it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Field => "field",
            Self::Function => "function",
            Self::Macro => "macro",
            Self::Method => "method",
            Self::Module => "module",
            Self::Reexport => "re-export",
            Self::Type => "type",
            Self::Variant => "variant",
        }
    }
}

/// Why it cannot be told what a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Unreadable {
    /// No grammar is known for such a file.
    UnknownLanguage,
    /// It is no text: its bytes are no UTF-8, or hold a zero.
    Binary,
    /// It has more bytes than are read.
    TooLarge { bytes: u64, limit: u64 },
    /// It does not follow the grammar of its language, first at this line.
    Syntax { language: Language, line: u64 },
    /// Reading it takes more steps, or goes deeper, than is allowed.
    TooIntricate,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLanguage => f.write_str("its language is not known"),
            Self::Binary => f.write_str("it is no text"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "it has {bytes} bytes, and {limit} are read")
            }
            Self::Syntax { language, line } => {
                write!(f, "line {line} is not understood as {language}")
            }
            Self::TooIntricate => f.write_str("it takes too many steps to read"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// What has to declare a file for others to reach what it declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The module that the file is.
    pub name: String,
    /// The files one of which declares it.
    pub by: Vec<String>,
}

/// Tells what files declare, by their text alone. Nothing of it waits; the text may hold anything.
pub trait Symbols: Send + Sync {
    /// Tells which language a file is in, by its path; nothing where it is none that is known.
    fn language(&self, path: &str) -> Option<Language>;

    /// Tells what has to declare a file; nothing where it is reached by its own name, which is so unless a language says
    /// otherwise.
    fn place(&self, path: &str) -> Option<Place> {
        let _ = path;
        None
    }

    /// Lists what the file at `path` declares, in the order of the text. One that does not follow its grammar declares
    /// nothing that could be relied on.
    ///
    /// # Errors
    /// [`Unreadable`]: why that cannot be told.
    fn symbols(&self, path: &str, text: &[u8]) -> Result<Vec<Symbol>, Unreadable>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_kin_where_one_goes_over_into_the_other() {
        let kin: Vec<(Language, Language)> = Language::ALL
            .into_iter()
            .flat_map(|one| Language::ALL.map(|other| (one, other)))
            .filter(|(one, other)| one < other && one.is_kin(*other))
            .collect();

        assert_eq!(
            kin,
            [(Language::C, Language::Cpp), (Language::JavaScript, Language::TypeScript)]
        );
        assert!(Language::ALL.into_iter().all(|one| one.is_kin(one)));
    }
}
