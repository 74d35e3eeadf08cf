//! `formwork loop`: rounds of edit, test, lint and review.

use std::os::unix::fs::PermissionsExt as _;

use formwork_testkit::http::Reply;
use serde_json::{Value, json};

use crate::{
    answers::{calls, counted, ending, ends, says},
    world::{Ended, World, end_of, on_postgres, pipe, waits_at},
};

/// Says of each word of `tests.txt` whether it is a line of `src.txt`, as `python -m unittest` would.
const SUITE: &str = r#"#!/bin/sh
[ -f broken ] && { echo "cannot start" >&2; exit 3; }
run=0; failed=0
for word in $(cat tests.txt); do
  run=$((run + 1))
  grep -qx "$word" src.txt || { failed=$((failed + 1)); echo "FAIL: test_$word (suite.Words.test_$word)"; }
done
echo "Ran $run tests in 0.001s"
if [ $failed -gt 0 ]; then echo "FAILED (failures=$failed)"; exit 1; fi
echo OK
"#;

/// Fills a repository whose suite wants a, b and c, of which there is only a; the user is in the midst of something.
fn fill(world: &World) {
    world.repo.write("suite", SUITE).unwrap();
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("suite"), runs).unwrap();
    world.repo.write("tests.txt", "a\nb\nc\n").unwrap();
    world.repo.write("src.txt", "a\n").unwrap();
    world.repo.commit("tree: what there is").unwrap();
    world.repo.write("README.md", "mine, not yet committed\n").unwrap();
    world.repo.write("mine.txt", "mine\n").unwrap();
}

async fn filled() -> World {
    let world = World::new().await;
    fill(&world);
    world
}

/// Has the model read `src.txt`, make it what `text` says, and say that it is done.
fn round(world: &World, text: &str) {
    reads(world, "src.txt");
    next(world, text);
}

/// The same once it knows the file.
fn next(world: &World, text: &str) {
    writes(world, "src.txt", text);
    world.server.reply(&World::chat("one"), ends("Done."));
}

fn reads(world: &World, path: &str) {
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": path }))]));
}

fn writes(world: &World, path: &str, text: &str) {
    let write = json!({ "path": path, "content": text });
    world.server.reply(&World::chat("one"), calls(&[("fs.write", write)]));
}

async fn looped(world: &World, more: &[&str]) -> Ended {
    let given = ["loop", "Make it whole.", "--test", "./suite -m unittest", "--mode", "auto"];
    world.run(given.iter().chain(more)).await
}

/// Returns why each round did not pass, and the name of the check; nothing of one that passed.
async fn rounds(world: &World) -> Vec<(String, String)> {
    let shown = world.shown().await;
    let exit = shown["checks"].as_array().unwrap().iter().filter(|it| it["phase"] == "exit");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let failed = exit.filter(|it| it["verdict"]["passed"] == false);
    failed.map(|it| (text(&it["verdict"]["check"]), text(&it["verdict"]["reason"]))).collect()
}

fn untouched(world: &World) {
    assert_eq!(world.repo.read("README.md").unwrap(), "mine, not yet committed\n");
    assert_eq!(world.repo.read("mine.txt").unwrap(), "mine\n");
}

async fn a_new_failure_is_a_regression(world: World) {
    fill(&world);
    round(&world, "b\nc\n");
    next(&world, "a\nb\nc\n");

    let ended = looped(&world, &[]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = rounds(&world).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let reason = "a regression: test_a (suite.Words.test_a) did not fail before the first edit and no longer passes";
    assert!(told[0].0 == "tests" && told[0].1.starts_with(reason), "{told:?}");
    let events = world.events("").await;
    let first = |wanted: &str| events.iter().position(|event| event["kind"] == wanted).unwrap();
    assert!(first("check.finished") < first("model.requested"));
    assert!(ended.stdout.contains("before the first edit: 2 of 3 tests failed"), "{ended:#?}");
    untouched(&world);
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_54_the_baseline_is_taken_before_the_first_edit_and_a_new_failure_is_a_regression()
 {
    a_new_failure_is_a_regression(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_54_the_baseline_is_taken_before_the_first_edit_and_a_new_failure_is_a_regression()
 {
    on_postgres(a_new_failure_is_a_regression).await;
}

#[tokio::test]
async fn behaviour_54_a_loop_whose_suite_cannot_run_is_never_green() {
    let world = filled().await;
    world.server.reply(
        &World::chat("one"),
        calls(&[("fs.write", json!({ "path": "broken", "content": "" }))]),
    );
    round(&world, "a\nb\nc\n");

    let ended = looped(&world, &["--rounds", "1", "--known-failures"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let told = rounds(&world).await;
    assert!(told[0].1.starts_with("the suite cannot run: exit code 3"), "{told:?}");
}

#[tokio::test]
async fn a_test_that_is_taken_away_does_not_make_a_loop_green() {
    let world = filled().await;
    reads(&world, "tests.txt");
    writes(&world, "tests.txt", "a\n");
    world.server.reply(&World::chat("one"), ends("All pass."));

    let ended = looped(&world, &["--rounds", "1"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let told = rounds(&world).await;
    assert!(told[0].1.starts_with("1 test ran, and 3 did before the first edit"), "{told:?}");
}

#[tokio::test]
async fn what_failed_before_may_go_on_failing_where_that_is_said() {
    let world = filled().await;
    round(&world, "a\nb\n");

    let ended = looped(&world, &["--known-failures"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[tokio::test]
async fn behaviour_55_the_same_state_once_asks_for_another_plan_and_twice_stops_the_loop() {
    let world = filled().await;
    round(&world, "a\nx\n");
    next(&world, "a\ny\n");
    next(&world, "a\nx\n");
    next(&world, "a\ny\n");

    let ended = looped(&world, &["--rounds", "9"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let told: Vec<_> =
        rounds(&world).await.into_iter().filter(|(check, _)| check == "progress").collect();
    let reasons: Vec<&str> = told.iter().map(|(_, reason)| reason.as_str()).collect();
    let expected = [
        "all is as it was after round 1, which did not pass: what was tried does not help, so make another plan",
        "all is as it was after round 2, which did not pass: it goes round in circles",
    ];
    assert_eq!(reasons, expected);
    assert_eq!(world.shown().await["tasks"][0]["attempts"], 4);
    untouched(&world);
}

#[tokio::test]
async fn a_loop_that_does_nothing_is_stopped_and_the_word_of_the_model_counts_for_nothing() {
    let world = filled().await;
    for _ in 0..2 {
        world.server.reply(&World::chat("one"), ends("All of it is done and passes."));
    }

    let ended = looped(&world, &[]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let told = rounds(&world).await;
    assert!(told.iter().all(|(check, _)| check == "progress") && told.len() == 2, "{told:?}");
}

#[tokio::test]
async fn behaviour_55_the_budget_holds_over_all_rounds_together() {
    let world = filled().await;
    reads(&world, "src.txt");
    for turn in 0..30 {
        writes(&world, "src.txt", &format!("a\nx{turn}\n"));
        let ends = counted(&ending("Done."), 2_000);
        world.server.reply(&World::chat("one"), Reply::sse(ends));
    }

    let ended = looped(&world, &["--rounds", "30", "--budget", "0.02", "--json"]).await;

    let outcome = ended.json()["outcome"].clone();
    assert_eq!(ended.code, Some(2), "{outcome:#}");
    assert!(outcome["reason"].as_str().unwrap().contains("budget exhausted"), "{outcome:#}");
    let cost: f64 = outcome["cost"].as_str().unwrap().parse().unwrap();
    assert!(cost <= 0.02, "{outcome:#}");
    let began = ended.json()["loop"]["rounds"].as_array().unwrap().len();
    assert!(began > 1 && began < 30, "{began}");
    untouched(&world);
}

async fn the_best_is_kept(world: World) {
    fill(&world);
    round(&world, "a\nx\n");
    next(&world, "a\nb\n");
    next(&world, "x\n");

    let ended = looped(&world, &["--rounds", "3"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(world.repo.read("src.txt").unwrap(), "a\nb\n");
    let told = &ended.stdout;
    assert!(told.contains("kept as after round 2, the best; taken back: src.txt"), "{told}");
    untouched(&world);
    // What is left is still the run's own, and can be taken back.
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let undone = world.run(["undo", &run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(world.repo.read("src.txt").unwrap(), "a\n");
    world.assert_sound().await;
}

#[tokio::test]
async fn of_rounds_that_did_not_pass_the_best_is_kept() {
    the_best_is_kept(World::new().await).await;
}

#[tokio::test]
async fn pg_of_rounds_that_did_not_pass_the_best_is_kept() {
    on_postgres(the_best_is_kept).await;
}

/// A loop whose second round is worse, and in which somebody goes on with their own work while its suite waits.
async fn beside_a_loop(sandbox: &str) -> (World, Ended) {
    let scope = "[permissions]\nmode = \"auto\"\nscope = [\"src.txt\"]\n";
    let world = World::with(scope).await;
    fill(&world);
    let suite = SUITE.replacen('\n', "\ngrep -qx wait src.txt && read go < go\n", 1);
    world.repo.write("suite", suite).unwrap();
    pipe(&world, "go");
    round(&world, "a\nb\n");
    next(&world, "wait\n");

    let given = ["loop", "Make it whole.", "--test", "./suite -m unittest", "--rounds", "2"];
    let program = world.formwork(given.into_iter().chain(["--sandbox", sandbox])).spawn().unwrap();
    let go = waits_at(&world, "go").await;
    world.repo.write("README.md", "mine, and more of it\n").unwrap();
    world.repo.write("chapter.txt", "mine as well\n").unwrap();
    drop(go);
    let ended = end_of(program).await;
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(world.repo.read("src.txt").unwrap(), "a\nb\n", "{ended:#?}");
    (world, ended)
}

#[tokio::test]
async fn what_a_person_writes_while_a_suite_runs_is_not_taken_back_with_a_round() {
    let (world, ended) = beside_a_loop("on").await;

    assert!(ended.stdout.contains("the best; taken back: src.txt\n"), "{ended:#?}");
    assert_eq!(world.repo.read("README.md").unwrap(), "mine, and more of it\n");
    assert_eq!(world.repo.read("chapter.txt").unwrap(), "mine as well\n");
}

#[tokio::test]
async fn what_is_taken_back_with_a_round_whoever_wrote_it_is_in_the_trash() {
    let (world, ended) = beside_a_loop("off").await;

    let told = "the best; taken back: README.md, chapter.txt, src.txt\n";
    assert!(ended.stdout.contains(told), "{ended:#?}");
    assert!(ended.stdout.contains("what was at chapter.txt is in the trash: "), "{ended:#?}");
    let listed = world.json(["trash", "list"]).await;
    let paths: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|it| it["path"].clone()).collect();
    assert_eq!(paths, ["README.md", "chapter.txt"]);
}

#[tokio::test]
async fn where_nobody_can_count_the_tests_a_round_in_which_they_passed_is_the_best() {
    let world = filled().await;
    round(&world, "a\nb\n");
    next(&world, "a\nx\n");

    let asked = ["loop", "Make it whole.", "--test", "grep -qx b src.txt", "--mode", "auto"];
    let more = ["--lint", "test -e never", "--rounds", "2"];
    let ended = world.run(asked.into_iter().chain(more)).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(world.repo.read("src.txt").unwrap(), "a\nb\n");
    let told = &ended.stdout;
    assert!(told.contains("kept as after round 1, the best; taken back: src.txt"), "{told}");
}

#[tokio::test]
async fn a_loop_passes_tests_lint_and_review_and_commits_its_own_changes_alone() {
    let world = World::new().await;
    world.agent("judge", "two");
    fill(&world);
    let judge = World::chat("two");
    let quoted =
        json!([{ "severity": "major", "message": "odd", "file": "src.txt", "quote": "b" }]);
    let refused = json!({ "verdict": "REQUEST_CHANGES", "issues": quoted });
    world.server.reply(&judge, says(&refused.to_string()));
    world.server.reply(&judge, says(r#"{"verdict": "APPROVE", "issues": []}"#));
    round(&world, "a\nb\nc\n");
    next(&world, "a\nb\nc\nd\n");

    let more = ["--lint", "test -s src.txt", "--review", "--reviewer", "judge", "--commit"];
    let ended = looped(&world, &more).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = rounds(&world).await;
    assert_eq!(told, [("review".to_owned(), "major: src.txt:2: odd".to_owned())]);
    assert!(ended.stdout.contains("passed progress, size, tests, lint, review"), "{ended:#?}");
    let committed = world.repo.git(&["show", "--format=%s", "--name-only", "HEAD"]).unwrap();
    assert_eq!(committed.trim(), "Make it whole.\n\nsrc.txt");
    untouched(&world);
}

#[tokio::test]
async fn a_suite_that_is_no_program_ends_a_loop_before_anybody_is_paid() {
    let world = filled().await;

    let ended =
        world.run(["loop", "Make it whole.", "--test", "no-such-program -m unittest"]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let told = ended.last_line();
    assert!(told.contains("program no-such-program was not found in"), "{told}");
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test]
async fn a_suite_of_which_the_script_is_not_there_ends_a_loop_before_anybody_is_paid() {
    let world = filled().await;

    let ended = world.run(["loop", "Make it whole.", "--test", "sh no-such-suite.sh"]).await;
    let missing = world.run(["loop", "Make it whole.", "--test", "python3 -m no_such_suite"]).await;

    for (ended, name) in [(&ended, "no-such-suite.sh"), (&missing, "no_such_suite")] {
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert!(ended.last_line().contains("before the first edit: "), "{ended:#?}");
        assert!(ended.last_line().contains(name), "{ended:#?}");
    }
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test]
async fn a_loop_that_nothing_would_end_is_not_begun() {
    let world = World::new().await;

    let none = world.run(["loop", "Make it whole."]).await;
    let mode = world.run(["loop", "Make it whole.", "--test", "true", "--mode", "ask"]).await;
    let rounds = world.run(["loop", "x y", "--test", "true", "--rounds", "0"]).await;
    let words = world.run(["loop", " ", "--test", "true"]).await;
    let out = world.run(["loop", "x y", "--test", "true", "--protect", "../**"]).await;
    let goal = world.run(["goal", "x y", "--test", "true", "--protect", "/etc/**"]).await;
    let calls = world.run(["run", "-m", "x y", "--rounds", "0"]).await;
    let width = world.run(["run", "-m", "x y", "--width", "0"]).await;

    for ended in [&none, &mode, &rounds, &words, &out, &goal, &calls, &width] {
        assert_eq!(ended.code, Some(64), "{ended:#?}");
    }
    for ended in [&out, &goal] {
        let told = "leads out of the workspace: globs begin at its root";
        assert!(ended.stderr.contains(told), "{ended:#?}");
    }
    assert!(none.stderr.contains("nothing would tell when it is done"), "{none:#?}");
}
