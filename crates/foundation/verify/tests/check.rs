//! Checks over real processes and files.

use std::{path::Path, sync::Arc, time::Duration};

use formwork_protocols::{
    BlobHash, Cancel, NoSecrets, Span,
    check::{
        CheckKind, CheckSpec, CommandCheck, Counts, DiffCheck, Expect, Parser, UnchangedCheck,
        Verdict,
    },
};
use formwork_sandbox::{Environment, Limits, Protection, Sandbox};
use formwork_verify::{Baseline, Error, Ground, Verifier};

fn verifier(root: &Path) -> Verifier {
    let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
    let sandbox = Sandbox::new(environment, std::env::temp_dir());
    Verifier::new(Arc::new(sandbox), root, Protection::None, Arc::new(NoSecrets))
}

fn command(argv: &[&str], parse: Option<Parser>, expect: Expect) -> CheckSpec {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    CheckSpec::new(
        "tests",
        CheckKind::Command(CommandCheck { argv, parse, expect }),
        Span::from_secs(60),
    )
}

/// A command that writes a file of the fixtures and ends with a code.
fn replays(output: &str, code: u8) -> [String; 4] {
    let output = format!("{}/tests/output/{output}", env!("CARGO_MANIFEST_DIR"));
    let script = format!("cat \"$1\"; exit {code}");
    ["sh".to_owned(), "-c".to_owned(), script, output]
}

async fn check(spec: &CheckSpec) -> Verdict {
    let root = tempfile::tempdir().expect("a folder can be made");
    let baseline = Baseline::default();
    let ground = Ground { baseline: &baseline, changes: &() };
    verifier(root.path()).check(spec, ground, &Cancel::new()).await.expect("nobody cancels").verdict
}

async fn replayed(output: &str, code: u8, parse: Parser, expect: Expect) -> (bool, String) {
    let [sh, flag, script, file] = replays(output, code);
    let spec = command(&[&sh, &flag, &script, "sh", &file], Some(parse), expect);
    let verdict = check(&spec).await;
    (verdict.passed, verdict.reason)
}

fn said(passed: bool, reason: &str) -> (bool, String) {
    (passed, reason.to_owned())
}

#[tokio::test]
async fn a_test_run_passes_by_its_code_and_its_counts_together() {
    use Parser::CargoTest;
    let pass = Expect::Pass;

    let good = replayed("cargo-test/passed.txt", 0, CargoTest, pass).await;
    let none = replayed("cargo-test/none.txt", 0, CargoTest, pass).await;
    let liar = replayed("cargo-test/failed-all.txt", 0, CargoTest, pass).await;
    let failed = replayed("cargo-test/failed-all.txt", 101, CargoTest, pass).await;
    let broken = replayed("cargo-test/broken.txt", 101, CargoTest, pass).await;
    let later = replayed("cargo-test/passed.txt", 1, CargoTest, pass).await;
    let other = replayed("pytest/passed.txt", 0, CargoTest, pass).await;

    assert_eq!(good, said(true, "5 tests passed"));
    assert_eq!(none, said(false, "no test was run"));
    assert_eq!(liar, said(false, "exit code 0, although 3 of 5 tests failed"));
    assert_eq!(failed, said(false, "3 of 5 tests failed"));
    assert!(!broken.0);
    assert_eq!(
        broken.1,
        "exit code 101, and its output holds no summary of cargo test; it ended with: \
         warning: build failed, waiting for other jobs to finish... / error: could not compile `sums` (lib) due to 1 previous error"
    );
    assert!(
        later.1.starts_with("exit code 1, although no test failed; it ended with: "),
        "{later:?}"
    );
    let quoted = "exit code 0, and its output holds no summary of cargo test; it ended with: test_sums.py . [100%] / ===";
    assert!(!other.0 && other.1.starts_with(quoted), "{other:?}");
}

#[tokio::test]
async fn what_has_to_fail_fails_by_a_test_and_not_by_not_running() {
    let fail = Expect::Fail;

    let failed = replayed("cargo-test/failed.txt", 101, Parser::CargoTest, fail).await;
    let broken = replayed("cargo-test/broken.txt", 101, Parser::CargoTest, fail).await;
    let import = replayed("pytest/broken.txt", 2, Parser::Pytest, fail).await;
    let passed = replayed("cargo-test/passed.txt", 0, Parser::CargoTest, fail).await;

    assert_eq!(failed, said(true, "fails as it has to: 1 of 2 tests failed"));
    assert!(!broken.0 && broken.1.contains("it did not fail, it did not run"), "{broken:?}");
    assert!(!import.0 && import.1.contains("it did not fail, it did not run"), "{import:?}");
    assert_eq!(passed, said(false, "it succeeded, and had to fail"));
}

#[tokio::test]
async fn evidence_holds_command_code_counts_output_and_the_failures() {
    let [sh, flag, script, file] = replays("cargo-test/failed-all.txt", 101);
    let argv = [&*sh, &*flag, &*script, "sh", &*file];
    let root = tempfile::tempdir().unwrap();
    let baseline = Baseline::default();
    let ground = Ground { baseline: &baseline, changes: &() };
    let spec = command(&argv, Some(Parser::CargoTest), Expect::Pass);

    let checked = verifier(root.path()).check(&spec, ground, &Cancel::new()).await.unwrap();

    let written = std::fs::read(&file).unwrap();
    let evidence = checked.verdict.evidence;
    assert_eq!(evidence.argv, argv);
    assert_eq!(evidence.exit_code, Some(101));
    assert_eq!(evidence.counts, Some(Counts { run: 5, failed: 3, skipped: 1 }));
    assert_eq!(evidence.output, Some(BlobHash::of(&written)));
    assert_eq!(checked.output.unwrap().bytes(), written);
    assert!(evidence.excerpt.starts_with("failures:\n\n---- tests::means"), "{}", evidence.excerpt);
    assert!(evidence.excerpt.len() < 5_000);
}

#[tokio::test]
async fn of_an_output_that_nobody_could_read_the_end_is_judged_and_the_rest_is_not_kept() {
    let [sh, flag, _, file] = replays("cargo-test/failed-all.txt", 101);
    let script = "head -c 40000000 /dev/zero | tr '\\0' '\\n'; cat \"$1\"; exit 101";
    let spec = command(&[&sh, &flag, script, "sh", &file], Some(Parser::CargoTest), Expect::Pass);
    let root = tempfile::tempdir().unwrap();
    let baseline = Baseline::default();
    let ground = Ground { baseline: &baseline, changes: &() };

    let checked = verifier(root.path()).check(&spec, ground, &Cancel::new()).await.unwrap();

    let counts = checked.verdict.evidence.counts;
    assert_eq!(counts, Some(Counts { run: 5, failed: 3, skipped: 1 }));
    assert!(checked.output.unwrap().bytes().len() < 2 << 20);
}

#[tokio::test]
async fn a_program_that_is_not_there_and_a_time_that_is_over_are_verdicts() {
    let missing = check(&command(&["no-such-program"], None, Expect::Pass)).await;
    let mut slow = command(&["sleep", "60"], None, Expect::Fail);
    slow.timeout = Span::from_millis(50);
    let slow = check(&slow).await;
    let killed = check(&command(&["sh", "-c", "kill -9 $$"], None, Expect::Fail)).await;
    let wrong_code = check(&command(&["sh", "-c", "exit 3"], None, Expect::Pass)).await;

    let not_found = "program no-such-program was not found in /usr/bin:/bin";
    assert_eq!((missing.passed, missing.reason.as_str()), (false, not_found));
    assert_eq!((missing.evidence.exit_code, missing.not_run), (None, true));
    assert!(![&slow, &killed, &wrong_code].iter().any(|verdict| verdict.not_run));
    assert_eq!((slow.passed, slow.reason.as_str()), (false, "timed out after 50ms"));
    assert_eq!((killed.passed, killed.reason.as_str()), (false, "killed by signal 9"));
    assert_eq!((wrong_code.passed, wrong_code.reason.as_str()), (false, "exit code 3"));
}

#[tokio::test]
async fn a_check_is_not_run_for_what_is_missing_around_the_work_and_fails_for_what_is_missing_in_it()
 {
    let root = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(root.path().join("suite"), "echo not executable\n").expect("it can be written");
    let whole = root.path().join("none").to_string_lossy().into_owned();
    let refusing = Verifier::new(
        Arc::new(Sandbox::new(Environment::new([("PATH", "/usr/bin:/bin")]), std::env::temp_dir())),
        root.path(),
        Protection::Restricted(Limits::new([root.path()], [root.path()])),
        Arc::new(NoSecrets),
    );
    let not_run = async |verifier: &Verifier, argv: &[&str]| {
        let baseline = Baseline::default();
        let ground = Ground { baseline: &baseline, changes: &() };
        let spec = command(argv, None, Expect::Pass);
        let checked = verifier.check(&spec, ground, &Cancel::new()).await.expect("nobody cancels");
        assert!(!checked.verdict.passed, "{argv:?}");
        checked.verdict.not_run
    };

    let own = verifier(root.path());
    for argv in
        [&["no-such-program"][..], &["/no/such/program"], &["../program"], &["/etc/passwd"], &[]]
    {
        assert!(not_run(&own, argv).await, "{argv:?}");
    }
    for argv in
        [&["./suite"][..], &["tools/none", "--all"], &[whole.as_str()], &["sh", "-c", "no-such"]]
    {
        assert!(!not_run(&own, argv).await, "{argv:?}");
    }
    // No launcher confines it: that is nothing that the work could mend either.
    assert!(not_run(&refusing, &["true"]).await);
}

#[tokio::test]
async fn a_check_that_cannot_run_says_so_with_the_last_lines_of_its_output() {
    let says = async |script: &str, parse: Option<Parser>, expect: Expect| {
        check(&command(&["sh", "-c", script], parse, expect)).await.reason
    };
    let rustup = "printf 'error: no toolchain\\n\\nhelp:  run \\033[1mrustup default\\033[0m stable\\n' >&2; exit 1";
    let long = "printf 'é%.0s' $(seq 1000); exit 7";

    let toolchain = says(rustup, Some(Parser::CargoTest), Expect::Fail).await;
    let plain = says("echo one; echo two; echo three; exit 2", None, Expect::Pass).await;
    let long = says(long, None, Expect::Pass).await;
    let silent = says("exit 4", None, Expect::Pass).await;

    assert_eq!(
        toolchain,
        "exit code 1, and its output holds no summary of cargo test: it did not fail, it did not run; \
         it ended with: error: no toolchain / help: run rustup default stable"
    );
    assert_eq!(plain, "exit code 2; it ended with: two / three");
    assert!(long.ends_with('…') && long.len() < 220, "{long}");
    assert_eq!(silent, "exit code 4");
}

#[tokio::test]
async fn a_json_verdict_decides_beside_the_code() {
    let verdict = async |json: &str, code: u8| {
        let script = format!("echo noise >&2; echo '{json}'; exit {code}");
        check(&command(&["sh", "-c", &script], Some(Parser::Json), Expect::Pass)).await
    };

    let good = verdict(r#"{"passed": true}"#, 0).await;
    let bad = verdict(r#"{"passed": false, "issues": []}"#, 0).await;
    let none = verdict(r#"{"passed": true, "run": 0}"#, 0).await;
    let malformed = verdict(r#"{"passed": "of course"}"#, 0).await;

    assert_eq!((good.passed, good.reason.as_str()), (true, "its verdict says that it passed"));
    assert_eq!((bad.passed, bad.reason.as_str()), (false, "its verdict says that it failed"));
    assert_eq!((none.passed, none.reason.as_str()), (false, "no test was run"));
    assert!(!malformed.passed && malformed.evidence.excerpt.contains("of course"), "{malformed:?}");
}

#[tokio::test]
async fn the_first_failure_stops_the_phase() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("kept"), "as it was").unwrap();
    let unchanged = CheckSpec::new(
        "kept",
        CheckKind::Unchanged(UnchangedCheck { paths: vec!["kept".to_owned()] }),
        Span::from_secs(60),
    );
    let diff = CheckSpec::new("diff", CheckKind::Diff(DiffCheck::default()), Span::from_secs(60));
    let never = command(&["sh", "-c", "touch never"], None, Expect::Pass);
    let checks = [unchanged, diff, never];
    let baseline = Baseline::take(root.path(), &checks).unwrap();
    let ground = Ground { baseline: &baseline, changes: &() };

    let decided = verifier(root.path()).run_phase(&checks, ground, &Cancel::new()).await.unwrap();

    let passed: Vec<_> =
        decided.iter().map(|c| (c.verdict.check.as_str(), c.verdict.passed)).collect();
    assert_eq!(passed, [("kept", true), ("diff", false)]);
    assert!(!root.path().join("never").exists());
}

#[tokio::test]
async fn a_cancelled_check_ends_its_process_and_gives_no_verdict() {
    let root = tempfile::tempdir().unwrap();
    let baseline = Baseline::default();
    let ground = Ground { baseline: &baseline, changes: &() };
    let spec = command(&["sleep", "60"], None, Expect::Pass);
    let cancel = Cancel::new();
    let verifier = verifier(root.path());

    let checked = async {
        tokio::join!(verifier.check(&spec, ground, &cancel), async {
            tokio::task::yield_now().await;
            cancel.cancel();
        })
        .0
    };
    let checked = tokio::time::timeout(Duration::from_secs(20), checked).await.unwrap();

    assert!(matches!(checked, Err(Error::Cancelled { check }) if check == "tests"));
}
