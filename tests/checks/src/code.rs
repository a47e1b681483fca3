//! Just enough of Rust's lexical grammar to tell code from comments, strings and characters.

/// The same text with comments, string contents and character literals turned to spaces, line breaks kept, so that
/// what is left is code and stands where it stood.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = token_to_blank(bytes, at);
        if end > at {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(out).expect("invariant: whole tokens were replaced by ASCII")
}

/// Where the comment, string or character literal at `at` ends; `at` itself if none starts there.
fn token_to_blank(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        block_comment_end(bytes, at)
    } else if rest[0] == b'"' {
        quoted_end(bytes, at + 1, b'"')
    } else if rest[0] == b'r' && !(at > 0 && is_word(bytes[at - 1]) && bytes[at - 1] != b'b') {
        raw_string_end(bytes, at)
    } else if rest[0] == b'\'' {
        character_end(bytes, at)
    } else {
        at
    }
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn quoted_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `r"…"` and `r#"…"#`; a raw identifier such as `r#type` is none.
fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return at;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    bytes[open + 1..].windows(close.len()).position(|w| w == close).map_or(bytes.len(), |i| open + 1 + i + close.len())
}

/// A character literal; a lifetime (`'a` with no quote behind it) is none.
fn character_end(bytes: &[u8], at: usize) -> usize {
    match &bytes[at..] {
        [_, b'\\', ..] => quoted_end(bytes, at + 1, b'\''),
        [_, first, ..] => {
            let wide = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            if bytes.get(at + 1 + wide) == Some(&b'\'') { at + wide + 2 } else { at }
        }
        _ => at,
    }
}

/// Whether a name may have this byte.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The words of a text whose comments are blanked: each with its offset.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = code.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().position(|b| is_word(*b))?;
        let start = at;
        at += bytes[at..].iter().take_while(|b| is_word(**b)).count();
        Some((start, &code[start..at]))
    })
}

/// The functions with a body in a text whose comments are blanked: name, first line (from 1), lines.
pub fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let all: Vec<_> = words(code).collect();
    let mut found = Vec::new();
    for pair in all.windows(2) {
        let [(at, "fn"), (name_at, name)] = pair else { continue };
        // `fn(u32)` is a type; a semicolon before the brace means no body (a trait's method).
        if code[at + 2..*name_at].trim() != "" {
            continue;
        }
        if let Some(end) = body_end(code, *name_at) {
            let first = code[..*at].matches('\n').count() + 1;
            found.push((*name, first, code[*at..end].matches('\n').count() + 1));
        }
    }
    found
}

fn body_end(code: &str, from: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (i, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(from + i);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_no_code() {
        let text =
            "a /* b /* c */ d */ e // f\n\"g \\\" h\" 'i' '\\'' b'j' r#\"k \" l\"# 'm n: &'o T r#fn 'ü' br\"p\" q";
        let code = blank(text);
        let left: Vec<_> = words(&code).map(|(_, w)| w).collect();
        assert_eq!(left, ["a", "e", "b", "m", "n", "o", "T", "r", "fn", "b", "q"]);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.matches('\n').count(), 1);
    }

    #[test]
    fn functions_are_measured_to_their_last_brace() {
        let text = "trait T {\n fn none(&self) -> [u8; 4];\n}\nfn two(f: fn(u8)) {\n if x { \"}\" }\n}\n";
        assert_eq!(functions(&blank(text)), [("two", 4, 3)]);
    }
}
