use super::*;

fn brief(hosts: &[HostConfig]) -> Vec<String> {
    hosts.iter().map(|host| format!("{}://{}{}", host.scheme, host.host, host.path)).collect()
}

#[test]
fn without_configuration_the_name_is_the_host() {
    let of = |name: &str| hosts_for(name, None, None).unwrap();
    assert_eq!(brief(&of("docker.io")), ["https://registry-1.docker.io/v2"]);
    assert_eq!(brief(&of("quay.io")), ["https://quay.io/v2"]);
    let local = of("127.0.0.1:5000");
    assert_eq!(brief(&local), ["https://127.0.0.1:5000/v2"]);
    assert!(local[0].falls_back_to_http && local[0].skip_verify == Some(true));
    assert_eq!(brief(&of("localhost:80")), ["http://localhost:80/v2"]);
    assert!(!of("localhost:443")[0].falls_back_to_http);
    assert!(!of("example.com:5000")[0].falls_back_to_http);
    assert!(is_loopback("[::1]:5000") && is_loopback("::1") && !is_loopback("localhost.example.com"));
    let plain = hosts_for("example.com", None, Some("http")).unwrap();
    assert_eq!(brief(&plain), ["http://example.com/v2"]);
}

#[test]
fn hosts_come_in_the_order_of_the_file_then_the_server() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("docker.io");
    std::fs::create_dir(&directory).unwrap();
    let text = r#"
        server = "https://upstream.example"
        [host."https://zebra.example/base"]
          capabilities = ["pull", "resolve"]
          ca = "ca.pem"
          skip_verify = true
          dial_timeout = "3s"
          [host."https://zebra.example/base".header]
            x-one = "1"
            x-two = ["a", "b"]
        [host."http://ant.example:5000/v2/mirror"]
          capabilities = ["pull"]
          override_path = true
          client = [["/etc/c.pem", "k.pem"], "both.pem"]
    "#;
    std::fs::write(directory.join("hosts.toml"), text).unwrap();
    let hosts = hosts_for("docker.io", Some(root.path()), None).unwrap();
    assert_eq!(
        brief(&hosts),
        ["https://zebra.example/base/v2", "https://ant.example:5000/v2/mirror", "https://upstream.example/v2"]
    );
    assert_eq!(hosts[0].ca, [directory.join("ca.pem")]);
    assert_eq!(hosts[0].headers.len(), 3);
    assert_eq!(hosts[0].dial_timeout, Some(Duration::from_secs(3)));
    assert!(hosts[1].falls_back_to_http && !hosts[1].capabilities.resolve);
    assert_eq!(hosts[1].client[0], (PathBuf::from("/etc/c.pem"), Some(directory.join("k.pem"))));
    assert_eq!(hosts[1].client[1], (directory.join("both.pem"), None));
    assert!(hosts[0].is_proxy_for("docker.io"));
}

#[test]
fn directories_are_found_by_port_form_and_default() {
    let root = tempfile::tempdir().unwrap();
    for (name, server) in [("host_5000_", "a"), ("host:5001", "b"), ("_default", "c")] {
        let directory = root.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("hosts.toml"), format!("server = \"https://{server}\"\n")).unwrap();
    }
    let of = |name: &str| hosts_for(name, Some(root.path()), None).unwrap()[0].host.clone();
    assert_eq!((of("host:5000"), of("host:5001"), of("other")), ("a".into(), "b".into(), "c".into()));
    assert!(hosts_for("..", Some(root.path()), None).is_err());
}

#[test]
fn a_malformed_file_leaves_the_default_host() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("quay.io");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("hosts.toml"), "server = [").unwrap();
    std::fs::write(directory.join("ca.crt"), "").unwrap();
    let hosts = hosts_for("quay.io", Some(root.path()), None).unwrap();
    assert_eq!(brief(&hosts), ["https://quay.io/v2"]);
    assert_eq!(hosts[0].ca, [directory.join("ca.crt")]);
}
