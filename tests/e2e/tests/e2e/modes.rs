//! What agents may do: nothing is changed in `ask`, and nothing beyond the scope in `edit`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends, says},
    world::World,
};

/// Returns every file below a folder with its content.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() || path.is_file() {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap_or_default());
            } else {
                folders.push(path);
            }
        }
    }
    found
}

fn offered(request: &str) -> Vec<String> {
    let request: Value = serde_json::from_str(request).unwrap();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn nothing_is_changed_in_ask_whatever_the_model_calls() {
    let world = World::new().await;
    world.repo.write("mark.sh", "echo done > marked\n").unwrap();
    let before = tree(world.repo.path());
    world.server.reply(
        &World::chat("one"),
        calls(&[
            ("fs.write", json!({ "path": "new.txt", "content": "new" })),
            ("fs.delete", json!({ "path": "README.md" })),
            ("exec", json!({ "command": ["sh", "mark.sh"] })),
            ("git", json!({ "args": ["commit", "--allow-empty", "-m", "x"] })),
        ]),
    );
    world.server.reply(&World::chat("one"), says("I could change nothing."));

    let ended = world.run(["ask", "Change something."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("I could change nothing."), "{ended:#?}");
    assert_eq!(tree(world.repo.path()), before);
    let asked = world.server.requests();
    let tools = offered(&asked[0].text());
    assert!(tools.contains(&"fs_read".to_owned()), "{tools:?}");
    for tool in ["fs_write", "fs_edit", "fs_delete", "exec"] {
        assert!(!tools.contains(&tool.to_owned()), "{tools:?}");
    }
    assert_eq!(world.events("tool.completed").await, [] as [Value; 0]);
}

#[tokio::test]
async fn what_a_command_of_a_workflow_changes_is_recorded_and_undone() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    world.repo.write("change.sh", "echo x >> README.md\necho new > new\n").unwrap();
    let workflow =
        world.workflow("[[tasks]]\nname = \"left\"\ncommand = [\"sh\", \"change.sh\"]\n");
    let before = tree(world.repo.path());

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_ne!(tree(world.repo.path()), before);
    let changed = world.events("file.changed").await;
    let paths: Vec<_> = changed.iter().map(|it| it["data"]["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["README.md", "new"]);
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let undone = world.run(["undo", &run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(tree(world.repo.path()), before);
}

#[tokio::test]
async fn a_workflow_that_runs_more_than_checks_is_not_begun_in_ask_or_plan() {
    let world = World::with("").await;
    let before = |tasks: &str| {
        let workflow = world.workflow(tasks);
        (workflow, tree(world.repo.path()))
    };
    let cases = [
        ("command = [\"touch\", \"PWN\"]\n", "task left runs touch PWN"),
        (
            "agent = \"reader\"\nprompt = \"Go.\"\non_success = [{ command = [\"touch\", \"PWN\"] }]\n",
            "task left runs touch PWN besides its work",
        ),
        (
            "agent = \"reader\"\nprompt = \"Go.\"\nbefore_retry = [{ command = [\"touch\", \"PWN\"] }]\n",
            "task left runs touch PWN besides its work",
        ),
    ];
    for mode in ["ask", "plan"] {
        for (task, told) in cases {
            let (workflow, there) = before(&format!("[[tasks]]\nname = \"left\"\n{task}"));

            let ended = world.run(["run", workflow, "--mode", mode]).await;

            assert_eq!(ended.code, Some(3), "{ended:#?}");
            let whole = format!("{told}, and a run in mode {mode} changes nothing");
            assert!(ended.stderr.contains(&whole), "{whole}: {ended:#?}");
            assert_eq!(tree(world.repo.path()), there);
        }
    }
    assert!(world.server.requests().is_empty());
}

#[tokio::test]
async fn a_check_writes_nothing_in_ask() {
    let world = World::with("[permissions]\nmode = \"ask\"\n").await;
    world.agent("left", "one");
    world.repo.write(
        ".formwork/workflows/smoke.toml",
        "format_version = 1\nname = \"smoke\"\n[[tasks]]\nname = \"poke\"\ncommand = [\"touch\", \"PWN\"]\n",
    )
    .unwrap();
    let task =
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nretries = { max = 0 }\n";
    for check in
        ["command = [\"touch\", \"PWN\"]", "suite = [\"touch\", \"PWN\"]", "workflow = \"smoke\""]
    {
        let workflow = world.workflow(&format!("{task}[[tasks.postchecks]]\n{check}\n"));
        let before = tree(world.repo.path());
        world.server.reply(&World::chat("one"), ends("Looked."));

        let ended = world.run(["run", workflow]).await;

        assert_eq!(ended.code, Some(2), "{check}: {ended:#?}");
        assert_eq!(tree(world.repo.path()), before, "{check}");
    }
    let looks = world
        .workflow(&format!("{task}[[tasks.postchecks]]\ncommand = [\"cat\", \"README.md\"]\n"));
    world.server.reply(&World::chat("one"), ends("Looked."));
    let ended = world.run(["run", looks]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let free = world.run(["run", looks, "--sandbox", "off"]).await;
    assert_eq!(free.code, Some(3), "{free:#?}");
    assert!(free.stderr.contains("which nothing here keeps from writing"), "{free:#?}");
}

#[tokio::test]
async fn an_agent_that_asks_for_more_than_the_mode_is_not_given_it() {
    let world = World::with("[permissions]\nmode = \"ask\"\n").await;
    world.agent("left", "one");
    let workflow =
        world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let before = tree(world.repo.path());
    world.server.reply(
        &World::chat("one"),
        calls(&[
            ("fs.write", json!({ "path": "new.txt", "content": "new" })),
            ("exec", json!({ "command": ["touch", "new.txt"] })),
        ]),
    );
    world.server.reply(&World::chat("one"), ends("I could change nothing."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(tree(world.repo.path()), before);
    assert_eq!(world.events("tool.failed").await.len(), 2);
}

#[tokio::test]
async fn nothing_beyond_the_scope_is_changed_in_edit() {
    let world = World::with("[permissions]\nmode = \"edit\"\nscope = [\"src/**\"]\n").await;
    let outside = tempfile::tempdir().unwrap();
    world.repo.write("src/old.txt", "old\n").unwrap();
    std::os::unix::fs::symlink(outside.path(), world.path("src/away")).unwrap();
    std::os::unix::fs::symlink("../README.md", world.path("src/readme")).unwrap();
    let mut expected = tree(world.repo.path());
    let write = |path: &str| ("fs.write", json!({ "path": path, "content": "new\n" }));
    let absolute = outside.path().join("new.txt");
    let refused = [
        "new.txt",
        "src/../new.txt",
        "../new.txt",
        "src/away/new.txt",
        "src/readme",
        ".git/hooks/post-commit",
        "src/.git/config",
        absolute.to_str().unwrap(),
    ];
    let mut attempts: Vec<_> = refused.iter().map(|path| write(path)).collect();
    attempts.push(("exec", json!({ "command": ["touch", "src/by-exec"] })));
    attempts.push(write("src/new.txt"));
    world.server.reply(&World::chat("one"), calls(&attempts));
    world.server.reply(&World::chat("one"), ends("One of them went well."));

    let ended = world.run(["edit", "Write here and there."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    expected.insert("src/new.txt".to_owned(), b"new\n".to_vec());
    assert_eq!(tree(world.repo.path()), expected);
    assert!(tree(outside.path()).is_empty());
    let changed = world.events("file.changed").await;
    assert_eq!(changed.len(), 1, "{changed:#?}");
    assert_eq!(changed[0]["data"]["path"], "src/new.txt");
    assert_eq!(world.events("tool.failed").await.len(), refused.len() + 1);
}

/// What is sent with each request costs money each time, and a small model its attention.
#[tokio::test]
async fn what_the_coder_is_told_before_its_task_takes_six_kilobytes() {
    let world = World::with("[permissions]\nmode = \"edit\"\n").await;
    world.server.reply(&World::chat("one"), ends("Nothing was to be done."));

    world.run(["edit", "Do nothing."]).await;

    let request: Value = serde_json::from_str(&world.server.requests()[0].text()).unwrap();
    let messages = request["messages"].as_array().unwrap().iter();
    let prompt = messages.filter(|it| it["role"] != "user");
    let prompt: usize = prompt.map(|it| it["content"].as_str().unwrap().len()).sum();
    let fixed = prompt + request["tools"].to_string().len();
    assert!(fixed <= 6_144, "{fixed} bytes");
    let tools = request["tools"].to_string();
    assert!(tools.contains("load_tools") && tools.contains("fs.multi_edit"), "{tools}");
    assert!(!tools.contains("fs_multi_edit"), "{tools}");
}

#[tokio::test]
async fn whoever_runs_a_workflow_in_ask_is_told_what_its_agents_do_not_have_and_how_they_come_to_it()
 {
    let world = World::with("").await;
    world.agent("coder", "one");
    let workflow =
        world.workflow("[[tasks]]\nname = \"fix\"\nagent = \"coder\"\nprompt = \"Fix it.\"\n");
    let write = ("fs.write", json!({ "path": "new.txt", "content": "new" }));
    for _ in 0..2 {
        world.server.reply(&World::chat("one"), calls(std::slice::from_ref(&write)));
        world.server.reply(&World::chat("one"), ends("Done."));
    }

    let asked = world.run(["run", workflow]).await;
    let edited = world.run(["run", workflow, "--mode", "edit"]).await;

    let told = "mode ask changes nothing, and has no fs.apply_patch, fs.copy, fs.delete and ";
    assert!(asked.stderr.contains(told), "{asked:#?}");
    let how = "pass --mode edit, or say mode = \"edit\" below [permissions]";
    assert_eq!(asked.stderr.matches(how).count(), 2, "{asked:#?}");
    assert!(
        asked.stderr.contains("there is no tool \"fs.write\" for this task: mode ask"),
        "{asked:#?}"
    );
    assert!(!edited.stderr.contains("changes nothing"), "{edited:#?}");
    assert_eq!(world.repo.read("new.txt").unwrap(), "new");
}
