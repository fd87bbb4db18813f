use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use containerd_api::{
    any,
    runc::v1::Options,
    runtime::bootstrap::v1::{BootstrapParams, LogLevel},
};
use prost::Message;
use prost_types::Any;
use serde::Deserialize;

use crate::{
    Result,
    args::Args,
    options,
    socket::{self, Bound},
};

/// Annotations that put several containers into one shim, in order of preference.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];
/// More than any request to start.
const MAX_INPUT: u64 = 10 << 20;
/// Says that the daemon understands more than a bare address.
const MAX_VERSION: &str = "MAX_SHIM_VERSION";
/// The daemon's ttrpc socket.
pub(crate) const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What the daemon asks for, in whichever way it does.
struct Request {
    /// From the bootstrap protocol (daemons from 2.3 on).
    bootstrap: bool,
    ttrpc: Option<String>,
    socket_dir: Option<String>,
    debug: bool,
    options: Options,
}

impl Request {
    fn read(args: &Args) -> Result<Self> {
        let mut input = Vec::new();
        std::io::stdin().take(MAX_INPUT).read_to_end(&mut input)?;
        Self::parse(args, &input)
    }

    fn parse(args: &Args, input: &[u8]) -> Result<Self> {
        let debug = args.debug;
        // Both possible messages begin with two strings; only the new one repeats what the flags say.
        let params = BootstrapParams::decode(input)
            .ok()
            .filter(|params| !input.is_empty() && params.instance_id == args.id && params.namespace == args.namespace);
        if let Some(params) = params {
            let extension = params.extensions.iter().filter_map(|extension| extension.value.as_ref());
            let options = options::unpack(extension.into_iter().find(|value| any::is(value, options::NAME)))?;
            return Ok(Self {
                bootstrap: true,
                ttrpc: Some(params.containerd_ttrpc_address).filter(|address| !address.is_empty()),
                socket_dir: params.socket_dir,
                debug: debug || params.log_level <= LogLevel::Debug as i32,
                options,
            });
        }
        // Older daemons send the options alone.
        let options = Any::decode(input).ok().filter(|_| !input.is_empty());
        let options = options::unpack(options.as_ref()).unwrap_or_default();
        Ok(Self { bootstrap: false, ttrpc: None, socket_dir: None, debug, options })
    }
}

/// Starts a server for the bundle in the working directory, unless its pod has one; gives the answer.
pub(crate) fn start(args: &Args) -> Result<Vec<u8>> {
    let request = Request::read(args)?;
    let group = group(Path::new("config.json"), &args.id)?;
    let path = socket::path(request.socket_dir.as_deref(), &args.address, &args.namespace, &group);
    let address = format!("unix://{}", path.display());
    match socket::bind(&path).map_err(|error| format!("create new shim socket {}: {error}", path.display()))? {
        Bound::Served => {}
        Bound::New(listener) => {
            if let Err(error) = spawn(args, &request, listener.into()) {
                // Nobody will serve it.
                let _ = fs::remove_file(&path);
                return Err(error);
            }
        }
    }
    // Daemons before 1.7 find the shim again by this file.
    write_address(&address)?;
    Ok(answer(&address, request.bootstrap, std::env::var_os(MAX_VERSION).is_some()).into_bytes())
}

/// The answer that the daemon understands.
fn answer(address: &str, bootstrap: bool, versioned: bool) -> String {
    match (bootstrap, versioned) {
        (true, _) => format!(r#"{{"version":3,"address":"{address}","protocol":"ttrpc"}}"#),
        // Daemons of 1.7 refuse a version that they do not know; 2.x ones serve it as well as 3.
        (false, true) => format!(r#"{{"version":2,"address":"{address}","protocol":"ttrpc"}}"#),
        (false, false) => address.to_owned(),
    }
}

/// Which containers share a shim with this one.
fn group(config: &Path, id: &str) -> Result<String> {
    let text = match fs::read(config) {
        // A sandbox need not have a specification.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(id.to_owned()),
        text => text.map_err(|error| format!("read {}: {error}", config.display()))?,
    };
    let spec: Spec = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", config.display()))?;
    let annotations = spec.annotations.unwrap_or_default();
    let group = GROUPS.iter().find_map(|name| annotations.get(*name));
    Ok(group.map_or(id, String::as_str).to_owned())
}

/// Leaves a server behind. It gets the listening socket, so that whoever connects from now on is served.
fn spawn(args: &Args, request: &Request, listener: OwnedFd) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["-namespace", &args.namespace, "-id", &args.id, "-address", &args.address]);
    if request.debug {
        command.arg("-debug");
    }
    if let Some(ttrpc) = &request.ttrpc {
        command.env(TTRPC_ADDRESS, ttrpc);
    }
    command.stdin(listener).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let pid = command.spawn().map_err(|error| format!("start the shim: {error}"))?.id();
    if !request.options.shim_cgroup.is_empty() {
        let path = &request.options.shim_cgroup;
        core_cgroups::Cgroup::existing(path)
            .and_then(|cgroup| cgroup.add_process(pid))
            .map_err(|error| format!("failed to join cgroup {path}: {error}"))?;
    }
    adjust_oom_score(pid);
    Ok(())
}

/// The shim is to be killed rather than the daemon, by one point; it never gets a lower score than it has.
fn adjust_oom_score(pid: u32) {
    let score = |pid: u32| -> Option<i32> {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
    };
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get().unsigned_abs());
    let (Some(daemon), Some(own)) = (score(parent), score(pid)) else { return };
    let wanted = daemon.saturating_add(1).min(1000);
    if wanted > own {
        // Not being allowed to costs nothing but the preference.
        let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), wanted.to_string());
    }
}

fn write_address(address: &str) -> Result<()> {
    let temp = Path::new(".address");
    fs::write(temp, address)
        .and_then(|()| fs::rename(temp, "address"))
        .map_err(|error| format!("write address: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args { id: "c1".into(), namespace: "ns".into(), ..Args::default() }
    }

    #[test]
    fn both_protocols_are_understood() {
        let packed = any::pack(options::NAME, &Options { binary_name: "crun".into(), ..Options::default() });
        let old = Request::parse(&args(), &packed.encode_to_vec()).unwrap();
        assert!(!old.bootstrap);
        assert_eq!(old.options.binary_name, "crun");
        let params = BootstrapParams {
            instance_id: "c1".into(),
            namespace: "ns".into(),
            containerd_ttrpc_address: "/run/t".into(),
            extensions: vec![containerd_api::runtime::bootstrap::v1::Extension { value: Some(packed) }],
            ..BootstrapParams::default()
        };
        let new = Request::parse(&args(), &params.encode_to_vec()).unwrap();
        assert!(new.bootstrap && !new.debug);
        assert_eq!((new.ttrpc.as_deref(), new.options.binary_name.as_str()), (Some("/run/t"), "crun"));
        assert!(!Request::parse(&args(), &[]).unwrap().bootstrap);
    }

    #[test]
    fn the_answer_suits_the_daemon() {
        assert_eq!(answer("unix:///s", false, false), "unix:///s");
        assert!(answer("unix:///s", false, true).contains(r#""version":2"#));
        assert_eq!(answer("unix:///s", true, true), r#"{"version":3,"address":"unix:///s","protocol":"ttrpc"}"#);
    }
}
