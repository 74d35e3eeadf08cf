//! Any bytes as a file of any language: symbols are in order, on lines that there are, and each has a signature.

#![no_main]

use formwork_codebase::Codebase;
use formwork_protocols::source::Symbols as _;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 11] =
    ["a.rs", "a.py", "a.js", "a.ts", "a.tsx", "a.go", "A.java", "a.c", "a.h", "a.cpp", "a.rb"];

fuzz_target!(|input: (u8, &[u8])| {
    let (which, text) = input;
    let path = PATHS[usize::from(which) % PATHS.len()];
    if let Ok(found) = Codebase.symbols(path, text) {
        let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let mut last = 1;
        for symbol in found {
            assert!(symbol.line >= last && symbol.line <= lines);
            assert!(!symbol.signature.is_empty());
            last = symbol.line;
        }
    }
});
