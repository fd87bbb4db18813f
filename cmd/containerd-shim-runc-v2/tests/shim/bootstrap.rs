//! The start action, as old and new daemons use it.

use containerd_api::{
    runtime::{
        bootstrap::v1::BootstrapParams,
        sandbox::v1::{PingRequest, sandbox_ttrpc},
    },
    task::v3 as api,
};
use prost::Message;
use serde_json::{Value, json};

use crate::setup::{Streams, with_runc};

#[test]
fn containers_of_a_pod_share_a_shim() {
    with_runc(async |world| {
        let group = json!({"annotations": {"io.kubernetes.cri.sandbox-id": "pod"}});
        let first = world.bundle("a", json!(["sleep", "1000"]), group.clone());
        let second = world.bundle("b", json!(["true"]), group);
        let address = world.action("a", &first, "start", &[], &[]);
        assert_eq!(address, world.action("b", &second, "start", &[], &[]));
        let address = String::from_utf8(address).unwrap();
        assert_eq!(std::fs::read_to_string(second.join("address")).unwrap(), address);
        let a = world.connect(&address, "a").await;
        let b = world.connect(&address, "b").await;
        a.create("a", &first, &Streams::default()).await.unwrap();
        b.create("b", &second, &Streams::default()).await.unwrap();
        a.start("").await.unwrap();
        b.start("").await.unwrap();
        assert_eq!(b.wait("").await.unwrap(), 0);
        b.delete("").await.unwrap();
        // The shim still has a container, so it stays.
        b.task.shutdown(&b.context(), &api::ShutdownRequest::default()).await.unwrap();
        a.kill("", 9, false).await.unwrap();
        assert_eq!(a.wait("").await.unwrap(), 137);
        a.delete("").await.unwrap();
        a.shutdown().await;
        let pid = world.shims.borrow()[0];
        crate::setup::until("end of the shim", || {
            // The shim is an orphan; whoever inherits it may take a while to collect it.
            std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
        })
        .await;
        assert_eq!(std::fs::read_dir("/run/containerd/s").unwrap().count(), 0);
    });
}

#[test]
fn every_service_and_version_answers() {
    with_runc(async |world| {
        let dir = world.bundle("v", json!(["true"]), json!({}));
        let params = BootstrapParams {
            instance_id: "v".into(),
            namespace: "testing".into(),
            socket_dir: Some("/run/sockets".into()),
            ..Default::default()
        };
        let answer = world.action("v", &dir, "start", &params.encode_to_vec(), &[("MAX_SHIM_VERSION", "2")]);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["version"], &answer["protocol"]), (&json!(3), &json!("ttrpc")));
        let address = answer["address"].as_str().unwrap();
        assert!(address.starts_with("unix:///run/sockets/"), "{address}");
        let shim = world.connect(address, "v").await;
        let request = api::ConnectRequest { id: "v".into() };
        let old: api::ConnectResponse =
            shim.client.call("containerd.task.v2.Task", "Connect", &shim.context(), &request).await.unwrap();
        assert!(old.shim_pid > 0);
        let sandbox = sandbox_ttrpc::Client::new(shim.client.clone());
        let ping = sandbox.ping_sandbox(&shim.context(), &PingRequest::default()).await;
        assert_eq!(ping.unwrap_err().code, 5, "a shim without a sandbox");
        shim.shutdown().await;
    });
}
