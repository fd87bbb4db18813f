#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A runtime that is a shell script.
fn runtime(dir: &Path, reaper: &Arc<Reaper>, script: &str) -> OciRuntime {
    std::fs::create_dir_all(dir).unwrap();
    let binary = dir.join("fake");
    std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = RuntimeOptions { binary: binary.to_str().unwrap().into(), ..RuntimeOptions::default() };
    OciRuntime::new(reaper.clone(), options, "ns", dir)
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("oci-runtime-{}-{name}", std::process::id()))
}

#[tokio::test]
async fn the_message_is_the_runtimes_own() {
    let reaper = Reaper::start().unwrap();
    let dir = folder("message");
    let log = r#"for a in "$@"; do [ "$last" = --log ] && log=$a; last=$a; done"#;
    let script = format!(
        "{log}\necho '{{\"level\":\"error\",\"msg\":\"disk is full\"}}' >> $log\necho '{{\"level\":\"info\",\"msg\":\"x\"}}' >> $log\nexit 1"
    );
    let failing = runtime(&dir, &reaper, &script);
    let error = failing.start("c", &dir, 1).await.unwrap_err();
    assert_eq!(error.message(), "OCI runtime start failed: disk is full");
    // The next failure says nothing: the old message must not be taken for it.
    let silent = runtime(&dir, &reaper, "echo broken >&2; exit 3");
    assert_eq!(silent.start("c", &dir, 1).await.unwrap_err().message(), "OCI runtime start failed: broken");
    let mute = runtime(&dir, &reaper, "exit 3");
    assert!(mute.start("c", &dir, 1).await.unwrap_err().message().contains("exit status 3"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_missing_runtime_is_named() {
    let reaper = Reaper::start().unwrap();
    let options = RuntimeOptions { binary: "/nonexistent/runtime".into(), ..RuntimeOptions::default() };
    let missing = OciRuntime::new(reaper, options, "ns", Path::new("/tmp"));
    let error = missing.start("c", Path::new("/tmp"), 1).await.unwrap_err();
    assert!(error.message().contains("/nonexistent/runtime"), "{error}");
}

#[tokio::test]
async fn a_hanging_runtime_is_ended() {
    let reaper = Reaper::start().unwrap();
    let dir = folder("hang");
    let hanging = runtime(&dir, &reaper, "sleep 600");
    let command = hanging.command();
    let limit = Duration::from_millis(100);
    let error = hanging.run(command, Streams::Capture(None), limit, "start").await.unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::DeadlineExceeded);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn kill_and_delete_of_what_is_gone() {
    let reaper = Reaper::start().unwrap();
    let dir = folder("gone");
    let gone = runtime(&dir, &reaper, "echo 'container does not exist' >&2; exit 1");
    assert!(gone.kill("c", 9, false).await.unwrap_err().is_not_found());
    gone.delete("c", false).await.unwrap();
    let input = runtime(&dir, &reaper, "cat >&2; exit 1");
    let error = input.update("c", b"{resources}".to_vec()).await.unwrap_err();
    assert!(error.message().contains("{resources}"), "{error}");
    std::fs::remove_dir_all(&dir).unwrap();
}
