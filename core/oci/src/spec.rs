use core_types::{Error, Result, ResultExt as _};
use serde_json::{Map, Value};

/// Version of the runtime specification that generated specs name: the oldest that has all they use, since
/// runtimes refuse versions newer than themselves (crun before 1.9 takes 1.0 alone).
pub const OCI_VERSION: &str = "1.0.2";

/// Type URL under which clients store a spec in a container's record.
pub const SPEC_TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// A runtime specification as a JSON object; unknown fields are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(pub(crate) Map<String, Value>);

impl Spec {
    /// Reads a specification from JSON.
    ///
    /// # Errors
    /// InvalidArgument when it is no JSON object.
    pub fn from_slice(json: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(json)
            .map_err(|error| Error::invalid_argument(format!("runtime specification: {error}")))?;
        match value {
            Value::Object(object) => Ok(Self(object)),
            _ => Err(Error::invalid_argument("runtime specification must be a JSON object")),
        }
    }

    /// The specification as JSON on one line.
    ///
    /// # Errors
    /// Internal when it cannot be written, which a value made of JSON never causes.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(&self.0)
            .map_err(|error| Error::internal(error.to_string()))
            .doing("write runtime specification")
    }

    /// The specification as a JSON value.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// A value by JSON pointer below the root object, such as `/process/cwd`.
    pub fn get(&self, pointer: &str) -> Option<&Value> {
        let mut parts = pointer.split('/').skip(1);
        let first = self.0.get(parts.next()?)?;
        let rest: String = parts.map(|part| format!("/{part}")).collect();
        first.pointer(&rest)
    }

    /// A text by JSON pointer; empty when it is not there.
    pub fn text(&self, pointer: &str) -> &str {
        self.get(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A list of texts by JSON pointer; empty when it is not there.
    pub fn texts(&self, pointer: &str) -> Vec<String> {
        let list = self.get(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether the process has a terminal.
    pub fn terminal(&self) -> bool {
        self.get("/process/terminal").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The process object, for a second process in the same container.
    pub fn process(&self) -> Map<String, Value> {
        self.0.get("process").and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The object at a path of keys, to be patched; made when it is not there. Use this for fields that have no
    /// method of their own.
    pub fn object(&mut self, path: &[&str]) -> &mut Map<String, Value> {
        path.iter().fold(&mut self.0, |object, key| object_at(object, key))
    }

    /// The list `key` in the object at `path`, to be patched; made when it is not there.
    pub fn list(&mut self, path: &[&str], key: &str) -> &mut Vec<Value> {
        let slot = self.object(path).entry(key).or_insert(Value::Null);
        if !slot.is_array() {
            *slot = Value::Array(Vec::new());
        }
        match slot {
            Value::Array(list) => list,
            _ => unreachable!("set to a list above"),
        }
    }
}

/// The object under `key`; anything else there is replaced by an empty one.
fn object_at<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = object.entry(key).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(inner) => inner,
        _ => unreachable!("set to an object above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive_a_patch() {
        let json = br#"{"ociVersion":"9.9","x-new":{"a":[1,2]},"process":{"future":true,"args":["a"]}}"#;
        let mut spec = Spec::from_slice(json).unwrap();
        spec.set_args(["sh"]);
        spec.set_cwd("/tmp");
        assert_eq!(spec.get("/process/future"), Some(&Value::Bool(true)));
        assert_eq!(spec.get("/x-new/a/1"), Some(&Value::from(2)));
        assert_eq!(spec.texts("/process/args"), ["sh"]);
        assert_eq!(spec.text("/process/cwd"), "/tmp");
        assert_eq!(spec.text("/ociVersion"), "9.9");
    }

    #[test]
    fn anything_but_an_object_is_refused() {
        for bad in ["", "[]", "1", "{", "null"] {
            assert!(Spec::from_slice(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
