//! A recorded run as it is drawn: two tasks, of which one needs a second attempt and one fails.

use formwork_protocols::{
    AgentName, Cancellation, Ending, Event, EventBody, SessionId, TaskState,
    event::{Delta, DeltaKind},
};

use super::{Live, Style};

const WIDTH: usize = 60;

fn events() -> Vec<Event> {
    let lines = include_str!("fixtures/run.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn style(live: bool) -> Style {
    Style { live, color: false, width: WIDTH, height: 10 }
}

/// Draws events and returns every byte that was written.
fn drawn(events: &[Event], style: Style) -> String {
    let mut out = Vec::new();
    let mut view = Live::new(&mut out, style);
    for event in events {
        view.event(event).unwrap();
    }
    String::from_utf8(out).unwrap()
}

/// Returns what a terminal shows after these bytes, by the few sequences that the view uses.
fn screen(bytes: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = bytes;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\x1b[J").or_else(|| rest.strip_prefix('\r')) {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\x1b[") {
            let (count, after) = after.split_once('A').unwrap();
            // What stood there is cleared right after.
            lines.truncate(lines.len() - count.parse::<usize>().unwrap());
            rest = after;
        } else {
            let (line, after) = rest.split_once('\n').unwrap();
            assert!(!line.contains('\x1b'), "{next}: {line:?}");
            lines.push(line.to_owned());
            rest = after;
        }
    }
    lines.join("\n")
}

/// The words of a model, as they come.
fn delta(event: &Event, text: &str) -> Delta {
    Delta {
        run: event.run,
        task: event.task.unwrap(),
        // One conversation speaks all along: an id by the clock would begin a new one each millisecond.
        session: "01890a5d-ac96-774b-bcce-b302099a8057".parse::<SessionId>().unwrap(),
        agent: AgentName::parse("scribe").unwrap(),
        kind: DeltaKind::Text,
        text: text.to_owned(),
    }
}

#[test]
fn a_run_is_told_line_by_line_where_nothing_can_be_redrawn() {
    insta::assert_snapshot!(drawn(&events(), style(false)));
}

#[test]
fn a_run_leaves_what_happened_above_its_tree() {
    insta::assert_snapshot!(screen(&drawn(&events(), style(true))));
}

#[test]
fn a_run_shows_in_its_midst_what_each_task_does() {
    let events = events();
    let second = events.iter().position(
        |event| matches!(&event.body, EventBody::AttemptStarted(started) if started.number == 2),
    );
    let until = second.unwrap() + 2;

    insta::assert_snapshot!(screen(&drawn(&events[..until], style(true))));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let shown = drawn(&events(), style(true));

    for line in screen(&shown).lines() {
        assert!(line.chars().count() < WIDTH, "{line}");
    }
}

#[test]
fn words_are_shown_as_they_come_and_stay_above_the_tree() {
    let events = events();
    let (begun, now) = (&events[..10], events[9].at);
    let mut out = Vec::new();
    let mut view = Live::new(&mut out, style(true));
    for event in begun {
        view.event(event).unwrap();
    }

    let words = ["The list of chan", "ges is short,\nand two of ", "them are news \x1b[2J"];
    for text in words {
        view.delta(&delta(&events[9], text), now).unwrap();
    }

    insta::assert_snapshot!(screen(&String::from_utf8(out).unwrap()));
}

#[test]
fn a_task_whose_condition_was_false_is_shown_as_skipped() {
    let mut events = events();
    for event in &mut events {
        if let EventBody::TaskMoved(moved) = &mut event.body
            && moved.to.is_terminal()
        {
            moved.to = TaskState::Cancelled;
            let why = Cancellation::Skipped { condition: "1 > 2".to_owned() };
            moved.ending = Some(Ending::Cancelled { why });
        }
    }

    let shown = screen(&drawn(&events, style(true)));

    assert!(shown.contains(" skipped  ") && !shown.contains("cancelled"), "{shown}");
}

#[test]
fn colours_change_nothing_but_colours() {
    let plain = drawn(&events(), style(false));

    let colored = drawn(&events(), Style { color: true, ..style(false) });

    assert_ne!(colored, plain);
    let mut stripped = String::new();
    for (number, piece) in colored.split('\x1b').enumerate() {
        stripped += if number == 0 { piece } else { piece.split_once('m').unwrap().1 };
    }
    assert_eq!(stripped, plain);
}
