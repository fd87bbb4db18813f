use core_types::{Error, Result};
use serde_json::{Map, Number, Value};

/// How deep lists and maps may nest.
const MAX_DEPTH: usize = 32;
/// Keys whose values are numbers; what is written plainly elsewhere is text, so that a device may be named `0`.
const NUMBERS: [&str; 7] = ["major", "minor", "fileMode", "uid", "gid", "timeout", "additionalGids"];
/// Keys whose values are yes or no.
const FLAGS: [&str; 3] = ["enableCMT", "enableMBM", "enableMonitoring"];

/// Reads the part of YAML that CDI files are written in: maps and lists in blocks or brackets, with plain and quoted
/// texts and comments. Anchors, tags, block texts and several documents are refused.
///
/// # Errors
/// InvalidArgument with the line.
pub(super) fn parse(text: &[u8]) -> Result<Value> {
    let text = std::str::from_utf8(text).map_err(|_| Error::invalid_argument("is not UTF-8"))?;
    let mut parser = Parser { lines: lines(text.trim_start_matches('\u{feff}'))?, at: 0 };
    let Some(first) = parser.lines.first() else { return Ok(Value::Null) };
    let value = parser.block(first.indent, "", 0)?;
    match parser.lines.get(parser.at) {
        Some(line) => Err(line.wrong("indentation does not fit")),
        None => Ok(value),
    }
}

struct Line {
    number: usize,
    indent: usize,
    text: String,
}

impl Line {
    fn wrong(&self, why: &str) -> Error {
        Error::invalid_argument(format!("line {}: {why}", self.number))
    }

    fn is_item(&self) -> bool {
        self.text == "-" || self.text.starts_with("- ")
    }
}

/// The lines that say something, without comments and the marks of a document.
fn lines(text: &str) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let bare = raw.trim_start_matches(' ');
        let line = Line { number: index + 1, indent: raw.len() - bare.len(), text: without_comment(bare).to_owned() };
        match line.text.as_str() {
            "" => {}
            "---" if line.indent == 0 && lines.is_empty() => {}
            "..." if line.indent == 0 => break,
            "---" if line.indent == 0 => return Err(line.wrong("a second document")),
            text if text.starts_with('\t') => return Err(line.wrong("indentation by a tab")),
            text if text.starts_with('%') => return Err(line.wrong("a directive")),
            _ => lines.push(line),
        }
    }
    Ok(lines)
}

fn without_comment(text: &str) -> &str {
    let mut quote = None;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'#') if before.is_ascii_whitespace() => return text[..at].trim_end(),
            (None, b'"' | b'\'') if b" [{,:-".contains(&before) => quote = Some(byte),
            // Two single quotes stand for one, inside.
            (None, b'\'') if before == b'\'' => quote = Some(byte),
            (Some(open), byte) if byte == open && !(open == b'"' && before == b'\\') => quote = None,
            _ => {}
        }
        before = if before == b'\\' && byte == b'\\' { b' ' } else { byte };
    }
    text.trim_end()
}

struct Parser {
    lines: Vec<Line>,
    at: usize,
}

impl Parser {
    /// The list or map whose lines are indented by `indent`; `key` is what it is the value of.
    fn block(&mut self, indent: usize, key: &str, depth: usize) -> Result<Value> {
        let Some(line) = self.lines.get(self.at) else { return Ok(Value::Null) };
        if depth > MAX_DEPTH {
            return Err(line.wrong("nesting is too deep"));
        }
        if line.is_item() {
            return self.list(indent, key, depth);
        }
        match split_key(&line.text) {
            Some(_) => self.map(indent, depth),
            None => Err(line.wrong("neither a list nor a map")),
        }
    }

    fn list(&mut self, indent: usize, key: &str, depth: usize) -> Result<Value> {
        let mut list = Vec::new();
        while let Some(line) = self.lines.get_mut(self.at).filter(|line| line.indent == indent && line.is_item()) {
            let rest = line.text[1..].trim_start().to_owned();
            let column = indent + line.text.len() - rest.len();
            if rest.is_empty() {
                self.at += 1;
                list.push(self.nested(indent, key, depth)?);
            } else if rest == "-" || rest.starts_with("- ") || split_key(&rest).is_some() {
                (line.indent, line.text) = (column, rest);
                list.push(self.block(column, key, depth + 1)?);
            } else {
                list.push(self.scalar(&rest, indent, key)?);
            }
        }
        Ok(Value::Array(list))
    }

    fn map(&mut self, indent: usize, depth: usize) -> Result<Value> {
        let mut map = Map::new();
        while let Some(line) = self.lines.get(self.at).filter(|line| line.indent == indent && !line.is_item()) {
            let Some((key, rest)) = split_key(&line.text) else { return Err(line.wrong("a key and a colon expected")) };
            let (key, rest) = (key.to_owned(), rest.to_owned());
            if map.contains_key(&key) {
                return Err(line.wrong("a key that is there already"));
            }
            let value = if rest.is_empty() {
                self.at += 1;
                let item = self.lines.get(self.at).is_some_and(|line| line.indent == indent && line.is_item());
                if item { self.block(indent, &key, depth + 1)? } else { self.nested(indent, &key, depth)? }
            } else {
                self.scalar(&rest, indent, &key)?
            };
            if !value.is_null() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }

    /// What is indented deeper than `indent`, or nothing.
    fn nested(&mut self, indent: usize, key: &str, depth: usize) -> Result<Value> {
        match self.lines.get(self.at) {
            Some(line) if line.indent > indent => self.block(line.indent, key, depth + 1),
            _ => Ok(Value::Null),
        }
    }

    /// A value that begins on this line; a plain text may go on below, where it is indented deeper.
    fn scalar(&mut self, text: &str, indent: usize, key: &str) -> Result<Value> {
        let first = self.at;
        self.at += 1;
        let mut whole = text.to_owned();
        while let Some(more) = self.lines.get(self.at).filter(|line| line.indent > indent) {
            whole.push(' ');
            whole.push_str(&more.text);
            self.at += 1;
        }
        let line = &self.lines[first];
        let mut flow = Flow { text: &whole, line, depth: 0 };
        let value = flow.value(key, b"")?;
        match flow.text.trim_start() {
            "" => Ok(value),
            _ => Err(line.wrong("text after the end of a value")),
        }
    }
}

/// Splits `key: value`; the key is plain or in quotes.
fn split_key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = match text.as_bytes().first()? {
        quote @ (b'"' | b'\'') => {
            let end = text[1..].find(char::from(*quote))? + 1;
            (&text[1..end], text[end + 1..].trim_start().strip_prefix(':')?)
        }
        b'[' | b'{' => return None,
        _ => match text.split_once(": ") {
            Some(parts) => parts,
            None => (text.strip_suffix(':')?, ""),
        },
    };
    let known = rest.is_empty() || rest.starts_with(char::is_whitespace) || text.contains(": ");
    (known && !key.is_empty()).then(|| (key.trim_end(), rest.trim()))
}

/// A value within a line, or within brackets.
struct Flow<'a> {
    text: &'a str,
    line: &'a Line,
    depth: usize,
}

impl Flow<'_> {
    /// Reads a value; a plain one ends before any of `ends`.
    fn value(&mut self, key: &str, ends: &[u8]) -> Result<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.line.wrong("nesting is too deep"));
        }
        self.text = self.text.trim_start();
        let value = match self.text.as_bytes().first() {
            Some(b'[') => self.list(key),
            Some(b'{') => self.map(),
            Some(b'"') => self.double_quoted().map(Value::String),
            Some(b'\'') => self.single_quoted().map(Value::String),
            Some(b'&' | b'*' | b'!' | b'|' | b'>' | b'%' | b'@' | b'`') => {
                Err(self.line.wrong("anchors, tags and block texts are not read"))
            }
            _ => {
                let end = self.text.bytes().position(|byte| ends.contains(&byte)).unwrap_or(self.text.len());
                let (plain, rest) = self.text.split_at(end);
                self.text = rest;
                self.plain(key, plain.trim())
            }
        };
        self.depth -= 1;
        value
    }

    fn list(&mut self, key: &str) -> Result<Value> {
        let mut list = Vec::new();
        self.text = &self.text[1..];
        while !self.take(']') {
            list.push(self.value(key, b",]")?);
            self.comma(']')?;
        }
        Ok(Value::Array(list))
    }

    fn map(&mut self) -> Result<Value> {
        let mut map = Map::new();
        self.text = &self.text[1..];
        while !self.take('}') {
            let key = match self.value("", b":,}")? {
                Value::String(key) => key,
                _ => return Err(self.line.wrong("a key expected")),
            };
            let value = if self.take(':') { self.value(&key, b",}")? } else { Value::Null };
            if !value.is_null() {
                map.insert(key, value);
            }
            self.comma('}')?;
        }
        Ok(Value::Object(map))
    }

    fn take(&mut self, mark: char) -> bool {
        self.text = self.text.trim_start();
        match self.text.strip_prefix(mark) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    /// A comma, or the end, which stays.
    fn comma(&mut self, end: char) -> Result<()> {
        match self.take(',') || self.text.starts_with(end) {
            true => Ok(()),
            false => Err(self.line.wrong("a bracket is not closed")),
        }
    }

    fn single_quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        let mut rest = &self.text[1..];
        loop {
            let Some((part, after)) = rest.split_once('\'') else {
                return Err(self.line.wrong("a quote is not closed"));
            };
            text += part;
            match after.strip_prefix('\'') {
                Some(more) => {
                    text.push('\'');
                    rest = more;
                }
                None => {
                    self.text = after;
                    return Ok(text);
                }
            }
        }
    }

    /// The escapes are those of JSON, which has all that such files use.
    fn double_quoted(&mut self) -> Result<String> {
        let mut texts = serde_json::Deserializer::from_str(self.text).into_iter::<String>();
        let text = match texts.next() {
            Some(Ok(text)) => text,
            _ => return Err(self.line.wrong("a quoted text is not closed or has an unknown escape")),
        };
        self.text = &self.text[texts.byte_offset()..];
        Ok(text)
    }

    fn plain(&self, key: &str, text: &str) -> Result<Value> {
        if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            return Ok(Value::Null);
        }
        if FLAGS.contains(&key) {
            return match text {
                "true" | "True" | "TRUE" => Ok(Value::Bool(true)),
                "false" | "False" | "FALSE" => Ok(Value::Bool(false)),
                _ => Err(self.line.wrong("true or false expected")),
            };
        }
        if NUMBERS.contains(&key) {
            let number = number(text).ok_or_else(|| self.line.wrong("a whole number expected"))?;
            return Ok(Value::Number(Number::from(number)));
        }
        Ok(Value::String(text.to_owned()))
    }
}

/// Decimal, `0x…`, and octal as `0o…` or, as the older standard has it, with a leading zero.
fn number(text: &str) -> Option<i64> {
    let (radix, digits) = match text {
        _ if text.starts_with("0x") => (16, &text[2..]),
        _ if text.starts_with("0o") => (8, &text[2..]),
        _ if text.len() > 1 && text.starts_with('0') => (8, &text[1..]),
        _ => (10, text),
    };
    i64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        parse(text.as_bytes()).unwrap()
    }

    const GENERATED: &str = r#"---
# Made by a generator.
cdiVersion: 0.5.0
kind: "vendor.com/gpu"
containerEdits:
  env:
  - VISIBLE=void
  - 'QUOTED=it''s # here'
  hooks:
  - args:
    - vendor-hook
    - --link
    - ../a.so.1::/usr/lib/a.so
    hookName: createContainer
    path: /usr/bin/vendor-hook   # a comment
    timeout: 5
  mounts:
    - hostPath: /lib/a.so
      containerPath: /lib/a.so
      options: [ro, "nosuid", nodev]
    - {hostPath: /x, containerPath: '/y'}
devices:
- name: 0
  containerEdits:
    deviceNodes:
    - path: /dev/vendor0
      major: 195
      fileMode: 0666
    additionalGids: [44, 0x10]
- containerEdits:
    deviceNodes:
      -
        path: /dev/vendor1
    mounts:
    env: []
  name: "all"
"#;

    #[test]
    fn a_file_as_generators_write_it() {
        let expected = json!({
            "cdiVersion": "0.5.0",
            "kind": "vendor.com/gpu",
            "containerEdits": {
                "env": ["VISIBLE=void", "QUOTED=it's # here"],
                "hooks": [{
                    "args": ["vendor-hook", "--link", "../a.so.1::/usr/lib/a.so"],
                    "hookName": "createContainer", "path": "/usr/bin/vendor-hook", "timeout": 5,
                }],
                "mounts": [
                    {"hostPath": "/lib/a.so", "containerPath": "/lib/a.so", "options": ["ro", "nosuid", "nodev"]},
                    {"hostPath": "/x", "containerPath": "/y"},
                ],
            },
            "devices": [
                {"name": "0", "containerEdits": {
                    "deviceNodes": [{"path": "/dev/vendor0", "major": 195, "fileMode": 438}],
                    "additionalGids": [44, 16],
                }},
                {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/vendor1"}], "env": []}},
            ],
        });
        assert_eq!(read(GENERATED), expected);
    }

    #[test]
    fn texts() {
        assert_eq!(
            read("a: b: c\nd: http://x:1/\ne: \"q\\\"\\u0041\"\n"),
            json!({"a": "b: c", "d": "http://x:1/", "e": "q\"A"})
        );
        assert_eq!(read("a: long text\n   that goes on\nb: 1\n"), json!({"a": "long text that goes on", "b": "1"}));
        assert_eq!(read("'a b': x#y\nc:\n"), json!({"a b": "x#y"}));
        assert_eq!(read("# nothing\n"), Value::Null);
        assert_eq!(read("- - a\n  - b\n- c\n"), json!([["a", "b"], "c"]));
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_line() {
        for (bad, line) in [
            ("a: 1\nb: &x 2\n", 2),
            ("a: *x\n", 1),
            ("a: |\n  text\n", 1),
            ("a: !!str 1\n", 1),
            ("a: 1\n---\nb: 1\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: [1, 2\n", 1),
            ("a: \"open\n", 1),
            ("a: 'open\n", 1),
            ("a:\n\tb: 1\n", 2),
            ("major: x\n", 1),
            ("  a: 1\nb: 2\n", 2),
            ("a\n", 1),
            ("a: [1] x\n", 1),
        ] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert!(error.message().contains(&format!("line {line}")), "{bad:?}: {error}");
        }
        assert!(parse(&b"- ".repeat(5000)).is_err(), "bounded depth");
        assert!(parse(format!("a: {}", "[".repeat(5000)).as_bytes()).is_err());
        assert!(parse(b"\xff").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_answered(text in "([-:,#'\"\\\\ \n\\[\\]{}a0x]|uid: ){0,60}") {
            let _ = parse(text.as_bytes());
        }
    }
}
