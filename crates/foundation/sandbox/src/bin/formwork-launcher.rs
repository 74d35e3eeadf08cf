//! The launcher as a program of its own, for an embedder that cannot be its own launcher.

use std::process::ExitCode;

/// The conventional code for a program that was called wrongly (`EX_USAGE` of sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    formwork_sandbox::launcher::intercept();
    ExitCode::from(USAGE)
}
