//! Checks that are not got around: by what has no work of its own, by what comes later, by what is hidden.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    crash::marked,
    world::{World, end_of, on_postgres, signal},
};

/// Returns whether each check of the last run passed, and why.
async fn told(world: &World) -> Vec<(bool, String)> {
    let shown = world.shown().await;
    let verdict = |check: &Value| {
        let verdict = &check["verdict"];
        (verdict["passed"] == true, verdict["reason"].as_str().unwrap().to_owned())
    };
    shown["checks"].as_array().unwrap().iter().map(verdict).collect()
}

/// A task by a command in a shell, tried once.
fn task(script: &str, rest: &str) -> String {
    format!(
        "[[tasks]]\nname = \"write\"\ncommand = [\"sh\", \"-c\", {script:?}]\nretries = {{ max = 0 }}\n{rest}"
    )
}

/// A world in which nothing keeps a program from writing anywhere.
async fn unconfined() -> World {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let config = config.replace("sandbox = \"auto\"", "sandbox = \"off\"");
    std::fs::write(world.config_file(), config).unwrap();
    world
}

fn passed(reason: &str) -> (bool, String) {
    (true, reason.to_owned())
}

fn failed(reason: &str) -> (bool, String) {
    (false, reason.to_owned())
}

async fn what_is_below_a_task_is_compared(world: World) {
    world.repo.write("kept.txt", "kept\n").unwrap();
    let above = |checks: &str| {
        format!(
            "[[tasks]]\nname = \"all\"\nretries = {{ max = 0 }}\n{checks}\n\
             [[tasks.subtasks]]\nname = \"deep\"\n\
             [[tasks.subtasks.subtasks]]\nname = \"one\"\ncommand = [\"sh\", \"-c\", \"echo more >> kept.txt; echo > new.txt\"]\n"
        )
    };
    let workflow = world.workflow(&above("postchecks = [{ unchanged = [\"kept.txt\"] }]"));
    let changed = world.run(["run", workflow]).await;
    let first = told(&world).await;
    world.repo.write("kept.txt", "kept\n").unwrap();
    std::fs::remove_file(world.path("new.txt")).unwrap();
    world.workflow(&above("postchecks = [{ no_new_files_outside = [\"src/**\"] }]"));
    let added = world.run(["run", workflow]).await;
    let second = told(&world).await;

    assert_eq!((changed.code, added.code), (Some(2), Some(2)), "{changed:#?} {added:#?}");
    assert_eq!(first, [failed("changed kept.txt, which had to stay as it was")]);
    assert_eq!(second, [failed("new new.txt, outside of src/**")]);
    // Where nothing below it has run there is nothing that it could have changed.
    let skipped = above("postchecks = [{ unchanged = [\"kept.txt\"] }]");
    world.workflow(&skipped.replace("name = \"one\"", "name = \"one\"\nwhen = \"1 == 2\""));
    let skipped = world.run(["run", workflow]).await;
    assert_eq!(skipped.code, Some(0), "{skipped:#?}");
    assert_eq!(told(&world).await, [passed("1 file is unchanged")]);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_task_of_subtasks_is_compared_with_what_was_there_before_the_first_of_them() {
    what_is_below_a_task_is_compared(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_of_subtasks_is_compared_with_what_was_there_before_the_first_of_them() {
    on_postgres(what_is_below_a_task_is_compared).await;
}

async fn what_a_fix_undoes_is_found(world: World) {
    world.repo.write("kept.txt", "kept\n").unwrap();
    let workflow = world.workflow(&task(
        "echo no > left.txt",
        "[[tasks.postchecks]]\nunchanged = [\"kept.txt\"]\n\
         [[tasks.postchecks]]\nname = \"ok\"\ncommand = [\"grep\", \"-qx\", \"ok\", \"left.txt\"]\n\
         fix = { command = [\"sh\", \"-c\", \"echo ok > left.txt; echo cheat > kept.txt\"] }\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(
        told(&world).await,
        [
            passed("1 file is unchanged"),
            passed("exit code 0"),
            failed("changed kept.txt, which had to stay as it was"),
        ]
    );
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn what_a_fix_undoes_of_the_checks_before_it_is_found() {
    what_a_fix_undoes_is_found(World::new().await).await;
}

#[tokio::test]
async fn pg_what_a_fix_undoes_of_the_checks_before_it_is_found() {
    on_postgres(what_a_fix_undoes_is_found).await;
}

#[tokio::test]
async fn a_fix_is_used_up_when_the_checks_are_run_again_and_the_others_are_not() {
    let world = World::new().await;
    let check = |name: &str, fix: &str| {
        format!(
            "[[tasks.postchecks]]\ncommand = [\"grep\", \"-qx\", \"{name}\", \"left.txt\"]\nfix = {{ command = [\"sh\", \"-c\", \"{fix}\"] }}\n"
        )
    };
    let checks = check("a", "echo a > left.txt") + &check("b", "echo b > left.txt");
    let workflow = world.workflow(&task("true", &checks));

    let ended = world.run(["run", workflow]).await;

    // Each undoes the other, and neither is applied for ever.
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let passed: Vec<bool> = told(&world).await.into_iter().map(|(passed, _)| passed).collect();
    assert_eq!(passed, [true, true, true, false]);
}

#[tokio::test]
async fn a_check_that_writes_what_is_protected_is_found() {
    let world = unconfined().await;
    world.repo.write("kept.txt", "kept\n").unwrap();
    let workflow = world.workflow(&task(
        "true",
        "protected_paths = [\"kept.txt\"]\n\
         postchecks = [{ command = [\"sh\", \"-c\", \"echo cheat > kept.txt\"] }]\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(told(&world).await[2], failed("changed kept.txt, which had to stay as it was"));
}

#[tokio::test]
async fn a_rule_that_ignores_what_is_new_hides_it_from_no_check() {
    let world = World::new().await;
    let workflow = world.workflow(&task(
        "mkdir out; echo x > out/new.txt; echo out/ > .gitignore",
        "postchecks = [{ no_new_files_outside = [\".gitignore\"] }]\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_eq!(told(&world).await, [failed("new out/new.txt, outside of .gitignore")]);
}

/// What a task is held to whose tests are nobody's to change, and can fail.
const GRADED: &str = "protected_paths = [\"tests.sh\"]\n\
                      postchecks = [{ command = [\"sh\", \"tests.sh\"], control = \"revert\" }, \
                      { no_new_files_outside = [\"sum.sh\"] }]\n";

async fn an_honest_patch_passes_and_a_cheat_does_not(world: World) {
    let honest = "echo 'echo $(($1 + $2))' > sum.sh";
    let cheats = [
        "true",
        "echo 'exit 0' > tests.sh",
        "rm tests.sh",
        "echo 'echo $(($1 + $2))' > helper.sh; echo '. ./helper.sh' > sum.sh",
    ];
    let mut found = Vec::new();
    for script in [honest].into_iter().chain(cheats) {
        world.repo.write("sum.sh", "echo 3\n").unwrap();
        world.repo.write("tests.sh", "test \"$(sh ./sum.sh 2 2)\" = 4\n").unwrap();
        let workflow = world.workflow(&task(script, GRADED));
        found.push(world.run(["run", workflow]).await.code);
    }

    // A program that would write what is protected is refused by the system, and fails itself.
    assert_eq!(found, [Some(0), Some(2), Some(1), Some(1), Some(2)]);
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_62_an_honest_patch_passes_and_each_cheat_fails() {
    an_honest_patch_passes_and_a_cheat_does_not(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_62_an_honest_patch_passes_and_each_cheat_fails() {
    on_postgres(an_honest_patch_passes_and_a_cheat_does_not).await;
}

#[tokio::test]
async fn a_control_of_some_files_is_run_again_after_the_others_have_changed() {
    let world = World::new().await;
    let script = "if test -e src.txt; then touch always; fi; echo right > src.txt";
    let checks = "[[tasks.postchecks]]\ncommand = [\"sh\", \"-c\", \"test -e always || grep -qx right src.txt\"]\n\
                  control = { revert = [\"src.txt\"] }\n\
                  [[tasks.postchecks]]\ncommand = [\"test\", \"-e\", \"always\"]\n";
    let tried_twice = task(script, checks).replace("max = 0", "max = 1");
    let workflow = world.workflow(&tried_twice);

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let told = told(&world).await;
    assert_eq!(told[2], failed("it cannot fail: without the work it passes as well (exit code 0)"));
}

#[tokio::test]
async fn a_hook_that_a_check_plants_fails_it() {
    let world = unconfined().await;
    let workflow = world.workflow(&task(
        "true",
        "postchecks = [{ command = [\"sh\", \"-c\", \"mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit\"] }]\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let (passed, reason) = told(&world).await.remove(0);
    assert!(!passed && reason.starts_with(".git/hooks/pre-commit was changed while"), "{reason}");
}

#[tokio::test]
async fn a_run_that_changes_nothing_is_not_begun_with_a_fix() {
    let world = World::with("[permissions]\nmode = \"ask\"\n").await;
    let workflow = world.workflow(&task(
        "true",
        "postchecks = [{ name = \"x\", command = [\"false\"], fix = { command = [\"touch\", \"made\"] } }]\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let why = "check \"x\" of task write has a fix, and a run in mode ask changes nothing";
    assert!(ended.stderr.contains(why) && ended.stderr.contains("--mode edit"), "{ended:#?}");
    assert!(!world.path("made").exists());
}

#[tokio::test]
async fn a_fix_that_a_process_died_over_is_not_applied_again() {
    let world = World::new().await;
    let script = "echo done >> fix.marks\necho up > up\nexec sleep 1000\n";
    world.repo.write("fix.sh", script).unwrap();
    let made = std::process::Command::new("mkfifo").arg(world.path("up")).status().unwrap();
    assert!(made.success());
    let workflow = world.workflow(&task(
        "true",
        "postchecks = [{ command = [\"test\", \"-e\", \"never\"], fix = { command = [\"sh\", \"fix.sh\"] } }]\n",
    ));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    marked(&world).await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(2), "{resumed:#?}");
    assert_eq!(world.repo.read("fix.marks").unwrap(), "done\n");
    let (passed, reason) = told(&world).await.remove(0);
    assert!(!passed && reason.contains("it was broken off when it was applied before"), "{reason}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_control_that_fails_by_a_test_of_its_own_place_proves_nothing() {
    let world = World::new().await;
    // The second test fails wherever there is no repository, with the work and without it.
    let suite = "#!/bin/sh\necho 1..2\necho ok 1 - the work\nif test -d .git; then echo ok 2 - b; else echo not ok 2 - b; exit 1; fi\n";
    world.repo.write("suite.sh", suite).unwrap();
    let workflow = world.workflow(&task(
        "echo work > work.txt",
        "postchecks = [{ command = [\"sh\", \"suite.sh\"], parse = \"tap\", control = \"revert\" }]\n",
    ));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let (passed, reason) = told(&world).await.remove(0);
    assert!(!passed && reason.starts_with("its control proves nothing"), "{reason}");
}

async fn a_rewritten_script_proves_nothing(world: World) {
    let manifest =
        |test: &str| format!("{{\"scripts\": {{\"test\": \"{test}\", \"lint\": \"true\"}}}}\n");
    world.repo.write("package.json", manifest("jest")).unwrap();
    world.repo.write("new.json", manifest("true")).unwrap();
    let rewrites = world.workflow(&task(
        "cp new.json package.json",
        "postchecks = [{ constraint = \"tests_pass\" }]\n",
    ));
    let rewritten = world.run(["run", rewrites]).await;
    let (_, reason) = told(&world).await.remove(0);
    world.workflow(&task(
        "echo script-shell=true > .npmrc",
        "postchecks = [{ constraint = \"lint_clean\" }]\n",
    ));
    let reset = world.run(["run", rewrites]).await;
    let (_, shell) = told(&world).await.remove(0);

    assert_eq!((rewritten.code, reset.code), (Some(2), Some(2)), "{rewritten:#?}\n{reset:#?}");
    let wanted = "the script \"test\" of package.json is other than it was when the task began, and it is the check";
    assert_eq!(reason, wanted);
    assert!(shell.starts_with(".npmrc is other than it was"), "{shell}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_script_of_the_package_that_was_rewritten_proves_nothing() {
    a_rewritten_script_proves_nothing(World::new().await).await;
}

#[tokio::test]
async fn pg_a_script_of_the_package_that_was_rewritten_proves_nothing() {
    on_postgres(a_rewritten_script_proves_nothing).await;
}
