//! Plugins of a directory: executables `NN-name` that are started with the runtime and get their end of a socket.

use std::{
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use core_types::{Error, Result};
use tokio::{net::UnixStream, process::Command};

use crate::{
    Config, RuntimeCallbacks,
    peer::{Identity, Plugin, check_index, check_name},
};

/// Number of the descriptor by which a plugin gets its socket.
const SOCKET: i32 = 3;

/// A plugin that is to be started.
pub(crate) struct Candidate {
    path: PathBuf,
    index: String,
    name: String,
    settings: String,
}

/// The plugins of the directory, by name; none when there is no directory.
///
/// # Errors
/// What reading the directory or a configuration fails with. A file that is no plugin by its name is left out.
pub(crate) fn discover(config: &Config) -> Result<Vec<Candidate>> {
    let entries = match std::fs::read_dir(&config.plugin_path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("list NRI plugins of {}", config.plugin_path.display()), error)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let runs = std::fs::metadata(&path).is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0);
        let file = entry.file_name().to_string_lossy().into_owned();
        let parts = file.split_once('-').filter(|(index, name)| check_index(index).and(check_name(name)).is_ok());
        match parts {
            _ if !runs => {}
            Some((index, name)) => {
                let (index, name) = (index.to_owned(), name.to_owned());
                let settings = settings(&config.plugin_config_path, &index, &name)?;
                found.push(Candidate { path, index, name, settings });
            }
            None => tracing::warn!(path = %path.display(), "NRI: not a plugin, its name is not NN-name"),
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn settings(directory: &Path, index: &str, name: &str) -> Result<String> {
    for file in [format!("{index}-{name}.conf"), format!("{name}.conf")] {
        let path = directory.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(format!("read {}", path.display()), error)),
        }
    }
    Ok(String::new())
}

impl Candidate {
    /// `NN-name`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}-{}", self.index, self.name)
    }

    /// Starts the plugin and takes it in.
    ///
    /// # Errors
    /// What starting it fails with, and see [`Plugin::connect`]; its process is then killed.
    pub(crate) async fn start(self, config: &Config, callbacks: Arc<dyn RuntimeCallbacks>) -> Result<Plugin> {
        let failed = |error| Error::io(format!("start {}", self.path.display()), error);
        let (own, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        own.set_nonblocking(true).map_err(failed)?;
        let own = UnixStream::from_std(own).map_err(failed)?;
        let mut command = std::process::Command::new(&self.path);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("NRI_PLUGIN_NAME", &self.name).env("NRI_PLUGIN_IDX", &self.index);
        command.env("NRI_PLUGIN_SOCKET", SOCKET.to_string());
        core_sys::give_fd(&mut command, OwnedFd::from(theirs), SOCKET);
        let mut command = Command::from(command);
        let child = command.kill_on_drop(true).spawn().map_err(failed)?;
        // The command holds the plugin's end of the socket: kept, it would hide that the plugin is gone.
        drop(command);
        let identity = Identity { index: self.index, name: self.name };
        Plugin::connect(own, config, callbacks, Some((identity, self.settings, child))).await
    }
}
