//! Which grammar a file follows.

use formwork_protocols::source::Language;

/// A grammar; a language may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    C,
    Cpp,
    Go,
    Java,
    JavaScript,
    Python,
    Ruby,
    Rust,
    Tsx,
    TypeScript,
}

impl Grammar {
    /// Returns the grammars that a file may follow by the end of its name, as far as they are built in, the likeliest first.
    pub(crate) fn of(path: &str) -> Vec<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some((_, extension)) = name.rsplit_once('.') else { return Vec::new() };
        let found: &[Self] = match extension.to_ascii_lowercase().as_str() {
            "c" if extension == "c" => &[Self::C],
            // Some write C++ so, and some shout.
            "c" => &[Self::Cpp, Self::C],
            // A header does not say whose it is.
            "h" => &[Self::C, Self::Cpp],
            "cc" | "cpp" | "cxx" | "c++" | "hh" | "hpp" | "hxx" | "h++" | "ipp" => &[Self::Cpp],
            "go" => &[Self::Go],
            "java" => &[Self::Java],
            "js" | "mjs" | "cjs" | "jsx" => &[Self::JavaScript],
            "py" | "pyi" => &[Self::Python],
            "rb" => &[Self::Ruby],
            "rs" => &[Self::Rust],
            "tsx" => &[Self::Tsx],
            "ts" | "mts" | "cts" => &[Self::TypeScript],
            _ => &[],
        };
        found.iter().copied().filter(|grammar| grammar.is_built_in()).collect()
    }

    const fn is_built_in(self) -> bool {
        match self {
            Self::C => cfg!(feature = "c"),
            Self::Cpp => cfg!(feature = "cpp"),
            Self::Go => cfg!(feature = "go"),
            Self::Java => cfg!(feature = "java"),
            Self::JavaScript => cfg!(feature = "javascript"),
            Self::Python => cfg!(feature = "python"),
            Self::Ruby => cfg!(feature = "ruby"),
            Self::Rust => cfg!(feature = "rust"),
            Self::Tsx | Self::TypeScript => cfg!(feature = "typescript"),
        }
    }

    pub(crate) const fn language(self) -> Language {
        match self {
            Self::C => Language::C,
            Self::Cpp => Language::Cpp,
            Self::Go => Language::Go,
            Self::Java => Language::Java,
            Self::JavaScript => Language::JavaScript,
            Self::Python => Language::Python,
            Self::Ruby => Language::Ruby,
            Self::Rust => Language::Rust,
            Self::Tsx | Self::TypeScript => Language::TypeScript,
        }
    }

    /// Returns what a parser reads by; nothing where it is not built in.
    pub(crate) fn parser(self) -> Option<tree_sitter::Language> {
        match self {
            #[cfg(feature = "c")]
            Self::C => Some(tree_sitter_c::LANGUAGE.into()),
            #[cfg(feature = "cpp")]
            Self::Cpp => Some(tree_sitter_cpp::LANGUAGE.into()),
            #[cfg(feature = "go")]
            Self::Go => Some(tree_sitter_go::LANGUAGE.into()),
            #[cfg(feature = "java")]
            Self::Java => Some(tree_sitter_java::LANGUAGE.into()),
            #[cfg(feature = "javascript")]
            Self::JavaScript => Some(tree_sitter_javascript::LANGUAGE.into()),
            #[cfg(feature = "python")]
            Self::Python => Some(tree_sitter_python::LANGUAGE.into()),
            #[cfg(feature = "ruby")]
            Self::Ruby => Some(tree_sitter_ruby::LANGUAGE.into()),
            #[cfg(feature = "rust")]
            Self::Rust => Some(tree_sitter_rust::LANGUAGE.into()),
            #[cfg(feature = "tsx")]
            Self::Tsx => Some(tree_sitter_typescript::LANGUAGE_TSX.into()),
            #[cfg(feature = "typescript")]
            Self::TypeScript => Some(tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into()),
            #[allow(unreachable_patterns, reason = "where all are built in")]
            _ => None,
        }
    }
}
