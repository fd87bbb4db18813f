use std::fs;

use containerd_api_cri::v1::SeLinuxOption;

use crate::{Result, SpecError, input::Selinux};

pub use levels::SelinuxLevels;
pub use relabel::relabel;

/// Levels of pods.
mod levels;
/// Labels of files.
mod relabel;

/// The labels that the policy of a host has for containers, `user:role:type:level`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxDefaults {
    /// For processes.
    pub process: String,
    /// For files.
    pub file: String,
}

impl SelinuxDefaults {
    /// Reads the policy's file of container labels; `None` on a host without SELinux.
    pub fn detect() -> Option<Self> {
        if !std::path::Path::new("/sys/fs/selinux/enforce").exists() {
            return None;
        }
        let config = fs::read_to_string("/etc/selinux/config").ok()?;
        let policy = config.lines().find_map(|line| line.trim().strip_prefix("SELINUXTYPE="))?.trim();
        let contexts = fs::read_to_string(format!("/etc/selinux/{policy}/contexts/lxc_contexts")).ok()?;
        Self::parse(&contexts)
    }

    /// Reads the form of the `lxc_contexts` file: `process = "…"` and `file = "…"`.
    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once('='));
            let (_, value) = fields.find(|(name, _)| name.trim() == key)?;
            Some(value.trim().trim_matches('"').to_owned())
        };
        Some(Self { process: value("process")?, file: value("file")? })
    }
}

/// The parts of a label.
#[derive(Clone, Debug, Default)]
struct Label {
    user: String,
    role: String,
    kind: String,
    level: String,
}

impl Label {
    fn parse(text: &str) -> Self {
        let mut parts = text.splitn(4, ':').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Self { user: next(), role: next(), kind: next(), level: next() }
    }

    fn text(&self) -> String {
        let parts = [&self.user, &self.role, &self.kind, &self.level];
        parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(":")
    }
}

/// Labels of processes and of files for a request's options. What they leave open comes from `inherited`, the label
/// of another container's processes, and then from the host's policy with `level`. Both are empty on a host
/// without SELinux.
pub(crate) fn labels(
    field: &str,
    selinux: Selinux<'_>,
    options: Option<&SeLinuxOption>,
    inherited: &str,
    level: Option<&str>,
) -> Result<(String, String)> {
    if let Some(options) = options {
        check(field, options)?;
    }
    let Some(defaults) = selinux else { return Ok(Default::default()) };
    let mut process = Label::parse(&defaults.process);
    let mut file = Label::parse(&defaults.file);
    if let Some(level) = level {
        level.clone_into(&mut process.level);
    }
    let none = options.is_none_or(|options| *options == SeLinuxOption::default());
    let wanted = match (none, options) {
        (false, Some(options)) => Label {
            user: options.user.clone(),
            role: options.role.clone(),
            kind: options.r#type.clone(),
            level: options.level.clone(),
        },
        _ => Label::parse(inherited),
    };
    for (slot, value) in [
        (&mut process.user, &wanted.user),
        (&mut process.role, &wanted.role),
        (&mut process.kind, &wanted.kind),
        (&mut process.level, &wanted.level),
    ] {
        if !value.is_empty() {
            slot.clone_from(value);
        }
    }
    if !wanted.user.is_empty() {
        file.user.clone_from(&wanted.user);
    }
    file.level.clone_from(&process.level);
    Ok((process.text(), file.text()))
}

fn check(field: &str, options: &SeLinuxOption) -> Result<()> {
    for (name, value) in [("user", &options.user), ("role", &options.role), ("type", &options.r#type)] {
        if value.contains([':', '\0']) || value.contains(char::is_whitespace) {
            return Err(SpecError::invalid(format!("{field}.{name}"), format!("{value:?} cannot be part of a label")));
        }
    }
    if !options.level.is_empty() && !is_level(&options.level) {
        let reason = format!("the format of {:?} is not that of a level, as `s0:c1,c2`", options.level);
        return Err(SpecError::invalid(format!("{field}.level"), reason));
    }
    Ok(())
}

/// Whether a text is `s<n>[-s<n>][:c<n>[.c<n>][,…]]`.
fn is_level(text: &str) -> bool {
    let numbered = |text: &str, letter: char, digits: usize| {
        let rest = text.strip_prefix(letter).unwrap_or_default();
        (1..=digits).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    let category = |text: &str| text.splitn(2, '.').all(|end| numbered(end, 'c', 4));
    let (sensitivity, categories) = match text.split_once(':') {
        Some((sensitivity, categories)) => (sensitivity, Some(categories)),
        None => (text, None),
    };
    sensitivity.splitn(2, '-').all(|end| numbered(end, 's', 1))
        && categories.is_none_or(|list| list.split(',').all(category))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> SelinuxDefaults {
        let text = "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";
        SelinuxDefaults::parse(text).unwrap()
    }

    #[test]
    fn levels() {
        for good in ["s0", "s0:c1", "s0:c1,c2", "s0-s1:c1.c5,c1023", "s9:c1.c2,c3.c4"] {
            assert!(is_level(good), "{good}");
        }
        for bad in ["", "s", "s10", "0:c1", "s0:", "s0:c", "s0:c12345", "s0:c1,", "s0:c1..c2", "s0:d1", "s0:c1 c2"] {
            assert!(!is_level(bad), "{bad}");
        }
    }

    #[test]
    fn a_request_overrides_the_pod_which_overrides_the_policy() {
        let defaults = defaults();
        let pod = labels("f", Some(&defaults), None, "", Some("s0:c1,c2")).unwrap();
        assert_eq!(pod.0, "system_u:system_r:container_t:s0:c1,c2");
        assert_eq!(pod.1, "system_u:object_r:container_file_t:s0:c1,c2");
        let container = labels("f", Some(&defaults), None, &pod.0, Some("s0:c7,c8")).unwrap();
        assert_eq!(container, pod, "a container shares its pod's level");
        let options = SeLinuxOption { r#type: "spc_t".into(), level: "s0:c5".into(), ..Default::default() };
        let own = labels("f", Some(&defaults), Some(&options), &pod.0, None).unwrap();
        assert_eq!(own.0, "system_u:system_r:spc_t:s0:c5");
        assert_eq!(own.1, "system_u:object_r:container_file_t:s0:c5");
    }

    #[test]
    fn bad_options_are_refused_even_without_selinux() {
        let options = SeLinuxOption { level: "high".into(), ..Default::default() };
        assert_eq!(labels("f", None, Some(&options), "", None).unwrap_err().field(), "f.level");
        let options = SeLinuxOption { r#type: "a:b".into(), ..Default::default() };
        assert_eq!(labels("f", None, Some(&options), "", None).unwrap_err().field(), "f.type");
        assert_eq!(labels("f", None, None, "", None).unwrap(), Default::default());
    }
}
