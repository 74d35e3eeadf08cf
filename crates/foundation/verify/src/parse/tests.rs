//! Outputs as the tools themselves wrote them.

use formwork_protocols::check::Severity;
use proptest::prelude::*;

use super::*;

macro_rules! output {
    ($path:literal) => {
        include_str!(concat!("../../tests/output/", $path))
    };
}

/// Reads an output that went to one stream, as most do.
fn read(parser: Parser, stdout: &str) -> Option<Report> {
    parse(parser, Output { stdout, stderr: "" })
}

fn counts(parser: Parser, stdout: &str) -> Option<(u64, u64, u64)> {
    let counts = read(parser, stdout)?.counts?;
    Some((counts.run, counts.failed, counts.skipped))
}

#[test]
fn cargo_test_is_summed_over_its_binaries_and_doctests() {
    let of = |text| counts(Parser::CargoTest, text);

    assert_eq!(of(output!("cargo-test/passed.txt")), Some((5, 0, 1)));
    assert_eq!(of(output!("cargo-test/quiet.txt")), Some((5, 0, 1)));
    assert_eq!(of(output!("cargo-test/failed.txt")), Some((2, 1, 1)));
    assert_eq!(of(output!("cargo-test/failed-all.txt")), Some((5, 3, 1)));
    assert_eq!(of(output!("cargo-test/none.txt")), Some((0, 0, 0)));
    assert_eq!(of(output!("cargo-test/broken.txt")), None);
}

#[test]
fn the_failures_of_every_binary_are_kept_and_nothing_else() {
    let failures = read(Parser::CargoTest, output!("cargo-test/failed-all.txt")).unwrap().failures;

    for wanted in ["the mean of 2 and 4", "tests/whole.rs:2:39", "src/lib.rs - mean (line 10)"] {
        assert!(failures.contains(wanted), "{wanted} in {failures}");
    }
    assert!(!failures.contains("test tests::adds ... ok"), "{failures}");
}

#[test]
fn nextest_is_read_from_its_summary_and_not_from_the_binaries_below_it() {
    let of = |text| counts(Parser::Nextest, text);

    assert_eq!(of(output!("nextest/passed.txt")), Some((3, 0, 1)));
    assert_eq!(of(output!("nextest/failed.txt")), Some((3, 2, 1)));
    assert_eq!(of(output!("nextest/none.txt")), Some((0, 0, 4)));
    assert_eq!(of(output!("nextest/broken.txt")), None);
    assert_eq!(
        of(
            "     Summary [   9.1s] 5/8 tests run: 2 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 1 exec failed, 3 skipped"
        ),
        Some((5, 3, 3))
    );
}

#[test]
fn pytest_is_read_with_and_without_its_frame() {
    let of = |text| counts(Parser::Pytest, text);

    assert_eq!(of(output!("pytest/passed.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("pytest/passed-quiet.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("pytest/failed.txt")), Some((4, 2, 1)));
    assert_eq!(of(output!("pytest/failed-quiet.txt")), Some((4, 2, 1)));
    assert_eq!(of(output!("pytest/none.txt")), Some((0, 0, 0)));
    assert_eq!(of(output!("pytest/empty.txt")), Some((0, 0, 0)));
    assert_eq!(
        of("===== 1 passed, 1 skipped, 2 warnings in 65.10s (0:01:05) ====="),
        Some((1, 0, 1))
    );
}

#[test]
fn tests_that_failed_are_named_as_their_tools_name_them() {
    let of = |parser, text| read(parser, text).unwrap().failing;
    let named = |parser, text, wanted: usize| {
        let found = of(parser, text);
        assert_eq!(found.len(), wanted, "{found:#?}");
        found
    };

    let cargo = named(Parser::CargoTest, output!("cargo-test/failed-all.txt"), 3);
    assert!(cargo.iter().any(|name| name.starts_with("src/lib.rs - mean")), "{cargo:?}");
    named(Parser::Nextest, output!("nextest/failed.txt"), 2);
    let pytest = named(Parser::Pytest, output!("pytest/failed.txt"), 2);
    assert!(pytest.iter().all(|name| name.contains("::")), "{pytest:?}");
    named(Parser::Unittest, output!("unittest/failed.txt"), 2);
    named(Parser::Jest, output!("jest/failed.txt"), 1);
    named(Parser::Jest, output!("jest/vitest-failed.txt"), 1);
    named(Parser::GoTest, output!("go-test/failed-verbose.txt"), 2);
    named(Parser::GoTest, output!("go-test/failed-json.txt"), 2);
    assert_eq!(of(Parser::Tap, "1..3\nok 1 - a\nnot ok 2 - b c\nnot ok 3 - d # TODO\n"), ["b c"]);
    assert_eq!(of(Parser::CargoTest, output!("cargo-test/passed.txt")), [""; 0]);
}

#[test]
fn a_module_that_cannot_be_imported_has_failed_no_test() {
    assert_eq!(counts(Parser::Pytest, output!("pytest/broken.txt")), Some((0, 0, 0)));
    assert_eq!(counts(Parser::Unittest, output!("unittest/broken.txt")), Some((0, 0, 0)));
    assert_eq!(counts(Parser::GoTest, output!("go-test/broken.txt")), Some((2, 2, 0)));
}

#[test]
fn unittest_is_read_from_its_two_lines() {
    let of = |text| counts(Parser::Unittest, text);

    assert_eq!(of(output!("unittest/passed.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("unittest/passed-skipped.txt")), Some((1, 0, 1)));
    assert_eq!(of(output!("unittest/failed.txt")), Some((4, 2, 1)));
    assert_eq!(of(output!("unittest/failed-verbose.txt")), Some((4, 2, 1)));
    assert_eq!(of(output!("unittest/none.txt")), Some((0, 0, 0)));
}

#[test]
fn jest_and_vitest_are_read_with_and_without_colours() {
    let of = |text| counts(Parser::Jest, text);

    assert_eq!(of(output!("jest/passed.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("jest/failed.txt")), Some((3, 1, 2)));
    assert_eq!(of(output!("jest/none.txt")), Some((0, 0, 0)));
    assert_eq!(of(output!("jest/none-by-name.txt")), Some((0, 0, 5)));
    assert_eq!(of(output!("jest/vitest-passed.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("jest/vitest-colour.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("jest/vitest-failed.txt")), Some((3, 1, 2)));
    assert_eq!(of(output!("jest/vitest-none.txt")), Some((0, 0, 0)));
    assert_eq!(of(output!("jest/vitest-none-by-name.txt")), Some((0, 0, 5)));
}

#[test]
fn go_test_counts_alike_in_words_and_in_json() {
    let of = |text| counts(Parser::GoTest, text);

    assert_eq!(of(output!("go-test/failed-verbose.txt")), Some((5, 2, 1)));
    assert_eq!(of(output!("go-test/failed-json.txt")), Some((5, 2, 1)));
    assert_eq!(of(output!("go-test/passed-verbose.txt")), Some((1, 0, 0)));
    assert_eq!(of(output!("go-test/passed-json.txt")), Some((1, 0, 0)));
    // Without -v two failed tests are named, and a package that says ok had one at least.
    assert_eq!(of(output!("go-test/failed.txt")), Some((3, 2, 0)));
    assert_eq!(of(output!("go-test/passed.txt")), Some((1, 0, 0)));
}

#[test]
fn go_test_without_tests_has_run_none() {
    for text in [
        output!("go-test/none.txt"),
        output!("go-test/none-by-name.txt"),
        output!("go-test/none-by-name-verbose.txt"),
        output!("go-test/none-by-name-json.txt"),
    ] {
        assert_eq!(counts(Parser::GoTest, text), Some((0, 0, 0)), "{text}");
    }
}

#[test]
fn junit_is_counted_by_its_test_cases() {
    let of = |text| counts(Parser::Junit, text);

    assert_eq!(of(output!("junit/pytest.xml")), Some((3, 2, 2)));
    assert_eq!(of(output!("junit/vitest.xml")), Some((3, 1, 2)));
    assert_eq!(of(output!("junit/node.xml")), Some((3, 1, 2)));
    assert_eq!(of("<testsuites/>"), Some((0, 0, 0)));
    assert_eq!(of("<testsuite tests='7' failures='1' errors='1' skipped='2'/>"), Some((5, 2, 2)));
    assert_eq!(of("no XML at all"), None);
}

#[test]
fn junit_is_not_fooled_by_quotes_comments_and_character_data() {
    let text = r#"noise <?xml version="1.0"?><!-- <testcase/> --><testsuite name="a>b">
        <testcase name="one" classname='c "q"'><failure message="5 &lt; 6 &amp;&amp; x"><![CDATA[<testcase/> why]]></failure></testcase>
        <testcase name="two"><system-out><![CDATA[<failure/>]]></system-out></testcase></testsuite>"#;

    let report = read(Parser::Junit, text).unwrap();

    assert_eq!(report.counts, Some(Counts { run: 2, failed: 1, skipped: 0 }));
    assert_eq!(report.failures, "c \"q\" one: 5 < 6 && x\n<testcase/> why\n");
    assert_eq!(report.fault, None);
}

#[test]
fn junit_that_was_cut_is_no_success() {
    let report = read(Parser::Junit, "<testsuite><testcase name=\"one\"/>").unwrap();

    assert_eq!(report.fault.as_deref(), Some("the XML ends before its last element"));
}

#[test]
fn tap_counts_every_point_and_heeds_its_directives() {
    let of = |text| counts(Parser::Tap, text);

    assert_eq!(of(output!("tap/node-passed.txt")), Some((1, 0, 3)));
    assert_eq!(of(output!("tap/node-failed.txt")), Some((4, 2, 2)));
    assert_eq!(of(output!("tap/node-none.txt")), Some((0, 0, 0)));
    assert_eq!(of(output!("tap/vitest-flat.txt")), Some((3, 1, 2)));
    assert_eq!(of(output!("tap/vitest.txt")), Some((6, 3, 2)));
    assert_eq!(of("nothing of the kind"), None);
}

#[test]
fn tap_that_does_not_keep_its_plan_is_no_success() {
    let fault = |text| read(Parser::Tap, text).unwrap().fault;

    assert_eq!(fault("1..3\nok 1\nok 2\n").as_deref(), Some("3 tests were planned and 2 reported"));
    assert_eq!(fault("ok 1\nBail out! no disk\n").as_deref(), Some("the run bailed out: no disk"));
    assert_eq!(fault("ok 1\nok 2\n1..2\n"), None);
}

#[test]
fn a_json_verdict_is_the_whole_output_or_its_last_line() {
    let whole = "{\n  \"passed\": true,\n  \"run\": 3\n}\n";
    let last = "checking\n{\"passed\": false, \"issues\": [{\"severity\": \"major\", \"message\": \"no\"}]}";

    assert_eq!(counts(Parser::Json, whole), Some((3, 0, 0)));
    let report = read(Parser::Json, last).unwrap();
    assert_eq!(report.counts, None);
    assert_eq!(report.fault.as_deref(), Some("its verdict says that it failed"));
    assert_eq!(report.issues, [Issue::new(Severity::Major, "no")]);
    for malformed in [
        "",
        "{}",
        "{\"passed\": \"yes\"}",
        "passed",
        "{\"passed\": true, \"run\": -1}",
        "{\"passed\": false, \"passed\": true}",
        "{\"verdict\": \"pass\"}",
    ] {
        assert_eq!(read(Parser::Json, malformed), None, "{malformed}");
    }
}

#[test]
fn a_verdict_as_json_that_passes_and_names_what_has_to_be_mended_fails() {
    let fault = |severity: &str| {
        let text = format!(
            r#"{{"passed": true, "issues": [{{"severity": "{severity}", "message": "two\nlines"}}]}}"#
        );
        read(Parser::Json, &text).unwrap().fault
    };

    let told = "its verdict says that it passed, and names an issue, major: two lines";
    assert_eq!(fault("major").as_deref(), Some(told));
    assert!(fault("critical").is_some());
    assert_eq!((fault("minor"), fault("nit")), (None, None));
}

const ALL: [Parser; 9] = [
    Parser::CargoTest,
    Parser::Nextest,
    Parser::Pytest,
    Parser::Unittest,
    Parser::Jest,
    Parser::GoTest,
    Parser::Junit,
    Parser::Tap,
    Parser::Json,
];

const WHOLE: [&str; 9] = [
    output!("cargo-test/failed-all.txt"),
    output!("nextest/failed.txt"),
    output!("pytest/failed.txt"),
    output!("unittest/failed.txt"),
    output!("jest/vitest-failed.txt"),
    output!("go-test/failed-json.txt"),
    output!("junit/pytest.xml"),
    output!("tap/node-failed.txt"),
    "{\"passed\": true, \"run\": 3}",
];

proptest! {
    #[test]
    fn no_text_panics(stdout in "\\PC{0,200}", stderr in "[ -~\n\u{1b}é]{0,200}") {
        for parser in ALL {
            let _ = parse(parser, Output { stdout: &stdout, stderr: &stderr });
        }
    }

    #[test]
    fn no_bytes_panic(
        stdout in prop::collection::vec(any::<u8>(), 0..400),
        stderr in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let (stdout, stderr) =
            (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        for parser in ALL {
            let _ = parse(parser, Output { stdout: &stdout, stderr: &stderr });
        }
    }

    #[test]
    fn no_cut_and_no_damage_of_a_real_output_panics(
        which in 0_usize..9,
        cut in any::<prop::sample::Index>(),
        noise in "[<>='\"/!\\[\\]#0-9 -]{0,6}",
    ) {
        let text = WHOLE[which];
        let at = text.floor_char_boundary(cut.index(text.len()));
        let damaged = format!("{}{noise}{}", &text[..at], &text[at..]);
        for parser in ALL {
            let _ = read(parser, &text[..at]);
            let _ = read(parser, &damaged);
        }
    }
}
