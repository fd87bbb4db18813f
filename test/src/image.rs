use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Output, World};

const APPLETS: [&str; 30] = [
    "sh", "true", "false", "cat", "echo", "sleep", "ls", "id", "env", "kill", "mount", "ps", "touch", "rm", "stat",
    "head", "dd", "seq", "hostname", "pwd", "test", "stty", "grep", "readlink", "wc", "tail", "mkdir", "nc", "mknod",
    "sort",
];

fn umoci(args: &[&str]) {
    Output::of(Command::new("umoci").args(args)).ok();
}

fn busybox_root(root: &Path) {
    fs::create_dir_all(root.join("bin")).expect("a directory");
    for dir in ["etc", "tmp", "root", "dev", "proc", "sys"] {
        fs::create_dir_all(root.join(dir)).expect("a directory");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
        .expect("passwd");
    fs::write(root.join("etc/group"), "root:x:0:\nuser:x:1000:\nwheel:x:10:user\n").expect("group");
}

/// Makes an OCI layout from a tree, one layer for each call of `change`.
fn layout(world: &World, name: &str, changes: &[&dyn Fn(&Path)]) -> PathBuf {
    let layout = world.dir().join(format!("image-{name}"));
    let image = format!("{}:latest", layout.display());
    let text = layout.display().to_string();
    umoci(&["init", "--layout", &text]);
    umoci(&["new", "--image", &image]);
    for (at, change) in changes.iter().enumerate() {
        let bundle = world.dir().join(format!("bundle-{name}-{at}"));
        let path = bundle.display().to_string();
        umoci(&["unpack", "--image", &image, &path]);
        change(&bundle.join("rootfs"));
        umoci(&["repack", "--image", &image, &path]);
        fs::remove_dir_all(&bundle).expect("removal");
    }
    umoci(&[
        "config",
        "--image",
        &image,
        "--config.entrypoint",
        "",
        "--config.cmd",
        "/bin/sh",
        "--config.env",
        "PATH=/bin",
    ]);
    umoci(&[
        "config",
        "--image",
        &image,
        "--config.env",
        "FROM_IMAGE=yes",
        "--os",
        "linux",
        "--architecture",
        architecture(),
    ]);
    layout
}

pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An OCI layout with a busybox in one layer.
///
/// # Panics
/// When `umoci` or busybox is missing.
pub fn busybox(world: &World) -> PathBuf {
    layout(world, "busybox", &[&busybox_root])
}

/// An OCI layout with a busybox that sleeps for ever, to hold pods.
///
/// # Panics
/// When `umoci` or busybox is missing.
pub fn idle(world: &World) -> PathBuf {
    let layout = layout(world, "idle", &[&busybox_root]);
    let image = format!("{}:latest", layout.display());
    umoci(&["config", "--image", &image, "--config.entrypoint", "/bin/sleep", "--config.cmd", "2147483647"]);
    layout
}

/// An OCI layout whose upper layers remove, replace and hide files of the lower ones: in the end `/data` holds
/// `kept`, `new` and the directory `hidden` with `inside` only.
///
/// # Panics
/// When `umoci` or busybox is missing.
pub fn layered(world: &World) -> PathBuf {
    let first = |root: &Path| {
        busybox_root(root);
        fs::create_dir_all(root.join("data/hidden/deep")).expect("a directory");
        for file in ["data/kept", "data/gone", "data/changes", "data/hidden/a", "data/hidden/deep/b"] {
            fs::write(root.join(file), file).expect("a file");
        }
    };
    let second = |root: &Path| {
        fs::remove_file(root.join("data/gone")).expect("removal");
        fs::remove_file(root.join("data/changes")).expect("removal");
        fs::create_dir(root.join("data/changes")).expect("a directory");
        fs::write(root.join("data/new"), "new").expect("a file");
    };
    let third = |root: &Path| {
        fs::remove_dir_all(root.join("data/hidden")).expect("removal");
        fs::create_dir(root.join("data/hidden")).expect("a directory");
        fs::write(root.join("data/hidden/inside"), "inside").expect("a file");
        fs::remove_dir(root.join("data/changes")).expect("removal");
    };
    layout(world, "layered", &[&first, &second, &third])
}
