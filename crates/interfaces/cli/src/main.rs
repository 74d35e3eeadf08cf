//! The `formwork` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: this very program, started again, is what confines the processes that it runs.
    formwork_sandbox::launcher::intercept();
    // What runs beside it must not read its keys out of its memory or its environment. Where the system
    // refuses, they are as safe as those of any other program.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    formwork_cli::main()
}
