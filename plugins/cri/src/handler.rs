//! Runtime handlers: what a pod's `runtimeClassName` means here.

use std::{collections::BTreeMap, sync::Arc};

use containerd_api::{runc::v1::Options as RuncOptions, runtimeoptions::v1::Options as RuntimeOptions};
use core_events::Any;
use core_oci::Spec;
use core_types::{Error, Result};
use prost::Message;
use serde::Deserialize;

use crate::config::{Runtime, Runtimes};

/// The shim whose options are known.
const RUNC: &str = "io.containerd.runc.v2";

/// A runtime handler, ready for use.
#[derive(Debug)]
pub(crate) struct Handler {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Its section.
    pub(crate) config: Runtime,
    /// Options for its shim.
    pub(crate) options: Option<Any>,
    /// The specification that containers start from; None for the default.
    pub(crate) base_spec: Option<Spec>,
    /// Whether its cgroups are made by systemd.
    pub(crate) systemd_cgroup: bool,
}

impl Handler {
    fn new(name: &str, config: &Runtime) -> Result<Self> {
        let in_handler = |error: Error| error.context(format_args!("runtime {name:?}"));
        if config.runtime_type.is_empty() {
            return Err(in_handler(Error::invalid_argument("runtime_type is not set")));
        }
        let runc = runc_options(&config.options).map_err(in_handler);
        let (options, systemd_cgroup) = if config.runtime_type == RUNC {
            let options = runc?;
            (any("containerd.runc.v1.Options", &options), options.systemd_cgroup)
        } else {
            // Other shims get the section itself; many of them know this flag too.
            (runtime_options(&config.options).map_err(in_handler)?, runc.is_ok_and(|options| options.systemd_cgroup))
        };
        let options = Some(options).filter(|_| !config.options.is_empty());
        let base_spec = base_spec(&config.base_runtime_spec).map_err(in_handler)?;
        let mut config = config.clone();
        if config.sandboxer.is_empty() {
            config.sandboxer = "podsandbox".into();
        }
        Ok(Self { name: name.to_owned(), config, options, base_spec, systemd_cgroup })
    }

    /// What the task manager finds its shim by.
    pub(crate) fn shim(&self) -> &str {
        if self.config.runtime_path.is_empty() { &self.config.runtime_type } else { &self.config.runtime_path }
    }
}

/// All handlers.
#[derive(Debug)]
pub(crate) struct Handlers {
    by_name: BTreeMap<String, Arc<Handler>>,
    default: Arc<Handler>,
}

impl Handlers {
    /// Handlers of the configuration.
    ///
    /// # Errors
    /// InvalidArgument for a section that is wrong or a default that is not there.
    pub(crate) fn new(config: &Runtimes) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for (name, section) in &config.runtimes {
            by_name.insert(name.clone(), Arc::new(Handler::new(name, section)?));
        }
        let name = &config.default_runtime_name;
        let default = by_name.get(name).cloned().ok_or_else(|| {
            Error::invalid_argument(format!(
                "default_runtime_name {name:?} is none of the runtimes in the configuration"
            ))
        })?;
        Ok(Self { by_name, default })
    }

    /// The handler of a name; the default for an empty one.
    ///
    /// # Errors
    /// InvalidArgument; says which there are.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Handler>> {
        if name.is_empty() {
            return Ok(Arc::clone(&self.default));
        }
        self.by_name.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
            Error::invalid_argument(format!(
                "runtime_handler: no runtime for {name:?} is configured; there are {}",
                known.join(", ")
            ))
        })
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Handler>> {
        self.by_name.values()
    }

    /// The one for pods that name none.
    pub(crate) fn default(&self) -> &Arc<Handler> {
        &self.default
    }
}

fn any(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: type_url.to_owned(), value: message.encode_to_vec().into() }
}

/// The section `options` of a runc handler, by containerd's names.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RuncSection {
    no_new_keyring: bool,
    shim_cgroup: String,
    io_uid: u32,
    io_gid: u32,
    binary_name: String,
    root: String,
    systemd_cgroup: bool,
    criu_image_path: String,
    criu_work_path: String,
}

fn runc_options(section: &toml::Table) -> Result<RuncOptions> {
    let section: RuncSection = section
        .clone()
        .try_into()
        .map_err(|error| Error::invalid_argument(format!("options: {}", error.to_string().trim_end())))?;
    Ok(RuncOptions {
        no_new_keyring: section.no_new_keyring,
        shim_cgroup: section.shim_cgroup,
        io_uid: section.io_uid,
        io_gid: section.io_gid,
        binary_name: section.binary_name,
        root: section.root,
        systemd_cgroup: section.systemd_cgroup,
        criu_image_path: section.criu_image_path,
        criu_work_path: section.criu_work_path,
        ..RuncOptions::default()
    })
}

/// Options of a shim that is not known: a type and a file, or else the section as it stands.
fn runtime_options(section: &toml::Table) -> Result<Any> {
    let text = |key: &str| section.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let mut options = RuntimeOptions {
        type_url: text("TypeUrl"),
        config_path: text("ConfigPath"),
        config_body: text("ConfigBody").into_bytes(),
    };
    if options.config_path.is_empty() && options.config_body.is_empty() {
        let body = toml::to_string(section).map_err(|error| Error::invalid_argument(format!("options: {error}")))?;
        options.config_body = body.into_bytes();
    }
    Ok(any("runtimeoptions.v1.Options", &options))
}

fn base_spec(path: &str) -> Result<Option<Spec>> {
    if path.is_empty() {
        return Ok(None);
    }
    let json = std::fs::read(path).map_err(|error| Error::io(format_args!("read base_runtime_spec {path}"), error))?;
    Spec::from_slice(&json).map(Some).map_err(|error| error.context(format_args!("base_runtime_spec {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_runc_and_unknown_names_say_what_there_is() {
        let handlers = Handlers::new(&Runtimes::default()).unwrap();
        let runc = handlers.get("").unwrap();
        assert_eq!((runc.shim(), runc.config.sandboxer.as_str()), (RUNC, "podsandbox"));
        let options = RuncOptions::decode(&runc.options.as_ref().unwrap().value[..]).unwrap();
        assert_eq!(options, RuncOptions::default());
        let error = handlers.get("kata").unwrap_err();
        assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
        assert!(error.message().contains("runtime_handler") && error.message().contains("runc"), "{error}");
    }

    #[test]
    fn options_are_typed_for_runc_and_passed_on_for_others() {
        let config: Runtimes = toml::from_str(
            r#"
            default_runtime_name = "crun"
            [runtimes.crun]
            runtime_type = "io.containerd.runc.v2"
            [runtimes.crun.options]
            BinaryName = "/usr/bin/crun"
            SystemdCgroup = true
            [runtimes.wasm]
            runtime_type = "io.containerd.wasm.v1"
            runtime_path = "/opt/shim"
            [runtimes.wasm.options]
            Engine = "fast"
            "#,
        )
        .unwrap();
        let handlers = Handlers::new(&config).unwrap();
        let crun = handlers.default();
        let options = RuncOptions::decode(&crun.options.as_ref().unwrap().value[..]).unwrap();
        assert_eq!((options.binary_name.as_str(), crun.systemd_cgroup), ("/usr/bin/crun", true));
        let wasm = handlers.get("wasm").unwrap();
        let options = RuntimeOptions::decode(&wasm.options.as_ref().unwrap().value[..]).unwrap();
        assert_eq!((wasm.shim(), &options.config_body[..]), ("/opt/shim", &b"Engine = \"fast\"\n"[..]));
    }

    #[test]
    fn wrong_sections_are_refused_by_name() {
        for (text, named) in [
            ("default_runtime_name = \"no\"", "\"no\""),
            ("[runtimes.runc]\nruntime_type = \"\"", "runtime_type"),
            (
                "[runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n[runtimes.runc.options]\nIoUid = \"x\"",
                "options",
            ),
            (
                "[runtimes.runc]\nruntime_type = \"a.b.v1\"\nbase_runtime_spec = \"/nowhere/spec.json\"",
                "/nowhere/spec.json",
            ),
        ] {
            let error = Handlers::new(&toml::from_str(text).unwrap()).unwrap_err();
            assert!(error.message().contains(named), "{error}");
        }
    }
}
