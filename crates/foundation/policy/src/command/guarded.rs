//! Options by which programs run others, or write where they are told.

/// What of a program's words no wildcard covers.
pub(super) struct Guarded {
    /// Anywhere. One that ends in `=` has its value in the same word.
    pub(super) options: &'static [&'static str],
    /// Only before the first word that is no option, where they mean something else than after it.
    pub(super) leading: &'static [&'static str],
    /// Those after which a command follows, up to a `;` or `+`.
    pub(super) commands: &'static [&'static str],
    /// Finds the places of more such words, by what is special to the program.
    pub(super) more: fn(&[String]) -> Vec<usize>,
}

impl Guarded {
    /// Says whether there is any such option.
    pub(super) fn has_any(&self) -> bool {
        !self.options.is_empty() || !self.leading.is_empty()
    }

    /// Returns the places of such words in `argv`: of options, shortened ones and several in one word too.
    pub(super) fn found_in(&self, argv: &[String]) -> Vec<usize> {
        let is_option = |word: &String| word.starts_with('-');
        let leading = argv.iter().skip(1).take_while(|word| is_option(word)).count();
        let is_guarded = |at: usize, word: &str| {
            let leading = if at <= leading { self.leading } else { &[] };
            self.options.iter().chain(leading).any(|option| guards(option, word))
        };
        let places = argv.iter().enumerate().skip(1).filter(|(at, word)| is_guarded(*at, word));
        let mut places: Vec<usize> = places.map(|(at, _)| at).collect();
        places.extend((self.more)(argv));
        places.sort_unstable();
        places
    }

    /// Returns the commands that `argv` makes the program run.
    pub(super) fn commands_in<'a>(&self, argv: &'a [String]) -> Vec<&'a [String]> {
        let is_end = |word: &String| word == ";" || word == "+";
        // The letter of a short option may stand behind others.
        let begins = |word: &str| {
            self.commands
                .iter()
                .any(|option| word == *option || (guards(option, word) && clusters(option)))
        };
        let starts = argv.iter().enumerate().skip(1).filter(|(_, word)| begins(word));
        starts
            .filter_map(|(at, _)| argv.get(at + 1..))
            .map(|rest| rest.split(is_end).next().unwrap_or_default())
            .collect()
    }
}

/// Says whether an option is one letter, which may share a word with others.
fn clusters(option: &str) -> bool {
    option.len() == 2 && !option.starts_with("--")
}

/// Says whether `word` is `option`, carries its value, holds it among other letters, or shortens its name as GNU programs
/// allow.
fn guards(option: &str, word: &str) -> bool {
    if let Some(name) = option.strip_suffix('=') {
        let given = word.split_once('=').map(|(given, _)| given);
        return given.is_some_and(|given| given.len() > 2 && name.starts_with(given));
    }
    if option.starts_with("--") {
        return word == option || (word.len() > 3 && option.starts_with(word));
    }
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    match (letters, option.strip_prefix('-')) {
        // Where letters end and a value begins is not looked at: all of the word counts.
        (Some(letters), Some(letter)) if clusters(option) => letters.contains(letter),
        _ => word == option,
    }
}

/// For a program of which nothing more is to be known.
pub(super) fn nothing(_: &[String]) -> Vec<usize> {
    Vec::new()
}

/// The letters of `tar` without a dash, as in `tar xf`.
pub(super) fn of_tar(argv: &[String]) -> Vec<usize> {
    let is_guarded =
        argv.get(1).is_some_and(|word| !word.starts_with('-') && word.contains(['I', 'F']));
    if is_guarded { vec![1] } else { Vec::new() }
}

/// Variables that are set for `make`, which its rules run: `make test SHELL=./x`.
pub(super) fn of_make(argv: &[String]) -> Vec<usize> {
    let places = argv.iter().enumerate().skip(1);
    let sets = places.filter(|(_, word)| !word.starts_with('-') && word.contains(['=', '\0']));
    sets.map(|(at, _)| at).collect()
}

/// The verbs of `git` that run what they are told.
pub(super) fn of_git(argv: &[String]) -> Vec<usize> {
    const RUN: [&str; 8] = [
        "difftool",
        "filter-branch",
        "for-each-repo",
        "hook",
        "instaweb",
        "mergetool",
        "send-email",
        "web--browse",
    ];
    let mut places: Vec<usize> = Vec::new();
    let has = |verb: &str| argv.iter().any(|word| word == verb);
    for (at, word) in argv.iter().enumerate().skip(1) {
        let is_run = match word.as_str() {
            "run" => has("bisect"),
            "foreach" => has("submodule"),
            verb => {
                RUN.contains(&verb)
                    || ((has("difftool") || has("mergetool"))
                        && (verb.starts_with("-t")
                            || verb.starts_with("--tool")
                            || verb.starts_with("--ext")))
                    || (has("clone")
                        && (verb.starts_with("-c")
                            || verb.starts_with("-u")
                            || verb.starts_with("--conf")))
            }
        };
        if is_run {
            places.push(at);
        }
    }
    places
}

/// What `sed` is told to do, as far as it could be to run or write something.
pub(super) fn of_sed(argv: &[String]) -> Vec<usize> {
    const LONG: [&str; 10] = [
        "--debug",
        "--in-place",
        "--null-data",
        "--posix",
        "--quiet",
        "--regexp-extended",
        "--sandbox",
        "--separate",
        "--silent",
        "--unbuffered",
    ];
    let is_known = |word: &str| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        LONG.contains(&word) || letters.bytes().all(|letter| b"nErisuz".contains(&letter))
    };
    let is_option = |word: &String| word.starts_with('-') && word != "-";
    let script = argv.iter().skip(1).position(|word| !is_option(word)).map(|at| at + 1);
    let places = argv.iter().enumerate().skip(1);
    let guarded = places.filter(|(at, word)| match is_option(word) {
        true => !is_known(word),
        false => (Some(*at) == script || word.contains('\0')) && !is_tame(word),
    });
    guarded.map(|(at, _)| at).collect()
}

/// Says whether a script of `sed` does no more than to print, delete or replace: one command, such as `1,5p` or `s/a/b/g`.
fn is_tame(script: &str) -> bool {
    let command = script.trim_start_matches(|it: char| it.is_ascii_digit() || ",$~+".contains(it));
    if let "p" | "d" | "q" | "=" = command {
        return true;
    }
    let Some(rest) = command.strip_prefix('s') else { return false };
    let Some(mark) = rest.chars().next().filter(|mark| "/|#,@!:%".contains(*mark)) else {
        return false;
    };
    let parts: Vec<&str> = rest.split(mark).collect();
    match parts.as_slice() {
        ["", _, _, flags] => {
            // A mark behind a backslash is a letter, and what follows then is not where it seems.
            !script.contains(['\n', '\0'])
                && parts.iter().all(|part| !part.ends_with('\\'))
                && flags.bytes().all(|flag| b"gpiI0123456789".contains(&flag))
        }
        _ => false,
    }
}
