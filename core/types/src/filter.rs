//! The filter language of list requests.
//!
//! A filter is selectors joined by commas, all of which must hold: `name==foo,labels."my key"~=^a`. A selector
//! is a field path alone (the field is present), or with `==`, `!=` or `~=` (regular expression) and a value.
//! Fields and values can be quoted with `"`; values of `~=` also with `/` or `|`. Several filters are joined by
//! "or"; none accepts everything. (containerd `pkg/filters`; beyond it, `-` is taken inside an unquoted field.)

use std::borrow::Cow;

use regex::Regex;

use crate::{Error, Labels, Result};

mod parser;

/// An object whose fields a filter can ask for.
pub trait Fields {
    /// The value at `path`; none when there is no such field or it is not set.
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>>;
}

/// Looks up what follows `labels` in a field path: the rest, joined by dots, is the key.
pub fn label_field<'a>(labels: &'a Labels, rest: &[&str]) -> Option<Cow<'a, str>> {
    labels.get(&rest.join(".")).map(|value| Cow::Borrowed(value.as_str()))
}

/// What a selector demands of its field.
#[derive(Debug)]
enum Test {
    Present,
    Equal(String),
    NotEqual(String),
    Matches(Regex),
}

#[derive(Debug)]
struct Selector {
    path: Vec<String>,
    test: Test,
}

impl Selector {
    fn matches(&self, object: &dyn Fields) -> bool {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let value = object.field(&path);
        match (&self.test, value) {
            (Test::Present, value) => value.is_some(),
            (Test::Equal(wanted), Some(value)) => value == wanted.as_str(),
            (Test::NotEqual(unwanted), value) => value.as_deref() != Some(unwanted.as_str()),
            (Test::Matches(pattern), Some(value)) => pattern.is_match(&value),
            (_, None) => false,
        }
    }
}

/// A parsed list of filters.
#[derive(Debug, Default)]
pub struct Filter {
    /// Any of these, each a list of selectors that must all hold; empty accepts everything.
    any: Vec<Vec<Selector>>,
}

impl Filter {
    /// Parses one filter; an empty text accepts everything.
    ///
    /// # Errors
    /// InvalidArgument that shows where the text is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_all(&[text])
    }

    /// Parses several filters, one of which must hold.
    ///
    /// # Errors
    /// As [`Filter::parse`].
    pub fn parse_all<S: AsRef<str>>(texts: &[S]) -> Result<Self> {
        let mut any = Vec::with_capacity(texts.len());
        for text in texts {
            let text = text.as_ref();
            any.push(if text.is_empty() {
                Vec::new()
            } else {
                parser::selectors(text).map_err(|why| Error::invalid_argument(format!("filter {text:?}: {why}")))?
            });
        }
        Ok(Self { any })
    }

    /// Whether the object is accepted.
    pub fn matches(&self, object: &dyn Fields) -> bool {
        self.any.is_empty() || self.any.iter().any(|all| all.iter().all(|selector| selector.matches(object)))
    }

    /// Whether everything is accepted, so that objects need not be looked at.
    pub fn is_everything(&self) -> bool {
        self.any.is_empty() || self.any.iter().any(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests;
