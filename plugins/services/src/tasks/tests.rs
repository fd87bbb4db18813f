use core_events::Any;
use tonic::Code;

use super::*;

fn container() -> Container {
    let mut container = Container::new("c");
    container.runtime.name = "io.containerd.runc.v2".into();
    container.runtime.options = Some(Any { type_url: RUNC_OPTIONS.into(), value: vec![0x52, 1, b'x'].into() });
    container
}

#[test]
fn the_tasks_options_win_when_they_say_something() {
    let options = create_options(container(), api::CreateTaskRequest::default()).unwrap();
    assert_eq!(options.runtime, "io.containerd.runc.v2");
    assert_eq!(options.options, container().runtime.options);
    let empty = prost_types::Any { type_url: RUNC_OPTIONS.into(), value: Vec::new() };
    let request = api::CreateTaskRequest { options: Some(empty), ..Default::default() };
    assert_eq!(create_options(container(), request).unwrap().options, container().runtime.options);
    let own = any::pack(RUNC_OPTIONS, &Options { systemd_cgroup: true, ..Default::default() });
    let request =
        api::CreateTaskRequest { options: Some(own.clone()), runtime_path: "/opt/shim".into(), ..Default::default() };
    let options = create_options(container(), request).unwrap();
    assert_eq!((options.runtime.as_str(), options.options), ("/opt/shim", Some(convert::any_from(own))));
}

#[test]
fn checkpoints_are_refused_clearly() {
    let request = api::CreateTaskRequest { checkpoint: Some(types::Descriptor::default()), ..Default::default() };
    assert_eq!(create_options(container(), request).unwrap_err().code(), Code::Unimplemented);
    let options = any::pack(RUNC_OPTIONS, &Options { criu_image_path: "/x".into(), ..Default::default() });
    let request = api::CreateTaskRequest { options: Some(options), ..Default::default() };
    assert_eq!(create_options(container(), request).unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn options_of_other_runtimes_pass_untouched() {
    let other = prost_types::Any { type_url: "my.runtime.Options".into(), value: b"anything".to_vec() };
    let request = api::CreateTaskRequest { options: Some(other.clone()), ..Default::default() };
    assert_eq!(create_options(container(), request).unwrap().options, Some(convert::any_from(other)));
}

#[test]
fn a_process_is_told_whole() {
    let exited = SystemTime::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 7);
    let state = State {
        pid: 9,
        status: core_runtime_v2::Status::Stopped,
        exit_status: 137,
        exited_at: Some(exited),
        ..State::default()
    };
    let process = process("c".into(), state);
    assert_eq!((process.id.as_str(), process.pid, process.exit_status), ("c", 9, 137));
    assert_eq!(process.status(), wire::Status::Stopped);
    assert_eq!(process.exited_at.map(|time| (time.seconds, time.nanos)), Some((1_700_000_000, 7)));
}
