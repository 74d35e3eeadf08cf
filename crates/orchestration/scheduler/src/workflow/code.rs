//! Which words of a command its program reads as code.
//!
//! What is put into a word stays part of that word, and no shell is involved; but where the word is a text for a shell, or for
//! any other program that reads it as code, the value becomes code with it. Such a word may hold what the workflow itself says
//! and nothing that a task, an event or a person has said.

use std::collections::BTreeSet;

/// A program that takes code from its words.
struct Reads {
    /// What it is called, without a version.
    names: &'static [&'static str],
    /// Short options whose value is code; they may stand in a group.
    short: &'static str,
    /// Other words whose value, or what stands behind their `=`, is code.
    long: &'static [&'static str],
    /// Options whose value is the next word, and is no code.
    valued: &'static [&'static str],
    /// What the first word is that is no option, where no code came before it.
    first: First,
}

/// What the first word of a program is that is no option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// A file or a name of what is run: what follows are its arguments.
    Script,
    /// Code.
    Code,
    /// Nothing in particular: only values of options are code.
    Other,
    /// Code, and so is each word behind it, options among them.
    All,
}

/// Programs that take code, and how. Source: their manuals, 2026-11.
const PROGRAMS: &[Reads] = &[
    Reads {
        names: &[
            "sh", "ash", "bash", "csh", "dash", "elvish", "fish", "hush", "ksh", "mksh", "nu",
            "oksh", "rbash", "tcsh", "xonsh", "yash", "zsh",
        ],
        short: "cC",
        long: &["--command", "--commands", "--init-command"],
        valued: &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"],
        first: First::Script,
    },
    Reads {
        names: &["python", "pythonw", "pypy", "ipython", "micropython", "jython"],
        short: "c",
        long: &[],
        valued: &["-W", "-X", "--check-hash-based-pycs"],
        first: First::Script,
    },
    Reads {
        names: &["perl", "raku"],
        short: "eEM",
        long: &[],
        valued: &["-I"],
        first: First::Script,
    },
    Reads {
        names: &["ruby", "jruby", "irb"],
        short: "e",
        long: &[],
        valued: &["-I", "-r", "-C", "-E"],
        first: First::Script,
    },
    Reads {
        names: &["node", "nodejs", "bun", "deno", "tsx", "ts-node"],
        short: "ep",
        long: &["--eval", "--print", "eval"],
        valued: &[
            "-r",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "-C",
            "--conditions",
        ],
        first: First::Script,
    },
    Reads {
        names: &["php"],
        short: "rBRE",
        long: &["--run", "--process-begin", "--process-code", "--process-end"],
        valued: &["-c", "-d", "-f", "-z", "-t", "-S"],
        first: First::Script,
    },
    Reads {
        names: &["lua", "luajit"],
        short: "e",
        long: &[],
        valued: &["-l"],
        first: First::Script,
    },
    Reads {
        names: &[
            "R",
            "Rscript",
            "clj",
            "clojure",
            "elixir",
            "emacs",
            "erl",
            "expect",
            "gdb",
            "ghc",
            "ghci",
            "groovy",
            "guile",
            "julia",
            "lldb",
            "osascript",
            "racket",
            "sbcl",
            "scala",
            "swift",
            "tclsh",
        ],
        short: "ceE",
        long: &[
            "--eval",
            "-eval",
            "--expr",
            "--execute",
            "--ex",
            "--eval-command",
            "--print",
            "--one-line",
            "-o",
        ],
        valued: &[],
        first: First::Script,
    },
    Reads {
        names: &["awk", "gawk", "mawk", "nawk", "original-awk"],
        short: "e",
        long: &["--source"],
        valued: &["-v", "--assign", "-F", "--field-separator", "-i", "--include", "-l", "--load"],
        first: First::Code,
    },
    Reads {
        names: &["sed", "gsed"],
        short: "e",
        long: &["--expression"],
        valued: &["-l", "--line-length"],
        first: First::Code,
    },
    Reads {
        names: &[
            "su",
            "runuser",
            "script",
            "flock",
            "sg",
            "newgrp",
            "npx",
            "npm",
            "nix-shell",
            "psql",
        ],
        short: "c",
        long: &["--command", "--session-command", "--call", "--run"],
        valued: &[],
        first: First::Other,
    },
    Reads {
        names: &["mysql", "mariadb"],
        short: "e",
        long: &["--execute", "--init-command"],
        valued: &[],
        first: First::Other,
    },
    Reads {
        names: &["vi", "vim", "nvim", "ex", "view"],
        short: "cS",
        long: &["--cmd"],
        valued: &[],
        first: First::Other,
    },
    Reads {
        names: &["git"],
        short: "c",
        long: &["--config-env"],
        valued: &["-C"],
        first: First::Other,
    },
    Reads {
        names: &["env"],
        short: "S",
        long: &["--split-string"],
        valued: &["-u", "-C"],
        first: First::Other,
    },
    Reads {
        names: &[
            "cmd",
            "eval",
            "gmake",
            "make",
            "parallel",
            "powershell",
            "pwsh",
            "screen",
            "sqlite",
            "ssh",
            "tmux",
            "watch",
        ],
        short: "",
        long: &[],
        valued: &[],
        first: First::All,
    },
];

/// Programs that run the one that their words name.
const WRAPPERS: &[&str] = &[
    "busybox", "chroot", "chrt", "command", "doas", "env", "exec", "flock", "ionice", "nice",
    "nohup", "nsenter", "numactl", "setarch", "setpriv", "setsid", "stdbuf", "strace", "sudo",
    "taskset", "time", "timeout", "unshare", "xargs",
];

/// A word of a command that would become code, or the program itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code<'a> {
    /// Which of the words.
    pub(super) at: usize,
    /// Who would read it as code; nothing where the word names the program.
    pub(super) reader: Option<&'a str>,
}

/// Finds the words among `outside`, in which a value stands that the workflow does not say itself, that are code or a program.
pub(super) fn code<'a>(argv: &'a [String], outside: &BTreeSet<usize>) -> Vec<Code<'a>> {
    let mut found = Vec::new();
    let wraps = argv.first().is_some_and(|word| WRAPPERS.contains(&name(word)));
    found.extend(program(argv, wraps, outside).map(|at| Code { at, reader: None }));
    let mut is_known = false;
    for (at, word) in argv.iter().enumerate().filter(|(at, _)| !outside.contains(at)) {
        let name = name(word);
        let Some(reads) = PROGRAMS.iter().find(|it| it.names.contains(&name)) else { continue };
        // What stands further behind may be no more than a word, but for a program whose options say that code follows.
        let runs = at == 0 || wraps && !is_known;
        if runs || reads.first == First::Script {
            let read = reads.read(argv, at + 1, runs, outside);
            found.extend(read.into_iter().map(|at| Code { at, reader: Some(name) }));
        }
        is_known |= !WRAPPERS.contains(&name);
    }
    found.sort_by_key(|it| it.at);
    found.dedup_by_key(|it| it.at);
    found
}

impl Reads {
    /// Returns which of the words from `from` on are code, as far as they are among `outside`.
    fn read(
        &self,
        argv: &[String],
        from: usize,
        runs: bool,
        outside: &BTreeSet<usize>,
    ) -> Vec<usize> {
        let mut found = Vec::new();
        // Whether the next word that is no option is code, whether the next word is the value of an option, and what was there.
        let (mut wants_code, mut wants_value) = (false, false);
        let (mut has_code, mut is_over) = (false, false);
        for (at, word) in argv.iter().enumerate().skip(from) {
            let mut find = || found.extend(outside.contains(&at).then_some(at));
            if self.first == First::All {
                find();
            } else if std::mem::take(&mut wants_value) {
                continue;
            } else if word == "--" && !is_over {
                is_over = true;
            } else if !is_over && self.is_option(word) {
                // One of which a part is put in may say anything, such as that code follows.
                find();
                let is_file = self.first == First::Code && ["-f", "--file"].contains(&&**word);
                has_code |= is_file;
                wants_value = is_file || self.valued.contains(&&**word);
                wants_code |= !wants_value && self.announces_code(word);
                if word.starts_with("-m") && self.names.contains(&"python") {
                    break;
                }
            } else if std::mem::take(&mut wants_code) {
                find();
                has_code = true;
                // What follows are arguments; others take more code.
                if ["sh", "python"].iter().any(|it| self.names.contains(it)) {
                    break;
                }
            } else if self.first != First::Other {
                // A script, which could be an option that says code if it is put in, or code itself.
                if runs && !has_code {
                    find();
                }
                break;
            } else if self.names.contains(&"env") && !word.contains('=') {
                break;
            }
        }
        found
    }

    fn is_option(&self, word: &str) -> bool {
        self.long.contains(&word) || word.len() > 1 && word.starts_with(['-', '+'])
    }

    /// Tells whether code follows an option; what stands behind its `=` is looked at with it.
    fn announces_code(&self, option: &str) -> bool {
        let group = option.strip_prefix(['-', '+']).filter(|group| !group.starts_with('-'));
        let announces = |group: &str| group.contains(|it| self.short.contains(it));
        self.long.contains(&option) || group.is_some_and(announces)
    }
}

/// Returns the word that names a program, where it is one of `outside`.
fn program(argv: &[String], wraps: bool, outside: &BTreeSet<usize>) -> Option<usize> {
    if outside.contains(&0) || !wraps {
        return Some(0).filter(|at| outside.contains(at));
    }
    for (at, word) in argv.iter().enumerate().skip(1) {
        let is_set = word.split_once('=').is_some_and(|(name, _)| !name.contains("{{"));
        let is_aside =
            is_set || word.starts_with('-') || word.starts_with(|it: char| it.is_ascii_digit());
        match outside.contains(&at) {
            true if is_set => {}
            true => return Some(at),
            false if is_aside => {}
            false => return None,
        }
    }
    None
}

/// Returns what a program is called, without its folder and version.
fn name(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let bare = name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.' || it == '-');
    if bare.is_empty() { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which words with a value in them would be code.
    fn found(argv: &[&str]) -> Vec<usize> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let outside = (0..argv.len()).filter(|at| argv[*at].contains("{{")).collect();
        code(&argv, &outside).into_iter().map(|it| it.at).collect()
    }

    #[test]
    fn a_value_in_a_text_that_a_program_runs_is_code() {
        for argv in [
            &["sh", "-c", "echo {{x}}"][..],
            &["/bin/bash", "-lc", "echo {{x}}"],
            &["bash", "-ec", "echo {{x}}", "bash", "a"],
            &["python3.12", "-c", "print('{{x}}')"],
            &["node", "-e", "console.log('{{x}}')"],
            &["node", "-pe", "'{{x}}'"],
            &["perl", "-ne", "print '{{x}}'"],
            &["ruby", "-e", "puts '{{x}}'"],
            &["php8.3", "-r", "echo '{{x}}';"],
            &["lua", "-e", "print('{{x}}')"],
            &["deno", "eval", "console.log('{{x}}')"],
            &["sed", "-i", "s/a/{{x}}/"],
            &["awk", "-F:", "{ print \"{{x}}\" }"],
        ] {
            assert_eq!(found(argv), [2], "{argv:?}");
        }
    }

    #[test]
    fn a_text_is_found_behind_options_and_behind_programs_that_run_others() {
        assert_eq!(found(&["bash", "-o", "pipefail", "-c", "{{x}}"]), [4]);
        assert_eq!(found(&["bash", "-c", "-x", "{{x}}"]), [3]);
        assert_eq!(found(&["sh", "-c", "--", "{{x}}"]), [3]);
        assert_eq!(found(&["env", "A=b", "sh", "-c", "{{x}}"]), [4]);
        assert_eq!(found(&["timeout", "5", "sh", "-c", "{{x}}"]), [4]);
        assert_eq!(found(&["docker", "run", "image", "sh", "-c", "{{x}}"]), [5]);
        assert_eq!(found(&["find", ".", "-exec", "sh", "-c", "rm {{x}}", ";"]), [5]);
        assert_eq!(found(&["perl", "-e", "1", "-e", "{{x}}"]), [4]);
        assert_eq!(found(&["awk", "-v", "a=b", "{{x}}"]), [3]);
        assert_eq!(found(&["ssh", "host", "ls {{x}}"]), [2]);
        assert_eq!(found(&["make", "NAME={{x}}"]), [1]);
        assert_eq!(found(&["su", "me", "-c", "{{x}}"]), [3]);
        assert_eq!(found(&["su", "-c{{x}}"]), [1]);
        assert_eq!(found(&["node", "--eval={{x}}"]), [1]);
        assert_eq!(found(&["git", "-c", "alias.x={{x}}", "x"]), [2]);
        assert_eq!(found(&["env", "-S", "sh {{x}}"]), [2]);
    }

    #[test]
    fn a_value_as_a_program_a_script_or_an_option_is_no_better() {
        assert_eq!(found(&["{{x}}", "a"]), [0]);
        assert_eq!(found(&["./{{x}}"]), [0]);
        assert_eq!(found(&["env", "A=b", "{{x}}"]), [2]);
        assert_eq!(found(&["timeout", "5s", "{{x}}", "a"]), [2]);
        assert_eq!(found(&["python", "{{x}}"]), [1]);
        assert_eq!(found(&["python", "-{{x}}", "a"]), [1]);
    }

    #[test]
    fn arguments_and_the_environment_are_no_code() {
        for argv in [
            &["echo", "{{x}}"][..],
            &["sh", "-c", "echo \"$1\"", "sh", "{{x}}"],
            &["env", "X={{x}}", "sh", "-c", "echo \"$X\""],
            &["python", "tool.py", "{{x}}", "-c", "{{x}}"],
            &["python", "-W", "error", "-u", "tool.py", "{{x}}"],
            &["python", "-m", "tool", "-c", "{{x}}"],
            &["python", "-c", "import sys; print(sys.argv[1])", "--name={{x}}"],
            &["node", "-e", "console.log(process.argv[1])", "{{x}}"],
            &["bash", "-e", "tool.sh", "{{x}}"],
            &["perl", "tool.pl", "-e", "{{x}}"],
            &["awk", "-v", "x={{x}}", "{ print x }"],
            &["awk", "-f", "tool.awk", "{{x}}"],
            &["sed", "-n", "p", "{{x}}"],
            &["git", "commit", "-m", "{{x}}"],
            &["grep", "make", "{{x}}"],
            &["cargo", "test", "{{x}}"],
            &["test", "-e", "{{x}}"],
        ] {
            assert_eq!(found(argv), [] as [usize; 0], "{argv:?}");
        }
    }
}
