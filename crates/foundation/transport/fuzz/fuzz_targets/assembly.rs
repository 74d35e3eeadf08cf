//! Any pieces of calls: what is announced is what comes out, ids are unique, and nothing of a cut answer is executed.

#![no_main]

use std::collections::{BTreeMap, HashSet};

use formwork_protocols::message::Arguments;
use formwork_transport::assembly::{Assembly, Delta, Ended, Step};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};

#[derive(Debug, Arbitrary)]
struct Piece<'a> {
    index: Option<i8>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    arguments: Option<&'a str>,
}

#[derive(Debug, Arbitrary)]
struct Answer<'a> {
    ended: u8,
    pieces: Vec<Piece<'a>>,
}

fuzz_target!(|answer: Answer<'_>| {
    let ended =
        [Ended::Whole, Ended::ForLength, Ended::WithoutMarker][usize::from(answer.ended % 3)];
    let mut assembly = Assembly::new("fuzz");
    let mut steps = Vec::new();
    for piece in &answer.pieces {
        let (id, name, arguments) = (piece.id, piece.name, piece.arguments);
        let (at, more) =
            assembly.push(Delta { index: piece.index.map(i64::from), id, name, arguments });
        assert!(at.is_none_or(|at| at < assembly.len()));
        steps.extend(more);
    }
    steps.extend(assembly.flush());

    let mut told: BTreeMap<usize, (String, String)> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Started { index, id, .. } => {
                assert!(told.insert(index, (id, String::new())).is_none(), "announced twice");
            }
            Step::Grew { index, text } => {
                told.get_mut(&index).expect("it grew before it was announced").1 += &text;
            }
        }
    }
    let calls = assembly.finish(ended);
    assert_eq!(calls.len(), told.len());
    let ids: HashSet<_> = calls.iter().map(|call| &call.id).collect();
    assert_eq!(ids.len(), calls.len(), "two calls share an id");
    for (call, (id, text)) in calls.iter().zip(told.values()) {
        assert_eq!(&call.id, id);
        match &call.arguments {
            Arguments::Json(value) => {
                assert!(value.is_object() && ended == Ended::Whole && !call.name.is_empty());
            }
            Arguments::Malformed { text: kept, .. } => assert_eq!(kept, text),
        }
    }
});
