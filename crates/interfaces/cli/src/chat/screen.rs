//! The terminal of a chat: what was said scrolls up, and below it stand the line being written and what goes on.

use std::io::{self, Write};

use crossterm::{
    cursor::{MoveToColumn, MoveUp},
    terminal::{Clear, ClearType},
};

use crate::view::wide;

/// What stands below everything that was said.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Below {
    /// Lines above the one that is written, whole: they are cut where they are too long. May hold colours only if
    /// they are short.
    pub lines: Vec<String>,
    /// What stands before what is written.
    pub prompt: &'static str,
    /// What is being written, and the cursor's place in it.
    pub text: String,
    pub cursor: usize,
}

/// Draws on a terminal in raw mode.
pub(crate) struct Screen<W: Write> {
    out: W,
    width: usize,
    height: usize,
    /// In which of the drawn lines the cursor is.
    row: usize,
    below: Below,
}

impl<W: Write> Screen<W> {
    /// Begins with nothing drawn on a terminal of so many columns and lines.
    pub(crate) fn new(out: W, (width, height): (usize, usize)) -> Self {
        Self { out, width: width.max(8), height: height.max(4), row: 0, below: Below::default() }
    }

    /// Learns that the terminal has another size.
    pub(crate) fn resize(&mut self, (width, height): (usize, usize)) {
        (self.width, self.height) = (width.max(8), height.max(4));
    }

    /// Returns how many columns there are.
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    /// Puts lines above what stands below. They have been made harmless.
    ///
    /// # Errors
    /// What the terminal says.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.erase()?;
        for line in text.lines() {
            write!(self.out, "{line}\r\n")?;
        }
        self.draw()
    }

    /// Changes what stands below.
    ///
    /// # Errors
    /// What the terminal says.
    pub(crate) fn show(&mut self, below: Below) -> io::Result<()> {
        if self.below == below {
            return Ok(());
        }
        self.erase()?;
        self.below = below;
        self.draw()
    }

    /// Clears the screen and draws what stands below anew.
    ///
    /// # Errors
    /// What the terminal says.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        write!(self.out, "{}{}", Clear(ClearType::All), crossterm::cursor::MoveTo(0, 0))?;
        self.row = 0;
        self.draw()
    }

    /// Takes away what stands below, for good.
    ///
    /// # Errors
    /// What the terminal says.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.erase()?;
        self.out.flush()
    }

    fn erase(&mut self) -> io::Result<()> {
        if self.row > 0 {
            write!(self.out, "{}", MoveUp(u16::try_from(self.row).unwrap_or(u16::MAX)))?;
        }
        write!(self.out, "\r{}", Clear(ClearType::FromCursorDown))?;
        self.row = 0;
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        let (written, at) = self.written();
        let room = self.height.saturating_sub(written.len() + 1);
        let above: Vec<&String> = self.below.lines.iter().take(room).collect();
        let count = above.len() + written.len();
        let lines = above.into_iter().map(String::as_str).chain(written.iter().map(String::as_str));
        let drawn: Vec<&str> = lines.collect();
        write!(self.out, "{}", drawn.join("\r\n"))?;
        let row = count - written.len() + at.0;
        let up = count.saturating_sub(1).saturating_sub(row);
        if up > 0 {
            write!(self.out, "{}", MoveUp(u16::try_from(up).unwrap_or(u16::MAX)))?;
        }
        write!(self.out, "{}", MoveToColumn(u16::try_from(at.1).unwrap_or(u16::MAX)))?;
        self.row = row;
        self.out.flush()
    }

    /// Returns what is written as lines that fit, and where the cursor is in them. Of a long text those around the cursor.
    fn written(&self) -> (Vec<String>, (usize, usize)) {
        let Below { prompt, text, cursor, .. } = &self.below;
        let indent = prompt.chars().count();
        let room = self.width.saturating_sub(1);
        let mut lines = vec![(*prompt).to_owned()];
        let mut used = indent;
        let mut at = (0, indent);
        for (place, character) in text.char_indices() {
            let cells = cells(character);
            if character == '\n' || used + cells > room {
                lines.push(" ".repeat(indent));
                used = indent;
            }
            if place == *cursor {
                at = (lines.len() - 1, used);
                if character == '\n' {
                    // The cursor stands at the end of the line that it ends.
                    let before = lines.len().saturating_sub(2);
                    at = (before, lines.get(before).map_or(0, |line| width(line)));
                }
            }
            if character != '\n' {
                if let Some(line) = lines.last_mut() {
                    line.push_str(&crate::view::visible(character.encode_utf8(&mut [0; 4])));
                }
                used += cells;
            }
        }
        if *cursor >= text.len() {
            at = (lines.len() - 1, used);
        }
        let most = (self.height / 2).max(1);
        let first = at.0.saturating_sub(most.saturating_sub(1));
        let shown: Vec<String> = lines.into_iter().skip(first).take(most).collect();
        (shown, (at.0 - first, at.1))
    }
}

/// Returns how many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(cells).sum()
}

fn cells(character: char) -> usize {
    if wide(character) { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, cursor: usize) -> (Vec<String>, (usize, usize)) {
        let mut screen = Screen::new(Vec::new(), (12, 10));
        screen
            .show(Below { prompt: "> ", text: text.to_owned(), cursor, lines: Vec::new() })
            .unwrap();
        screen.written()
    }

    #[test]
    fn a_long_text_is_broken_and_the_cursor_is_where_it_is_written() {
        let lines = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();

        assert_eq!(drawn("abc", 3), (lines(&["> abc"]), (0, 5)));
        assert_eq!(drawn("abcdefghijkl", 12), (lines(&["> abcdefghi", "  jkl"]), (1, 5)));
        assert_eq!(drawn("ab\ncd", 2), (lines(&["> ab", "  cd"]), (0, 4)));
        assert_eq!(drawn("ab\ncd", 3), (lines(&["> ab", "  cd"]), (1, 2)));
        assert_eq!(drawn("日本語日本", 9), (lines(&["> 日本語日", "  本"]), (0, 8)));
    }

    #[test]
    fn what_is_said_comes_above_what_is_written() {
        let mut screen = Screen::new(Vec::new(), (20, 10));
        screen
            .show(Below { lines: vec!["busy".into()], prompt: "> ", text: "hi".into(), cursor: 2 })
            .unwrap();
        screen.say("one\ntwo").unwrap();

        let written = String::from_utf8(screen.out).unwrap().replace('\u{1b}', "␛");
        insta::assert_snapshot!(written);
    }
}
