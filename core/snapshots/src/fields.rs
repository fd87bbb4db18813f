use std::borrow::Cow;

use core_types::filter::{Fields, label_field};

use crate::{Info, Kind};

impl Kind {
    /// The word that filters and listings use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Active => "active",
            Self::Committed => "committed",
        }
    }
}

impl Fields for Info {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["kind"] => Some(Cow::Borrowed(self.kind.as_str())),
            ["name"] => Some(Cow::Borrowed(&self.name)),
            ["parent"] => Some(Cow::Borrowed(&self.parent)),
            ["labels", key @ ..] => label_field(&self.labels, key),
            _ => None,
        }
    }
}
