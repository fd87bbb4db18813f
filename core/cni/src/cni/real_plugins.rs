//! With the plugins of the distribution, in namespaces of their own.

use std::{fs, process::Command};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use super::{fixture::Place, *};

const PLUGINS: &str = "/usr/lib/cni";

/// Gives this test namespaces of its own and a sandbox's network namespace; none where that cannot be.
fn world(plugins: &[&str]) -> Option<(Place, PathBuf)> {
    if let Some(missing) = plugins.iter().find(|plugin| !Path::new(PLUGINS).join(plugin).exists()) {
        eprintln!("skipped: no network plugin {missing} in {PLUGINS}");
        return None;
    }
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
        eprintln!("skipped: no namespaces of its own: {error}");
        return None;
    }
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    // What plugins lock and write there is this test's alone; the switches of its network are in a /sys of its own.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let _ = mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>);
    if run("ip", &["link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]).is_none() {
        eprintln!("skipped: no veth interfaces, or no ip(8)");
        return None;
    }
    run("ip", &["link", "del", "probe0"]).unwrap();
    let place = Place::new();
    let netns = place.path("netns");
    make_netns(&netns);
    Some((place, netns))
}

fn make_netns(path: &Path) {
    fs::write(path, "").unwrap();
    let path = path.to_owned();
    let made = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    });
    made.join().unwrap();
}

/// What a program says, if it does well.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn inside(netns: &Path, arguments: &[&str]) -> String {
    let enter = format!("--net={}", netns.display());
    run("nsenter", &[&[enter.as_str()], arguments].concat()).unwrap()
}

fn real(place: &Place, change: impl FnOnce(&mut Config)) -> Cni {
    let mut config = place.config();
    config.bin_dirs = vec![place.path("bin"), PLUGINS.into()];
    change(&mut config);
    Cni::new(config).unwrap()
}

fn pod(id: &str, netns: &Path) -> Attachment {
    Attachment {
        id: id.into(),
        netns: netns.into(),
        args: vec![("IgnoreUnknown".into(), "1".into()), ("K8S_POD_NAME".into(), id.into())],
        ..Attachment::default()
    }
}

fn leases(place: &Place, network: &str) -> usize {
    let Ok(entries) = fs::read_dir(place.path("ipam").join(network)) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().contains("10.")).count()
}

fn bridge(place: &Place, more: &[Value]) -> String {
    let ipam = json!({"type": "host-local", "dataDir": place.path("ipam"),
        "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd88::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let mut plugins = vec![json!({"type": "bridge", "bridge": "br-test", "isGateway": true, "ipam": ipam})];
    plugins.extend(more.iter().cloned());
    json!({"name": "bridged", "cniVersion": "1.0.0", "plugins": plugins}).to_string()
}

#[tokio::test]
async fn a_bridge_with_both_families_is_attached_checked_and_taken_off() {
    let Some((place, netns)) = world(&["bridge", "host-local", "loopback", "tuning"]) else { return };
    place.conf("10.conflist", &bridge(&place, &[json!({"type": "tuning", "mtu": 1400})]));
    let cni = real(&place, |config| config.ip_preference = crate::IpPreference::Ipv6);
    cni.status().await.unwrap();
    let sandbox = pod("pod1", &netns);
    let setup = cni.setup(&sandbox).await.unwrap();
    assert!(setup.ips[0].is_ipv6() && setup.ips[1].to_string().starts_with("10.88.0."), "{:?}", setup.ips);
    let eth0 = &setup.interfaces["eth0"];
    assert_eq!(Path::new(&eth0.sandbox), netns);
    assert_eq!(eth0.ips.iter().find(|ip| ip.address.is_ipv4()).unwrap().gateway.unwrap().to_string(), "10.88.0.1");
    assert_eq!(setup.routes.len(), 2);
    let addresses = inside(&netns, &["ip", "addr"]);
    assert!(addresses.contains(&setup.ips[1].to_string()) && addresses.contains("mtu 1400"), "{addresses}");
    assert!(addresses.contains("127.0.0.1/8"), "loopback is up: {addresses}");
    cni.check(&sandbox).await.unwrap();
    assert_eq!((leases(&place, "bridged"), place.records().len()), (1, 1));

    // A second one gets another address, and is removed when its namespace is gone.
    let other = place.path("netns2");
    make_netns(&other);
    let second = cni.setup(&pod("pod2", &other)).await.unwrap();
    assert_ne!(second.ips, setup.ips);
    nix::mount::umount2(&other, nix::mount::MntFlags::MNT_DETACH).unwrap();
    cni.remove(&pod("pod2", &other)).await.unwrap();
    fs::remove_file(&other).unwrap();
    cni.remove(&pod("pod2", &other)).await.unwrap();
    assert_eq!(leases(&place, "bridged"), 1);

    inside(&netns, &["ip", "addr", "flush", "dev", "eth0"]);
    assert!(cni.check(&sandbox).await.is_err(), "an address that is gone is noticed");
    cni.remove(&sandbox).await.unwrap();
    cni.remove(&sandbox).await.unwrap();
    assert!(!inside(&netns, &["ip", "link"]).contains("eth0"));
    assert_eq!((leases(&place, "bridged"), place.records().len()), (0, 0));
}

#[tokio::test]
async fn a_failure_after_the_bridge_gives_its_address_back() {
    let Some((place, netns)) = world(&["bridge", "host-local", "loopback"]) else { return };
    place.conf("10.conflist", &bridge(&place, &[json!({"type": "broken"})]));
    place.plugin("broken", "[ $CNI_COMMAND = DEL ] || exit 1");
    let cni = real(&place, |_| {});
    assert!(cni.setup(&pod("pod1", &netns)).await.is_err());
    assert_eq!((leases(&place, "bridged"), place.records().len()), (0, 0));
    assert!(!inside(&netns, &["ip", "link"]).contains("eth0"));
}

#[tokio::test]
async fn ports_firewall_and_bandwidth_follow_the_bridge() {
    let Some((place, netns)) = world(&["bridge", "host-local", "loopback", "portmap", "firewall", "bandwidth"]) else {
        return;
    };
    if run("iptables", &["-t", "nat", "-S"]).is_none() || run("ip6tables", &["-t", "nat", "-S"]).is_none() {
        eprintln!("skipped: iptables does not work here");
        return;
    }
    for family in ["ip_forward", "conf/all/forwarding"] {
        let _ = fs::write(format!("/proc/sys/net/ipv4/{family}"), "1");
    }
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": true});
    let firewall = json!({"type": "firewall", "backend": "iptables"});
    place.conf("10.conflist", &bridge(&place, &[portmap.clone(), firewall.clone()]));
    let cni = real(&place, |_| {});
    let mut sandbox = pod("pod1", &netns);
    sandbox.capabilities.port_mappings =
        vec![crate::PortMapping { host_port: 8080, container_port: 80, protocol: "tcp".into(), host_ip: None }];
    let setup = cni.setup(&sandbox).await.unwrap();
    let ipv4 = setup.ips[0].to_string();
    let rules = run("iptables-save", &[]).unwrap();
    assert!(
        rules.contains(&format!("--to-destination {ipv4}:80")) && rules.contains(&format!("-s {ipv4}/32")),
        "{rules}"
    );
    // All that the plugins need to know for this is on disk.
    cni.remove(&pod("pod1", Path::new(""))).await.unwrap();
    let rules = run("iptables-save", &[]).unwrap();
    assert!(!rules.contains(&ipv4), "{rules}");
    assert_eq!(leases(&place, "bridged"), 0);

    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    place.conf("10.conflist", &bridge(&place, &[bandwidth]));
    let netns = place.path("netns3");
    make_netns(&netns);
    let mut sandbox = pod("pod3", &netns);
    sandbox.capabilities.bandwidth = Some(crate::Bandwidth::rates(Some(1_000_000), None));
    match cni.setup(&sandbox).await {
        Ok(setup) => {
            let host = setup.interfaces.keys().find(|name| name.starts_with("veth")).unwrap();
            let shaped = run("tc", &["qdisc", "show", "dev", host]);
            assert!(shaped.as_ref().is_none_or(|text| text.contains("tbf")), "{shaped:?}");
            cni.remove(&sandbox).await.unwrap();
        }
        Err(error) => {
            eprintln!("skipped: this kernel shapes no traffic: {error}");
            assert_eq!((leases(&place, "bridged"), place.records().len()), (0, 0));
        }
    }
}

#[tokio::test]
async fn two_networks_have_an_interface_each() {
    let Some((place, netns)) = world(&["bridge", "ptp", "host-local", "loopback"]) else { return };
    place.conf("10.conflist", &bridge(&place, &[]));
    let ipam = json!({"type": "host-local", "dataDir": place.path("ipam"), "subnet": "10.99.0.0/24"});
    place.conf("20.conf", &json!({"name": "direct", "cniVersion": "0.3.1", "type": "ptp", "ipam": ipam}).to_string());
    for serially in [false, true] {
        let cni = real(&place, |config| {
            config.max_conf_num = 0;
            config.setup_serially = serially;
        });
        let setup = cni.setup(&pod("pod1", &netns)).await.unwrap();
        assert_eq!(setup.ips.len(), 2);
        assert!(setup.ips[0].to_string().starts_with("10.88."));
        assert!(setup.interfaces["eth1"].ips[0].address.to_string().starts_with("10.99."));
        assert_eq!((leases(&place, "bridged"), leases(&place, "direct")), (1, 1));
        // Nothing recorded any more: what is configured is taken off.
        fs::remove_dir_all(place.path("cache/results")).unwrap();
        cni.remove(&pod("pod1", &netns)).await.unwrap();
        assert_eq!((leases(&place, "bridged"), leases(&place, "direct")), (0, 0));
    }
}

#[tokio::test]
async fn an_old_version_answers_in_the_old_form() {
    let Some((place, netns)) = world(&["bridge", "host-local", "loopback"]) else { return };
    let ipam = json!({"type": "host-local", "dataDir": place.path("ipam"), "subnet": "10.77.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    let conf = json!({"name": "old", "cniVersion": "0.2.0", "type": "bridge", "bridge": "br-old", "isGateway": true, "ipam": ipam});
    place.conf("10.conf", &conf.to_string());
    let cni = real(&place, |_| {});
    let setup = cni.setup(&pod("pod1", &netns)).await.unwrap();
    assert!(setup.ips[0].to_string().starts_with("10.77.0."));
    assert_eq!(setup.routes[0].gateway.unwrap().to_string(), "10.77.0.1");
    assert!(setup.results[0].get("ip4").is_some());
    cni.remove(&pod("pod1", &netns)).await.unwrap();
    assert_eq!(leases(&place, "old"), 0);
}

#[tokio::test]
async fn loopback_comes_up_without_its_plugin() {
    let Some((place, netns)) = world(&[]) else { return };
    place.list("10.conflist", "net", "1.0.0", &["a"]);
    place.good_plugin("a");
    // No such plugin in the directories, or one that must not be asked.
    for internal in [false, true] {
        let netns = if internal { netns.clone() } else { place.path("other") };
        if internal {
            place.plugin("loopback", "exit 1");
        } else {
            make_netns(&netns);
        }
        let cni = Cni::new(Config { use_internal_loopback: internal, ..place.config() }).unwrap();
        assert!(!inside(&netns, &["ip", "addr"]).contains("127.0.0.1"));
        cni.setup(&pod("pod1", &netns)).await.unwrap();
        let addresses = inside(&netns, &["ip", "addr"]);
        assert!(addresses.contains("127.0.0.1/8") && addresses.contains("UP"), "{addresses}");
    }
    let gone = pod("pod2", Path::new("/gone"));
    let cni = Cni::new(Config { use_internal_loopback: true, ..place.config() }).unwrap();
    let error = cni.setup(&gone).await.unwrap_err();
    assert!(matches!(&error, Error::Loopback { .. }), "{error}");
    assert!(!place.records().iter().any(|name| name.contains("pod2")));
}
