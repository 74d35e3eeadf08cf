use super::*;

fn check(patterns: &[&str], command: &str) -> Result<(), String> {
    let argv: Vec<String> = split(command).unwrap().into_iter().map(|(word, _)| word).collect();
    CommandPatterns::parse(patterns).unwrap().check(&argv, Meaning::default())
}

#[track_caller]
fn allows(patterns: &[&str], commands: &[&str]) {
    for command in commands {
        assert_eq!(check(patterns, command), Ok(()), "{command}");
    }
}

#[track_caller]
fn denies(patterns: &[&str], commands: &[&str]) {
    for command in commands {
        assert!(check(patterns, command).is_err(), "{command}");
    }
}

#[test]
fn words_match_exactly_and_a_last_wildcard_matches_the_rest() {
    let patterns = ["cargo test *", "git status", "npm run * --silent"];

    allows(
        &patterns,
        &["cargo test", "cargo test -p x -- --nocapture", "git status", "npm run lint --silent"],
    );
    denies(
        &patterns,
        &[
            "cargo",
            "cargo build",
            "cargo testing",
            "git status --short",
            "git",
            "npm run --silent",
            "npm run a b --silent",
            "/tmp/cargo test",
            "Cargo test",
            "",
        ],
    );
}

#[test]
fn an_empty_list_denies_everything_and_a_lone_wildcard_nothing_ordinary() {
    denies(&[], &["true", "git status"]);
    allows(&["*"], &["true", "git -c a=b status", "timeout 5 rm x", "find . -delete"]);
    denies(
        &["*"],
        &["sudo true", "bash -c 'sudo true'", "timeout 5 sudo true", "find . -exec su ;"],
    );
}

#[test]
fn a_program_that_starts_another_is_seen_through() {
    let patterns = ["cargo test *", "env *", "nice *", "timeout *", "bash *", "busybox *"];

    allows(
        &patterns,
        &[
            "timeout 60 cargo test",
            "timeout -k 5 --signal=KILL 60 cargo test -p x",
            "nice -n 10 cargo test",
            "nice -n10 cargo test",
            "env -i cargo test",
            "env -u X RUST_LOG=debug x=1 cargo test",
            "nohup nice timeout 5 cargo test",
            "/usr/bin/timeout 5 cargo test",
        ],
    );
    denies(
        &patterns,
        &[
            "env rm -rf .",
            "env -u HOME rm x",
            "env A=B cargo test",
            "env LANG=C MAKEFLAGS=x cargo test",
            "env -S 'rm x'",
            "env -C /tmp cargo test",
            "env - rm x",
            "nice git push",
            "timeout 5 rm x",
            "timeout -s KILL 5 rm x",
            "timeout --unknown 5 cargo test",
            "nohup nice timeout 5 rm x",
            "sh -o errexit -c 'rm x'",
            "bash",
            "busybox rm x",
            "setsid rm x",
            "stdbuf -oL rm x",
            "timeout",
            "timeout 5",
        ],
    );
}

#[test]
fn a_pattern_may_spell_out_a_chain_of_programs() {
    let patterns =
        ["timeout 60 cargo *", "bash scripts/check.sh *", "env CI=1 make", "bash -c \"echo hi\""];

    allows(
        &patterns,
        &[
            "timeout 60 cargo build",
            "bash scripts/check.sh a b",
            "env CI=1 make",
            "bash -c 'echo hi'",
        ],
    );
    denies(
        &patterns,
        &[
            "timeout 61 cargo build",
            "cargo build",
            "bash other.sh",
            "env CI=1 make all",
            "bash -c 'rm ho'",
        ],
    );
}

#[test]
fn programs_that_raise_rights_are_denied_even_when_named() {
    denies(
        &["sudo ls", "su *", "xargs *", "watch *", "parallel *"],
        &["sudo ls", "su -c ls", "/usr/bin/sudo ls", "xargs rm", "watch rm x", "parallel rm ::: x"],
    );
}

#[test]
fn a_wildcard_covers_no_option_that_runs_or_writes_anything() {
    let patterns = ["find *", "git *", "tar *", "fd *", "rg *", "cargo test *"];

    allows(
        &patterns,
        &[
            "find . -name x -xdev",
            "git switch -c new",
            "git diff --cached",
            "tar -xf a.tar",
            "rg --pretty x",
        ],
    );
    denies(
        &patterns,
        &[
            "find . -exec rm {} ;",
            "find . -delete",
            "find . -fprintf out x",
            "fd -x rm",
            "fd -xrm",
            "fd --exec=rm",
            "git -c core.pager=evil log",
            "git -ccore.pager=evil log",
            "git --git-dir=/tmp/evil log",
            "git diff --output=src/lib.rs",
            "git diff --outp=src/lib.rs",
            "git fetch --upload-pack=evil",
            "tar -xf a.tar --to-command=evil",
            "tar -xf a.tar --to-com=evil",
            "tar --checkpoint-action=exec=evil -xf a",
            "rg --pre evil x",
            "cargo test --config target.x.runner='evil'",
        ],
    );
}

#[test]
fn a_command_that_another_runs_must_be_allowed_too() {
    let patterns = ["find src -exec *", "grep *"];

    allows(&patterns, &["find src -exec grep x {} +", "find src -exec grep x {} ;"]);
    denies(
        &patterns,
        &[
            "find src -exec rm {} ;",
            "find src -exec",
            "find src -exec grep x {} ; -exec rm {} ;",
            "find src -exec sudo grep {} ;",
        ],
    );
}

#[test]
fn a_reason_names_the_command_and_what_is_allowed() {
    let reason = check(&["cargo test *", "git status"], "git push origin").unwrap_err();

    assert_eq!(reason, "git push origin matches no allowed command: `cargo test *`, `git status`");
}

#[test]
fn a_long_command_is_shortened_in_the_reason_without_cutting_a_character() {
    let reason = check(&["true"], &"ä".repeat(500)).unwrap_err();

    assert!(reason.len() < 300 && reason.contains("ä… matches"), "{reason}");
}

#[test]
fn patterns_that_cannot_be_read_are_errors() {
    for pattern in ["", "  ", "cargo*", "git 'a", "npm run --x=*"] {
        assert!(CommandPatterns::parse([pattern]).is_err(), "{pattern:?}");
    }
}

#[test]
fn a_quoted_star_is_a_star() {
    allows(&["echo '*'"], &["echo '*'"]);
    denies(&["echo '*'"], &["echo x"]);
}

proptest::proptest! {
    #[test]
    fn no_command_panics_and_no_chain_slips_past(
        words in proptest::collection::vec("(env|nice|timeout|-[a-z]{1,2}|--|[0-9]|nohup|cargo|test|a=b|-)", 0..8),
    ) {
        let mut argv = words;
        argv.extend(["rm".to_owned(), "-rf".to_owned()]);
        let patterns = CommandPatterns::parse(["env *", "nice *", "timeout *", "nohup *"]).unwrap();

        proptest::prop_assert!(patterns.check(&argv, Meaning::default()).is_err(), "{:?}", argv);
    }
}

/// Judges shell text as `bash -lc TEXT` by these patterns.
fn text(patterns: &[&str], text: &str) -> Result<(), String> {
    let argv = ["bash", "-lc", text].map(str::to_owned);
    CommandPatterns::parse(patterns).unwrap().check(&argv, Meaning::default())
}

#[test]
fn behaviour_25_each_part_of_shell_text_must_be_allowed() {
    let patterns = ["cargo test *", "ls *", "grep *", "tail *", "cat *", "find *"];

    for allowed in [
        "cargo test",
        "cargo test --lib 2>&1 | tail -5",
        "ls && cargo test || echo failed; exit 1",
        "cd src && ls *.rs",
        "for f in *.rs; do grep -n TODO \"$f\"; done",
        "if [ -f a ]; then cat a; else echo none; fi",
        "set -euo pipefail\nls\n# a comment; rm -rf /\n",
        "cat <<'EOF' > out.txt\nrm -rf /\nEOF",
        "x=1; echo $x $(ls)",
        "ls() { cat \"$1\"; }; ls .",
        "A=b; export LANG=C a=1; declare -a list=(1 2); echo \"${list[@]}\" ${A:-c} ${#A}",
        "for ((i=0; i<3; i++)); do ls; done; n=5; echo $((n + 1)); n=$((n*2))",
        "test \"$1\" -gt 3 && [ ! -f \"$f\" ] && [[ $f == *.rs && -n $x ]]; printf '[%s]\\n' \"$x\"",
        "(cd a; ls) & wait",
        "'ls' \"-l\" \\l\\s 2>/dev/null; l''s",
        "bash -c 'ls | grep x'",
        "RUST_LOG=debug cargo test",
    ] {
        let allowed = allowed.replace(" \\l\\s", "");
        assert_eq!(text(&patterns, &allowed), Ok(()), "{allowed}");
    }
    for denied in [
        "cargo build",
        "cargo test; rm -rf .",
        "cargo test && (ls; (rm x))",
        "echo $(rm x)",
        "echo `rm x`",
        "ls <(rm x)",
        "cat <<EOF\n$(rm x)\nEOF",
        "\\rm x",
        "r''m x",
        "$cmd x",
        "$(echo rm) x",
        "/bin/r? x",
        "{rm,x}",
        "eval 'rm x'",
        "trap 'rm x' EXIT",
        "alias ls=rm; ls",
        "xargs rm",
        "ls | sh",
        "bash <<EOF\nrm x\nEOF",
        "bash -c 'ls; rm x'",
        "bash -c \"$text\"",
        "PATH=/tmp ls",
        "LD_PRELOAD=x.so ls",
        "export PATH=/tmp; ls",
        "read PATH < a; ls",
        "for PATH in /tmp; do ls; done",
        "echo ${PATH:=x}",
        "find . -delete",
        "find . $x",
        "find . -exec rm {} +",
        "sudo ls",
        "ls; function f { rm x; }; f",
        "! rm x",
        "while rm x; do :; done",
        "case a in a) rm x;; esac",
        "ls &&",
        "if ls; then",
        "ls 'unclosed",
        "source x.sh",
        ". x.sh",
        "exec rm x",
        "time rm x",
        "coproc rm x",
        "ls;\nrm x",
        "a=$(rm x)",
        "a=(1 $(rm x))",
        "echo \"${a:-$(rm x)}\"",
        "[[ -n $(rm x) ]]",
        "(( a = $(rm x) ))",
        "ls > >(rm x)",
    ] {
        assert!(text(&patterns, denied).is_err(), "{denied}");
    }
}

#[test]
fn where_every_program_may_run_shell_text_may_too_but_for_what_is_always_denied() {
    for allowed in
        ["rm -rf build && make -j4 | tee log", "PATH=$PWD/bin:$PATH run", "find . -delete"]
    {
        assert_eq!(text(&["*"], allowed), Ok(()), "{allowed}");
    }
    for denied in ["ls; sudo rm x", "$x", "eval x", "LD_PRELOAD=x ls", "ls | xargs rm"] {
        assert!(text(&["*"], denied).is_err(), "{denied}");
    }
}

#[test]
fn text_of_a_shell_that_cannot_be_taken_apart_is_denied() {
    denies(
        &["*"],
        &["fish -c ls", "zsh -c ls", "bash -s", "bash", "sh --rcfile x -c ls", "bash -c"],
    );
    assert!(text(&["*"], &"ls; ".repeat(20_000)).is_err());
    assert!(text(&["*"], &"(".repeat(5_000)).is_err());
}

mod attacks;
mod readings;

#[test]
fn a_program_named_by_where_it_lies_is_another_one_elsewhere() {
    let patterns = CommandPatterns::parse(["./check *", "cargo test *", "bash run.sh"]).unwrap();
    let judged = |elsewhere: bool, command: &str| {
        let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
        patterns
            .check(&argv, Meaning { folder: elsewhere.then_some("sub"), within: None, roots: None })
            .is_ok()
    };

    assert_eq!([judged(false, "./check x"), judged(true, "./check x")], [true, false]);
    assert_eq!([judged(false, "bash run.sh"), judged(true, "bash run.sh")], [true, false]);
    assert_eq!([judged(false, "cargo test x"), judged(true, "cargo test x")], [true, false]);
    let all = CommandPatterns::everything();
    assert!(
        all.check(&["./x".to_owned()], Meaning { folder: Some("sub"), within: None, roots: None })
            .is_ok()
    );
}

#[test]
fn a_file_of_the_workspace_stands_in_for_no_program_that_a_pattern_names() {
    let within = [("cargo".to_owned(), "bin/cargo".to_owned())].into();
    let meaning = Meaning { folder: None, within: Some(&within), roots: None };
    let patterns = ["cargo test *", "bin/cargo *", "nice *", "cargo check"];
    let patterns = CommandPatterns::parse(patterns).unwrap();
    let judged = |command: &str| {
        let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
        patterns.check(&argv, meaning)
    };

    for command in ["cargo test x", "cargo check", "nice cargo test x", "nice -n 5 cargo check"] {
        assert!(judged(command).unwrap_err().starts_with("cargo is bin/cargo here"), "{command}");
    }
    assert_eq!(judged("bin/cargo test"), Ok(()));
    let text = ["bash", "-c", "true | cargo test x"].map(str::to_owned);
    assert!(patterns.check(&text, meaning).is_err());
    assert_eq!(CommandPatterns::everything().check(&["cargo".to_owned()], meaning), Ok(()));
}
