use core_types::{Error, Result};
use serde_json::{Value, json};

use crate::Spec;

/// What a container may do unless it is told otherwise.
pub const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// The sets that additions go to. Inheritable and ambient sets stay empty (CVE-2022-24769).
const ADDED_TO: [&str; 3] = ["bounding", "effective", "permitted"];
/// The sets that removals are taken from.
const DROPPED_FROM: [&str; 5] = ["bounding", "effective", "permitted", "inheritable", "ambient"];

/// The capabilities this process has in effect, sorted.
///
/// # Errors
/// PermissionDenied when the kernel does not tell.
pub fn current_capabilities() -> Result<Vec<String>> {
    let set = caps::read(None, caps::CapSet::Effective)
        .map_err(|error| Error::permission_denied(format!("read own capabilities: {error}")))?;
    let mut names: Vec<String> = set.iter().map(ToString::to_string).collect();
    names.sort();
    Ok(names)
}

impl Spec {
    /// Gives the process exactly these capabilities.
    pub fn set_capabilities(&mut self, names: &[String]) {
        let sets = self.object(&["process", "capabilities"]);
        for set in ADDED_TO {
            sets.insert(set.into(), json!(names));
        }
        sets.shift_remove("inheritable");
        sets.shift_remove("ambient");
    }

    /// Adds capabilities, written with `CAP_` in front.
    ///
    /// # Errors
    /// InvalidArgument for a name without the prefix.
    pub fn add_capabilities(&mut self, names: &[String]) -> Result<()> {
        check_names(names)?;
        for set in ADDED_TO {
            let list = self.list(&["process", "capabilities"], set);
            for name in names {
                if !list.iter().any(|have| have.as_str() == Some(name)) {
                    list.push(Value::String(name.clone()));
                }
            }
        }
        Ok(())
    }

    /// Adds capabilities that a program without root keeps when it runs others, written with `CAP_` in front. The
    /// kernel wants them in every set.
    ///
    /// # Errors
    /// InvalidArgument for a name without the prefix.
    pub fn add_ambient_capabilities(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.add_capabilities(names)?;
        for set in ["inheritable", "ambient"] {
            let list = self.list(&["process", "capabilities"], set);
            for name in names {
                if !list.iter().any(|have| have.as_str() == Some(name)) {
                    list.push(Value::String(name.clone()));
                }
            }
        }
        Ok(())
    }

    /// Takes capabilities away, written with `CAP_` in front.
    ///
    /// # Errors
    /// InvalidArgument for a name without the prefix.
    pub fn drop_capabilities(&mut self, names: &[String]) -> Result<()> {
        check_names(names)?;
        let sets = self.object(&["process", "capabilities"]);
        for set in DROPPED_FROM {
            if let Some(Value::Array(list)) = sets.get_mut(set) {
                list.retain(|have| !names.iter().any(|name| have.as_str() == Some(name)));
            }
        }
        Ok(())
    }
}

fn check_names(names: &[String]) -> Result<()> {
    match names.iter().find(|name| !name.starts_with("CAP_")) {
        Some(_) => Err(Error::invalid_argument("capabilities must be specified with 'CAP_' prefix")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use core_types::Namespace;

    use super::*;

    #[test]
    fn adding_and_dropping_reach_every_set() {
        let mut spec = Spec::linux(&Namespace::new("default").unwrap(), "c");
        spec.add_capabilities(&["CAP_SYS_ADMIN".into(), "CAP_KILL".into()]).unwrap();
        spec.drop_capabilities(&["CAP_CHOWN".into()]).unwrap();
        for set in ADDED_TO {
            let list = spec.texts(&format!("/process/capabilities/{set}"));
            assert!(list.contains(&"CAP_SYS_ADMIN".into()));
            assert!(!list.contains(&"CAP_CHOWN".into()));
            assert_eq!(list.iter().filter(|name| *name == "CAP_KILL").count(), 1);
        }
        assert!(spec.get("/process/capabilities/inheritable").is_none());
        assert!(spec.add_capabilities(&["SYS_ADMIN".into()]).is_err());
    }
}
