use serde_json::Value;

use super::*;
use crate::{APPARMOR_DEFAULT_PROFILE, fixture::Case};

const RUNTIME: i32 = 0;
const UNCONFINED: i32 = 1;
const LOCALHOST_KIND: i32 = 2;

fn profile(profile_type: i32, reference: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile { profile_type, localhost_ref: reference.into() })
}

fn action(case: &Case) -> Option<String> {
    Some(case.spec().get("/linux/seccomp/defaultAction")?.as_str().unwrap().to_owned())
}

#[test]
#[allow(deprecated)]
fn seccomp() {
    let deny = "/var/lib/kubelet/seccomp/deny.json";
    let older = format!("localhost/{deny}");
    // Newer field, older field, configured default; what is set.
    for (newer, older, unset, expected) in [
        (None, "", "", None),
        (None, "", "runtime/default", Some("SCMP_ACT_ERRNO")),
        (None, "unconfined", "runtime/default", None),
        (None, "runtime/default", "", Some("SCMP_ACT_ERRNO")),
        (None, "docker/default", "", Some("SCMP_ACT_ERRNO")),
        (None, older.as_str(), "", Some("SCMP_ACT_KILL")),
        (profile(RUNTIME, ""), "unconfined", "", Some("SCMP_ACT_ERRNO")),
        (profile(UNCONFINED, ""), "", "runtime/default", None),
        (profile(LOCALHOST_KIND, deny), "", "", Some("SCMP_ACT_KILL")),
        (profile(LOCALHOST_KIND, older.as_str()), "", "", Some("SCMP_ACT_KILL")),
    ] {
        let mut case = Case::default();
        case.security().seccomp = newer;
        case.security().seccomp_profile_path = older.into();
        case.options.unset_seccomp_profile = unset.into();
        assert_eq!(action(&case).as_deref(), expected, "{older} {unset}");
        case.security().privileged = true;
        case.pod_security().privileged = true;
        assert_eq!(action(&case), None, "privileged containers are not filtered");
    }
}

#[test]
#[allow(deprecated)]
fn bad_seccomp_profiles_are_refused_by_field() {
    let field = "config.linux.security_context.seccomp";
    for (newer, older, expected) in [
        (profile(7, ""), "", "profile_type"),
        (profile(RUNTIME, "/x"), "", "localhost_ref"),
        (profile(LOCALHOST_KIND, ""), "", "localhost_ref"),
        (profile(LOCALHOST_KIND, "relative"), "", "localhost_ref"),
        (profile(LOCALHOST_KIND, "/no/such"), "", "localhost_ref"),
    ] {
        let mut case = Case::default();
        case.security().seccomp = newer;
        case.security().seccomp_profile_path = older.into();
        assert_eq!(case.refused(), format!("{field}.{expected}"));
        let error = core_types::Error::from(case.container().unwrap_err());
        assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
    }
    let mut case = Case::default();
    case.security().seccomp_profile_path = "something".into();
    assert_eq!(case.refused(), format!("{field}_profile_path"));
    let mut case = Case::default();
    case.host.seccomp = false;
    assert_eq!(action(&case), None);
    case.security().seccomp = profile(RUNTIME, "");
    assert_eq!(case.refused(), field);
}

fn apparmor(case: &Case) -> (Option<String>, bool) {
    let made = case.container().unwrap();
    (made.spec.get("/process/apparmorProfile").and_then(Value::as_str).map(str::to_owned), made.needs_default_apparmor)
}

#[test]
#[allow(deprecated)]
fn apparmor_where_the_host_has_it() {
    let mut case = Case::default();
    case.host.apparmor = true;
    assert_eq!(apparmor(&case), (Some(APPARMOR_DEFAULT_PROFILE.into()), true), "the default is to be confined");
    case.security().apparmor_profile = "localhost/mine".into();
    assert_eq!(apparmor(&case), (Some("mine".into()), false));
    case.security().apparmor = profile(UNCONFINED, "");
    assert_eq!(apparmor(&case), (None, false));
    case.security().apparmor = profile(LOCALHOST_KIND, "other");
    assert_eq!(case.refused(), "config.linux.security_context.apparmor.localhost_ref");
    case.security().apparmor = None;
    case.security().apparmor_profile = String::new();
    case.security().privileged = true;
    case.pod_security().privileged = true;
    assert_eq!(apparmor(&case), (None, false), "privileged containers are not confined");
}

#[test]
fn apparmor_is_refused_where_the_host_has_none() {
    let mut case = Case::default();
    assert_eq!(apparmor(&case), (None, false));
    case.security().apparmor = profile(UNCONFINED, "");
    assert_eq!(apparmor(&case), (None, false));
    case.security().apparmor = profile(RUNTIME, "");
    assert_eq!(case.refused(), "config.linux.security_context.apparmor");
}
