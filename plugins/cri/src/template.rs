//! The CNI configuration that is made from a template once kubelet tells the pods' addresses.

use std::{fs, io::Write, path::Path};

use core_types::{Error, Result};

/// Name of the file that is made.
const NAME: &str = "10-containerd-net.conflist";

/// Fills a template in the language of Go's templates as far as such files use it: `{{.PodCIDR}}`, `{{.PodCIDRRanges}}`
/// and `{{.Routes}}`, each alone or as the list of a `range`. Blocking.
///
/// # Errors
/// InvalidArgument for a template that asks for more; what reading and writing say.
pub(crate) fn fill(template: &Path, directory: &Path, ranges: &[String]) -> Result<()> {
    let text = fs::read_to_string(template)
        .map_err(|error| Error::io(format_args!("read conf_template {}", template.display()), error))?;
    let filled = render(&text, ranges).ok_or_else(|| {
        Error::invalid_argument(format!(
            "conf_template {}: only .PodCIDR, .PodCIDRRanges and .Routes, alone or in a range, are known",
            template.display()
        ))
    })?;
    let path = directory.join(NAME);
    let write = || {
        fs::create_dir_all(directory)?;
        let temporary = directory.join(format!(".{NAME}.new"));
        let mut file = fs::File::create(&temporary)?;
        file.write_all(filled.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().map_err(|error| Error::io(format_args!("write {}", path.display()), error))
}

/// Marks what stands between the items of a list, begin and end.
const BETWEEN: [char; 2] = ['\u{1}', '\u{2}'];

/// None when the template has what is not known.
fn render(text: &str, ranges: &[String]) -> Option<String> {
    let first = ranges.first()?;
    let routes: Vec<String> =
        ranges.iter().map(|range| if range.contains(':') { "::/0" } else { "0.0.0.0/0" }.to_owned()).collect();
    let text = mark_separators(text)?;
    let (mut out, mut rest) = (String::new(), text.as_str());
    while let Some((before, action, tail)) = next_action(rest) {
        out += before;
        rest = tail;
        if action == ".PodCIDR" {
            out += first;
            continue;
        }
        let (variables, list) = action.strip_prefix("range")?.split_once(":=")?;
        let values = match list.trim() {
            ".PodCIDRRanges" => ranges,
            ".Routes" => &routes[..],
            _ => return None,
        };
        let variable = variables.split(',').nth(1)?.trim();
        let mut body = Vec::new();
        loop {
            let (before, action, tail) = next_action(rest)?;
            rest = tail;
            body.push((before, action));
            match action {
                "end" => break,
                action if action == variable => {}
                _ => return None,
            }
        }
        for (at, value) in values.iter().enumerate() {
            for (text, action) in &body {
                out += &separate(text, at > 0);
                out += if *action == "end" { "" } else { value };
            }
        }
    }
    out += rest;
    (!out.contains(BETWEEN) && !out.contains("{{")).then_some(out)
}

/// The text before the next action, the action, and what follows.
fn next_action(text: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = text.split_once("{{")?;
    let (action, tail) = after.split_once("}}")?;
    Some((before, action.trim(), tail))
}

/// Turns `{{if $i}}, {{end}}` into a marked separator.
fn mark_separators(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{if ") {
        let (_, after) = after.split_once("}}")?;
        let (separator, tail) = after.split_once("{{end}}")?;
        out += before;
        out.push(BETWEEN[0]);
        out += separator;
        out.push(BETWEEN[1]);
        rest = tail;
    }
    Some(out + rest)
}

/// A text with its separators, or without them.
fn separate(text: &str, keep: bool) -> String {
    let (mut out, mut inside) = (String::new(), false);
    for letter in text.chars() {
        match letter {
            letter if letter == BETWEEN[0] => inside = true,
            letter if letter == BETWEEN[1] => inside = false,
            letter if !inside || keep => out.push(letter),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_put_in() {
        let ranges = ["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()];
        assert_eq!(render(r#"{"subnet": "{{.PodCIDR}}"}"#, &ranges).unwrap(), r#"{"subnet": "10.1.0.0/24"}"#);
        let list = r#"[{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]"#;
        assert_eq!(render(list, &ranges).unwrap(), r#"[[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]"#);
        let routes = r#"{{range $i, $route := .Routes}}{"dst": "{{$route}}"}{{end}}"#;
        assert_eq!(render(routes, &ranges).unwrap(), r#"{"dst": "0.0.0.0/0"}{"dst": "::/0"}"#);
        assert!(render("{{range $i, $range := .PodCIDRRanges}}{{.Other}}{{end}}", &ranges).is_none());
        assert!(render("{{.Secret}}", &ranges).is_none());
        assert!(render("{{.PodCIDR", &ranges).is_none());
    }
}
