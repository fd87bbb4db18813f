//! A real registry: Debian's `docker-registry`, on a free port of the loopback, in a directory of its own.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The registry; it ends when it is dropped.
pub struct DockerRegistry {
    child: Child,
    pub host: String,
    _root: tempfile::TempDir,
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DockerRegistry {
    /// Starts a registry; `None`, with a note, on a machine that has none.
    pub fn start() -> Option<Self> {
        if !Path::new("/usr/bin/docker-registry").exists() {
            eprintln!("skipped: docker-registry is not installed");
            return None;
        }
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let root = tempfile::tempdir().unwrap();
            let config = root.path().join("config.yml");
            let text = format!(
                "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\nhttp:\n  addr: 127.0.0.1:{port}\n",
                root.path().join("data").display()
            );
            std::fs::write(&config, text).unwrap();
            let child = Command::new("/usr/bin/docker-registry")
                .args(["serve".as_ref(), config.as_os_str()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut registry = Self { child, host: format!("127.0.0.1:{port}"), _root: root };
            let deadline = Instant::now() + Duration::from_secs(30);
            while Instant::now() < deadline && registry.child.try_wait().unwrap().is_none() {
                if TcpStream::connect(&registry.host).is_ok() {
                    return Some(registry);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("docker-registry does not start");
    }
}
