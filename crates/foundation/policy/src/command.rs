//! Which programs may be run, and with which arguments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

use crate::Error;

mod builtin;
mod guarded;
mod program;
mod script;
mod text;
mod variable;

use program::{Program, ShellCall};

/// How many programs may stand before the one that is really run.
const DEEPEST: usize = 8;

/// Patterns for commands, such as `cargo test *` or `git status`.
///
/// A word matches itself. A `*` matches one word, or, as the last one, all that follow, if any. Words
/// are parted by blanks; quotes keep blanks in a word.
///
/// Programs that are known to start others are seen through: `timeout 5 rm x` must match as `rm x`, and a pattern
/// reaches past such a program only with the words that it spells out. Programs that raise rights or
/// take shell text are denied, the latter unless a pattern spells out the whole command; but the text of `bash -c` and its
/// kin is taken apart, and each command in it must match by itself. A file that a shell runs needs a pattern that spells
/// out both. For a few programs (`find`, `fd`, `git`, `tar`, `rsync`, `rg`, `cargo`, `go`, `make`, `sed`, `sort`) a
/// wildcard never covers the options that are known to run or write what they are told. Of all other programs nothing is
/// known: `uv run *` or `python3 *` cover whatever those run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPatterns(Arc<[Pattern]>);

/// What the words of a command mean where it runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meaning<'a> {
    /// The folder that it runs in, as the call names it; none is the top of the workspace, for which patterns are meant.
    pub folder: Option<&'a str>,
    /// The programs that are found by their name alone and are files of the workspace, each with where it lies. Whoever
    /// works there can put one in the place of the program that a pattern means.
    pub within: Option<&'a BTreeMap<String, String>>,
    /// The workspace, in which a folder that shell text goes to is looked for; where none is told, none is found.
    pub roots: Option<&'a BTreeSet<PathBuf>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    words: Vec<Word>,
    /// Whether it ends with a `*`, which matches any number of words.
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Exactly(String),
    Any,
}

impl CommandPatterns {
    /// Parses patterns. An empty list allows nothing.
    ///
    /// # Errors
    /// [`Error::CommandPattern`] names the first that cannot be read.
    pub fn parse<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let parsed = patterns.into_iter().map(|pattern| Pattern::parse(pattern.as_ref()));
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Returns what matches every command but those that are always denied.
    pub(crate) fn everything() -> Self {
        Self([Pattern { words: Vec::new(), open: true }].into())
    }

    /// Checks a program and its arguments; text of a shell by its parts.
    ///
    /// # Errors
    /// Why it may not be run, for the model.
    pub fn check(&self, argv: &[String], meaning: Meaning<'_>) -> Result<(), String> {
        self.check_by(argv, true, meaning)
    }

    /// Checks a program and its arguments, where text of a shell is only run if a pattern spells it out.
    ///
    /// # Errors
    /// Why it may not be run, for the model.
    pub(crate) fn check_without_shell(
        &self,
        argv: &[String],
        meaning: Meaning<'_>,
    ) -> Result<(), String> {
        self.check_by(argv, false, meaning)
    }

    fn check_by(&self, argv: &[String], texts: bool, meaning: Meaning<'_>) -> Result<(), String> {
        let Meaning { folder, within, roots } = meaning;
        let roots = roots.filter(|_| folder.is_none());
        let judge = Judge { patterns: &self.0, texts, moved: folder.is_some(), within, roots };
        let Some(folder) = folder else { return judge.check(argv) };
        let there = judge.patterns_of(folder);
        match (Judge { patterns: &there, moved: false, ..judge }).check(argv) {
            Ok(()) => Ok(()),
            Err(_) => judge.check(argv),
        }
    }

    /// Returns the files that redirections of shell text in a command would write, where they are known.
    pub(crate) fn written_by(argv: &[String]) -> Vec<String> {
        let Some(name) = argv.first() else { return Vec::new() };
        let Program::Shell(Some(dialect)) = program::of(name) else { return Vec::new() };
        let Ok(ShellCall::Text(_, text)) = program::shell(argv, true) else { return Vec::new() };
        let mut writes =
            script::parse(text, dialect).map(|script| script.writes).unwrap_or_default();
        writes.retain(|path| !script::is_unknown(path));
        writes
    }
}

/// Patterns, and where commands are held against them.
#[derive(Clone, Copy)]
struct Judge<'a> {
    patterns: &'a [Pattern],
    /// Whether text of a shell may be run that no pattern spells out.
    texts: bool,
    /// Whether it runs elsewhere, or shell text has gone to another folder before: the same name is another file there, and
    /// many programs run what they find where they are.
    moved: bool,
    /// The programs that are files of the workspace although only their name is given.
    within: Option<&'a BTreeMap<String, String>>,
    /// Where a folder that a text goes to is looked for; none within another folder or another text.
    roots: Option<&'a BTreeSet<PathBuf>>,
}

impl Judge<'_> {
    /// Returns what is allowed in a folder, by the patterns that are written for it.
    fn patterns_of(self, folder: &str) -> Vec<Pattern> {
        self.patterns.iter().filter_map(|it| it.within(folder)).collect()
    }

    fn check(self, argv: &[String]) -> Result<(), String> {
        self.check_chain(argv, &mut vec![0])
    }

    /// Checks the last program of a chain of programs that start one another; `starts` says where in
    /// `argv` each begins.
    fn check_chain(self, argv: &[String], starts: &mut Vec<usize>) -> Result<(), String> {
        let at = starts.last().copied().unwrap_or_default();
        let last = argv.get(at..).unwrap_or_default();
        let Some(name) = last.first() else { return Err("the command is empty".into()) };
        if starts.len() > DEEPEST {
            return Err(format!("{} starts too many programs through one another", shown(argv)));
        }
        self.is_itself(name)?;
        let is_whole = || self.patterns.iter().any(|pattern| pattern.is(argv));
        if let Program::Shell(_) | Program::Starts(_) | Program::Env = program::of(name) {
            self.stays(name)?;
        }
        match program::of(name) {
            Program::Refused(reason) => Err(format!("{name} {reason}")),
            // Nothing is left to guess in a command that a pattern spells out whole.
            Program::Shell(_) | Program::Starts(_) | Program::Env if is_whole() && !self.moved => {
                Ok(())
            }
            Program::Shell(dialect) => match program::shell(last, dialect.is_some())? {
                ShellCall::File(file) => {
                    program::known(last, file)?;
                    self.check_file(argv, starts, file)
                }
                ShellCall::Text(_, _) if !self.texts => Err(format!(
                    "{name} is given shell text, and no shell is opted in where processes are confined: make a call for \
                     each program, or whoever starts the run sets shell = true below [permissions] of the config"
                )),
                ShellCall::Text(place, text) => {
                    program::known(last, place)?;
                    let dialect =
                        dialect.ok_or_else(|| format!("{name} has a grammar of its own"))?;
                    self.check_text(text, dialect, starts.len())
                }
            },
            Program::Starts(parse) => {
                let inner = parse(last)?;
                program::known(last, inner)?;
                starts.push(at + inner);
                self.check_chain(argv, starts)
            }
            Program::Env => {
                let (inner, sets) = program::env(last)?;
                program::known(last, inner)?;
                self.check_given(argv, at, sets)?;
                starts.push(at + inner);
                self.check_chain(argv, starts)
            }
            Program::Plain(guarded) => {
                let words = guarded.found_in(last);
                if !self.names(argv, starts, &[]) {
                    let list = Listed(self.patterns);
                    return Err(format!("{} matches no allowed command: {list}", shown(argv)));
                }
                self.stays(name)?;
                if self.moved && !self.all_may_run() && !guarded.stays_itself(name, &words) {
                    return Err(elsewhere(name));
                }
                // What a shell puts in may be such an option as well.
                let unknown =
                    last.iter().position(|word| guarded.has_any() && script::is_unknown(word));
                let words: Vec<usize> = words.into_iter().chain(unknown).collect();
                if !self.names(argv, starts, &words) {
                    let word = words.first().and_then(|word| last.get(*word));
                    let word = word.map(String::as_str).unwrap_or_default().replace('\0', "");
                    return Err(format!(
                        "{word} of {name} may run or write anything, and no pattern spells it out"
                    ));
                }
                // What it runs besides is a command of its own.
                let mut inner = guarded.commands_in(last).into_iter();
                inner.try_for_each(|inner| self.check_nested(inner, starts.len()))
            }
        }
    }

    /// Checks the variables that `env`, which begins at a place of `argv`, gives to a program: one that is not known to be
    /// harmless has to stand in a pattern.
    fn check_given(self, argv: &[String], env: usize, sets: Range<usize>) -> Result<(), String> {
        let from = argv.get(env..).unwrap_or_default();
        let is_spelled = |at: usize| {
            self.patterns.iter().any(|pattern| pattern.matches(from) && pattern.spells(at))
        };
        for at in sets {
            let set = from.get(at).map(String::as_str).unwrap_or_default();
            let name = set.split('=').next().unwrap_or_default();
            if !variable::may_be_given(name, self.all_may_run()) && !is_spelled(at) {
                return Err(text::may_not(name));
            }
        }
        Ok(())
    }

    fn check_nested(self, argv: &[String], depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("it starts too many programs through one another".into());
        }
        // Each level counts, or a text within a text within a text would never end.
        let mut starts = vec![0; depth.saturating_add(1)];
        self.check_chain(argv, &mut starts)
    }

    /// Checks a file that a shell is given: it is no program of that name, so only a pattern with the shell and the file in
    /// it covers it.
    fn check_file(self, argv: &[String], starts: &[usize], file: usize) -> Result<(), String> {
        let words: Vec<usize> = (1..=file).collect();
        if !self.names(argv, starts, &words) {
            return Err(format!(
                "{} runs a file, and no pattern spells out the shell and the file: {}",
                shown(argv),
                Listed(self.patterns)
            ));
        }
        let at = starts.last().copied().unwrap_or_default();
        let name = argv.get(at + file).map(String::as_str).unwrap_or_default();
        match self.moved && !self.all_may_run() && !name.starts_with('/') {
            true => Err(elsewhere(name)),
            false => Ok(()),
        }
    }

    /// Refuses a program that is named by where it lies, once the shell is elsewhere.
    fn stays(self, name: &str) -> Result<(), String> {
        let is_bound = self.moved && !self.all_may_run();
        match is_bound && name.contains('/') && !name.starts_with('/') {
            true => Err(elsewhere(name)),
            false => Ok(()),
        }
    }

    /// Refuses a program that is named as one of the system and is a file of the workspace.
    fn is_itself(self, name: &str) -> Result<(), String> {
        match self.within.and_then(|within| within.get(name)) {
            Some(place) if !self.all_may_run() => Err(format!(
                "{name} is {place} here, a file of the workspace, and no pattern by its name alone means that: call it by \
                 its path, which a pattern has to name"
            )),
            _ => Ok(()),
        }
    }

    /// Says whether a pattern covers every program.
    fn all_may_run(self) -> bool {
        self.patterns.iter().any(|pattern| pattern.words.is_empty())
    }

    /// Says whether a pattern matches the chain from one of its programs on, and spells out the last
    /// program and those of its words.
    fn names(self, argv: &[String], starts: &[usize], words: &[usize]) -> bool {
        let last = starts.last().copied().unwrap_or_default();
        starts.iter().any(|start| {
            let from = argv.get(*start..).unwrap_or_default();
            let before = last - start;
            self.patterns.iter().filter(|pattern| pattern.matches(from)).any(|pattern| {
                // A wildcard over the last program would let every program through.
                let program = before == 0 || pattern.spells(before);
                // Where every program may be run, there is nothing to slip past.
                let all = pattern.words.is_empty();
                program && (all || words.iter().all(|word| pattern.spells(before + word)))
            })
        })
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::CommandPattern { pattern: text.to_owned(), reason };
        let mut words = Vec::new();
        for (word, quoted) in split(text).map_err(wrong)? {
            match word.as_str() {
                "*" if !quoted => words.push(Word::Any),
                _ if word.contains('*') && !quoted => {
                    return Err(wrong("a * stands for whole words, not for a part of one"));
                }
                _ => words.push(Word::Exactly(word)),
            }
        }
        let open = words.last() == Some(&Word::Any);
        if open {
            words.pop();
        }
        if words.is_empty() && !open {
            return Err(wrong("it names no program"));
        }
        Ok(Self { words, open })
    }

    /// Returns what it allows in a folder, where it is written for that: `env -C FOLDER PROGRAM …`.
    fn within(&self, folder: &str) -> Option<Self> {
        let plain = |path: &str| {
            let path = path.trim_end_matches('/');
            path.strip_prefix("./").unwrap_or(path).to_owned()
        };
        let is_within = |words: &[Word]| match words {
            [Word::Exactly(env), Word::Exactly(option), Word::Exactly(named)] => {
                env == "env" && option == "-C" && plain(named) == plain(folder)
            }
            _ => false,
        };
        let (before, words) = self.words.split_at_checked(3)?;
        let names_program = matches!(words.first(), Some(Word::Exactly(_)));
        (is_within(before) && names_program)
            .then(|| Self { words: words.to_vec(), open: self.open })
    }

    fn matches(&self, argv: &[String]) -> bool {
        let long_enough = argv.len() >= self.words.len();
        let fits = long_enough && (self.open || argv.len() == self.words.len());
        fits && self.words.iter().zip(argv).all(|(word, given)| match word {
            Word::Exactly(wanted) => wanted == given,
            // What a shell puts in may be several words, or none: only a last wildcard covers it.
            Word::Any => !script::is_unknown(given),
        })
    }

    /// Says whether it names the word at that place, rather than covering it with a wildcard.
    fn spells(&self, at: usize) -> bool {
        matches!(self.words.get(at), Some(Word::Exactly(_)))
    }

    /// Says whether it matches `argv` and nothing else.
    fn is(&self, argv: &[String]) -> bool {
        !self.open && !self.words.contains(&Word::Any) && self.matches(argv)
    }
}

/// Parts a pattern into words, and says of each whether it was quoted.
fn split(text: &str) -> Result<Vec<(String, bool)>, &'static str> {
    let mut words = Vec::new();
    let mut open: Option<(String, bool)> = None;
    let mut quote: Option<char> = None;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '"' | '\'') => {
                open.get_or_insert_default().1 = true;
                quote = Some(letter);
            }
            (None, _) if letter.is_whitespace() => words.extend(open.take()),
            (None | Some(_), _) => open.get_or_insert_default().0.push(letter),
        }
    }
    words.extend(open);
    match quote {
        Some(_) => Err("a quote is not closed"),
        None => Ok(words),
    }
}

fn elsewhere(name: &str) -> String {
    format!(
        "{name} may be another file, or run one, in another folder than the top of the workspace, for which patterns are meant: do \
         without cd and cwd, or whoever starts the run names the folder in a pattern, `env -C FOLDER {name} *`, for calls \
         with that cwd and for texts that begin with `cd FOLDER &&`"
    )
}

/// Writes a command for a message: what has blanks in quotes, and not more than a line.
fn shown(argv: &[String]) -> String {
    const LONGEST: usize = 200;
    let word = |word: &String| match word.is_empty() || word.contains(char::is_whitespace) {
        true => format!("{word:?}"),
        false => word.clone(),
    };
    let text = argv.iter().map(word).collect::<Vec<_>>().join(" ").replace('\0', "");
    match formwork_protocols::text::head(&text, LONGEST) {
        head if head.len() < text.len() => format!("{head}…"),
        _ => text,
    }
}

impl fmt::Display for CommandPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listed(&self.0).fmt(f)
    }
}

/// Patterns, for a message.
struct Listed<'a>(&'a [Pattern]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "the list is empty");
        }
        for (index, pattern) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{pattern}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.iter().map(|word| match word {
            Word::Exactly(word) if word.is_empty() || word.contains([' ', '\t', '*']) => {
                format!("{word:?}")
            }
            Word::Exactly(word) => word.clone(),
            Word::Any => "*".to_owned(),
        });
        let all: Vec<_> = words.chain(self.open.then(|| "*".to_owned())).collect();
        write!(f, "`{}`", all.join(" "))
    }
}

#[cfg(test)]
mod tests;
