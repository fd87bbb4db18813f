//! hosts.toml.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let host = directory.path().join("example.org");
    std::fs::create_dir(&host).expect("a directory");
    std::fs::write(host.join("hosts.toml"), data).expect("a file");
    let _ = core_remotes::hosts_for("example.org", Some(directory.path()), None);
});
