//! Pulls, cancelled and repeated at will, against collections without pause.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use core_metadata::Database;
use core_types::{ErrorKind, Labels, Result, Scope};

use crate::{World, image, labels, put, refused, scope};

fn existing<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.is_already_exists() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Writes a blob; waits for the writer of a pull that was given up.
async fn fetch(db: &Database, under: &Scope, data: &str, labels: Labels) -> Result<()> {
    loop {
        match put(db, under, data.as_bytes(), labels.clone()).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => tokio::task::yield_now().await,
            outcome => return outcome.map(drop).map_err(|error| error.context(format!("fetch {data}"))),
        }
    }
}

/// What a client does to pull: blobs under a lease, layers on each other, an image at the end.
async fn pull(db: Database, namespace: Scope, which: usize, lease: String) -> Result<()> {
    let leases = db.leases(&namespace);
    leases.create(Some(lease.clone()), Labels::new()).await?;
    let under = namespace.leased(&lease);
    let layers: Vec<String> = (0..3).map(|layer| format!("image {which} layer {layer}")).collect();
    let mut refer = Labels::new();
    for (at, layer) in layers.iter().enumerate() {
        existing(fetch(&db, &under, layer, Labels::new()).await)?;
        let digest = core_types::Digest::of(layer.as_bytes());
        refer.insert(format!("containerd.io/gc.ref.content.l.{at}"), digest.to_string());
    }
    let snapshots = db.snapshotter(&under, "memory")?;
    let mut parent = String::new();
    for (at, layer) in layers.iter().enumerate() {
        if snapshots.stat(layer).await.is_err() {
            let work = format!("extract-{which}-{at}-{lease}");
            let target = labels([("containerd.io/snapshot.ref", layer)]);
            match snapshots.prepare(&work, &parent, target).await {
                Ok(_) => existing(snapshots.commit(layer, &work, None, Labels::new()).await)?,
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(error.context(format!("prepare {layer} on {parent:?}"))),
            }
        }
        layer.clone_into(&mut parent);
    }
    refer.insert("containerd.io/gc.ref.snapshot.memory".into(), parent.clone());
    let manifest = format!("manifest {which}");
    let digest = core_types::Digest::of(manifest.as_bytes());
    match fetch(&db, &under, &manifest, refer.clone()).await {
        Err(error) if error.is_already_exists() => {
            let mut info = db.content(&under).info(&digest).await?;
            info.labels = refer;
            db.content(&under).update(info, &[]).await?;
        }
        outcome => outcome?,
    }
    let name = format!("image-{which}");
    existing(db.images(&under).create(image(&name, &digest)).await.map(drop))?;
    leases.delete(&lease, false).await
}

/// Everything an image refers to is there, in the records and in the backends.
async fn complete(world: &World, namespace: &Scope, which: usize) {
    let image = world.db.images(namespace).get(&format!("image-{which}")).await.unwrap();
    let content = world.db.content(namespace);
    let manifest = content.info(&image.target.digest).await.unwrap();
    for layer in 0..3 {
        let digest = &manifest.labels[&format!("containerd.io/gc.ref.content.l.{layer}")];
        content.reader(&digest.parse().unwrap()).await.unwrap();
    }
    let mut key = manifest.labels["containerd.io/gc.ref.snapshot.memory"].clone();
    while !key.is_empty() {
        key = world.snapshots(namespace).stat(&key).await.unwrap().parent;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pulls_never_lose_to_collections() {
    let world = World::new().await;
    let stop = Arc::new(AtomicBool::new(false));
    let collector = tokio::spawn({
        let (db, stop) = (world.db.clone(), Arc::clone(&stop));
        async move {
            let mut collections = 0;
            while !stop.load(Ordering::SeqCst) {
                db.collect().await.unwrap();
                collections += 1;
            }
            collections
        }
    });
    for round in 0..40 {
        let mut pulls = tokio::task::JoinSet::new();
        for namespace in ["a", "b"] {
            for which in 0..3 {
                let (db, namespace) = (world.db.clone(), scope(namespace));
                pulls.spawn(async move {
                    // Some are cancelled at a point that the number of polls decides, and repeated at once.
                    if (round + which) % 2 == 0 {
                        let lease = format!("cut-{which}-{round}");
                        let inner = Box::pin(pull(db.clone(), namespace.clone(), which, lease.clone()));
                        Cut { polls: round * 2 + which, inner }.await;
                        let _may_be_gone = db.leases(&namespace).delete(&lease, false).await;
                    }
                    let lease = format!("whole-{which}-{round}");
                    let pulled = pull(db, namespace, which, lease).await;
                    pulled.unwrap_or_else(|error| panic!("round {round}: {error}"));
                });
            }
        }
        while let Some(done) = pulls.join_next().await {
            done.unwrap();
        }
        for namespace in ["a", "b"] {
            for which in 0..3 {
                complete(&world, &scope(namespace), which).await;
                if round % 3 == which {
                    world.db.images(&scope(namespace)).delete(&format!("image-{which}"), None).await.unwrap();
                }
            }
        }
    }
    stop.store(true, Ordering::SeqCst);
    assert!(collector.await.unwrap() > 0);
    clean(&world).await;
}

/// Without images and leases nothing is left anywhere.
async fn clean(world: &World) {
    for namespace in ["a", "b"].map(scope) {
        for image in world.db.images(&namespace).list(&[]).await.unwrap() {
            world.db.images(&namespace).delete(&image.name, None).await.unwrap();
        }
        for lease in world.db.leases(&namespace).list(&[]).await.unwrap() {
            world.db.leases(&namespace).delete(&lease.id, false).await.unwrap();
        }
        for ingest in world.db.content(&namespace).list_statuses(&[]).await.unwrap() {
            world.db.content(&namespace).abort(&ingest.reference).await.unwrap();
        }
    }
    for _ in 0..2 {
        world.db.collect().await.unwrap();
    }
    assert_eq!(world.content.count(), 0);
    assert_eq!(world.content.ingests(), Vec::<String>::new());
    assert_eq!(world.snapshotter.names(), Vec::<String>::new());
    for namespace in ["a", "b"].map(scope) {
        assert!(world.snapshots(&namespace).list(&[]).await.unwrap().is_empty());
        refused(world.db.images(&namespace).get("image-0").await, ErrorKind::NotFound);
    }
}

/// Gives up after some polls.
struct Cut<F> {
    polls: usize,
    inner: std::pin::Pin<Box<F>>,
}

impl<F: Future> Future for Cut<F> {
    type Output = ();
    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if self.polls == 0 || self.inner.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        self.polls -= 1;
        std::task::Poll::Pending
    }
}
