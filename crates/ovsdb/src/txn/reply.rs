//! From a `transact` request's reply to what the transaction came to.

use super::TxnStatus;
use super::compile::{Cell, Compiled};
use crate::Uuid;
use serde_json::Value;
use std::collections::HashSet;

/// A transaction that awaits its reply.
#[derive(Debug)]
pub(crate) struct InFlight {
    inserted: Vec<(usize, Uuid)>,
    writes: HashSet<Cell>,
    aborts: bool,
}

impl InFlight {
    /// What remains of a transaction once it is sent, and the parameters to send.
    pub(crate) fn new(compiled: Compiled) -> (InFlight, Value) {
        let Compiled { params, inserted, writes, aborts } = compiled;
        (InFlight { inserted, writes, aborts }, params)
    }

    pub(crate) fn writes(&self, cell: Cell) -> bool {
        self.writes.contains(&cell)
    }
}

/// What a transaction came to. `reply` is a reply's result, or an error reply's error.
///
/// Operations behind one that failed have `null`; an error that shows only when everything is done, such as a
/// constraint, stands behind the results. Source: RFC 7047 section 4.1.3; OVS lib/ovsdb-idl.c,
/// `ovsdb_idl_txn_process_reply`.
pub(crate) fn status_of(txn: &InFlight, reply: Result<&Value, &Value>) -> TxnStatus {
    let results = match reply {
        Ok(Value::Array(results)) => results,
        Ok(_) => return TxnStatus::Error("result is not an array".into()),
        Err(error) => return status_of_error(txn, error).unwrap_or(TxnStatus::TryAgain),
    };
    if let Some(status) = results.iter().find_map(|result| status_of_error(txn, result)) {
        return status;
    }
    if results.iter().any(Value::is_null) {
        return TxnStatus::TryAgain;
    }
    let real = |&(index, provisional): &(usize, Uuid)| Some((provisional, uuid_of(results.get(index)?)?));
    match txn.inserted.iter().map(real).collect() {
        Some(inserted) => TxnStatus::Success { inserted },
        None => TxnStatus::Error("an insertion's result has no UUID".into()),
    }
}

/// What an error means; `None` if there is none.
fn status_of_error(txn: &InFlight, result: &Value) -> Option<TxnStatus> {
    let error = result.get("error").unwrap_or(result).as_str()?;
    Some(match error {
        "timed out" | "unknown database" | "canceled" => TxnStatus::TryAgain,
        "not owner" => TxnStatus::NotLocked,
        "aborted" if txn.aborts => TxnStatus::Aborted,
        _ => match result.get("details").and_then(Value::as_str) {
            Some(details) => TxnStatus::Error(format!("{error}: {details}")),
            None => TxnStatus::Error(error.to_owned()),
        },
    })
}

fn uuid_of(result: &Value) -> Option<Uuid> {
    match result.get("uuid")?.as_array()?.as_slice() {
        [tag, text] if tag == "uuid" => text.as_str()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn in_flight() -> InFlight {
        InFlight { inserted: vec![(0, Uuid::from_u128(1))], writes: HashSet::new(), aborts: true }
    }

    fn status(results: Value) -> TxnStatus {
        status_of(&in_flight(), Ok(&results))
    }

    #[test]
    fn inserted_rows_get_their_real_uuids() {
        let real = Uuid::from_u128(0x02099acb_838a_4bb4_8f5c_eb1416e54a99);
        let results = json!([{"uuid": ["uuid", real.to_string()]}, {}]);
        assert_eq!(status(results), TxnStatus::Success { inserted: vec![(Uuid::from_u128(1), real)] });
        assert!(matches!(status(json!([{}, {}])), TxnStatus::Error(_)));
        assert!(matches!(status(json!([])), TxnStatus::Error(_)));
    }

    #[test]
    fn errors_have_their_meaning() {
        assert_eq!(status(json!([{"error": "timed out"}, null])), TxnStatus::TryAgain);
        assert_eq!(status(json!([{"error": "not owner"}, null])), TxnStatus::NotLocked);
        assert_eq!(status(json!([{}, {"error": "aborted"}])), TxnStatus::Aborted);
        let late = json!([{}, {}, {"error": "constraint violation", "details": "two rows"}]);
        assert_eq!(status(late), TxnStatus::Error("constraint violation: two rows".into()));
        assert_eq!(status_of(&in_flight(), Err(&json!("canceled"))), TxnStatus::TryAgain);
        assert_eq!(status_of(&in_flight(), Err(&json!({"error": "no"}))), TxnStatus::Error("no".into()));
        assert!(matches!(status(json!("what")), TxnStatus::Error(_)));
        assert_eq!(status(json!([{"count": 1}, null])), TxnStatus::TryAgain, "something was not done");
    }

    #[test]
    fn an_abort_that_was_not_asked_for_is_an_error() {
        let txn = InFlight { aborts: false, ..in_flight() };
        assert_eq!(status_of(&txn, Ok(&json!([{"error": "aborted"}]))), TxnStatus::Error("aborted".into()));
    }
}
