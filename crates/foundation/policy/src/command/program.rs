//! Programs that run other programs.

/// What is to be known of a program before it may be run.
pub(super) enum Program {
    /// It is denied whatever the patterns say, for this reason.
    Refused(&'static str),
    /// It is a shell, which runs a file or a text; whether that text is one that can be taken apart.
    Shell(bool),
    /// It starts the program that some of its arguments name; the function finds where those begin.
    Starts(fn(&[String]) -> Result<usize, String>),
    /// It is itself what is run, apart from these options.
    Plain(Guarded),
}

/// Options by which a program runs others or writes where it is told.
pub(super) struct Guarded {
    /// Anywhere. One that ends in `=` has its value in the same word.
    options: &'static [&'static str],
    /// Only before the first word that is no option, where they mean something else than after it.
    leading: &'static [&'static str],
    /// Those after which a command follows, up to a `;` or `+`.
    commands: &'static [&'static str],
}

const RAISES: &str = "acts with other rights, or where the rules do not reach";
const TAKES_TEXT: &str = "takes shell text, of which no pattern can judge the parts";
const REPEATS: &str = "starts programs whose arguments are not known beforehand";

/// Returns what is known of the program called `name`, wherever it lies.
pub(super) fn of(name: &str) -> Program {
    let base = name.rsplit('/').next().unwrap_or(name);
    match base {
        "sudo" | "sudoedit" | "doas" | "su" | "pkexec" | "runuser" | "run0" | "setpriv"
        | "chroot" | "unshare" | "nsenter" | "bwrap" | "firejail" | "systemd-run" | "at"
        | "batch" | "crontab" | "capsh" | "machinectl" | "gdb" | "lldb" => Program::Refused(RAISES),
        "eval" | "watch" | "script" | "expect" | "entr" | "screen" | "tmux" | "rlwrap" => {
            Program::Refused(TAKES_TEXT)
        }
        "xargs" | "parallel" => Program::Refused(REPEATS),
        "sh" | "bash" | "dash" | "ash" | "ksh" | "mksh" | "rbash" => Program::Shell(true),
        "zsh" | "fish" | "csh" | "tcsh" | "elvish" | "nu" | "pwsh" => Program::Shell(false),
        "env" => Program::Starts(env),
        "busybox" | "toybox" => Program::Starts(|argv| plain(argv, 0, &[], &[])),
        "nohup" | "exec" | "command" | "builtin" => {
            Program::Starts(|argv| plain(argv, 0, &[], &[]))
        }
        "setsid" => Program::Starts(|argv| {
            plain(argv, 0, &["-c", "-f", "-w", "--ctty", "--fork", "--wait"], &[])
        }),
        "nice" => Program::Starts(|argv| plain(argv, 0, &[], &["-n", "--adjustment"])),
        "ionice" => Program::Starts(|argv| {
            plain(argv, 0, &["-t", "--ignore"], &["-c", "-n", "--class", "--classdata"])
        }),
        "timeout" => Program::Starts(|argv| {
            let flags = ["-v", "--verbose", "--foreground", "--preserve-status"];
            plain(argv, 1, &flags, &["-k", "-s", "--kill-after", "--signal"])
        }),
        "time" => {
            Program::Starts(|argv| plain(argv, 0, &["-p", "-v", "--portability", "--verbose"], &[]))
        }
        "stdbuf" => Program::Starts(|argv| {
            plain(argv, 0, &[], &["-i", "-o", "-e", "--input", "--output", "--error"])
        }),
        "taskset" => {
            Program::Starts(|argv| plain(argv, 1, &["-c", "-a", "--cpu-list", "--all-tasks"], &[]))
        }
        "strace" | "ltrace" | "valgrind" | "perf" | "flock" | "chrt" | "prlimit" | "unbuffer"
        | "catchsegv" | "faketime" | "fakeroot" | "proot" | "dbus-run-session" | "xvfb-run" => {
            Program::Starts(|argv| plain(argv, 0, &[], &[]))
        }
        "find" => Program::Plain(Guarded {
            options: &[
                "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0",
                "-fprintf",
            ],
            leading: &[],
            commands: &["-exec", "-execdir", "-ok", "-okdir"],
        }),
        "fd" | "fdfind" => Program::Plain(Guarded {
            options: &["-x", "-X", "--exec", "--exec-batch", "--exec=", "--exec-batch="],
            leading: &[],
            commands: &["-x", "-X", "--exec", "--exec-batch"],
        }),
        "git" => Program::Plain(Guarded {
            options: &[
                "-x",
                "-O",
                "--exec",
                "--exec=",
                "--ext-diff",
                "--open-files-in-pager",
                "--open-files-in-pager=",
                "--output",
                "--output=",
                "--receive-pack",
                "--receive-pack=",
                "--template",
                "--template=",
                "--upload-pack",
                "--upload-pack=",
            ],
            leading: &[
                "-c",
                "-C",
                "--config-env",
                "--config-env=",
                "--exec-path=",
                "--git-dir",
                "--git-dir=",
                "--work-tree",
                "--work-tree=",
            ],
            commands: &[],
        }),
        "tar" | "bsdtar" => Program::Plain(Guarded {
            options: &[
                "-I",
                "-F",
                "--use-compress-program",
                "--use-compress-program=",
                "--to-command",
                "--to-command=",
                "--checkpoint-action",
                "--checkpoint-action=",
                "--info-script",
                "--info-script=",
                "--new-volume-script",
                "--new-volume-script=",
                "--rsh-command",
                "--rsh-command=",
            ],
            commands: &[],
            leading: &[],
        }),
        "rsync" => Program::Plain(Guarded {
            options: &["-e", "--rsh", "--rsh=", "--rsync-path", "--rsync-path="],
            commands: &[],
            leading: &[],
        }),
        "rg" => Program::Plain(Guarded {
            options: &["--pre", "--pre=", "--hostname-bin", "--hostname-bin="],
            commands: &[],
            leading: &[],
        }),
        "cargo" => Program::Plain(Guarded {
            options: &["--config", "--config="],
            leading: &[],
            commands: &[],
        }),
        "make" | "gmake" => Program::Plain(Guarded {
            options: &["--eval", "--eval=", "-E"],
            leading: &[],
            commands: &[],
        }),
        "sort" => Program::Plain(Guarded {
            options: &["--compress-program", "--compress-program="],
            commands: &[],
            leading: &[],
        }),
        _ => Program::Plain(Guarded { options: &[], leading: &[], commands: &[] }),
    }
}

impl Guarded {
    /// Says whether there is any such option.
    pub(super) fn has_any(&self) -> bool {
        !self.options.is_empty() || !self.leading.is_empty()
    }

    /// Returns the places of such options in `argv`, shortened ones too where programs take those.
    pub(super) fn found_in(&self, argv: &[String]) -> Vec<usize> {
        let is_option = |word: &String| word.starts_with('-');
        let leading = argv.iter().skip(1).take_while(|word| is_option(word)).count();
        let is_guarded = |at: usize, word: &str| {
            let leading = if at <= leading { self.leading } else { &[] };
            self.options.iter().chain(leading).any(|option| guards(option, word))
        };
        let places = argv.iter().enumerate().skip(1).filter(|(at, word)| is_guarded(*at, word));
        places.map(|(at, _)| at).collect()
    }

    /// Returns the commands that `argv` makes the program run.
    pub(super) fn commands_in<'a>(&self, argv: &'a [String]) -> Vec<&'a [String]> {
        let is_end = |word: &String| word == ";" || word == "+";
        let starts = argv.iter().enumerate().skip(1);
        let starts = starts.filter(|(_, word)| self.commands.contains(&word.as_str()));
        starts
            .filter_map(|(at, _)| argv.get(at + 1..))
            .map(|rest| rest.split(is_end).next().unwrap_or_default())
            .collect()
    }
}

/// Says whether `word` is `option`, carries its value, or shortens its name as GNU programs allow.
fn guards(option: &str, word: &str) -> bool {
    if let Some(name) = option.strip_suffix('=') {
        let given = word.split_once('=').map(|(given, _)| given);
        return given.is_some_and(|given| given.len() > 2 && name.starts_with(given));
    }
    if option.starts_with("--") {
        return word == option || (word.len() > 3 && option.starts_with(word));
    }
    // A short option's value may follow in the same word; `find`'s words are not such.
    let is_short = option.len() == 2;
    word == option || (is_short && word.starts_with(option) && !word.starts_with("--"))
}

/// Finds the command after options and `operands` other words.
fn plain(
    argv: &[String],
    operands: usize,
    flags: &[&str],
    valued: &[&str],
) -> Result<usize, String> {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let mut at = 1;
    while let Some(word) = argv.get(at).filter(|word| word.starts_with('-') && *word != "-") {
        at += 1;
        let joined = valued.iter().any(|option| {
            let short = option.len() == 2 && word.len() > 2 && word.starts_with(option);
            short || word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        });
        match word.as_str() {
            "--" => break,
            it if flags.contains(&it) || joined => {}
            it if valued.contains(&it) => at += 1,
            it => return Err(format!("option {it} of {name} may run anything")),
        }
    }
    at += operands;
    match argv.get(at) {
        Some(_) => Ok(at),
        None => Err(format!("{name} is given no program to run")),
    }
}

/// Finds the command after `env`'s options. Variables change what every later word means.
fn env(argv: &[String]) -> Result<usize, String> {
    let inner = plain(
        argv,
        0,
        &["-i", "-0", "-v", "--ignore-environment", "--null", "--debug"],
        &["-u", "--unset"],
    )?;
    match argv.get(inner) {
        Some(word) if word.contains('=') => {
            Err(format!("{word} sets a variable for a program, which may make it run others"))
        }
        Some(word) if word == "-" => Err("option - of env may run anything".into()),
        Some(_) | None => Ok(inner),
    }
}

/// What a shell is told to run.
pub(super) enum ShellCall<'a> {
    /// The file at that place of its arguments.
    File(usize),
    /// A text.
    Text(&'a str),
}

/// Finds what a shell is told to run.
pub(super) fn shell(argv: &[String], is_known: bool) -> Result<ShellCall<'_>, String> {
    const LONG: [&str; 5] = ["--login", "--norc", "--noprofile", "--posix", "--restricted"];
    const SET: [&str; 7] =
        ["errexit", "nounset", "pipefail", "xtrace", "verbose", "noglob", "noclobber"];
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let unjudged = |word: &str| {
        Err(format!(
            "option {word} of {name} may take shell text, of which no pattern can judge the parts"
        ))
    };
    let (mut at, mut takes_text) = (1, false);
    while let Some(word) = argv.get(at) {
        at += 1;
        let (sign, letters) = match word.split_at_checked(1) {
            Some((sign @ ("-" | "+"), letters)) => (sign, letters),
            _ if !takes_text => return Ok(ShellCall::File(at - 1)),
            _ if is_known => return Ok(ShellCall::Text(word)),
            _ => return Err(format!("{name} {TAKES_TEXT}")),
        };
        match letters {
            "-" if sign == "-" && !takes_text => {
                return match argv.get(at) {
                    Some(_) => Ok(ShellCall::File(at)),
                    None => Err(format!("{name} alone takes shell text from its input")),
                };
            }
            _ if LONG.contains(&word.as_str()) => {}
            "o" if argv.get(at).is_some_and(|set| SET.contains(&set.as_str())) => at += 1,
            _ if !letters.is_empty() && letters.bytes().all(|it| b"ceulxvfnh".contains(&it)) => {
                takes_text |= sign == "-" && letters.contains('c');
            }
            _ => return unjudged(word),
        }
    }
    match takes_text {
        true => Err(format!("{name} is given no text to run")),
        false => Err(format!("{name} alone takes shell text from its input")),
    }
}

/// What a shell does by itself, and what by that cannot start a program or write a file.
pub(super) const BUILTINS: [&str; 36] = [
    ":",
    "[",
    "break",
    "cd",
    "continue",
    "declare",
    "dirs",
    "echo",
    "exit",
    "export",
    "false",
    "getopts",
    "hash",
    "jobs",
    "let",
    "local",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "test",
    "times",
    "true",
    "type",
    "typeset",
    "umask",
    "unset",
    "wait",
];

/// What a shell does by itself that takes text to run.
pub(super) const TEXT_BUILTINS: [&str; 6] =
    ["alias", "bind", "complete", "compgen", "enable", "trap"];

/// Says whether a variable makes programs run code of its value's choosing, or, where only some programs may be run,
/// others than it seems.
pub(super) fn is_dangerous(variable: &str, all_may_run: bool) -> bool {
    const ALWAYS: [&str; 6] = ["BASH_ENV", "BASHOPTS", "ENV", "PROMPT_COMMAND", "PS4", "SHELLOPTS"];
    const LISTED: [&str; 26] = [
        "CC",
        "CDPATH",
        "CXX",
        "EDITOR",
        "FC",
        "HOME",
        "JAVA_TOOL_OPTIONS",
        "LESSOPEN",
        "LESSCLOSE",
        "MAKEFLAGS",
        "MANPAGER",
        "NODE_OPTIONS",
        "PAGER",
        "PATH",
        "PERL5DB",
        "PERL5LIB",
        "PERL5OPT",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "RUBYLIB",
        "RUBYOPT",
        "SHELL",
        "TAR_OPTIONS",
        "VISUAL",
        "XDG_CONFIG_HOME",
        "_JAVA_OPTIONS",
    ];
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| variable.starts_with(prefix));
    ALWAYS.contains(&variable)
        || begins(&["LD_", "DYLD_", "BASH_FUNC_"])
        || (!all_may_run
            && (LISTED.contains(&variable)
                || begins(&["GIT_", "CARGO_", "RUSTC", "RUSTDOC", "NPM_CONFIG_", "npm_config_"])))
}
