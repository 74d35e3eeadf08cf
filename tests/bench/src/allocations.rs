//! How much the heap was asked for: free of noise, and so the better guard on a shared machine.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// The system's allocator, with a count.
pub(crate) struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static IS_PAUSED: AtomicBool = AtomicBool::new(false);

fn note(count: u64, taken: usize, given: usize) {
    if !IS_PAUSED.load(Relaxed) {
        COUNT.fetch_add(count, Relaxed);
        LIVE.fetch_add(taken as u64, Relaxed);
        LIVE.fetch_sub(given as u64, Relaxed);
    }
}

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written without it; all is left to the system's"
)]
// SAFETY: every call is handed to the system's allocator unchanged; counters touch no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, layout.size());
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `timed` without counting, which would cost as much as a small allocation itself and weigh on whoever makes more.
pub(crate) fn uncounted<T>(timed: impl FnOnce() -> T) -> T {
    let _uncounted = Uncounted::begin();
    timed()
}

/// Nothing is counted until it is dropped.
pub(crate) struct Uncounted(());

impl Uncounted {
    pub(crate) fn begin() -> Self {
        IS_PAUSED.store(true, Relaxed);
        Self(())
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        IS_PAUSED.store(false, Relaxed);
    }
}

/// Returns how often memory was asked for.
pub(crate) fn count() -> f64 {
    COUNT.load(Relaxed) as f64
}

/// Returns how many bytes are in use.
pub(crate) fn live_bytes() -> f64 {
    LIVE.load(Relaxed) as f64
}
