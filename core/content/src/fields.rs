use std::borrow::Cow;

use core_types::filter::{Fields, label_field};

use crate::{Info, IngestStatus};

impl Fields for Info {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["digest"] => Some(Cow::Borrowed(self.digest.as_str())),
            ["labels", key @ ..] => label_field(&self.labels, key),
            _ => None,
        }
    }
}

impl Fields for IngestStatus {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["ref"] => Some(Cow::Borrowed(&self.reference)),
            _ => None,
        }
    }
}
