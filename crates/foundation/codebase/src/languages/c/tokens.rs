//! A text of C or C++ as its words, before a preprocessor has seen it.

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    /// A string or a character.
    Quoted,
    /// A single sign.
    Sign(u8),
    /// `#if` and those like it: a branch begins.
    If,
    /// `#else` and those like it: a branch ends and another one begins.
    Else,
    /// `#endif`.
    EndIf,
    /// Any other line for the preprocessor.
    Directive,
}

impl Kind {
    /// Tells whether it is a line for the preprocessor.
    pub(super) const fn is_directive(self) -> bool {
        matches!(self, Self::If | Self::Else | Self::EndIf | Self::Directive)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) line: usize,
}

/// Takes a text apart. Comments are left out. Whatever it holds, that takes as many steps as it has bytes.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, line: 1, is_begin: true };
    let mut found = Vec::new();
    while let Some(token) = scan.next_token() {
        found.push(token);
    }
    found
}

struct Scan<'t> {
    bytes: &'t [u8],
    at: usize,
    line: usize,
    /// Whether nothing but blanks and comments stands before it in its line.
    is_begin: bool,
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl Scan<'_> {
    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn is_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Goes on by one byte.
    fn step(&mut self) {
        self.line += usize::from(self.byte(0) == b'\n');
        self.at = (self.at + 1).min(self.bytes.len());
    }

    fn next_token(&mut self) -> Option<Token> {
        loop {
            match (self.byte(0), self.byte(1)) {
                _ if self.is_end() => return None,
                (b'\n', _) => {
                    self.is_begin = true;
                    self.step();
                }
                (b'\\', b'\n' | b'\r') => {
                    self.step();
                    self.step();
                }
                (b'/', b'/') => self.line_comment(),
                (b'/', b'*') => self.comment(),
                (byte, _) if byte.is_ascii_whitespace() => self.step(),
                _ => break,
            }
        }
        let (start, line) = (self.at, self.line);
        let kind = match self.byte(0) {
            b'#' if self.is_begin => self.directive(),
            quote @ (b'"' | b'\'') => {
                self.quoted(quote);
                Kind::Quoted
            }
            b'0'..=b'9' => {
                while is_word(self.byte(0)) || matches!(self.byte(0), b'.' | b'\'') {
                    self.step();
                }
                Kind::Number
            }
            byte if is_word(byte) => {
                while is_word(self.byte(0)) {
                    self.step();
                }
                let is_raw = self.bytes.get(start..self.at).is_some_and(|it| it.ends_with(b"R"));
                if is_raw && self.at - start <= 3 && self.byte(0) == b'"' {
                    self.raw();
                    Kind::Quoted
                } else {
                    Kind::Word
                }
            }
            byte => {
                self.step();
                Kind::Sign(byte)
            }
        };
        self.is_begin = false;
        Some(Token { kind, start, end: self.at, line })
    }

    fn line_comment(&mut self) {
        while !self.is_end() && self.byte(0) != b'\n' {
            if self.byte(0) == b'\\' {
                self.step();
            }
            self.step();
        }
    }

    fn comment(&mut self) {
        self.step();
        self.step();
        while !self.is_end() && (self.byte(0), self.byte(1)) != (b'*', b'/') {
            self.step();
        }
        self.step();
        self.step();
    }

    /// One that is not closed ends with its line.
    fn quoted(&mut self, quote: u8) {
        self.step();
        while !self.is_end() && !matches!(self.byte(0), b'\n') {
            let byte = self.byte(0);
            self.step();
            if byte == quote {
                return;
            }
            if byte == b'\\' {
                self.step();
            }
        }
    }

    /// `R"x( … )x"`.
    fn raw(&mut self) {
        self.step();
        let start = self.at;
        while !self.is_end() && !matches!(self.byte(0), b'(' | b'\n') && self.at - start < 16 {
            self.step();
        }
        let mark = self.bytes.get(start..self.at).unwrap_or_default().to_vec();
        while !self.is_end() {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let rest = rest.strip_prefix(b")").and_then(|rest| rest.strip_prefix(mark.as_slice()));
            let is_over = rest.is_some_and(|rest| rest.starts_with(b"\""));
            self.step();
            if is_over {
                (0..=mark.len()).for_each(|_| self.step());
                return;
            }
        }
    }

    fn directive(&mut self) -> Kind {
        self.step();
        while matches!(self.byte(0), b' ' | b'\t') {
            self.step();
        }
        let start = self.at;
        while is_word(self.byte(0)) {
            self.step();
        }
        let kind = match self.bytes.get(start..self.at).unwrap_or_default() {
            b"if" | b"ifdef" | b"ifndef" => Kind::If,
            b"else" | b"elif" | b"elifdef" | b"elifndef" => Kind::Else,
            b"endif" => Kind::EndIf,
            _ => Kind::Directive,
        };
        while !self.is_end() && self.byte(0) != b'\n' {
            match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => self.comment(),
                (b'/', b'/') => self.line_comment(),
                (b'\\', b'\r') => (0..3).for_each(|_| self.step()),
                (b'\\', _) => (0..2).for_each(|_| self.step()),
                _ => self.step(),
            }
        }
        kind
    }
}
