//! Markdown as it comes, line by line.

use crossterm::style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor};

use crate::view::visible;

/// Draws an answer whose lines come one after the other.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// The mark that ends the code that is being shown.
    fence: Option<&'static str>,
}

impl Markdown {
    /// Draws one line; `color` says whether colours may be used. What could move the cursor is made harmless first.
    pub(crate) fn line(&mut self, line: &str, color: bool) -> String {
        let line = visible(line);
        let trimmed = line.trim_start();
        match self.fence {
            Some(mark) if trimmed.starts_with(mark) => {
                self.fence = None;
                return dim("└", color);
            }
            Some(_) => {
                return format!("{}{}", dim("│ ", color), painted(&line, Color::Cyan, color));
            }
            None => {}
        }
        for mark in ["```", "~~~"] {
            if let Some(language) = trimmed.strip_prefix(mark) {
                self.fence = Some(mark);
                return dim(format!("┌ {}", language.trim()).trim_end(), color);
            }
        }
        let indent = line.get(..line.len() - trimmed.len()).unwrap_or_default();
        if let Some(heading) = heading(trimmed) {
            return bold(&inline(heading, color), color);
        }
        if is_rule(trimmed) {
            return dim("────────", color);
        }
        for bullet in ["- ", "* ", "+ "] {
            if let Some(item) = trimmed.strip_prefix(bullet) {
                return format!("{indent}• {}", inline(item, color));
            }
        }
        if let Some(quoted) = trimmed.strip_prefix("> ") {
            return format!("{indent}{}{}", dim("▎ ", color), inline(quoted, color));
        }
        format!("{indent}{}", inline(trimmed, color))
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let depth = line.len() - text.len();
    (1..=6).contains(&depth).then(|| text.strip_prefix(' ')).flatten().map(str::trim)
}

fn is_rule(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 3 && ['-', '*', '_'].iter().any(|mark| line.chars().all(|it| it == *mark))
}

/// Draws code, bold and emphasis within a line. A mark without its other one stays as it is.
fn inline(text: &str, color: bool) -> String {
    let mut drawn = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*']) {
        let (before, from) = rest.split_at(at);
        drawn.push_str(before);
        let mark = if from.starts_with("**") { "**" } else { from.get(..1).unwrap_or_default() };
        let behind = from.get(mark.len()..).unwrap_or_default();
        let inner = behind.find(mark).and_then(|end| behind.get(..end)).filter(|inner| {
            let is_tight = !inner.starts_with(' ') && !inner.ends_with(' ');
            !inner.is_empty() && (mark == "`" || is_tight)
        });
        match inner {
            Some(inner) => {
                drawn.push_str(&match mark {
                    "`" => painted(inner, Color::Cyan, color),
                    "**" => bold(inner, color),
                    _ => italic(inner, color),
                });
                rest = behind.get(inner.len() + mark.len()..).unwrap_or_default();
            }
            None => {
                drawn.push_str(mark);
                rest = behind;
            }
        }
    }
    drawn.push_str(rest);
    drawn
}

fn attributed(text: &str, attribute: Attribute, color: bool) -> String {
    match color {
        true => format!("{}{text}{}", SetAttribute(attribute), SetAttribute(Attribute::Reset)),
        false => text.to_owned(),
    }
}

/// Draws something that is less important.
pub(crate) fn dim(text: &str, color: bool) -> String {
    attributed(text, Attribute::Dim, color)
}

/// Draws something that is more important.
pub(crate) fn bold(text: &str, color: bool) -> String {
    attributed(text, Attribute::Bold, color)
}

fn italic(text: &str, color: bool) -> String {
    attributed(text, Attribute::Italic, color)
}

/// Draws something in a colour.
pub(crate) fn painted(text: &str, with: Color, color: bool) -> String {
    match color {
        true => format!("{}{text}{ResetColor}", SetForegroundColor(with)),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANSWER: &str = "# The *cause*\n\nThe median of `&[1, 2]` is **wrong**: 2 * 3 is not 2*3.\n- first\n  * second `open\n> quoted\n\n---\n```rust\nfn main() {} // **not bold**\n```\nDone.\n";

    fn drawn(text: &str, color: bool) -> String {
        let mut markdown = Markdown::default();
        text.lines().map(|line| markdown.line(line, color) + "\n").collect()
    }

    #[test]
    fn an_answer_is_drawn_with_and_without_colours() {
        insta::assert_snapshot!("plain", drawn(ANSWER, false));
        insta::assert_snapshot!("coloured", drawn(ANSWER, true).replace('\u{1b}', "␛"));
    }

    proptest! {
        #[test]
        fn no_text_panics_or_moves_the_cursor(text in "(\\PC{0,20}|[`*#>~-]{1,4}|\u{1b}\\[2J|\r){0,12}") {
            let moves = drawn(&text, false).contains(['\u{1b}', '\r']);
            prop_assert!(!moves);
        }
    }
}
