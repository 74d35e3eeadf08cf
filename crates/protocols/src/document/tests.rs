use std::collections::BTreeMap;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

/// A name that parses itself, as ids do.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let valid = !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase());
        if valid { Ok(Self(text)) } else { Err(format!("{text:?} is not a name")) }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OnFailure {
    /// The others go on.
    ContinueIndependent,
    /// Nothing else begins.
    Halt,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Provider {
    Ollama { base_url: String },
    Anthropic { api_key: KeySource },
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum KeySource {
    Env(Name),
    File(String),
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Price {
    Local(Local),
    Rates(Rates),
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Local {
    Local,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rates {
    input: String,
    output: String,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Retries {
    #[serde(default)]
    #[schemars(range(max = 10))]
    max: u8,
    #[serde(default)]
    resume: bool,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Task {
    name: Name,
    agent: Option<Name>,
    retries: Option<Retries>,
    #[serde(default)]
    depends_on: Vec<Name>,
    weight: Option<f64>,
    #[serde(default)]
    subtasks: Vec<Task>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Flow {
    #[schemars(length(min = 1))]
    name: String,
    on_failure: Option<OnFailure>,
    #[serde(default)]
    providers: BTreeMap<Name, Provider>,
    price: Option<Price>,
    #[serde(default)]
    tasks: Vec<Task>,
    schema: Option<serde_json::Value>,
}

impl DocumentType for Flow {
    const NAME: &'static str = "flow";

    fn reserved() -> &'static [Reserved] {
        const {
            &[
                Reserved::key("tasks.**.target"),
                Reserved::key("services"),
                Reserved::value("providers.*.kind", "google"),
                Reserved::value("on_failure", "abort-all"),
            ]
        }
    }
}

const HEAD: &str = "format_version = 1\nname = \"f\"\n";

/// Reads a flow that follows the lines every flow begins with, and returns the faults as text.
fn faults(rest: &str) -> String {
    match parse::<Flow>("f.toml", &format!("{HEAD}{rest}")) {
        Ok(parsed) => format!("no fault: {:?}", parsed.value),
        Err(faults) => faults.to_string(),
    }
}

#[test]
fn a_document_without_fault_becomes_its_value() {
    let text = format!(
        "{HEAD}price = 'local'\non_failure = 'halt'\nschema = {{ type = 'object', required = ['a'] }}\n\
         [providers.local]\nkind = 'ollama'\nbase_url = 'http://h'\n\
         [[tasks]]\nname = 'one'\nweight = 2\nretries = {{ max = 3 }}\n[[tasks.subtasks]]\nname = 'two'\n"
    );

    let parsed = parse::<Flow>("f.toml", &text).unwrap();

    let leaf = |name: &str| Task {
        name: Name(name.into()),
        agent: None,
        retries: None,
        depends_on: vec![],
        weight: None,
        subtasks: vec![],
    };
    let one = Task {
        weight: Some(2.0),
        retries: Some(Retries { max: 3, resume: false }),
        subtasks: vec![leaf("two")],
        ..leaf("one")
    };
    assert_eq!(
        parsed.value,
        Flow {
            name: "f".into(),
            on_failure: Some(OnFailure::Halt),
            providers: [(Name("local".into()), Provider::Ollama { base_url: "http://h".into() })]
                .into(),
            price: Some(Price::Local(Local::Local)),
            tasks: vec![one],
            schema: Some(json!({"type": "object", "required": ["a"]})),
        }
    );
}

#[test]
fn every_fault_of_a_document_is_reported_at_its_place() {
    let text = r#"
on_failure = "haltt"
nam = "x"
services = []

[providers.a]
kind = "olama"
[providers.b]
kind = "google"
[providers.c]
base_url = "u"
[providers.d]
kind = "anthropic"
api_key = { evn = "KEY" }
[providers.E]
kind = "ollama"
base_url = 3

[[tasks]]
name = "Bad Name"
retires = 2
weight = "heavy"
target = "w"
  [tasks.retries]
  max = 11
  resume = "yes"

[[tasks]]
agent = "ALSO BAD"
depends_on = ["fine", "Not Fine", 3]

[[tasks.subtasks]]
name = "ok"
target = "w"
"#;

    let shown = parse::<Flow>("f.toml", text).unwrap_err().to_string();

    assert_text(
        &shown,
        r#"
f.toml:1:1: missing key "format_version"; a flow begins with "format_version = 1"
f.toml:1:1: missing key "name"
f.toml:2:14: on_failure: unknown value "haltt"; nearest is "halt"
f.toml:3:1: unknown key "nam"; nearest is "name"
f.toml:4:1: "services" is not yet supported
f.toml:7:8: providers.a.kind: unknown value "olama"; nearest is "ollama"
f.toml:9:8: providers.b.kind: "google" is not yet supported
f.toml:10:1: providers.c: missing key "kind"
f.toml:14:13: providers.d.api_key: unknown key "evn"; nearest is "env"
f.toml:15:12: providers.E: "E" is not a name
f.toml:17:12: providers.E.base_url: wanted a string, found an integer
f.toml:20:8: tasks[0].name: "Bad Name" is not a name
f.toml:21:1: tasks[0]: unknown key "retires"; nearest is "retries"
f.toml:22:10: tasks[0].weight: wanted a number, found a string
f.toml:23:1: tasks[0]: "target" is not yet supported
f.toml:25:9: tasks[0].retries.max: wanted at most 10, found 11
f.toml:26:12: tasks[0].retries.resume: wanted a boolean, found a string
f.toml:28:1: tasks[1]: missing key "name"
f.toml:29:9: tasks[1].agent: "ALSO BAD" is not a name
f.toml:30:23: tasks[1].depends_on[1]: "Not Fine" is not a name
f.toml:30:35: tasks[1].depends_on[2]: wanted a string, found an integer
f.toml:34:1: tasks[1].subtasks[0]: "target" is not yet supported
"#,
    );
}

/// Compares whole texts and shows both when they differ.
#[track_caller]
fn assert_text(found: &str, wanted: &str) {
    assert!(found == wanted.trim(), "found:\n{found}\n\nwanted:\n{}", wanted.trim());
}

#[test]
fn a_choice_by_keys_names_the_keys_when_none_is_there() {
    assert_text(
        &faults(
            "[providers.d]\nkind = 'anthropic'\napi_key = {}\n[providers.e]\nkind='anthropic'\napi_key='literal'",
        ),
        r#"
f.toml:5:11: providers.d.api_key: missing one of the keys "env", "file"
f.toml:8:9: providers.e.api_key: wanted a table, found a string"#,
    );
}

#[test]
fn a_choice_by_keys_is_told_of_once_where_it_is_wrong() {
    let provider =
        |key: &str| faults(&format!("[providers.d]\nkind = 'anthropic'\napi_key = {key}"));

    assert_text(
        &provider("{ file = 'x', env = 'a' }"),
        r#"f.toml:5:11: providers.d.api_key: wanted one of the keys "env", "file", found "env" and "file""#,
    );
    assert_text(
        &provider("{ file = 3 }"),
        "f.toml:5:20: providers.d.api_key.file: wanted a string, found an integer",
    );
    assert_text(
        &provider("{ env = 'a', fiel = 'x' }"),
        r#"f.toml:5:24: providers.d.api_key: unknown key "fiel"; the only valid one is "env""#,
    );
}

#[test]
fn a_choice_by_shape_reports_against_the_nearest_branch() {
    assert_text(
        &faults("price = { input = '3', outptu = '15' }"),
        "f.toml:3:9: price: missing key \"output\"\n\
         f.toml:3:24: price: unknown key \"outptu\"; nearest is \"output\"",
    );
    assert_text(
        &faults("price = 'locale'"),
        "f.toml:3:9: price: unknown value \"locale\"; nearest is \"local\"",
    );
    assert_text(
        &faults("price = 3"),
        "f.toml:3:9: price: wanted a string or a table, found an integer",
    );
}

#[test]
fn the_version_is_required_and_only_one_is_read() {
    let shown = |text: &str| parse::<Flow>("f.toml", text).unwrap_err().to_string();

    assert_eq!(
        [
            shown("name = 'f'"),
            shown("name = 'f'\nformat_version = 2"),
            shown("format_version = '1'\nname='f'")
        ],
        [
            "f.toml:1:1: missing key \"format_version\"; a flow begins with \"format_version = 1\"",
            "f.toml:2:18: wanted \"format_version = 1\", found version 2",
            "f.toml:1:18: wanted \"format_version = 1\", found a string",
        ]
    );
}

#[test]
fn syntax_errors_are_all_reported_with_the_faults_before_them() {
    assert_text(
        &faults("nope = 1\na = \nb = 'x\nc = 1\nc = 2\nlater = 3"),
        r#"
f.toml:3:1: unknown key "nope"; valid are "name", "on_failure", "price", "providers", "schema", "tasks"
f.toml:4:5: string values must be quoted, expected literal string
f.toml:5:7: invalid literal string, expected `'`
f.toml:7:1: duplicate key"#,
    );
}

#[test]
fn columns_count_characters_and_lines_end_with_a_newline() {
    assert_text(
        &faults("price = { \"äöü€😀\" = 1, input = '', output = '' }\r\nx = 1\r\n"),
        "f.toml:3:11: price: unknown key \"äöü€😀\"; valid are \"input\", \"output\"\n\
         f.toml:4:1: unknown key \"x\"; valid are \"name\", \"on_failure\", \"price\", \"providers\", \"schema\", \"tasks\"",
    );
    let marked = parse::<Flow>("f.toml", "\u{feff}formatversion = 1\nname = 'f'").unwrap_err();
    assert_eq!(marked.iter().map(|d| (d.line, d.column)).collect::<Vec<_>>(), [(1, 1), (1, 1)]);
}

#[test]
fn numbers_out_of_range_and_dates_are_refused() {
    assert_text(
        &faults(
            "[[tasks]]\nname = 'a'\nretries = { max = 300 }\n[[tasks]]\nname = 'b'\nretries = { max = -1 }\n\
                 [[tasks]]\nname = 2026-01-01\n[[tasks]]\nname = 'c'\nretries = { max = 99999999999999999999999999999999999999999 }\n\
                 [[tasks]]\nname = 'd'\nretries = { max = 1.0 }",
        ),
        r#"
f.toml:5:19: tasks[0].retries.max: wanted at most 10, found 300
f.toml:8:19: tasks[1].retries.max: wanted at least 0, found -1
f.toml:10:8: tasks[2].name: wanted a string, found a date-time; write it in quotes
f.toml:13:19: tasks[3].retries.max: 99999999999999999999999999999999999999999 is too large a number
f.toml:16:19: tasks[4].retries.max: wanted an integer, found a float"#,
    );
    assert_text(
        &parse::<Flow>("f.toml", "format_version = 1\nname = ''").unwrap_err().to_string(),
        "f.toml:2:8: name: wanted some text, found an empty string",
    );
}

#[test]
fn a_number_that_json_has_no_word_for_is_refused_wherever_it_stands() {
    assert_text(
        &faults(
            "[[tasks]]\nname = 'a'\nweight = nan\n[[tasks]]\nname = 'b'\nweight = 1e400\n\
             [schema]\nmaximum = inf\nminimum = -inf\nenum = [1.5, 2e999, { x = -1e400 }]\n",
        ),
        r#"
f.toml:5:10: tasks[0].weight: nan is no number here
f.toml:8:10: tasks[1].weight: 1e400 is too large a number
f.toml:10:11: schema.maximum: inf is no number here
f.toml:11:11: schema.minimum: -inf is no number here
f.toml:12:14: schema.enum[1]: 2e999 is too large a number
f.toml:12:27: schema.enum[2].x: -1e400 is too large a number"#,
    );
    assert_eq!(
        faults("[[tasks]]\nname = 'a'\nretries = { max = 1e400 }"),
        "f.toml:5:19: tasks[0].retries.max: wanted an integer, found a float"
    );
    assert!(faults("[schema]\nmaximum = 1.7e308\n").starts_with("no fault"));
}

#[test]
fn later_checks_point_at_a_value_by_its_pointer() {
    let text = format!("{HEAD}[[tasks]]\nname = 'a'\nagent = 'coder'\n");
    let parsed = parse::<Flow>("f.toml", &text).unwrap();

    let agent = parsed.span("/tasks/0/agent").unwrap();
    let key = parsed.document.key_span("/tasks/0/agent").unwrap();
    let dangling = parsed.diagnostic(&pointer(["tasks", "0", "agent"]), "no agent \"coder\"");
    let absent = parsed.diagnostic("/tasks/0/retries/max", "needed here");

    assert_eq!((&text[agent], &text[key]), ("'coder'", "agent"));
    assert_eq!(parsed.span("/tasks/7"), None);
    assert_eq!(parsed.span(""), Some(0..0));
    assert_eq!(dangling.to_string(), "f.toml:5:9: tasks[0].agent: no agent \"coder\"");
    assert_eq!(absent.to_string(), "f.toml:3:1: tasks[0]: needed here");
}

#[test]
fn a_pointer_escapes_what_separates() {
    assert_eq!(pointer(["a/b", "c~d"]), "/a~1b/c~0d");
    assert_eq!(path::split_pointer("/a~1b/c~0d").collect::<Vec<_>>(), ["a/b", "c~d"]);
}

#[test]
fn the_schema_names_the_document_and_its_version() {
    let schema = schema::<Flow>();

    assert_eq!(schema["title"], "flow");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["format_version"]["const"], 1);
    assert_eq!(schema["required"], json!(["format_version", "name"]));
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema.get("$id"), None);
}

#[test]
fn what_nests_too_deep_is_refused_and_does_not_overflow_the_stack() {
    let tasks =
        (1..60).map(|depth| format!("[[tasks{}]]\nname = 'a'\n", ".subtasks".repeat(depth - 1)));
    let dotted = format!("{HEAD}schema.{} = 1", vec!["a"; 70].join("."));
    let within: String = (0..3000).map(|_| format!("{{ {} = ", vec!["a"; 60].join("."))).collect();

    for text in [
        tasks.fold(HEAD.to_owned(), |text, header| text + &header),
        dotted,
        format!("{HEAD}schema = {within}1{}", "}".repeat(3000)),
        format!("{HEAD}schema = {}", "[".repeat(500_000)),
        format!("{HEAD}schema = {}1{}", "[".repeat(70), "]".repeat(70)),
        format!("{HEAD}{} = 1", vec!["a"; 200_000].join(".")),
    ] {
        let faults = parse::<Flow>("f.toml", &text).unwrap_err();
        assert!(!faults.is_empty());
    }
    assert_eq!(
        faults(&format!("schema = {}1{}", "[".repeat(70), "]".repeat(70))),
        "f.toml:3:74: wanted at most 64 tables within each other"
    );
}

#[test]
fn what_nests_as_deep_as_is_allowed_is_read() {
    let depth = tree::MAX_DEPTH / 2 - 1;
    let text = (1..=depth).fold(HEAD.to_owned(), |text, depth| {
        text + &format!("[[tasks{}]]\nname = 'a'\n", ".subtasks".repeat(depth - 1))
    });

    assert!(parse::<Flow>("f.toml", &text).is_ok());
}

#[test]
fn a_document_of_thousands_of_faults_shows_some_hundreds_and_how_many_more() {
    let text: String = (0..3_000).map(|n| format!("[[tasks]]\nnam = {n}\n")).collect();

    let faults = parse::<Flow>("f.toml", &format!("{HEAD}{text}")).unwrap_err();

    assert_eq!(faults.len(), 501);
    assert!(faults.to_string().ends_with("5500 more faults are not shown"), "{faults}");
}

#[test]
fn a_text_too_long_to_be_written_by_hand_is_refused() {
    let faults = parse::<Flow>("f.toml", &" ".repeat(4 * 1024 * 1024 + 1)).unwrap_err();

    assert_eq!(faults.to_string(), "f.toml:1:1: wanted at most 4194304 bytes, found 4194305");
}

#[test]
fn the_nearest_name_allows_one_slip_in_three() {
    let names = ["retries", "timeout", "agent"];

    assert_eq!(
        ["retires", "time_out", "Agent", "agnet", "prompt", "x"].map(|wrong| nearest(wrong, names)),
        [Some("retries"), Some("timeout"), Some("agent"), Some("agent"), None, None]
    );
    assert_eq!(nearest_hint("x", []), None);
}

#[test]
fn several_documents_report_together_by_file() {
    let mut all = parse::<Flow>("b.toml", "format_version = 1").unwrap_err();
    all.merge(parse::<Flow>("a.toml", "format_version = 1").unwrap_err());

    assert_eq!(
        all.to_string(),
        "a.toml:1:1: missing key \"name\"\nb.toml:1:1: missing key \"name\""
    );
}

/// Text that is nearly a flow: its words in any order.
fn nearly() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "format_version = 1\n",
        "name = 'f'\n",
        "[[tasks]]\n",
        "[tasks]\n",
        "[tasks.retries]\n",
        "max = 3\n",
        "max = -1\n",
        "[providers.a]\n",
        "kind = 'ollama'\n",
        "kind = 'x'\n",
        "api_key = { env = 'a' }\n",
        "price = ",
        "'local'\n",
        "{ ",
        "}",
        "[",
        "]",
        "= ",
        "\"",
        "'''",
        "\n",
        "é",
        "\u{feff}",
        "\r\n",
        "2026-01-01",
        "nan\n",
        "a.b.c = 1\n",
        "subtasks = [{ name = 'A' }]\n",
    ]);
    prop::collection::vec(word, 0..30).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_panics_and_every_fault_lies_within_it(text in prop_oneof![any::<String>(), nearly()]) {
        if let Err(faults) = parse::<Flow>("f.toml", &text) {
            prop_assert!(!faults.is_empty());
            for fault in &faults {
                prop_assert!(text.get(fault.span.clone()).is_some(), "{:?} {:?}", fault, fault.span);
                let line = text.split('\n').nth(fault.line - 1);
                let width = line.map(|line| line.chars().count() + 1);
                prop_assert!(width.is_some_and(|width| fault.column <= width), "{fault}");
            }
        }
    }
}
