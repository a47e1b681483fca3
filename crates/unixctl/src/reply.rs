//! Writing replies: JSON that goes out a piece at a time, so that a long text is in memory once, or never as a whole.

use serde_json::Value;
use std::io::{self, Write};

/// A reply's text in pieces, each made when the one before is written.
pub type Pieces = Box<dyn Iterator<Item = String>>;

/// Bytes of a text that are escaped at a time.
const ESCAPED_AT_ONCE: usize = 1 << 16;

/// The reply to `id`, as sent.
pub fn reply(id: &Value, answer: &Result<String, String>) -> String {
    let mut out = Vec::new();
    write_reply(&mut out, id, answer).expect("invariant: memory takes all bytes");
    String::from_utf8(out).expect("invariant: JSON is text")
}

/// Writes the reply to `id`. Text ends with a line feed, as `ovs-appctl` expects.
pub fn write_reply(to: &mut impl Write, id: &Value, answer: &Result<String, String>) -> io::Result<()> {
    match answer {
        Ok(text) => {
            write!(to, r#"{{"error":null,"id":{id},"result":"#)?;
            write_text(to, std::iter::once(text.as_str()))?;
            to.write_all(b"}")
        }
        Err(text) => {
            to.write_all(br#"{"error":"#)?;
            write_text(to, std::iter::once(text.as_str()))?;
            write!(to, r#","id":{id},"result":null}}"#)
        }
    }
}

/// The same of a text in pieces.
pub fn write_pieces(to: &mut impl Write, id: &Value, pieces: impl Iterator<Item = String>) -> io::Result<()> {
    write!(to, r#"{{"error":null,"id":{id},"result":"#)?;
    write_text(to, pieces)?;
    to.write_all(b"}")
}

/// Writes a text as a JSON string, with a line feed at its end if it is not empty.
fn write_text(to: &mut impl Write, pieces: impl Iterator<Item = impl AsRef<str>>) -> io::Result<()> {
    to.write_all(b"\"")?;
    let (mut escaped, mut last) = (Vec::new(), None);
    for piece in pieces {
        let mut rest = piece.as_ref();
        while !rest.is_empty() {
            let (some, more) = rest.split_at(rest.floor_char_boundary(ESCAPED_AT_ONCE.min(rest.len())));
            escaped.clear();
            serde_json::to_writer(&mut escaped, some)?;
            to.write_all(&escaped[1..escaped.len() - 1])?;
            (last, rest) = (some.bytes().last(), more);
        }
    }
    if last.is_some_and(|last| last != b'\n') {
        to.write_all(b"\\n")?;
    }
    to.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_reply_has_the_shape_of_ovs_appctls() {
        let id = json!(7);
        assert_eq!(reply(&id, &Ok(String::new())), r#"{"error":null,"id":7,"result":""}"#);
        assert_eq!(reply(&id, &Ok("a".into())), r#"{"error":null,"id":7,"result":"a\n"}"#);
        assert_eq!(reply(&id, &Err("no\n".into())), r#"{"error":"no\n","id":7,"result":null}"#);
    }

    /// Remembers the longest write.
    #[derive(Default)]
    struct Sink(Vec<u8>, usize);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = self.1.max(bytes.len());
            self.0.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_text_is_never_escaped_as_a_whole() {
        let (text, mut sink) = ("\u{1}é\n".repeat(1 << 20), Sink::default());
        write_reply(&mut sink, &json!("x"), &Ok(text.clone())).unwrap();
        assert!(sink.1 <= 6 * ESCAPED_AT_ONCE, "{}", sink.1);
        let value: Value = serde_json::from_slice(&sink.0).unwrap();
        assert_eq!(value["result"], text);
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_text(pieces in prop::collection::vec(any::<String>(), 0..5), line_feed in any::<bool>()) {
            let mut pieces = pieces;
            if line_feed {
                pieces.push("\n".into());
            }
            let (whole, mut sink) = (pieces.concat(), Vec::new());
            write_pieces(&mut sink, &json!([1]), pieces.into_iter()).unwrap();
            let line = if whole.is_empty() || whole.ends_with('\n') { whole } else { whole + "\n" };
            let value: Value = serde_json::from_slice(&sink).unwrap();
            prop_assert_eq!(value, json!({"error": null, "id": [1], "result": line}));
        }
    }
}
