use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use core_types::{Error, Result};

/// One line of `mountinfo` (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Unique while the mount exists.
    pub id: u64,
    /// The mount that this one is mounted on.
    pub parent: u64,
    /// Device number, `major:minor`.
    pub device: (u32, u32),
    /// The directory in the file system that is the root of the mount.
    pub root: PathBuf,
    /// Where it is mounted, as seen from this process's root.
    pub mount_point: PathBuf,
    /// Options of the mount.
    pub options: String,
    /// `shared:N`, `master:N` and the like.
    pub optional: Vec<String>,
    /// File system type.
    pub fs_type: String,
    /// What was given as source.
    pub source: PathBuf,
    /// Options of the file system.
    pub super_options: String,
}

/// The mounts that this thread sees, in the order of mounting.
///
/// # Errors
/// What reading `/proc/thread-self/mountinfo` says.
pub fn read_mounts() -> Result<Vec<MountInfo>> {
    let text = fs::read("/proc/thread-self/mountinfo").map_err(|error| Error::io("read mountinfo", error))?;
    Ok(parse_mounts(&text))
}

/// Parses the text of a `mountinfo` file; lines that are not understood are left out.
pub fn parse_mounts(text: &[u8]) -> Vec<MountInfo> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (device.0.parse().ok()?, device.1.parse().ok()?);
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let options = text(fields.next()?);
    let optional = fields.by_ref().take_while(|field| *field != b"-").map(text).collect();
    Some(MountInfo {
        id,
        parent,
        device,
        root,
        mount_point,
        options,
        optional,
        fs_type: text(fields.next()?),
        source: unescape(fields.next()?),
        super_options: fields.next().map(text).unwrap_or_default(),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// Undoes the kernel's `\ooo` for blanks, tabs, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            bytes.push(digits.iter().fold(0_u8, |value, digit| (value << 3) | (digit - b'0')));
            rest = &tail[3..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The mounts at `path` and below it, the latest first.
pub(crate) fn mounts_below(path: &Path) -> Result<Vec<PathBuf>> {
    let mut points: Vec<_> =
        read_mounts()?.into_iter().map(|mount| mount.mount_point).filter(|point| point.starts_with(path)).collect();
    points.reverse();
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_optional_fields() {
        let line = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/a\\134b rw,errors=continue\n";
        let mounts = parse_mounts(line);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].mount_point, Path::new("/mnt 2"));
        assert_eq!(mounts[0].source, Path::new("/dev/a\\b"));
        assert_eq!(mounts[0].optional, ["master:1", "shared:7"]);
        assert_eq!(mounts[0].super_options, "rw,errors=continue");
    }

    #[test]
    fn broken_lines_are_left_out() {
        assert!(parse_mounts(b"\n1 2\nx y z\n1 2 3:4 / /a rw -\n").is_empty());
    }

    #[test]
    fn the_own_mounts_are_there() {
        assert!(read_mounts().unwrap().iter().any(|mount| mount.mount_point == Path::new("/")));
    }
}
