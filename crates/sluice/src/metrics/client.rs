//! A client of the Prometheus endpoint: it sends the head of a request, and gets one answer.

use rustix::event::PollFlags;
use sluice_fate::{Held, Limit};
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// What a request's head may be, bytes.
const HEAD_MAX: usize = 8192;

/// How long a client may take for its request and for reading the answer, milliseconds.
const CLIENT_WITHIN_MS: u64 = 5000;

/// A client whose socket does not block.
pub struct Client<S = TcpStream> {
    stream: S,
    deadline_ms: u64,
    state: ClientState,
    _place: Held,
}

enum ClientState {
    /// What it has sent so far of the request's head.
    Asking(Vec<u8>),
    /// What is left to send of the answer.
    Answering(Vec<u8>),
    Done,
}

impl Client {
    /// A client that has just connected.
    ///
    /// # Errors
    /// If the socket cannot be made not to block.
    pub fn new(stream: TcpStream, now_ms: u64) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Client {
            stream,
            deadline_ms: now_ms + CLIENT_WITHIN_MS,
            state: ClientState::Asking(Vec::new()),
            _place: Limit::MetricsClients.hold(),
        })
    }

    /// Its socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl<S: Read + Write> Client<S> {
    /// When it is to have its answer, in the real clock's milliseconds.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Whether it has its answer, or left.
    pub fn is_done(&self) -> bool {
        matches!(self.state, ClientState::Done)
    }

    /// What it waits for.
    pub fn interest(&self) -> PollFlags {
        if matches!(self.state, ClientState::Asking(_)) { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Reads and writes as far as that does not wait. `metrics`: the text to answer with.
    pub fn go_on(&mut self, metrics: impl FnOnce() -> String) {
        let done = self.read_head().and_then(|()| {
            if let ClientState::Asking(head) = &self.state
                && is_complete(head)
            {
                self.state = ClientState::Answering(answer(first_line(head), metrics));
            }
            self.send()
        });
        // A client that is gone has its answer.
        if done.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            self.state = ClientState::Done;
        }
    }

    fn read_head(&mut self) -> Result<()> {
        let ClientState::Asking(head) = &mut self.state else { return Ok(()) };
        let mut part = [0; 512];
        while !is_complete(head) {
            match self.stream.read(&mut part) {
                // It has sent all that it will: this is its request.
                Ok(0) => head.extend_from_slice(b"\r\n\r\n"),
                Ok(n) => head.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let ClientState::Answering(left) = &mut self.state else { return Ok(()) };
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(n) => drop(left.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.state = ClientState::Done;
        Ok(())
    }
}

/// Whether a request's head is all there, or longer than any that is served.
fn is_complete(head: &[u8]) -> bool {
    head.len() >= HEAD_MAX || head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

/// A request's first line, which is all of it that counts.
fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default()
}

/// What is answered to a request whose first line this is.
fn answer(line: &[u8], metrics: impl FnOnce() -> String) -> Vec<u8> {
    let line = String::from_utf8_lossy(line);
    let (status, body) = match line.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => ("200 OK", metrics()),
        ["GET", _] => ("404 Not Found", "expected /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "expected GET /metrics\n".to_owned()),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket: what it gives at each read (`None`: nothing now), how much each write takes, and what was written.
    #[derive(Default)]
    struct Socket {
        gives: Vec<Option<Vec<u8>>>,
        takes: usize,
        written: Vec<u8>,
    }

    impl Read for Socket {
        fn read(&mut self, into: &mut [u8]) -> Result<usize> {
            if self.gives.is_empty() {
                return Ok(0);
            }
            let part = self.gives.remove(0).ok_or(ErrorKind::WouldBlock)?;
            into[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            let n = bytes.len().min(std::mem::take(&mut self.takes));
            if n == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.written.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn client(gives: &[Option<&str>]) -> Client<Socket> {
        let gives = gives.iter().map(|part| part.map(|part| part.as_bytes().to_vec())).collect();
        let stream = Socket { gives, takes: usize::MAX, written: Vec::new() };
        Client { stream, deadline_ms: 0, state: ClientState::Asking(Vec::new()), _place: Limit::MetricsClients.hold() }
    }

    #[test]
    fn a_request_may_come_in_parts() {
        let mut client = client(&[Some("GET /met"), None, Some("rics HTTP/1.1\r\n"), None, Some("\r\n")]);
        (0..2).for_each(|_| client.go_on(|| unreachable!("the request is not complete")));
        assert_eq!(client.interest(), PollFlags::IN);
        client.go_on(|| "answer".to_owned());
        assert!(client.is_done());
        assert!(client.stream.written.ends_with(b"Content-Length: 6\r\nConnection: close\r\n\r\nanswer"));
    }

    #[test]
    fn an_answer_may_be_taken_in_parts() {
        let mut client = client(&[Some("GET /metrics HTTP/1.1\r\n\r\n")]);
        client.stream.takes = 10;
        client.go_on(|| "x".repeat(100));
        assert!(!client.is_done());
        assert_eq!((client.interest(), client.stream.written.len()), (PollFlags::OUT, 10));
        client.stream.takes = usize::MAX;
        client.go_on(|| unreachable!("the text is made once"));
        assert!(client.is_done());
        assert!(client.stream.written.ends_with(&[b'x'; 100]));
    }

    #[test]
    fn a_head_without_end_is_bounded() {
        let part = "x".repeat(512);
        let parts = vec![Some(part.as_str()); 100];
        let mut client = client(&parts);
        client.go_on(String::new);
        assert!(client.is_done() && client.stream.written.starts_with(b"HTTP/1.1 405 "));
        assert_eq!(client.stream.gives.len(), 100 - HEAD_MAX / 512);
    }
}
