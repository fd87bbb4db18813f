use std::sync::{Arc, Mutex};

use core_types::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::*;

/// A plugin whose instance is its name.
fn named(kind: &str, id: &str) -> Registration {
    let name = format!("{kind}.{id}");
    Registration::new(kind, id, move |_| {
        let name = name.clone();
        async move { Ok(Instance::new(name)) }
    })
}

fn registry(all: impl IntoIterator<Item = Registration>) -> Registry {
    let mut registry = Registry::new();
    for one in all {
        registry.register(one).unwrap();
    }
    registry
}

fn uris(ordered: &[Registration]) -> Vec<String> {
    ordered.iter().map(Registration::uri).collect()
}

#[test]
fn each_plugin_comes_after_what_it_requires() {
    let all = [
        named("grpc", "tasks").requires("service"),
        named("service", "tasks").requires(("metadata", "db")).requires("runtime"),
        named("runtime", "v2").requires("metadata"),
        named("metadata", "db"),
        named("metadata", "other"),
    ];
    let order = uris(&registry(all).ordered(&[]).unwrap());
    assert_eq!(order, ["metadata.db", "metadata.other", "runtime.v2", "service.tasks", "grpc.tasks"]);
}

#[test]
fn a_cycle_is_named_from_start_to_end() {
    let all = [
        named("x", "outside").requires("a"),
        named("a", "1").requires(("b", "1")),
        named("b", "1").requires("c"),
        named("c", "1").requires("a"),
    ];
    let error = registry(all).ordered(&[]).unwrap_err();
    assert_eq!(error.to_string(), "plugins require each other: a.1 -> b.1 -> c.1 -> a.1");
}

#[test]
fn a_plugin_may_require_the_others_of_its_type() {
    let all = [named("a", "last").requires("a"), named("a", "first")];
    assert_eq!(uris(&registry(all).ordered(&[]).unwrap()), ["a.first", "a.last"]);
}

#[test]
fn the_same_plugin_twice_is_refused() {
    let mut registry = registry([named("a", "1")]);
    let error = registry.register(named("a", "1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains("a.1"));
}

#[tokio::test]
async fn a_failure_is_recorded_and_the_others_go_on() {
    let all = [
        Registration::new("snapshotter", "broken", |_| async { Err(Error::unavailable("no such device").into()) }),
        Registration::new("snapshotter", "absent", |_| async { Err(InitError::skip("no zfs here")) }),
        named("snapshotter", "good"),
        named("service", "any").requires("snapshotter"),
        named("service", "one").requires(("snapshotter", "broken")),
        named("service", "lost").requires("nowhere"),
        named("service", "easy").requires(Requirement::optional("nowhere")),
    ];
    let set = registry(all).start(StartOptions::default()).await.unwrap();
    let infos = set.infos();
    let error = |uri: &str| infos.iter().find(|info| info.uri() == uri).unwrap().error.clone();
    assert_eq!(error("snapshotter.broken"), Some((ErrorKind::Unavailable, "no such device".into())));
    assert_eq!(error("snapshotter.good"), None);
    assert_eq!(error("service.any"), None);
    assert_eq!(error("service.easy"), None);
    let (_, message) = error("service.one").unwrap();
    assert_eq!(message, "requires snapshotter.broken: snapshotter.broken did not start: no such device");
    let (_, message) = error("service.lost").unwrap();
    assert_eq!(message, "requires nowhere: not registered, or disabled");
    let absent = infos.iter().find(|info| info.id == "absent").unwrap();
    assert!(absent.skipped);
    assert_eq!(set.all::<String>("snapshotter").unwrap().len(), 1);
    assert_eq!(set.get::<String>("snapshotter", "broken").unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_required_plugin_that_fails_or_is_missing_ends_the_start() {
    let broken = || Registration::new("a", "1", |_| async { Err(Error::internal("boom").into()) });
    let options = |required: &str| StartOptions { required: vec![required.to_owned()], ..Default::default() };
    let error = registry([broken()]).start(options("a.1")).await.err().unwrap();
    assert_eq!(error.to_string(), "load required plugin a.1: boom");
    let error = registry([named("a", "1")]).start(options("a.2")).await.err().unwrap();
    assert!(error.to_string().contains("a.2"));
    let disabled = StartOptions { disabled: vec!["a.1".into()], ..options("a.1") };
    let error = registry([named("a", "1")]).start(disabled).await.err().unwrap();
    assert!(error.to_string().contains("disabled: a.1"));
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Shape {
    threshold: i64,
    name: String,
    inner: Inner,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Inner {
    on: bool,
    level: i64,
}

#[tokio::test]
async fn a_section_is_laid_over_the_defaults() {
    let default = Shape { threshold: 100, name: "d".into(), inner: Inner { on: true, level: 3 } };
    let plugin = || {
        Registration::new("gc", "scheduler", |context| async move { Ok(Instance::new(context.config::<Shape>()?)) })
            .config(&default)
    };
    let section: toml::Table = toml::from_str("name = 'x'\nmystery = 1\n[inner]\nlevel = 9\nodd = 2").unwrap();
    let config = [("gc.scheduler".to_owned(), section)].into();
    let set = registry([plugin()]).start(StartOptions { config, ..Default::default() }).await.unwrap();
    let read: Shape = set.get("gc", "scheduler").unwrap();
    assert_eq!(read, Shape { threshold: 100, name: "x".into(), inner: Inner { on: true, level: 9 } });

    let section: toml::Table = toml::from_str("threshold = 'many'").unwrap();
    let config = [("gc.scheduler".to_owned(), section)].into();
    let set = registry([plugin()]).start(StartOptions { config, ..Default::default() }).await.unwrap();
    let error = set.get::<Shape>("gc", "scheduler").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("[plugins.'gc.scheduler']"), "{error}");
}

#[test]
fn unknown_keys_are_listed_with_their_path() {
    let section = config::Section::of(&Shape::default()).unwrap();
    let table: toml::Table = toml::from_str("mystery = 1\n[inner]\nodd = 2").unwrap();
    let mut unknown = (section.unknown)(table).unwrap();
    unknown.sort();
    assert_eq!(unknown, ["inner.odd", "mystery"]);
}

#[tokio::test]
async fn directories_services_and_hooks() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let plugin = |id: &'static str| {
        let log = Arc::clone(&log);
        Registration::new("content", id, move |context| {
            let (serving, closing) = (Arc::clone(&log), Arc::clone(&log));
            async move {
                let root = context.create_root()?.to_owned();
                Ok(Instance::new(root)
                    .offer(Transport::Grpc, id)
                    .when_serving(move || async move { serving.lock().unwrap().push(format!("serving {id}")) })
                    .on_close(move || async move { closing.lock().unwrap().push(format!("closed {id}")) }))
            }
        })
    };
    let dir = tempfile::tempdir().unwrap();
    let options = StartOptions { root: dir.path().to_owned(), ..Default::default() };
    let set = registry([plugin("a"), plugin("b")]).start(options).await.unwrap();
    assert!(dir.path().join("content.a").is_dir());
    let offers = set.take_offers();
    assert_eq!(offers.len(), 2);
    assert_eq!(offers[1].service.downcast_ref::<&str>(), Some(&"b"));
    assert!(set.take_offers().is_empty());
    set.serving().await;
    set.close().await;
    set.close().await;
    assert_eq!(*log.lock().unwrap(), ["serving a", "serving b", "closed b", "closed a"]);
}
