use std::path::Path;

use serde_json::{Map, Value, json};

use crate::{
    attachment::arguments,
    error::{Cause, Error, PluginFailure, Result},
    exec::{Call, Runner},
    network::{Network, Plugin},
    result::NetworkResult,
    version::SpecVersion,
};

/// The specification's error code for a sandbox that the plugin does not know, so that there is nothing to do.
const UNKNOWN_SANDBOX: u64 = 3;

/// One network's plugins, to be run for one attachment.
pub(crate) struct Chain<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) network: &'a Network,
    pub(crate) version: SpecVersion,
    pub(crate) id: &'a str,
    pub(crate) netns: &'a Path,
    pub(crate) ifname: &'a str,
    pub(crate) args: &'a [(String, String)],
    pub(crate) capabilities: &'a Map<String, Value>,
}

impl Chain<'_> {
    /// Adds the plugins in order; each gets the result of the one before. `last` keeps the newest result, also
    /// when a later plugin fails.
    pub(crate) async fn add(&self, last: &mut Option<Value>) -> Result<NetworkResult> {
        let args = arguments(self.args)?;
        let mut parsed = NetworkResult::default();
        for plugin in &self.network.plugins {
            let call = self.call("ADD", plugin, &args);
            let output = self.runner.run(&call, &self.input(plugin, last.as_ref())).await?;
            let mut result: Value = serde_json::from_slice(&output).map_err(|error| call.garbage(error, &output))?;
            parsed = NetworkResult::parse(&result, self.version).map_err(|reason| call.garbage(reason, &output))?;
            if let Value::Object(fields) = &mut result
                && fields.get("cniVersion").and_then(Value::as_str).is_none_or(str::is_empty)
            {
                fields.insert("cniVersion".into(), json!(self.version.to_string()));
            }
            *last = Some(result);
        }
        Ok(parsed)
    }

    /// Deletes the plugins in reverse order. One that fails does not keep the others from letting go of what they
    /// hold; all failures are reported.
    pub(crate) async fn delete(&self, result: Option<&Value>) -> Result<()> {
        let args = arguments(self.args)?;
        let previous = result.filter(|_| self.version >= SpecVersion::CHECK);
        let mut errors = Vec::new();
        for plugin in self.network.plugins.iter().rev() {
            let call = self.call("DEL", plugin, &args);
            match self.runner.run(&call, &self.input(plugin, previous)).await {
                Ok(_) => {}
                Err(error) if self.is_gone(&error) => {
                    tracing::debug!(id = self.id, %error, "there was nothing left to take off");
                }
                Err(error) => errors.push(error),
            }
        }
        Error::all(errors)
    }

    /// Checks the plugins in order.
    pub(crate) async fn check(&self, result: Option<&Value>) -> Result<()> {
        if self.network.disable_check {
            return Ok(());
        }
        if self.version < SpecVersion::CHECK {
            return Err(Error::CheckUnsupported { network: self.network.name.clone(), version: self.version });
        }
        let args = arguments(self.args)?;
        for plugin in &self.network.plugins {
            self.runner.run(&self.call("CHECK", plugin, &args), &self.input(plugin, result)).await?;
        }
        Ok(())
    }

    fn call<'a>(&'a self, command: &'static str, plugin: &'a Plugin, args: &'a str) -> Call<'a> {
        Call {
            network: &self.network.name,
            plugin: &plugin.kind,
            command,
            id: self.id,
            netns: self.netns,
            ifname: self.ifname,
            args,
        }
    }

    fn input(&self, plugin: &Plugin, previous: Option<&Value>) -> Vec<u8> {
        let mut more = Map::new();
        if let Some(previous) = previous {
            more.insert("prevResult".into(), previous.clone());
        }
        let told = plugin.runtime_config(self.capabilities);
        if !told.is_empty() {
            more.insert("runtimeConfig".into(), Value::Object(told));
        }
        plugin.input(&self.network.name, self.version, more)
    }

    /// Whether a failed DEL only says that there is nothing left to delete.
    fn is_gone(&self, error: &Error) -> bool {
        let Error::Plugin(PluginFailure { cause: Cause::Reported { code, msg, details }, .. }) = error else {
            return false;
        };
        let says = |text: &str| msg.contains(text) || details.contains(text);
        *code == UNKNOWN_SANDBOX
            // The plugin's own helper that is missing is no sign of a clean end.
            || (says("not found") && !says("executable file not found"))
            || (self.netns.as_os_str().is_empty() && says("no such file or directory"))
    }
}

/// Runs GC or STATUS, which are about a network and no attachment, with every plugin in order.
pub(crate) async fn run_for_network(
    runner: &Runner,
    network: &Network,
    version: SpecVersion,
    command: &'static str,
    more: &Map<String, Value>,
) -> Result<()> {
    let mut errors = Vec::new();
    for plugin in &network.plugins {
        let call = Call {
            network: &network.name,
            plugin: &plugin.kind,
            command,
            id: "",
            netns: Path::new(""),
            ifname: "",
            args: "",
        };
        if let Err(error) = runner.run(&call, &plugin.input(&network.name, version, more.clone())).await {
            errors.push(error);
        }
    }
    Error::all(errors)
}
