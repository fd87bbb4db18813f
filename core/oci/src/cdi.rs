use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use core_types::{Error, Result};

use crate::Spec;
use edits::Edits;
use file::SpecFile;

/// Changes to a specification.
mod edits;
/// Files that describe devices.
mod file;
/// As much of YAML as those files use.
mod yaml;

/// Most files that are read from a directory.
const MAX_FILES: usize = 4096;

/// The devices that the files of some directories describe (Container Device Interface specification, up to 1.1).
#[derive(Debug, Default)]
pub struct CdiRegistry {
    files: Vec<SpecFile>,
    /// Files that could not be read, and why.
    failures: Vec<String>,
}

impl CdiRegistry {
    /// Reads directories, where a device in a later one stands in for that of the same name in an earlier one. A
    /// directory that is not there is empty; a file that is not right is left out, and named when a device is
    /// not found.
    pub fn load(directories: &[PathBuf]) -> Self {
        let mut registry = Self::default();
        for (priority, directory) in directories.iter().enumerate() {
            let Ok(listing) = fs::read_dir(directory) else { continue };
            let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).filter(|p| is_spec(p)).collect();
            paths.sort();
            for path in paths.into_iter().take(MAX_FILES) {
                match SpecFile::read(&path, priority) {
                    Ok(file) => registry.files.push(file),
                    Err(error) => registry.failures.push(format!("{}: {error}", path.display())),
                }
            }
        }
        registry
    }

    /// Files that were left out, with what is wrong with them.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Starts collecting devices for a container.
    pub fn injection(&self) -> CdiInjection<'_> {
        CdiInjection { registry: self, files: BTreeSet::new(), devices: Vec::new() }
    }

    /// The file and device of a qualified name.
    fn find(&self, name: &str) -> Result<(usize, &Edits)> {
        let (kind, device) = file::split_name(name)?;
        let found = self.files.iter().enumerate().filter(|(_, file)| file.kind == kind);
        let found = found.filter_map(|(at, file)| Some((at, file, file.devices.get(device)?)));
        let found: Vec<_> = found.collect();
        let best = found.iter().map(|(_, file, _)| file.priority).max();
        let mut found = found.into_iter().filter(|(_, file, _)| Some(file.priority) == best);
        match (found.next(), found.next()) {
            (Some((at, _, edits)), None) => Ok((at, edits)),
            (Some((_, one, _)), Some((_, other, _))) => Err(Error::failed_precondition(format!(
                "CDI device {name} is described by both {} and {}",
                one.path.display(),
                other.path.display()
            ))),
            (None, _) => Err(Error::not_found(match self.failures.as_slice() {
                [] => format!("no CDI specification describes device {name}"),
                failures => {
                    format!("no CDI specification describes device {name}; left out were {}", failures.join("; "))
                }
            })),
        }
    }
}

fn is_spec(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml")
}

/// Devices that are collected for a container.
#[derive(Debug)]
pub struct CdiInjection<'a> {
    registry: &'a CdiRegistry,
    /// Changes that go with any device of a file, once each.
    files: BTreeSet<usize>,
    devices: Vec<&'a Edits>,
}

impl CdiInjection<'_> {
    /// Adds a device by its qualified name, `vendor/class=device`.
    ///
    /// # Errors
    /// InvalidArgument for another form, NotFound for a device that no file describes, FailedPrecondition for one
    /// that two files of the same directory do.
    pub fn add(&mut self, name: &str) -> Result<()> {
        let (file, edits) = self.registry.find(name)?;
        self.files.insert(file);
        self.devices.push(edits);
        Ok(())
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// What looking up device nodes on this host says.
    pub fn apply(self, spec: &mut Spec) -> Result<()> {
        let of_files = self.files.iter().filter_map(|at| self.registry.files.get(*at)).map(|file| &file.edits);
        for edits in of_files.chain(self.devices.iter().copied()) {
            edits.apply(spec)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
