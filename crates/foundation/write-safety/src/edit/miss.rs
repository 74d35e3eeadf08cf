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

/// A whole text of context would drown the message.
const SHOWN_LINES: usize = 12;
const SHOWN_CHARS: usize = 600;
/// Looking for similar lines stops here.
const COMPARED_LINES: usize = 50_000;
const COMPARED_CHARS: usize = 300;
/// Below this share of common letter pairs a line is not similar.
const SIMILAR: f64 = 0.5;

type Fold = fn(&str) -> String;

/// How texts may differ and still be meant as the same, from the likeliest.
const FOLDS: [(Reason, Fold); 6] = [
    (Reason::TrailingSpace, |text| per_line(text, str::trim_end)),
    (Reason::Indentation, |text| per_line(text, str::trim)),
    (Reason::Spacing, spacing),
    (Reason::Unicode, look_alike),
    (Reason::Case, |text| text.to_lowercase()),
    (Reason::LineEnding, |text| text.replace('\r', "\n")),
];

impl Miss {
    /// Says why, where that is known already.
    pub(crate) fn plain(edit: usize, wanted: &str, reason: Reason) -> Self {
        Self { edit, wanted: shorten(wanted), reason, nearest: None }
    }

    /// Finds out why `wanted` is not in `text`, and what comes nearest.
    pub(crate) fn diagnose(edit: usize, text: &str, wanted: &str) -> Self {
        let found = |reason, line| {
            let height = wanted.trim_matches('\n').split('\n').count();
            let lines = text.split('\n').skip(line).take(height);
            let nearest =
                Nearest { line: line + 1, text: shorten(&lines.collect::<Vec<_>>().join("\n")) };
            Self { edit, wanted: shorten(wanted), reason, nearest: Some(nearest) }
        };
        for (reason, fold) in &FOLDS {
            if let Some(line) = line_of_folded(text, wanted, *fold) {
                return found(reason.clone(), line);
            }
        }
        for (reason, rewritten) in
            [(Reason::LineNumbers, without_numbers(wanted)), (Reason::Escaped, unescaped(wanted))]
        {
            if let Some(rewritten) = rewritten
                && let Some(line) = line_of_folded(text, &rewritten, str::to_owned)
            {
                return found(reason, line);
            }
        }
        // Several at once: the strangest of them is what to look at.
        for (reason, fold) in [
            (Reason::Unicode, (|text| spacing(&look_alike(text))) as Fold),
            (Reason::Case, |text| spacing(&look_alike(text)).to_lowercase()),
        ] {
            if let Some(line) = line_of_folded(text, wanted, fold) {
                return found(reason, line);
            }
        }
        match similar_line(text, wanted) {
            Some(line) => found(Reason::Different, line),
            None => Self::plain(edit, wanted, Reason::Different),
        }
    }
}

/// Finds the line, from 0, where both texts are the same once folded; folds keep line counts.
fn line_of_folded(text: &str, wanted: &str, fold: Fold) -> Option<usize> {
    let wanted = fold(wanted);
    let wanted = wanted.trim_matches('\n');
    if wanted.trim().is_empty() {
        return None;
    }
    let folded = fold(text);
    let at = folded.find(wanted)?;
    Some(folded[..at].bytes().filter(|&byte| byte == b'\n').count())
}

fn per_line(text: &str, trim: fn(&str) -> &str) -> String {
    text.split('\n').map(trim).collect::<Vec<_>>().join("\n")
}

fn spacing(text: &str) -> String {
    let squeeze = |line: &str| line.split_whitespace().collect::<String>();
    text.split('\n').map(squeeze).collect::<Vec<_>>().join("\n")
}

/// Brings characters that look alike to one form.
fn look_alike(text: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    text.nfkc()
        .filter(|c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' | '\u{ad}'))
        .map(|c| match c {
            '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{b4}' | '`' => '\'',
            '\u{201c}'..='\u{201f}' | '\u{2033}' | '«' | '»' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}' => ' ',
            c => c,
        })
        .collect()
}

/// Takes away line numbers, if every line has one.
fn without_numbers(text: &str) -> Option<String> {
    let bare = |line: &str| {
        let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = rest.len() < line.trim_start().len();
        let rest = rest.strip_prefix(['\t', ':', '|', '→'])?;
        numbered.then(|| rest.to_owned())
    };
    let lines: Option<Vec<_>> = text.trim_end_matches('\n').split('\n').map(bare).collect();
    lines.map(|lines| lines.join("\n"))
}

/// Undoes one layer of escapes, if there is any.
fn unescaped(text: &str) -> Option<String> {
    let pairs = [
        ("\\n", "\n"),
        ("\\t", "\t"),
        ("\\\"", "\""),
        ("\\'", "'"),
        ("\\\\", "\\"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    let plain = pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    (plain != text).then_some(plain)
}

/// Finds where the text most like `wanted` begins, judged by its longest line.
fn similar_line(text: &str, wanted: &str) -> Option<usize> {
    let wanted = wanted.trim_matches('\n');
    let (offset, key) =
        wanted.split('\n').map(str::trim).enumerate().max_by_key(|(_, line)| line.len())?;
    let key = cut(key, COMPARED_CHARS);
    let (mut best, mut line_of_best) = (SIMILAR, None);
    for (number, line) in text.split('\n').take(COMPARED_LINES).enumerate() {
        let line = cut(line.trim(), COMPARED_CHARS);
        if line.len() > key.len() * 3 || key.len() > line.len() * 3 {
            continue;
        }
        let score = strsim::sorensen_dice(key, line);
        if score > best {
            (best, line_of_best) = (score, Some(number.saturating_sub(offset)));
        }
    }
    line_of_best
}

/// Cuts at a character's start.
fn cut(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

fn shorten(text: &str) -> String {
    let mut lines = text.split('\n');
    let shown: Vec<_> = lines.by_ref().take(SHOWN_LINES).collect();
    let shown = shown.join("\n");
    let short = cut(&shown, SHOWN_CHARS);
    if short.len() < shown.len() || lines.next().is_some() { format!("{short}…") } else { shown }
}
