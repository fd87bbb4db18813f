//! Names of images.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = core_remotes::normalize(text);
    if let Ok(reference) = core_remotes::Reference::parse(text) {
        let _ = (reference.host(), reference.repository(), reference.tag(), reference.digest());
    }
});
