//! What keeps a run from beginning is told beforehand as well: by `validate` where the documents say it, by `doctor` in
//! any case, in the words of the run itself.

use crate::world::World;

const SCRIPT: &str = "format_version = 1\n[[turns]]\ntext = \"It is.\"\n";

/// What is sound of each config here.
const SOUND: &str = "[providers.s]\nkind = \"scripted\"\nbase_url = \"script.toml\"\n[models.\"s/m\"]\nprice = \"local\"\n\
    [categories]\ndefault = \"s/m\"\n";

fn world(first: &str, more: &str) -> World {
    let world = World::new();
    world.put("script.toml", SCRIPT);
    world.put(
        "given.toml",
        &format!("format_version = 1\nsandbox = \"auto\"\n{first}{SOUND}{more}"),
    );
    world
}

const ASK: [&str; 4] = ["ask", "Is it so?", "--config", "given.toml"];
const DOCTOR: [&str; 4] = ["doctor", "--offline", "--config", "given.toml"];

#[test]
fn what_no_run_can_use_is_told_by_validate_by_the_doctor_and_by_the_run_alike() {
    let hook =
        |event: &str| format!("[[hooks]]\nevent = \"{event}\"\ncommand = [\"no-such-gate\"]\n");
    let cases = [
        ("", "[permissions]\nexec = [\"cargo 'test\"]\n", true, "a quote is not closed"),
        (
            "",
            "[permissions.after_outside]\ndeny = [\"nosuch\"]\n",
            true,
            "no tool is named by \"nosuch\"",
        ),
        ("", "[instructions]\nfiles = [\"../x\"]\n", true, "\"../x\", which is no name of a file"),
        ("database_url = \"mysql://h/log\"\n", "", true, "begins with sqlite: or postgres:"),
        ("", "cheap = \"nowhere/m\"\n", true, "no provider \"nowhere\" is configured"),
        (
            "",
            &hook("tool.before"),
            false,
            "a hook at tool.before: program no-such-gate was not found",
        ),
        (
            "",
            "[secrets]\nTOKEN = { env = \"NO_SUCH\" }\n",
            false,
            "the environment variable \"NO_SUCH\"",
        ),
        ("database_url = \"sqlite:///no/such/log.db\"\n", "", false, "there is no folder /no/such"),
    ];
    for (first, more, is_written, part) in cases {
        let world = world(first, more);

        let validated = world.run(&["validate", "given.toml", "--config", "given.toml"]);
        let examined = world.run(&DOCTOR);
        let asked = world.run(&ASK);

        let told = format!("{part}\n{validated}\n{examined}\n{asked}");
        assert_eq!(validated.code, if is_written { 3 } else { 0 }, "{told}");
        assert_eq!(validated.stderr.contains(part), is_written, "{told}");
        assert!(examined.code == 3 && examined.stdout.contains(part), "{told}");
        assert!(asked.code == 3 && asked.stderr.contains(part), "{told}");
    }
}

#[test]
fn where_the_doctor_finds_nothing_a_run_begins_and_an_observer_that_is_not_there_holds_nothing_up()
{
    let world = world("", "[[hooks]]\nevent = \"run.finished\"\ncommand = [\"no-such-watcher\"]\n");

    let examined = world.run(&DOCTOR);
    let asked = world.run(&ASK);

    assert_eq!((examined.code, asked.code), (0, 0), "{examined}\n{asked}");
    assert!(examined.stdout.contains("· hook       "), "{examined}");
    assert!(examined.stdout.contains("program no-such-watcher was not found"), "{examined}");
}

#[test]
fn the_doctor_looks_at_the_agents_and_the_tools_of_the_workspace_as_a_run_of_them_would() {
    let world = world("", "");
    let agent =
        "format_version = 1\nname = \"thinker\"\ncategory = \"deep\"\nprompt = \"thinker.md\"\n";
    world.put(".formwork/agents/thinker.toml", agent);
    world.put(".formwork/agents/thinker.md", "You think.\n");
    let tool = "format_version = 1\n[tool]\nname = \"custom.count\"\ndescription = \"Counts.\"\n\
        [execution.command]\nargv = [\"no-such-counter\"]\n";
    world.put(".formwork/tools/count.toml", tool);

    let untrusted = world.run(&DOCTOR);
    let trusted = world.run(&["trust"]);
    let examined = world.run(&DOCTOR);
    let asked = world.run(&["ask", "Is it so?", "--agent", "thinker", "--config", "given.toml"]);

    let part = "agent thinker asks for the category deep, and no model is mapped to it";
    assert!(untrusted.stdout.contains("custom.count is not trusted"), "{untrusted}");
    assert_eq!((trusted.code, examined.code, asked.code), (0, 3, 3), "{trusted}\n{examined}");
    assert!(examined.stdout.contains(part) && asked.stderr.contains(part), "{examined}\n{asked}");
    let missing = "custom.count: program no-such-counter was not found";
    assert!(examined.stdout.contains(missing), "{examined}");
}

#[test]
fn a_verb_that_reads_makes_nothing_and_reads_what_it_may_not_write() {
    let world = world("", "");
    let reads: [&[&str]; 10] = [
        &["runs", "list"],
        &["runs", "search", "so"],
        &["events"],
        &["audit", "verify"],
        &["spend"],
        &["inbox", "list"],
        &["trash", "list"],
        &["apart", "list"],
        &["agents"],
        &["tools"],
    ];

    let before: Vec<_> = reads.iter().map(|verb| world.run(verb).code).collect();
    let made = world.state().exists();
    let asked = world.run(&ASK);
    world.only_read(true);
    let listed = world.run_by_nobody(&["runs", "list"]);
    let shown = world.run_by_nobody(&["runs", "show"]);
    let verified = world.run_by_nobody(&["db", "verify"]);
    let transcript = world.run_by_nobody(&["runs", "transcript"]);
    let written = world.run_by_nobody(&ASK);
    world.only_read(false);

    assert_eq!(before, [0; 10]);
    assert!(!made && asked.code == 0, "{asked}");
    assert!(listed.code == 0 && listed.stdout.contains("question"), "{listed}");
    assert!(shown.code == 0 && shown.stdout.contains("completed"), "{shown}");
    assert!(verified.code == 0 && verified.stdout.contains("the pages are whole"), "{verified}");
    assert!(transcript.code == 0 && transcript.stdout.contains("It is."), "{transcript}");
    assert!(written.code == 3 && written.stderr.contains("read-only"), "{written}");
}
