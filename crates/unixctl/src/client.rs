//! The client, which does what `ovs-appctl -t SOCKET` does.

use serde_json::{Value, json};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest reply in front of bytes that follow it.
const REPLY_LINE_MAX: usize = 1 << 16;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket is not there, or no process listens on it.
    #[error("cannot connect to \"{path}\": {cause}; is the switch running?")]
    Connect {
        /// The socket.
        path: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The connection broke.
    #[error("{path}: {cause}")]
    Transaction {
        /// The socket.
        path: String,
        /// What happened.
        cause: io::Error,
    },
}

/// Runs one command on the switch at `path`: its reply, or the error it answered with.
///
/// # Errors
/// If it could not be asked.
pub fn transact(
    path: &Path,
    timeout: Option<Duration>,
    command: &str,
    args: &[String],
) -> Result<Result<String, String>, ClientError> {
    let name = || path.display().to_string();
    let stream = UnixStream::connect(path).map_err(|cause| ClientError::Connect { path: name(), cause })?;
    exchange(&stream, timeout, command, args).map_err(|cause| {
        let cause = match cause.kind() {
            io::ErrorKind::WouldBlock => io::Error::other("no answer within the given time"),
            _ => cause,
        };
        ClientError::Transaction { path: name(), cause }
    })
}

/// Runs a command whose reply is followed by bytes: the connection that they come on, or the error of the switch.
///
/// # Errors
/// If it could not be asked.
pub fn follow(path: &Path, command: &str, args: &[String]) -> Result<Result<UnixStream, String>, ClientError> {
    let name = || path.display().to_string();
    let stream = UnixStream::connect(path).map_err(|cause| ClientError::Connect { path: name(), cause })?;
    let broken = |cause| ClientError::Transaction { path: name(), cause };
    let request = json!({"id": 0, "method": command, "params": args});
    (&stream).write_all(request.to_string().as_bytes()).map_err(broken)?;
    // Byte by byte: what follows the reply's line is not for the reader of replies.
    let (mut line, mut byte) = (Vec::new(), [0]);
    while (&stream).read(&mut byte).map_err(broken)? == 1 && byte != *b"\n" && line.len() < REPLY_LINE_MAX {
        line.push(byte[0]);
        // An error ends with its value, and no line feed follows it.
        if byte == *b"}"
            && let Ok(reply) = serde_json::from_slice::<Value>(&line)
            && let Value::String(error) = &reply["error"]
        {
            return Ok(Err(error.clone()));
        }
    }
    match serde_json::from_slice::<Value>(&line) {
        Ok(reply) if reply["result"].is_string() => Ok(Ok(stream)),
        _ => Err(broken(io::Error::other("the switch closed the connection without an answer"))),
    }
}

fn exchange(
    stream: &UnixStream,
    timeout: Option<Duration>,
    command: &str,
    args: &[String],
) -> io::Result<Result<String, String>> {
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)?;
    let request = json!({"id": 0, "method": command, "params": args});
    (&*stream).write_all(request.to_string().as_bytes())?;
    let mut replies = serde_json::Deserializer::from_reader(BufReader::new(stream)).into_iter::<Value>();
    let reply =
        replies.next().ok_or_else(|| io::Error::other("the switch closed the connection without an answer"))??;
    match (&reply["result"], &reply["error"]) {
        (Value::String(text), Value::Null) => Ok(Ok(text.clone())),
        (Value::Null, Value::String(text)) => Ok(Err(text.clone())),
        _ => Err(io::Error::other(format!("not an answer: {reply}"))),
    }
}
