use futures::executor::block_on;
use serde_json::json;

use super::*;
use crate::scripted::{Script, Scripted};

fn schema() -> OutputSchema {
    let schema = json!({
        "type": "object",
        "properties": { "grade": { "type": "integer", "maximum": 5 } },
        "required": ["grade"],
    });
    OutputSchema::new("verdict", schema).unwrap()
}

/// Asks a model that answers with `texts`, one after the other.
fn ask(texts: &[&str]) -> Result<Structured, Error> {
    let turns = texts.iter().map(|text| format!("[[turns]]\ntext = '''{text}'''\n"));
    let script = format!("format_version = 1\n\n{}", turns.collect::<Vec<_>>().join("\n"));
    let script = Script::parse("demo.toml", &script).unwrap();
    let model = Scripted::new("demo".parse().unwrap(), "demo.toml", script);
    let request =
        ModelRequest::new("model".parse().unwrap(), vec![Message::text(Role::User, "Grade it.")]);
    block_on(schema().complete(&model, request, Cancel::new()))
}

#[test]
fn a_value_is_read_with_a_fence_or_words_around_it() {
    for text in [
        "{\"grade\": 4}",
        "```json\n{\"grade\": 4}\n```",
        "My verdict [it is final]: {\"grade\": 4}. That is all.",
    ] {
        assert_eq!(json_in(text), Ok(json!({ "grade": 4 })), "{text}");
    }
}

#[test]
fn a_value_within_one_that_is_cut_is_not_taken_for_it() {
    for text in ["{\"a\": {\"grade\": 4}", "see [1, {\"grade\": 4}"] {
        let problem = json_in(text).unwrap_err();
        assert!(problem.starts_with("the JSON of the answer is cut"), "{problem}");
    }
}

#[test]
fn an_answer_that_follows_the_schema_is_asked_for_once() {
    let structured = ask(&["{\"grade\": 4}"]).unwrap();

    assert_eq!(structured.value, json!({ "grade": 4 }));
    assert_eq!(structured.answers.len(), 1);
}

#[test]
fn one_that_does_not_is_asked_for_again_with_what_was_wrong() {
    let structured = ask(&["{\"grade\": 9}", "{\"grade\": 5}"]).unwrap();

    assert_eq!(structured.value, json!({ "grade": 5 }));
    assert_eq!(structured.answers.len(), 2);
    let mismatch = schema().read(&structured.answers[0]).unwrap_err();
    let follow_up = mismatch.follow_up(&structured.answers[0]);
    assert_eq!(follow_up[0], Message::text(Role::Assistant, "{\"grade\": 9}"));
    assert_eq!(
        follow_up[1].to_text(),
        "That answer does not follow the schema \"verdict\":\n\
         - at /grade: 9 is greater than the maximum of 5\n\
         Answer again, with nothing but the corrected JSON."
    );
}

#[test]
fn a_second_mismatch_is_an_error_that_keeps_both_answers() {
    let error = ask(&["Good.", "{}"]).unwrap_err();

    assert_eq!(
        error.to_string(),
        "no answer follows the schema, also not when asked again: \
         schema \"verdict\": \"grade\" is a required property"
    );
    let Error::Mismatch { answers, .. } = error else { panic!("{error:?}") };
    assert_eq!(answers.len(), 2);
}

#[test]
fn an_answer_that_was_cut_holds_no_value() {
    let mut answer = ask(&["{\"grade\": 4}"]).unwrap().answers.remove(0);
    answer.stop = StopReason::Length;

    let mismatch = schema().read(&answer).unwrap_err();

    assert_eq!(mismatch.problems, ["the answer was cut at the limit of its tokens"]);
}

#[test]
fn what_is_no_schema_is_refused_by_name() {
    let error = OutputSchema::new("verdict", json!({ "type": 7 })).unwrap_err();

    assert!(error.to_string().starts_with("schema \"verdict\" cannot be used: "), "{error}");
}
