//! The rules of the layers, read from `cargo metadata`.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).exec().unwrap()
}

/// The first folder below the workspace's root: `core`, `plugins`, `api` …
fn layer(metadata: &Metadata, package: &Package) -> String {
    let path = package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap();
    path.components().next().unwrap().to_string()
}

/// What a package needs at run time, as named in its manifest.
fn direct(package: &Package) -> BTreeSet<String> {
    package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal).map(|d| d.name.clone()).collect()
}

fn layers(metadata: &Metadata) -> BTreeMap<String, String> {
    metadata.workspace_packages().iter().map(|p| (p.name.to_string(), layer(metadata, p))).collect()
}

#[test]
fn core_knows_neither_rpc_nor_the_layers_above() {
    let metadata = metadata();
    let layers = layers(&metadata);
    for package in metadata.workspace_packages() {
        if layer(&metadata, package) != "core" {
            continue;
        }
        for dependency in direct(package) {
            let rpc = ["tonic", "prost", "ttrpc", "hyper", "clap"].iter().any(|name| dependency.starts_with(name));
            assert!(!rpc, "{} depends on {dependency}", package.name);
            let above = layers.get(&dependency).filter(|layer| *layer != "core");
            assert!(above.is_none(), "{} depends on {dependency}", package.name);
        }
    }
}

#[test]
fn the_shim_stays_small() {
    let metadata = metadata();
    let packages: BTreeMap<_, _> = metadata.packages.iter().map(|p| (p.id.clone(), p)).collect();
    let nodes: BTreeMap<_, _> = metadata.resolve.as_ref().unwrap().nodes.iter().map(|n| (n.id.clone(), n)).collect();
    let shim = metadata.packages.iter().find(|p| p.name.as_str() == "containerd-shim-runc-v2").unwrap();
    let (mut seen, mut todo) = (BTreeSet::new(), vec![shim.id.clone()]);
    while let Some(id) = todo.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in &nodes[&id].deps {
            if dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal) {
                todo.push(dependency.pkg.clone());
            }
        }
    }
    let names: BTreeSet<_> = seen.iter().map(|id| packages[id].name.as_str()).collect();
    for heavy in ["tonic", "heed", "hyper", "reqwest", "tracing-subscriber", "clap", "rustls"] {
        assert!(!names.contains(heavy), "the shim depends on {heavy}");
    }
}

#[test]
fn nothing_but_the_programs_depends_on_programs() {
    let metadata = metadata();
    let layers = layers(&metadata);
    for package in metadata.workspace_packages() {
        for dependency in direct(package) {
            let program = layers.get(&dependency).is_some_and(|layer| layer == "cmd");
            assert!(!program, "{} depends on {dependency}", package.name);
        }
    }
}
