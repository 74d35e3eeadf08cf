//! What a machine reads: one form for every verb.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _};
use formwork_cli::args::Cli;
use serde_json::{Value, json};

use crate::world::{Ran, World};

/// Those that print something else than what they have to say: bytes as they are, a script, and a protocol.
const BARE: [&str; 3] = ["blob", "completions", "mcp"];

/// A workspace with one of everything that can be listed, shown or taken back, and the run that made it.
fn lived_in() -> (World, String) {
    let world = World::new();
    world.put(
        "script.toml",
        "format_version = 1\n[[turns]]\ntext = \"Looked.\"\n\
         calls = [{ tool = \"end_task\", arguments = { summary = \"It is there.\" } }]\n",
    );
    world.put(
        "given.toml",
        "format_version = 1\nsandbox = \"auto\"\n[providers.s]\nkind = \"scripted\"\nbase_url = \"script.toml\"\n\
         [models.\"s/any\"]\nprice = \"local\"\ncontext_tokens = 100000\n[categories]\ndefault = \"s/any\"\n",
    );
    world.put(
        ".formwork/workflows/work.toml",
        "format_version = 1\nname = \"work\"\n[[tasks]]\nname = \"a\"\nagent = \"coder\"\nprompt = \"Look.\"\n",
    );
    let ran = world.run(&["run", "work", "--mode", "ask", "--config", "given.toml", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    let run = document(&ran)["outcome"]["run"].as_str().unwrap().to_owned();
    (world, run)
}

/// Reads the one document that was printed.
fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"))
}

/// Collects the verbs that do something, each with the words that lead there.
fn verbs(command: &Command, way: &str, found: &mut BTreeSet<String>) {
    for verb in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let way = format!("{way} {}", verb.get_name()).trim().to_owned();
        if !verb.is_subcommand_required_set() {
            found.insert(way.clone());
        }
        verbs(verb, &way, found);
    }
}

/// Returns what each verb is given, in an order in which none takes away what a later one needs.
fn asked(run: &str) -> Vec<(&'static str, Vec<&str>)> {
    vec![
        ("init", vec![]),
        ("run", vec!["-m", "Look.", "--mode", "ask"]),
        ("ask", vec!["So?"]),
        ("edit", vec!["Look."]),
        ("loop", vec!["Look.", "--test", "true", "--rounds", "1", "--mode", "edit"]),
        ("goal", vec!["Look.", "--test", "true", "--mode", "edit"]),
        ("review", vec![]),
        ("chat", vec![]),
        ("demo", vec!["--scripted"]),
        ("runs list", vec![]),
        ("runs show", vec![run]),
        ("runs search", vec!["nothing"]),
        ("runs transcript", vec![run]),
        ("runs steer", vec![run, "Go on."]),
        ("runs pause", vec![run]),
        ("runs abort", vec![run]),
        ("runs resume", vec![run]),
        ("runs fork", vec![run]),
        ("runs rewind", vec![run, "--to", "1"]),
        ("runs diff", vec![run, run]),
        ("runs export", vec![run, "--output", "run.jsonl"]),
        ("runs import", vec!["run.jsonl"]),
        ("tasks list", vec![run]),
        ("tasks get", vec![run, "a"]),
        ("workflows list", vec![]),
        ("workflows get", vec!["work"]),
        ("workflows validate", vec!["work"]),
        ("workflows plan", vec!["work"]),
        ("spend", vec![]),
        ("undo", vec![run]),
        ("apart list", vec![]),
        ("apart merge", vec!["none"]),
        ("apart discard", vec!["none"]),
        ("trash list", vec![]),
        ("trash restore", vec!["none"]),
        ("trash purge", vec!["--older-than", "1h"]),
        ("replay", vec![run]),
        ("events", vec![]),
        ("events fire", vec!["go"]),
        ("inbox list", vec![]),
        ("inbox get", vec![run]),
        ("inbox answer", vec![run, "yes"]),
        ("inbox skip", vec![run]),
        ("inbox reject", vec![run]),
        ("dispatch", vec!["--once"]),
        ("worker", vec!["--connect", "ws://127.0.0.1:9", "--label", "gpu"]),
        ("subscriptions list", vec![]),
        ("subscriptions show", vec!["none"]),
        ("subscriptions retry", vec!["none"]),
        ("sources list", vec![]),
        ("sources show", vec!["none"]),
        ("notepad", vec![run]),
        ("validate", vec![".formwork"]),
        ("schema", vec!["workflow"]),
        ("check", vec![]),
        ("doctor", vec!["--offline"]),
        ("models", vec![]),
        ("models list", vec![]),
        ("models probe", vec!["s/any"]),
        ("models pull", vec!["s/any"]),
        ("agents", vec![]),
        ("tools", vec![]),
        ("tools list", vec![]),
        ("tools show", vec!["fs.read"]),
        ("tools call", vec!["fs.read", "path=script.toml"]),
        ("trust", vec![]),
        ("approvals list", vec![]),
        ("approvals revoke", vec!["--all"]),
        ("serve", vec!["--listen", "192.0.2.1:1", "--mode", "ask"]),
        ("auth bootstrap", vec![]),
        ("auth add", vec!["ada", "--scope", "read,run", "--expires", "30d"]),
        ("auth list", vec![]),
        ("auth rotate", vec![run]),
        ("auth revoke", vec![run]),
        ("audit verify", vec![]),
        ("audit checkpoint", vec![]),
        ("config show", vec![]),
        ("db init", vec![]),
        ("db status", vec![]),
        ("db verify", vec![]),
        ("db rebuild", vec![]),
        ("db vacuum", vec![]),
        ("db archive", vec!["--older-than", "1h"]),
        ("db migrate", vec![]),
    ]
}

#[test]
fn every_verb_has_one_document_in_one_form_for_a_machine() {
    let (world, run) = lived_in();
    let mut command = Cli::command();
    command.build();
    let mut known = BTreeSet::new();
    verbs(&command, "", &mut known);
    let asked = asked(&run);

    let named: BTreeSet<String> =
        asked.iter().map(|(verb, _)| *verb).chain(BARE).map(str::to_owned).collect();
    assert_eq!(known, named, "each verb is asked once");
    for (verb, arguments) in asked {
        let words: Vec<&str> = verb.split(' ').chain(arguments).collect();
        let ran = world.run(&[&words[..], &["--json", "--config", "given.toml"]].concat());

        let document = document(&ran);
        assert_eq!(document["version"], json!(1), "{verb}: {ran}");
        // An object that says its version once.
        let own = ran.stdout.matches("\"version\":").count() - nested(&document, "version");
        assert_eq!(own, 1, "{verb}: {ran}");
        if let Some(errors) = document.get("errors") {
            let is_text = errors.as_array().is_some_and(|it| it.iter().all(Value::is_string));
            assert!(is_text, "{verb}: {ran}");
        }
        assert!(
            !ran.stdout.contains("For more information, try"),
            "{verb} is asked wrongly: {ran}"
        );
    }
}

/// Counts a key below the top of a document.
fn nested(value: &Value, key: &str) -> usize {
    let below: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Object(fields) => Box::new(fields.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => return 0,
    };
    below.map(|it| usize::from(it.get(key).is_some()) + nested(it, key)).sum()
}

#[test]
fn what_is_wrong_is_told_in_one_form_whoever_finds_it() {
    let world = World::new();
    world.put(".formwork/workflows/wrong.toml", "format_version = 1\nname = 3\n");
    for arguments in [
        &["validate"][..],
        &["run", "wrong"],
        &["runs", "show", "x"],
        &["run", "no-such"],
        &["trash", "restore", "none"],
    ] {
        let ran = world.run(&[arguments, &["--json"]].concat());

        let told = document(&ran);
        let mut keys: Vec<&str> = told.as_object().unwrap().keys().map(String::as_str).collect();
        let places = keys.iter().position(|key| *key == "diagnostics").map(|at| keys.remove(at));
        keys.sort_unstable();
        assert_eq!(keys, ["errors", "hint", "outcome", "version"], "{ran}");
        let code = told["outcome"]["code"].as_str().unwrap();
        assert_eq!((ran.code == 3, ran.code == 64), (code == "setup", code == "usage"), "{ran}");
        let errors = told["errors"].as_array().unwrap();
        assert!(!errors.is_empty() && errors.iter().all(Value::is_string), "{ran}");
        if places.is_some() {
            let at = &told["diagnostics"][1];
            assert_eq!((&at["line"], &at["key"]), (&json!(2), &json!("name")), "{ran}");
        }
        assert_eq!(
            places.is_some(),
            arguments.contains(&"validate") || arguments.contains(&"wrong")
        );
    }
}
