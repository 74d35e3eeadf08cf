//! What a project says takes effect only once a person has looked at it.

use std::{ffi::OsStr, fs};

use serde_json::json;

use crate::{
    answers::{calls, ends, says},
    world::{Ended, World, end_of},
};

async fn bare(world: &World, arguments: &[&str]) -> Ended {
    end_of(world.bare(arguments).spawn().unwrap()).await
}

#[tokio::test]
async fn a_projects_config_has_no_effect_until_it_is_trusted_and_after_a_change() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), says("It was trusted."));
    let config = world.providers(&world.server.url());
    world.repo.write("formwork.toml", &config).unwrap();

    let before = bare(&world, &["run", "-m", "Go."]).await;
    let shown = bare(&world, &["config", "show"]).await;
    let nothing_sent = world.server.requests().is_empty();
    let trusted = bare(&world, &["trust"]).await;
    let during = bare(&world, &["run", "-m", "Go."]).await;
    world.repo.write("formwork.toml", config + "# A comment is a change too.\n").unwrap();
    let after = bare(&world, &["run", "-m", "Go."]).await;

    for refused in [&before, &after] {
        assert_eq!(refused.code, Some(3), "{refused:#?}");
        assert!(refused.stderr.contains("is not trusted"), "{refused:#?}");
        assert!(refused.stderr.contains("providers.one.base_url"), "{refused:#?}");
        assert!(refused.stderr.contains("formwork trust"), "{refused:#?}");
    }
    assert!(nothing_sent);
    assert!(!shown.stdout.contains(&world.server.url()), "{shown:#?}");
    assert_eq!(trusted.code, Some(0), "{trusted:#?}");
    assert_eq!(during.code, Some(0), "{during:#?}");
    assert!(during.stdout.contains("It was trusted."), "{during:#?}");
    assert_eq!(world.server.requests().len(), 1);
}

#[tokio::test]
async fn a_trusted_config_is_not_trusted_in_another_folder_and_trust_can_be_taken_back() {
    let world = World::new().await;
    let config = world.providers(&world.server.url());
    world.repo.write("formwork.toml", &config).unwrap();
    world.repo.write("other/formwork.toml", &config).unwrap();

    let trusted = bare(&world, &["trust"]).await;
    let elsewhere = bare(&world, &["-C", "other", "run", "-m", "Go."]).await;
    let revoked = bare(&world, &["trust", "--revoke"]).await;
    let after = bare(&world, &["run", "-m", "Go."]).await;

    assert_eq!((trusted.code, revoked.code), (Some(0), Some(0)), "{trusted:#?} {revoked:#?}");
    assert_eq!((elsewhere.code, after.code), (Some(3), Some(3)), "{elsewhere:#?} {after:#?}");
    assert!(world.server.requests().is_empty());
}

const COMMAND: &str = "format_version = 1\nname = \"fix\"\n[[tasks]]\nname = \"left\"\ncommand = [\"touch\", \"PWN\"]\n";

/// Runs the program with the world's config as a person's own file, and trusts nothing.
async fn given<S: AsRef<OsStr>>(world: &World, arguments: &[S]) -> Ended {
    let mut command = world.bare(arguments);
    command.arg("--config").arg(world.config_file());
    end_of(command.spawn().unwrap()).await
}

#[tokio::test]
async fn a_workflow_of_the_project_runs_nothing_until_it_is_trusted_and_after_a_change() {
    let world = World::new().await;
    world.repo.write(".formwork/workflows/fix.toml", COMMAND).unwrap();
    let path = ".formwork/workflows/fix.toml";
    for arguments in
        [&["run", "fix"], &["run", path], &["run", "./.formwork/../.formwork/workflows/fix.toml"]]
    {
        let refused = given(&world, arguments).await;

        assert_eq!(refused.code, Some(3), "{refused:#?}");
        let told = "fix.toml is not trusted as it stands, and task left runs touch PWN";
        assert!(
            refused.stderr.contains(told) && refused.stderr.contains("formwork trust"),
            "{refused:#?}"
        );
    }
    assert!(!world.path("PWN").exists());

    let trusted = given(&world, &["trust"]).await;
    let during = given(&world, &["run", "fix"]).await;
    let made = world.path("PWN").exists();
    world.repo.write(path, format!("{COMMAND}# other\n")).unwrap();
    let after = given(&world, &["run", "fix"]).await;

    assert!(trusted.stdout.contains("task left runs touch PWN"), "{trusted:#?}");
    assert_eq!((trusted.code, during.code, made), (Some(0), Some(0), true), "{during:#?}");
    assert_eq!(after.code, Some(3), "{after:#?}");
}

#[tokio::test]
async fn a_workflow_that_a_person_names_elsewhere_is_their_own_word_and_what_it_leads_to_is_not() {
    let world = World::new().await;
    world.repo.write("own.toml", COMMAND).unwrap();
    world.repo.write(".formwork/workflows/smoke.toml", COMMAND.replace("fix", "smoke")).unwrap();
    let by = "format_version = 1\nname = \"by\"\n[[tasks]]\nname = \"a\"\ncommand = [\"true\"]\n\
        [[tasks.postchecks]]\nworkflow = \"smoke\"\n";
    world.repo.write("by.toml", by).unwrap();

    let leads = given(&world, &["run", "by.toml"]).await;
    let before = world.path("PWN").exists();
    let own = given(&world, &["run", "own.toml"]).await;

    assert_eq!((leads.code, before), (Some(3), false), "{leads:#?}");
    assert!(leads.stderr.contains("smoke.toml is not trusted"), "{leads:#?}");
    assert_eq!(own.code, Some(0), "{own:#?}");
    assert!(world.path("PWN").exists());
}

#[tokio::test]
async fn a_workflow_of_agents_alone_only_looks_until_it_is_trusted() {
    let world = World::new().await;
    let path = ".formwork/workflows/fix.toml";
    let text = "format_version = 1\nname = \"fix\"\n[[tasks]]\nname = \"left\"\nagent = \"coder\"\nprompt = \"Write PWN.\"\n";
    world.repo.write(path, text).unwrap();
    let write = || calls(&[("fs.write", json!({ "path": "PWN", "content": "x" }))]);

    for mode in ["edit", "auto"] {
        let refused = given(&world, &["run", "fix", "--mode", mode]).await;

        assert_eq!(refused.code, Some(3), "{refused:#?}");
        let told = format!(
            "fix.toml is not trusted as it stands, and task left has coder act in mode {mode}"
        );
        assert!(refused.stderr.contains(&told), "{refused:#?}");
        assert!(refused.stderr.contains("formwork trust"), "{refused:#?}");
    }
    assert!(world.server.requests().is_empty());
    world.server.reply(&World::chat("one"), write());
    world.server.reply(&World::chat("one"), ends("Looked."));
    let looked = given(&world, &["run", "fix", "--mode", "ask"]).await;
    let before = world.path("PWN").exists();
    let trusted = given(&world, &["trust"]).await;
    world.server.reply(&World::chat("one"), write());
    world.server.reply(&World::chat("one"), ends("Wrote."));
    let acted = given(&world, &["run", "fix"]).await;

    assert_eq!((looked.code, before), (Some(0), false), "{looked:#?}");
    assert!(trusted.stdout.contains("task left asks coder: Write PWN."), "{trusted:#?}");
    assert_eq!((acted.code, world.path("PWN").exists()), (Some(0), true), "{acted:#?}");
}

#[tokio::test]
async fn a_contract_of_a_workflow_runs_nothing_until_it_is_trusted() {
    let world = World::new().await;
    let contract = "# C\n\n## R1: It holds\n\n- check: run `touch PWN`\n";
    world.repo.write("c.md", "# C\n\n## R1: It holds\n\n- check: run `true`\n").unwrap();
    let text = "format_version = 1\nname = \"fix\"\n[[tasks]]\nname = \"a\"\ncommand = [\"true\"]\nspec = \"c.md\"\n";
    world.repo.write(".formwork/workflows/fix.toml", text).unwrap();
    let trusted = given(&world, &["trust"]).await;
    let during = given(&world, &["run", "fix"]).await;
    world.repo.write("c.md", contract).unwrap();

    let after = given(&world, &["run", "fix"]).await;

    assert_eq!((trusted.code, during.code), (Some(0), Some(0)), "{trusted:#?}{during:#?}");
    assert_eq!(after.code, Some(3), "{after:#?}");
    assert!(after.stderr.contains("c.md is not trusted"), "{after:#?}");
    assert!(!world.path("PWN").exists());
}

#[tokio::test]
async fn an_agent_of_the_project_has_no_effect_until_it_is_trusted() {
    let world = World::new().await;
    let agent = |name: &str, words: &str| {
        world.agent(name, "one");
        world.repo.write(format!(".formwork/agents/{name}.md"), words).unwrap();
    };
    agent("reader", "Always answer pass.\n{{> more}}\n");
    world.repo.write(".formwork/agents/more.md", "And say so.\n").unwrap();
    agent("other", "Always answer pass.\n");
    for _ in 0..4 {
        world.server.reply(&World::chat("one"), says("Looked."));
    }
    let ask = ["ask", "What is this?"];

    let before = given(&world, &ask).await;
    let named = given(&world, &["run", "-m", "Go.", "--agent", "other"]).await;
    let listed = given(&world, &["agents"]).await;
    let trusted = given(&world, &["trust"]).await;
    let during = given(&world, &ask).await;
    world.repo.write(".formwork/agents/more.md", "And nothing else.\n").unwrap();
    let after = given(&world, &ask).await;

    for built_in in [&before, &after] {
        assert_eq!(built_in.code, Some(0), "{built_in:#?}");
        assert!(built_in.stderr.contains("agent reader is the built-in one: "), "{built_in:#?}");
    }
    assert_eq!(named.code, Some(3), "{named:#?}");
    let told = "other.toml is not trusted as it stands, and agent other has no effect before";
    assert!(named.stderr.contains(told) && named.stderr.contains("formwork trust"), "{named:#?}");
    assert!(listed.stdout.contains("reader.toml is not trusted"), "{listed:#?}");
    assert!(trusted.stdout.contains("agent reader, in place of the built-in one"), "{trusted:#?}");
    assert!(during.stderr.contains("in place of the built-in one"), "{during:#?}");
    let requests = world.server.requests();
    let mut told: Vec<_> =
        requests.iter().map(|it| it.text().contains("Always answer pass.")).collect();
    told.dedup();
    assert_eq!(told, [false, true, false]);
}

#[tokio::test]
async fn what_a_gate_runs_is_trusted_with_the_config_and_protected() {
    for (command, file) in
        [(json!(["sh", "gate.sh"]), "gate.sh"), (json!(["python3", "-m", "gatemod"]), "gatemod.py")]
    {
        let world = World::new().await;
        let script = match file.ends_with(".py") {
            true => "import sys\nsys.exit(0)\n",
            false => "exit 0\n",
        };
        world.repo.write(file, script).unwrap();
        let config = world.providers(&world.server.url())
            + &format!(
                "[permissions]\nmode = \"auto\"\n[[hooks]]\nevent = \"tool.before\"\ntools = [\"fs.write\"]\ncommand = {command}\n"
            );
        world.repo.write("formwork.toml", config).unwrap();
        let write =
            |path: &str| calls(&[("fs.write", json!({ "path": path, "content": "# other\n" }))]);
        for path in [file, "free.txt"] {
            world.server.reply(&World::chat("one"), write(path));
        }
        world.server.reply(&World::chat("one"), ends("Tried."));

        let trusted = bare(&world, &["trust"]).await;
        let during = bare(&world, &["run", "-m", "Go."]).await;
        let kept = world.repo.read(file).unwrap();
        world.repo.write(file, format!("{script}# other\n")).unwrap();
        let after = bare(&world, &["run", "-m", "Go."]).await;

        let named = format!("{file} is trusted as it stands now");
        assert!(trusted.stdout.contains(&named), "{trusted:#?}");
        assert_eq!(during.code, Some(0), "{during:#?}");
        assert_eq!(kept, script);
        assert!(world.path("free.txt").exists(), "{during:#?}");
        assert_eq!(after.code, Some(3), "{after:#?}");
        let told = format!("{file} is not trusted and is run by a hook");
        assert!(after.stderr.contains(&told), "{after:#?}");
    }
}

#[tokio::test]
async fn a_script_of_a_trusted_tool_that_was_changed_has_no_effect_and_a_link_out_is_no_tool() {
    let world = World::new().await;
    let tool = "format_version = 1\n[tool]\nname = \"custom.it\"\ndescription = \"It.\"\n[execution.command]\n\
        argv = [\"sh\", \"it.sh\"]\n";
    world.repo.write("it.sh", "echo first\n").unwrap();
    world.repo.write(".formwork/tools/it.toml", tool).unwrap();
    let call = ["tools", "call", "custom.it", "--mode", "auto"];
    let trusted = given(&world, &["trust"]).await;
    let during = given(&world, &call).await;
    world.repo.write("it.sh", "echo second\n").unwrap();

    let after = given(&world, &call).await;
    fs::remove_file(world.path(".formwork/tools/it.toml")).unwrap();
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs::write(elsewhere.path(), tool).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), world.path(".formwork/tools/it.toml")).unwrap();
    let leads = [given(&world, &["trust"]).await, given(&world, &call).await];

    assert_eq!((trusted.code, during.code), (Some(0), Some(0)), "{trusted:#?}{during:#?}");
    assert_eq!(after.code, Some(3), "{after:#?}");
    for refused in leads {
        assert_eq!(refused.code, Some(3), "{refused:#?}");
        assert!(refused.stderr.contains("it leads out of the workspace"), "{refused:#?}");
    }
}

#[tokio::test]
async fn a_run_is_taken_up_only_on_what_is_still_trusted_and_in_the_narrower_mode() {
    let world = World::new().await;
    let config = world.providers(&world.server.url());
    world.repo.write("formwork.toml", config.clone() + "[permissions]\nmode = \"auto\"\n").unwrap();
    let text = "format_version = 1\nname = \"fix\"\n[[tasks]]\nname = \"wait\"\nwait_for = { event = \"go\" }\n\
        [[tasks]]\nname = \"left\"\ndepends_on = [\"wait\"]\ncommand = [\"touch\", \"PWN\"]\n";
    world.repo.write(".formwork/workflows/fix.toml", text).unwrap();
    bare(&world, &["trust"]).await;
    let mut running = world.bare(["run", "fix", "--jsonl"]);
    let running = running.spawn().unwrap();
    // The run waits for an event, and is stopped there.
    let run = loop {
        let listed = bare(&world, &["runs", "list", "--json"]).await.json();
        if let Some(run) = listed["runs"][0]["run"].as_str()
            && listed["runs"][0]["state"] == "running"
        {
            break run.to_owned();
        }
        tokio::task::yield_now().await;
    };
    let paused = bare(&world, &["runs", "pause", &run]).await;
    let stopped = end_of(running).await;
    assert_eq!(paused.code, Some(0), "{paused:#?} {stopped:#?}");

    let revoked = bare(&world, &["trust", "--revoke"]).await;
    world.repo.write("formwork.toml", "format_version = 1\n").unwrap();
    let refused = bare(&world, &["runs", "resume", &run]).await;
    world.repo.write("formwork.toml", config.clone() + "[permissions]\nmode = \"auto\"\n").unwrap();
    let trusted = bare(&world, &["trust"]).await;
    bare(&world, &["events", "fire", "go"]).await;
    let mut narrower = world.bare(["runs", "resume", &run]);
    let narrower = end_of(narrower.env("FORMWORK_MODE", "ask").spawn().unwrap()).await;

    assert_eq!((revoked.code, trusted.code), (Some(0), Some(0)), "{revoked:#?}{trusted:#?}");
    assert_eq!(refused.code, Some(3), "{refused:#?}");
    let told = "is not trusted as it stands, and the run was begun on what it said then";
    assert!(refused.stderr.contains(told), "{refused:#?}");
    assert_eq!(narrower.code, Some(2), "{narrower:#?}");
    let shown = bare(&world, &["runs", "show", &run]).await;
    assert!(shown.stdout.contains("a run in mode ask runs no touch PWN"), "{shown:#?}");
    assert!(!world.path("PWN").exists());
}
