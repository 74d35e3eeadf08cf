//! What of C and C++ is kept from the grammar, which knows no preprocessor: words that stand beside a declaration and mean
//! what a macro says (`API int f(int a) THROWS;`), those that stand alone (`__BEGIN_DECLS`), and the halves of an
//! `extern "C" { … }` that only C++ sees.
//!
//! Which word that is follows from where it stands: a declaration has one type and one name. A word beside a declaration
//! stays a part of its signature, as an attribute does. Where this is wrong the text still does not follow the grammar, or
//! does so alike before and after a change.

use std::{collections::BTreeSet, ops::Range};

use super::tokens::{Kind, Token, tokens};
use crate::{
    grammar::Grammar,
    signature::{Side, Unseen},
};

/// What a type may be called, without being declared.
const TYPES: [&str; 15] = [
    "void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "bool",
    "_Bool", "auto", "_Complex", "__int64", "__int128",
];

/// Words before the name of a type.
const TAGS: [&str; 4] = ["struct", "union", "enum", "class"];

/// Words of the language, which stand for nothing else.
const WORDS: [&str; 72] = [
    "const",
    "volatile",
    "restrict",
    "static",
    "extern",
    "register",
    "inline",
    "typedef",
    "_Atomic",
    "_Noreturn",
    "noreturn",
    "thread_local",
    "__thread",
    "__inline",
    "__inline__",
    "__forceinline",
    "__extension__",
    "__restrict",
    "__restrict__",
    "constexpr",
    "consteval",
    "constinit",
    "virtual",
    "explicit",
    "mutable",
    "friend",
    "typename",
    "final",
    "override",
    "template",
    "class",
    "struct",
    "union",
    "enum",
    "namespace",
    "using",
    "public",
    "private",
    "protected",
    "operator",
    "new",
    "delete",
    "this",
    "throw",
    "try",
    "requires",
    "concept",
    "export",
    "default",
    "return",
    "if",
    "else",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "goto",
    "break",
    "continue",
    "sizeof",
    "true",
    "false",
    "nullptr",
    "__cdecl",
    "__stdcall",
    "__fastcall",
    "__thiscall",
    "__vectorcall",
    "__clrcall",
    "_Nonnull",
    "noexcept",
];

/// Words of the language that may take something in parentheses.
const TAKING: [&str; 14] = [
    "__attribute__",
    "__attribute",
    "__declspec",
    "_Alignas",
    "alignas",
    "__asm__",
    "asm",
    "__asm",
    "noexcept",
    "explicit",
    "throw",
    "_Static_assert",
    "static_assert",
    "requires",
];

/// Types that take something in parentheses.
const TYPES_TAKING: [&str; 4] = ["typeof", "__typeof__", "decltype", "_Atomic"];

/// Returns a text of the same length and lines without what the grammar is not to see, and what that is; nothing where all of it
/// may be seen, or where its brackets do not close.
pub(crate) fn without(grammar: Grammar, text: &str) -> Option<(String, Vec<Unseen>)> {
    let mut tokens = tokens(text);
    let mut hidden = halves(text, &mut tokens);
    let partners = partners(text, &tokens)?;
    let mut walk = Walk {
        text,
        tokens: &tokens,
        partners: &partners,
        is_cpp: grammar == Grammar::Cpp,
        type_ends: BTreeSet::new(),
        alone: Vec::new(),
        beside: Vec::new(),
    };
    walk.all();
    let Walk { alone, beside, .. } = walk;
    let range = |word: &Word| Some(tokens.get(word.from)?.start..tokens.get(word.to - 1)?.end);
    hidden.extend(alone.iter().chain(beside.iter().map(|(word, _)| word)).filter_map(range));
    if hidden.is_empty() {
        return None;
    }
    let mut is_out = vec![false; tokens.len()];
    for word in alone.iter().chain(beside.iter().map(|(word, _)| word)) {
        is_out.get_mut(word.from..word.to).into_iter().flatten().for_each(|it| *it = true);
    }
    let mut unseen: Vec<Unseen> = beside_what(&tokens, &is_out, &beside);
    unseen.sort_by_key(|it| (it.beside, it.at.start));
    let mut bytes = text.as_bytes().to_vec();
    for at in hidden {
        for byte in bytes.get_mut(at).into_iter().flatten() {
            // Lines stay where they are.
            if !matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    Some((String::from_utf8(bytes).ok()?, unseen))
}

/// Finds for each word that is left out the nearest one on its side that the grammar sees.
fn beside_what(tokens: &[Token], is_out: &[bool], words: &[(Word, Side)]) -> Vec<Unseen> {
    let seen = |at: usize| tokens.get(at).filter(|_| !is_out.get(at).copied().unwrap_or_default());
    let mut before: Vec<usize> = Vec::with_capacity(tokens.len());
    for at in 0..tokens.len() {
        let last = before.last().copied().unwrap_or(usize::MAX);
        before.push(seen(at).map_or(last, |token| token.start));
    }
    let mut after: Vec<usize> = Vec::with_capacity(tokens.len());
    for at in (0..tokens.len()).rev() {
        let last = after.last().copied().unwrap_or(usize::MAX);
        after.push(seen(at).map_or(last, |token| token.start));
    }
    after.reverse();
    let unseen = |(word, side): &(Word, Side)| {
        let beside = match side {
            Side::Before => after.get(word.to),
            Side::After => before.get(word.from),
        };
        let at = tokens.get(word.from)?.start..tokens.get(word.to - 1)?.end;
        Some(Unseen { at, beside: *beside?, side: *side })
    };
    words.iter().filter_map(unseen).collect()
}

/// Takes out what is between `#if 0` and its end, and an `extern "C" {` that ends its branch, with the `}` that is all of another.
fn halves(text: &str, tokens: &mut Vec<Token>) -> Vec<Range<usize>> {
    let word = |token: &Token| text.get(token.start..token.end).unwrap_or_default();
    let mut hidden = Vec::new();
    let mut is_out = vec![false; tokens.len()];
    // How many branches are open, and how many of them from the outermost that is never taken.
    let (mut open, mut never) = (0_usize, 0_usize);
    let mut begun = 0_usize;
    let mut start = 0;
    for at in 0..tokens.len() {
        let Some(token) = tokens.get(at) else { break };
        if !token.kind.is_directive() {
            if never > 0 {
                hidden.push(token.start..token.end);
                is_out.get_mut(at).into_iter().for_each(|it| *it = true);
            }
            continue;
        }
        let branch = tokens.get(start..at).unwrap_or_default();
        let signs: Vec<&str> = branch.iter().rev().take(4).map(word).collect();
        let is_branch = open > 0 && never == 0;
        let out = match signs.as_slice() {
            ["{", quoted, "extern", ..] if is_branch && quoted.starts_with('"') => 3,
            [quoted, "extern", ..] if is_branch && quoted.starts_with('"') => 2,
            ["}"] | [";", "}"] if is_branch && begun > 0 => signs.len(),
            _ => 0,
        };
        match (out, signs.first()) {
            (3, _) => begun += 1,
            (1 | 2, Some(&("}" | ";"))) => begun -= 1,
            _ => {}
        }
        for (token, is_out) in tokens.iter().zip(&mut is_out).take(at).skip(at - out) {
            hidden.push(token.start..token.end);
            *is_out = true;
        }
        let line: String = word(token).chars().filter(|c| !c.is_whitespace()).take(6).collect();
        match token.kind {
            Kind::If => {
                open += 1;
                if never > 0 || line == "#if0" {
                    never += 1;
                }
            }
            // The other branch of what is never taken is.
            Kind::Else if never == 1 => never = 0,
            Kind::EndIf => {
                open = open.saturating_sub(1);
                never = never.saturating_sub(1);
            }
            _ => {}
        }
        start = at + 1;
    }
    let mut outs = is_out.into_iter();
    tokens.retain(|_| !outs.next().unwrap_or_default());
    hidden
}

/// Finds what each bracket is closed by; nothing where one is not. Of branches each begins as the first one did.
fn partners(text: &str, tokens: &[Token]) -> Option<Vec<usize>> {
    struct Branch {
        height: usize,
        /// What was closed in it though it was opened before, the innermost first.
        closed: Vec<usize>,
    }
    let mut partners = vec![usize::MAX; tokens.len()];
    let mut open: Vec<usize> = Vec::new();
    let mut branches: Vec<Branch> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Sign(b'(' | b'[' | b'{') => open.push(at),
            Kind::Sign(sign @ (b')' | b']' | b'}')) => {
                let from = open.pop()?;
                let opening = text.as_bytes().get(tokens.get(from)?.start)?;
                if !matches!((opening, sign), (b'(', b')') | (b'[', b']') | (b'{', b'}')) {
                    return None;
                }
                *partners.get_mut(from)? = at;
                if let Some(branch) = branches.last_mut()
                    && open.len() < branch.height
                {
                    branch.height = open.len();
                    branch.closed.push(from);
                }
            }
            Kind::If => branches.push(Branch { height: open.len(), closed: Vec::new() }),
            Kind::Else => {
                if let Some(branch) = branches.last_mut() {
                    open.truncate(branch.height);
                    open.extend(branch.closed.drain(..).rev());
                    branch.height = open.len();
                }
            }
            Kind::EndIf => {
                let ended = branches.pop();
                // What it closed is closed for what stands around it as well.
                if let (Some(ended), Some(around)) = (ended, branches.last_mut()) {
                    around.height = around.height.min(open.len());
                    around.closed.extend(ended.closed);
                }
            }
            _ => {}
        }
    }
    open.is_empty().then_some(partners)
}

/// A word before the name of what is declared.
#[derive(Debug, Clone, Copy)]
struct Word {
    /// Its tokens, with what it takes in parentheses.
    from: usize,
    to: usize,
    /// Whether it is written as macros are.
    is_loud: bool,
    takes: bool,
    /// Whether it stands after a `*`.
    is_pointed: bool,
}

struct Walk<'t> {
    text: &'t str,
    tokens: &'t [Token],
    partners: &'t [usize],
    is_cpp: bool,
    /// The brackets that close what a type holds: a name may follow.
    type_ends: BTreeSet<usize>,
    /// What stands alone.
    alone: Vec<Word>,
    /// What stands beside something that is declared, and on which side of what is left.
    beside: Vec<(Word, Side)>,
}

impl<'t> Walk<'t> {
    fn all(&mut self) {
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            at = match token.kind {
                // A body without a head, as of a function in the old style.
                Kind::Sign(b'{') => self.past(at),
                Kind::Sign(b'}') if self.type_ends.contains(&at) => self.declaration(at + 1, true),
                Kind::Word => self.declaration(at, false),
                _ => at + 1,
            }
            .max(at + 1);
        }
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn is(&self, at: usize, sign: u8) -> bool {
        self.kind(at) == Some(Kind::Sign(sign))
    }

    fn word(&self, at: usize) -> &'t str {
        let token = self.tokens.get(at).filter(|token| token.kind == Kind::Word);
        token.and_then(|token| self.text.get(token.start..token.end)).unwrap_or_default()
    }

    /// Tells whether something is a word that may stand for a macro, a type or a name.
    fn is_free(&self, at: usize) -> bool {
        let word = self.word(at);
        let is_known = TYPES.contains(&word) || WORDS.contains(&word);
        !word.is_empty() && !is_known && !TAKING.contains(&word) && !TYPES_TAKING.contains(&word)
    }

    /// Returns the place behind the bracket that closes one.
    fn past(&self, at: usize) -> usize {
        self.partners.get(at).map_or(at + 1, |to| to.saturating_add(1)).min(self.tokens.len())
    }

    /// Goes past what is between `<` and `>`, as far as one can tell.
    fn past_angles(&self, at: usize) -> usize {
        let (mut at, mut depth) = (at, 0_usize);
        loop {
            match self.kind(at) {
                Some(Kind::Sign(b'<')) => depth += 1,
                Some(Kind::Sign(b'>')) => depth = depth.saturating_sub(1),
                Some(Kind::Sign(b'(' | b'[')) => {
                    at = self.past(at);
                    continue;
                }
                Some(Kind::Sign(b';' | b'{' | b'}' | b')')) | None => return at,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return at;
            }
        }
    }

    fn is_loud(&self, at: usize) -> bool {
        let word = self.word(at);
        word.len() > 1
            && word.contains(|c: char| c.is_ascii_uppercase())
            && !word.contains(|c: char| c.is_lowercase())
            || word.starts_with("__")
    }

    /// Reads a declaration. Returns where to go on: behind it, or within it where it holds others.
    fn declaration(&mut self, begin: usize, after_type: bool) -> usize {
        let mut words: Vec<Word> = Vec::new();
        let (mut has_type, mut is_pointed) = (after_type, false);
        let mut first_star = None;
        let mut at = begin;
        loop {
            match self.kind(at) {
                Some(Kind::Word) => {}
                Some(Kind::Sign(b'*' | b'&')) => {
                    first_star = first_star.or(Some(words.len()));
                    is_pointed = true;
                    at += 1;
                    continue;
                }
                Some(Kind::Sign(b':')) if self.is(at + 1, b':') => {
                    // What is qualified is one word; the last part stands for it.
                    words.pop();
                    at += 2;
                    continue;
                }
                Some(Kind::Sign(b'<')) if self.is_cpp && !words.is_empty() => {
                    // What takes types is one.
                    words.pop();
                    has_type = true;
                    at = self.past_angles(at);
                    continue;
                }
                _ => break,
            }
            let word = self.word(at);
            let takes = self.is(at + 1, b'(');
            match word {
                "extern" if self.kind(at + 1) == Some(Kind::Quoted) => {
                    at += 2;
                    if self.is(at, b'{') {
                        return at + 1;
                    }
                }
                "namespace" => {
                    while !matches!(self.kind(at), None | Some(Kind::Sign(b'{' | b';' | b'}'))) {
                        at += 1;
                    }
                    return at + 1;
                }
                "template" => at = self.past_angles(at + 1),
                "using" | "operator" | "concept" | "requires" => return self.rest(at, None),
                "public" | "private" | "protected" if self.is(at + 1, b':') => return at + 2,
                _ if TAGS.contains(&word) => {
                    has_type = true;
                    match self.tagged(at, &words) {
                        Ok(next) => at = next,
                        Err(within) => return within,
                    }
                }
                _ if TYPES_TAKING.contains(&word) && takes => {
                    has_type = true;
                    at = self.past(at + 1);
                }
                _ if TAKING.contains(&word) => {
                    at = if takes { self.past(at + 1) } else { at + 1 };
                }
                _ if TYPES.contains(&word) => {
                    has_type = true;
                    at += 1;
                }
                _ if WORDS.contains(&word) => at += 1,
                _ => {
                    let has_more = has_type || !words.is_empty();
                    let is_unit = takes && self.is_macro(at, has_more);
                    let to = if is_unit { self.past(at + 1) } else { at + 1 };
                    let is_loud = self.is_loud(at);
                    words.push(Word { from: at, to, is_loud, takes: is_unit, is_pointed });
                    at = to;
                    if takes && !is_unit {
                        break;
                    }
                }
            }
        }
        self.standing_alone(&mut words, begin);
        let is_end = matches!(self.kind(at), None | Some(Kind::Sign(b'}')))
            || self.kind(at).is_some_and(Kind::is_directive);
        if is_end {
            if !has_type && !is_pointed && words.len() == 1 {
                self.alone.append(&mut words);
            }
            return at;
        }
        let name = self.name(&mut words, at, has_type);
        // A list of statements or a macro of its own, which the grammar may know.
        if name.is_none() && words.is_empty() {
            return self.rest(at, None);
        }
        let kept = self.kept(&words, has_type, first_star);
        for (index, word) in words.iter().enumerate() {
            let is_after = name.is_some_and(|name| word.from > name);
            if is_after {
                self.leave_out(*word, Side::After);
            } else if Some(index) != kept && (word.is_loud || !self.is_cpp) {
                self.leave_out(*word, Side::Before);
            }
        }
        self.rest(at, name)
    }

    /// Tells whether a word with something in parentheses is a macro, and not what is declared.
    fn is_macro(&self, at: usize, has_more: bool) -> bool {
        let after = self.past(at + 1);
        let word = self.word(after);
        let is_behind = matches!(word, "const" | "volatile" | "override" | "final" | "try");
        let is_said = !(word.is_empty() || TAKING.contains(&word) || has_more && is_behind);
        // `API(1) f(`, where `f(int a) API` is a function.
        let declares = !self.is_free(after) || !self.is_loud(after);
        is_said && (!has_more || self.is_loud(at) && declares)
            // One on a line of its own.
            || !has_more && self.is_loud(at) && self.ends_line(after)
    }

    fn ends_line(&self, next: usize) -> bool {
        let line = |at: usize| self.tokens.get(at).map(|token| token.line);
        let last = next.checked_sub(1).and_then(line);
        line(next).is_none_or(|there| last.is_none_or(|here| here < there))
    }

    /// Reads what follows `struct` and the like. Returns what comes next, or where to go on within it.
    fn tagged(&mut self, at: usize, before: &[Word]) -> Result<usize, usize> {
        let is_enum = self.word(at) == "enum";
        let mut next = at + 1;
        if is_enum && matches!(self.word(next), "class" | "struct") {
            next += 1;
        }
        let mut words: Vec<Word> = Vec::new();
        while !self.word(next).is_empty() {
            if TYPES.contains(&self.word(next)) || TAGS.contains(&self.word(next)) {
                break;
            }
            let (from, takes) = (next, self.is(next + 1, b'('));
            let is_own = TAKING.contains(&self.word(next));
            let is_free = self.is_free(next);
            if takes && !is_own && !(is_free && self.is_loud(next) && self.is_macro(next, true)) {
                break; // What is declared.
            }
            next = if takes { self.past(next + 1) } else { next + 1 };
            if is_free {
                let is_loud = self.is_loud(from);
                words.push(Word { from, to: next, is_loud, takes, is_pointed: false });
            }
        }
        while self.is_cpp && self.is(next, b'<') {
            next = self.past_angles(next);
        }
        let mut body = next;
        if self.is(body, b':') && !self.is(body + 1, b':') {
            while !matches!(self.kind(body), None | Some(Kind::Sign(b'{' | b';' | b'}' | b')'))) {
                body = if self.is(body, b'(') { self.past(body) } else { body + 1 };
            }
        }
        if !self.is(body, b'{') {
            // The first word is the one that it is about.
            return Ok(words.first().map_or(next, |word| word.to));
        }
        words.pop();
        for word in before.iter().chain(&words).filter(|word| word.is_loud || !self.is_cpp) {
            self.beside.push((*word, Side::Before));
        }
        if is_enum {
            return Ok(self.past(body));
        }
        self.type_ends.extend(self.partners.get(body));
        Err(body + 1)
    }

    /// Hides macros that stand in lines of their own and belong to nothing.
    fn standing_alone(&mut self, words: &mut Vec<Word>, begin: usize) {
        let mut before = begin.checked_sub(1);
        let mut count = 0;
        for word in words.iter() {
            let is_first = self.ends_line(word.from);
            let is_next = before.map_or(0, |at| at + 1) == word.from;
            if !is_first || !is_next || !self.ends_line(word.to) || !word.is_loud {
                break;
            }
            let line = |at: usize| self.tokens.get(at).map_or(usize::MAX, |token| token.line);
            let is_apart = line(word.to) > line(word.to - 1) + 1
                || self.kind(word.to).is_none_or(Kind::is_directive);
            let name = self.word(word.from);
            let is_bracket = name.split('_').any(|it| matches!(it, "BEGIN" | "END"));
            if !word.takes && !is_apart && !is_bracket {
                break;
            }
            count += 1;
            before = Some(word.to - 1);
        }
        self.alone.extend(words.drain(..count));
    }

    /// Takes the name of what is declared out of the words before `at`. Returns where it stands.
    fn name(&self, words: &mut Vec<Word>, at: usize, has_type: bool) -> Option<usize> {
        let last = *words.last()?;
        if last.to != at {
            return None; // `int (*f)(int)`
        }
        if self.is(at, b'(') {
            if last.takes || self.is_declarator(at) {
                return None;
            }
            return words.pop().map(|word| word.from);
        }
        if !matches!(self.kind(at), Some(Kind::Sign(b';' | b'=' | b'[' | b',' | b':'))) {
            return None;
        }
        // `int a UNUSED;`
        let quiet = words.iter().rposition(|word| !word.is_loud && !word.takes);
        let index = match quiet.filter(|quiet| last.is_loud && (has_type || *quiet > 0)) {
            Some(quiet) => quiet,
            None if last.takes => return None,
            None => words.len() - 1,
        };
        Some(words.remove(index).from)
    }

    /// Tells whether parentheses hold a `*name` that is a pointer to a function.
    fn is_declarator(&self, at: usize) -> bool {
        let mut inner = at + 1;
        while !self.word(inner).is_empty() {
            inner += 1;
        }
        matches!(self.kind(inner), Some(Kind::Sign(b'*' | b'^'))) && self.is(self.past(at), b'(')
    }

    /// Returns which of the words is the type.
    fn kept(&self, words: &[Word], has_type: bool, first_star: Option<usize>) -> Option<usize> {
        if has_type {
            return None;
        }
        let before = words.iter().filter(|word| !word.is_pointed).count();
        let before = first_star.map_or(before, |star| star.min(before));
        let candidates = words.get(..before).unwrap_or_default();
        if first_star.is_some() {
            return before.checked_sub(1);
        }
        let plain = candidates.iter().rposition(|word| !word.is_loud && !word.takes);
        plain.or_else(|| candidates.iter().rposition(|word| !word.takes)).or(before.checked_sub(1))
    }

    /// Reads what follows the name, up to the end of the declaration. Returns what comes after that.
    fn rest(&mut self, from: usize, name: Option<usize>) -> usize {
        let mut at = from;
        let mut is_name = name.is_none();
        while let Some(kind) = self.kind(at) {
            at = match kind {
                Kind::Sign(b';') => return at + 1,
                Kind::Sign(b'}') => return at,
                Kind::Sign(b'{') => return self.past(at),
                Kind::Sign(b'(') => {
                    self.parameters(at);
                    is_name = false;
                    self.past(at)
                }
                Kind::Sign(b'[') => self.past(at),
                Kind::Sign(b',') => {
                    is_name = true;
                    at + 1
                }
                Kind::Sign(b'=') => {
                    let mut next = at + 1;
                    while !matches!(self.kind(next), None | Some(Kind::Sign(b';' | b',' | b'}'))) {
                        let is_open =
                            matches!(self.kind(next), Some(Kind::Sign(b'(' | b'[' | b'{')));
                        next = if is_open { self.past(next) } else { next + 1 };
                    }
                    next
                }
                // What a constructor begins with, or how many bits a field has.
                Kind::Sign(b':') if !self.is(at + 1, b':') => {
                    let mut next = at + 1;
                    loop {
                        match self.kind(next) {
                            None | Some(Kind::Sign(b';' | b'}' | b',')) if !self.is_cpp => break,
                            None | Some(Kind::Sign(b';' | b'}')) => break,
                            Some(Kind::Sign(b'(' | b'[')) => next = self.past(next),
                            Some(Kind::Sign(b'{')) => {
                                let past = self.past(next);
                                let is_member = !self.word(next - 1).is_empty()
                                    && (self.is(past, b',') || self.is(past, b'{'));
                                if !is_member {
                                    return past;
                                }
                                next = past;
                            }
                            _ => next += 1,
                        }
                    }
                    next
                }
                // A type that comes last, or what a macro makes of the rest.
                Kind::Sign(b'-' | b'<' | b'>') if self.is_cpp => {
                    is_name = true;
                    at + 1
                }
                Kind::Word if TAKING.contains(&self.word(at)) => {
                    if self.is(at + 1, b'(') {
                        self.past(at + 1)
                    } else {
                        at + 1
                    }
                }
                Kind::Word if is_name => {
                    is_name = false;
                    at + 1
                }
                Kind::Word if self.is_free(at) && at > from => {
                    let takes = self.is(at + 1, b'(');
                    let to = if takes { self.past(at + 1) } else { at + 1 };
                    let is_loud = self.is_loud(at);
                    let is_last =
                        matches!(self.kind(to), Some(Kind::Sign(b';' | b'{' | b',' | b'=')))
                            || self.is_free(to);
                    if is_last && (is_loud || takes && !self.is_cpp) {
                        let word = Word { from: at, to, is_loud, takes, is_pointed: false };
                        self.leave_out(word, Side::After);
                    }
                    to
                }
                _ => at + 1,
            };
        }
        at
    }

    /// Reads what a function takes, or a name in parentheses.
    fn parameters(&mut self, open: usize) {
        let close = self.partners.get(open).copied().unwrap_or(open);
        let is_pointer = self.is_declarator(open);
        let mut at = open + 1;
        if is_pointer {
            // `(WINAPI *name)`
            while self.is_free(at) {
                let is_loud = self.is_loud(at);
                self.leave_out(
                    Word { from: at, to: at + 1, is_loud, takes: false, is_pointed: false },
                    Side::Before,
                );
                at += 1;
            }
            return;
        }
        while at < close {
            at = self.parameter(at, close) + 1;
        }
    }

    /// Reads one parameter. Returns where it ends.
    fn parameter(&mut self, begin: usize, close: usize) -> usize {
        let mut words: Vec<Word> = Vec::new();
        // How many words stand before the type, where it is none of them.
        let mut before = None;
        let (mut star, mut is_over, mut at) = (None, false, begin);
        while at < close && !self.is(at, b',') {
            let word = self.word(at);
            let next = match self.kind(at) {
                Some(Kind::Sign(b'*' | b'&')) => {
                    star = star.or(Some(words.len()));
                    at + 1
                }
                Some(Kind::Sign(b'(' | b'[' | b'{')) => {
                    is_over = true;
                    self.past(at)
                }
                Some(Kind::Sign(b'=' | b'<' | b':')) => {
                    // Templates and defaults: nothing is said of such a one.
                    words.clear();
                    is_over = true;
                    at + 1
                }
                Some(Kind::Word) if TAGS.contains(&word) => {
                    before = before.or(Some(words.len()));
                    at + 2
                }
                Some(Kind::Word) if TYPES.contains(&word) => {
                    before = before.or(Some(words.len()));
                    at + 1
                }
                Some(Kind::Word) if TAKING.contains(&word) || TYPES_TAKING.contains(&word) => {
                    if self.is(at + 1, b'(') {
                        self.past(at + 1)
                    } else {
                        at + 1
                    }
                }
                Some(Kind::Word) if self.is_free(at) => {
                    let takes = self.is(at + 1, b'(');
                    let to = if takes { self.past(at + 1) } else { at + 1 };
                    let is_loud = self.is_loud(at) || word.starts_with('_') && word.ends_with('_');
                    let word = Word { from: at, to, is_loud, takes, is_pointed: star.is_some() };
                    if !is_over {
                        words.push(word);
                    } else if is_loud && !words.is_empty() {
                        self.leave_out(word, Side::After);
                    }
                    to
                }
                _ => at + 1,
            };
            at = next.max(at + 1);
        }
        self.leave_out_of(
            words,
            before.or(star.and_then(|star: usize| star.checked_sub(1))),
            before.is_some(),
        );
        at.min(close)
    }

    /// Leaves macros out of a parameter, whose type stands behind so many words or, where it is a word itself, is the one there.
    fn leave_out_of(&mut self, words: Vec<Word>, type_at: Option<usize>, has_type: bool) {
        let mut words = words;
        // One behind the name.
        let is_named = |words: &[Word]| {
            let many = words.len() - type_at.unwrap_or(0).min(words.len());
            many > if has_type { 1 } else { 2 }
        };
        while let Some(last) = words.last().copied()
            && last.is_loud
            && is_named(&words)
            && words.iter().any(|word| !word.is_loud)
        {
            self.leave_out(last, Side::After);
            words.pop();
        }
        let many = match type_at {
            Some(at) => at,
            None => words.len().saturating_sub(2),
        };
        let is_cpp = self.is_cpp;
        for word in words.into_iter().take(many).filter(|word| word.is_loud || !is_cpp) {
            self.leave_out(word, Side::Before);
        }
    }

    fn leave_out(&mut self, word: Word, side: Side) {
        self.beside.push((word, side));
    }
}
