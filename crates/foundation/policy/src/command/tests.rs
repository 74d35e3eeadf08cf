use super::*;

fn check(patterns: &[&str], command: &str) -> Result<(), String> {
    let argv: Vec<String> = split(command).unwrap().into_iter().map(|(word, _)| word).collect();
    CommandPatterns::parse(patterns).unwrap().check(&argv)
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
    denies(&["*"], &["sudo true", "bash -c true", "timeout 5 sudo true", "find . -exec su ;"]);
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
            "env -S 'rm x'",
            "env -C /tmp cargo test",
            "env - rm x",
            "nice git push",
            "timeout 5 rm x",
            "timeout -s KILL 5 rm x",
            "timeout --unknown 5 cargo test",
            "nohup nice timeout 5 rm x",
            "bash -c 'cargo test'",
            "bash -lc true",
            "/bin/bash -c true",
            "sh -o errexit -c true",
            "bash",
            "busybox sh -c true",
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
            "bash -c 'echo ho'",
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

        proptest::prop_assert!(patterns.check(&argv).is_err(), "{:?}", argv);
    }
}
