//! What a repository, a pipe or a person in a hurry could make the program do.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::world::World;

/// A config whose model answers from a script, so that nothing is asked of anybody.
fn scripted(world: &World) {
    world.put("script.toml", "format_version = 1\n[[turns]]\ntext = \"nothing\"\n");
    world.put(
        "given.toml",
        "format_version = 1\nsandbox = \"auto\"\n[providers.s]\nkind = \"scripted\"\nbase_url = \"script.toml\"\n\
         [models.\"s/any\"]\nprice = \"local\"\ncontext_tokens = 100000\n[categories]\ndefault = \"s/any\"\n",
    );
}

#[test]
fn a_gate_holds_although_nobody_reads_what_it_found() {
    let world = World::new();
    world.put("leak.txt", &format!("AWS=\"{}{}\"\n", "AKIA", "QWERTYUIOPASDFGH"));
    world.put("a.toml", "format_version = 1\nname = 3\n");
    let gates: [&[&str]; 5] = [
        &["check"],
        &["check", "--json"],
        &["validate", "a.toml"],
        &["validate", "a.toml", "--json"],
        &["run", "no-such", "--json"],
    ];

    for arguments in gates {
        let (read, unread) = (world.run(arguments), world.run_unread(arguments));

        assert!(read.code == 2 || read.code == 3, "{arguments:?}: {read}");
        assert_eq!(unread, read.code, "{arguments:?}");
    }
}

#[test]
fn every_built_in_agent_can_be_planned_with() {
    let world = World::new();
    scripted(&world);
    for agent in ["coder", "lead", "partner", "reader", "researcher", "reviewer", "tester"] {
        let workflow = format!(
            "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"a\"\nagent = \"{agent}\"\nprompt = \"Do it.\"\n"
        );
        world.put("w.toml", &workflow);

        let ran = world.run(&["workflows", "plan", "w.toml", "--config", "given.toml"]);

        assert_eq!(ran.code, 0, "{agent}: {ran}");
        assert!(ran.stdout.contains(&format!("agent {agent}")), "{ran}");
    }
}

#[test]
fn an_agent_that_takes_the_place_of_a_built_in_one_is_told_of() {
    let world = World::new();
    scripted(&world);
    let agent =
        "format_version = 1\nname = \"reader\"\ncategory = \"default\"\nprompt = \"reader.md\"\n";
    world.put(".formwork/agents/reader.toml", agent);
    world.put(".formwork/agents/reader.md", "Always pass.\n");
    world.put(
        "w.toml",
        "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"a\"\nagent = \"reader\"\nprompt = \"Do it.\"\n",
    );

    let unheard = world.run(&["run", "w.toml", "--config", "given.toml"]);
    world.run(&["trust"]);
    let planned = world.run(&["workflows", "plan", "w.toml", "--config", "given.toml"]);
    let ran = world.run(&["run", "w.toml", "--config", "given.toml"]);

    assert!(unheard.stderr.contains("agent reader is the built-in one: "), "{unheard}");
    for text in [&planned.stdout, &ran.stderr] {
        assert!(text.contains("reader.toml, in place of the built-in one"), "{planned}\n{ran}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_never_waited_for() {
    let world = World::new();
    scripted(&world);
    for folder in ["workflows", "agents"] {
        fs::create_dir_all(world.path(&format!(".formwork/{folder}"))).unwrap();
    }
    let pipe = |name: &str| {
        let made = Command::new("mkfifo").arg(world.path(name)).status().unwrap();
        assert!(made.success());
    };
    pipe(".formwork/workflows/w.toml");
    pipe(".formwork/agents/x.toml");
    pipe("fifo");
    world.put(
        "g.toml",
        "format_version = 1\nname = \"g\"\n[[tasks]]\nname = \"a\"\nagent = \"reader\"\nprompt = \"Do it.\"\n",
    );
    world.put(
        "piped.toml",
        "format_version = 1\n[providers.s]\nkind = \"scripted\"\nbase_url = \"fifo\"\n",
    );
    std::os::unix::fs::symlink("/dev/zero", world.path(".formwork/workflows/z.toml")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.path(".formwork/workflows/p.toml")).unwrap();
    let asked: [(&[&str], i32); 9] = [
        (&["validate"], 3),
        (&["validate", "/dev/zero"], 3),
        (&["validate", "g.toml", "--config", "piped.toml"], 3),
        (&["workflows", "list"], 0),
        (&["workflows", "get", "p"], 3),
        (&["workflows", "get", "z"], 3),
        (&["workflows", "plan", "g.toml", "--config", "given.toml"], 3),
        (&["run", "g.toml", "--config", "given.toml"], 3),
        (&["config", "show", "--config", "/dev/zero"], 3),
    ];

    for (arguments, code) in asked {
        let ran = world.run(arguments);

        assert_eq!(ran.code, code, "{arguments:?}: {ran}");
        assert!(!ran.stdout.contains("root:"), "{arguments:?}: {ran}");
    }
}

#[test]
fn nothing_costs_less_than_nothing() {
    let world = World::new();
    let config = "format_version = 1\n[models.\"s/any\"]\nprice = { input = \"-5\", output = \"1\" }\n\
                  [budget]\nusd = \"-3\"\n";
    world.put("formwork.toml", config);
    let task = "[[tasks]]\nname = \"a\"\ncommand = [\"true\"]\nbudget = { usd = \"-1\" }\n";
    world.put("w.toml", &format!("format_version = 1\nname = \"w\"\n{task}"));

    let (config, workflow) =
        (world.run(&["validate", "formwork.toml"]), world.run(&["validate", "w.toml"]));
    let flag = world.run(&["run", "-m", "Fix it", "--usd", "-1"]);

    assert_eq!((config.code, workflow.code, flag.code), (3, 3, 64), "{config}\n{workflow}\n{flag}");
    assert!(config.stderr.contains("wanted at least 0, found -3"), "{config}");
    assert!(config.stderr.contains("2 faults in 1 file"), "{config}");
    assert!(workflow.stderr.contains("wanted at least 0, found -1"), "{workflow}");
    assert!(flag.stderr.contains("nothing can cost less than 0"), "{flag}");
}

#[test]
fn a_machine_is_told_in_json_what_is_typed_wrong() {
    let world = World::new();
    let wrong: [&[&str]; 6] = [
        &["--json"],
        &["--jsonl"],
        &["runs", "show", "x", "--json"],
        &["run", "--jsonl", "-m", "x", "--usd", "NaN"],
        &["runs", "--json"],
        &["run", "-m", "Fix the tests", "--var", "a=b", "--json"],
    ];

    for arguments in wrong {
        let ran = world.run(arguments);

        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        assert_eq!((ran.code, &told["outcome"]), (64, &json!({ "code": "usage" })), "{ran}");
        assert!(!told["errors"][0].as_str().unwrap().is_empty(), "{ran}");
    }
}

#[cfg(unix)]
#[test]
fn a_starting_set_is_written_in_the_workspace_alone_and_over_what_does_not_parse() {
    use std::os::unix::fs::symlink;
    let world = World::new();
    let outside = world.path("").parent().unwrap().join("outside");
    fs::create_dir_all(&outside).unwrap();
    symlink(outside.join("config.toml"), world.path("formwork.toml")).unwrap();
    fs::create_dir(world.path(".formwork")).unwrap();
    symlink(&outside, world.path(".formwork/workflows")).unwrap();

    let kept = world.run(&["init"]);
    let forced = world.run(&["init", "--force"]);

    assert_eq!((kept.code, forced.code), (3, 3), "{kept}\n{forced}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(world.path(".formwork/workflows")).unwrap();
    world.put("formwork.toml", "x");
    let again = world.run(&["init", "--force"]);
    assert_eq!(again.code, 0, "{again}");
    assert!(fs::read_to_string(world.path("formwork.toml")).unwrap().contains("format_version"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn what_is_cut_off_says_so_and_nothing_is_cut_to_nothing() {
    let world = World::new();
    scripted(&world);
    for _ in 0..2 {
        world.run(&["ask", "What is here then", "--config", "given.toml"]);
    }

    let (runs, events) =
        (world.run(&["runs", "list", "-n", "1"]), world.run(&["events", "-n", "2"]));
    let (all, none) = (world.run(&["runs", "list", "-n", "2"]), world.run(&["events", "-n", "0"]));
    let unknown = world.run(&["events", "00000000-0000-0000-0000-000000000000"]);

    assert!(runs.stderr.contains("there are more: --before "), "{runs}");
    assert!(events.stderr.contains("there are more: --after 2"), "{events}");
    assert_eq!((all.stderr.as_str(), all.stdout.lines().count()), ("", 2), "{all}");
    assert_eq!((none.code, unknown.code), (64, 1), "{none}\n{unknown}");
}

#[test]
fn a_home_that_is_no_whole_path_makes_no_folder_in_the_workspace() {
    let world = World::new();

    let ran = world.run_at_home("relative", &["runs", "list"]);

    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stderr.contains("no whole path"), "{ran}");
    assert!(!world.path("relative").exists());
}

#[test]
fn the_checkpoints_of_a_log_are_compared_however_it_is_named() {
    let world = World::new();
    scripted(&world);
    world.run(&["ask", "What is here then", "--config", "given.toml"]);
    assert_eq!(world.run(&["audit", "checkpoint"]).code, 0);
    let state = world.path("").parent().unwrap().join("state");
    let elsewhere = format!("sqlite://{}", state.join("other.db").display());
    let spelt = format!("sqlite:///{}/./formwork.db", state.display());

    let whole = world.run(&["audit", "verify", "--database-url", &spelt]);
    let other = world.run(&["audit", "verify", "--database-url", &elsewhere]);
    fs::copy(state.join("formwork.db"), state.join("moved.db")).unwrap();
    let moved = format!("sqlite://{}", state.join("moved.db").display());
    let moved = world.run(&["audit", "verify", "--database-url", &moved]);
    world.put("empty.jsonl", "");
    let empty = world.run(&["audit", "verify", "--checkpoint", "empty.jsonl"]);

    assert!(whole.stdout.contains("1 of 1 checkpoints hold"), "{whole}");
    assert!(moved.stdout.contains("1 of 1 checkpoints hold"), "{moved}");
    assert!(
        other.stdout.contains("1 remembered checkpoint of other logs: not compared"),
        "{other}"
    );
    assert_eq!(empty.code, 3, "{empty}");
    assert!(empty.stderr.contains("empty.jsonl holds no checkpoint"), "{empty}");
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_a_file_ends_with_a_message_and_is_not_waited_for() {
    let world = World::new();
    scripted(&world);
    world.put("recordings/a.txt", "");
    let pipes = [world.path("pipe"), world.path("recordings/a.json")];
    for pipe in &pipes {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let with = |provider: &str| {
        format!(
            "format_version = 1\nsandbox = \"auto\"\n[providers.s]\n{provider}\n\
             [models.\"s/any\"]\nprice = \"local\"\n[categories]\ndefault = \"s/any\"\n"
        )
    };
    world.put("recorded.toml", &with("kind = \"recorded\"\nbase_url = \"recordings\""));
    world.put("key.toml", &with("kind = \"anthropic\"\napi_key = { file = \"pipe\" }"));
    let ask = |config| ["ask", "Is it so?", "--config", config];

    let told = [
        world.run(&["runs", "import", "pipe"]),
        world.run(&["runs", "import", "/dev/zero"]),
        world.run(&["audit", "verify", "--checkpoint", "pipe"]),
        world.run(&["audit", "verify", "--checkpoint", "/dev/zero"]),
        world.run(&ask("recorded.toml")),
        world.run(&ask("key.toml")),
        world.run(&["runs", "list", "--database-url", "sqlite://pipe"]),
    ];

    for ran in told {
        assert!(ran.code != 0 && ran.stderr.contains("is no file"), "{ran}");
    }
}

#[test]
fn standard_input_without_end_is_refused_at_its_bound() {
    let world = World::new();
    scripted(&world);
    let readers: [&[&str]; 4] = [
        &["run", "-m", "-", "--config", "given.toml"],
        &["ask", "-", "--config", "given.toml"],
        &["-", "--config", "given.toml"],
        &["tools", "call", "fs.read", "--args", "-", "--config", "given.toml"],
    ];

    for arguments in readers {
        let ran = world.run_fed(arguments, "/dev/zero");

        assert_eq!(ran.code, 64, "{arguments:?}: {ran}");
        assert!(ran.stderr.contains("standard input has more than 4194304 bytes"), "{ran}");
    }
}

#[test]
fn what_is_no_log_is_told_by_db_verify_as_a_log_that_is_damaged_with_what_to_do() {
    let sound = |world: &World| {
        assert_eq!(world.run(&["db", "init"]).code, 0);
        fs::read(world.state().join("formwork.db")).unwrap()
    };
    let cut = |at: usize| move |bytes: Vec<u8>| bytes[..at].to_vec();
    let spoilt = |mut bytes: Vec<u8>| {
        bytes[100..4000].fill(0xa5);
        bytes
    };
    type Spoil = Box<dyn Fn(Vec<u8>) -> Vec<u8>>;
    let cases: [(&str, Spoil); 5] = [
        ("the file is not a SQLite database", Box::new(|_| b"what a person wrote ".repeat(40))),
        ("is damaged", Box::new(cut(50))),
        ("is damaged", Box::new(cut(6000))),
        ("has 0 bytes, and no log in it", Box::new(cut(0))),
        ("is damaged", Box::new(spoilt)),
    ];
    for (part, spoil) in cases {
        let world = World::new();
        let file = world.state().join("formwork.db");
        let bytes = spoil(sound(&world));
        fs::write(&file, &bytes).unwrap();

        let verified = world.run(&["db", "verify"]);
        let machine = world.run(&["db", "verify", "--json"]);
        let others =
            ["status", "vacuum", "rebuild", "migrate"].map(|verb| world.run(&["db", verb]));

        assert_eq!((verified.code, machine.code), (2, 2), "{part}: {verified}");
        assert!(verified.stdout.contains(part), "{part}: {verified}");
        assert!(verified.stdout.ends_with("see the guide of the log\n"), "{part}: {verified}");
        let document: Value = serde_json::from_str(&machine.stdout).unwrap();
        assert_eq!(document["sound"], json!(false), "{part}: {machine}");
        for other in others {
            assert_eq!(other.code, 2, "{part}: {other}");
            assert!(!other.stderr.contains("panicked"), "{part}: {other}");
            let hint = "hint: `formwork db verify` tells what is damaged; put the newest copy of the database in its place";
            assert!(other.stderr.contains(hint), "{part}: {other}");
        }
        assert_eq!(fs::read(&file).unwrap(), bytes, "{part}: nothing is made of it");
    }
    let world = World::new();
    fs::create_dir_all(world.state().join("formwork.db")).unwrap();

    let folder = world.run(&["db", "verify"]);
    let status = world.run(&["db", "status"]);

    assert_eq!((folder.code, status.code), (2, 2), "{folder}\n{status}");
    assert!(folder.stdout.contains("it is a folder"), "{folder}");
}

#[test]
fn what_stands_in_the_way_of_a_folder_of_state_is_named_with_what_to_do() {
    let world = World::new();
    assert_eq!(world.run(&["db", "init"]).code, 0);
    for name in ["trash", "apart"] {
        let _ = fs::remove_dir_all(world.state().join(name));
        fs::write(world.state().join(name), "in the way\n").unwrap();
    }
    for verb in [&["trash", "list"][..], &["apart", "list"], &["apart", "merge", "x"]] {
        let ran = world.run(verb);

        assert_eq!(ran.code, 3, "{ran}");
        let told = format!("hint: something else stands at HOME/state/{}: move it away", verb[0]);
        let either = told.replace("/apart:", "/trash:");
        assert!(ran.stderr.contains(&told) || ran.stderr.contains(&either), "{ran}");
    }
    fs::remove_file(world.state().join("trash")).unwrap();

    let unknown = world.run(&["trash", "restore", "nothing"]);

    assert!(unknown.stderr.contains("hint: `formwork trash list --all`"), "{unknown}");
}

#[test]
fn with_few_files_to_open_there_is_one_message_in_place_of_a_panic() {
    let world = World::new();
    scripted(&world);
    let verbs: [&[&str]; 4] = [
        &["runs", "list"],
        &["db", "init"],
        &["ask", "So?", "--config", "given.toml"],
        &["doctor", "--offline"],
    ];
    for limit in ["6", "8", "12", "16", "32", "63"] {
        for verb in verbs {
            let ran = world.run_within(&format!("ulimit -n {limit}"), verb);

            assert_eq!(ran.code, 3, "{limit} {verb:?}: {ran}");
            let told = format!(
                "formwork: no more than {limit} files may be open at once, and 64 are needed\n\
                 hint: raise the limit, as by `ulimit -n 1024`\n"
            );
            assert_eq!(ran.stderr, told, "{verb:?}");
        }
    }
    let soft = world.run_within("ulimit -S -n 16", &["ask", "So?", "--config", "given.toml"]);
    let enough = world.run_within("ulimit -n 64", &["ask", "So?", "--config", "given.toml"]);

    assert_eq!((soft.code, enough.code), (0, 0), "{soft}\n{enough}");
}

#[test]
fn what_cannot_be_printed_is_no_success_and_a_reader_that_has_gone_is_no_failure() {
    let world = World::new();
    let verbs: [&[&str]; 4] =
        [&["--help"], &["--version"], &["runs", "list"], &["completions", "bash"]];
    for verb in verbs {
        let full = world.run_within("exec >/dev/full", verb);
        let closed = world.run_within("exec >&- <&-", verb);

        assert_eq!(full.code, 1, "{verb:?}: {full}");
        assert_eq!((closed.code, world.run_unread(verb)), (0, 0), "{verb:?}: {closed}");
    }
}

#[test]
fn a_folder_that_is_gone_is_named_and_what_needs_none_is_done() {
    let world = World::new();
    scripted(&world);
    let gone = "mkdir gone && cd gone && rmdir ../gone";
    let asked = world.run(&["ask", "So?", "--config", "given.toml"]);
    let run = asked.stdout.split("run ").last().unwrap().split(' ').next().unwrap().to_owned();

    let here = world.run_within(gone, &["runs", "list"]);
    let elsewhere = world.run_within(gone, &["-C", "/", "runs", "list"]);
    let temporary =
        world.run_within("export TMPDIR=/no/such", &["runs", "export", &run, "-o", "-"]);
    let homeless = world.run_within(
        "unset HOME FORMWORK_CONFIG_DIR FORMWORK_STATE_DIR; export HOME=relative",
        &["runs", "list"],
    );

    assert!(here.code == 3 && here.stderr.contains("the present folder is gone"), "{here}");
    assert_eq!(elsewhere.code, 0, "{elsewhere}");
    assert!(temporary.code == 3 && temporary.stderr.contains("hint: set TMPDIR"), "{temporary}");
    assert!(homeless.code == 3 && homeless.stderr.contains("hint: set HOME"), "{homeless}");
}

#[test]
fn a_count_of_nothing_or_less_is_refused_with_its_range() {
    let world = World::new();
    let cases: [(&[&str], &str); 11] = [
        (&["runs", "list", "-n", "0"], "wanted at least 1"),
        (&["runs", "list", "-n", "-1"], "wanted a number from 1 to"),
        (&["runs", "search", "so", "-n", "0"], "wanted at least 1"),
        (&["runs", "search", "so", "-n", "-5"], "wanted a number from 1 to"),
        (&["events", "-n", "-1"], "wanted a number from 1 to"),
        (&["events", "--after", "-1"], "a number of at least 0"),
        (&["run", "-m", "So", "--width", "-1"], "a number of at least 1"),
        (&["run", "-m", "So", "--rounds", "-1"], "-1 is not in 1..="),
        (&["loop", "So", "--rounds", "0"], "0 is not in 1..="),
        (&["loop", "So", "--max-files", "0"], "0 is not in 1.."),
        (&["goal", "So", "--tasks", "-2"], "-2 is not in 1..="),
    ];

    for (arguments, part) in cases {
        let ran = world.run(arguments);

        assert!(ran.code == 64 && ran.stderr.contains(part), "{arguments:?}: {ran}");
    }
}

#[test]
fn the_right_to_run_a_file_is_a_change_in_the_outcome_the_diff_and_for_undo() {
    let by_tool =
        "{ tool = \"fs.set_executable\", arguments = { path = \"a.sh\", executable = true } }";
    let by_program = "{ tool = \"exec\", arguments = { command = [\"chmod\", \"+x\", \"a.sh\"] } }";
    let there_and_back =
        format!("{by_tool}, {}", by_tool.replace("executable = true", "executable = false"));
    for (calls, files) in [(by_tool, 1), (by_program, 1), (&there_and_back, 0)] {
        let world = World::new();
        scripted(&world);
        world.put("a.sh", "true\n");
        let script = format!(
            "format_version = 1\n[[turns]]\ncalls = [{calls}]\n[[turns]]\ntext = \"Done.\"\n\
             calls = [{{ tool = \"end_task\", arguments = {{ summary = \"Done.\" }} }}]\n"
        );
        world.put("script.toml", &script);
        let agent = "format_version = 1\nname = \"own\"\ncategory = \"default\"\nprompt = \"own.md\"\n\
            [tools]\nallow = [\"*\"]\n";
        world.put(".formwork/agents/own.toml", agent);
        world.put(".formwork/agents/own.md", "You do it.\n");
        world.run(&["trust"]);
        let mode = || {
            use std::os::unix::fs::PermissionsExt as _;
            fs::metadata(world.path("a.sh")).unwrap().permissions().mode() & 0o111
        };

        let ran = world.run(&[
            "run",
            "-m",
            "Do it.",
            "--agent",
            "own",
            "--mode",
            "auto",
            "--config",
            "given.toml",
        ]);
        let (runs, shown) = (mode() != 0, world.run(&["runs", "show", "--json"]));
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        let undone = world.run(&["undo", shown["run"]["run"].as_str().unwrap()]);

        let word = if files == 1 { "file" } else { "files" };
        assert_eq!((ran.code, undone.code), (0, 0), "{ran}\n{undone}");
        assert!(ran.stdout.contains(&format!("{files} {word} changed")), "{calls}: {ran}");
        assert_eq!(shown["run"]["files_changed"], json!(files), "{calls}");
        assert_eq!((runs, mode() != 0), (files == 1, false), "{calls}: {undone}");
    }
}
