#![allow(unsafe_code)]

/// Gives freed heap memory back to the kernel; for after a burst. Does nothing where the C library cannot.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and moves no live allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets the allocator make at most `count` arenas, so that threads do not each keep memory of their own.
/// Takes effect for arenas not yet made: call it first thing in `main`.
pub fn limit_arenas(count: u16) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets a number in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, i32::from(count));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = count;
}
