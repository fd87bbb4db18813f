//! Environment variables: merging and files.

use core_types::{Error, Result};

/// What processes search commands in when the image does not say.
pub const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn key(variable: &str) -> &str {
    variable.split_once('=').map_or(variable, |(key, _)| key)
}

/// `defaults` changed by `overrides`: a known name takes the new value in its place, a new name goes to the end,
/// and a name without `=` removes the variable.
pub fn merge(defaults: &[String], overrides: &[String]) -> Vec<String> {
    let mut merged: Vec<String> = defaults.to_vec();
    for variable in overrides {
        let at = merged.iter().position(|have| key(have) == key(variable));
        match (at, variable.contains('=')) {
            (Some(at), true) => merged[at].clone_from(variable),
            (Some(at), false) => {
                merged.remove(at);
            }
            (None, true) => merged.push(variable.clone()),
            (None, false) => {}
        }
    }
    merged
}

/// Reads an environment file: a variable each line; empty lines and lines that begin with `#` are left out.
///
/// # Errors
/// InvalidArgument that names the line for one without a name.
pub fn parse_file(text: &str) -> Result<Vec<String>> {
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if key(line).trim().is_empty() {
            return Err(Error::invalid_argument(format!("line {}: a variable needs a name: {line:?}", number + 1)));
        }
        variables.push(line.to_owned());
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn overrides_replace_append_and_remove() {
        let merged = merge(&strings(&["A=1", "B=2", "C=3"]), &strings(&["B=9", "D=4", "A", "Z"]));
        assert_eq!(merged, ["B=9", "C=3", "D=4"]);
    }

    #[test]
    fn values_keep_equals_signs_and_may_be_empty() {
        assert_eq!(merge(&strings(&["A=1"]), &strings(&["A=x=y", "B="])), ["A=x=y", "B="]);
    }

    #[test]
    fn files_skip_comments_and_name_the_bad_line() {
        assert_eq!(parse_file("# c\nA=1\n\nB=2 3\n").unwrap(), ["A=1", "B=2 3"]);
        assert!(parse_file("A=1\n=2\n").unwrap_err().message().contains("line 2"));
    }
}
