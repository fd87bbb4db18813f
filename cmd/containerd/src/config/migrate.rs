//! From older versions of the file to the newest.

use toml::{Table, Value};

use super::schema::{Config, DEBUG, GRPC, GRPC_METRICS, GRPC_TCP, Grpc, METRICS, TTRPC, VERSION};

/// Brings a file to the newest version, one version at a time.
pub(crate) fn migrate(config: &mut Config) {
    while config.version < VERSION {
        match config.version {
            1 => qualify_plugins(config),
            3 => move_servers(config),
            // A file without a version is of version 1; between 2 and 3 only plugins changed.
            _ => {}
        }
        config.version += 1;
    }
}

/// Version 1 has short names of plugins.
fn qualify_plugins(config: &mut Config) {
    let plugins = std::mem::take(&mut config.plugins);
    config.plugins = plugins.into_iter().map(|(name, section)| (qualified(&name), section)).collect();
    for name in config.disabled_plugins.iter_mut().chain(&mut config.required_plugins) {
        *name = qualified(name);
    }
}

fn qualified(name: &str) -> String {
    let kind = match name {
        _ if name.contains('.') => return name.to_owned(),
        "cgroups" => "monitor.v1",
        "linux" => "runtime.v1",
        "scheduler" => "gc.v1",
        "bolt" => "metadata.v1",
        "task" => "runtime.v2",
        "opt" | "restart" | "tracing" => "internal.v1",
        "otlp" => "tracing.processor.v1",
        "aufs" | "btrfs" | "devmapper" | "native" | "overlayfs" | "zfs" => "snapshotter.v1",
        _ if name.ends_with("-service") => "service.v1",
        _ => "grpc.v1",
    };
    format!("io.containerd.{kind}.{name}")
}

/// Version 4 has the listeners as plugins.
fn move_servers(config: &mut Config) {
    let (grpc, ttrpc) = (std::mem::take(&mut config.grpc), std::mem::take(&mut config.ttrpc));
    let metrics = std::mem::take(&mut config.metrics);
    if !config.debug.address.is_empty() {
        let section = listener(&config.debug.address, config.debug.uid, config.debug.gid);
        put(config, DEBUG, section);
        (config.debug.address, config.debug.uid, config.debug.gid) = Default::default();
    }
    put(config, GRPC, grpc_section(&grpc));
    put(config, GRPC_TCP, tcp_section(&grpc));
    let (mut address, mut uid, mut gid) = (ttrpc.address, ttrpc.uid, ttrpc.gid);
    if address.is_empty() && !grpc.address.is_empty() {
        address = format!("{}.ttrpc", grpc.address);
        uid = if uid == 0 { grpc.uid } else { uid };
        gid = if gid == 0 { grpc.gid } else { gid };
    }
    if !address.is_empty() || uid != 0 || gid != 0 {
        let mut section = listener(&address, uid, gid);
        if address.is_empty() {
            section.remove("address");
        }
        put(config, TTRPC, section);
    }
    if metrics.grpc_histogram {
        put(config, GRPC_METRICS, Table::from_iter([("grpc_histogram".to_owned(), Value::Boolean(true))]));
    }
    if !metrics.address.is_empty() {
        put(config, METRICS, Table::from_iter([("address".to_owned(), Value::String(metrics.address))]));
    }
}

/// Sets a section, unless it is empty or the file has it already.
fn put(config: &mut Config, uri: &str, section: Table) {
    if !section.is_empty() && !config.plugins.contains_key(uri) {
        config.plugins.insert(uri.to_owned(), Value::Table(section));
    }
}

fn listener(address: &str, uid: i64, gid: i64) -> Table {
    [("address", Value::from(address)), ("uid", uid.into()), ("gid", gid.into())]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn grpc_section(grpc: &Grpc) -> Table {
    let mut section = match grpc.address.as_str() {
        "" => Table::new(),
        address => listener(address, grpc.uid, grpc.gid),
    };
    if grpc.address.is_empty() {
        insert_number(&mut section, "uid", grpc.uid);
        insert_number(&mut section, "gid", grpc.gid);
    }
    insert_sizes(&mut section, grpc);
    section
}

fn tcp_section(grpc: &Grpc) -> Table {
    let mut section = Table::new();
    if grpc.tcp_address.is_empty() {
        return section;
    }
    let texts = [
        ("address", &grpc.tcp_address),
        ("tls_ca", &grpc.tcp_tls_ca),
        ("tls_cert", &grpc.tcp_tls_cert),
        ("tls_key", &grpc.tcp_tls_key),
        ("tls_common_name", &grpc.tcp_tls_common_name),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        section.insert(key.to_owned(), Value::String(text.clone()));
    }
    insert_sizes(&mut section, grpc);
    section
}

fn insert_sizes(section: &mut Table, grpc: &Grpc) {
    insert_number(section, "max_recv_message_size", grpc.max_recv_message_size);
    insert_number(section, "max_send_message_size", grpc.max_send_message_size);
}

fn insert_number(section: &mut Table, key: &str, value: i64) {
    if value != 0 {
        section.insert(key.to_owned(), value.into());
    }
}
