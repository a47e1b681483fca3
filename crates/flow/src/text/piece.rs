//! Pieces of a text that remember their place in it, and splitting a line into keys and values.

use super::SyntaxError;

/// A piece of the text being parsed, and where it begins (in bytes from the start of the whole text).
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The text.
    pub text: &'a str,
    /// Where it begins, bytes.
    pub at: usize,
}

/// What stands between a key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// Nothing: there is no value.
    None,
    /// `:` or `=`: the value goes on to the next comma or space outside parentheses.
    Sign,
    /// `(`: the value goes on to the `)` that closes it.
    Parenthesis,
}

/// A key, its value, and what follows a parenthesis without a gap (`check_pkt_larger(100)->NXM_NX_REG0[0]`).
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The key.
    pub key: Piece<'a>,
    /// What stands between.
    pub delimiter: Delimiter,
    /// The value, empty if there is none.
    pub value: Piece<'a>,
    /// What follows the closing parenthesis.
    pub tail: Piece<'a>,
}

const GAP: [char; 5] = [',', ' ', '\t', '\r', '\n'];

impl<'a> Piece<'a> {
    /// A whole text.
    pub fn new(text: &'a str) -> Self {
        Piece { text, at: 0 }
    }

    /// Whether it has no text.
    pub fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// What stands before and from byte `n` on.
    pub fn split_at(self, n: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at(n);
        (Piece { text: before, at: self.at }, Piece { text: after, at: self.at + n })
    }

    /// What stands before and behind the first `separator`.
    pub fn split_once(self, separator: &str) -> Option<(Self, Self)> {
        let n = self.text.find(separator)?;
        let (before, rest) = self.split_at(n);
        Some((before, rest.split_at(separator.len()).1))
    }

    /// What follows `prefix`.
    pub fn strip_prefix(self, prefix: &str) -> Option<Self> {
        self.text.starts_with(prefix).then(|| self.split_at(prefix.len()).1)
    }

    /// What stands before `suffix`.
    pub fn strip_suffix(self, suffix: &str) -> Option<Self> {
        self.text.ends_with(suffix).then(|| self.split_at(self.text.len() - suffix.len()).0)
    }

    /// Without the white space at both ends.
    pub fn trim(self) -> Self {
        let from_start = self.split_at(self.text.len() - self.text.trim_start().len()).1;
        from_start.split_at(from_start.text.trim_end().len()).0
    }

    /// Skips commas and white space.
    pub fn skip_gap(self) -> Self {
        self.split_at(self.text.len() - self.text.trim_start_matches(GAP).len()).1
    }

    /// The pieces between any of `separators`, empty ones left out.
    pub fn words(self, separators: &[char]) -> Vec<Piece<'a>> {
        let mut words = Vec::new();
        let mut rest = self;
        while !rest.is_empty() {
            let end = rest.text.find(separators).unwrap_or(rest.text.len());
            let (word, after) = rest.split_at(end);
            if !word.is_empty() {
                words.push(word);
            }
            let gap = after.text.chars().next().map_or(0, char::len_utf8);
            rest = after.split_at(gap).1;
        }
        words
    }

    /// The error that something else was expected in place of this piece.
    pub fn error(self, expected: impl Into<String>) -> SyntaxError {
        SyntaxError { at: self.at, found: quoted(self.text), expected: expected.into() }
    }

    /// An error at this place whose cause is not the text itself.
    pub fn conflict(self, found: impl Into<String>, expected: impl Into<String>) -> SyntaxError {
        SyntaxError { at: self.at, found: found.into(), expected: expected.into() }
    }

    /// Takes the next pair off the front. `None` when only gaps are left.
    pub fn next_pair(&mut self) -> Result<Option<Pair<'a>>, SyntaxError> {
        let text = self.skip_gap();
        if text.is_empty() {
            *self = text;
            return Ok(None);
        }
        let key_end = text.text.find([':', '=', '(', ',', ' ', '\t', '\r', '\n']).unwrap_or(text.text.len());
        let (key, rest) = text.split_at(key_end);
        let mut pair = Pair { key, delimiter: Delimiter::None, value: rest.split_at(0).0, tail: rest.split_at(0).0 };
        match rest.text.as_bytes().first() {
            Some(b':' | b'=') => {
                let rest = rest.split_at(1).1;
                let (value, rest) = rest.split_at(value_end(rest)?);
                pair.delimiter = Delimiter::Sign;
                pair.value = value;
                pair.tail = rest.split_at(0).0;
                *self = rest;
            }
            Some(b'(') => {
                let close = closing(rest)?;
                pair.delimiter = Delimiter::Parenthesis;
                pair.value = rest.split_at(close).0.split_at(1).1;
                let rest = rest.split_at(close + 1).1;
                let (tail, rest) = rest.split_at(value_end(rest)?);
                pair.tail = tail;
                *self = rest;
            }
            _ => *self = rest,
        }
        Ok(Some(pair))
    }
}

/// Text for an error message: in quotes, cut if long.
fn quoted(text: &str) -> String {
    /// Characters shown.
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        _ if text.is_empty() => "nothing".to_owned(),
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Where a value ends that goes on to a comma or space outside parentheses.
fn value_end(text: Piece<'_>) -> Result<usize, SyntaxError> {
    let mut n = 0;
    while let Some(c) = text.text[n..].chars().next() {
        if GAP.contains(&c) {
            break;
        }
        n += if c == '(' { closing(text.split_at(n).1)? + 1 } else { c.len_utf8() };
    }
    Ok(n)
}

/// Where the parenthesis closes that `text` begins with.
fn closing(text: Piece<'_>) -> Result<usize, SyntaxError> {
    let mut depth = 0usize;
    for (n, b) in text.text.bytes().enumerate() {
        match b {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(n);
        }
    }
    Err(text.split_at(text.text.len()).1.error("a \")\" that closes the \"(\" before"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, String)> {
        let mut rest = Piece::new(text);
        let mut all = Vec::new();
        while let Some(pair) = rest.next_pair().expect("the text falls apart") {
            assert_eq!(&text[pair.value.at..pair.value.at + pair.value.text.len()], pair.value.text);
            all.push((pair.key.text.into(), pair.value.text.into(), pair.tail.text.into()));
        }
        all
    }

    #[test]
    fn a_line_falls_apart_at_commas_outside_parentheses() {
        let of = |k: &str, v: &str, t: &str| (k.to_owned(), v.to_owned(), t.to_owned());
        let want =
            [of("a", "1", ""), of("b", "(2,3)", ""), of("c", "d(e,f),g", "->h"), of("i", "", ""), of("j", "k:l", "")];
        assert_eq!(pairs(" a=1,,b:(2,3) c(d(e,f),g)->h i, j=k:l"), want);
    }

    #[test]
    fn an_open_parenthesis_is_an_error() {
        assert!(Piece::new("a(b").next_pair().is_err() && Piece::new("a=(b").next_pair().is_err());
        assert!(Piece::new("a)b").next_pair().is_ok());
    }
}
