//! The Prometheus endpoint (`metrics` in the configuration; off unless given): `GET /metrics` over HTTP.
//!
//! One request at a time, on a thread of its own; a client that is slow or sends too much is closed. Counters are read
//! when asked, PMDs notice nothing.

mod exposition;

use anyhow::{Context, Result};
use exposition::Exposition;
use sluice_vswitch::Switch;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a request's head may be, bytes.
const HEAD_MAX: usize = 8192;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The endpoint; it closes when dropped.
pub struct Endpoint {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens at `address`.
    ///
    /// # Errors
    /// If it cannot.
    pub fn listen(address: SocketAddr, switch: Arc<Switch>) -> Result<Endpoint> {
        let listener = TcpListener::bind(address).with_context(|| format!("metrics = \"{address}\": cannot listen"))?;
        let address = listener.local_addr().context("metrics")?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let exposition = Exposition::of(switch);
        let serve = move || {
            for stream in listener.incoming() {
                if told.load(Relaxed) {
                    return;
                }
                // A client that is gone has its answer.
                let _ = stream.and_then(|stream| answer(stream, || exposition.text()));
            }
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(serve).context("metrics thread")?;
        Ok(Endpoint { address, ends, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // Wakes the thread, which looks whether to end.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, metrics: impl FnOnce() -> String) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut stream)?;
    let (status, body) = match head.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => ("200 OK", metrics()),
        ["GET", _] => ("404 Not Found", "expected /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "expected GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// A request's first line; what follows, up to the empty line, is read and not needed.
fn read_head(stream: &mut impl Read) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut part = [0; 512];
    while head.len() < HEAD_MAX && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    let line = head.split(|b| *b == b'\r' || *b == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_what_counts() {
        let head = |text: &str| read_head(&mut text.as_bytes()).unwrap();
        assert_eq!(head("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "GET /metrics HTTP/1.1");
        assert_eq!(head(""), "");
        assert_eq!(head(&"x".repeat(100_000)).len(), HEAD_MAX);
    }
}
