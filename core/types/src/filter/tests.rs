use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

struct Thing {
    name: &'static str,
    other: &'static str,
    labels: Labels,
}

impl Fields for Thing {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["name"] if !self.name.is_empty() => Some(self.name.into()),
            ["other"] if !self.other.is_empty() => Some(self.other.into()),
            ["labels", rest @ ..] => label_field(&self.labels, rest),
            _ => None,
        }
    }
}

fn thing(name: &'static str, other: &'static str, labels: &[(&str, &str)]) -> Thing {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Thing { name, other, labels }
}

fn corpus() -> Vec<Thing> {
    vec![
        thing("foo", "", &[("foo", "true"), ("more complex label", "")]),
        thing("bar", "", &[("bar", "true")]),
        thing("foo", "abc", &[("foo", "omg_asdf.asdf-qwer"), ("my-key.io", "1")]),
        thing("", "too complex, yo", &[("more complex label with \\ and \"", "present")]),
    ]
}

fn matching(filter: &str) -> Vec<usize> {
    let filter = Filter::parse(filter).unwrap();
    corpus().iter().enumerate().filter(|(_, thing)| filter.matches(*thing)).map(|(at, _)| at).collect()
}

#[test]
fn selects_as_containerd_does() {
    for (filter, expected) in [
        ("", vec![0, 1, 2, 3]),
        ("name", vec![0, 1, 2]),
        ("labels.foo", vec![0, 2]),
        ("labels.foo,name", vec![0, 2]),
        ("labels.foo==true", vec![0]),
        ("labels.foo==omg_asdf.asdf-qwer", vec![2]),
        ("name==bar", vec![1]),
        ("name!=bar", vec![0, 2, 3]),
        ("name==bar,labels.bar", vec![1]),
        ("name == bar , labels.bar", vec![1]),
        ("other==\"too complex, yo\"", vec![3]),
        ("other~=[abc]+,name!=foo", vec![3]),
        ("other~=/^[abc]{1,3}$/", vec![2]),
        ("other~=|^[abc]{1,3}$|", vec![2]),
        ("name==foo,labels.\"more complex label\"", vec![0]),
        ("labels.\"more complex label with \\\\ and \\\"\"==present", vec![3]),
        ("labels.my-key.io==1", vec![2]),
        ("labels.\"my-key.io\"", vec![2]),
    ] {
        assert_eq!(matching(filter), expected, "{filter}");
    }
}

#[test]
fn refuses_what_is_no_filter() {
    for filter in [
        "labels.|foo|==omg",
        "name==foo,",
        "labels.",
        "image~=,id?=?fbaq",
        "labels.ns/key==value",
        "labels.key==/value",
        "name=foo",
        "name===foo",
        "name==",
        "other~=[",
        "\"unfinished",
        "name==\"\\q\"",
    ] {
        let error = Filter::parse(filter).expect_err(filter);
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument, "{filter}");
    }
}

#[test]
fn several_filters_are_alternatives() {
    let filter = Filter::parse_all(&["name==bar", "other==abc"]).unwrap();
    let found: Vec<_> = corpus().iter().map(|thing| filter.matches(thing)).collect();
    assert_eq!(found, [false, true, true, false]);
    assert!(Filter::parse_all::<&str>(&[]).unwrap().is_everything());
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,64}") {
        let _ = Filter::parse(&text);
    }

    #[test]
    fn a_quoted_value_matches_itself(value in "[a-z \\\\\",.=~]{0,20}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let filter = Filter::parse(&format!("labels.x==\"{quoted}\"")).unwrap();
        prop_assert!(filter.matches(&thing("", "", &[("x", &value)])));
    }
}
