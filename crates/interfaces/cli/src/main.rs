//! The `formwork` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: this very program, started again, is what confines the processes that it runs.
    formwork_sandbox::launcher::intercept();
    // What runs beside it must not read its keys out of its memory or its environment. Where the system
    // refuses, they are as safe as those of any other program.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    shares_one_arena();
    formwork_cli::main()
}

/// Has all threads take their memory from one heap.
///
/// One thread does the work, and the few beside it wait for SQLite, for files and for one another. A heap for each of them
/// grows page by page, each with a call of its own, and keeps what it no longer needs: 0.5 MB of a run of 21 turns.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library's allocator has no other way to be told")]
fn shares_one_arena() {
    // SAFETY: it sets a number of the allocator, before there is a second thread. Where it refuses, nothing changes.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn shares_one_arena() {}
