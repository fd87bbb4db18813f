use std::{fs, io, path::Path};

use core_mount::{Mount, mount_all};
use core_types::{Error, Result, ResultExt};
use rustix::fs::{FileType, Mode, OFlags};

/// Checks that overlays over directories in `root` can be mounted, with `options`, by mounting one in a mount
/// namespace of its own, so that the host never sees it.
///
/// # Errors
/// Says what is in the way and what can be done.
pub fn supported(root: &Path, options: &[String]) -> Result<()> {
    let doing = format!("check for overlayfs in {}", root.display());
    let place = tempfile::Builder::new().prefix("check-overlayfs-").tempdir_in(root).doing(&doing)?;
    let path = place.path();
    for name in ["lower1", "lower2", "upper", "work", "merged"] {
        fs::create_dir(path.join(name)).doing(&doing)?;
    }
    if !names_have_types(path).doing(&doing)? {
        return Err(Error::failed_precondition(format!(
            "{}: the file system does not support d_type; reformat xfs with ftype=1",
            root.display()
        )));
    }
    let directory = |name: &str| path.join(name).display().to_string();
    let mut all = vec![
        format!("workdir={}", directory("work")),
        format!("upperdir={}", directory("upper")),
        format!("lowerdir={}:{}", directory("lower2"), directory("lower1")),
    ];
    all.extend(options.iter().cloned());
    let mount = Mount { kind: "overlay".into(), source: "overlay".into(), target: String::new(), options: all };
    let merged = path.join("merged");
    let mounted = std::thread::spawn(move || {
        core_sys::private_mount_namespace()
            .map_err(|error| Error::io("enter a mount namespace (root is needed)", error))?;
        mount_all(&[mount], &merged)
        // The mount ends with this thread, the last one in its namespace.
    });
    let mounted = mounted.join().unwrap_or_else(|_| Err(Error::internal("the check panicked")));
    mounted.map_err(|error| {
        let hint = if overlay_is_known() {
            "the directory must not be on overlayfs, NFS, FUSE or eCryptfs itself, and mount_options must be ones that \
             this kernel knows"
        } else {
            "load the kernel module: modprobe overlay"
        };
        error.context(format_args!("overlayfs does not work in {} ({hint})", root.display()))
    })
}

/// Whether the kernel has overlayfs at this moment. A module may still be loaded by the first mount.
fn overlay_is_known() -> bool {
    fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.trim_end().ends_with("\toverlay")))
}

/// Whether directory entries say what they are.
fn names_have_types(directory: &Path) -> io::Result<bool> {
    let directory = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        if entry?.file_type() == FileType::Unknown {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds to the configured options those that this kernel needs: `userxattr` in a user namespace and `index=off`,
/// without which a layer cannot be the lower one of two mounts under other upper ones.
pub(crate) fn complete(mut options: Vec<String>, root: &Path) -> Vec<String> {
    let has = |options: &[String], name: &str| {
        options.iter().any(|option| option.split_once('=').map_or(option.as_str(), |(key, _)| key) == name)
    };
    if !has(&options, "userxattr") && core_sys::in_user_namespace() && !is_tmpfs(root) {
        options.push("userxattr".into());
    }
    if !has(&options, "index") && Path::new("/sys/module/overlay/parameters/index").exists() {
        options.push("index=off".into());
    }
    options
}

/// tmpfs has no user attributes of its own.
fn is_tmpfs(path: &Path) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC)
}

/// Whether this kernel maps ids of overlay mounts (5.19).
pub(crate) fn maps_ids() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(19))
}
