//! Parsing of the pseudo files.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::RdmaEntry;

/// More than any statistics file holds.
const LIMIT: u64 = 1 << 20;

/// Declares a struct of counters and how the keys of a flat file map to them.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $key:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = concat!("`", $key, "` of the file.")] pub $field: u64,)*
        }
        impl $name {
            pub(crate) fn parse(text: &str) -> Self {
                let mut found = Self::default();
                for (key, value) in $crate::files::pairs(text) {
                    match key {
                        $($key => found.$field = value,)*
                        _ => {}
                    }
                }
                found
            }
        }
    };
}
pub(crate) use counters;

/// The text of a pseudo file; none when the kernel does not have it.
pub(crate) fn text(dir: &Path, name: &str) -> io::Result<Option<String>> {
    let file = match File::open(dir.join(name)) {
        Ok(file) => file,
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    match file.take(LIMIT).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        // Opened, but the cgroup went away or the feature is off.
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == io::ErrorKind::NotFound
        || [Errno::NODEV, Errno::OPNOTSUPP, Errno::INVAL]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A single number; `max` (and what does not fit) is the largest.
pub(crate) fn number(dir: &Path, name: &str) -> io::Result<Option<u64>> {
    Ok(text(dir, name)?.map(|text| value(text.trim())))
}

/// A number or `max`; what is neither counts as 0.
pub(crate) fn value(word: &str) -> u64 {
    match word {
        "max" => u64::MAX,
        // Version 1 writes -1 for no limit in some files.
        "-1" => u64::MAX,
        _ => word.parse().unwrap_or(0),
    }
}

/// Lines of `key value`.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (key, rest) = line.split_once(' ')?;
        Some((key, value(rest.trim())))
    })
}

/// A device number `8:16`.
pub(crate) fn device(word: &str) -> Option<(u64, u64)> {
    let (major, minor) = word.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `rdma.current` or `rdma.max`: `mlx4_0 hca_handle=2 hca_object=2000`.
pub(crate) fn rdma(text: &str) -> Vec<RdmaEntry> {
    let count = |fields: &[&str], key: &str| {
        fields
            .iter()
            .filter_map(|field| field.split_once('='))
            .find(|(name, _)| *name == key)
            .map_or(0, |(_, word)| u32::try_from(value(word)).unwrap_or(u32::MAX))
    };
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let device = words.next()?.to_owned();
            let fields: Vec<_> = words.collect();
            Some(RdmaEntry {
                device,
                hca_handles: count(&fields, "hca_handle"),
                hca_objects: count(&fields, "hca_object"),
            })
        })
        .collect()
}

/// Page sizes of the files `hugetlb.<size>.<suffix>` in a directory, in order.
pub(crate) fn huge_page_sizes(dir: &Path, suffix: &str) -> io::Result<Vec<String>> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("hugetlb.")) else { continue };
        if let Some(size) = rest.strip_suffix(suffix).and_then(|size| size.strip_suffix('.'))
            && !size.contains('.')
        {
            sizes.push(size.to_owned());
        }
    }
    sizes.sort();
    Ok(sizes)
}
