use std::collections::BTreeMap;

use containerd_api_cri::v1::PodSandboxConfig;

use crate::{Options, Result, SpecError};

/// Annotations by name.
pub(crate) type Annotations = BTreeMap<String, String>;

/// Prefix of the annotations that tell runtimes about the pod.
const PREFIX: &str = "io.kubernetes.cri.";

/// Those of `annotations` whose names fit one of `patterns`. A pattern is that of Go's `path.Match`: `*` and `?`
/// stand for anything but `/`, `[a-z]` for one of a class. One that is badly written fits nothing.
pub fn passthrough(annotations: &BTreeMap<String, String>, patterns: &[String]) -> BTreeMap<String, String> {
    let fits = |name: &str| patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()));
    annotations.iter().filter(|(name, _)| fits(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether `name` fits `pattern`. Bounded by their product: after a star that failed, only the last star is tried
/// again.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        let step = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(_), Some(byte)) => one(&pattern[p..], *byte),
            _ => None,
        };
        match (step, star) {
            (Some(width), _) => {
                p += width;
                n += 1;
            }
            (None, Some((after, from))) if from < name.len() && name[from] != b'/' => {
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// How many bytes of the pattern's start fit `byte`; `None` when they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'\\'] => None,
        [b'[', class @ ..] => class_of(class, byte).map(|width| width + 1),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// How long a class is (after its opening bracket) when `byte` is in it.
fn class_of(class: &[u8], byte: u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    let mut first = true;
    let next = |at: &mut usize| -> Option<u8> {
        let mut literal = *class.get(*at)?;
        if literal == b'\\' {
            *at += 1;
            literal = *class.get(*at)?;
        }
        *at += 1;
        Some(literal)
    };
    while first || class.get(at) != Some(&b']') {
        first = false;
        let low = next(&mut at)?;
        let mut high = low;
        if class.get(at) == Some(&b'-') {
            at += 1;
            high = next(&mut at)?;
        }
        found |= (low..=high).contains(&byte);
    }
    (found != negated).then_some(at + 1)
}

/// What runtimes are told of every container of a pod.
fn of_pod(sandbox_id: &str, config: &PodSandboxConfig, kind: &str) -> Annotations {
    let metadata = config.metadata.clone().unwrap_or_default();
    Annotations::from([
        (format!("{PREFIX}sandbox-id"), sandbox_id.to_owned()),
        (format!("{PREFIX}sandbox-namespace"), metadata.namespace),
        (format!("{PREFIX}sandbox-uid"), metadata.uid),
        (format!("{PREFIX}sandbox-name"), metadata.name),
        (format!("{PREFIX}container-type"), kind.to_owned()),
    ])
}

/// What the runtime is told of a sandbox, its expected resources included.
pub(crate) fn of_sandbox(id: &str, config: &PodSandboxConfig, image_name: &str) -> Annotations {
    let mut annotations = of_pod(id, config, "sandbox");
    annotations.insert(format!("{PREFIX}sandbox-log-directory"), config.log_directory.clone());
    annotations.insert(format!("{PREFIX}podsandbox.image-name"), image_name.to_owned());
    if let Some(resources) = config.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
        for (name, value) in [
            ("sandbox-cpu-period", resources.cpu_period),
            ("sandbox-cpu-quota", resources.cpu_quota),
            ("sandbox-cpu-shares", resources.cpu_shares),
            ("sandbox-memory", resources.memory_limit_in_bytes),
        ] {
            annotations.insert(format!("{PREFIX}{name}"), value.to_string());
        }
    }
    annotations
}

/// What the runtime is told of a container.
pub(crate) fn of_container(sandbox_id: &str, config: &PodSandboxConfig, name: &str, image_name: &str) -> Annotations {
    let mut annotations = of_pod(sandbox_id, config, "container");
    annotations.insert(format!("{PREFIX}container-name"), name.to_owned());
    annotations.insert(format!("{PREFIX}image-name"), image_name.to_owned());
    annotations
}

/// Refuses block I/O and RDT classes, which this runtime does not have, unless they are to be ignored.
pub(crate) fn check_classes(
    container: &str,
    annotations: &Annotations,
    pod: &Annotations,
    options: &Options,
) -> Result<()> {
    for (kind, ignored) in
        [("blockio", options.ignore_blockio_not_enabled_errors), ("rdt", options.ignore_rdt_not_enabled_errors)]
    {
        let own = format!("io.kubernetes.cri.{kind}-class");
        let of_one = format!("{kind}.resources.beta.kubernetes.io/container.{container}");
        let of_all = format!("{kind}.resources.beta.kubernetes.io/pod");
        let found = annotations.get_key_value(&own).map(|found| ("config", found)).or_else(|| {
            pod.get_key_value(&of_one).or_else(|| pod.get_key_value(&of_all)).map(|f| ("sandbox_config", f))
        });
        match found {
            Some((request, (name, class))) if !ignored && !class.is_empty() => {
                return Err(SpecError::unsupported(
                    format!("{request}.annotations[{name:?}]"),
                    format!(
                        "{kind} classes are not supported, so class {class:?} is refused; set \
                         ignore_{kind}_not_enabled_errors to run without it"
                    ),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_path_match() {
        for (pattern, name, fits) in [
            ("*", "abc", true),
            ("*", "a/b", false),
            ("io.kata.*", "io.kata.mem", true),
            ("io.kata.*", "io.katamem", false),
            ("a*/b", "axyz/b", true),
            ("a*/b", "axyz/c/b", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("a[", "a[", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*.io/*", "x.io/y", true),
            ("*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("", "", true),
            ("", "a", false),
            ("[]a]", "]", true),
            ("[", "a", false),
            ("[a-", "a", false),
            ("\\", "\\", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn classes_are_refused_by_name_or_ignored() {
        let options = Options::default();
        let none = Annotations::new();
        let annotation = |key: &str| Annotations::from([(key.to_owned(), "gold".to_owned())]);
        let of_container = annotation("io.kubernetes.cri.rdt-class");
        let error = check_classes("c", &of_container, &none, &options).unwrap_err();
        assert_eq!(error.field(), r#"config.annotations["io.kubernetes.cri.rdt-class"]"#);
        let of_other = annotation("blockio.resources.beta.kubernetes.io/container.d");
        assert!(check_classes("c", &none, &of_other, &options).is_ok());
        assert!(check_classes("d", &none, &of_other, &options).is_err());
        let ignoring = Options { ignore_rdt_not_enabled_errors: true, ..options };
        assert!(check_classes("c", &of_container, &none, &ignoring).is_ok());
    }
}
