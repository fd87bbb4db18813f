//! What a shim answers when it starts.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(endpoint) = core_runtime_v2::Endpoint::parse(data) {
        let _ = endpoint.socket();
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = core_runtime_v2::Endpoint::from_url(text, 3);
    }
});
