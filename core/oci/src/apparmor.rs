//! AppArmor's default profile for containers.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use core_types::{Error, Result};

/// Where the host keeps profiles and what they include.
const DIRECTORY: &str = "/etc/apparmor.d";
/// The kernel's list of profiles.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// How long the parser may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often the parser is looked at.
const INTERVAL: Duration = Duration::from_millis(5);
/// Most bytes of the parser's complaint that are passed on.
const MAX_COMPLAINT: u64 = 4096;

/// What every container may do: all that the file system, its capabilities and namespaces let it.
const ALLOWED: [&str; 4] = ["network,", "capability,", "file,", "umount,"];

/// What no container may do: mount, and write to what the kernel shows of itself outside of the processes in
/// `/proc`, the shared memory limits there, and the cgroups in `/sys`.
const DENIED: [&str; 14] = [
    "deny @{PROC}/* w,",
    "deny @{PROC}/{[^1-9/],[^1-9/][^0-9/],[^1-9s/][^0-9y/][^0-9s/],[^1-9/][^0-9/][^0-9/][^0-9/]*}/** w,",
    "deny @{PROC}/sys/[^k]** w,",
    "deny @{PROC}/sys/kernel/{?,??,[^s][^h][^m]**} w,",
    "deny @{PROC}/sysrq-trigger rwklx,",
    "deny @{PROC}/kcore rwklx,",
    "deny mount,",
    "deny /sys/[^f]*/** wklx,",
    "deny /sys/f[^s]*/** wklx,",
    "deny /sys/fs/[^c]*/** wklx,",
    "deny /sys/fs/c[^g]*/** wklx,",
    "deny /sys/fs/cg[^r]*/** wklx,",
    "deny /sys/firmware/** rwklx,",
    "deny /sys/devices/virtual/powercap/** rwklx,",
];

/// Whether a profile of this name is loaded.
///
/// # Errors
/// What reading the kernel's list says.
pub fn is_loaded(name: &str) -> Result<bool> {
    let text = fs::read_to_string(LOADED).map_err(|error| Error::io(format!("read {LOADED}"), error))?;
    Ok(text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("))))
}

/// Loads the default profile under a name, unless one is loaded. It runs `apparmor_parser`: call it on a blocking
/// thread.
///
/// # Errors
/// InvalidArgument for a name that is none; what reading the list of profiles, running the parser, or the parser
/// says.
pub fn load_default(name: &str) -> Result<()> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(good) {
        return Err(Error::invalid_argument(format!("{name:?} is no name of an AppArmor profile")));
    }
    if is_loaded(name)? {
        return Ok(());
    }
    let has = |file: &str| Path::new(DIRECTORY).join(file).exists();
    let current = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
    run_parser(&profile(name, &current, &has))
}

/// The text of the default profile. `daemon` is the profile that the daemon runs under, as the kernel shows it, and
/// `has` says which files can be included.
fn profile(name: &str, daemon: &str, has: &dyn Fn(&str) -> bool) -> String {
    let mut text = String::new();
    if has("abi/3.0") {
        text += "abi <abi/3.0>,\n";
    }
    text += if has("tunables/global") { "#include <tunables/global>\n" } else { "@{PROC}=/proc/\n" };
    text += &format!("profile {name} flags=(attach_disconnected,mediate_deleted) {{\n");
    if has("abstractions/base") {
        text += "  #include <abstractions/base>\n";
    }
    // Signals come from the host, the runtimes, the daemon (whose profile is shown with its mode) and each other.
    let daemon = daemon.split_whitespace().next().map_or("unconfined", |name| name.trim_end_matches('\0'));
    let mut peers = vec!["unconfined", "runc", "crun"];
    if !daemon.is_empty() && !peers.contains(&daemon) {
        peers.push(daemon);
    }
    let signals = peers.into_iter().map(|peer| format!("signal (receive) peer={peer},"));
    let own =
        [format!("signal (send,receive) peer={name},"), format!("ptrace (trace,tracedby,read,readby) peer={name},")];
    let fixed = |rules: &[&str]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rules = fixed(&ALLOWED).into_iter().chain(signals).chain(own).chain(fixed(&DENIED));
    for rule in rules {
        text += &format!("  {rule}\n");
    }
    text += "  deny /sys/kernel/security/** rwklx,\n}\n";
    text
}

/// Gives the parser a profile to load in place of one of that name, without its cache.
fn run_parser(profile: &str) -> Result<()> {
    let failed = |error: io::Error| Error::io("run apparmor_parser", error);
    let mut command = Command::new("apparmor_parser");
    command.args(["--skip-cache", "--replace"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut parser = command.spawn().map_err(failed)?;
    let written = parser.stdin.take().map_or(Ok(()), |mut input| input.write_all(profile.as_bytes()));
    let ended = wait(&mut parser);
    if ended.is_err() {
        // It is in the way of nothing else, and is reaped with this.
        let _ = parser.kill();
        let _ = parser.wait();
    }
    let mut complaint = String::new();
    if let Some(errors) = parser.stderr.take() {
        let _ = errors.take(MAX_COMPLAINT).read_to_string(&mut complaint);
    }
    match (ended.map_err(failed)?, written) {
        (true, Ok(())) => Ok(()),
        (true, Err(error)) => Err(failed(error)),
        (false, _) => Err(Error::internal(format!("apparmor_parser refuses the profile: {}", complaint.trim()))),
    }
}

/// Whether the parser ended well.
fn wait(parser: &mut Child) -> io::Result<bool> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = parser.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_includes_what_is_there() {
        let bare = profile("cri", "", &|_| false);
        assert!(bare.starts_with("@{PROC}=/proc/\nprofile cri flags=(attach_disconnected,mediate_deleted) {\n"));
        assert!(!bare.contains("#include"));
        let whole = profile("cri", "containerd (enforce)\n", &|_| true);
        assert!(whole.starts_with("abi <abi/3.0>,\n#include <tunables/global>\n"));
        for line in ["#include <abstractions/base>", "signal (receive) peer=containerd,", "deny mount,"] {
            assert!(whole.lines().any(|have| have.trim() == line), "{line}");
        }
        let unconfined = profile("cri", "unconfined\n", &|_| false);
        assert_eq!(unconfined.matches("peer=unconfined").count(), 1);
    }

    #[test]
    fn the_profile_passes_the_parser() {
        if Command::new("apparmor_parser").arg("--version").output().is_err() {
            eprintln!("skipped: needs apparmor_parser");
            return;
        }
        let text = profile("containerd-test", "unconfined", &|file| Path::new(DIRECTORY).join(file).exists());
        let mut command = Command::new("apparmor_parser");
        command.args(["--skip-kernel-load", "--skip-cache"]).stdin(Stdio::piped());
        let mut parser = command.spawn().unwrap();
        parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(parser.wait().unwrap().success());
    }

    #[test]
    fn names_are_checked_before_anything_runs() {
        for bad in ["", "a b", "a\n}", "../x/y", "a{b}"] {
            assert_eq!(load_default(bad).unwrap_err().kind(), core_types::ErrorKind::InvalidArgument, "{bad}");
        }
    }
}
