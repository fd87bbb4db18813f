use std::collections::BTreeMap;

use anyhow::Result;
use containerd_sdk::Snapshotter;

use crate::output;

pub(super) async fn run(snapshots: &Snapshotter) -> Result<()> {
    let pairs: Vec<(String, String)> =
        snapshots.list(&[]).await?.into_iter().map(|info| (info.name, info.parent)).collect();
    output::text(&draw(&pairs))
}

/// Draws names below their parents.
fn draw(pairs: &[(String, String)]) -> String {
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, parent) in pairs {
        children.entry(parent).or_default().push(name);
    }
    let mut text = String::new();
    // A stack instead of recursion, since chains may be long.
    let below =
        |parent: &str, level: usize| children.get(parent).into_iter().flatten().rev().map(move |name| (*name, level));
    let mut todo: Vec<(&str, usize)> = below("", 0).collect();
    while let Some((name, level)) = todo.pop() {
        let branch = if level > 0 { "\\_" } else { "" };
        text.push_str(&format!("{}{branch} {name}\n", "  ".repeat(level)));
        todo.extend(below(name, level + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn children_stand_below_their_parents() {
        let pair = |name: &str, parent: &str| (name.to_owned(), parent.to_owned());
        let text = draw(&[pair("b", "a"), pair("a", ""), pair("c", "b"), pair("d", "a"), pair("e", "")]);
        assert_eq!(text, " a\n  \\_ b\n    \\_ c\n  \\_ d\n e\n");
    }
}
