use serde_json::{Value, json};

use super::*;

fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: "id".to_owned(), name: name.to_owned(), arguments: Arguments::Json(arguments) }
}

impl Guard {
    /// Closes a turn that came to something. Returns what it is stuck in.
    fn close(&mut self, calls: &[ToolCall]) -> Option<String> {
        let came = Came { usable: true, ..Came::default() };
        self.close_turn(calls, came).map(|stuck| stuck.detail)
    }

    /// Closes a turn of which nothing could be called.
    fn unusable(&mut self, calls: &[ToolCall]) -> Option<String> {
        self.close_turn(calls, Came::default()).map(|stuck| stuck.detail)
    }
}

fn read(path: &str) -> ToolCall {
    call("read", json!({ "path": path }))
}

#[test]
fn the_third_identical_call_is_warned_and_the_fourth_refused() {
    let mut guard = Guard::default();

    let judged: Vec<_> = (0..5).map(|_| guard.judge(&read("a"))).collect();

    use Judgement::*;
    assert_eq!(judged, [Pass, Pass, Warn, Refuse, Refuse]);
    assert_eq!(guard.judge(&read("b")), Pass);
}

#[test]
fn the_order_of_arguments_does_not_make_another_call() {
    let first = serde_json::from_str(r#"{"path":"a","limit":5}"#).unwrap();
    let second = serde_json::from_str(r#"{"limit":5,"path":"a"}"#).unwrap();

    assert_eq!(key(&call("read", first)), key(&call("read", second)));
}

#[test]
fn a_change_lets_other_calls_begin_anew_and_not_itself() {
    let mut guard = Guard::default();
    let write = call("write", json!({ "path": "a", "content": "x" }));
    for _ in 0..3 {
        guard.judge(&read("a"));
        guard.judge(&write);
    }

    guard.changed(&write);

    assert_eq!(guard.judge(&read("a")), Judgement::Pass);
    assert_eq!(guard.judge(&write), Judgement::Refuse);
}

#[test]
fn two_turns_in_turn_are_a_pattern_at_the_fourth_time() {
    let mut guard = Guard::default();
    let mut ends = Vec::new();

    for _ in 0..4 {
        ends.push(guard.close(&[read("a")]));
        ends.push(guard.close(&[read("b")]));
    }

    assert!(ends[..7].iter().all(Option::is_none), "{ends:?}");
    assert_eq!(
        ends[7].as_deref(),
        Some("the same 2 turns were made 4 times over, the last one with \"read\"")
    );
}

#[test]
fn turns_that_differ_in_one_argument_are_no_pattern() {
    let mut guard = Guard::default();

    for round in 0..40 {
        assert_eq!(guard.close(&[read(&round.to_string())]), None);
        assert_eq!(guard.close(&[read("b")]), None);
    }
}

#[test]
fn a_refused_call_that_is_made_again_and_again_ends_the_session() {
    let mut guard = Guard::default();
    let mut end = None;

    for _ in 0..6 {
        assert_eq!(end, None);
        guard.judge(&read("a"));
        // Another call beside it, so that the turns themselves are no pattern.
        end = guard.close(&[read("a")]);
    }

    assert_eq!(
        end.as_deref(),
        Some("the call of \"read\" was repeated although it was refused 3 times")
    );
}

#[test]
fn calls_that_no_tool_could_take_end_the_session_after_a_few() {
    let mut guard = Guard::default();
    let unknown = |n: u32| [call(&format!("tool{n}"), json!({}))];

    assert_eq!(guard.unusable(&unknown(1)), None);
    assert_eq!(guard.close(&[read("a")]), None);
    for n in 2..5 {
        assert_eq!(guard.unusable(&unknown(n)), None);
    }

    assert_eq!(
        guard.unusable(&unknown(5)).as_deref(),
        Some(
            "4 answers in a row called only unknown tools or had unreadable arguments, the last one \"tool5\""
        )
    );
}

#[test]
fn looking_again_at_what_was_left_out_is_no_repetition() {
    let mut guard = Guard::default();
    for _ in 0..3 {
        guard.judge(&read("a"));
        guard.judge(&read("b"));
        guard.close(&[read("a")]);
        guard.close(&[read("b")]);
    }

    // Of the one nothing can be read any more, of the other one result.
    guard.left_out([(key(&read("a")), 0), (key(&read("b")), 1)]);

    use Judgement::*;
    assert_eq!([guard.judge(&read("a")), guard.judge(&read("b"))], [Pass, Pass]);
    assert_eq!([guard.judge(&read("a")), guard.judge(&read("b"))], [Pass, Warn]);
    assert_eq!(guard.close(&[read("a")]), None);
    assert_eq!(guard.close(&[read("b")]), None);
}

#[test]
fn each_pattern_ends_the_session_by_its_name() {
    let rules = StuckRules { monologue: Some(2), errors: Some(3), no_artifact: Some(4) };
    let failed = |at: u32| {
        let call = call("edit", json!({ "at": at }));
        let came = Came::of([(&call, format!("error: no match in line {at}").as_str(), true)]);
        (call, came)
    };

    let mut guard = Guard::new(rules);
    assert_eq!(guard.close_words(true), None);
    assert_eq!(guard.close_words(true).unwrap().pattern, StuckPattern::Monologue);
    assert_eq!(Guard::new(rules).close_words(false), None);

    let mut guard = Guard::new(rules);
    let ends: Vec<_> = (0..3)
        .map(|at| {
            let (call, came) = failed(at);
            guard.close_turn(&[call], came).map(|stuck| (stuck.pattern, stuck.detail))
        })
        .collect();
    let told = "3 turns in a row brought nothing but one error, the last time edit: error: no match in line 2";
    assert_eq!(ends, [None, None, Some((StuckPattern::RepeatedErrors, told.to_owned()))]);

    let mut guard = Guard::new(rules);
    let looked = Came { usable: true, ..Came::default() };
    let changed = Came { changed: true, ..looked.clone() };
    assert_eq!(guard.close_turn(&[read("a")], changed), None);
    let ends: Vec<_> = (0..4)
        .map(|at| guard.close_turn(&[read(&at.to_string())], looked.clone()).map(|it| it.pattern))
        .collect();
    assert_eq!(ends, [None, None, None, Some(StuckPattern::NoArtifact)]);
}

#[test]
fn twenty_thousand_turns_are_judged_and_only_the_last_are_remembered_in_order() {
    let mut guard = Guard::default();

    for turn in 0..20_000 {
        let call = read(&format!("file{turn}"));
        assert_eq!(guard.judge(&call), Judgement::Pass);
        let came = Came::of([(&call, "a line of the file", false)]);
        assert_eq!(guard.close_turn(&[call], came), None);
    }

    assert_eq!(guard.turns.len(), LONGEST_PATTERN * PATTERN_SEEN);
}
