//! JSON-RPC 1.0 messages. Source: RFC 7047 section 4; OVS lib/jsonrpc.c.

use crate::FrameError;
use serde_json::{Value, json};

/// A message. Each side may send all four.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Asks for a reply with the same id.
    Request {
        /// The method.
        method: String,
        /// Its parameters: an array.
        params: Value,
        /// Any JSON value but null; this client uses integers.
        id: Value,
    },
    /// Asks for nothing.
    Notification {
        /// The method.
        method: String,
        /// Its parameters: an array.
        params: Value,
    },
    /// What a request led to.
    Reply {
        /// The result.
        result: Value,
        /// The request's id.
        id: Value,
    },
    /// Why a request led to nothing.
    Error {
        /// The error: mostly a string, or an object with `error` and `details`.
        error: Value,
        /// The request's id.
        id: Value,
    },
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// If the object is none of the four.
    pub fn from_json(json: Value) -> Result<Message, FrameError> {
        let Value::Object(mut members) = json else { return Err(FrameError::NotMessage("not an object")) };
        let mut take = |key: &str| members.get_mut(key).map_or(Value::Null, Value::take);
        let (method, params, result, error, id) =
            (take("method"), take("params"), take("result"), take("error"), take("id"));
        match (method, params, result, error, id) {
            (Value::String(method), params @ Value::Array(_), Value::Null, Value::Null, Value::Null) => {
                Ok(Message::Notification { method, params })
            }
            (Value::String(method), params @ Value::Array(_), Value::Null, Value::Null, id) => {
                Ok(Message::Request { method, params, id })
            }
            (Value::Null, Value::Null, _, _, Value::Null) => Err(FrameError::NotMessage("neither method nor id")),
            (Value::Null, Value::Null, result, Value::Null, id) => Ok(Message::Reply { result, id }),
            (Value::Null, Value::Null, Value::Null, error, id) => Ok(Message::Error { error, id }),
            (Value::String(_), _, _, _, _) => Err(FrameError::NotMessage("parameters are not an array")),
            _ => Err(FrameError::NotMessage("members of several kinds of messages")),
        }
    }

    /// The message as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Message::Request { method, params, id } => json!({"method": method, "params": params, "id": id}),
            Message::Notification { method, params } => json!({"method": method, "params": params, "id": null}),
            Message::Reply { result, id } => json!({"result": result, "error": null, "id": id}),
            Message::Error { error, id } => json!({"result": null, "error": error, "id": id}),
        }
    }

    /// The message's bytes on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    /// The reply to an `echo` of the peer: the same parameters.
    pub(crate) fn echo_reply(params: Value, id: Value) -> Message {
        Message::Reply { result: params, id }
    }

    /// An `echo` that asks whether the peer is there. Source: OVS lib/jsonrpc.c, `jsonrpc_create_request("echo")`.
    pub(crate) fn probe() -> Message {
        Message::Request { method: "echo".into(), params: json!([]), id: json!("echo") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let messages = [
            Message::probe(),
            Message::Notification { method: "update".into(), params: json!([null, {}]) },
            Message::echo_reply(json!([]), json!(3)),
            Message::Error { error: json!("unknown method"), id: json!("x") },
        ];
        for message in messages {
            let json = serde_json::from_slice(&message.to_bytes()).unwrap();
            assert_eq!(Message::from_json(json), Ok(message));
        }
    }

    #[test]
    fn other_objects_are_no_messages() {
        let others = [
            json!([]),
            json!({}),
            json!({"method": 5, "params": [], "id": 1}),
            json!({"method": "echo", "params": {}, "id": 1}),
            json!({"method": "echo", "params": [], "result": 1, "id": 1}),
            json!({"result": 1, "error": 2, "id": 1}),
            json!({"result": 1, "error": null}),
        ];
        for json in others {
            assert!(Message::from_json(json.clone()).is_err(), "{json}");
        }
    }
}
