//! `formwork review`: a change judged before it is taken.

use formwork_testkit::{http::Reply, repo::Repo};
use serde_json::{Value, json};

use crate::{
    answers::{calls, says},
    world::{World, on_postgres},
};

/// A world whose reviewer thinks with the first model, and in which one line of `src/a.txt` is changed.
async fn changed() -> World {
    let world = World::new().await;
    change(&world);
    world
}

fn change(world: &World) {
    world.repo.write("src/a.txt", "one\ntwo\nthree\n").unwrap();
    world.repo.commit("tree: what there is").unwrap();
    world.repo.write("src/a.txt", "one\n2\nthree\n").unwrap();
}

fn verdict(word: &str, issues: &[Value]) -> String {
    json!({ "verdict": word, "issues": issues }).to_string()
}

fn issue(severity: &str, file: &str, line: u64, quote: &str) -> Value {
    let message = format!("{severity} in {file}");
    json!({ "severity": severity, "message": message, "file": file, "line": line, "quote": quote })
}

fn answers(world: &World, said: &str) {
    world.server.reply(&World::chat("one"), says(said));
}

async fn only_approve_passes(world: World) {
    change(&world);
    answers(&world, &verdict("APPROVE", &[issue("nit", "src/a.txt", 2, "2")]));
    answers(&world, &verdict("REQUEST_CHANGES", &[]));
    answers(&world, &verdict("APPROVE", &[issue("major", "src/a.txt", 2, "2")]));
    answers(&world, "It looks good to me, ship it.");
    answers(&world, &verdict("COMMENT", &[]));
    answers(&world, r#"{"verdict": "APPROVE", "issues": [], "decision": "REQUEST_CHANGES"}"#);
    answers(&world, r#"{"decision": "APPROVE", "issues": []}"#);
    let critical = issue("critical", "src/a.txt", 2, "2");
    answers(&world, &json!({ "verdict": "APPROVE", "findings": [critical] }).to_string());
    answers(&world, &format!("{{\"review\": {}}}", verdict("APPROVE", &[])));
    let fenced =
        format!("```json\n{}\n```\nThat is what the file asks for.", verdict("APPROVE", &[]));
    answers(&world, &fenced);

    let mut found = Vec::new();
    for _ in 0..10 {
        let ended = world.run(["review", "--json"]).await;
        let review = ended.json()["review"].clone();
        found.push((ended.code, review["verdict"].as_str().unwrap().to_owned()));
        if review["verdict"] == "MALFORMED" {
            assert!(!review["said"].as_str().unwrap().is_empty(), "{review:#}");
        }
    }

    let told = |code, word: &str| (Some(code), word.to_owned());
    assert_eq!(
        found,
        [
            told(0, "APPROVE"),
            told(2, "REQUEST_CHANGES"),
            told(2, "REQUEST_CHANGES"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
            told(2, "MALFORMED"),
        ]
    );
    assert_eq!(world.repo.read("src/a.txt").unwrap(), "one\n2\nthree\n");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_57_of_a_review_only_approve_passes() {
    only_approve_passes(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_57_of_a_review_only_approve_passes() {
    on_postgres(only_approve_passes).await;
}

#[tokio::test]
async fn behaviour_57_findings_that_point_at_nothing_in_the_diff_are_dropped_and_told_of() {
    let world = changed().await;
    let issues = [
        issue("minor", "src/a.txt", 99, "+2"),
        issue("minor", "README.md", 1, "A repository"),
        issue("nit", "src/a.txt", 2, "no such line"),
    ];
    answers(&world, &verdict("APPROVE", &issues));

    let ended = world.run(["review"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = &ended.stdout;
    assert!(told.contains("src/a.txt:2: minor: minor in src/a.txt\n    +2\n"), "{told}");
    assert!(told.contains("dropped 2 findings, pointing at nothing in the diff:"), "{told}");
    assert!(told.contains("APPROVE: it passes, with 1 issue below major"), "{told}");
}

#[tokio::test]
async fn behaviour_57_an_approval_with_what_would_block_is_none_wherever_that_points() {
    let world = changed().await;
    let sound = issue("minor", "src/a.txt", 2, "2");
    for (file, quote) in [("README.md", "A repository"), ("src/a.txt", "no such line")] {
        answers(&world, &verdict("APPROVE", &[sound.clone(), issue("major", file, 1, quote)]));
    }
    answers(&world, &verdict("APPROVE", &[sound]));

    let mut found = Vec::new();
    for _ in 0..3 {
        let ended = world.run(["review", "--json"]).await;
        let review = ended.json()["review"].clone();
        let dropped = review["seen"]["dropped"].as_array().map_or(0, Vec::len);
        found.push((ended.code, review["verdict"].as_str().unwrap().to_owned(), dropped));
    }

    let malformed = (Some(2), "MALFORMED".to_owned(), 1);
    assert_eq!(found, [malformed.clone(), malformed, (Some(0), "APPROVE".to_owned(), 0)]);
}

#[tokio::test]
async fn findings_are_told_with_the_worst_first_and_where_they_are() {
    let world = changed().await;
    let issues = [
        issue("nit", "src/a.txt", 1, "one"),
        issue("major", "src/a.txt", 3, "three"),
        issue("major", "src/a.txt", 2, "two"),
    ];
    answers(&world, &verdict("REQUEST_CHANGES", &issues));

    let ended = world.run(["review"]).await;

    let places: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("src/")).collect();
    let expected = [
        "src/a.txt:2: major: major in src/a.txt",
        "src/a.txt:3: major: major in src/a.txt",
        "src/a.txt:1: nit: nit in src/a.txt",
    ];
    assert_eq!((ended.code, places), (Some(2), expected.to_vec()), "{ended:#?}");
}

#[tokio::test]
async fn behaviour_57_a_change_that_moved_meanwhile_is_looked_at_again() {
    let world = changed().await;
    let gate = formwork_testkit::http::Gate::new();
    let chat = World::chat("one");
    world.server.reply(
        &chat,
        crate::answers::held(&gate, &crate::answers::saying(&verdict("APPROVE", &[]))),
    );
    world.server.reply(&chat, says(&verdict("REQUEST_CHANGES", &[])));

    let child = world.formwork(["review", "--base", "HEAD~1", "--json"]).spawn().unwrap();
    world.server.wait_for_requests(1).await;
    world.repo.commit("tree: moved").unwrap();
    gate.open();
    let ended = crate::world::end_of(child).await;

    let review = ended.json()["review"].clone();
    assert_eq!((ended.code, &review["seen"]["looks"]), (Some(2), &json!(2)), "{review:#}");
}

#[tokio::test]
async fn behaviour_57_no_reviewer_has_an_exit_code_of_its_own() {
    let world = changed().await;
    let chat = World::chat("one");
    for _ in 0..4 {
        world.server.reply(&chat, Reply::text(401, "who are you?"));
    }

    let silent = world.run(["review"]).await;
    let missing = world.bare(["review", "--json"]).spawn().unwrap();
    let missing = crate::world::end_of(missing).await;

    assert_eq!(silent.code, Some(3), "{silent:#?}");
    assert!(silent.stdout.contains("no reviewer answered"), "{silent:#?}");
    assert_eq!(missing.code, Some(3), "{missing:#?}");
}

#[tokio::test]
async fn a_large_change_is_looked_at_in_parts_and_one_that_is_too_large_by_nobody() {
    let world = changed().await;
    let text = |lines: usize| -> String { (0..lines).map(|it| format!("line {it}\n")).collect() };
    world.repo.write("large.txt", text(8_000)).unwrap();
    for _ in 0..2 {
        answers(&world, &verdict("APPROVE", &[]));
    }

    let parts = world.run(["review", "--json"]).await;
    world.repo.write("large.txt", text(90_000)).unwrap();
    let huge = world.run(["review", "--json"]).await;
    world.repo.write("large.txt", format!("{}\n", "x".repeat(9_000))).unwrap();
    answers(&world, &verdict("APPROVE", &[]));
    let unseen = world.run(["review", "--json"]).await;

    assert_eq!((parts.code, &parts.json()["review"]["seen"]["parts"]), (Some(0), &json!(2)));
    assert_eq!(huge.code, Some(2), "{huge:#?}");
    assert!(huge.json()["outcome"]["rounds"] == 0, "{huge:#?}");
    let reason = unseen.json()["review"]["reason"].as_str().unwrap().to_owned();
    assert_eq!(unseen.code, Some(2), "{reason}");
    assert!(reason.contains("not all of it was seen: large.txt"), "{reason}");
}

#[tokio::test]
async fn what_is_looked_at_is_what_was_asked_for() {
    let world = changed().await;
    world.repo.write("new \"file\".txt", "new\n").unwrap();
    world.repo.write(".gitattributes", "*.txt -diff\n").unwrap();
    world.repo.write("staged.txt", "staged\n").unwrap();
    world.repo.git(&["add", "staged.txt"]).unwrap();
    let files = async |arguments: &[&str]| {
        answers(&world, &verdict("APPROVE", &[]));
        let given = ["review", "--json"].iter().chain(arguments);
        let review = world.run(given).await.json()["review"].clone();
        review["seen"]["files"].as_u64()
    };

    assert_eq!(files(&[]).await, Some(4));
    assert_eq!(files(&["--staged"]).await, Some(1));
    assert_eq!(files(&["src"]).await, Some(1));
    assert_eq!(files(&["--base", "HEAD~1", "src", "staged.txt"]).await, Some(2));
    let shown = world.server.requests().first().unwrap().text();
    // What an attribute calls binary is shown all the same.
    assert!(shown.contains("-two\\n+2") && shown.contains("+new"), "{shown}");

    for wrong in [&["--base", "nowhere"][..], &["no/such/file"], &["--base", "--all"]] {
        let ended = world.run(["review"].iter().chain(wrong)).await;
        assert_eq!(ended.code, Some(64), "{ended:#?}");
    }
    let clean = World::new().await;
    let ended = clean.run(["review"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("nothing differs"), "{ended:#?}");
}

#[tokio::test]
async fn a_reviewer_changes_nothing_whatever_the_config_allows() {
    let world = changed().await;
    let chat = World::chat("one");
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "evil.txt", "content": "x" }))]));
    answers(&world, &verdict("APPROVE", &[]));

    let ended = world.run(["review"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.path("evil.txt").exists());
}

#[tokio::test]
async fn a_submodule_at_another_commit_is_shown_to_who_reviews() {
    let world = World::new().await;
    let inner = Repo::new().unwrap();
    inner.write("f", "one\n").unwrap();
    let first = inner.commit("inner: one").unwrap();
    let url = inner.path().to_str().unwrap().to_owned();
    world
        .repo
        .git(&["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "sub"])
        .unwrap();
    world.repo.commit("sub: as it was").unwrap();
    inner.write("evil", "x\n").unwrap();
    let second = inner.commit("inner: two").unwrap();
    world.repo.git(&["-C", "sub", "pull", "-q"]).unwrap();
    world.repo.git(&["init", "-q", "nested"]).unwrap();
    world.repo.git(&["-C", "nested", "commit", "-q", "--allow-empty", "-m", "one"]).unwrap();
    answers(&world, &verdict("REQUEST_CHANGES", &[]));

    let ended = world.run(["review"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let sent = world.server.requests().first().unwrap().text();
    assert!(sent.contains("nested is a repository of its own"), "{sent}");
    for shown in [format!("-Subproject commit {first}"), format!("+Subproject commit {second}")] {
        assert!(sent.contains(&shown), "{shown} is not in {sent}");
    }
}

#[tokio::test]
async fn what_git_was_told_not_to_look_at_is_shown_to_who_reviews() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let world = World::new().await;
        world.repo.write("src/a.txt", "one\n").unwrap();
        world.repo.commit("tree: what there is").unwrap();
        world.repo.git(&["update-index", flag, "src/a.txt"]).unwrap();
        world.repo.write("src/a.txt", "two\n").unwrap();
        answers(&world, &verdict("REQUEST_CHANGES", &[issue("major", "src/a.txt", 1, "two")]));

        let ended = world.run(["review"]).await;

        assert_eq!(ended.code, Some(2), "{flag}: {ended:#?}");
        let asked = world.server.requests();
        assert!(asked[0].text().contains("-one\\n+two"), "{flag}: {}", asked[0].text());
    }
}

#[tokio::test]
async fn what_git_was_told_not_to_look_at_counts_where_a_check_compares() {
    let world = World::new().await;
    world.repo.write("kept.txt", "one\n").unwrap();
    world.repo.commit("tree: what there is").unwrap();
    world.repo.git(&["update-index", "--skip-worktree", "kept.txt"]).unwrap();
    let workflow = world.workflow(
        "[[tasks]]\nname = \"work\"\ncommand = [\"sh\", \"-c\", \"echo two > kept.txt\"]\nretries = { max = 0 }\n\
         postchecks = [{ unchanged = [\"kept.txt\"] }]\n",
    );

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.last_line().contains("1 file changed"), "{ended:#?}");
}
