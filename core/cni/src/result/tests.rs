use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(value: Value) -> Result<NetworkResult, String> {
    NetworkResult::parse(&value, SpecVersion::NEWEST)
}

#[test]
fn results_of_the_old_form_become_the_new_one() {
    let old = json!({"cniVersion": "0.2.0",
        "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.0.0.9"}]},
        "ip6": {"ip": "fd00::2/64"}, "dns": {"nameservers": ["1.1.1.1"]}});
    let result = parse(old).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.2");
    assert_eq!(result.ips[1].prefix, 64);
    let hops: Vec<_> = result.routes.iter().map(|route| route.gateway.unwrap().to_string()).collect();
    assert_eq!(hops, ["10.0.0.1", "10.0.0.9"]);
    assert_eq!(result.dns.nameservers, ["1.1.1.1"]);
    let untold = json!({"ip4": {"ip": "10.0.0.2/24"}});
    assert_eq!(NetworkResult::parse(&untold, SpecVersion::OLDEST).unwrap().ips.len(), 1);
}

#[test]
fn addresses_of_the_sandbox_come_first() {
    let new = json!({"cniVersion": "0.3.1",
        "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/ns", "mac": "aa"}],
        "ips": [{"version": "4", "address": "10.0.0.1/24", "interface": 0},
                {"version": "4", "address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 1}],
        "routes": [{"dst": "::/0", "gw": "fe80::1"}], "dns": null});
    let result = parse(new).unwrap();
    assert_eq!(result.ips.iter().map(|ip| ip.address.to_string()).collect::<Vec<_>>(), ["10.0.0.2", "10.0.0.1"]);
    assert_eq!(result.routes[0].destination.to_string(), "::");
    assert_eq!(result.interfaces[1].mac, "aa");
}

#[test]
fn what_cannot_be_is_refused() {
    for bad in [
        json!([]),
        json!({"cniVersion": 1}),
        json!({"cniVersion": "7.0.0"}),
        json!({"ips": [{"address": "10.0.0.2"}]}),
        json!({"ips": [{"address": "10.0.0.2/33"}]}),
        json!({"ips": [{"address": "10.0.0.2/8", "gateway": "gw"}]}),
        json!({"ips": [{"address": "10.0.0.2/8", "interface": 0}]}),
        json!({"interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.2/8", "interface": -1}]}),
        json!({"routes": [{"dst": "default"}]}),
        json!({"cniVersion": "0.2.0", "ip4": {"ip": "fd00::/129"}}),
    ] {
        assert!(parse(bad.clone()).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn every_result_that_is_taken_points_at_its_interfaces(
        version in prop_oneof!["0\\.[0-4]\\.[0-2]", "1\\.[01]\\.0", "[0-9.]{0,5}"],
        sandboxes in prop::collection::vec("(/ns)?", 0..4),
        ips in prop::collection::vec((any::<std::net::IpAddr>(), 0_u8..140, prop::option::of(-2_i64..5)), 0..5),
        old in prop::option::of("[0-9a-f.:/]{0,12}"),
    ) {
        let interfaces: Vec<_> = sandboxes.iter().map(|sandbox| json!({"name": "i", "sandbox": sandbox})).collect();
        let addresses: Vec<_> = ips.iter().map(|(address, prefix, interface)| {
            json!({"address": format!("{address}/{prefix}"), "interface": interface})
        }).collect();
        let value = json!({"cniVersion": version, "interfaces": interfaces, "ips": addresses, "ip4": old.map(|ip| json!({"ip": ip}))});
        if let Ok(result) = parse(value) {
            let in_sandbox: Vec<bool> = result.ips.iter().map(|ip| {
                ip.interface.is_none_or(|index| !result.interfaces[index].sandbox.is_empty())
            }).collect();
            prop_assert!(in_sandbox.is_sorted_by_key(|inside| !inside));
            let longest = |ip: &ResultIp| if ip.address.is_ipv4() { 32 } else { 128 };
            prop_assert!(result.ips.iter().all(|ip| ip.prefix <= longest(ip)));
        }
    }

    #[test]
    fn any_bytes_are_a_result_or_an_error(text in "[\\[\\]{}\",:a-z0-9./]{0,64}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = parse(value);
        }
    }
}
