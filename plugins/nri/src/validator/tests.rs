use std::collections::BTreeMap;

use containerd_api_nri::v1alpha1::{Container, OwningPlugins, PluginInstance};

use super::*;
use crate::owners::Claims;

fn request(fields: &[Field], entries: &[(Field, &str)]) -> ValidateContainerAdjustmentRequest {
    let mut owners = OwningPlugins::default();
    let mut claims = Claims { owners: &mut owners, id: "c", plugin: "10-one" };
    fields.iter().for_each(|field| claims.share(*field));
    entries.iter().for_each(|(field, key)| claims.entry(*field, key).unwrap());
    ValidateContainerAdjustmentRequest {
        pod: Some(PodSandbox::default()),
        container: Some(Container { id: "c".into(), name: "app".into(), ..Container::default() }),
        owners: Some(owners),
        plugins: vec![PluginInstance { name: "one".into(), index: "10".into() }],
        ..ValidateContainerAdjustmentRequest::default()
    }
}

#[test]
fn what_is_forbidden_is_refused_and_its_plugin_named() {
    type Case = (fn(&mut ValidatorConfig) -> &mut bool, &'static [Field], &'static [(Field, &'static str)]);
    let cases: [Case; 4] = [
        (|config| &mut config.reject_oci_hook_adjustment, &[Field::OciHooks], &[]),
        (|config| &mut config.reject_unconfined_seccomp_adjustment, &[Field::SeccompPolicy], &[]),
        (|config| &mut config.reject_namespace_adjustment, &[], &[(Field::Namespace, "ipc")]),
        (|config| &mut config.reject_sysctl_adjustment, &[], &[(Field::Sysctl, "kernel.shmmax")]),
    ];
    for (switch, fields, entries) in cases {
        let mut config = ValidatorConfig::default();
        let request = request(fields, entries);
        validate(&config, &request).unwrap();
        *switch(&mut config) = true;
        let error = validate(&config, &request).unwrap_err();
        assert!(error.message().contains("10-one"), "{error}");
        validate(&config, &self::request(&[Field::Args], &[])).unwrap();
    }
}

#[test]
fn required_plugins_must_be_there_unless_the_pod_does_without() {
    let mut config = ValidatorConfig { required_plugins: vec!["one".into()], ..ValidatorConfig::default() };
    let mut request = request(&[], &[]);
    validate(&config, &request).unwrap();
    config.required_plugins.push("two".into());
    assert!(validate(&config, &request).is_err());
    config.tolerate_missing_plugins_annotation = "tolerate".into();
    let annotate = |key: &str, value: &str| {
        Some(PodSandbox { annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..PodSandbox::default() })
    };
    request.pod = annotate("tolerate/container.app", "true");
    validate(&config, &request).unwrap();
    request.pod = annotate("tolerate", "perhaps");
    assert!(validate(&config, &request).is_err());
    config.required_plugins.clear();
    for (value, fits) in [("[one]", true), ("- \"one\"\n- three", false), ("['three']", false), ("one", false)] {
        request.pod = annotate(&format!("{REQUIRED}/pod"), value);
        assert_eq!(validate(&config, &request).is_ok(), fits, "{value}");
    }
}
