//! Recursive descent over the characters of one filter.

use std::{iter::Peekable, str::CharIndices};

use regex::RegexBuilder;

use super::{Selector, Test};

/// No client writes longer filters; the bound keeps parsing cheap.
const MAX_LENGTH: usize = 64 * 1024;
/// Bound on the memory of one compiled expression.
const MAX_REGEX: usize = 1 << 20;

type Parsed<T> = Result<T, String>;

/// Parses comma separated selectors.
pub(super) fn selectors(text: &str) -> Parsed<Vec<Selector>> {
    if text.len() > MAX_LENGTH {
        return Err(format!("longer than {MAX_LENGTH} bytes"));
    }
    let mut parser = Parser { text, chars: text.char_indices().peekable() };
    let mut all = vec![parser.selector()?];
    loop {
        match parser.next_token() {
            None => return Ok(all),
            Some((_, ',')) => all.push(parser.selector()?),
            Some((at, other)) => return Err(parser.at(at, &format!("unexpected {other:?}"))),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl Parser<'_> {
    fn selector(&mut self) -> Parsed<Selector> {
        let path = self.path()?;
        let Some(&(at, first)) = self.peek_token() else { return Ok(Selector { path, test: Test::Present }) };
        if first == ',' {
            return Ok(Selector { path, test: Test::Present });
        }
        let test = match self.operator(at)?.as_str() {
            "==" => Test::Equal(self.value(false)?),
            "!=" => Test::NotEqual(self.value(false)?),
            "~=" => {
                let pattern = self.value(true)?;
                let regex = RegexBuilder::new(&pattern).size_limit(MAX_REGEX).build();
                Test::Matches(regex.map_err(|error| format!("regular expression {pattern:?}: {error}"))?)
            }
            other => return Err(self.at(at, &format!("unsupported operator {other:?}"))),
        };
        Ok(Selector { path, test })
    }

    fn path(&mut self) -> Parsed<Vec<String>> {
        let mut path = vec![self.field()?];
        while self.peek_token().is_some_and(|&(_, next)| next == '.') {
            self.chars.next();
            path.push(self.field()?);
        }
        Ok(path)
    }

    fn field(&mut self) -> Parsed<String> {
        let is_field = |c: char| c == '_' || c.is_ascii_alphanumeric();
        match self.next_token() {
            Some((at, '"')) => self.quoted(at, '"'),
            Some((_, first)) if is_field(first) => {
                let mut field = String::from(first);
                while let Some((_, c)) = self.chars.next_if(|&(_, c)| is_field(c) || c == '-') {
                    field.push(c);
                }
                Ok(field)
            }
            Some((at, _)) => Err(self.at(at, "expected a field or a quoted field")),
            None => Err(self.at(self.text.len(), "expected a field")),
        }
    }

    fn operator(&mut self, at: usize) -> Parsed<String> {
        let mut operator = String::new();
        while let Some((_, c)) = self.chars.next_if(|&(_, c)| matches!(c, '=' | '!' | '~')) {
            operator.push(c);
        }
        if operator.is_empty() {
            return Err(self.at(at, "expected an operator (==, != or ~=)"));
        }
        Ok(operator)
    }

    fn value(&mut self, pattern: bool) -> Parsed<String> {
        match self.peek_token().copied() {
            None => Err(self.at(self.text.len(), "expected a value")),
            Some((at, quote @ ('"' | '/' | '|'))) => {
                self.chars.next();
                if quote != '"' && !pattern {
                    return Err(self.at(at, "this quote is for regular expressions only"));
                }
                self.quoted(at, quote)
            }
            Some((at, _)) => {
                let mut value = String::new();
                while let Some((_, c)) = self.chars.next_if(|&(_, c)| c != ',' && !c.is_whitespace() && !c.is_control())
                {
                    value.push(c);
                }
                if value.is_empty() { Err(self.at(at, "expected a value")) } else { Ok(value) }
            }
        }
    }

    /// The rest of a quoted text, with the escapes of a Go string.
    fn quoted(&mut self, start: usize, quote: char) -> Parsed<String> {
        let mut out = String::new();
        loop {
            match self.chars.next() {
                None | Some((_, '\n')) => return Err(self.at(start, "quoted text is not ended")),
                Some((_, c)) if c == quote => return Ok(out),
                Some((at, '\\')) => out.push(self.escape(at, quote)?),
                Some((_, c)) => out.push(c),
            }
        }
    }

    fn escape(&mut self, at: usize, quote: char) -> Parsed<char> {
        let Some((_, kind)) = self.chars.next() else { return Err(self.at(at, "escape is not ended")) };
        let simple = match kind {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' => '\\',
            c if c == quote => c,
            '0'..='7' => return self.digits(at, kind.to_digit(8).unwrap_or(0), 8, 2),
            'x' => return self.digits(at, 0, 16, 2),
            'u' => return self.digits(at, 0, 16, 4),
            'U' => return self.digits(at, 0, 16, 8),
            _ => return Err(self.at(at, "unknown escape")),
        };
        Ok(simple)
    }

    fn digits(&mut self, at: usize, mut code: u32, base: u32, count: usize) -> Parsed<char> {
        for _ in 0..count {
            let digit = self.chars.next().and_then(|(_, c)| c.to_digit(base));
            let next = digit.and_then(|digit| code.checked_mul(base)?.checked_add(digit));
            code = next.ok_or_else(|| self.at(at, "malformed numeric escape"))?;
        }
        char::from_u32(code).ok_or_else(|| self.at(at, "escape is no character"))
    }

    fn peek_token(&mut self) -> Option<&(usize, char)> {
        while self.chars.next_if(|&(_, c)| c.is_whitespace()).is_some() {}
        self.chars.peek()
    }

    fn next_token(&mut self) -> Option<(usize, char)> {
        self.peek_token();
        self.chars.next()
    }

    fn at(&self, at: usize, what: &str) -> String {
        format!("{what} at byte {at}")
    }
}
