use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use core_types::{Descriptor, Digest};
use core_unpack::{Event, Observer, ingest_reference};

use crate::{Progress, ProgressSink};

/// Turns what the engine says into reports.
pub(crate) struct Tracker {
    sink: Arc<dyn ProgressSink>,
    /// The name of what has no parent.
    root: String,
    parents: Mutex<HashMap<Digest, Vec<String>>>,
}

impl Tracker {
    pub(crate) fn new(sink: Arc<dyn ProgressSink>, root: &str) -> Self {
        Self { sink, root: root.to_owned(), parents: Mutex::default() }
    }

    /// Reports on a blob.
    pub(crate) fn report(&self, event: &str, descriptor: &Descriptor, progress: u64) {
        let parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        let parents = parents.get(&descriptor.digest).cloned().unwrap_or_else(|| vec![self.root.clone()]);
        self.sink.report(Progress {
            event: event.to_owned(),
            name: ingest_reference(descriptor),
            parents,
            progress: i64::try_from(progress).unwrap_or(i64::MAX),
            total: i64::try_from(descriptor.size).unwrap_or(i64::MAX),
            descriptor: Some(descriptor.clone()),
        });
    }

    /// A blob is to be transferred, as part of `parent`.
    pub(crate) fn found(&self, descriptor: &Descriptor, parent: Option<String>) {
        {
            let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
            let names = parents.entry(descriptor.digest.clone()).or_default();
            names.push(parent.unwrap_or_else(|| self.root.clone()));
            if names.len() > 1 {
                return;
            }
        }
        self.report("waiting", descriptor, 0);
    }
}

impl Observer for Tracker {
    fn notice(&self, event: Event) {
        match event {
            Event::Found { descriptor, parent } => self.found(&descriptor, parent),
            Event::Exists(descriptor) => self.report("already exists", &descriptor, descriptor.size),
            Event::Progress { descriptor, offset } => self.report("downloading", &descriptor, offset),
            Event::Fetched(descriptor) => self.report("complete", &descriptor, descriptor.size),
            // While a layer is extracted as it downloads, the download is what moves.
            Event::Extracting(descriptor) => self.report("extracting", &descriptor, 0),
            Event::Extracted(descriptor) => self.report("extracted", &descriptor, descriptor.size),
        }
    }
}
