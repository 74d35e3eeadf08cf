//! The `formwork` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: this very program, started again, is what confines the processes that it runs.
    formwork_sandbox::launcher::intercept();
    formwork_cli::main()
}
