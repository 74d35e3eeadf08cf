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

    /// Says whether the program does the same wherever it runs: it runs nothing that it finds there, and none of its `words`
    /// names a file by which it would, but for commands, which are looked at for themselves.
    pub(super) fn stays_itself(&self, name: &str, words: &[usize]) -> bool {
        let base = name.rsplit('/').next().unwrap_or(name);
        let is_plain = words.is_empty() || !self.commands.is_empty();
        is_plain && ANYWHERE.contains(&base)
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

/// The programs that run nothing of the folder that they are started in.
const ANYWHERE: &[&str] = &[
    "basename",
    "cat",
    "cmp",
    "column",
    "comm",
    "cp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expand",
    "false",
    "fd",
    "fdfind",
    "fgrep",
    "file",
    "find",
    "fmt",
    "fold",
    "grep",
    "head",
    "hexdump",
    "jq",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "od",
    "paste",
    "printf",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "sort",
    "stat",
    "strings",
    "tac",
    "tail",
    "tee",
    "touch",
    "tr",
    "tree",
    "true",
    "uniq",
    "wc",
    "which",
    "xxd",
];

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

/// What of `git` is not known to run nothing: a verb that is not on the list, which may be a program called `git-…` or an alias,
/// and words of known verbs by which these run programs.
pub(super) fn of_git(argv: &[String]) -> Vec<usize> {
    let is_option = |word: &String| word.starts_with('-');
    let (mut places, mut at) = (Vec::new(), 1);
    while let Some(word) = argv.get(at).filter(|word| is_option(word)) {
        if !GIT_LEADING.contains(&word.as_str()) {
            places.push(at);
        }
        if GIT_VALUED.contains(&word.as_str()) {
            at += 1;
            places.push(at);
        }
        at += 1;
    }
    let Some(verb) = argv.get(at).map(String::as_str) else { return places };
    if !GIT_VERBS.contains(&verb) {
        places.push(at);
        return places;
    }
    let rest = argv.iter().enumerate().skip(at + 1);
    let first = rest.clone().find(|(_, word)| !is_option(word));
    let starts = |word: &str, with: &[&str]| with.iter().any(|it| word.starts_with(it));
    for (place, word) in rest {
        let letters = word.strip_prefix('-').filter(|it| !it.starts_with('-')).unwrap_or_default();
        let is_first = first.is_some_and(|(first, _)| first == place);
        let runs = match verb {
            _ if word == "--help" => true,
            "archive" => starts(word, &["--r"]),
            "bisect" if is_first => !GIT_BISECT.contains(&word.as_str()),
            // Without one, its first option decides what is done, and the others do not.
            "config" => place == at + 1 && !GIT_CONFIG.contains(&word.as_str()),
            "clone" => {
                letters.contains(['c', 'u']) || starts(word, &["--co"]) || word.contains("::")
            }
            "submodule" if is_first => !GIT_SUBMODULE.contains(&word.as_str()),
            // A strategy is a program called `git-merge-…`.
            "merge" | "pull" | "rebase" | "cherry-pick" | "revert"
                if starts(word, &["--str"]) && !starts(word, &["--strategy-"]) =>
            {
                let joined = word.split_once('=').map(|(_, value)| value);
                !is_strategy(joined.or_else(|| argv.get(place + 1).map(String::as_str)))
            }
            "merge" | "pull" | "rebase" if letters.contains('s') => match letters {
                "s" => !is_strategy(argv.get(place + 1).map(String::as_str)),
                _ => !letters.starts_with(['m', 'X']) && !is_strategy(letters.strip_prefix('s')),
            },
            // An address such as `ext::sh -c …` names a program called `git-remote-…`.
            "fetch" | "ls-remote" | "pull" | "push" | "remote" | "submodule" => word.contains("::"),
            _ => false,
        };
        if runs {
            places.push(place);
        }
    }
    places
}

/// The options of `git` itself that change nothing of what it runs.
const GIT_LEADING: [&str; 8] = [
    "--glob-pathspecs",
    "--literal-pathspecs",
    "--no-optional-locks",
    "--no-pager",
    "--no-replace-objects",
    "--version",
    "-P",
    "-v",
];

/// Those that are followed by a word of their own.
const GIT_VALUED: [&str; 7] =
    ["--attr-source", "--config-env", "--git-dir", "--namespace", "--work-tree", "-C", "-c"];

/// The verbs of `git` that run no program of their arguments' choosing, but for the options that are looked at besides. Each
/// is built in, so that neither an alias nor a program can take its place.
const GIT_VERBS: &[&str] = &[
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "fetch",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "hash-object",
    "init",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "merge",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mv",
    "name-rev",
    "notes",
    "pack-refs",
    "prune",
    "pull",
    "push",
    "range-diff",
    "read-tree",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stash",
    "status",
    "stripspace",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "update-index",
    "update-ref",
    "verify-commit",
    "verify-tag",
    "version",
    "whatchanged",
    "worktree",
    "write-tree",
];

const GIT_BISECT: [&str; 9] =
    ["bad", "good", "log", "new", "old", "reset", "skip", "start", "terms"];

const GIT_CONFIG: [&str; 7] = ["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"];

fn is_strategy(name: Option<&str>) -> bool {
    const KNOWN: [&str; 6] = ["octopus", "ort", "ours", "recursive", "resolve", "subtree"];
    name.is_some_and(|name| KNOWN.contains(&name))
}

const GIT_SUBMODULE: [&str; 9] =
    ["absorbgitdirs", "add", "deinit", "init", "set-branch", "status", "summary", "sync", "update"];

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
