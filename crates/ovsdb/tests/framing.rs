//! The framer under any bytes and any split.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_fate::Limit;
use sluice_ovsdb::{FrameError, Framer, Message, NESTING_MAX};

/// Everything that comes out of a stream given in these pieces, and the error that ends it.
fn frames<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Value>, Option<FrameError>) {
    let mut framer = Framer::new(limit);
    let mut objects = Vec::new();
    for piece in pieces {
        framer.push(piece);
        loop {
            match framer.next_object() {
                Ok(Some(object)) => objects.push(object),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(framer.next_object(), Err(error.clone()), "an error stays");
                    return (objects, Some(error));
                }
            }
        }
    }
    (objects, None)
}

/// Cuts `bytes` at places that `cuts` choose.
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // What a framer that counts braces could trip over.
        "[{}\\[\\]\"\\\\,: a\u{e9}\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[{}\"\\\\a]{0,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn json_object() -> impl Strategy<Value = Value> {
    json_value().prop_map(|value| json!({ "a": value }))
}

/// Bytes of which many are JSON's own.
fn jsonish_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"{}[]\"\\,: \n0e-tfnu".to_vec()),
        1 => any::<u8>(),
    ];
    prop::collection::vec(byte, 0..200)
}

proptest! {
    #[test]
    fn any_split_gives_the_same_objects(
        objects in prop::collection::vec((json_object(), "[ \t\r\n]{0,2}"), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream: String = objects.iter().map(|(object, space)| format!("{space}{object}")).collect();
        let want: Vec<Value> = objects.into_iter().map(|(object, _)| object).collect();
        let (got, error) = frames(1 << 20, pieces(stream.as_bytes(), &cuts));
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, want);
    }

    #[test]
    fn any_bytes_end_alike_under_any_split(
        bytes in jsonish_bytes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let whole = frames(100, [&bytes[..]]);
        prop_assert_eq!(frames(100, pieces(&bytes, &cuts)), whole.clone());
        prop_assert_eq!(frames(100, bytes.chunks(1)), whole);
    }

    #[test]
    fn any_json_is_a_message_or_an_error(json in json_value(), member in "method|params|result|error|id") {
        let _ = Message::from_json(json.clone());
        let _ = Message::from_json(json!({ member: json, "id": 1 }));
    }
}

#[test]
fn limits_hold_at_their_last_value() {
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert_eq!(frames(1 << 20, [nested(NESTING_MAX).as_bytes()]).0.len(), 1);
    let before = Limit::DatabaseMessages.count();
    let too_deep = FrameError::TooDeep { limit: NESTING_MAX };
    assert_eq!(frames(1 << 20, [nested(NESTING_MAX + 1).as_bytes()]).1, Some(too_deep));

    let long = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    assert_eq!(frames(64, [long(64).as_bytes()]).0.len(), 1);
    assert_eq!(frames(64, [long(65).as_bytes()]).1, Some(FrameError::TooLong { limit: 64 }));
    // The limit is a message's, not the stream's; and it holds before the message's end has come.
    assert_eq!(frames(64, [long(64).repeat(9).as_bytes()]).0.len(), 9);
    assert_eq!(frames(64, [&long(9999).as_bytes()[..66]]).1, Some(FrameError::TooLong { limit: 64 }));
    assert!(Limit::DatabaseMessages.count() >= before + 3);
}

#[test]
fn what_is_no_object_is_refused() {
    assert_eq!(frames(64, [b"{} 5".as_slice()]), (vec![json!({})], Some(FrameError::NotObject(b'5'))));
    assert_eq!(frames(64, [b"[]".as_slice()]).1, Some(FrameError::NotObject(b'[')));
    assert!(matches!(frames(64, [b"{]".as_slice()]).1, Some(FrameError::NotJson(_))));
    assert!(matches!(frames(64, [b"{\"\xff\":0}".as_slice()]).1, Some(FrameError::NotJson(_))));
}
