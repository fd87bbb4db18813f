use std::{
    fs,
    time::{Duration, Instant},
};

use super::{
    fixture::{ANSWER, Place, sandbox},
    *,
};
use crate::error::{Cause, PluginFailure};

/// Longer than any of this takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

async fn eventually(mut what: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG, "it does not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn cause(error: Error) -> Cause {
    match error {
        Error::Plugin(PluginFailure { cause, .. }) => cause,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn plugins_run_in_order_and_are_told_what_they_declare() {
    let place = Place::new();
    place.conf(
        "10.conflist",
        r#"{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"a"},{"type":"b","capabilities":{"portMappings":true,"mac":true,"dns":false}}]}"#,
    );
    place.plugin(
        "a",
        &format!("ls $here/cache/results >> $here/intent\nif [ $CNI_COMMAND = ADD ]; then echo '{ANSWER}'; fi"),
    );
    place.good_plugin("b");
    let cni = place.cni();
    let mut pod = sandbox("pod1");
    pod.args = vec![("K8S_POD_NAMESPACE".into(), "default".into()), ("IgnoreUnknown".into(), "1".into())];
    pod.capabilities.mac = "02:00:00:00:00:01".into();
    pod.capabilities.dns = Some(crate::Dns::default());
    let setup = cni.setup(&pod).await.unwrap();
    assert_eq!(setup.ips, ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(setup.results.len(), 1);
    assert_eq!(fs::read_to_string(place.path("intent")).unwrap(), "net-pod1-eth0\n", "recorded before the first ADD");
    assert!(place.seen("ADD", "a").get("prevResult").is_none());
    assert!(place.seen("ADD", "a").get("runtimeConfig").is_none());
    let given = place.seen("ADD", "b");
    assert_eq!(given["prevResult"], serde_json::from_str::<Value>(ANSWER).unwrap());
    assert_eq!(given["runtimeConfig"], json!({"mac": "02:00:00:00:00:01"}));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("ADD a pod1 [/proc/self/ns/net] eth0 K8S_POD_NAMESPACE=default;IgnoreUnknown=1"), "{log}");

    cni.check(&pod).await.unwrap();
    assert_eq!(place.seen("CHECK", "a")["prevResult"], given["prevResult"]);
    // As it was attached, though the network is another now and nothing is told.
    place.list("10.conflist", "other", "1.0.0", &["c"]);
    cni.remove(&sandbox("pod1")).await.unwrap();
    assert_eq!(place.calls(), ["ADD a", "ADD b", "CHECK a", "CHECK b", "DEL b", "DEL a"]);
    let given = place.seen("DEL", "b");
    assert_eq!(given["runtimeConfig"], json!({"mac": "02:00:00:00:00:01"}));
    assert_eq!(given["prevResult"], serde_json::from_str::<Value>(ANSWER).unwrap());
    assert!(
        fs::read_to_string(place.path("log"))
            .unwrap()
            .contains("DEL a pod1 [/proc/self/ns/net] eth0 K8S_POD_NAMESPACE=default")
    );
    assert!(place.records().is_empty());
}

#[tokio::test]
async fn a_failure_in_the_middle_is_undone_on_all_networks() {
    let place = Place::new();
    place.list("10.conflist", "one", "1.0.0", &["a", "b"]);
    place.list("20.conflist", "two", "1.0.0", &["c"]);
    place.good_plugin("a");
    place.plugin("b", r#"if [ $CNI_COMMAND = ADD ]; then echo '{"cniVersion":"1.0.0","code":7,"msg":"bad","details":"mtu"}'; exit 1; fi"#);
    place.good_plugin("c");
    let cni = place.cni_with(|config| config.max_conf_num = 0);
    let error = cni.setup(&sandbox("p")).await.unwrap_err();
    assert!(error.to_string().contains(r#"network "one": plugin "b" failed at ADD: bad: mtu (code 7)"#), "{error}");
    assert!(matches!(cause(error), Cause::Reported { code: 7, .. }));
    let calls = place.calls();
    let deleted: Vec<_> = calls.iter().filter(|call| call.starts_with("DEL") && !call.ends_with('c')).collect();
    assert_eq!(deleted, ["DEL b", "DEL a"]);
    assert!(calls.contains(&"DEL c".to_owned()));
    assert!(place.records().is_empty());
}

#[tokio::test]
async fn what_cannot_be_undone_is_recorded_until_it_can() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a", "b"]);
    place.good_plugin("a");
    place.plugin("b", "echo nonsense >&2; exit 3");
    let cni = place.cni();
    let error = cni.setup(&sandbox("p")).await.unwrap_err();
    assert!(matches!(cause(error), Cause::Exit { status: 3, output } if output == "nonsense"));
    assert_eq!(place.records(), ["net-p-eth0"]);
    assert!(cni.remove(&sandbox("p")).await.is_err());
    assert_eq!(place.calls().last().unwrap(), "DEL a", "one that fails does not keep the others from it");
    place.good_plugin("b");
    fs::remove_file(place.path("conf/10.conflist")).unwrap();
    let mut gone = sandbox("p");
    gone.netns = "/gone".into();
    cni.remove(&gone).await.unwrap();
    assert!(place.records().is_empty());
}

#[tokio::test]
async fn a_removal_needs_neither_namespace_nor_record_nor_configuration() {
    let place = Place::new();
    place.good_plugin("a");
    let cni = place.cni();
    let mut pod = sandbox("p");
    cni.remove(&pod).await.unwrap();
    place.list("10.conflist", "net", "0.4.0", &["a"]);
    fs::write(place.path("no-namespace"), "").unwrap();
    pod.netns = place.path("no-namespace");
    cni.remove(&pod).await.unwrap();
    cni.remove(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(place.path("log")).unwrap(), "DEL a p [] eth0 \nDEL a p [] eth0 \n");
    place.conf("10.conflist", "{");
    cni.remove(&pod).await.unwrap();
    place.list("10.conflist", "net", "0.4.0", &["a"]);
    for (answer, well) in [
        (r#"{"code":3,"msg":"unknown"}"#, true),
        (r#"{"code":100,"msg":"open /x: no such file or directory"}"#, true),
        (r#"{"code":100,"msg":"exec: \"iptables\": executable file not found in $PATH"}"#, false),
        (r#"{"code":100,"msg":"busy"}"#, false),
    ] {
        place.plugin("a", &format!("echo '{answer}'; exit 1"));
        assert_eq!(cni.remove(&pod).await.is_ok(), well, "{answer}");
    }
}

#[tokio::test]
async fn a_record_that_is_damaged_does_not_keep_a_sandbox() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.good_plugin("a");
    let cni = place.cni();
    cni.setup(&sandbox("p")).await.unwrap();
    fs::write(place.path("cache/results/net-p-eth0"), "").unwrap();
    cni.remove(&sandbox("p")).await.unwrap();
    assert_eq!(place.calls(), ["ADD a", "DEL a"]);
    assert!(place.records().is_empty());
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_all_it_started() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.plugin("a", "[ $CNI_COMMAND = DEL ] && exit 0\nsleep 1000 & echo $! > $here/pid\nwait");
    let cni = place.cni_with(|config| config.timeout = Duration::from_secs(3));
    let error = cni.setup(&sandbox("p")).await.unwrap_err();
    assert_eq!(core_types::Error::from(error).kind(), core_types::ErrorKind::DeadlineExceeded);
    assert!(place.records().is_empty());
    let pid = fs::read_to_string(place.path("pid")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    eventually(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"))).await;
}

#[tokio::test]
async fn a_setup_that_is_given_up_leaves_a_record_and_no_plugin() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.plugin(
        "a",
        "[ $CNI_COMMAND = DEL ] && exit 0\necho $$ > $here/pid.new; mv $here/pid.new $here/pid\nexec sleep 1000",
    );
    let cni = place.cni();
    let begun = {
        let (cni, pod) = (cni.clone(), sandbox("p"));
        tokio::spawn(async move { cni.setup(&pod).await })
    };
    eventually(|| place.path("pid").exists()).await;
    begun.abort();
    assert!(begun.await.unwrap_err().is_cancelled());
    let stat = format!("/proc/{}/stat", fs::read_to_string(place.path("pid")).unwrap().trim());
    eventually(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"))).await;
    let recorded = cni.recorded().await.unwrap();
    assert_eq!((recorded.len(), recorded[0].id.as_str(), recorded[0].complete), (1, "p", false));
    cni.remove(&sandbox("p")).await.unwrap();
    assert_eq!(place.calls().last().unwrap(), "DEL a");
    assert!(place.records().is_empty());
}

#[tokio::test]
async fn every_way_to_fail_is_told_apart() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    let cni = place.cni();
    let fail = async |body: &str| {
        place.plugin("a", &format!("[ $CNI_COMMAND = DEL ] && exit 0\n{body}"));
        cause(cni.setup(&sandbox("p")).await.unwrap_err())
    };
    assert!(matches!(fail("echo hm >&2; kill -SEGV $$").await, Cause::Signal { signal: 11, output } if output == "hm"));
    assert!(matches!(fail("echo oops").await, Cause::Garbage { output, .. } if output == "oops"));
    assert!(matches!(fail("true").await, Cause::Garbage { .. }));
    assert!(matches!(fail(r#"echo '{"ips":[{"address":"x"}]}'"#).await, Cause::Garbage { .. }));
    assert!(matches!(fail("exec cat /dev/zero").await, Cause::TooMuch { .. }));
    assert!(matches!(fail("head -c 3000000 /dev/zero >&2; exit 4").await, Cause::Exit { status: 4, .. }));
    fs::write(place.path("bin/a"), "not a program").unwrap();
    assert!(matches!(cause(cni.setup(&sandbox("p")).await.unwrap_err()), Cause::Run(_) | Cause::Exit { .. }));
    fs::remove_file(place.path("bin/a")).unwrap();
    for error in [cni.setup(&sandbox("p")).await.map(drop).unwrap_err(), cni.status().await.unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("\"a\"") && text.contains("/empty") && text.contains("/bin"), "{text}");
    }
    fs::remove_file(place.path("conf/10.conflist")).unwrap();
    let text = cni.status().await.unwrap_err().to_string();
    assert!(text.contains(place.path("conf").to_str().unwrap()), "{text}");
}

#[tokio::test]
async fn a_daemon_that_a_plugin_starts_does_not_delay_it() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.plugin("a", &format!("sleep 1000 & echo $! > $here/pid\necho '{ANSWER}'"));
    let cni = place.cni();
    let outcome = cni.setup(&sandbox("p")).await;
    let pid = fs::read_to_string(place.path("pid")).unwrap().trim().parse().unwrap();
    let daemon = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    assert_eq!(outcome.unwrap().ips.len(), 1);
}

#[tokio::test]
async fn the_highest_version_that_all_plugins_speak_is_used() {
    let place = Place::new();
    place.conf(
        "10.conflist",
        r#"{"name":"net","cniVersion":"0.4.0","cniVersions":["0.4.0","1.0.0","1.1.0"],"plugins":[{"type":"a"},{"type":"b"}]}"#,
    );
    let answer = |versions: &str| {
        format!(
            "case $CNI_COMMAND in VERSION) echo '{{\"supportedVersions\":[{versions}]}}';; ADD) echo '{ANSWER}';; esac"
        )
    };
    place.plugin("a", &answer(r#""0.4.0","1.0.0","1.1.0""#));
    place.plugin("b", &answer(r#""0.3.1","0.4.0","1.0.0""#));
    let cni = place.cni();
    cni.setup(&sandbox("p")).await.unwrap();
    assert_eq!(place.seen("ADD", "a")["cniVersion"], "1.0.0");
    cni.setup(&sandbox("q")).await.unwrap();
    cni.remove(&sandbox("p")).await.unwrap();
    assert_eq!(place.seen("DEL", "a")["cniVersion"], "1.0.0");
    assert_eq!(place.calls().iter().filter(|call| call.starts_with("VERSION")).count(), 2, "each was asked once");
    place.plugin("old", r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#);
    assert_eq!(cni.plugin_versions("old").await.unwrap(), [SpecVersion::OLDEST].into());
}

#[tokio::test]
async fn networks_are_attached_at_once_or_one_after_the_other() {
    let place = Place::new();
    place.list("10.conflist", "one", "1.0.0", &["a"]);
    place.list("20.conflist", "two", "1.0.0", &["b"]);
    // Each waits for the other: one after the other they would never end.
    for (name, other) in [("a", "b"), ("b", "a")] {
        let meet = "n=0; until [ -e $here/met.OTHER ] || [ $n = 500 ]; do sleep 0.1; n=$((n+1)); done; [ $n != 500 ]";
        let meet = meet.replace("OTHER", other);
        place.plugin(
            name,
            &format!("[ $CNI_COMMAND = ADD ] || exit 0; touch $here/met.{name}; {meet} && echo '{ANSWER}'"),
        );
    }
    place.cni_with(|config| config.max_conf_num = 0).setup(&sandbox("p")).await.unwrap();
    assert_eq!(place.records(), ["one-p-eth0", "two-p-eth1"]);

    fs::remove_file(place.path("log")).unwrap();
    place.plugin("a", &format!("[ $CNI_COMMAND = ADD ] && sleep 0.5; echo '{ANSWER}'; echo end >> $here/log"));
    place.good_plugin("b");
    let serial = place.cni_with(|config| {
        config.max_conf_num = 0;
        config.setup_serially = true;
    });
    serial.setup(&sandbox("q")).await.unwrap();
    assert_eq!(place.calls(), ["ADD a", "end", "ADD b"]);
    place.plugin("a", "[ $CNI_COMMAND = DEL ]");
    fs::remove_file(place.path("log")).unwrap();
    serial.setup(&sandbox("r")).await.unwrap_err();
    assert_eq!(place.calls(), ["ADD a", "DEL a"], "the second was not begun");
}

#[tokio::test]
async fn what_belongs_to_no_sandbox_is_collected() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.1.0", &["a"]);
    place.good_plugin("a");
    let cni = place.cni();
    for id in ["keep", "stale"] {
        cni.setup(&sandbox(id)).await.unwrap();
    }
    fs::write(place.path("cache/results/foreign"), "{}").unwrap();
    cni.gc(&["keep"]).await.unwrap();
    let valid = json!([{"containerID": "keep", "ifname": "eth0"}]);
    assert_eq!(place.seen("GC", "a")["cni.dev/valid-attachments"], valid);
    assert_eq!(place.seen("GC", "a")["cni.dev/attachments"], valid);
    assert_eq!(place.records(), ["foreign", "net-keep-eth0"]);
    assert_eq!(place.calls()[2..], ["DEL a", "GC a"]);

    place.conf("10.conflist", r#"{"name":"net","cniVersion":"1.1.0","disableGC":true,"plugins":[{"type":"a"}]}"#);
    cni.gc(&[""; 0]).await.unwrap();
    assert_eq!(place.calls().len(), 4);
}

#[tokio::test]
async fn plugins_of_the_newest_version_say_whether_they_are_ready() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.plugin("a", r#"echo '{"code":50,"msg":"not ready","details":"no route"}'; exit 1"#);
    let cni = place.cni();
    cni.status().await.unwrap();
    assert!(place.calls().is_empty(), "earlier versions have no STATUS");
    place.list("10.conflist", "net", "1.1.0", &["a"]);
    let error = cni.status().await.unwrap_err();
    assert!(error.to_string().contains("no route"), "{error}");
    place.good_plugin("a");
    cni.status().await.unwrap();
}

#[tokio::test]
async fn networks_are_shown_as_the_reference_shows_them() {
    let place = Place::new();
    let cni = place.cni();
    assert_eq!(cni.configs().await["Networks"], json!([]));
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    let shown = cni.configs().await;
    assert_eq!(shown["PluginMaxConfNum"], 1);
    assert_eq!(shown["Networks"][0]["IFName"], "eth0");
    assert_eq!(shown["Networks"][0]["Config"]["Name"], "net");
    assert_eq!(shown["Networks"][0]["Config"]["Plugins"][0]["Network"]["type"], "a");
}

#[tokio::test]
async fn what_can_never_work_is_refused_at_once() {
    let place = Place::new();
    let cni = place.cni();
    for id in ["", "../x", "a/b", "a\0"] {
        assert!(matches!(cni.setup(&sandbox(id)).await, Err(Error::Invalid(_))), "{id:?}");
        assert!(matches!(cni.remove(&sandbox(id)).await, Err(Error::Invalid(_))), "{id:?}");
    }
    for prefix in ["a/", "much-too-long-a-prefix"] {
        let config = Config { prefix: prefix.into(), ..place.config() };
        assert!(Cni::new(config).is_err());
    }
    assert!(Cni::new(Config { bin_dirs: Vec::new(), ..place.config() }).is_err());
    place.list("10.conflist", "net", "0.3.1", &["a"]);
    place.good_plugin("a");
    assert!(matches!(cni.check(&sandbox("p")).await, Err(Error::CheckUnsupported { .. })));
}

#[tokio::test]
async fn what_another_runtime_attached_is_taken_off_by_its_record() {
    let place = Place::new();
    place.list("10.conflist", "net", "1.0.0", &["b"]);
    place.good_plugin("a");
    let config = r#"{"cniVersion":"0.4.0","name":"net","plugins":[{"type":"a","capabilities":{"cgroupPath":true}}]}"#;
    let config = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, config);
    let record = json!({"kind": "cniCacheV1", "containerId": "p", "config": config, "ifName": "eth0", "networkName": "net",
        "netns": "/var/run/netns/gone", "cniArgs": [["K8S_POD_NAME", "pod"]], "capabilityArgs": {"cgroupPath": "/pods"},
        "result": {"cniVersion": "0.4.0", "dns": {}}});
    let results = place.path("cache/results");
    fs::create_dir(&results).unwrap();
    fs::write(results.join("net-p-eth0"), record.to_string()).unwrap();
    fs::write(
        results.join("cni-loopback-p-lo"),
        r#"{"kind":"cniCacheV1","containerId":"p","config":"","ifName":"lo","networkName":"cni-loopback"}"#,
    )
    .unwrap();
    let pod = Attachment { id: "p".into(), ..Attachment::default() };
    place.cni().remove(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(place.path("log")).unwrap(), "DEL a p [] eth0 K8S_POD_NAME=pod\n");
    assert_eq!(place.seen("DEL", "a")["runtimeConfig"], json!({"cgroupPath": "/pods"}));
    assert_eq!(place.seen("DEL", "a")["prevResult"], record["result"]);
    assert!(place.records().is_empty());
}
