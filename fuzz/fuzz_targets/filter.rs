//! Filters of list requests.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(filter) = core_types::Filter::parse(text) {
        filter.is_everything();
    }
});
