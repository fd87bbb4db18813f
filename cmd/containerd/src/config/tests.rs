use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::{load::ConfigError, *};

fn write(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let first = dir.path().join(files[0].0);
    (dir, first)
}

fn loaded(text: &str) -> (Config, Vec<Remark>) {
    let (_dir, path) = write(&[("config.toml", text)]);
    load(&path).unwrap()
}

#[test]
fn a_file_of_version_four_is_laid_over_the_defaults() {
    let (config, remarks) = loaded(
        "version = 4\nroot = '/data'\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n\
         [plugins.'io.containerd.gc.v1.scheduler']\npause_threshold = 0.5\n",
    );
    assert_eq!((config.root.as_str(), config.state.as_str()), ("/data", "/run/containerd"));
    assert_eq!(config.disabled_plugins, ["io.containerd.grpc.v1.cri"]);
    let section = config.plugins["io.containerd.gc.v1.scheduler"].as_table().unwrap();
    assert_eq!(section["pause_threshold"].as_float(), Some(0.5));
    assert!(remarks.is_empty());
}

#[test]
fn servers_of_older_versions_become_plugins() {
    for version in [2, 3] {
        let (config, remarks) = loaded(&format!(
            "version = {version}\n[grpc]\naddress = '/x/c.sock'\ngid = 7\nmax_recv_message_size = 99\n\
             [metrics]\naddress = '127.0.0.1:1338'\n[debug]\nlevel = 'debug'\naddress = '/x/debug.sock'\n"
        ));
        assert_eq!(config.version, 4);
        assert_eq!(config.text(GRPC, "address"), Some("/x/c.sock"));
        assert_eq!(config.plugins[GRPC]["gid"].as_integer(), Some(7));
        assert_eq!(config.plugins[GRPC]["max_recv_message_size"].as_integer(), Some(99));
        assert_eq!(config.text(TTRPC, "address"), Some("/x/c.sock.ttrpc"));
        assert_eq!(config.plugins[TTRPC]["gid"].as_integer(), Some(7));
        assert_eq!(config.text("io.containerd.server.v1.metrics", "address"), Some("127.0.0.1:1338"));
        assert_eq!(config.text("io.containerd.server.v1.debug", "address"), Some("/x/debug.sock"));
        assert_eq!(config.debug.level, "debug");
        assert!(matches!(remarks[..], [Remark::Migrated { from, .. }] if from == version));
        let text = toml::to_string(&config).unwrap();
        assert!(!text.contains("[grpc]") && !text.contains("[metrics]"), "{text}");
    }
}

#[test]
fn a_file_without_a_version_has_short_names() {
    let (config, _) = loaded("disabled_plugins = ['cri', 'zfs']\n[plugins.scheduler]\nx = 1\n");
    assert_eq!(config.disabled_plugins, ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.zfs"]);
    assert!(config.plugins.contains_key("io.containerd.gc.v1.scheduler"));
}

#[test]
fn unknown_keys_are_remarked_with_their_path() {
    let (_, remarks) = loaded("version = 4\ncolour = 1\n[debug]\nlevel = 'info'\nshade = 2\n");
    let keys: Vec<_> = remarks
        .iter()
        .filter_map(|remark| match remark {
            Remark::UnknownKey { key, .. } => Some(key.as_str()),
            Remark::Migrated { .. } => None,
        })
        .collect();
    assert_eq!(keys, ["colour", "debug.shade"]);
}

#[test]
fn a_mistake_is_named_by_file_and_line() {
    for text in ["version = 4\nroot = \n", "version = 4\nroot = 5\n", "version = 4\n\"root = 'x'\n"] {
        let (_dir, path) = write(&[("config.toml", text)]);
        let message = load(&path).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}:2:", path.display())), "{message}");
    }
}

#[test]
fn a_newer_version_and_short_plugin_names_are_refused() {
    let (_dir, path) = write(&[("config.toml", "version = 5\n")]);
    assert!(matches!(load(&path), Err(ConfigError::Version { version: 5, .. })));
    let (_dir, path) = write(&[("config.toml", "version = 3\nrequired_plugins = ['cri']\n")]);
    assert!(matches!(load(&path), Err(ConfigError::PluginName(_))));
}

#[test]
fn imports_are_laid_over_in_order() {
    let (_dir, path) = write(&[
        (
            "config.toml",
            "version = 3\nroot = '/a'\nimports = ['conf.d/*.toml', 'config.toml', 'none.d/*']\n\
             [plugins.'x.y']\na = 1\nb = 1\n[timeouts]\n't.one' = '1s'\n",
        ),
        ("conf.d/10.toml", "version = 2\nroot = '/b'\n[plugins.'x.y']\nb = 2\n"),
        ("conf.d/20.toml", "version = 3\ndisabled_plugins = ['io.x.y']\n[timeouts]\n't.one' = '2s'\n"),
        ("conf.d/note.txt", "not read = = ="),
    ]);
    let (config, _) = load(&path).unwrap();
    assert_eq!(config.root, "/b");
    let section = config.plugins["x.y"].as_table().unwrap();
    assert_eq!((section["a"].as_integer(), section["b"].as_integer()), (Some(1), Some(2)));
    assert_eq!(config.timeouts["t.one"], "2s");
    assert_eq!(config.disabled_plugins, ["io.x.y"]);
}

#[test]
fn an_import_must_not_be_newer_and_must_be_there() {
    let (_dir, path) =
        write(&[("config.toml", "version = 2\nimports = ['new.toml']\n"), ("new.toml", "version = 3\n")]);
    assert!(matches!(load(&path), Err(ConfigError::DropIn { version: 3, root: 2, .. })));
    let (_dir, path) = write(&[("config.toml", "version = 2\nimports = ['absent.toml']\n")]);
    assert!(load(&path).unwrap_err().to_string().contains("absent.toml"));
}

#[test]
fn what_is_rendered_can_be_loaded_and_is_complete() {
    let registry = crate::builtins::registry().unwrap();
    let text = render(Config::defaults(), &registry).unwrap();
    assert!(text.starts_with("version = 4\n"), "{text}");
    let (config, remarks) = loaded(&text);
    assert!(remarks.is_empty(), "{remarks:?}");
    assert_eq!(config.text(GRPC, "address"), Some(DEFAULT_ADDRESS));
    assert_eq!(render(config, &registry).unwrap(), text);
}
