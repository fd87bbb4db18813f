//! What registries do wrong, and what becomes of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, unreachable_pub)]

#[path = "support/server.rs"]
#[allow(dead_code)]
mod server;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use core_remotes::{Credential, Credentials, Download, Resolver, ResolverOptions, Secret};
use core_types::{Descriptor, Digest, ErrorKind, Result, media_types};
use server::{Reply, Request, Server};

const MANIFEST: &str = r#"{"schemaVersion":2,"config":{},"layers":[]}"#;

fn resolver() -> Resolver {
    Resolver::new(ResolverOptions::default())
}

fn manifest_reply() -> Reply {
    Reply::new(200)
        .header("content-type", media_types::OCI_MANIFEST)
        .header("docker-content-digest", Digest::of(MANIFEST.as_bytes()).to_string())
        .body(MANIFEST)
}

fn blob() -> (Vec<u8>, Descriptor) {
    let bytes: Vec<u8> = (0..400_000_u32).map(|at| (at % 253) as u8).collect();
    let descriptor = Descriptor::new(media_types::OCI_LAYER_GZIP, Digest::of(&bytes), bytes.len() as u64);
    (bytes, descriptor)
}

async fn drain(mut download: Download) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = download.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

async fn fetch(host: &str, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let fetcher = resolver().fetcher(&format!("{host}/a:b")).await?;
    drain(fetcher.fetch(descriptor, 0).await?).await
}

struct Password(AtomicUsize);

#[async_trait]
impl Credentials for Password {
    async fn credential(&self, _host: &str, _reference: &str) -> Result<Credential> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Credential::Password { username: "user".into(), password: Secret::new("hunter2") })
    }
}

fn with_password() -> Resolver {
    let credentials = Arc::new(Password(AtomicUsize::new(0)));
    Resolver::new(ResolverOptions { credentials: Some(credentials), ..ResolverOptions::default() })
}

#[tokio::test]
async fn a_loopback_host_without_tls_is_spoken_to_plainly() {
    let server = Server::start(|_| manifest_reply()).await;
    let (descriptor, _) = resolver().resolve(&format!("{}/a:b", server.host())).await.unwrap();
    assert_eq!(descriptor.digest, Digest::of(MANIFEST.as_bytes()));
    assert_eq!(descriptor.media_type, media_types::OCI_MANIFEST);
    assert_eq!(server.count("HEAD", "/v2/a/manifests/b"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_same_time_all_find_out_that_a_host_is_plain() {
    let (bytes, descriptor) = blob();
    let whole = bytes.clone();
    let server = Server::start(move |request| Reply::ranged(request, &whole)).await;
    let fetcher = resolver().fetcher(&format!("{}/a:b", server.host())).await.unwrap();
    let fetches = (0..16).map(|_| async { drain(fetcher.fetch(&descriptor, 0).await?).await });
    for result in futures::future::join_all(fetches).await {
        assert_eq!(result.unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_host_that_says_little_is_read_in_full() {
    let server = Server::start(|request| match request.method.as_str() {
        "HEAD" => Reply::new(405),
        _ => Reply::new(200).body(
            MANIFEST.replace('{', &format!(r#"{{"mediaType":"{}","#, media_types::OCI_MANIFEST)).replacen(
                &format!(r#""config":{{"mediaType":"{}","#, media_types::OCI_MANIFEST),
                r#""config":{"#,
                1,
            ),
        ),
    })
    .await;
    let (descriptor, _) = resolver().resolve(&format!("{}/a:b", server.host())).await.unwrap();
    assert_eq!(descriptor.media_type, media_types::OCI_MANIFEST);
}

#[tokio::test]
async fn refusals_have_their_kinds_and_the_registrys_words() {
    for (status, kind) in [
        (404, ErrorKind::NotFound),
        (401, ErrorKind::Unauthenticated),
        (403, ErrorKind::PermissionDenied),
        (400, ErrorKind::InvalidArgument),
    ] {
        let server = Server::start(move |_| {
            Reply::new(status).body(r#"{"errors":[{"code":"NOPE","message":"because of the moon"}]}"#)
        })
        .await;
        let error = resolver().resolve(&format!("{}/a:b", server.host())).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(&server.host()), "{error}");
        if status == 403 {
            assert!(error.message().contains("because of the moon"), "{error}");
        }
    }
}

#[tokio::test]
async fn too_many_requests_are_waited_out_as_told() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::new(429).header("retry-after", "1"),
        2 => Reply::new(503),
        _ => manifest_reply(),
    })
    .await;
    let begun = Instant::now();
    resolver().resolve(&format!("{}/a:b", server.host())).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_host_that_wants_an_hour_is_given_up_at_once() {
    let server = Server::start(|_| {
        Reply::new(429)
            .header("retry-after", "3600")
            .body(r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#)
    })
    .await;
    let error = resolver().resolve(&format!("{}/a:b", server.host())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().contains("slow down"), "{error}");
}

#[tokio::test]
async fn a_server_error_on_manifests_is_not_answered_by_blobs() {
    let server = Server::start(|_| Reply::new(501)).await;
    let descriptor = Descriptor::new(media_types::OCI_MANIFEST, Digest::of(b"x"), 1);
    let error = fetch(&server.host(), &descriptor).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unimplemented);
    assert!(server.requests().iter().all(|request| !request.path.contains("/blobs/")));
}

#[tokio::test]
async fn a_broken_body_goes_on_by_range() {
    let (bytes, descriptor) = blob();
    let whole = bytes.clone();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let reply = Reply::ranged(request, &whole);
        if count.fetch_add(1, Ordering::SeqCst) < 3 { reply.cut_after(100_000) } else { reply }
    })
    .await;
    assert_eq!(fetch(&server.host(), &descriptor).await.unwrap(), bytes);
    let starts: Vec<_> = server.requests().iter().map(Request::range_start).collect();
    assert_eq!(starts[0], None);
    assert!(starts[1..].iter().all(Option::is_some), "{starts:?}");
}

#[tokio::test]
async fn odd_answers_to_ranges_lead_to_the_whole_body() {
    for oddity in 0..3 {
        let (bytes, descriptor) = blob();
        let whole = bytes.clone();
        let first = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                return Reply::new(200).body(whole.clone()).cut_after(150_000);
            }
            match (request.range_start(), oddity) {
                (Some(_), 0) => Reply::new(206).header("content-range", "bytes 7-8/9").body("xx"),
                (Some(_), 1) => Reply::new(416),
                // Ranges ignored.
                _ => Reply::new(200).body(whole.clone()),
            }
        })
        .await;
        assert_eq!(fetch(&server.host(), &descriptor).await.unwrap(), bytes, "oddity {oddity}");
    }
}

#[tokio::test]
async fn a_body_longer_than_described_is_refused() {
    let (bytes, descriptor) = blob();
    let server = Server::start(move |_| Reply::new(200).body([&bytes[..], b"more"].concat())).await;
    let error = fetch(&server.host(), &descriptor).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition, "{error}");
}

#[tokio::test]
async fn redirects_get_neither_credentials_nor_headers() {
    let (bytes, descriptor) = blob();
    let storage = {
        let bytes = bytes.clone();
        Server::start(move |request| Reply::ranged(request, &bytes)).await
    };
    let target = format!("http://{}/data?signature=s3cr3t", storage.host());
    let server = Server::start(move |request| {
        if request.header("authorization").is_empty() {
            return Reply::new(401).header("www-authenticate", "Basic realm=\"x\"");
        }
        Reply::new(307).header("location", target.clone())
    })
    .await;
    let resolver = Resolver::new(ResolverOptions {
        credentials: Some(Arc::new(Password(AtomicUsize::new(0)))),
        headers: vec![("x-api-key".into(), "k3y".into())],
        ..ResolverOptions::default()
    });
    let fetcher = resolver.fetcher(&format!("{}/a:b", server.host())).await.unwrap();
    assert_eq!(drain(fetcher.fetch(&descriptor, 0).await.unwrap()).await.unwrap(), bytes);
    assert_eq!(server.requests().last().unwrap().header("x-api-key"), "k3y");
    for request in storage.requests() {
        assert_eq!((request.header("authorization"), request.header("x-api-key")), ("", ""));
    }
}

/// A registry whose tokens die after `lifetime` uses, and its token server.
async fn token_registry(lifetime: usize, blob: Vec<u8>) -> (Server, Server, Arc<AtomicUsize>) {
    let issued = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&issued);
    let tokens = Server::start(move |request| {
        if request.method == "POST" {
            return Reply::new(404);
        }
        let basic = request.header("authorization") == "Basic dXNlcjpodW50ZXIy";
        if !basic || !request.query.contains("scope=repository%3Aa%3Apull") {
            return Reply::new(403);
        }
        let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
        Reply::new(200).body(format!(r#"{{"token":"t{number}"}}"#))
    })
    .await;
    let realm = format!(r#"Bearer realm="http://{}/token",service="s",scope="repository:a:pull""#, tokens.host());
    let uses = AtomicUsize::new(0);
    let current = Arc::clone(&issued);
    let server = Server::start(move |request| {
        let valid = format!("Bearer t{}", current.load(Ordering::SeqCst));
        let refused = Reply::new(401).header("www-authenticate", format!("{realm},error=\"invalid_token\""));
        if request.header("authorization") != valid {
            return refused;
        }
        if uses.fetch_add(1, Ordering::SeqCst) % lifetime == lifetime - 1 {
            current.fetch_add(0, Ordering::SeqCst);
            return refused;
        }
        Reply::ranged(request, &blob)
    })
    .await;
    (server, tokens, issued)
}

#[tokio::test]
async fn an_expired_token_is_replaced() {
    let (bytes, descriptor) = blob();
    let (server, _tokens, issued) = token_registry(3, bytes.clone()).await;
    let fetcher = with_password().fetcher(&format!("{}/a:b", server.host())).await.unwrap();
    for _ in 0..6 {
        assert_eq!(drain(fetcher.fetch(&descriptor, 0).await.unwrap()).await.unwrap(), bytes);
    }
    let issued = issued.load(Ordering::SeqCst);
    assert!((2..=4).contains(&issued), "{issued}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_requests_share_one_token() {
    let (bytes, descriptor) = blob();
    let (server, tokens, issued) = token_registry(1000, bytes.clone()).await;
    let fetcher = with_password().fetcher(&format!("{}/a:b", server.host())).await.unwrap();
    let fetches = (0..8).map(|_| async { drain(fetcher.fetch(&descriptor, 0).await?).await });
    for result in futures::future::join_all(fetches).await {
        assert_eq!(result.unwrap(), bytes);
    }
    assert_eq!(issued.load(Ordering::SeqCst), 1);
    assert_eq!(tokens.count("GET", "/token"), 1);
}

#[tokio::test]
async fn secrets_are_in_no_error() {
    let server = Server::start(|_| Reply::new(401).header("www-authenticate", "Basic realm=\"x\"")).await;
    let error = with_password().resolve(&format!("{}/a:b", server.host())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    let shown = format!("{error} {error:?} {:?}", Secret::new("hunter2"));
    assert!(!shown.contains("hunter2") && !shown.contains("dXNlcjpodW50ZXIy"), "{shown}");
}

#[tokio::test]
async fn mirrors_come_first_and_are_all_named_when_nothing_works() {
    let mirror = Server::start(|_| Reply::new(404)).await;
    let upstream = Server::start(|_| Reply::new(403)).await;
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("registry.example");
    std::fs::create_dir(&directory).unwrap();
    let text = format!("server = \"http://{}\"\n[host.\"http://{}\"]\n", upstream.host(), mirror.host());
    std::fs::write(directory.join("hosts.toml"), text).unwrap();
    let options = ResolverOptions { config_path: Some(root.path().to_owned()), ..ResolverOptions::default() };
    let error = Resolver::new(options).resolve("registry.example/a:b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.message().contains(&mirror.host()) && error.message().contains(&upstream.host()), "{error}");
    assert_eq!(mirror.requests()[0].query, "ns=registry.example");
}

#[tokio::test]
async fn urls_of_image_data_get_no_credentials() {
    let (bytes, mut descriptor) = blob();
    let elsewhere = {
        let bytes = bytes.clone();
        Server::start(move |_| Reply::new(200).body(bytes.clone())).await
    };
    let server = Server::start(|request| {
        if request.header("authorization").is_empty() {
            return Reply::new(401).header("www-authenticate", "Basic realm=\"x\"");
        }
        Reply::new(404)
    })
    .await;
    descriptor.urls = vec!["file:///etc/passwd".into(), format!("http://{}/layer", elsewhere.host())];
    let fetcher = with_password().fetcher(&format!("{}/a:b", server.host())).await.unwrap();
    assert_eq!(drain(fetcher.fetch(&descriptor, 0).await.unwrap()).await.unwrap(), bytes);
    assert!(elsewhere.requests().iter().all(|request| request.header("authorization").is_empty()));
}
