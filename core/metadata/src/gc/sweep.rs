//! Removing records that are not in use, in small transactions.

use std::sync::{Arc, Mutex, PoisonError};

use core_content::Info;
use core_events::Event;
use core_images::Image;
use core_types::{Namespace, Result};

use super::{CollectionStats, mark::Marker};
use crate::{
    database::Database,
    key::{self, Key, Kind},
    leases,
    record::{Ingest, Snapshot},
    snapshots::remove_record,
    store::Tx,
    writer::Durability,
};

/// Records that one transaction removes; what writers wait for at most.
const BATCH: usize = 64;

/// What a transaction removed.
enum Removed {
    Blob { digest: String },
    Snapshot { namespace: Namespace, snapshotter: String, key: String, backend: String },
    Image { namespace: Namespace, name: String },
    Lease(Key),
    Ingest { backend: String },
}

impl Database {
    /// Removes `garbage`, except what came into use since it was found.
    pub(super) async fn sweep(&self, marker: Marker, garbage: Vec<Key>, stats: &mut CollectionStats) -> Result<()> {
        let marker = Arc::new(Mutex::new(marker));
        for batch in garbage.chunks(BATCH) {
            let (marker, batch, roots) = (Arc::clone(&marker), batch.to_vec(), Arc::clone(&self.inner.roots));
            let work = move |tx: &mut Tx<'_, '_>| {
                let mut marker = marker.lock().unwrap_or_else(PoisonError::into_inner);
                let news = roots.take_news(&batch);
                marker.follow_news(news, &tx.view())?;
                let garbage = batch.iter().filter(|key| !marker.is_marked(key));
                let removed = garbage.filter_map(|key| remove(tx, key).transpose()).collect::<Result<Vec<Removed>>>();
                // A parent that lost a child is no news that keeps it.
                tx.written.clear();
                removed
            };
            let removed = self.submit(Durability::Ordered, work).await;
            self.inner.roots.buried();
            for removed in removed? {
                self.account(removed, stats);
            }
        }
        Ok(())
    }

    fn account(&self, removed: Removed, stats: &mut CollectionStats) {
        match removed {
            Removed::Blob { digest } => {
                stats.blobs += 1;
                self.inner.content_trash.suspect([digest]);
            }
            Removed::Ingest { backend } => {
                stats.ingests += 1;
                self.inner.ingest_trash.suspect([backend]);
            }
            Removed::Snapshot { namespace, snapshotter, key, backend } => {
                stats.snapshots += 1;
                if let Some(trash) = self.inner.snapshot_trash.get(&snapshotter) {
                    trash.suspect([backend]);
                }
                self.publish(&namespace, "/snapshot/remove", Event::SnapshotRemove { key, snapshotter });
            }
            Removed::Image { namespace, name } => {
                stats.images += 1;
                self.publish(&namespace, "/images/delete", Event::ImageDelete { name });
            }
            Removed::Lease(key) => {
                stats.leases += 1;
                self.inner.roots.forget(&key);
            }
        }
    }
}

/// Removes one record; none when it is gone already.
fn remove(tx: &mut Tx<'_, '_>, node: &Key) -> Result<Option<Removed>> {
    let namespace = key::namespace_of(node)?;
    Ok(match Kind::of(node) {
        Some(Kind::Blob) => {
            let found: Option<Info> = tx.get(node)?;
            tx.delete(node)?;
            found.map(|info| Removed::Blob { digest: info.digest.as_str().to_owned() })
        }
        Some(Kind::Snapshot) => match tx.get::<Snapshot>(node)? {
            None => None,
            Some(record) => {
                remove_record(tx, node, &record)?;
                let snapshotter = key::part(node, 1)?.to_owned();
                Some(Removed::Snapshot { namespace, snapshotter, key: record.name, backend: record.backend })
            }
        },
        Some(Kind::Image) => {
            let found: Option<Image> = tx.get(node)?;
            tx.delete(node)?;
            found.map(|image| Removed::Image { namespace, name: image.name })
        }
        Some(Kind::Lease) => {
            leases::expire(tx, namespace.as_str(), node)?;
            Some(Removed::Lease(node.clone()))
        }
        Some(Kind::Ingest) => {
            let found: Option<Ingest> = tx.get(node)?;
            tx.delete(node)?;
            found.map(|ingest| Removed::Ingest { backend: ingest.backend })
        }
        _ => None,
    })
}
