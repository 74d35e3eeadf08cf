//! Which arguments a subcommand may have. What is not here is refused, abbreviations included.

use crate::error::Error;

/// What follows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Digits.
    Number,
    /// Anything: a pattern, a date, a name.
    Text,
    /// A format, without placeholders that run a program.
    Format,
    /// Line numbers, as `10,20` or `10,+5`.
    Lines,
}

struct Subcommand {
    name: &'static str,
    /// Put before the caller's arguments.
    forced: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static [&'static str]],
    /// Long ones are given as `--name=value`, short ones as `-nVALUE` or `-n VALUE`.
    values: &'static [&'static [(&'static str, Value)]],
    /// `-5` is a number.
    bare_number: bool,
    /// The first operand is a pattern unless one was given by `-e`.
    pattern_first: bool,
}

use Value::{Format, Lines, Number, Text};

const DIFF_FLAGS: &[&str] = &[
    "-p",
    "-u",
    "--patch",
    "-s",
    "--no-patch",
    "--raw",
    "--stat",
    "--shortstat",
    "--numstat",
    "--summary",
    "--compact-summary",
    "--dirstat",
    "--name-only",
    "--name-status",
    "--minimal",
    "--patience",
    "--histogram",
    "-w",
    "--ignore-all-space",
    "-b",
    "--ignore-space-change",
    "--ignore-space-at-eol",
    "--ignore-blank-lines",
    "-z",
    "-R",
    "-M",
    "-C",
    "--find-renames",
    "--find-copies",
    "--no-renames",
    "--word-diff",
    "-a",
    "--text",
    "--full-index",
    "--abbrev",
    "--no-prefix",
    "-W",
    "--function-context",
    "--check",
    "--no-color",
    "--pickaxe-all",
    "--no-ext-diff",
    "--no-textconv",
];
const DIFF_VALUES: &[(&str, Value)] = &[
    ("-U", Number),
    ("--unified", Number),
    ("--inter-hunk-context", Number),
    ("--abbrev", Number),
    ("--diff-filter", Text),
    ("--word-diff", Text),
    ("--stat", Text),
    ("--find-renames", Text),
    ("-S", Text),
    ("-G", Text),
];
const LOG_FLAGS: &[&str] = &[
    "--oneline",
    "--graph",
    "--all",
    "--branches",
    "--remotes",
    "--tags",
    "--decorate",
    "--no-decorate",
    "--pretty",
    "--first-parent",
    "--merges",
    "--no-merges",
    "--follow",
    "--reverse",
    "--date-order",
    "--topo-order",
    "--author-date-order",
    "--full-history",
    "--simplify-merges",
    "--ancestry-path",
    "--left-right",
    "--cherry-pick",
    "--cherry-mark",
    "--boundary",
    "--no-walk",
    "--parents",
    "--children",
    "--abbrev-commit",
    "--no-abbrev-commit",
    "-i",
    "--regexp-ignore-case",
    "-E",
    "-F",
    "-P",
    "--all-match",
    "--invert-grep",
    "--no-notes",
    "--relative-date",
];
const LOG_VALUES: &[(&str, Value)] = &[
    ("-n", Number),
    ("--max-count", Number),
    ("--skip", Number),
    ("--since", Text),
    ("--after", Text),
    ("--until", Text),
    ("--before", Text),
    ("--author", Text),
    ("--committer", Text),
    ("--grep", Text),
    ("--format", Format),
    ("--pretty", Format),
    ("--date", Text),
    ("--decorate", Text),
];
/// No driver of the repository's attributes runs, and no submodule is entered.
const PLAIN_DIFF: &[&str] = &["--no-ext-diff", "--no-textconv", "--ignore-submodules=all"];

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "status",
        forced: &["--ignore-submodules=all"],
        flags: &[&[
            "-s",
            "--short",
            "-b",
            "--branch",
            "--porcelain",
            "--long",
            "-z",
            "-u",
            "-uno",
            "-uall",
            "-unormal",
            "--untracked-files",
            "--ignored",
            "--ahead-behind",
            "--no-ahead-behind",
            "--show-stash",
            "--no-renames",
            "--find-renames",
        ]],
        values: &[&[("--porcelain", Text), ("--untracked-files", Text), ("--ignored", Text)]],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "diff",
        forced: PLAIN_DIFF,
        flags: &[DIFF_FLAGS, &["--cached", "--staged", "--merge-base", "--quiet", "--exit-code"]],
        values: &[DIFF_VALUES],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "log",
        forced: PLAIN_DIFF,
        flags: &[DIFF_FLAGS, LOG_FLAGS],
        values: &[DIFF_VALUES, LOG_VALUES],
        bare_number: true,
        pattern_first: false,
    },
    Subcommand {
        name: "show",
        forced: PLAIN_DIFF,
        flags: &[DIFF_FLAGS, LOG_FLAGS],
        values: &[DIFF_VALUES, LOG_VALUES],
        bare_number: true,
        pattern_first: false,
    },
    Subcommand {
        name: "blame",
        // The setting is a list, all of whose files are read whatever comes behind them.
        forced: &["--no-textconv", "--no-ignore-revs-file"],
        flags: &[&[
            "-w",
            "-M",
            "-C",
            "-l",
            "-s",
            "-t",
            "-f",
            "-e",
            "-n",
            "-c",
            "-p",
            "--porcelain",
            "--line-porcelain",
            "--show-email",
            "--show-name",
            "--show-number",
            "--root",
            "--first-parent",
        ]],
        values: &[&[("-L", Lines), ("--since", Text), ("--abbrev", Number), ("--date", Text)]],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "ls-files",
        forced: &[],
        flags: &[&[
            "-c",
            "--cached",
            "-d",
            "--deleted",
            "-m",
            "--modified",
            "-o",
            "--others",
            "-i",
            "--ignored",
            "-s",
            "--stage",
            "-u",
            "--unmerged",
            "-z",
            "-t",
            "-v",
            "--exclude-standard",
            "--full-name",
            "--error-unmatch",
            "--eol",
            "--directory",
            "--no-empty-directory",
            "--deduplicate",
        ]],
        values: &[],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "rev-parse",
        forced: &[],
        flags: &[&[
            "--show-toplevel",
            "--abbrev-ref",
            "--short",
            "--verify",
            "--quiet",
            "-q",
            "--is-inside-work-tree",
            "--is-bare-repository",
            "--is-shallow-repository",
            "--symbolic-full-name",
            "--show-prefix",
            "--all",
            "--branches",
            "--tags",
            "--git-dir",
            "--absolute-git-dir",
            "--show-object-format",
        ]],
        values: &[&[("--short", Number), ("--abbrev-ref", Text)]],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "branch",
        forced: &["--list"],
        flags: &[&[
            "-l",
            "--list",
            "-a",
            "--all",
            "-r",
            "--remotes",
            "-v",
            "-vv",
            "--verbose",
            "--merged",
            "--no-merged",
            "--show-current",
            "-i",
            "--ignore-case",
            "--no-color",
            "--no-abbrev",
        ]],
        values: &[&[
            ("--contains", Text),
            ("--no-contains", Text),
            ("--merged", Text),
            ("--no-merged", Text),
            ("--points-at", Text),
            ("--sort", Text),
        ]],
        bare_number: false,
        pattern_first: false,
    },
    Subcommand {
        name: "grep",
        forced: &["--no-textconv", "--no-recurse-submodules"],
        flags: &[&[
            "-n",
            "--line-number",
            "-i",
            "--ignore-case",
            "-w",
            "--word-regexp",
            "-v",
            "--invert-match",
            "-l",
            "--files-with-matches",
            "--name-only",
            "-L",
            "--files-without-match",
            "-c",
            "--count",
            "-o",
            "--only-matching",
            "-h",
            "-H",
            "-E",
            "--extended-regexp",
            "-F",
            "--fixed-strings",
            "-G",
            "--basic-regexp",
            "-P",
            "--perl-regexp",
            "-I",
            "-a",
            "--text",
            "-q",
            "--quiet",
            "-z",
            "--null",
            "-p",
            "--show-function",
            "-W",
            "--function-context",
            "--cached",
            "--untracked",
            "--column",
            "--heading",
            "--break",
            "--all-match",
            "--and",
            "--or",
            "--not",
            "--full-name",
        ]],
        values: &[&[
            ("-e", Text),
            ("-A", Number),
            ("-B", Number),
            ("-C", Number),
            ("-m", Number),
            ("--after-context", Number),
            ("--before-context", Number),
            ("--context", Number),
            ("--max-count", Number),
            ("--max-depth", Number),
        ]],
        bare_number: true,
        pattern_first: true,
    },
    Subcommand {
        name: "cat-file",
        forced: &[],
        flags: &[&["-t", "-s", "-p", "-e"]],
        values: &[],
        bare_number: false,
        pattern_first: false,
    },
];

/// Checks a call and returns its arguments, with those that keep it harmless.
pub(super) fn check(args: &[&str]) -> Result<Vec<String>, Error> {
    let (name, rest) = args.split_first().unwrap_or((&"", &[]));
    let refuse = |argument: &str, why| Error::GitRefused {
        command: (*name).to_owned(),
        argument: argument.to_owned(),
        why,
    };
    let Some(sub) = SUBCOMMANDS.iter().find(|sub| sub.name == *name) else {
        return Err(refuse(name, "the subcommand is not on the read-only list"));
    };
    let mut out = vec![sub.name.to_owned()];
    let only_current = sub.name == "branch" && rest.contains(&"--show-current");
    out.extend(sub.forced.iter().filter(|_| !only_current).map(|arg| (*arg).to_owned()));

    let mut pattern_due = sub.pattern_first && !rest.iter().any(|arg| arg.starts_with("-e"));
    let mut rest = rest.iter().copied();
    let mut paths_only = false;
    while let Some(arg) = rest.next() {
        out.push(arg.to_owned());
        if arg.contains('\0') {
            return Err(refuse(arg, "it holds a NUL character"));
        }
        if paths_only || !arg.starts_with('-') {
            if std::mem::take(&mut pattern_due) && !paths_only {
                continue;
            }
            operand(arg).map_err(|why| refuse(arg, why))?;
        } else if arg == "--" {
            paths_only = true;
        } else if !sub.is_flag(arg) {
            let (value, found) = sub.valued(arg).ok_or_else(|| {
                refuse(arg, "the option is not on the read-only list of its subcommand")
            })?;
            let found = match found {
                Some(found) => found,
                None => {
                    let next = rest.next().ok_or_else(|| refuse(arg, "its value is missing"))?;
                    out.push(next.to_owned());
                    next
                }
            };
            value.check(found).map_err(|why| refuse(arg, why))?;
        }
    }
    Ok(out)
}

impl Subcommand {
    fn is_flag(&self, arg: &str) -> bool {
        let has = |flag: &str| self.flags.iter().any(|list| list.contains(&flag));
        if has(arg) || self.bare_number && arg.strip_prefix('-').is_some_and(is_number) {
            return true;
        }
        // Several short ones in one, as `-sb`.
        arg.strip_prefix('-').is_some_and(|letters| {
            letters.len() > 1
                && letters.chars().all(|c| c.is_ascii_alphabetic() && has(&format!("-{c}")))
        })
    }

    /// Finds an option with a value, and the value if it is in the same argument.
    fn valued<'a>(&self, arg: &'a str) -> Option<(Value, Option<&'a str>)> {
        self.values.iter().copied().flatten().find_map(|(name, value)| {
            let found = arg.strip_prefix(name)?;
            if name.starts_with("--") {
                Some((*value, Some(found.strip_prefix('=')?)))
            } else {
                Some((*value, (!found.is_empty()).then_some(found)))
            }
        })
    }
}

impl Value {
    fn check(self, found: &str) -> Result<(), &'static str> {
        match self {
            Number if is_number(found) => Ok(()),
            Number => Err("its value is no number"),
            Lines => {
                let (from, to) = found.split_once(',').unwrap_or((found, ""));
                let to = to.strip_prefix(['+', '-']).unwrap_or(to);
                let number = |text: &str| text.is_empty() || is_number(text);
                if number(from) && number(to) { Ok(()) } else { Err("its value is no line range") }
            }
            Format if found.contains("%G") || found.contains("%(signature") => {
                Err("checking a signature runs a program")
            }
            _ if found.contains('\0') => Err("its value holds a NUL character"),
            Text | Format => Ok(()),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks a revision or path; git tells them apart, so each must be harmless as either.
fn operand(arg: &str) -> Result<(), &'static str> {
    let bare = match arg.strip_prefix(":(") {
        Some(magic) => magic.split_once(')').map_or(magic, |(_, path)| path),
        None => arg.trim_start_matches([':', '!', '^']),
    };
    // `:/text` looks for a commit, `:/path` goes from the top.
    let absolute = bare.starts_with('/') && !arg.starts_with(":/");
    if absolute {
        return Err("it is an absolute path");
    }
    if bare.split(['/', ':']).any(|part| part == "..") {
        return Err("it leads out of the worktree");
    }
    Ok(())
}
