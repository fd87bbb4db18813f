use proptest::prelude::*;

use super::*;

fn list(text: &str) -> Result<Network, String> {
    Network::parse_list(text.as_bytes(), |_| Ok(Vec::new()))
}

fn versions(network: &Network) -> Vec<String> {
    network.versions.iter().map(ToString::to_string).collect()
}

#[test]
fn one_plugin_becomes_a_list() {
    let network =
        Network::parse_single(br#"{"name":"n","cniVersion":"0.4.0","type":"t","capabilities":{"a":true,"b":false}}"#);
    let network = network.unwrap();
    assert_eq!((network.name.as_str(), network.plugins[0].kind.as_str()), ("n", "t"));
    assert_eq!(versions(&network), ["0.4.0"]);
    assert_eq!(network.plugins[0].capabilities, ["a".to_owned()].into());
    let told = json!({"a": 1, "b": 2, "c": 3});
    assert_eq!(network.plugins[0].runtime_config(told.as_object().unwrap()).len(), 1);
}

#[test]
fn a_list_may_be_used_with_every_known_version_it_names() {
    let network =
        list(r#"{"name":"n","cniVersion":"1.0.0","cniVersions":["9.0.0","0.3.1","1.1.0"],"plugins":[{"type":"t"}]}"#);
    let network = network.unwrap();
    assert_eq!(versions(&network), ["0.3.1", "1.0.0", "1.1.0"]);
    let (pinned, text) = network.pinned(SpecVersion::new(1, 0, 0));
    assert_eq!(versions(&pinned), ["1.0.0"]);
    let again = Network::parse_list(&text, |_| panic!("it is complete")).unwrap();
    assert_eq!(versions(&again), ["1.0.0"]);
    assert_eq!(versions(&list(r#"{"name":"n","plugins":[{"type":"t"}]}"#).unwrap()), ["0.1.0"]);
}

#[test]
fn what_is_wrong_is_said() {
    for (text, said) in [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        (r#"{"plugins":[{"type":"t"}]}"#, "no \"name\""),
        (r#"{"name":"../n","plugins":[{"type":"t"}]}"#, "only letters"),
        (r#"{"name":"n"}"#, "no plugins"),
        (r#"{"name":"n","plugins":[]}"#, "is empty"),
        (r#"{"name":"n","plugins":{}}"#, "not a list"),
        (r#"{"name":"n","plugins":[{}]}"#, "no \"type\""),
        (r#"{"name":"n","plugins":[{"type":"../sh"}]}"#, "name of a file"),
        (r#"{"name":"n","cniVersion":"2.0.0","plugins":[{"type":"t"}]}"#, "not known"),
        (r#"{"name":"n","cniVersion":"x","plugins":[{"type":"t"}]}"#, "three numbers"),
        (r#"{"name":"n","disableGC":3,"plugins":[{"type":"t"}]}"#, "neither true nor false"),
        (r#"{"name":"n","plugins":[{"type":"t","capabilities":{"a":1}}]}"#, "neither true nor false"),
    ] {
        let error = list(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = Network::parse_single(br#"{"name":"n","plugins":[{"type":"t"}]}"#).unwrap_err();
    assert!(error.contains(".conflist"), "{error}");
}

#[test]
fn the_input_overrides_what_the_file_says() {
    let network = list(r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"t","name":"x","mtu":9}]}"#).unwrap();
    let more = json!({"prevResult": {}}).as_object().unwrap().clone();
    let input: Value = serde_json::from_slice(&network.plugins[0].input("n", network.highest(), more)).unwrap();
    assert_eq!(input, json!({"type": "t", "name": "n", "mtu": 9, "cniVersion": "1.0.0", "prevResult": {}}));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9./:]{0,8}".prop_map(Value::String),
        prop_oneof!["1.0.0", "0.2.0", "t", "n", "../x", "10.0.0.1/24"].prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop_oneof![
            "name",
            "type",
            "plugins",
            "cniVersion",
            "cniVersions",
            "capabilities",
            "disableCheck",
            "[a-z]{1,4}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_a_network_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Network::parse_single(&bytes);
        let _ = Network::parse_list(&bytes, |_| Ok(Vec::new()));
    }

    #[test]
    fn a_network_that_is_taken_can_be_used_and_read_again(name in any_json(), version in any_json(), plugin in any_json()) {
        for plugins in [json!([plugin]), plugin.clone(), json!([{"type": "t", "capabilities": plugin.clone()}])] {
            let text = json!({"name": name, "cniVersion": version, "plugins": plugins}).to_string();
            for name in [text.clone(), text.replacen(&format!("\"name\":{name}"), "\"name\":\"n\"", 1)] {
                if let Ok(network) = list(&name) {
                    prop_assert!(is_name(&network.name) && !network.plugins.is_empty() && !network.versions.is_empty());
                    prop_assert!(network.plugins.iter().all(|plugin| !plugin.kind.contains('/')));
                    let (_, text) = network.pinned(network.highest());
                    let again = Network::parse_pinned(&text).unwrap();
                    prop_assert_eq!(again.versions, vec![network.highest()]);
                    prop_assert_eq!(again.plugins.len(), network.plugins.len());
                }
            }
        }
    }
}
