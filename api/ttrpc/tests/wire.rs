//! Client and server against each other, and both against a peer that does not keep to the protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use containerd_ttrpc::{Client, Context, MAX_BODY, Router, Server, Status};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

#[derive(Clone, PartialEq, Message)]
struct Echo {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(string, tag = "2")]
    note: String,
}

fn note(note: &str) -> Echo {
    Echo { data: Vec::new(), note: note.into() }
}

/// Counts itself while it exists.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn router(alive: &Arc<AtomicUsize>) -> Arc<Router> {
    let mut router = Router::default();
    router.unary("test.Echo", "Echo", |_, request: Echo| async move { Ok::<_, Status>(request) });
    router.unary("test.Echo", "Meta", |context: Context, _: Echo| async move {
        Ok::<_, Status>(note(context.value("who").unwrap_or_default()))
    });
    router.unary("test.Echo", "Big", |_, _: Echo| async move {
        Ok::<_, Status>(Echo { data: vec![1; MAX_BODY + 1], note: String::new() })
    });
    router.unary("test.Echo", "Fail", |_, _: Echo| async move { Err::<Echo, _>(Status::new(5, "no such thing")) });
    router.unary("test.Echo", "Panic", |_, _: Echo| async move {
        if true {
            panic!("on purpose");
        }
        Ok::<_, Status>(note(""))
    });
    let alive = alive.clone();
    router.unary("test.Echo", "Wait", move |_, _: Echo| {
        alive.fetch_add(1, Ordering::SeqCst);
        let guard = Alive(alive.clone());
        async move {
            let _guard = guard;
            std::future::pending::<Result<Echo, Status>>().await
        }
    });
    Arc::new(router)
}

fn pair() -> (Client, Arc<AtomicUsize>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(Server::serve_stream(theirs, router(&alive)));
    (Client::from_stream(ours), alive)
}

async fn call(client: &Client, method: &str, context: &Context, request: &Echo) -> Result<Echo, Status> {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, client.call("test.Echo", method, context, request)).await.expect("call hangs")
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(tokio::time::Instant::now() < end, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn many_parallel_calls_get_their_own_answers() {
    let (client, _) = pair();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..500 {
        let client = client.clone();
        calls.spawn(async move {
            let request = Echo { data: vec![number as u8; number * 7], note: number.to_string() };
            assert_eq!(call(&client, "Echo", &Context::default(), &request).await.unwrap(), request);
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn failures_keep_code_and_message() {
    let (client, _) = pair();
    let context = Context::default();
    let status = call(&client, "Fail", &context, &note("")).await.unwrap_err();
    assert_eq!(status, Status::new(5, "no such thing"));
    assert_eq!(call(&client, "Nothing", &context, &note("")).await.unwrap_err().code, 12);
    assert_eq!(call(&client, "Panic", &context, &note("")).await.unwrap_err().code, 13);
    assert_eq!(call(&client, "Echo", &context, &note("on")).await.unwrap().note, "on");
}

#[tokio::test]
async fn metadata_reaches_the_handler() {
    let (client, _) = pair();
    let mut context = Context::default();
    context.metadata.insert("who".into(), vec!["me".into(), "you".into()]);
    assert_eq!(call(&client, "Meta", &context, &note("")).await.unwrap().note, "me");
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_its_handler() {
    let (client, alive) = pair();
    let context = Context::with_timeout(Duration::from_millis(50));
    assert_eq!(call(&client, "Wait", &context, &note("")).await.unwrap_err().code, 4);
    until("end of the handler", || alive.load(Ordering::SeqCst) == 0).await;
    assert_eq!(call(&client, "Echo", &Context::default(), &note("on")).await.unwrap().note, "on");
}

#[tokio::test]
async fn a_lost_connection_cancels_handlers() {
    let (client, alive) = pair();
    let waiting = client.clone();
    let call = tokio::spawn(async move { call(&waiting, "Wait", &Context::default(), &note("")).await });
    until("start of the handler", || alive.load(Ordering::SeqCst) == 1).await;
    call.abort();
    let _ = call.await;
    drop(client);
    until("end of the handler", || alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_lost_server_fails_what_waits() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let client = Client::from_stream(ours);
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { call(&waiting, "Wait", &Context::default(), &note("")).await });
    tokio::task::yield_now().await;
    drop(theirs);
    assert_eq!(waiting.await.unwrap().unwrap_err().code, 14);
    client.closed().await;
    assert!(client.is_closed());
    assert_eq!(call(&client, "Echo", &Context::default(), &note("")).await.unwrap_err().code, 14);
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_in_both_directions() {
    let (client, _) = pair();
    let huge = Echo { data: vec![0; MAX_BODY], note: String::new() };
    assert_eq!(call(&client, "Echo", &Context::default(), &huge).await.unwrap_err().code, 8);
    assert_eq!(call(&client, "Big", &Context::default(), &note("")).await.unwrap_err().code, 8);
    let large = Echo { data: vec![7; MAX_BODY - 200], note: String::new() };
    assert_eq!(call(&client, "Echo", &Context::default(), &large).await.unwrap().data.len(), MAX_BODY - 200);
}

async fn raw(stream: &mut UnixStream, id: u32, kind: u8, length: u32, body: &[u8]) {
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    stream.write_all(&id.to_be_bytes()).await.unwrap();
    stream.write_all(&[kind, 0]).await.unwrap();
    stream.write_all(body).await.unwrap();
}

/// Reads a response frame: stream id and the code of its status.
async fn raw_answer(stream: &mut UnixStream) -> (u32, i32) {
    #[derive(Clone, PartialEq, Message)]
    struct Code {
        #[prost(int32, tag = "1")]
        code: i32,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Answer {
        #[prost(message, optional, tag = "1")]
        status: Option<Code>,
    }
    let length = stream.read_u32().await.unwrap();
    let id = stream.read_u32().await.unwrap();
    assert_eq!(stream.read_u16().await.unwrap() >> 8, 2);
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await.unwrap();
    (id, Answer::decode(body.as_slice()).unwrap().status.unwrap_or_default().code)
}

#[tokio::test]
async fn odd_frames_get_an_error_and_the_connection_stays_in_step() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(Server::serve_stream(theirs, router(&Arc::default())));
    raw(&mut ours, 1, 1, 5 << 20, &vec![0xff; 5 << 20]).await;
    assert_eq!(raw_answer(&mut ours).await, (1, 8));
    raw(&mut ours, 3, 1, 4, &[0xff; 4]).await;
    assert_eq!(raw_answer(&mut ours).await, (3, 3));
    raw(&mut ours, 4, 1, 0, &[]).await;
    assert_eq!(raw_answer(&mut ours).await, (4, 3));
    raw(&mut ours, 3, 1, 0, &[]).await;
    assert_eq!(raw_answer(&mut ours).await, (3, 3));
    raw(&mut ours, 5, 77, 2, &[1, 2]).await;
    assert_eq!(raw_answer(&mut ours).await, (5, 3));
    raw(&mut ours, 3, 3, 2, &[1, 2]).await;
    raw(&mut ours, 7, 1, 0, &[]).await;
    assert_eq!(raw_answer(&mut ours).await, (7, 12));
}

#[tokio::test]
async fn a_cut_frame_ends_the_connection() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let server = tokio::spawn(Server::serve_stream(theirs, router(&Arc::default())));
    raw(&mut ours, 1, 1, u32::MAX, &[1; 100]).await;
    drop(ours);
    tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_client_ignores_answers_that_nobody_asked_for() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let client = Client::from_stream(ours);
    raw(&mut theirs, 99, 2, 3, &[0xff; 3]).await;
    raw(&mut theirs, 1, 7, 3, &[0xff; 3]).await;
    let caller = client.clone();
    let first = tokio::spawn(async move { call(&caller, "Echo", &Context::default(), &note("")).await });
    let mut head = [0; 10];
    theirs.read_exact(&mut head).await.unwrap();
    raw(&mut theirs, 1, 2, 3, &[0xff; 3]).await;
    assert_eq!(first.await.unwrap().unwrap_err().code, 13);
    assert!(!client.is_closed());
}

#[tokio::test]
async fn a_stopping_server_finishes_what_runs() {
    let dir = std::env::temp_dir().join(format!("ttrpc-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("s");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut router = Router::default();
    let stop = std::sync::Mutex::new(Some(stop));
    router.unary("test.Echo", "Stop", move |_, _: Echo| {
        drop(stop.lock().unwrap().take());
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, Status>(note("stopping"))
        }
    });
    let server = tokio::spawn(Server::serve_same_user(listener, Arc::new(router), async {
        let _ = stopped.await;
    }));
    let client = Client::connect(&path).await.unwrap();
    assert_eq!(call(&client, "Stop", &Context::default(), &note("")).await.unwrap().note, "stopping");
    tokio::time::timeout(Duration::from_secs(30), client.closed()).await.unwrap();
    server.await.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn requests_over_the_bound_are_refused() {
    let (client, alive) = pair();
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..containerd_ttrpc::MAX_CONCURRENT {
        let client = client.clone();
        waits.spawn(async move { call(&client, "Wait", &Context::default(), &note("")).await });
    }
    until("start of all", || alive.load(Ordering::SeqCst) == containerd_ttrpc::MAX_CONCURRENT).await;
    assert_eq!(call(&client, "Echo", &Context::default(), &note("")).await.unwrap_err().code, 8);
}
