use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use core_types::Digest;

use crate::{Applied, ApplyOptions, Entry, Kind, Result, Timestamp, Whiteouts, Writer, apply, apply::xattrs_at};

/// A layer made in memory.
pub(crate) struct Layer(Writer<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(Writer::new(Vec::new()))
    }

    pub(crate) fn add(mut self, entry: &Entry, data: &[u8]) -> Self {
        self.0.entry(entry).unwrap();
        self.0.data(data).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, data: &str) -> Self {
        let entry = Entry { size: data.len() as u64, ..entry(path, Kind::File) };
        self.add(&entry, data.as_bytes())
    }

    pub(crate) fn dir(self, path: &str, mode: u32) -> Self {
        self.add(&Entry { mode, ..entry(path, Kind::Directory) }, b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.add(&entry(path, Kind::Symlink(target.into())), b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.add(&entry(path, Kind::HardLink(target.into())), b"")
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0.finish().unwrap()
    }
}

pub(crate) fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        kind,
        path: path.into(),
        mode: 0o644,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: 0,
        mtime: Timestamp { seconds: 1_500_000_000, nanos: 123_456_789 },
        atime: None,
        xattrs: Vec::new(),
        sparse: None,
    }
}

pub(crate) fn apply_plain(root: &Path, layer: &[u8]) -> Result<Applied> {
    apply(root, layer, &ApplyOptions::default())
}

pub(crate) fn apply_overlay(root: &Path, layer: &[u8]) -> Result<Applied> {
    let options = ApplyOptions { whiteouts: Whiteouts::Overlay { user_xattr: false }, ..ApplyOptions::default() };
    apply(root, layer, &options)
}

/// Everything that matters of everything below a directory, as text by path.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut links = HashMap::new();
    visit(root, Path::new(""), &mut found, &mut links);
    found
}

fn visit(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>, links: &mut HashMap<u64, PathBuf>) {
    let mut names: Vec<_> = fs::read_dir(root.join(below)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let path = below.join(name);
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let kind = meta.file_type();
        let mut text = format!(
            "{:o} {}:{} {}.{:09} dev {}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            if kind.is_char_device() || kind.is_block_device() { meta.rdev() } else { 0 }
        );
        if kind.is_file() {
            let data = fs::read(&full).unwrap();
            text += &format!(" {} bytes {}", data.len(), Digest::of(&data));
        } else if kind.is_symlink() {
            text += &format!(" -> {}", fs::read_link(&full).unwrap().display());
        }
        if !kind.is_dir() && meta.nlink() > 1 {
            let first = links.entry(meta.ino()).or_insert_with(|| path.clone());
            text += &format!(" linked to {}", first.display());
        }
        let mut attributes = xattrs_at(full.as_os_str().as_bytes()).unwrap();
        attributes.retain(|(name, _)| name != b"security.selinux");
        for (name, value) in attributes {
            text += &format!(" {}={}", show(name), show(value));
        }
        found.insert(path.clone(), text);
        if kind.is_dir() {
            visit(root, &path, found, links);
        }
    }
}

fn show(bytes: Vec<u8>) -> String {
    format!("{:?}", std::ffi::OsString::from_vec(bytes))
}

/// The names below a directory.
pub(crate) fn names(root: &Path) -> Vec<String> {
    tree(root).into_keys().map(|path| path.to_str().unwrap().to_owned()).collect()
}

/// Runs a shell script; false, with a note, when the machine lacks a program of it.
pub(crate) fn script(needs: &[&str], directory: &Path, text: &str) -> bool {
    for program in needs {
        if !Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().unwrap().success() {
            eprintln!("skipped: {program} is not installed");
            return false;
        }
    }
    let output = Command::new("sh").args(["-euc", text]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// Whether tests may make devices and owners.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

/// The view of an overlay of the given layer directories, bottom first, in a mount namespace of this test.
pub(crate) fn overlay_view(base: &Path, layers: &[&Path]) -> Option<PathBuf> {
    if let Err(error) = core_sys::private_mount_namespace() {
        eprintln!("skipped: no mount namespace: {error}");
        return None;
    }
    let view = base.join("view");
    fs::create_dir(&view).unwrap();
    let lower: Vec<_> = layers.iter().rev().map(|path| path.to_str().unwrap()).collect();
    let mount = core_mount::Mount {
        kind: "overlay".into(),
        source: "overlay".into(),
        target: String::new(),
        options: vec![format!("lowerdir={}", lower.join(":"))],
    };
    match core_mount::mount_all(&[mount], &view) {
        Ok(()) => Some(view),
        Err(error) => {
            eprintln!("skipped: no overlay here: {error}");
            None
        }
    }
}
