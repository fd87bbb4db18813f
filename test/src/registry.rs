use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{Output, World, busybox, eventually};

/// Debian's `docker-registry` on a loopback port. Ended with its [`World`].
pub struct Registry {
    child: Child,
    port: u16,
}

impl Registry {
    /// Starts a registry with an empty store.
    ///
    /// # Panics
    /// When it does not serve within a minute.
    pub fn start(world: &World) -> Self {
        // A port that was free a moment ago can be taken by another test; then the registry ends and another is tried.
        for attempt in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
            let dir = world.dir().join(format!("registry-{attempt}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            let config = dir.join("config.yml");
            let text = format!(
                "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\nhttp:\n  addr: 127.0.0.1:{port}\n",
                dir.join("store").display()
            );
            std::fs::write(&config, text).expect("the configuration");
            let log = File::create(dir.join("log")).expect("a log");
            let mut child = Command::new("docker-registry")
                .args(["serve".as_ref(), config.as_os_str()])
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a log"))
                .stderr(log)
                .spawn()
                .expect("the registry starts");
            let serves = eventually("the registry serves", || {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    return Some(false);
                }
                TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(true)
            });
            if serves && matches!(child.try_wait(), Ok(None)) {
                return Self { child, port };
            }
        }
        panic!("no registry started");
    }

    /// Starts a registry with the image [`busybox`]; answers its name too.
    ///
    /// # Panics
    /// When it does not serve within a minute, or the image cannot be made.
    pub fn with_busybox(world: &World) -> (Self, String) {
        let registry = Self::start(world);
        let name = registry.push(&busybox(world), "busybox:latest");
        (registry, name)
    }

    /// The full name of an image in it.
    pub fn name(&self, image: &str) -> String {
        format!("127.0.0.1:{}/{image}", self.port)
    }

    /// Copies an OCI layout into it with `skopeo`.
    ///
    /// # Panics
    /// When that fails.
    pub fn push(&self, layout: &Path, image: &str) -> String {
        let name = self.name(image);
        Output::of(
            Command::new("skopeo")
                .args(["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"])
                .arg(format!("oci:{}:latest", layout.display()))
                .arg(format!("docker://{name}")),
        )
        .ok();
        name
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
