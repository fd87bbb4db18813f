use core_types::{Error, Result};
use rustix::mount::{MountFlags, MountPropagationFlags};

/// Options sorted by what the kernel wants to hear.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) flags: MountFlags,
    pub(crate) propagation: Option<MountPropagationFlags>,
    pub(crate) remount: bool,
    pub(crate) recursive: bool,
    /// What the file system itself reads.
    pub(crate) data: Vec<String>,
}

impl Options {
    /// The data as the one string that `mount(2)` takes.
    pub(crate) fn data_string(&self) -> String {
        self.data.join(",")
    }
}

/// Sorts option words. Words that are nobody's are the file system's.
pub(crate) fn parse(words: &[String]) -> Result<Options> {
    let mut options =
        Options { flags: MountFlags::empty(), propagation: None, remount: false, recursive: false, data: Vec::new() };
    for word in words {
        if let Some((flag, set)) = flag_of(word) {
            options.flags.set(flag, set);
        } else if let Some(propagation) = propagation_of(word) {
            options.propagation = Some(propagation);
        } else {
            match word.as_str() {
                "" | "defaults" => {}
                "bind" => options.flags |= MountFlags::BIND,
                "rbind" => {
                    options.flags |= MountFlags::BIND;
                    options.recursive = true;
                }
                "remount" => options.remount = true,
                "loop" => {
                    return Err(Error::unimplemented(
                        "mount option \"loop\" is not offered: set up the loop device first and mount that",
                    ));
                }
                other if other.starts_with("uidmap=") || other.starts_with("gidmap=") => {
                    return Err(Error::unimplemented(format!(
                        "mount option {other:?}: id-mapped mounts are not offered"
                    )));
                }
                other if other.starts_with("X-containerd.") => {}
                other => options.data.push(other.to_owned()),
            }
        }
    }
    Ok(options)
}

fn flag_of(word: &str) -> Option<(MountFlags, bool)> {
    Some(match word {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        "suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "noatime" => (MountFlags::NOATIME, true),
        "atime" => (MountFlags::NOATIME, false),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "diratime" => (MountFlags::NODIRATIME, false),
        "relatime" => (MountFlags::RELATIME, true),
        "norelatime" => (MountFlags::RELATIME, false),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nostrictatime" => (MountFlags::STRICTATIME, false),
        "mand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, true),
        "nomand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, false),
        _ => return None,
    })
}

fn propagation_of(word: &str) -> Option<MountPropagationFlags> {
    let (name, recursive) = match word.strip_prefix('r') {
        Some(rest) if matches!(rest, "shared" | "slave" | "private" | "unbindable") => (rest, true),
        _ => (word, false),
    };
    let flag = match name {
        "shared" => MountPropagationFlags::SHARED,
        "slave" => MountPropagationFlags::DOWNSTREAM,
        "private" => MountPropagationFlags::PRIVATE,
        "unbindable" => MountPropagationFlags::UNBINDABLE,
        _ => return None,
    };
    Some(if recursive { flag | MountPropagationFlags::REC } else { flag })
}

#[cfg(test)]
mod tests {
    use core_types::ErrorKind;

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_last_of_two_opposites_counts_and_data_stays_in_order() {
        let options = parse(&words(&["ro", "rw", "nosuid", "size=1m", "rslave", "mode=755", "rbind"])).unwrap();
        assert_eq!(options.flags, MountFlags::NOSUID | MountFlags::BIND);
        assert!(options.recursive);
        assert_eq!(options.data_string(), "size=1m,mode=755");
        assert_eq!(options.propagation, Some(MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC));
    }

    #[test]
    fn what_is_not_offered_is_refused() {
        for word in ["loop", "uidmap=0:1:2"] {
            assert_eq!(parse(&words(&[word])).unwrap_err().kind(), ErrorKind::Unimplemented, "{word}");
        }
    }
}
