use proptest::prelude::*;
use serde_json::json;

use super::*;

fn delta<'a>(
    index: impl Into<Option<i64>>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
) -> Delta<'a> {
    Delta { index: index.into(), id: Some(id), name: Some(name), arguments: Some(arguments) }
}

/// Returns the calls as `id name arguments`, and `!` in place of malformed arguments.
fn assemble(deltas: &[Delta<'_>], ended: Ended) -> Vec<String> {
    let mut assembly = Assembly::new(3);
    for delta in deltas {
        assembly.push(*delta);
    }
    let calls = assembly.finish(ended).into_iter().map(|call| {
        let arguments = match call.arguments {
            Arguments::Json(value) => value.to_string(),
            Arguments::Malformed { .. } => "!".to_owned(),
        };
        format!("{} {} {arguments}", call.id, call.name)
    });
    calls.collect()
}

fn whole(deltas: &[Delta<'_>]) -> Vec<String> {
    assemble(deltas, Ended::Whole)
}

#[test]
fn pieces_of_one_call_are_joined() {
    let deltas =
        [delta(0, "a", "read", ""), delta(0, "", "", "{\"p\""), delta(0, "", "", ":\"x\"}")];

    assert_eq!(whole(&deltas), [r#"a read {"p":"x"}"#]);
}

#[test]
fn a_new_id_opens_a_new_call_whatever_the_index() {
    let deltas = [delta(0, "a", "read", "{}"), delta(0, "b", "read", "{\"p\":1}")];

    assert_eq!(whole(&deltas), ["a read {}", r#"b read {"p":1}"#]);
}

#[test]
fn parallel_calls_may_come_interleaved() {
    let deltas = [
        delta(0, "a", "read", ""),
        delta(1, "b", "list", ""),
        delta(0, "", "", "{\"p\":"),
        delta(1, "", "", "{\"q\":"),
        delta(0, "", "", "1}"),
        delta(1, "", "", "2}"),
    ];

    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#, r#"b list {"q":2}"#]);
}

#[test]
fn calls_without_ids_are_given_one_each() {
    let deltas = [delta(0, "", "read", "{}"), delta(1, "", "read", "{}")];

    assert_eq!(whole(&deltas), ["call_3_0 read {}", "call_3_1 read {}"]);
}

#[test]
fn calls_without_indexes_are_told_apart_by_their_ids() {
    let deltas = [
        delta(None, "a", "read", "{\"p\":"),
        delta(None, "a", "", "1}"),
        delta(None, "b", "list", "{}"),
    ];

    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#, "b list {}"]);
}

#[test]
fn a_call_with_neither_id_nor_index_ends_where_the_next_name_begins() {
    let deltas = [
        delta(None, "", "read", "{\"p\":"),
        delta(None, "", "", "1}"),
        delta(None, "", "read", "{\"p\":2}"),
        delta(None, "", "list", "{}"),
    ];

    assert_eq!(
        whole(&deltas),
        [r#"call_3_0 read {"p":1}"#, r#"call_3_1 read {"p":2}"#, "call_3_2 list {}"]
    );
}

#[test]
fn an_index_that_is_used_again_without_an_id_opens_a_new_call() {
    let deltas = [delta(0, "", "read", "{\"p\":1}"), delta(0, "", "read", "{\"p\":2}")];

    assert_eq!(whole(&deltas), [r#"call_3_0 read {"p":1}"#, r#"call_3_1 read {"p":2}"#]);
}

#[test]
fn an_id_that_is_used_again_at_another_index_is_another_call() {
    let deltas = [
        delta(0, "x", "read", "{\"p\":"),
        delta(1, "x", "read", "{\"p\":"),
        delta(0, "", "", "1}"),
        delta(1, "", "", "2}"),
    ];

    assert_eq!(whole(&deltas), [r#"x read {"p":1}"#, r#"x_1 read {"p":2}"#]);
}

#[test]
fn an_id_that_comes_with_every_piece_is_one_call() {
    let deltas = [delta(0, "a", "read", "{\"p\":"), delta(0, "a", "read", "1}")];

    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#]);
}

#[test]
fn an_id_that_comes_late_belongs_to_the_call_at_its_index() {
    let deltas = [delta(0, "", "read", ""), delta(0, "a", "", "{\"p\":1}")];

    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#]);
}

#[test]
fn an_index_that_comes_late_belongs_to_the_open_call() {
    let deltas = [delta(None, "a", "read", ""), delta(0, "", "", "{\"p\":1}")];

    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#]);
}

#[test]
fn indexes_may_begin_anywhere() {
    let deltas =
        [delta(7, "a", "read", "{}"), delta(3, "b", "list", "{\"q\""), delta(3, "", "", ":1}")];

    assert_eq!(whole(&deltas), ["a read {}", r#"b list {"q":1}"#]);
}

#[test]
fn a_name_may_be_split_over_pieces_or_come_with_each() {
    let split = [delta(0, "a", "re", ""), delta(0, "", "ad", ""), delta(0, "", "", "{}")];
    let repeated = [delta(0, "a", "read", ""), delta(0, "", "read", ""), delta(0, "", "", "{}")];

    assert_eq!(whole(&split), ["a read {}"]);
    assert_eq!(whole(&repeated), ["a read {}"]);
}

#[test]
fn a_call_is_announced_once_and_before_its_arguments() {
    let mut assembly = Assembly::new(0);
    let mut steps = Vec::new();
    for piece in [delta(0, "a", "read", ""), delta(0, "", "", "{"), delta(0, "", "", "}")] {
        steps.extend(assembly.push(piece).1);
    }
    steps.extend(assembly.push(delta(1, "b", "list", "")).1);
    steps.extend(assembly.flush());

    assert_eq!(
        steps,
        [
            Step::Started { index: 0, id: "a".into(), name: "read".into() },
            Step::Grew { index: 0, text: "{".into() },
            Step::Grew { index: 0, text: "}".into() },
            Step::Started { index: 1, id: "b".into(), name: "list".into() },
        ]
    );
}

#[test]
fn no_call_of_a_cut_answer_is_executable_even_if_it_parses() {
    let deltas = [delta(0, "a", "read", "{\"p\":1}"), delta(1, "b", "read", "{\"p\"")];

    assert_eq!(assemble(&deltas, Ended::ForLength), ["a read !", "b read !"]);
    assert_eq!(assemble(&deltas, Ended::WithoutMarker), ["a read !", "b read !"]);
    assert_eq!(whole(&deltas), [r#"a read {"p":1}"#, "b read !"]);
}

#[test]
fn a_call_without_a_name_is_malformed() {
    let calls = {
        let mut assembly = Assembly::new(0);
        assembly.push(delta(0, "a", "", "{}"));
        assembly.finish(Ended::Whole)
    };

    assert_eq!(calls[0].arguments, malformed("{}".to_owned(), "the call names no tool"));
}

#[test]
fn arguments_are_an_object_or_malformed() {
    let json = |value| Arguments::Json(value);
    for (text, arguments) in [
        ("", json(json!({}))),
        ("  ", json(json!({}))),
        ("null", json(json!({}))),
        ("{}", json(json!({}))),
        ("{\"a\":1}", json(json!({"a": 1}))),
        ("\"{\\\"a\\\":1}\"", json(json!({"a": 1}))),
        ("{}{\"a\":1}", json(json!({"a": 1}))),
        ("{\"a\":1}{\"a\":1}", json(json!({"a": 1}))),
    ] {
        assert_eq!(parse_arguments(text), arguments, "{text}");
    }
    for (text, error) in [
        ("[1]", "the arguments are an array, expected a JSON object"),
        ("7", "the arguments are a number, expected a JSON object"),
        ("\"x\"", "the arguments are a string, expected a JSON object"),
        ("{\"a\":1}{\"a\":2}", "the arguments are more than one JSON value"),
        ("{\"a\":", "the arguments are not JSON: EOF while parsing a value at line 1 column 5"),
        ("{'a':1}", "the arguments are not JSON: key must be a string at line 1 column 2"),
        ("{\"a\":1,\"a\":1}", "the arguments name \"a\" twice"),
        ("{\"a\":[{\"b\":1,\"c\":2,\"b\":3}]}", "the arguments name \"b\" twice"),
        ("{}{\"a\":1,\"\\u0061\":2}", "the arguments name \"a\" twice"),
        ("\"{\\\"a\\\":1,\\\"a\\\":2}\"", "the arguments name \"a\" twice"),
    ] {
        assert_eq!(parse_arguments(text), malformed(text.to_owned(), error), "{text}");
    }
}

#[test]
fn an_id_that_is_made_is_not_one_that_the_server_gave() {
    let made = [delta(0, "call_3_1", "a", "{}"), delta(1, "", "b", "{}")];
    assert_eq!(assemble(&made, Ended::Whole), ["call_3_1 a {}", "call_3_1_1 b {}"]);

    let told_apart =
        [delta(0, "x_1", "a", "{}"), delta(1, "x", "b", "{}"), delta(2, "x", "c", "{}")];
    assert_eq!(assemble(&told_apart, Ended::Whole), ["x_1 a {}", "x b {}", "x_2 c {}"]);
}

proptest! {
    #[test]
    fn no_series_of_pieces_panics_or_shares_an_id(
        pieces in prop::collection::vec(
            (
                prop::option::of(-1_i64..3),
                prop::option::of("[ab]?"),
                prop::option::of("(read|re|ad)?"),
                prop::option::of("(\\{|\\}|\"a\"|:1|null)?"),
            ),
            0..12,
        ),
    ) {
        let mut assembly = Assembly::new(0);
        for (index, id, name, arguments) in &pieces {
            assembly.push(Delta {
                index: *index,
                id: id.as_deref(),
                name: name.as_deref(),
                arguments: arguments.as_deref(),
            });
        }

        let calls = assembly.finish(Ended::Whole);

        let mut ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), calls.len());
        prop_assert!(calls.iter().all(|call| !call.id.is_empty()));
    }

    #[test]
    fn arguments_cut_anywhere_are_joined_to_the_same_value(
        text in "[a-z\u{e9}\"\\\\]{0,12}", sizes in prop::collection::vec(1_usize..5, 1..9),
    ) {
        let raw = json!({ "text": text }).to_string();
        let characters: Vec<_> = raw.chars().collect();
        let mut assembly = Assembly::new(0);
        assembly.push(delta(0, "a", "read", ""));
        let mut rest = characters.as_slice();
        for size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            rest = after;
            assembly.push(delta(0, "", "", &piece.iter().collect::<String>()));
            if rest.is_empty() {
                break;
            }
        }

        let calls = assembly.finish(Ended::Whole);

        prop_assert_eq!(&calls[0].arguments, &Arguments::Json(json!({ "text": text })));
    }
}
