//! What an expression says, and what none can do.

#![expect(clippy::unwrap_used, reason = "tests may, in their helpers too")]

use formwork_expression::{Error, Expression};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn known() -> Map<String, Value> {
    let known = json!({
        "vars": { "name": "Zoë", "count": 3, "cost": 0.5, "list": ["a", "b"], "none": null },
        "tasks": { "a-b": { "text": "one\n\n two \n", "passed": true, "output": { "n": [1, 2] } } },
        "item": "x",
    });
    known.as_object().unwrap().clone()
}

fn value(source: &str) -> Result<Value, Error> {
    Expression::parse(source)?.evaluate(&known())
}

#[test]
fn an_expression_has_a_value_over_json() {
    let cases = [
        ("vars.count + 1", json!(4)),
        ("vars.count > 2 && vars.cost < 1", json!(true)),
        ("vars.count > 2.5", json!(true)),
        ("size(vars.name)", json!(3)),
        ("tasks['a-b'].passed", json!(true)),
        ("tasks[\"a-b\"].output.n.map(n, n * 2)", json!([2, 4])),
        ("tasks['a-b'].text.lines()", json!(["one", "two"])),
        ("'a,b'.split(',')", json!(["a", "b"])),
        ("' a '.trim()", json!("a")),
        ("vars.list.filter(x, x != item)", json!(["a", "b"])),
        ("has(vars.nothing) || vars.none == null", json!(true)),
        ("{'a': [1, {'b': 2.5}]}", json!({ "a": [1, { "b": 2.5 }] })),
        ("vars.list.exists(x, x == 'b') && !vars.list.all(x, x == 'b')", json!(true)),
    ];
    for (source, wanted) in cases {
        assert_eq!(value(source), Ok(wanted), "{source}");
    }
}

#[test]
fn every_function_that_is_known_can_be_called() {
    let calls = [
        "bool('true')",
        "bytes('a') == b'a'",
        "'ab'.contains('a')",
        "double('1') == 1.0",
        "dyn(1) == 1",
        "'ab'.endsWith('b')",
        "int('1') == 1",
        "size('a'.lines()) == 1",
        "'ab'.matches('^a')",
        "size('a') == 1",
        "size('a'.split('b')) == 1",
        "'ab'.startsWith('a')",
        "string(1) == '1'",
        "'a'.trim() == 'a'",
        "type(1) == type(2)",
        "uint('1') == 1u",
    ];
    for call in calls {
        assert_eq!(value(call), Ok(json!(true)), "{call}");
    }
}

#[test]
fn what_is_no_expression_is_told_with_its_place() {
    let told = |source: &str| value(source).unwrap_err().to_string();

    assert_eq!(
        told("vars.count >"),
        "not an expression at line 1, column 13: mismatched input the end"
    );
    assert_eq!(told("1 +\n* 2"), "not an expression at line 2, column 1: extraneous input '*'");
    assert_eq!(told("  "), "not an expression at line 1, column 1: it is empty");
    assert_eq!(told("env('HOME')"), "there is no function env");
    assert_eq!(told("Secret{}"), "there is no function Secret");
    assert_eq!(
        told("vars.?count"),
        "not an expression at line 1, column 5: unsupported syntax '.?'"
    );
}

#[test]
fn what_has_no_value_is_told_without_the_values() {
    let told = |source: &str| value(source).unwrap_err().to_string();

    assert_eq!(told("vars.nothing"), "No such key: nothing");
    assert_eq!(told("missing > 1"), "Undeclared reference to 'missing'");
    assert_eq!(told("1 / 0"), "Division by zero of Int(1)");
    assert!(told("vars.name + 1").len() <= 400);
    assert!(told("'a'.matches('(')").contains("unclosed group"));
    assert_eq!(
        Expression::parse("vars.list").unwrap().test(&known()).unwrap_err().to_string(),
        "its value is a list, wanted true or false"
    );
}

#[test]
fn references_are_told_as_paths_and_bound_names_are_none() {
    let parsed = Expression::parse(
        "vars.list.map(x, x + item).exists(y, y == tasks['a-b'].text) && has(vars.other) && vars.list[0] == 'a'",
    )
    .unwrap();

    let paths: Vec<String> = parsed.references().map(|found| found.path().join(" ")).collect();

    assert_eq!(paths, ["vars list", "item", "tasks a-b text", "vars other"]);
}

#[test]
fn hostile_expressions_end_as_errors() {
    let nested =
        |from: &str, to: &str, count: usize| format!("{}1{}", from.repeat(count), to.repeat(count));
    let ten = "[1,1,1,1,1,1,1,1,1,1]";
    let turns = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .rev()
        .fold("1".to_owned(), |inner, name| format!("{ten}.map({name}, {inner})"));
    let checks = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .rev()
        .fold("true".to_owned(), |inner, name| format!("{ten}.all({name}, {inner})"));
    let grows = "['0123456789012345678901234567890123456789']".to_owned()
        + &".map(x, x+x+x+x+x+x+x+x)".repeat(40);

    assert!(matches!(value(&nested("(", ")", 900)), Err(Error::TooDeep { .. })));
    assert!(matches!(value(&nested("[", "]", 900)), Err(Error::TooDeep { .. })));
    assert!(matches!(value(&format!("1{}", "+1".repeat(900))), Err(Error::TooDeep { .. })));
    assert!(matches!(value(&"x".repeat(3_000)), Err(Error::TooLong { .. })));
    assert!(matches!(value(&turns), Err(Error::TooDear { .. })));
    assert!(matches!(value(&checks), Err(Error::TooDear { .. })));
    assert!(matches!(value(&grows), Err(Error::TooDear { .. } | Error::TooDeep { .. })));
    assert!(value(&nested("true ? 1 : ", "", 150)).is_err());
    assert!(value(&format!("a{}", ".b".repeat(900))).is_err());

    let long = json!({ "vars": { "t": "a".repeat(900_000), "l": vec!["x"; 300], "n": (0..300).collect::<Vec<_>>() } });
    let over =
        |source: &str| Expression::parse(source).unwrap().evaluate(long.as_object().unwrap());
    for dear in [
        format!("size([{}]) > 0", vec!["vars.t.split('a')"; 100].join(",")),
        format!("size([{}]) > 0", vec!["vars.t.split('b')"; 100].join(",")),
        "vars.l.all(a, vars.l.all(b, 'x'.matches('\\\\w{200}') || true))".to_owned(),
        "vars.n.all(a, 'x'.matches(string(a)) || true)".to_owned(),
        "vars.l.all(a, vars.l.all(b, vars.t.contains('b') || true))".to_owned(),
        "vars.l.all(a, vars.l.all(b, vars.t == vars.t + 'b' || true))".to_owned(),
        "vars.l.all(a, vars.l.all(b, size(vars.t) > 0))".to_owned(),
        "vars.l.all(a, vars.l.all(b, 'y' in vars.l || true))".to_owned(),
    ] {
        assert!(matches!(over(&dear), Err(Error::TooDear { .. })), "{dear}: {:?}", over(&dear));
    }
    let large = over("'x'.matches('\\\\w{2000}')").unwrap_err().to_string();
    assert!(large.contains("size limit"), "{large}");
    assert_eq!(over("vars.l.filter(x, x.matches('^[xyz]$')).size()"), Ok(json!(300)));
    assert_eq!(over("vars.t.contains('b') || size(vars.l) == 300"), Ok(json!(true)));

    let huge = json!({ "vars": "x".repeat(2_000_000) });
    let seen = Expression::parse("size(vars) > 1").unwrap().test(huge.as_object().unwrap());
    assert!(matches!(seen, Err(Error::TooMuch { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_makes_it_panic(source in "[-a-z0-9.()\\[\\]{}'\"?:&|!<>=+* \\n\\\\ä]{0,60}") {
        if let Ok(parsed) = Expression::parse(&source) {
            let _ = parsed.evaluate(&known());
        }
    }
}
