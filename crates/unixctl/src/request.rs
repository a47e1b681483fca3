//! Reading requests: one JSON value after the other, each bounded in length and in time.

use serde_json::Value;
use sluice_fate::Limit;
use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest request. A flow may be long, a file of flows is named and not sent.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// From a request's first byte to its last.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// A request with the shape that JSON-RPC 1.0 demands.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// Comes back with the reply.
    pub id: Value,
    /// The command.
    pub method: String,
    /// Its arguments, as they came.
    pub params: Vec<Value>,
}

/// The requests of a connection, in order. After an error the connection has to end.
pub struct Requests {
    limits: Rc<Limits>,
    values: serde_json::StreamDeserializer<'static, serde_json::de::IoRead<BufReader<Bounded>>, Value>,
}

/// What the request under way may still use.
struct Limits {
    bytes_left: Cell<usize>,
    time_max: Duration,
    /// Set by the request's first byte.
    deadline: Cell<Option<Instant>>,
}

/// A socket that keeps to the limits.
struct Bounded {
    stream: UnixStream,
    limits: Rc<Limits>,
}

impl Requests {
    /// Reads from `stream`, giving each request `time_max`.
    pub fn new(stream: UnixStream, time_max: Duration) -> Self {
        let limits = Rc::new(Limits { bytes_left: Cell::new(REQUEST_BYTES_MAX), time_max, deadline: Cell::new(None) });
        let bounded = BufReader::new(Bounded { stream, limits: Rc::clone(&limits) });
        Requests { limits, values: serde_json::Deserializer::from_reader(bounded).into_iter() }
    }
}

impl Iterator for Requests {
    type Item = Result<Request, String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.limits.bytes_left.set(REQUEST_BYTES_MAX);
        self.limits.deadline.set(None);
        match self.values.next()? {
            Ok(value) => Some(Request::of_json(value)),
            Err(e) if e.is_io() => Some(Err(io::Error::from(e).to_string())),
            Err(e) => {
                let text = format!("not a JSON-RPC request: {e}");
                if text.contains("recursion limit") {
                    Limit::ControlRequests.hit();
                }
                Some(Err(text))
            }
        }
    }
}

impl Request {
    fn of_json(value: Value) -> Result<Self, String> {
        let Value::Object(mut members) = value else {
            return Err("not a JSON-RPC request: expected an object with method, params and id".into());
        };
        let method = match members.remove("method") {
            Some(Value::String(method)) => method,
            _ => return Err("not a JSON-RPC request: expected \"method\" to be a string".into()),
        };
        let params = match members.remove("params") {
            Some(Value::Array(params)) => params,
            _ => return Err("not a JSON-RPC request: expected \"params\" to be an array".into()),
        };
        match members.remove("id") {
            None | Some(Value::Null) => Err("not a JSON-RPC request: expected an \"id\"".into()),
            Some(id) => Ok(Request { id, method, params }),
        }
    }
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.limits.bytes_left.get();
        if left == 0 {
            Limit::ControlRequests.hit();
            return Err(io::Error::other(format!("request is longer than {REQUEST_BYTES_MAX} bytes")));
        }
        let slow = || {
            Limit::ControlRequests.hit();
            io::Error::other(format!("request took longer than {} s to arrive", self.limits.time_max.as_secs_f32()))
        };
        let patience = match self.limits.deadline.get() {
            Some(deadline) => {
                Some(deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()).ok_or_else(slow)?)
            }
            None => None,
        };
        self.stream.set_read_timeout(patience)?;
        let wanted = buf.len().min(left);
        let n = loop {
            match self.stream.read(&mut buf[..wanted]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(slow()),
                other => break other?,
            }
        };
        self.limits.bytes_left.set(left - n);
        // White space between requests does not start the next one's clock.
        if self.limits.deadline.get().is_none() && !buf[..n].trim_ascii().is_empty() {
            self.limits.deadline.set(Some(Instant::now() + self.limits.time_max));
        }
        Ok(n)
    }
}
