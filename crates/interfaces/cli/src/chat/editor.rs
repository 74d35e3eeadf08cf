//! What a person types: several lines, a cursor, history, completion.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How many lines are remembered.
const REMEMBERED: usize = 500;

/// The most bytes that are taken at once: more is a file, and `@file` names one.
const MOST: usize = 64 * 1024;

/// What a key leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The text changed, or nothing happened.
    Nothing,
    /// A whole text was sent.
    Sent(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty text.
    End,
    /// Tab: the word before the cursor is to be completed.
    Complete,
    /// Ctrl-L.
    Redraw,
}

/// A text that is being written. The cursor is a place in bytes, always between two characters.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    cursor: usize,
    history: Vec<String>,
    /// Which of the history is shown, and what was written before that.
    shown: Option<(usize, String)>,
}

impl Editor {
    /// Takes over what was sent before, the oldest first.
    pub(crate) fn remember(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            if !line.trim().is_empty() && self.history.last() != Some(&line) {
                self.history.push(line);
            }
        }
        let over = self.history.len().saturating_sub(REMEMBERED);
        self.history.drain(..over);
    }

    /// Returns the text and the cursor's place in it.
    pub(crate) fn content(&self) -> (&str, usize) {
        (&self.text, self.cursor)
    }

    /// Returns whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes the text away.
    pub(crate) fn clear(&mut self) -> String {
        self.cursor = 0;
        self.shown = None;
        std::mem::take(&mut self.text)
    }

    /// Writes at the cursor, as if it had been typed or pasted.
    pub(crate) fn insert(&mut self, text: &str) {
        let room = MOST.saturating_sub(self.text.len());
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text = formwork_protocols::text::head(&text, room);
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Returns the word before the cursor, and where it begins.
    pub(crate) fn word(&self) -> (usize, &str) {
        let before = self.text.get(..self.cursor).unwrap_or_default();
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        (start, before.get(start..).unwrap_or_default())
    }

    /// Puts another word in the place of the one before the cursor.
    pub(crate) fn replace_word(&mut self, with: &str) {
        let (start, _) = self.word();
        self.text.replace_range(start..self.cursor, with);
        self.cursor = start + with.len();
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Typed {
        if key.kind == KeyEventKind::Release {
            return Typed::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Char('c') if control => return Typed::Interrupt,
            KeyCode::Char('d') if control && self.text.is_empty() => return Typed::End,
            KeyCode::Char('l') if control => return Typed::Redraw,
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Char('a') if control => self.cursor = self.line_start(),
            KeyCode::Char('e') if control => self.cursor = self.line_end(),
            KeyCode::Char('u') if control => self.delete(self.line_start(), self.cursor),
            KeyCode::Char('k') if control => self.delete(self.cursor, self.line_end()),
            KeyCode::Char('w') if control => self.delete(self.word_left(), self.cursor),
            KeyCode::Char('d') if control => self.delete(self.cursor, self.right()),
            KeyCode::Char('b') if alt => self.cursor = self.word_left(),
            KeyCode::Char('f') if alt => self.cursor = self.word_right(),
            KeyCode::Char(character) if !control && !alt => {
                self.insert(character.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Enter if alt || shift => self.insert("\n"),
            KeyCode::Enter if self.text.get(..self.cursor).is_some_and(|it| it.ends_with('\\')) => {
                self.delete(self.cursor - 1, self.cursor);
                self.insert("\n");
            }
            KeyCode::Enter if self.text.trim().is_empty() => {}
            KeyCode::Enter => {
                let text = self.clear();
                self.remember([text.clone()]);
                return Typed::Sent(text);
            }
            KeyCode::Tab => return Typed::Complete,
            KeyCode::Backspace if alt || control => self.delete(self.word_left(), self.cursor),
            KeyCode::Backspace => self.delete(self.left(), self.cursor),
            KeyCode::Delete => self.delete(self.cursor, self.right()),
            KeyCode::Left if control || alt => self.cursor = self.word_left(),
            KeyCode::Right if control || alt => self.cursor = self.word_right(),
            KeyCode::Left => self.cursor = self.left(),
            KeyCode::Right => self.cursor = self.right(),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            _ => {}
        }
        Typed::Nothing
    }

    fn delete(&mut self, from: usize, to: usize) {
        if from < to && self.text.is_char_boundary(from) && self.text.is_char_boundary(to) {
            self.text.replace_range(from..to, "");
            self.cursor = from;
        }
    }

    fn left(&self) -> usize {
        let before = self.text.get(..self.cursor).unwrap_or_default();
        before.char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        let behind = self.text.get(self.cursor..).unwrap_or_default();
        self.cursor + behind.chars().next().map_or(0, char::len_utf8)
    }

    fn word_left(&self) -> usize {
        let before = self.text.get(..self.cursor).unwrap_or_default().trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
    }

    fn word_right(&self) -> usize {
        let behind = self.text.get(self.cursor..).unwrap_or_default();
        let word = behind.trim_start();
        let space = behind.len() - word.len();
        self.cursor + space + word.find(char::is_whitespace).unwrap_or(word.len())
    }

    fn line_start(&self) -> usize {
        self.text.get(..self.cursor).unwrap_or_default().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let behind = self.text.get(self.cursor..).unwrap_or_default();
        self.cursor + behind.find('\n').unwrap_or(behind.len())
    }

    /// Goes a line up, or to what was sent before.
    fn up(&mut self) {
        let start = self.line_start();
        if start > 0 {
            self.go_to_line(start - 1);
            return;
        }
        let at = match &self.shown {
            Some((0, _)) => return,
            Some((at, _)) => at - 1,
            None => match self.history.len().checked_sub(1) {
                Some(last) => last,
                None => return,
            },
        };
        let written = match self.shown.take() {
            Some((_, written)) => written,
            None => std::mem::take(&mut self.text),
        };
        self.text = self.history.get(at).cloned().unwrap_or_default();
        self.cursor = self.text.len();
        self.shown = Some((at, written));
    }

    /// Goes a line down, or to what was sent later.
    fn down(&mut self) {
        let end = self.line_end();
        if end < self.text.len() {
            let column = self.column();
            let start = end + 1;
            self.cursor = start;
            self.cursor = self.at_column(start, column);
            return;
        }
        let Some((at, written)) = self.shown.take() else { return };
        match self.history.get(at + 1) {
            Some(later) => {
                self.text = later.clone();
                self.shown = Some((at + 1, written));
            }
            None => self.text = written,
        }
        self.cursor = self.text.len();
    }

    /// Goes to the same column of the line that ends at a place.
    fn go_to_line(&mut self, end: usize) {
        let column = self.column();
        let start = self.text.get(..end).unwrap_or_default().rfind('\n').map_or(0, |at| at + 1);
        self.cursor = self.at_column(start, column);
    }

    fn column(&self) -> usize {
        self.text.get(self.line_start()..self.cursor).unwrap_or_default().chars().count()
    }

    fn at_column(&self, start: usize, column: usize) -> usize {
        let line = self.text.get(start..).unwrap_or_default();
        let line = line.split('\n').next().unwrap_or_default();
        start + line.char_indices().nth(column).map_or(line.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn press(editor: &mut Editor, code: KeyCode) -> Typed {
        editor.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn write(editor: &mut Editor, text: &str) {
        text.chars().for_each(|it| drop(press(editor, KeyCode::Char(it))));
    }

    #[test]
    fn a_text_of_several_lines_is_sent_as_one() {
        let mut editor = Editor::default();

        write(&mut editor, "one\\");
        assert_eq!(press(&mut editor, KeyCode::Enter), Typed::Nothing);
        write(&mut editor, "two");
        editor.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT));
        editor.insert("three\r\nfour");

        assert_eq!(press(&mut editor, KeyCode::Enter), Typed::Sent("one\ntwo\nthree\nfour".into()));
        assert!(editor.is_empty());
    }

    #[test]
    fn what_was_sent_comes_back_and_what_was_written_is_kept() {
        let mut editor = Editor::default();
        editor.remember(["first".to_owned(), "second".to_owned(), "second".to_owned()]);

        write(&mut editor, "new");
        press(&mut editor, KeyCode::Up);
        assert_eq!(editor.content().0, "second");
        press(&mut editor, KeyCode::Up);
        press(&mut editor, KeyCode::Up);
        assert_eq!(editor.content().0, "first");
        press(&mut editor, KeyCode::Down);
        press(&mut editor, KeyCode::Down);
        assert_eq!(editor.content(), ("new", 3));
    }

    #[test]
    fn the_cursor_goes_by_lines_and_words() {
        let mut editor = Editor::default();
        editor.insert("größe eins\nzwei");

        press(&mut editor, KeyCode::Up);
        assert_eq!(editor.content().1, "größ".len());
        editor.key(KeyEvent::new(KeyCode::Char('f'), KeyModifiers::ALT));
        editor.key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(editor.content().0, " eins\nzwei");
        editor.replace_word("@src/");
        assert_eq!(editor.word(), (0, "@src/"));
    }

    proptest! {
        #[test]
        fn no_keys_panic_or_leave_the_cursor_within_a_character(keys in prop::collection::vec((0_u8..22, any::<char>(), 0_u8..4), 0..80)) {
            let mut editor = Editor::default();
            editor.remember(["日本\nx".to_owned(), "é".to_owned()]);
            for (key, character, modifier) in keys {
                let code = match key {
                    0 => KeyCode::Enter,
                    1 => KeyCode::Backspace,
                    2 => KeyCode::Delete,
                    3 => KeyCode::Left,
                    4 => KeyCode::Right,
                    5 => KeyCode::Up,
                    6 => KeyCode::Down,
                    7 => KeyCode::Home,
                    8 => KeyCode::End,
                    9 => KeyCode::Tab,
                    10..=17 => KeyCode::Char(char::from(b"acdejkuw"[usize::from(key) - 10])),
                    _ => KeyCode::Char(character),
                };
                let modifier = [KeyModifiers::NONE, KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::SHIFT][usize::from(modifier)];
                editor.key(KeyEvent::new(code, modifier));
                let (text, cursor) = editor.content();
                prop_assert!(text.is_char_boundary(cursor));
                let (start, _) = editor.word();
                prop_assert!(start <= editor.content().1);
            }
        }
    }
}
