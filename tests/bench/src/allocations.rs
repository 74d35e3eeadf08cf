//! How much the heap was asked for: free of noise, and so the better guard on a shared machine.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The system's allocator, with a count.
pub(crate) struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written without it; all is left to the system's"
)]
// SAFETY: every call is handed to the system's allocator unchanged; counters touch no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        LIVE.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        LIVE.fetch_add(size as u64, Relaxed);
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps the contract of the same function.
        unsafe { System.realloc(pointer, layout, size) }
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
