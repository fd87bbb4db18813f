use core_types::{Error, Result};
use serde_json::{Value, json};

use crate::Spec;

/// A mount to add to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindMount {
    /// `bind`, `tmpfs` …
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Where in the container.
    pub destination: String,
    /// Options as the runtime specification has them.
    pub options: Vec<String>,
}

impl BindMount {
    /// A read-only bind of a file of the host at the same path.
    pub fn of_host_file(path: &str) -> Self {
        Self {
            kind: "bind".into(),
            source: path.into(),
            destination: path.into(),
            options: vec!["rbind".into(), "ro".into()],
        }
    }

    /// Reads `type=bind,src=/a,dst=/b,options=rbind:ro`. A field that holds a comma is written in double quotes.
    ///
    /// # Errors
    /// InvalidArgument for a field without `=`, of unknown name, or an open quote.
    pub fn parse(text: &str) -> Result<Self> {
        let mut mount = Self::default();
        for field in split_fields(text)? {
            let (key, value) = field
                .split_once('=')
                .ok_or_else(|| Error::invalid_argument("invalid mount specification: expected key=val"))?;
            match key {
                "type" => mount.kind = value.into(),
                "source" | "src" => mount.source = value.into(),
                "destination" | "dst" => mount.destination = value.into(),
                "options" => mount.options = value.split(':').map(str::to_owned).collect(),
                _ => return Err(Error::invalid_argument(format!("mount option {key:?} not supported"))),
            }
        }
        Ok(mount)
    }
}

/// Splits a line of comma-separated values, where quotes protect commas and two quotes stand for one.
fn split_fields(text: &str) -> Result<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                push(&mut fields, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => push(&mut fields, c),
        }
    }
    if quoted {
        return Err(Error::invalid_argument("invalid mount specification: quote is not closed"));
    }
    Ok(fields)
}

fn push(fields: &mut [String], c: char) {
    if let Some(last) = fields.last_mut() {
        last.push(c);
    }
}

impl Spec {
    /// Adds mounts; one that is there for the same destination is replaced.
    pub fn add_mounts(&mut self, mounts: impl IntoIterator<Item = BindMount>) {
        for mount in mounts {
            let list = self.list(&[], "mounts");
            list.retain(|have| have["destination"].as_str() != Some(&mount.destination));
            list.push(json!({
                "destination": mount.destination,
                "type": mount.kind,
                "source": mount.source,
                "options": mount.options,
            }));
        }
    }

    /// Takes the mounts at a destination away.
    pub fn remove_mounts(&mut self, destination: &str) {
        self.list(&[], "mounts").retain(|have| have["destination"].as_str() != Some(destination));
    }

    /// Shows the host's `/sys` read-only in the place of a new one, which a container in the host's network and
    /// a user namespace of its own may not mount. What is bound there already stays.
    pub fn bind_host_sys(&mut self) {
        let bind = json!({
            "destination": "/sys",
            "type": "bind",
            "source": "/sys",
            "options": ["rbind", "rro", "nosuid", "nodev", "noexec"],
        });
        let list = self.list(&[], "mounts");
        match list.iter_mut().find(|have| have["destination"] == "/sys") {
            Some(have) if have["type"] == "sysfs" => *have = bind,
            Some(_) => {}
            None => list.push(bind),
        }
    }

    /// Makes mounts of a type writable.
    pub(crate) fn make_writable(&mut self, kind: &str) {
        for mount in self.list(&[], "mounts").iter_mut().filter(|mount| mount["type"].as_str() == Some(kind)) {
            if let Some(Value::Array(options)) = mount.get_mut("options") {
                for option in options.iter_mut().filter(|option| option.as_str() == Some("ro")) {
                    *option = Value::String("rw".into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core_types::Namespace;

    use super::*;

    #[test]
    fn the_command_line_form() {
        let mount = BindMount::parse("type=bind,src=/a,dst=/b,options=rbind:ro").unwrap();
        assert_eq!((mount.kind.as_str(), mount.source.as_str(), mount.destination.as_str()), ("bind", "/a", "/b"));
        assert_eq!(mount.options, ["rbind", "ro"]);
        let quoted = BindMount::parse(r#"type=overlay,"src=a,b",destination=/x"#).unwrap();
        assert_eq!(quoted.source, "a,b");
        for bad in ["bind", "type=bind,colour=red", r#"type="bind"#] {
            assert!(BindMount::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mount_takes_the_place_of_one_at_the_same_destination() {
        let mut spec = Spec::linux(&Namespace::new("default").unwrap(), "c");
        spec.add_mounts([BindMount::parse("type=bind,src=/host,dst=/run,options=rbind").unwrap()]);
        let runs: Vec<&Value> = spec
            .get("/mounts")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .filter(|mount| mount["destination"] == "/run")
            .collect();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0]["source"], "/host");
    }
}
