//! A place for configurations, plugins and records, and plugins that are shell scripts.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use super::*;

/// An answer to ADD with one address.
pub(super) const ANSWER: &str = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],"ips":[{"address":"10.0.0.2/24","interface":0}]}"#;

pub(super) struct Place {
    pub(super) dir: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["conf", "bin", "cache", "seen"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn config(&self) -> Config {
        Config {
            conf_dir: self.path("conf"),
            bin_dirs: vec![self.path("empty"), self.path("bin")],
            cache_dir: self.path("cache"),
            timeout: Duration::from_secs(60),
            ..Config::default()
        }
    }

    /// With a loopback plugin that does nothing.
    pub(super) fn cni(&self) -> Cni {
        self.cni_with(|_| {})
    }

    pub(super) fn cni_with(&self, change: impl FnOnce(&mut Config)) -> Cni {
        let lo = self.path("bin/loopback");
        if !lo.exists() {
            write_script(&lo, r#"echo '{"cniVersion":"0.3.1"}'"#);
        }
        let mut config = self.config();
        change(&mut config);
        Cni::new(config).unwrap()
    }

    pub(super) fn conf(&self, file: &str, text: &str) {
        fs::write(self.path("conf").join(file), text).unwrap();
    }

    /// A network of these plugins.
    pub(super) fn list(&self, file: &str, name: &str, version: &str, plugins: &[&str]) {
        let plugins: Vec<_> = plugins.iter().map(|kind| json!({"type": kind})).collect();
        self.conf(file, &json!({"name": name, "cniVersion": version, "plugins": plugins}).to_string());
    }

    /// A plugin that writes down how it is called and then does what `body` says; `$here` is this place.
    pub(super) fn plugin(&self, name: &str, body: &str) {
        let here = self.dir.path().display();
        let text = format!(
            "here={here}\nself={name}\ncat > $here/seen/$CNI_COMMAND.$self\n\
             echo \"$CNI_COMMAND $self $CNI_CONTAINERID [$CNI_NETNS] $CNI_IFNAME $CNI_ARGS\" >> $here/log\n{body}"
        );
        write_script(&self.path("bin").join(name), &text);
    }

    /// A plugin that answers ADD with [`ANSWER`], and all else with nothing.
    pub(super) fn good_plugin(&self, name: &str) {
        self.plugin(name, &format!("if [ $CNI_COMMAND = ADD ]; then echo '{ANSWER}'; fi"));
    }

    /// The calls so far, without their sandboxes.
    pub(super) fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }

    /// What a plugin was last given with a command.
    pub(super) fn seen(&self, command: &str, plugin: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path("seen").join(format!("{command}.{plugin}"))).unwrap()).unwrap()
    }

    /// The names of the records.
    pub(super) fn records(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("cache/results")) else { return Vec::new() };
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn write_script(path: &Path, text: &str) {
    // Written elsewhere first: it may run while it is replaced.
    let new = path.with_extension("new");
    fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, path).unwrap();
}

pub(super) fn sandbox(id: &str) -> Attachment {
    Attachment { id: id.into(), netns: "/proc/self/ns/net".into(), ..Attachment::default() }
}
