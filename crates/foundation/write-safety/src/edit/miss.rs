//! Why a text was not found, and what comes nearest.

use std::fmt;

/// Why an edit does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// Which edit of several, from 0.
    pub edit: usize,
    /// What was looked for, shortened.
    pub wanted: String,
    /// Why it was not found, or not found once.
    pub reason: Reason,
    /// What comes nearest, where anything does.
    pub nearest: Option<Nearest>,
}

/// The text that comes nearest to one that was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Its first line, from 1.
    pub line: usize,
    /// The lines as they stand in the file, shortened.
    pub text: String,
}

/// Why a text was not found, or not found once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It stands at several places.
    Several {
        /// The first line of each, from 1; at most twenty.
        lines: Vec<usize>,
    },
    /// Nothing was asked to be found.
    Empty,
    /// The old text and the new are the same.
    Unchanged,
    /// The file ends its lines with a lone carriage return.
    LineEnding,
    /// A line's end has spaces or tabs that the other has not.
    TrailingSpace,
    /// Lines are indented otherwise.
    Indentation,
    /// Spaces within a line differ, or lines are broken otherwise.
    Spacing,
    /// Characters look alike but differ: quotes, dashes, spaces, composed and decomposed accents.
    Unicode,
    /// Upper and lower case differ.
    Case,
    /// The text was escaped once too often.
    Escaped,
    /// It begins with line numbers, as a listing shows them.
    LineNumbers,
    /// It stands in the file, but not below the patch's anchor or the hunk before.
    Above,
    /// Nothing but other text is there.
    Different,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Several { lines } => {
                let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
                return write!(f, "it stands at several places, lines {}", lines.join(", "));
            }
            Self::Empty => "there is no text to look for",
            Self::Unchanged => "the new text is the same as the old",
            Self::LineEnding => "the file ends its lines with a lone carriage return",
            Self::TrailingSpace => "spaces at the ends of lines differ",
            Self::Indentation => "the indentation differs",
            Self::Spacing => "the spaces within lines differ",
            Self::Unicode => {
                "characters look alike but differ (quotes, dashes, spaces or the form of accents)"
            }
            Self::Case => "upper and lower case differ",
            Self::Escaped => "the text looked for is escaped once too often",
            Self::LineNumbers => "the text looked for begins with line numbers",
            Self::Above => "it stands only above the place where the patch has arrived",
            Self::Different => "no such text is there",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot place {:?}: {}", self.wanted, self.reason)?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; nearest is line {}: {:?}", nearest.line, nearest.text)?;
        }
        Ok(())
    }
}
