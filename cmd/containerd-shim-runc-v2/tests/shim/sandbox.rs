//! A sandbox without a process: the shim is it.

use std::path::Path;

use containerd_api::runtime::sandbox::v1::{self as api, sandbox_ttrpc::Client};
use serde_json::{Value, json};

use crate::setup::{LIMIT, Streams, World, until, with_runc};

const NOT_FOUND: i32 = 5;
const ALREADY_EXISTS: i32 = 6;
const FAILED_PRECONDITION: i32 = 9;

/// A shim of a sandbox that has no specification.
async fn sandbox_shim(world: &World) -> crate::setup::Shim {
    let dir = Path::new("/run/bundles/pod");
    std::fs::create_dir_all(dir).unwrap();
    let answer = world.action("pod", dir, "start", &[], &[("MAX_SHIM_VERSION", "2")]);
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    world.connect(answer["address"].as_str().unwrap(), "one").await
}

fn id() -> String {
    "pod".to_owned()
}

#[test]
fn a_sandbox_holds_its_shim_and_ends_its_containers() {
    with_runc(async |world| {
        let shim = sandbox_shim(&world).await;
        let (client, context) = (Client::new(shim.client.clone()), shim.context());
        let status = |verbose| api::SandboxStatusRequest { sandbox_id: id(), verbose };
        assert_eq!(client.sandbox_status(&context, &status(false)).await.unwrap_err().code, NOT_FOUND);
        let create =
            api::CreateSandboxRequest { sandbox_id: id(), netns_path: "/run/netns/pod".into(), ..Default::default() };
        client.create_sandbox(&context, &create).await.unwrap();
        assert_eq!(client.create_sandbox(&context, &create).await.unwrap_err().code, ALREADY_EXISTS);
        let other = api::PingRequest { sandbox_id: "po".into() };
        assert_eq!(client.ping_sandbox(&context, &other).await.unwrap_err().code, NOT_FOUND);
        let made = client.sandbox_status(&context, &status(false)).await.unwrap();
        assert_eq!((made.state.as_str(), made.created_at, made.info.len()), ("SANDBOX_NOTREADY", None, 0));
        let started = client.start_sandbox(&context, &api::StartSandboxRequest { sandbox_id: id() }).await.unwrap();
        let again = client.start_sandbox(&context, &api::StartSandboxRequest { sandbox_id: id() }).await.unwrap();
        assert_eq!((started.pid, started.created_at), (0, again.created_at));
        let platform = client.platform(&context, &api::PlatformRequest { sandbox_id: id() }).await.unwrap();
        assert_eq!(platform.platform.unwrap().os, "linux");

        let dir =
            world.bundle("one", json!(["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done"]), json!({}));
        shim.create("one", &dir, &Streams::default()).await.unwrap();
        let pid = shim.start("").await.unwrap();
        until("the shell's trap", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            // Before it is the shell it is the runtime, which catches everything.
            status.starts_with("Name:\tsh\n") && u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
        })
        .await;
        let ready = client.sandbox_status(&context, &status(true)).await.unwrap();
        assert_eq!((ready.state.as_str(), ready.created_at), ("SANDBOX_READY", started.created_at));
        assert_eq!((ready.info["netns_path"].as_str(), ready.info["containers"].as_str()), ("/run/netns/pod", "1"));

        let waiting = tokio::spawn({
            let (client, context) = (client.clone(), context.clone());
            async move { client.wait_sandbox(&context, &api::WaitSandboxRequest { sandbox_id: id() }).await }
        });
        let stop = api::StopSandboxRequest { sandbox_id: id(), timeout_secs: 30 };
        client.stop_sandbox(&context, &stop).await.unwrap();
        client.stop_sandbox(&context, &stop).await.unwrap();
        let exit = waiting.await.unwrap().unwrap();
        assert!(exit.exited_at.is_some() && exit.exit_status == 0);
        assert_eq!(shim.wait("").await.unwrap(), 7, "it is asked before it is killed");
        let more = shim.create("two", &dir, &Streams::default()).await.unwrap_err();
        assert_eq!(more.code, FAILED_PRECONDITION, "{more}");
        shim.delete("").await.unwrap();
        let ended = client.sandbox_status(&context, &status(false)).await.unwrap();
        assert_eq!((ended.state.as_str(), ended.exited_at), ("SANDBOX_NOTREADY", exit.exited_at));

        // The task service does not end a shim that is a sandbox.
        let shutdown = containerd_api::task::v3::ShutdownRequest { id: "one".into(), now: false };
        shim.task.shutdown(&context, &shutdown).await.unwrap();
        client.ping_sandbox(&context, &api::PingRequest { sandbox_id: id() }).await.unwrap();
        client.shutdown_sandbox(&context, &api::ShutdownSandboxRequest { sandbox_id: id() }).await.unwrap();
        tokio::time::timeout(LIMIT, shim.client.closed()).await.unwrap();
    });
}

#[test]
fn a_shutdown_kills_what_runs_frozen_or_not_started() {
    with_runc(async |world| {
        let mut shim = sandbox_shim(&world).await;
        let (client, context) = (Client::new(shim.client.clone()), shim.context());
        let create = api::CreateSandboxRequest { sandbox_id: id(), ..Default::default() };
        client.create_sandbox(&context, &create).await.unwrap();
        let dir = world.bundle("one", json!(["sleep", "1000"]), json!({}));
        shim.create("one", &dir, &Streams::default()).await.unwrap();
        let pid = shim.start("").await.unwrap();
        let frozen = shim.task.pause(&context, &containerd_api::task::v3::PauseRequest { id: "one".into() }).await;
        if let Err(error) = frozen {
            eprintln!("skipped: freezing: {error}");
        }
        let dir = world.bundle("two", json!(["sleep", "1000"]), json!({}));
        shim.id = "two".into();
        let second = shim.create("two", &dir, &Streams::default()).await.unwrap();
        client.shutdown_sandbox(&context, &api::ShutdownSandboxRequest { sandbox_id: id() }).await.unwrap();
        tokio::time::timeout(LIMIT, shim.client.closed()).await.unwrap();
        for pid in [pid, second] {
            until("end of the container", || {
                std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
            })
            .await;
        }
        // As the daemon does for tasks whose shim is gone.
        for id in ["one", "two"] {
            world.action(id, &Path::new("/run/bundles").join(id), "delete", &[], &[]);
        }
    });
}
