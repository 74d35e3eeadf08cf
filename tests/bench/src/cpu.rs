//! The processor time of one thread, to which neighbours add nothing.

/// Returns the processor time of this thread in nanoseconds.
#[expect(unsafe_code, reason = "the standard library has no such clock")]
pub(crate) fn cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and the pointer is to a time of our own.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(outcome, 0, "this clock cannot fail");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
