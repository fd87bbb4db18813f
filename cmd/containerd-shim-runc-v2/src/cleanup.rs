use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::SystemTime,
};

use containerd_api::task::v3::DeleteResponse;
use core_shim::{ExitRecord, OciRuntime, Reaper};
use prost::Message;

use crate::{Result, args::Args, options};

/// What a killed process reports.
const KILLED: u32 = 128 + 9;

/// Removes what a shim that died has left of a container; gives the message that says how init ended.
pub(crate) fn delete(args: &Args) -> Result<Vec<u8>> {
    let bundle = if args.bundle.as_os_str().is_empty() {
        let own = std::env::current_dir()?;
        own.parent().unwrap_or(Path::new("/")).join(&args.id)
    } else {
        args.bundle.clone()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(remove(args, &bundle))?;
    remove_dead_socket(&bundle);
    let pid = fs::read_to_string(bundle.join("init.pid")).ok().and_then(|pid| pid.trim().parse().ok());
    let response = match ExitRecord::read(&bundle) {
        Some(record) => {
            DeleteResponse { pid: record.pid, exit_status: record.status, exited_at: Some(record.time().into()) }
        }
        None => {
            DeleteResponse { pid: pid.unwrap_or(0), exit_status: KILLED, exited_at: Some(SystemTime::now().into()) }
        }
    };
    Ok(response.encode_to_vec())
}

async fn remove(args: &Args, bundle: &Path) -> Result<()> {
    let reaper = Reaper::start()?;
    let runtime = OciRuntime::new(reaper, options::read(bundle), &args.namespace, bundle);
    let deleted = runtime.delete(&args.id, true).await;
    let unmounted = core_mount::unmount_all(&bundle.join("rootfs"));
    // Both are tried. What could not be unmounted is an error: the daemon must not remove what is below. A
    // container that the runtime could not remove is told, but does not keep the bundle for ever.
    if let Err(error) = deleted {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "failed to remove runc container: {error}");
    }
    Ok(unmounted?)
}

/// Removes the shim's socket if nobody serves it any more.
fn remove_dead_socket(bundle: &Path) {
    let Ok(address) = fs::read_to_string(bundle.join("address")) else { return };
    let Some(path) = address.trim().strip_prefix("unix://").map(PathBuf::from) else { return };
    let refused = UnixStream::connect(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused {
        let _ = fs::remove_file(path);
    }
}
