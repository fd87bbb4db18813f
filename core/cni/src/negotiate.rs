use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use serde::Deserialize;

use crate::{
    error::{Cause, Error, PluginFailure, Result},
    exec::{Call, Runner},
    network::Network,
    version::SpecVersion,
};

/// What a plugin must not mind in VERSION, though some older ones want it to be there.
const DUMMY: &str = "dummy";

/// The versions that plugins speak, asked once for each state of a binary.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<HashMap<PathBuf, (SystemTime, BTreeSet<SpecVersion>)>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    supported_versions: Vec<String>,
}

impl Versions {
    /// The highest version of the network that all of its plugins speak. Nothing is asked of a network with one
    /// version; where none is common to all, the highest is taken and the plugin says what it minds.
    pub(crate) async fn choose(&self, runner: &Runner, network: &Network) -> Result<SpecVersion> {
        if network.versions.len() < 2 {
            return Ok(network.highest());
        }
        let mut common: BTreeSet<SpecVersion> = network.versions.iter().copied().collect();
        for plugin in &network.plugins {
            let spoken = self.of(runner, &plugin.kind).await?;
            common.retain(|version| spoken.contains(version));
        }
        Ok(common.last().copied().unwrap_or(network.highest()))
    }

    /// The versions that a plugin speaks.
    pub(crate) async fn of(&self, runner: &Runner, plugin: &str) -> Result<BTreeSet<SpecVersion>> {
        let path = runner.find(plugin)?;
        let modified = path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
        if let Some((then, versions)) = known
            && then == modified
        {
            return Ok(versions);
        }
        let versions = ask(runner, plugin).await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, (modified, versions.clone()));
        Ok(versions)
    }
}

async fn ask(runner: &Runner, plugin: &str) -> Result<BTreeSet<SpecVersion>> {
    let call =
        Call { network: "", plugin, command: "VERSION", id: DUMMY, netns: Path::new(DUMMY), ifname: DUMMY, args: "" };
    let input = format!(r#"{{"cniVersion":"{}"}}"#, SpecVersion::NEWEST);
    let output = match runner.run(&call, input.as_bytes()).await {
        Ok(output) => output,
        // The first version has no VERSION.
        Err(Error::Plugin(PluginFailure { cause: Cause::Reported { msg, .. }, .. })) if msg.contains("VERSION") => {
            return Ok([SpecVersion::OLDEST].into());
        }
        Err(error) => return Err(error),
    };
    let answer: Answer = serde_json::from_slice(&output).map_err(|error| call.garbage(error, &output))?;
    let parse = |text: &String| text.parse().map_err(|error: String| call.garbage(error, &output));
    let versions: BTreeSet<_> = answer.supported_versions.iter().map(parse).collect::<Result<_>>()?;
    // Those who answer without a list are of before there was one.
    Ok(if versions.is_empty() { [SpecVersion::OLDEST, SpecVersion::new(0, 2, 0)].into() } else { versions })
}
