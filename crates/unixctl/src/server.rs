//! The server: a thread that accepts, a thread for each connection.

mod connections;

pub use self::connections::CONNECTIONS_MAX;

use self::connections::{Connection, Connections, Phase};
use crate::reply::{Pieces, reply, write_pieces, write_reply};
use crate::request::{REQUEST_TIME_MAX, Requests};
use serde_json::Value;
use sluice_clock::heartbeat::Heartbeat;
use std::io::{self, BufWriter, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The connection of a client that does not read its reply ends after this time.
const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the end waits for replies under way.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// What answers the requests. Called from several threads.
pub trait Commands: Send + Sync + 'static {
    /// Runs a command: the text of the reply, or of the error.
    ///
    /// # Errors
    /// With the text the client shows.
    fn call(&self, name: &str, args: &[Value]) -> Result<String, String>;

    /// A command whose reply may be long: what makes it, a piece at a time, while earlier pieces are sent. `None` if `name`
    /// is no such command.
    ///
    /// It holds no lock between two pieces: a client may take its time to read them.
    fn pieces(&self, _name: &str, _args: &[Value]) -> Option<Result<Pieces, String>> {
        None
    }

    /// A command whose reply is followed by bytes on the same connection, which then ends: what writes them. `None` if
    /// `name` is no such command. The reply is empty, and a line feed follows it.
    fn stream(&self, _name: &str, _args: &[Value]) -> Option<Result<Streamed, String>> {
        None
    }
}

/// Writes the bytes that follow a reply. Called in a thread of its own, and ends when the client has gone.
pub type Streamed = Box<dyn FnOnce(&UnixStream)>;

/// A control socket that listens. Dropping it ends it and removes the socket.
pub struct Server {
    path: PathBuf,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

struct State {
    commands: Box<dyn Commands>,
    ending: AtomicBool,
    connections: Connections,
    /// Requests whose reply is not sent yet.
    in_flight: AtomicUsize,
    request_time_max: Duration,
}

impl Server {
    /// Serves a socket that listens at `path`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(listener: UnixListener, path: &Path, commands: Box<dyn Commands>) -> io::Result<Self> {
        Self::start_with(listener, path, commands, REQUEST_TIME_MAX)
    }

    fn start_with(
        listener: UnixListener,
        path: &Path,
        commands: Box<dyn Commands>,
        request_time_max: Duration,
    ) -> io::Result<Self> {
        let state = Arc::new(State {
            commands,
            ending: AtomicBool::new(false),
            connections: Connections::default(),
            in_flight: AtomicUsize::new(0),
            request_time_max,
        });
        let shared = Arc::clone(&state);
        let acceptor = std::thread::Builder::new().name("ctl".into()).spawn(move || accept(&listener, &shared))?;
        Ok(Server { path: path.into(), state, acceptor: Some(acceptor) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::SeqCst);
        // This connection wakes the acceptor.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(acceptor) = self.acceptor.take()
            && woken
        {
            let _ = acceptor.join();
        }
        let deadline = Instant::now() + FAREWELL_TIME_MAX;
        while self.state.in_flight.load(Ordering::SeqCst) != 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept(listener: &UnixListener, state: &Arc<State>) {
    let heartbeat = Heartbeat::of("ctl");
    loop {
        let accepted = listener.accept();
        let _busy = heartbeat.begin("accepting a connection");
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!("control socket: accept failed: {e}");
                // Out of descriptors, most likely: some will be closed.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if state.ending.load(Ordering::SeqCst) {
            return;
        }
        if let Err(e) = stream.set_write_timeout(Some(REPLY_TIME_MAX)) {
            tracing::warn!("control connection: {e}");
            continue;
        }
        let connection = match state.connections.admit(stream) {
            Ok(connection) => connection,
            Err(stream) => {
                refuse(&stream, &format!("more than {CONNECTIONS_MAX} control connections; try again"));
                continue;
            }
        };
        let (shared, served) = (Arc::clone(state), Arc::clone(&connection));
        let spawned = std::thread::Builder::new().name("ctl-conn".into()).spawn(move || {
            serve(&served, &shared);
            shared.connections.remove(&served);
        });
        if let Err(e) = spawned {
            state.connections.remove(&connection);
            tracing::warn!("control connection: no thread for it: {e}");
        }
    }
}

/// Says why, on a connection that is then closed.
fn refuse(stream: &UnixStream, why: &str) {
    let _ = (&*stream).write_all(reply(&Value::Null, &Err(why.into())).as_bytes());
}

/// What a command answers.
enum Answer {
    Text(String),
    Pieces(Pieces),
}

/// Sends an answer, and tells it in the log.
fn send(stream: &UnixStream, id: &Value, answer: Result<Answer, String>) -> io::Result<()> {
    let log = |kind: &str, text: &str| {
        // The log's copy of a text may be long.
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = Value::from(text);
            tracing::debug!("replying with {kind}, id={id}: {text}");
        }
    };
    let mut stream = BufWriter::new(stream);
    let text = match answer {
        Ok(Answer::Pieces(pieces)) => {
            tracing::debug!("replying with success, id={id}, in pieces");
            // With a panic, which is our bug, the text ends in the middle, and the connection with it.
            let written = catch_unwind(AssertUnwindSafe(|| write_pieces(&mut stream, id, pieces)));
            written.unwrap_or_else(|_| Err(io::Error::other("a bug of the switch ended the reply")))?;
            return stream.flush();
        }
        Ok(Answer::Text(text)) => Ok(text),
        Err(text) => Err(text),
    };
    text.as_ref().map_or_else(|error| log("error", error), |text| log("success", text));
    write_reply(&mut stream, id, &text)?;
    stream.flush()
}

/// Answers requests until the client leaves or errs.
fn serve(connection: &Connection, state: &State) {
    let stream = &connection.stream;
    let reading = match stream.try_clone() {
        Ok(reading) => reading,
        Err(e) => return tracing::warn!("control connection: {e}"),
    };
    for request in Requests::new(reading, state.request_time_max) {
        let request = match request {
            Ok(request) => request,
            Err(why) => {
                tracing::warn!("control connection closed: {why}");
                return refuse(stream, &why);
            }
        };
        connection.begin(Phase::Running);
        state.in_flight.fetch_add(1, Ordering::SeqCst);
        let params = Value::Array(request.params);
        tracing::debug!("received request {}{params}, id={}", request.method, request.id);
        let params = params.as_array().map_or(&[][..], Vec::as_slice);
        let mut streamed = None;
        // A panic is our bug; it must not end the switch.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            if let Some(begun) = state.commands.pieces(&request.method, params) {
                return begun.map(Answer::Pieces);
            }
            match state.commands.stream(&request.method, params) {
                Some(begun) => begun.map(|stream| {
                    streamed = Some(stream);
                    Answer::Text(String::new())
                }),
                None => state.commands.call(&request.method, params).map(Answer::Text),
            }
        }))
        .unwrap_or_else(|_| {
            Err(format!("\"{}\" failed by a bug of the switch; its log has the details", request.method))
        });
        connection.begin(Phase::Sending);
        let sent = send(stream, &request.id, answer);
        // What a stream writes is captured meanwhile; the number of captures has its own bound.
        connection.begin(if streamed.is_some() { Phase::Running } else { Phase::Receiving });
        state.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Err(e) = sent {
            return tracing::debug!("control connection closed: {e}");
        }
        if let Some(write_rest) = streamed {
            if (&*stream).write_all(b"\n").is_ok() {
                let _ = catch_unwind(AssertUnwindSafe(|| write_rest(stream)));
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests;
