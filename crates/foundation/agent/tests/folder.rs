//! Agents from a folder of files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use formwork_agent::{Agents, Checks, ModelChoice, Source};
use formwork_protocols::document::Diagnostics;
use serde_json::Map;
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn load(folder: &TempDir) -> Result<Agents, Diagnostics> {
    Agents::load(folder.path(), &Checks { tools: &known_tool, ..Checks::default() })
}

fn known_tool(pattern: &str) -> Result<(), String> {
    match pattern {
        "fs.*" | "git" => Ok(()),
        _ => Err(format!("no tool answers to {pattern:?}")),
    }
}

/// Returns the faults as a person reads them, without the place of the temporary folder.
fn faults(folder: &TempDir) -> String {
    let place = format!("{}/", folder.path().display());
    load(folder).unwrap_err().to_string().replace(&place, "")
}

fn agent(name: &str, prompt: &str) -> String {
    format!("format_version = 1\nname = '{name}'\ncategory = 'default'\nprompt = '{prompt}'\n")
}

/// The names of the agents that come with the program.
const BUILT_IN: [&str; 8] =
    ["adviser", "coder", "lead", "partner", "reader", "researcher", "reviewer", "tester"];

fn names(agents: &Agents) -> Vec<&str> {
    agents.names().map(|name| name.as_str()).collect()
}

#[test]
fn a_folder_that_does_not_exist_holds_the_built_in_agents() {
    let folder = folder(&[]);

    let agents = Agents::load(&folder.path().join("absent"), &Checks::default()).unwrap();

    assert_eq!(agents, Agents::built_in());
    assert_eq!(names(&agents), BUILT_IN);
}

#[test]
fn an_agent_of_the_project_takes_the_place_of_the_built_in_one() {
    let folder = folder(&[("own.toml", &agent("coder", "own.md")), ("own.md", "Mine.")]);

    let agents = load(&folder).unwrap();

    let coder = agents.get(&"coder".parse().unwrap()).unwrap();
    let file = folder.path().join("own.toml").display().to_string();
    assert_eq!(names(&agents), BUILT_IN);
    assert_eq!(coder.source(), &Source::File(file));
    assert_eq!(coder.prompt(), "Mine.");
}

#[test]
fn a_whole_document_is_read() {
    let text = "format_version = 1\nname = 'writer'\ndescription = 'Writes.'\nmodel = 'local/qwen:7b'\n\
        prompt = 'writer.md'\n[tools]\nallow = ['fs.*', 'git']\n[tools.exec]\nallow = ['cargo test *']\n\
        timeout = '120s'\n[budget]\nusd = '1.50'\n";
    let folder = folder(&[("writer.toml", text), ("writer.md", "\u{feff}You write.\n")]);

    let agents = load(&folder).unwrap();

    let document = agents.get(&"writer".parse().unwrap()).unwrap().document();
    let exec = document.tools.exec.as_ref().unwrap();
    assert_eq!(document.model, ModelChoice::Model("local/qwen:7b".parse().unwrap()));
    assert_eq!(document.tools.allow, ["fs.*", "git"]);
    assert_eq!(exec.allow.as_deref(), Some(["cargo test *".to_owned()].as_slice()));
    assert_eq!(exec.timeout, Some("2m".parse().unwrap()));
    assert_eq!(document.budget.usd, Some("1.5".parse().unwrap()));
    assert_eq!(agents.get(&"writer".parse().unwrap()).unwrap().prompt(), "You write.\n");
}

#[test]
fn behaviour_30_every_fault_of_every_file_is_reported_at_once_with_its_place() {
    let both = "format_version = 1\nname = 'both'\ncategory = 'default'\nmodel = 'local/m'\n\
        prompt = 'absnt.md'\ntemprature = 0.2\n\n[tools]\nallow = ['fs.*', 'shel']\ndeferred = ['git', 'gitt']\n";
    let neither = "format_version = 1\nname = 'Neither'\nprompt = '../secrets.md'\n\
        [tools.exec]\ntimeout = 'soon'\n";
    let folder = folder(&[
        ("a-both.toml", both),
        ("b-neither.toml", neither),
        ("c-first.toml", &agent("same", "good.md")),
        ("d-second.toml", &agent("same", "empty.md")),
        ("e-absolute.toml", &agent("absolute", "/etc/passwd.md")),
        ("f-template.toml", &agent("template", "bad.md")),
        ("g-syntax.toml", &agent("syntax", "broken.md")),
        ("h-circle.toml", &agent("circle", "round.md")),
        ("i-no-choice.toml", "format_version = 1\nname = 'no-choice'\nprompt = 'good.md'\n"),
        ("j-cut.toml", "format_version = 1\nname = \n"),
        ("absent.md", "Here."),
        ("good.md", "Good."),
        ("empty.md", " \n"),
        ("bad.md", "Ümläut {{spec}}\n\nÜ {{> goood}} and {{> broken}}\n{{#with x}}{{/with}}\n"),
        ("broken.md", "Line one.\nLine two {{#if x}}\n"),
        ("round.md", "Go\nÜ {{> about}}\n"),
        ("about.md", "{{> round}}"),
    ]);

    insta::assert_snapshot!(faults(&folder));
}

#[test]
fn a_place_in_a_prompt_is_also_one_of_bytes() {
    let folder = folder(&[("a.toml", &agent("a", "a.md")), ("a.md", "Ü\nÜ {{> gone}} x")]);

    let found = load(&folder).unwrap_err();

    let fault = found.iter().next().unwrap();
    assert_eq!((fault.line, fault.column), (2, 3));
    assert_eq!(fault.text.get(fault.span.clone()), Some("{{> gone}}"));
}

#[test]
fn a_prompt_that_nobody_includes_is_not_judged() {
    let folder = folder(&[
        ("a.toml", &agent("a", "a.md")),
        ("a.md", "Good."),
        ("README.md", "Write prompts with {{#if}"),
        (".hidden.toml", "not TOML"),
    ]);

    assert_eq!(
        names(&load(&folder).unwrap()),
        ["a"].into_iter().chain(BUILT_IN).collect::<Vec<_>>()
    );
}

#[test]
fn a_prompt_may_name_the_variables_that_will_be_supplied_and_no_other() {
    let folder = folder(&[("a.toml", &agent("a", "a.md")), ("a.md", "{{goal}} {{gaol}}")]);
    let checks = Checks { variables: &["goal"], ..Checks::default() };

    let found = Agents::load(folder.path(), &checks).unwrap_err();

    let place = format!("{}/", folder.path().display());
    assert_eq!(
        found.to_string().replace(&place, ""),
        "a.md:1:10: unresolved variable \"gaol\"; nearest is \"goal\""
    );
}

#[test]
fn a_command_pattern_is_checked_at_its_place() {
    let text = format!("{}tools.exec.allow = ['ok', 'bad']\n", agent("a", "a.md"));
    let folder = folder(&[("a.toml", &text), ("a.md", "Good.")]);
    let command = |pattern: &str| if pattern == "ok" { Ok(()) } else { Err("no".to_owned()) };

    let found = Agents::load(folder.path(), &Checks { commands: &command, ..Checks::default() });

    let place = format!("{}/", folder.path().display());
    let found = found.unwrap_err().to_string().replace(&place, "");
    assert_eq!(found, "a.toml:5:27: tools.exec.allow[1]: no");
}

#[test]
fn a_pattern_of_a_host_is_checked_at_its_place() {
    let text = format!("{}tools.exec.hosts = ['ok', 'bad']\n", agent("a", "a.md"));
    let folder = folder(&[("a.toml", &text), ("a.md", "Good.")]);
    let host = |pattern: &str| if pattern == "ok" { Ok(()) } else { Err("no".to_owned()) };

    let found = Agents::load(folder.path(), &Checks { hosts: &host, ..Checks::default() });

    let place = format!("{}/", folder.path().display());
    let found = found.unwrap_err().to_string().replace(&place, "");
    assert_eq!(found, "a.toml:5:27: tools.exec.hosts[1]: no");
}

#[test]
fn the_version_follows_the_prompt_and_what_it_includes_and_nothing_else() {
    let version = |files: &[(&str, &str)]| {
        let document = agent("a", "a.md");
        let files = [&[("a.toml", document.as_str())], files].concat();
        let agents = load(&folder(&files)).unwrap();
        agents.get(&"a".parse().unwrap()).unwrap().version().to_owned()
    };

    let first = version(&[("a.md", "{{> b}}"), ("b.md", "{{> c}}"), ("c.md", "1")]);

    let beside = [("a.md", "{{> b}}"), ("b.md", "{{> c}}"), ("c.md", "1"), ("d.md", "new")];
    assert_eq!(first.len(), 64);
    assert_eq!(first, version(&beside), "a file beside it is no part of it");
    assert_ne!(first, version(&[("a.md", "{{> b}}"), ("b.md", "{{> c}}"), ("c.md", "2")]));
    assert_ne!(first, version(&[("a.md", "{{> b}}!"), ("b.md", "{{> c}}"), ("c.md", "1")]));
}

#[test]
fn an_agent_is_recorded_and_read_back_whole() {
    let folder = folder(&[
        ("a.toml", &agent("a", "a.md")),
        ("a.md", "You are {{who}}. {{> b}}"),
        ("b.md", "Be brief."),
    ]);
    let checks = Checks { variables: &["who"], ..Checks::default() };
    let agents = Agents::load(folder.path(), &checks).unwrap();
    let agent = agents.get(&"a".parse().unwrap()).unwrap();

    let record = serde_json::to_string(agent).unwrap();
    fs::write(folder.path().join("b.md"), "Changed since.").unwrap();
    let read: formwork_agent::Agent = serde_json::from_str(&record).unwrap();

    let variables = Map::from_iter([("who".to_owned(), "a writer".into())]);
    assert_eq!(&read, agent);
    assert!(read.system_prompt(&variables).unwrap().ends_with("You are a writer. Be brief."));
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_refused_and_one_within_is_followed() {
    use std::os::unix::fs::symlink;
    let outside = folder(&[("out.md", "Secret."), ("out.toml", &agent("out", "good.md"))]);
    let folder = folder(&[
        ("a.toml", &agent("a", "out.md")),
        ("b.toml", &agent("b", "within.md")),
        ("c.toml", &agent("c", "includes.md")),
        ("good.md", "Good."),
        ("includes.md", "{{> out}}"),
    ]);
    let link = |target: &Path, name: &str| symlink(target, folder.path().join(name)).unwrap();
    link(&outside.path().join("out.md"), "out.md");
    link(&outside.path().join("out.toml"), "z.toml");
    link(Path::new("good.md"), "within.md");

    assert_eq!(
        faults(&folder),
        "a.toml:4:10: prompt: prompt file \"out.md\" leads out of the folder of the agents\n\
         includes.md:1:1: \"out.md\" leads out of the folder of the agents\n\
         z.toml:1:1: leads out of the folder of the agents"
    );
}

#[test]
fn what_is_no_folder_is_named() {
    let folder = folder(&[("agents", "a file")]);

    let found = Agents::load(&folder.path().join("agents"), &Checks::default()).unwrap_err();

    assert_eq!(found.len(), 1);
    assert!(found.to_string().contains("agents:1:1: cannot be read: "), "{found}");
}

#[test]
fn what_is_no_text_is_named() {
    let folder = folder(&[("a.toml", &agent("a", "a.md")), ("b.toml", &agent("b", "b.md"))]);
    fs::write(folder.path().join("a.md"), b"\xff").unwrap();
    fs::write(folder.path().join("b.md"), "x".repeat(1024 * 1024 + 1)).unwrap();
    fs::create_dir(folder.path().join("c.toml")).unwrap();

    assert_eq!(
        faults(&folder),
        "a.toml:4:10: prompt: prompt file \"a.md\" is not UTF-8\n\
         b.toml:4:10: prompt: prompt file \"b.md\" holds more than 1048576 bytes\n\
         c.toml:1:1: is not a file"
    );
}

#[test]
fn an_include_that_is_too_large_is_at_fault_itself() {
    let folder = folder(&[("a.toml", &agent("a", "a.md")), ("a.md", "{{> large}}")]);
    fs::write(folder.path().join("large.md"), "x".repeat(64 * 1024 + 1)).unwrap();

    assert_eq!(
        faults(&folder),
        "large.md:1:1: template \"large\" has 65537 bytes, at most 65536 are allowed"
    );
}

#[test]
fn a_prompt_that_says_nothing_once_composed_is_empty() {
    let folder = folder(&[("a.toml", &agent("a", "a.md")), ("a.md", "{{! to be written }}\n")]);

    assert_eq!(faults(&folder), "a.md:1:1: the prompt is empty");
}

#[cfg(unix)]
#[test]
fn a_socket_is_not_waited_for() {
    let folder = folder(&[]);
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("a.toml")).unwrap();

    assert_eq!(faults(&folder), "a.toml:1:1: is not a file");
}
