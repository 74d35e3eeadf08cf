//! Programs that run other programs.

use std::ops::Range;

use super::{
    guarded::{self, Guarded, nothing},
    script::{Dialect, is_unknown},
};

/// What is to be known of a program before it may be run.
pub(super) enum Program {
    /// It is denied whatever the patterns say, for this reason.
    Refused(&'static str),
    /// It is a shell, which runs a file or a text; how that text is taken apart, where it can be.
    Shell(Option<Dialect>),
    /// It starts the program that some of its arguments name; the function finds where those begin.
    Starts(fn(&[String]) -> Result<usize, String>),
    /// It is `env`, which starts a program as well, and gives it variables; [`env`] finds where that begins.
    Env,
    /// It is itself what is run, apart from these options.
    Plain(Guarded),
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
        "bash" | "rbash" => Program::Shell(Some(Dialect::Bash)),
        "sh" | "dash" | "ash" => Program::Shell(Some(Dialect::Plain)),
        // That of Korn runs what is compared by `[ … -eq … ]`, and `${ …; }`.
        "ksh" | "mksh" | "zsh" | "fish" | "csh" | "tcsh" | "elvish" | "nu" | "pwsh" => {
            Program::Shell(None)
        }
        "env" => Program::Env,
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
        "strace" | "ltrace" | "valgrind" | "prlimit" | "unbuffer" | "catchsegv" | "fakeroot"
        | "proot" | "dbus-run-session" | "xvfb-run" => {
            Program::Starts(|argv| plain(argv, 0, &[], &[]))
        }
        // After a file, a verb, a priority or a time.
        "flock" | "perf" | "chrt" | "faketime" => Program::Starts(|argv| plain(argv, 1, &[], &[])),
        "find" => Program::Plain(Guarded {
            options: &[
                "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0",
                "-fprintf",
            ],
            leading: &[],
            commands: &["-exec", "-execdir", "-ok", "-okdir"],
            more: nothing,
        }),
        "fd" | "fdfind" => Program::Plain(Guarded {
            options: &["-x", "-X", "--exec", "--exec-batch", "--exec=", "--exec-batch="],
            leading: &[],
            commands: &["-x", "-X", "--exec", "--exec-batch"],
            more: nothing,
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
                "--extcmd",
                "--extcmd=",
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
            more: guarded::of_git,
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
                "--rmt-command",
                "--rmt-command=",
                "--info-script",
                "--info-script=",
                "--new-volume-script",
                "--new-volume-script=",
                "--rsh-command",
                "--rsh-command=",
            ],
            commands: &[],
            more: guarded::of_tar,
            leading: &[],
        }),
        "rsync" => Program::Plain(Guarded {
            options: &["-e", "--rsh", "--rsh=", "--rsync-path", "--rsync-path="],
            commands: &[],
            more: nothing,
            leading: &[],
        }),
        "rg" => Program::Plain(Guarded {
            options: &["--pre", "--pre=", "--hostname-bin", "--hostname-bin="],
            commands: &[],
            more: nothing,
            leading: &[],
        }),
        "cargo" => Program::Plain(Guarded {
            options: &["--config", "--config="],
            leading: &[],
            commands: &[],
            more: nothing,
        }),
        "make" | "gmake" => Program::Plain(Guarded {
            options: &[
                "-C",
                "-E",
                "-I",
                "-f",
                "--eval",
                "--eval=",
                "--directory",
                "--directory=",
                "--file",
                "--file=",
                "--include-dir",
                "--include-dir=",
                "--makefile",
                "--makefile=",
            ],
            leading: &[],
            commands: &[],
            more: guarded::of_make,
        }),
        "sort" => Program::Plain(Guarded {
            options: &["-o", "--compress-program", "--compress-program=", "--output", "--output="],
            commands: &[],
            more: nothing,
            leading: &[],
        }),
        "sed" | "gsed" => Program::Plain(Guarded {
            options: &["--expression", "--file"],
            leading: &[],
            commands: &[],
            more: guarded::of_sed,
        }),
        "go" => Program::Plain(Guarded {
            options: &[
                "-exec",
                "-exec=",
                "--exec",
                "--exec=",
                "-toolexec",
                "-toolexec=",
                "--toolexec",
                "--toolexec=",
                "-vettool",
                "-vettool=",
                "--vettool",
                "--vettool=",
                "-overlay",
                "-overlay=",
                "--overlay",
                "--overlay=",
                "-ldflags",
                "-ldflags=",
                "--ldflags",
                "--ldflags=",
            ],
            leading: &[],
            commands: &[],
            more: nothing,
        }),
        _ => Program::Plain(Guarded { options: &[], leading: &[], commands: &[], more: nothing }),
    }
}

/// Finds the command after options and `operands` other words.
fn plain(
    argv: &[String],
    operands: usize,
    flags: &[&str],
    valued: &[&str],
) -> Result<usize, String> {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let at = options(argv, flags, valued)? + operands;
    match argv.get(at) {
        // Such as `time A=b x`, where a shell sets a variable.
        Some(word) if word.contains('=') => {
            Err(format!("{word} sets a variable for a program, which may make it run others"))
        }
        Some(word) if operands > 0 && word.starts_with('-') => {
            Err(format!("option {word} of {name} may run anything"))
        }
        Some(_) => Ok(at),
        None => Err(format!("{name} is given no program to run")),
    }
}

/// Finds what follows a program's options.
fn options(argv: &[String], flags: &[&str], valued: &[&str]) -> Result<usize, String> {
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
    Ok(at)
}

/// Finds the command after `env`'s options and the variables that it is given, and where these stand.
pub(super) fn env(argv: &[String]) -> Result<(usize, Range<usize>), String> {
    let first = options(
        argv,
        &["-i", "-0", "-v", "--ignore-environment", "--null", "--debug"],
        &["-u", "--unset"],
    )?;
    let is_set = |word: &&String| word.contains('=') && !word.starts_with('-');
    let rest = argv.get(first..).unwrap_or_default();
    let inner = first + rest.iter().take_while(is_set).count();
    match argv.get(inner) {
        Some(word) if word == "-" => Err("option - of env may run anything".into()),
        Some(_) => Ok((inner, first..inner)),
        None => Err("env is given no program to run".into()),
    }
}

/// Refuses a command of which a word up to `last` is known only once a shell runs: such a word may become several, and so
/// decide which of them is the program.
pub(super) fn known(argv: &[String], last: usize) -> Result<(), String> {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    match argv.iter().take(last.saturating_add(1)).find(|word| is_unknown(word)) {
        None => Ok(()),
        Some(word) => Err(format!(
            "{} before the program that {name} starts is known only once the shell runs",
            word.replace('\0', "")
        )),
    }
}

/// What a shell is told to run.
pub(super) enum ShellCall<'a> {
    /// The file at that place of its words.
    File(usize),
    /// A text, at that place.
    Text(usize, &'a str),
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
            _ if is_known => return Ok(ShellCall::Text(at - 1, word)),
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
