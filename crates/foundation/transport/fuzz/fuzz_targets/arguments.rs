//! Any text: arguments are an object or keep the text, and an object survives its own text.

#![no_main]

use formwork_protocols::message::Arguments;
use formwork_transport::{assembly::parse_arguments, text_calls};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_arguments(text) {
        Arguments::Json(value) => {
            assert!(value.is_object());
            assert_eq!(parse_arguments(&value.to_string()), Arguments::Json(value));
        }
        Arguments::Malformed { text: kept, error } => {
            assert_eq!(kept, text);
            assert!(!error.is_empty());
        }
    }
    // The same text as a model's prose, in which calls may be written.
    let found = text_calls::recognise(text, &[], "fuzz");
    assert!(found.text.len() <= text.len());
});
