//! Checks that cannot be talked out of failing: fixes, planted failures, rounds, and agents that judge.

use formwork_testkit::http::{Gate, Reply};
use serde_json::{Value, json};

use crate::{
    answers::{calls, ends, held, saying, says},
    world::{World, end_of, on_postgres},
};

/// A task of one agent with these exit checks.
fn task(checks: &str) -> String {
    format!("[[tasks]]\nname = \"write\"\nagent = \"left\"\nprompt = \"Write left.txt.\"\n{checks}")
}

fn writes(text: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": "left.txt", "content": text }))
}

/// Returns the verdicts of the last run, in order.
async fn verdicts(world: &World) -> Vec<Value> {
    let shown = world.shown().await;
    let checks = shown["checks"].as_array().unwrap();
    checks.iter().map(|check| check["verdict"].clone()).collect()
}

fn steps(verdict: &Value) -> Vec<(String, bool, String)> {
    let steps = verdict["steps"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    steps
        .iter()
        .map(|step| (text(&step["what"]), step["passed"] == true, text(&step["reason"])))
        .collect()
}

fn step(what: &str, passed: bool, reason: &str) -> (String, bool, String) {
    (what.to_owned(), passed, reason.to_owned())
}

async fn a_fix_is_applied_once(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(&task(
        "[[tasks.postchecks]]\nname = \"big enough\"\ncommand = [\"grep\", \"-q\", \"xx\", \"left.txt\"]\n\
         fix = { command = [\"sh\", \"-c\", \"printf x >> left.txt; echo fixing\"] }\n",
    ));
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[writes("")]));
    world.server.reply(&chat, ends("It is there."));
    world.server.reply(&chat, ends("It is there, I say."));

    let ended = world.run(["run", workflow]).await;

    // Once for each time that the check fails: after the second attempt there are two.
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let found = verdicts(&world).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!((&found[0]["passed"], &found[1]["passed"]), (&json!(false), &json!(true)));
    let fixed = [step("first", false, "exit code 1"), step("fix", true, "exit code 0")];
    assert_eq!(steps(&found[0]), fixed);
    assert_eq!(steps(&found[1]), fixed);
    assert_eq!(world.repo.read("left.txt").unwrap(), "xx");
    // What the fix changed is the run's, and is taken back with it.
    let shown = world.shown().await;
    let run = shown["run"]["run"].as_str().unwrap();
    let undone = world.run(["undo", run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(!world.path("left.txt").exists());
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_6_a_fix_is_applied_once_and_the_check_run_again() {
    a_fix_is_applied_once(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_6_a_fix_is_applied_once_and_the_check_run_again() {
    on_postgres(a_fix_is_applied_once).await;
}

async fn what_cannot_fail_is_found_out(world: World) {
    world.agent("left", "one");
    world.repo.write("old.txt", "old\n").unwrap();
    let workflow = world.workflow(&task(
        "retries = { max = 0 }\n\
         [[tasks.postchecks]]\nname = \"it is there\"\ncommand = [\"grep\", \"-qx\", \"left\", \"left.txt\"]\ncontrol = \"revert\"\n\
         [[tasks.postchecks]]\nname = \"anything\"\ncommand = [\"test\", \"-e\", \"old.txt\"]\ncontrol = \"revert\"\n",
    ));
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[writes("left\n")]));
    world.server.reply(&chat, ends("It is there."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let found = verdicts(&world).await;
    assert_eq!(found[0]["passed"], true, "{found:#?}");
    let proved = [
        step(
            "control",
            true,
            "exit code 2; it ended with: grep: left.txt: No such file or directory",
        ),
        step("proof", true, "exit code 0"),
    ];
    assert_eq!(steps(&found[0]), proved);
    assert_eq!(found[1]["passed"], false);
    assert_eq!(
        found[1]["reason"],
        "it cannot fail: without the work it passes as well (exit code 0)"
    );
    assert_eq!(steps(&found[1]), [step("control", false, "exit code 0")]);
    assert_eq!(world.repo.read("left.txt").unwrap(), "left\n");
    // The copies are gone.
    let left = std::fs::read_dir(world.state().join("tmp")).unwrap();
    assert_eq!(left.flatten().filter(|it| it.path().is_dir()).count(), 0);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_check_that_cannot_fail_is_found_out_by_its_control() {
    what_cannot_fail_is_found_out(World::new().await).await;
}

#[tokio::test]
async fn pg_a_check_that_cannot_fail_is_found_out_by_its_control() {
    on_postgres(what_cannot_fail_is_found_out).await;
}

#[tokio::test]
async fn a_control_that_no_copy_can_bear_proves_nothing() {
    let world = World::new().await;
    world.agent("left", "one");
    let workflow = world.workflow(&task(
        "retries = { max = 0 }\n\
         [[tasks.postchecks]]\ncommand = [\"git\", \"status\", \"--short\"]\ncontrol = { revert = [\"left.txt\"] }\n",
    ));
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[writes("left\n")]));
    world.server.reply(&chat, ends("It is there."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let found = verdicts(&world).await;
    let reason = found[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("its control proves nothing: in a copy with the work"), "{reason}");
}

#[tokio::test]
async fn a_control_writes_its_copy_and_not_the_workspace() {
    let world = World::new().await;
    world.agent("left", "one");
    let repo = world.repo.path().canonicalize().unwrap();
    let repo = repo.to_str().unwrap();
    let script = format!(
        "touch copied; for it in .git/hooks/pre-commit made README.md; do echo x > {repo}/$it; done; grep -qx left left.txt"
    );
    let workflow = world.workflow(&task(&format!(
        "retries = {{ max = 0 }}\n\
         [[tasks.postchecks]]\nname = \"it is there\"\ncommand = [\"sh\", \"-c\", {script:?}]\ncontrol = \"revert\"\n",
    )));
    let before = world.repo.read("README.md").unwrap();
    let chat = World::chat("one");
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "right.txt", "content": "" }))]));
    world.server.reply(&chat, ends("It is there."));

    // The check fails in both copies, and so never runs in the workspace itself.
    let ended = world.run(["run", workflow, "--sandbox", "on"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let found = verdicts(&world).await;
    let made: Vec<_> = steps(&found[0]).into_iter().map(|(what, ..)| what).collect();
    assert_eq!(made, ["control", "proof"]);
    assert!(!world.path(".git/hooks/pre-commit").exists() && !world.path("made").exists());
    assert_eq!(world.repo.read("README.md").unwrap(), before);
}

async fn a_check_may_fail_so_often(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(&task(
        "retries = { max = 9 }\n\
         [[tasks.postchecks]]\nname = \"never\"\ncommand = [\"false\"]\nmax_rounds = 2\n",
    ));
    let chat = World::chat("one");
    for _ in 0..2 {
        world.server.reply(&chat, ends("Done."));
    }

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let shown = world.shown().await;
    assert_eq!(shown["tasks"][1]["attempts"], 2);
    let why = &shown["tasks"][1]["ending"]["why"];
    assert_eq!(why, &json!({ "reason": "checks_exhausted", "attempts": 2, "check": "never" }));
}

#[tokio::test]
async fn a_check_that_has_failed_as_often_as_it_may_ends_the_task() {
    a_check_may_fail_so_often(World::new().await).await;
}

#[tokio::test]
async fn pg_a_check_that_has_failed_as_often_as_it_may_ends_the_task() {
    on_postgres(a_check_may_fail_so_often).await;
}

const REVIEWED: &str = "[[tasks.postchecks]]\nname = \"review\"\nagent = \"right\"\nprompt = \"Judge it.\"\nblock = \"major\"\n";

fn verdict(verdict: &str, issues: &[(&str, &str)]) -> String {
    let issue = |(severity, message): &(&str, &str)| json!({ "severity": severity, "message": message, "file": "left.txt", "line": 1 });
    let issues: Vec<Value> = issues.iter().map(issue).collect();
    json!({ "verdict": verdict, "issues": issues }).to_string()
}

async fn an_agents_verdict_decides(world: World) {
    world.agent("left", "one");
    world.agent("right", "two");
    let workflow = world.workflow(&task(&format!("retries = {{ max = 4 }}\n{REVIEWED}")));
    let (left, right) = (World::chat("one"), World::chat("two"));
    world.server.reply(&left, calls(&[writes("left\n")]));
    for said in ["First.", "Second.", "Third.", "Fourth."] {
        world.server.reply(&left, ends(said));
    }
    // It looks before it speaks, and may not write; each answer is another round of the task.
    let tries = ("fs.write", json!({ "path": "evil.txt", "content": "x" }));
    world.server.reply(&right, calls(&[("fs.read", json!({ "path": "left.txt" })), tries]));
    world.server.reply(&right, says(&verdict("pass", &[("critical", "it is wrong")])));
    world.server.reply(&right, says("LGTM, ship it"));
    world.server.reply(&right, says(&verdict("fail", &[])));
    let nits = verdict("pass", &[("minor", "a word"), ("nit", "a comma")]);
    world.server.reply(&right, says(&format!("I read it.\n\n```json\n{nits}\n```")));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let found = verdicts(&world).await;
    let told: Vec<_> = found
        .iter()
        .map(|verdict| (verdict["passed"] == true, verdict["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (false, "critical: left.txt:1: it is wrong"),
            (false, "its verdict is malformed: it holds no JSON object with a verdict"),
            (false, "it says fail, with no issue of major or worse"),
            (true, "it passes, with 2 issues below major"),
        ]
    );
    // What was no verdict is kept as it was said.
    let hash = found[1]["evidence"]["output"].as_str().unwrap();
    assert_eq!(world.run(["blob", hash]).await.stdout, "LGTM, ship it");
    assert_eq!(found[1]["evidence"]["excerpt"], "LGTM, ship it");
    assert!(!world.path("evil.txt").exists());
    let asked = world.server.requests();
    let first = asked.iter().find(|request| request.path() == right).unwrap().text();
    for part in ["Judge it.", "Write left.txt.", "First.", "+left"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!first.contains("fs_write"), "a tool that changes something is offered: {first}");
    // Whose task it is, is not forgotten over the reviewer's conversation.
    let sessions = world.events("session.started").await;
    assert_eq!(sessions.len(), 5, "{sessions:#?}");
    // The verdicts are played back, and nothing that was said on the way to them is missed.
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_7_an_agents_verdict_blocks_by_severity_by_its_word_and_where_it_is_malformed() {
    an_agents_verdict_decides(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_7_an_agents_verdict_blocks_by_severity_by_its_word_and_where_it_is_malformed()
{
    on_postgres(an_agents_verdict_decides).await;
}

#[tokio::test]
async fn a_check_spends_no_more_than_its_share() {
    let world = World::new().await;
    world.agent("left", "one");
    world.agent("right", "two");
    let checks = format!("retries = {{ max = 1 }}\n{REVIEWED}budget = {{ rounds = 1 }}\n");
    let workflow = world.workflow(&task(&checks));
    for _ in 0..2 {
        world.server.reply(&World::chat("one"), ends("Done."));
    }
    world.server.reply(&World::chat("two"), says(&verdict("fail", &[])));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let found = verdicts(&world).await;
    let reason = found[1]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("right gave no verdict: ")
            && reason.contains("0 model calls are left of 1"),
        "{reason}"
    );
    let asked = world.server.requests();
    assert_eq!(asked.iter().filter(|request| request.path() == World::chat("two")).count(), 1);
}

#[tokio::test]
async fn new_files_and_new_dependencies_are_found_by_ready_made_checks() {
    let world = World::new().await;
    world.agent("left", "one");
    world.repo.write("Cargo.toml", "[package]\nname = \"x\"\n[dependencies]\n").unwrap();
    let workflow = world.workflow(&task(
        "retries = { max = 1 }\n\
         [[tasks.postchecks]]\nconstraint = \"no_new_dependencies\"\n\
         [[tasks.postchecks]]\nno_new_files_outside = [\"src/**\"]\n",
    ));
    let chat = World::chat("one");
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nleft-pad = \"1\"\n";
    let read = ("fs.read", json!({ "path": "Cargo.toml" }));
    world.server.reply(&chat, calls(&[read]));
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "Cargo.toml", "content": manifest }))]));
    world.server.reply(&chat, ends("Done."));
    let manifest = manifest.replace("left-pad = \"1\"\n", "");
    world.server.reply(
        &chat,
        calls(&[("fs.write", json!({ "path": "Cargo.toml", "content": manifest })), writes("x")]),
    );
    world.server.reply(&chat, ends("Done now."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let reasons: Vec<_> = verdicts(&world)
        .await
        .iter()
        .map(|verdict| verdict["reason"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        reasons,
        [
            "a new dependency: Cargo.toml: left-pad",
            "no dependency is new, of 0",
            "new left.txt, outside of src/**",
        ]
    );
}

#[tokio::test]
async fn a_function_of_the_embedding_program_decides_as_a_check() {
    use formwork_protocols::{Claim, Principal, check::Verdict};
    use formwork_scheduler::Natives;
    use formwork_services::{
        Builder,
        capability::Caller,
        config::{Layer, Layers, Origin},
        operations::runs::{Get, GetParams, Start, StartParams, Work},
    };
    let repo = formwork_testkit::repo::Repo::new().unwrap();
    let state = tempfile::tempdir().unwrap();
    let natives = Natives::new()
        .with("work", {
            let root = repo.path().to_owned();
            move |_, _| {
                std::fs::write(root.join("kept.txt"), "changed\n").unwrap();
                async { Ok(Claim { summary: "forty".to_owned(), output: None }) }
            }
        })
        .with_check("fine", |job, _| async move {
            let said = job.claim.map(|claim| claim.summary).unwrap_or_default();
            Verdict::bare("any name", said == "forty-two", format!("it says {said}"))
        });
    let mut layers = Layers::new();
    let text = "format_version = 1\nsandbox = \"off\"\n";
    layers.push(Layer::parse(Origin::Flag { flag: "the test".to_owned() }, text).unwrap());
    let builder = Builder::new(repo.path()).state(state.path()).natives(natives);
    let formwork = builder.config(layers.merge().unwrap().config).build().await.unwrap();
    let caller = Caller::owner(Principal::parse("user:ada").unwrap());
    let text = "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"t\"\nnative = \"work\"\n\
                retries = { max = 0 }\n\
                postchecks = [{ native = \"fine\", max_rounds = 1 }]\n";
    // A function changes files as anybody else does.
    let kept = text.replace("native = \"fine\", max_rounds = 1", "unchanged = [\"kept.txt\"]");
    let params = |text: &str| StartParams {
        work: Work::Workflow { source: "w.toml".to_owned(), text: text.to_owned() },
        vars: serde_json::Map::new(),
        model: None,
        width: None,
        commit: false,
        headless: false,
        mode: None,
    };
    repo.write("kept.txt", "kept\n").unwrap();

    let compared = formwork.call::<Start>(&caller, params(&kept)).await.unwrap().run;
    formwork.wait(compared).await.unwrap();
    let run = formwork.call::<Start>(&caller, params(text)).await.unwrap().run;
    let outcome = formwork.wait(run).await.unwrap();

    assert_eq!(outcome.code.exit_code(), 2, "{outcome}");
    let detail = formwork.call::<Get>(&caller, GetParams { run }).await.unwrap();
    let verdict = &detail.checks[0].verdict;
    assert_eq!((verdict.check.as_str(), verdict.reason.as_str()), ("fine", "it says forty"));
    let detail = formwork.call::<Get>(&caller, GetParams { run: compared }).await.unwrap();
    assert_eq!(detail.checks[0].verdict.reason, "changed kept.txt, which had to stay as it was");
    formwork.close().await;
}

async fn nobody_judged(world: World) {
    world.agent("left", "one");
    world.agent("right", "two");
    let workflow = world.workflow(&task(
        "[[tasks.postchecks]]\nname = \"judged\"\nagent = \"right\"\nprompt = \"Judge it.\"\n\
         fix = { command = [\"touch\", \"mended\"] }\n",
    ));
    world.server.reply(&World::chat("one"), calls(&[writes("x")]));
    world.server.reply(&World::chat("one"), ends("It is there."));
    world.server.reply(&World::chat("two"), Reply::text(401, "who are you?"));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(!world.path("mended").exists(), "nothing was found that could be mended");
    let found = verdicts(&world).await;
    assert_eq!((found.len(), &found[0]["unjudged"]), (1, &json!(true)), "{found:#?}");
    assert_eq!(world.server.requests().len(), 3, "nobody was asked once more");
    world.assert_sound().await;
}

#[tokio::test]
async fn where_nobody_has_judged_nothing_is_mended() {
    nobody_judged(World::new().await).await;
}

#[tokio::test]
async fn pg_where_nobody_has_judged_nothing_is_mended() {
    on_postgres(nobody_judged).await;
}

async fn a_program_is_missing(world: World) {
    world.agent("left", "one");
    world.agent("right", "two");
    let missing = |fix: &str| {
        task(&format!(
            "retries = {{ max = 3 }}\n[[tasks.postchecks]]\ncommand = [\"no-such-program\", \"--all\"]\n{fix}"
        ))
    };
    let of_the_work =
        task("retries = { max = 1 }\n[[tasks.postchecks]]\ncommand = [\"./suite.sh\"]\n");

    // No model is asked to mend what none can; a command may set up what is missing.
    let fixes = [
        "",
        "fix = { agent = \"right\", prompt = \"Mend it.\" }\n",
        "fix = { command = [\"touch\", \"mended\"] }\n",
    ];
    for fix in fixes {
        let workflow = world.workflow(&missing(fix));
        let before = world.server.requests().len();
        world.server.reply(&World::chat("one"), ends("It is there."));
        let ended = world.run(["run", workflow]).await;

        assert_eq!(ended.code, Some(3), "{ended:#?}");
        let told = ended.last_line();
        assert!(told.starts_with("setup: "), "{told}");
        assert!(told.contains("check \"no-such-program --all\" could not be run: program no-such-program was not found in "), "{told}");
        assert_eq!(world.server.requests().len() - before, 1, "{fix}");
    }
    assert!(world.path("mended").exists());
    let found = verdicts(&world).await;
    assert!(found.iter().all(|verdict| verdict["not_run"] == true), "{found:#?}");

    // A program of the workspace is the work's own, and is asked for again.
    let workflow = world.workflow(&of_the_work);
    for _ in 0..2 {
        world.server.reply(&World::chat("one"), ends("It is there."));
    }
    let ended = world.run(["run", workflow]).await;
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_check_whose_program_is_missing_ends_the_task_as_setup_and_asks_no_model() {
    a_program_is_missing(World::new().await).await;
}

#[tokio::test]
async fn pg_a_check_whose_program_is_missing_ends_the_task_as_setup_and_asks_no_model() {
    on_postgres(a_program_is_missing).await;
}

#[tokio::test]
async fn the_time_of_a_check_is_that_of_all_its_parts_together() {
    let world = World::new().await;
    world.agent("left", "one");
    world.agent("right", "two");
    let text = |name: &str| -> String { (0..8_000).map(|it| format!("{name} {it}\n")).collect() };
    world.repo.write("large.txt", text("line")).unwrap();
    let workflow = world.workflow(&task(
        "retries = { max = 0 }\n\
         [[tasks.postchecks]]\nagent = \"right\"\nprompt = \"Judge it.\"\ntimeout = \"4s\"\n",
    ));
    let exec = ("exec", json!({ "command": ["cp", "large.txt", "copy.txt"] }));
    world.server.reply(&World::chat("one"), calls(&[exec]));
    world.server.reply(&World::chat("one"), ends("It is there."));
    let (first, second) = (Gate::new(), Gate::new());
    let pass = saying(&json!({ "verdict": "pass", "issues": [] }).to_string());
    world.server.reply(&World::chat("two"), held(&first, &pass));
    world.server.reply(&World::chat("two"), held(&second, &pass));

    // The first part takes most of the time, and the second what is left of it.
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    first.reached().await;
    let asked = std::time::Instant::now();
    while asked.elapsed().as_millis() < 3_000 {
        world.shown().await;
    }
    first.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let found = verdicts(&world).await;
    assert_eq!(found[0]["reason"], "right gave no verdict: timed out after 4s");
    // With a time of its own, the second would have had as long again.
    let (started, finished) =
        (world.events("check.started").await, world.events("check.finished").await);
    let took = finished[0]["at"].as_i64().unwrap() - started[0]["at"].as_i64().unwrap();
    assert!(took < (3 + 4) * 1_000_000, "{took}");
}
