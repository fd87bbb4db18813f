//! Headers, extensions and sparse maps of layer archives.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut archive = core_archive::Archive::new(data);
    while let Ok(Some(_)) = archive.next_entry() {
        loop {
            let Ok(length) = archive.data().map(<[u8]>::len) else { return };
            if length == 0 {
                break;
            }
            archive.consume(length);
        }
    }
});
