//! Scope, write_paths and protected_paths bind every way of writing, programs among them.

use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::World,
};

fn run(command: &[&str]) -> (&'static str, serde_json::Value) {
    ("exec", json!({ "command": command }))
}

async fn attempt(rules: &str, commands: &[&[&str]]) -> World {
    let world = World::new().await;
    world.repo.write("src/a.txt", "a\n").unwrap();
    world.repo.write("tests/t.txt", "t\n").unwrap();
    world.repo.commit("all: begin").unwrap();
    world.agent("left", "one");
    world.workflow(&format!(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n{rules}\n"
    ));
    let calls_: Vec<_> = commands.iter().map(|command| run(command)).collect();
    tried(&world, &calls_).await;
    world
}

async fn tried(world: &World, commands: &[(&'static str, serde_json::Value)]) {
    world.server.reply(&World::chat("one"), calls(commands));
    world.server.reply(&World::chat("one"), ends("Tried."));
    let ended = world.run(["run", "work", "--sandbox", "on"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

#[tokio::test]
async fn every_path_is_contained_and_write_paths_bind_every_way_of_writing() {
    let world = attempt(
        "write_paths = [\"src/**\"]\nprotected_paths = [\"src/kept/**\", \"tests/**\"]",
        &[
            &["cp", "src/a.txt", "src/b.txt"],
            &["cp", "src/a.txt", "top.txt"],
            &["cp", "src/a.txt", "tests/t.txt"],
            &["rm", "-r", "tests"],
            &["mv", "README.md", "src/README.md"],
            &["ln", "-s", "../tests", "src/link"],
            &["cp", "src/a.txt", "src/link/u.txt"],
            &["touch", ".git/config"],
            &["python3", "-c", "open('tests/t.txt', 'w').write('x')"],
        ],
    )
    .await;

    assert_eq!(world.repo.read("src/b.txt").unwrap(), "a\n");
    assert_eq!(world.repo.read("tests/t.txt").unwrap(), "t\n");
    assert!(!world.path("top.txt").exists() && world.path("README.md").exists());
    assert!(!world.path("tests/u.txt").exists());
    let told = world.server.requests()[1].text();
    assert!(
        told.contains("a program opens no connection and may write src/**, but not .formwork, formwork.toml, **/AGENTS.md, src/kept/**, tests/**, .git"),
        "{told}"
    );
}

#[tokio::test]
async fn gits_own_folder_is_never_written_and_all_else_is_where_nothing_is_said() {
    let world = attempt(
        "",
        &[
            &["touch", "made"],
            &["mkdir", "-p", "deep/er"],
            &["touch", ".git/made"],
            &["rm", "-rf", ".git"],
            &["mv", ".git", "git"],
            &["git", "commit", "--allow-empty", "-m", "x"],
            &["cp", "README.md", ".git/hooks/pre-commit"],
        ],
    )
    .await;

    assert!(world.path("made").exists() && world.path("deep/er").exists());
    assert!(!world.path(".git/made").exists() && !world.path(".git/hooks/pre-commit").exists());
    assert_eq!(world.repo.git(&["log", "--format=%s", "-1"]).unwrap().trim(), "all: begin");
}

#[tokio::test]
async fn no_folder_that_a_program_starts_in_lets_it_write_what_is_sealed() {
    let world = World::new().await;
    world.repo.write("kept/deep/a.txt", "a\n").unwrap();
    world.repo.write("vendor/x/.git/config", "x\n").unwrap();
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nprotected_paths = [\"kept/deep\"]\n");
    let within = |cwd: &str, command: &[&str]| ("exec", json!({ "command": command, "cwd": cwd }));

    tried(
        &world,
        &[
            within(".git", &["touch", "hooks/pre-commit"]),
            within(".git/hooks", &["touch", "pre-commit"]),
            within("kept", &["touch", "deep/b.txt"]),
            within("kept/deep", &["rm", "a.txt"]),
            within("vendor/x", &["touch", ".git/made"]),
            within("vendor/x", &["touch", "made"]),
        ],
    )
    .await;

    assert!(!world.path(".git/hooks/pre-commit").exists());
    assert!(!world.path("kept/deep/b.txt").exists() && world.path("kept/deep/a.txt").exists());
    assert!(!world.path("vendor/x/.git/made").exists() && world.path("vendor/x/made").exists());
}

#[tokio::test]
async fn what_is_protected_and_made_by_a_program_fails_the_task() {
    let world = World::new().await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nretries = { max = 0 }\nprotected_paths = [\"deploy/**\"]\n");
    world.server.reply(
        &World::chat("one"),
        calls(&[run(&["mkdir", "deploy"]), run(&["touch", "deploy/new"])]),
    );
    world.server.reply(&World::chat("one"), ends("Deployed."));

    let ended = world.run(["run", "work", "--sandbox", "on"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let shown = world.shown().await.to_string();
    assert!(shown.contains("new deploy/new"), "{shown}");
}

#[tokio::test]
async fn cargo_builds_below_a_narrow_scope() {
    let world = World::new().await;
    world
        .repo
        .write("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .unwrap();
    world
        .repo
        .write("Cargo.lock", "# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\nversion = 4\n\n[[package]]\nname = \"x\"\nversion = \"0.1.0\"\n")
        .unwrap();
    world.repo.write("src/lib.rs", "#[test]\nfn it_holds() {}\n").unwrap();
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nwrite_paths = [\"src/**\"]\n");
    world
        .server
        .reply(&World::chat("one"), calls(&[run(&["cargo", "test", "--offline", "--lib"])]));
    world.server.reply(&World::chat("one"), ends("Tested."));

    let ended = world.run(["run", "work", "--sandbox", "on"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = world.server.requests()[1].text();
    assert!(told.contains("1 passed"), "{told}");
}

#[tokio::test]
async fn cargo_without_a_lock_file_below_a_narrow_scope_is_told_what_to_do() {
    let world = World::new().await;
    world
        .repo
        .write("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .unwrap();
    world.repo.write("src/lib.rs", "").unwrap();
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nwrite_paths = [\"src/**\"]\n");

    tried(&world, &[run(&["cargo", "check", "--offline"])]).await;

    assert!(!world.path("Cargo.lock").exists());
    let told = world.server.requests()[1].text();
    let wanted = "there is no Cargo.lock, and cargo may not make one here: have one made by `cargo generate-lockfile`";
    assert!(told.contains(wanted), "{told}");
}

fn bash(text: &str) -> (&'static str, serde_json::Value) {
    run(&["bash", "-lc", text])
}

#[tokio::test]
async fn shell_text_given_to_bash_is_judged_part_by_part() {
    let config = "[permissions]\nmode = \"auto\"\nshell = true\nexec = [\"cat *\", \"touch *\", \"ls *\", \"wc *\"]\n";
    let world = World::with(config).await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    world.server.reply(
        &World::chat("one"),
        calls(&[
            bash("cat README.md | wc -l && touch made > /dev/null"),
            bash("touch also; rm README.md"),
            bash("echo x > .git/config"),
        ]),
    );
    world.server.reply(&World::chat("one"), ends("Tried."));

    let ended = world.run(["run", "work", "--sandbox", "on"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(world.path("made").exists() && !world.path("also").exists());
    assert!(world.path("README.md").exists());
    let told = world.server.requests()[1].text();
    assert!(told.contains("rm README.md matches no allowed command"), "{told}");
    assert!(told.contains("in git's own folder"), "{told}");
}

#[tokio::test]
async fn without_the_opt_in_no_program_is_given_shell_text() {
    let world = World::with("[permissions]\nmode = \"auto\"\n").await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let shell = ("shell", json!({ "command": "ls" }));
    world.server.reply(&World::chat("one"), calls(&[bash("touch made"), shell]));
    world.server.reply(&World::chat("one"), ends("Tried."));

    let ended = world.run(["run", "work", "--sandbox", "on"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.path("made").exists());
    let told = world.server.requests()[1].text();
    assert!(told.contains("no shell is opted in where processes are confined"), "{told}");
    assert!(told.contains("there is no tool \\\"shell\\\""), "{told}");
}

#[tokio::test]
async fn shell_without_a_protection_is_refused_to_the_model_and_the_run_goes_on() {
    let config = "[permissions]\nmode = \"auto\"\nshell = true\n";
    for (sandbox, is_run) in [("on", true), ("off", false)] {
        let world = World::with(config).await;
        world.agent("left", "one");
        world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
        let text = "for i in 1 2; do echo $i >> made; done; echo done | tail -1";
        let given = bash("touch given");
        let call = ("shell", json!({ "command": text }));
        world.server.reply(&World::chat("one"), calls(&[call, given]));
        world.server.reply(&World::chat("one"), ends("Tried."));

        let ended = world.run(["run", "work", "--sandbox", sandbox]).await;

        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(world.path("made").exists(), is_run, "{sandbox}");
        assert_eq!(world.path("given").exists(), is_run, "{sandbox}");
        let told = world.server.requests()[1].text();
        let wanted = if is_run { "exit code 0\\ndone" } else { "there is no tool \\\"shell\\\"" };
        assert!(told.contains(wanted), "{told}");
    }
}

async fn planted(world: World) {
    world.agent("left", "one");
    world.workflow(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nretries = { max = 1 }\n",
    );
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[run(&["cp", "README.md", "AGENTS.md"])]));
    world.server.reply(&chat, ends("Done."));
    world.server.reply(&chat, calls(&[run(&["rm", "AGENTS.md"])]));
    world.server.reply(&chat, ends("Now it is."));

    let ended = world.run(["run", "work"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.shown().await["tasks"][1]["attempts"], 2);
    let told = world.server.requests()[2].text();
    assert!(
        told.contains("AGENTS.md was made while it worked, and later runs would obey it"),
        "{told}"
    );
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
}

#[tokio::test]
async fn what_later_runs_would_obey_is_not_left_by_a_program() {
    planted(World::with("[permissions]\nmode = \"auto\"\n").await).await;
}

#[tokio::test]
async fn a_check_that_makes_what_later_runs_would_obey_fails() {
    let world = World::with("[permissions]\nmode = \"auto\"\n").await;
    world.workflow(
        "[[tasks]]\nname = \"left\"\ncommand = [\"true\"]\nretries = { max = 0 }\n\
         postchecks = [{ command = [\"sh\", \"-c\", \"mkdir .formwork/skills/x || mkdir -p skills; echo x > formwork.toml\"] }]\n",
    );

    let ended = world.run(["run", "work"]).await;

    assert_ne!(ended.code, Some(0), "{ended:#?}");
    let told = "formwork.toml was made while it worked, and later runs would obey it";
    assert!(ended.stdout.contains(told) || ended.stderr.contains(told), "{ended:#?}");
}
