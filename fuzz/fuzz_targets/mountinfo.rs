//! The table of mounts.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = core_mount::parse_mounts(data);
});
