//! Fragments, and the prompt they make together.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Error;

/// Stands between two fragments.
const SEPARATOR: &str = "\n\n";

/// Where a fragment stands in its prompt; lower comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u16);

impl Priority {
    /// Who the agent is.
    pub const PREAMBLE: Self = Self(100);
    /// What the repository asks of every agent.
    pub const INSTRUCTIONS: Self = Self(200);
    /// What the agent's own document says.
    pub const PROMPT: Self = Self(300);
    /// What must hold at the end.
    pub const CONSTRAINTS: Self = Self(400);
    /// What the run has noted so far.
    pub const NOTEPAD: Self = Self(500);
    /// What earlier runs have learnt.
    pub const LESSONS: Self = Self(600);
    /// How earlier attempts failed.
    pub const FAILURES: Self = Self(700);
}

/// Whether a fragment stays the same from turn to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The same in every turn, so that a provider may cache it.
    Stable,
    /// Changes between turns, and therefore stands behind everything stable.
    Volatile,
}

/// A piece of a prompt, already rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Its name, unique within the prompt; orders fragments of the same priority.
    pub name: String,
    /// Where it stands among those of its kind.
    pub priority: Priority,
    /// Whether it changes between turns.
    pub kind: Kind,
    /// What it says; never read as a template.
    pub text: String,
}

impl Fragment {
    /// Makes a fragment that is the same in every turn.
    #[must_use]
    pub fn stable(name: impl Into<String>, priority: Priority, text: impl Into<String>) -> Self {
        Self { name: name.into(), priority, kind: Kind::Stable, text: text.into() }
    }

    /// Makes a fragment that changes between turns.
    #[must_use]
    pub fn volatile(name: impl Into<String>, priority: Priority, text: impl Into<String>) -> Self {
        Self { name: name.into(), priority, kind: Kind::Volatile, text: text.into() }
    }
}

/// Where a fragment came to stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The fragment's name.
    pub name: String,
    /// Whether it changes between turns.
    pub kind: Kind,
    /// Its bytes in the prompt.
    pub range: Range<usize>,
}

/// A whole prompt that knows which fragment each part came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    placed: Vec<Placed>,
}

impl Prompt {
    /// Returns the text to send.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the fragments in their order; empty ones are not among them.
    #[must_use]
    pub fn fragments(&self) -> &[Placed] {
        &self.placed
    }

    /// Returns the beginning that stays the same from turn to turn, byte for byte.
    #[must_use]
    pub fn stable(&self) -> &str {
        let end = self.placed.iter().filter(|p| p.kind == Kind::Stable).map(|p| p.range.end).max();
        self.text.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}

/// Puts fragments together: stable before volatile, then by ascending priority, then by name.
///
/// The order in which they are given does not matter. White space around a fragment is dropped, and a fragment of
/// nothing else is left out; the others are separated by an empty line.
///
/// # Errors
/// [`Error::DuplicateFragment`] when two have the same name.
pub fn compose(fragments: impl IntoIterator<Item = Fragment>) -> Result<Prompt, Error> {
    let mut sorted: Vec<Fragment> = fragments.into_iter().collect();
    let mut names = BTreeSet::new();
    if let Some(twice) = sorted.iter().find(|fragment| !names.insert(fragment.name.as_str())) {
        return Err(Error::DuplicateFragment { name: twice.name.clone() });
    }
    sorted.sort_by(|a, b| (a.kind, a.priority, &a.name).cmp(&(b.kind, b.priority, &b.name)));

    let mut prompt = Prompt::default();
    for fragment in sorted {
        let text = fragment.text.trim_start_matches(['\n', '\r']).trim_end();
        if text.trim().is_empty() {
            continue;
        }
        if !prompt.text.is_empty() {
            prompt.text.push_str(SEPARATOR);
        }
        let start = prompt.text.len();
        prompt.text.push_str(text);
        let range = start..prompt.text.len();
        prompt.placed.push(Placed { name: fragment.name, kind: fragment.kind, range });
    }
    Ok(prompt)
}
