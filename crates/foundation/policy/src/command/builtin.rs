//! What a shell does by itself.

use super::{
    script::{Dialect, is_unknown},
    text::may_not,
    variable::{self, Value},
};

/// What is to be said of a command of shell text.
pub(super) enum Judged {
    /// It is no builtin, and its program is to be judged.
    Program,
    /// A shell does it by itself, and it starts no program and writes no file.
    Fine,
    /// It is denied, for this reason.
    Denied(String),
}

/// Those of which no word can run anything.
const HARMLESS: [&str; 17] = [
    ":", "break", "cd", "continue", "dirs", "echo", "exit", "false", "popd", "pushd", "pwd",
    "return", "shift", "times", "true", "type", "umask",
];

/// Those that take text to run, swap programs or reckon with what they are given.
const TAKE_TEXT: [&str; 13] = [
    "alias",
    "bind",
    "compgen",
    "complete",
    "compopt",
    "coproc",
    "enable",
    "fc",
    "hash",
    "let",
    "mapfile",
    "readarray",
    "trap",
];

/// Those that only bash has; to another shell, the name means a program.
const OF_BASH: [&str; 7] = ["declare", "dirs", "popd", "pushd", "shopt", "typeset", "[["];

/// What a shell reads as its grammar, and no program is called like.
const RESERVED: [&str; 18] = [
    "!", "{", "}", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function",
    "if", "in", "select", "then", "until",
];

/// Judges a command by its words, the first of which names it. `all_may_run` says whether every program may be run.
pub(super) fn judge(words: &[String], dialect: Dialect, all_may_run: bool) -> Judged {
    let Some((name, arguments)) = words.split_first() else { return Judged::Program };
    let judged = match name.as_str() {
        it if dialect == Dialect::Plain && OF_BASH.contains(&it) => {
            Err(format!("{name} is known to bash alone: give the text to bash"))
        }
        it if HARMLESS.contains(&it) => Ok(()),
        it if TAKE_TEXT.contains(&it) => {
            Err(format!("{name} takes shell text, of which no pattern can judge the parts"))
        }
        it if RESERVED.contains(&it) || matches!(it, "while" | "((") => {
            Err(format!("{name} stands where the shell text cannot be taken apart"))
        }
        "[" | "test" | "[[" => test(name, arguments),
        "declare" | "export" | "local" | "readonly" | "typeset" => {
            setters(name, arguments, "aAfFgGlprux", all_may_run)
        }
        "unset" => setters(name, arguments, "fv", all_may_run),
        "read" => setters(name, arguments, "adnNprstu", all_may_run),
        "getopts" => getopts(arguments, all_may_run),
        "wait" => setters(name, arguments, "fn", all_may_run),
        "jobs" => setters(name, arguments, "lnprs", all_may_run),
        "printf" => printf(arguments, all_may_run),
        "set" => set(arguments),
        "shopt" => shopt(arguments),
        _ => return Judged::Program,
    };
    match judged {
        Ok(()) => Judged::Fine,
        Err(why) => Judged::Denied(why),
    }
}

/// For those whose words name variables: each must be known, and name nothing that makes programs run others.
fn setters(name: &str, words: &[String], letters: &str, all_may_run: bool) -> Result<(), String> {
    let is_exported = name == "export"
        || (letters.contains('x')
            && words.iter().any(|word| word.starts_with(['-', '+']) && word.contains('x')));
    for word in words {
        if let Some(options) = word.strip_prefix(['-', '+']) {
            // A name behind an option in the same word is not looked at.
            if is_unknown(word) || !options.chars().all(|it| letters.contains(it) || it == '-') {
                return Err(format!("{} of {name} may set any variable", word.replace('\0', "")));
            }
            continue;
        }
        match is_exported {
            true => sets(name, word, |it| variable::may_be_given(it, all_may_run))?,
            false => sets(name, word, plainly(all_may_run))?,
        }
    }
    Ok(())
}

/// Says whether a variable may be set to anything, for the shell.
fn plainly(all_may_run: bool) -> impl Fn(&str) -> bool {
    move |name| variable::may_be_set(name, Value::Unknown, all_may_run)
}

/// Judges a word that names a variable, and may say what it is to be.
fn sets(name: &str, word: &str, may: impl Fn(&str) -> bool) -> Result<(), String> {
    if is_unknown(word) || word.contains(['$', '`', '[', '(']) {
        return Err(format!(
            "{} of {name} may name any variable or hold what a shell would run",
            word.replace('\0', "")
        ));
    }
    let variable = word.split(['=', '+']).next().unwrap_or_default();
    match may(variable) || !is_name(variable) {
        true => Ok(()),
        false => Err(may_not(variable)),
    }
}

/// Says whether a word can be the name of a variable. Others are what an option of such a command takes.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

fn getopts(words: &[String], all_may_run: bool) -> Result<(), String> {
    words.iter().take(2).try_for_each(|word| sets("getopts", word, plainly(all_may_run)))
}

fn printf(words: &[String], all_may_run: bool) -> Result<(), String> {
    match words {
        [option, variable, ..] if option == "-v" => sets("printf", variable, plainly(all_may_run)),
        [first, ..] if first.starts_with('-') && first != "-" && first != "--" => {
            Err(format!("{first} of printf may set any variable"))
        }
        // A format that begins with what is known begins with no option.
        [first, ..] if is_unknown(first) => {
            Err("the format of printf is known only once the shell runs, and may be an option"
                .into())
        }
        _ => Ok(()),
    }
}

/// `set -k` would make variables of words, and `set -a` would give each to programs.
fn set(words: &[String]) -> Result<(), String> {
    const NAMED: [&str; 11] = [
        "errexit",
        "errtrace",
        "functrace",
        "monitor",
        "noclobber",
        "noexec",
        "noglob",
        "nounset",
        "pipefail",
        "verbose",
        "xtrace",
    ];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix(['-', '+']) else {
            return match is_unknown(word) {
                true => Err("what set is told is known only once the shell runs".into()),
                false => Ok(()),
            };
        };
        if letters == "-" || letters.is_empty() {
            return Ok(());
        }
        let named = letters.contains('o').then(|| words.next());
        let is_known = letters.bytes().all(|letter| b"efmnuvxCETo".contains(&letter));
        let is_named =
            named.is_none_or(|name| name.is_none_or(|name| NAMED.contains(&name.as_str())));
        if !is_known || !is_named {
            let word = word.replace('\0', "");
            return Err(format!("{word} of set may change what the shell text means"));
        }
    }
    Ok(())
}

fn shopt(words: &[String]) -> Result<(), String> {
    const KNOWN: [&str; 12] = [
        "-q",
        "-s",
        "-u",
        "-p",
        "dotglob",
        "failglob",
        "globstar",
        "inherit_errexit",
        "lastpipe",
        "nocaseglob",
        "nocasematch",
        "nullglob",
    ];
    match words.iter().find(|word| !KNOWN.contains(&word.as_str())) {
        None => Ok(()),
        Some(word) => {
            Err(format!("{} of shopt may change what the shell text means", word.replace('\0', "")))
        }
    }
}

/// Says whether what is not known of a word can be only one word: it stands in double quotes.
fn is_one(word: &str) -> bool {
    let is_quoted = word.starts_with("\0\"") && word.ends_with('"');
    is_quoted && word.matches('\0').count() == 1 && !word.contains('@')
}

/// Judges a test. `-v` looks into a name, and `[[` reckons with what it compares as numbers: both run what stands there as
/// `a[$(…)]`.
fn test(name: &str, words: &[String]) -> Result<(), String> {
    const NUMBERS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
    const BINARY: [&str; 9] = ["=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef"];
    let refused =
        |word: &str, why: &str| Err(format!("{} of {name} {why}", word.replace('\0', "")));
    let is_double = name == "[[";
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map(String::as_str).unwrap_or_default();
        if matches!(word.as_str(), "-v" | "-R")
            && !next.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return refused(next, "may hold what a shell would run");
        }
        let is_number = |word: &str| {
            let digits = word.strip_prefix('-').unwrap_or(word);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if is_double && NUMBERS.contains(&word.as_str()) {
            let before = at.checked_sub(1).and_then(|at| words.get(at)).map(String::as_str);
            for word in [before.unwrap_or_default(), next] {
                if !is_number(word) {
                    return refused(
                        word,
                        "is reckoned with, and might hold what a shell would run; [ \"…\" -eq … ] reckons not",
                    );
                }
            }
        }
    }
    let Some(unknown) = words.iter().find(|word| is_unknown(word)) else { return Ok(()) };
    // The words of a [[ are what they are written as, whatever stands in them.
    if is_double {
        return Ok(());
    }
    let words: Vec<&String> =
        words.iter().filter(|word| *word != "]").skip_while(|word| *word == "!").collect();
    let is_fine = |word: &&String| !is_unknown(word) || is_one(word);
    let is_unary = |word: &str| {
        word.len() == 2
            && word.starts_with('-')
            && word.bytes().all(|it| b"-bcdefghknoprstuwxzGLNOS".contains(&it))
    };
    let shaped = match words.as_slice() {
        [_] => true,
        [sign, _] => is_unary(sign),
        [_, sign, _] => BINARY.contains(&sign.as_str()) || NUMBERS.contains(&sign.as_str()),
        _ => false,
    };
    match shaped && words.iter().all(is_fine) {
        true => Ok(()),
        false => refused(
            unknown,
            "is known only once the shell runs: put it in double quotes, in a test of its own",
        ),
    }
}
