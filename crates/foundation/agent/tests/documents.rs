//! The document of an agent, its schema, and texts that are none.

use std::fs;

use formwork_agent::{AgentDocument, Agents, Checks, PromptFile};
use formwork_protocols::document;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_document_is_written_as_it_was_read() {
    let text = "format_version = 1\nname = 'a'\ncategory = 'fast'\nprompt = 'a.md'\n\
        tools.allow = ['git']\nbudget.rounds = 3\n";
    let read = document::parse::<AgentDocument>("a.toml", text).unwrap().value;

    let written = serde_json::to_value(&read).unwrap();

    assert_eq!(
        written,
        json!({
            "name": "a",
            "category": "fast",
            "prompt": "a.md",
            "tools": { "allow": ["git"] },
            "budget": { "rounds": 3 },
        })
    );
    assert_eq!(serde_json::from_value::<AgentDocument>(written).unwrap(), read);
}

#[test]
fn behaviour_30_a_record_cannot_hold_both_a_category_and_a_model_or_neither() {
    let both = json!({ "name": "a", "prompt": "a.md", "category": "c", "model": "p/m" });
    let neither = json!({ "name": "a", "prompt": "a.md" });

    let refusals = [both, neither]
        .map(|it| serde_json::from_value::<AgentDocument>(it).unwrap_err().to_string());

    assert_eq!(
        refusals,
        [
            "wanted \"category\" or \"model\", found both",
            "wanted \"category\" or \"model\", found neither"
        ]
    );
}

#[test]
fn a_prompt_is_a_markdown_file_of_the_same_folder() {
    for good in ["coder.md", "a b.md", "übung.md", "a..b.md"] {
        assert!(PromptFile::parse(good).is_ok(), "{good}");
    }
    let bad = ["", ".md", "coder", "coder.txt", "coder.md/", "../coder.md", "sub/coder.md"];
    let worse = ["/etc/coder.md", "..\\coder.md", "C:coder.md", ".hidden.md", "a\0.md", "a\n.md"];
    for bad in bad.into_iter().chain(worse) {
        assert!(PromptFile::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_editor_is_told_that_exactly_one_of_category_and_model_is_wanted() {
    let schema = document::schema::<AgentDocument>();

    assert_eq!(schema["title"], "agent");
    assert_eq!(schema["required"], json!(["format_version", "name", "prompt"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(
        schema["oneOf"],
        json!([
            { "properties": { "category": true, "model": false }, "required": ["category"] },
            { "properties": { "category": false, "model": true }, "required": ["model"] },
        ])
    );
}

/// Lines that documents are made of, some of them wrong.
fn line() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("'a'".to_owned()),
        Just("'a.md'".to_owned()),
        Just("['fs.*', 2, 'x']".to_owned()),
        Just("{ allow = ['x'] }".to_owned()),
        Just("1979-05-27".to_owned()),
        ".{0,12}",
    ];
    let key = prop_oneof![
        Just("format_version"),
        Just("name"),
        Just("category"),
        Just("model"),
        Just("prompt"),
        Just("tools"),
        Just("tools.allow"),
        Just("tools.exec.allow"),
        Just("tools.exec.hosts"),
        Just("budget"),
        Just("tools.deferred"),
    ];
    prop_oneof![
        (key, value).prop_map(|(key, value)| format!("{key} = {value}\n")),
        Just("[tools]\n".to_owned()),
        ".{0,20}\n",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_text_of_a_document_or_a_prompt_makes_the_reader_panic(
        lines in prop::collection::vec(line(), 0..8),
        has_version in any::<bool>(),
        prompt in prop_oneof![".{0,40}", "(\\{\\{[#/>! ]?[a-z.@ ]{0,6}\\}\\}|\\n|ü|x){0,8}"],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let version = if has_version { "format_version = 1\n" } else { "" };
        let good = "format_version = 1\nname = 'good'\ncategory = 'c'\nprompt = 'a.md'\n";
        fs::write(folder.path().join("a.toml"), format!("{version}{}", lines.concat())).unwrap();
        fs::write(folder.path().join("b.toml"), good).unwrap();
        fs::write(folder.path().join("a.md"), &prompt).unwrap();
        let no_tool = |pattern: &str| Err(format!("no tool {pattern:?}"));

        let checks = Checks { tools: &no_tool, commands: &no_tool, hosts: &no_tool, variables: &["x"] };
        if let Err(faults) = Agents::load(folder.path(), &checks) {
            for fault in &faults {
                prop_assert!(fault.line >= 1 && fault.column >= 1);
                prop_assert!(fault.text.get(fault.span.clone()).is_some(), "{fault} {:?}", fault.span);
            }
        }
    }

    #[test]
    fn a_prompt_that_was_loaded_can_be_composed(
        prompt in "(\\{\\{[#/>! ]?[xb]\\}\\}|\\{\\{#if x\\}\\}|\\{\\{/if\\}\\}|\\n|ü|y){1,8}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let document = "format_version = 1\nname = 'a'\ncategory = 'c'\nprompt = 'a.md'\n";
        fs::write(folder.path().join("a.toml"), document).unwrap();
        fs::write(folder.path().join("a.md"), &prompt).unwrap();
        fs::write(folder.path().join("b.md"), "brief").unwrap();

        let checks = Checks { variables: &["x"], ..Checks::default() };
        if let Ok(agents) = Agents::load(folder.path(), &checks) {
            let agent = agents.get(&"a".parse().unwrap()).unwrap();
            let variables = agent.variables().unwrap();
            let variables = variables.into_iter().map(|name| (name, "value".into())).collect();
            let text = agent.system_prompt(&variables).unwrap();
            prop_assert!(text.starts_with("You work in a workspace"));
            prop_assert_eq!(agent.system_prompt(&variables).unwrap(), text);
        }
    }
}
