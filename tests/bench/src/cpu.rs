//! The processor time of one thread, to which neighbours add nothing, and a time that all processes share.

/// Returns the processor time of this thread in nanoseconds.
pub(crate) fn cpu() -> f64 {
    let time = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns nanoseconds since a moment that is the same for every process.
pub(crate) fn monotonic() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[expect(unsafe_code, reason = "the standard library has no such clocks")]
fn clock(which: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both clocks exist on every Linux, and the pointer is to a time of our own.
    let outcome = unsafe { libc::clock_gettime(which, &raw mut time) };
    debug_assert_eq!(outcome, 0, "these clocks cannot fail");
    time
}
