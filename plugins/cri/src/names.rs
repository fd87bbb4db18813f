//! Names of pods and containers: each belongs to one id at a time.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use containerd_api_cri::v1::{ContainerMetadata, PodSandboxMetadata};
use core_types::{Error, Result};

/// Which name belongs to which id.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<String, Owner>>);

#[derive(Debug)]
struct Owner {
    id: String,
    since: Instant,
}

impl Names {
    /// Takes a name for an id.
    ///
    /// # Errors
    /// AlreadyExists when it belongs to another id; says to which and since when.
    pub(crate) fn reserve(&self, name: &str, id: &str) -> Result<()> {
        let mut names = self.lock();
        if let Some(owner) = names.get(name).filter(|owner| owner.id != id) {
            let seconds = owner.since.elapsed().as_secs();
            return Err(Error::already_exists(format!(
                "name {name:?} is reserved for {:?} since {seconds} s",
                owner.id
            )));
        }
        names.insert(name.to_owned(), Owner { id: id.to_owned(), since: Instant::now() });
        Ok(())
    }

    /// Gives a name free.
    pub(crate) fn release(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Owner>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The name of a pod: `<name>_<namespace>_<uid>_<attempt>`.
pub(crate) fn pod(metadata: &PodSandboxMetadata) -> String {
    [&metadata.name, &metadata.namespace, &metadata.uid, &metadata.attempt.to_string()].map(String::as_str).join("_")
}

/// The name of a container: `<name>_<pod>_<namespace>_<uid>_<attempt>`.
pub(crate) fn container(container: &ContainerMetadata, pod: &PodSandboxMetadata) -> String {
    [&container.name, &pod.name, &pod.namespace, &pod.uid, &container.attempt.to_string()].map(String::as_str).join("_")
}

/// A new id: 64 hexadecimal digits from the kernel's random numbers.
///
/// # Errors
/// When the kernel has none.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0_u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::io("read random numbers", error.into()))?;
    Ok(bytes.iter().fold(String::with_capacity(64), |mut id, byte| {
        use std::fmt::Write as _;
        let _ = write!(id, "{byte:02x}");
        id
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner_who_can_take_it_again() {
        let names = Names::default();
        names.reserve("a", "1").unwrap();
        names.reserve("a", "1").unwrap();
        let refused = names.reserve("a", "2").unwrap_err();
        assert!(refused.is_already_exists() && refused.message().contains("\"1\""), "{refused}");
        names.release("a");
        names.reserve("a", "2").unwrap();
    }

    #[test]
    fn names_are_made_as_tools_know_them() {
        let pod_metadata =
            PodSandboxMetadata { name: "web".into(), uid: "u1".into(), namespace: "default".into(), attempt: 3 };
        assert_eq!(pod(&pod_metadata), "web_default_u1_3");
        let metadata = ContainerMetadata { name: "nginx".into(), attempt: 1 };
        assert_eq!(container(&metadata, &pod_metadata), "nginx_web_default_u1_1");
        let id = new_id().unwrap();
        assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(id, new_id().unwrap());
    }
}
