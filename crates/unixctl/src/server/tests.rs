use super::*;
use crate::client;
use sluice_connmgr::unix_socket::{self, SocketError, SocketMode};
use sluice_fate::Limit;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

/// Answers `echo` with its arguments, panics at `panic`.
struct Echo;

impl Commands for Echo {
    fn call(&self, name: &str, args: &[Value]) -> Result<String, String> {
        match name {
            "echo" => Ok(args.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
            "panic" => panic!("on purpose"),
            _ => Err(format!("no {name}")),
        }
    }

    fn pieces(&self, name: &str, args: &[Value]) -> Option<Result<Pieces, String>> {
        let lines = |n: usize| {
            PIECES_MADE.fetch_add(1, Ordering::SeqCst);
            assert!(n < 1000, "on purpose");
            format!("{n:7}\n").repeat(PIECE_BYTES / 8)
        };
        match name {
            "count" => {
                let last = args.first().and_then(Value::as_str)?.parse::<usize>();
                Some(last.map(|last| Box::new((0..last).map(lines)) as Pieces).map_err(|e| e.to_string()))
            }
            _ => None,
        }
    }
}

/// Pieces that `count` has made, in all tests.
static PIECES_MADE: AtomicUsize = AtomicUsize::new(0);

const PIECE_BYTES: usize = 1 << 16;

struct Bench {
    _dir: tempfile::TempDir,
    path: PathBuf,
    server: Server,
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn listening() -> Bench {
    listening_for(PATIENCE)
}

/// A server that gives a request so long to arrive.
fn listening_for(time_max: Duration) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.ctl");
    let listener = unix_socket::listen(&path, "control socket", SocketMode::Private).unwrap();
    let server = Server::start_with(listener, &path, Box::new(Echo), time_max).unwrap();
    Bench { _dir: dir, path, server }
}

/// As the switch does it.
fn listen(path: &Path) -> Result<Server, SocketError> {
    let listener = unix_socket::listen(path, "control socket", SocketMode::Private)?;
    Ok(Server::start(listener, path, Box::new(Echo)).unwrap())
}

fn ask(path: &Path, command: &str, args: &[&str]) -> Result<String, String> {
    let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
    client::transact(path, Some(PATIENCE), command, &args).unwrap()
}

/// Sends bytes and reads until the server closes.
fn abuse(path: &Path, bytes: &[u8]) -> String {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may close before it has read all of it.
    let _ = (&stream).write_all(bytes);
    let mut reply = Vec::new();
    let _ = (&stream).read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

#[test]
fn answers_end_with_a_line_feed() {
    let bench = listening();
    assert_eq!(ask(&bench.path, "echo", &["a", "b"]), Ok("a b\n".into()));
    assert_eq!(ask(&bench.path, "echo", &[]), Ok(String::new()));
    assert_eq!(ask(&bench.path, "dance", &[]), Err("no dance\n".into()));
}

#[test]
fn requests_may_follow_each_other_in_one_write() {
    let bench = listening();
    let stream = UnixStream::connect(&bench.path).unwrap();
    (&stream)
        .write_all(br#"{"id":1,"method":"echo","params":["x"]}{"id":"two","method":"echo","params":["y"]} "#)
        .unwrap();
    let mut replies = serde_json::Deserializer::from_reader(&stream).into_iter::<Value>();
    assert_eq!(replies.next().unwrap().unwrap(), serde_json::json!({"id": 1, "result": "x\n", "error": null}));
    assert_eq!(replies.next().unwrap().unwrap(), serde_json::json!({"id": "two", "result": "y\n", "error": null}));
}

#[test]
fn what_is_no_request_gets_an_error_and_the_server_goes_on() {
    let bench = listening();
    let deep = "[".repeat(100_000);
    let cases: &[(&[u8], &str)] = &[
        (b"hello\n", "not a JSON-RPC request: expected value at line 1 column 1"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a JSON-RPC request"),
        (b"\xff\xfe\xfd{}", "not a JSON-RPC request"),
        (b"17 ", "expected an object"),
        (b"[]", "expected an object"),
        (b"{}", "expected \\\"method\\\" to be a string"),
        (br#"{"method":1,"params":[],"id":0}"#, "expected \\\"method\\\" to be a string"),
        (br#"{"method":"echo","params":"x","id":0}"#, "expected \\\"params\\\" to be an array"),
        (br#"{"method":"echo","params":[],"id":null}"#, "expected an \\\"id\\\""),
        (deep.as_bytes(), "recursion limit"),
        (br#"{"method":"panic","params":[],"id":0}"#, "failed by a bug"),
    ];
    for (bytes, error) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let bytes = bytes.to_vec();
        let path = bench.path.clone();
        // The one whose request was well formed keeps its connection: leave after the first reply.
        let reply =
            if shown.contains("panic") { format!("{:?}", ask(&path, "panic", &[])) } else { abuse(&path, &bytes) };
        assert!(reply.contains(error), "{shown}: {reply}");
        assert_eq!(ask(&bench.path, "echo", &["still", "here"]), Ok("still here\n".into()));
    }
}

/// Clients that ask for a long reply and do not read have a few pieces of it made; one that reads gets all of it. A piece
/// that fails ends its connection only.
#[test]
fn a_long_reply_is_made_as_its_client_reads() {
    let bench = listening();
    let request = br#"{"id":1,"method":"count","params":["900"]}"#;
    let stalled: Vec<_> = (0..8).map(|_| UnixStream::connect(&bench.path).unwrap()).collect();
    stalled.iter().for_each(|mut stream| stream.write_all(request).unwrap());
    let deadline = Instant::now() + PATIENCE;
    let mut before = usize::MAX;
    // Until no more are made: what a socket holds is some hundred kilobytes.
    while before != PIECES_MADE.load(Ordering::SeqCst) || before == 0 {
        assert!(Instant::now() < deadline);
        before = PIECES_MADE.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(before < 8 * 64, "{before} pieces for clients that do not read");
    let text = ask(&bench.path, "count", &["900"]).unwrap();
    assert_eq!((text.len(), text.lines().last()), (900 * PIECE_BYTES, Some("    899")));
    assert_eq!(ask(&bench.path, "count", &["x"]), Err("invalid digit found in string\n".into()));
    let cut = abuse(&bench.path, br#"{"id":1,"method":"count","params":["2000"]}"#);
    assert!(cut.len() > 1000 * PIECE_BYTES && !cut.ends_with('}'), "{} bytes", cut.len());
    assert_eq!(ask(&bench.path, "echo", &["on"]), Ok("on\n".into()));
}

#[test]
fn a_request_that_does_not_end_is_given_up() {
    let (bench, before) = (listening_for(Duration::from_millis(200)), Limit::ControlRequests.count());
    assert!(abuse(&bench.path, br#"{"method":"echo","#).contains("took longer than 0.2 s"));
    assert!(Limit::ControlRequests.count() > before);
}

#[test]
fn a_request_that_nests_too_deeply_is_refused() {
    let (bench, before) = (listening(), Limit::ControlRequests.count());
    let deep = format!(r#"{{"id":0,"method":"echo","params":{}"#, "[".repeat(1 << 20));
    assert!(abuse(&bench.path, deep.as_bytes()).contains("recursion limit"));
    assert!(Limit::ControlRequests.count() > before);
}

#[test]
fn an_endless_request_is_cut_off() {
    let bench = listening();
    let mut endless = br#"{"id":0,"method":"echo","params":[""#.to_vec();
    endless.resize(5 << 20, b'x');
    let stream = UnixStream::connect(&bench.path).unwrap();
    let writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || (&writing).write_all(&endless).is_err());
    let mut reply = String::new();
    let _ = (&stream).read_to_string(&mut reply);
    drop(stream);
    let _ = writer.join();
    assert!(reply.is_empty() || reply.contains("longer than 4194304 bytes"), "{reply}");
    assert_eq!(ask(&bench.path, "echo", &["on"]), Ok("on\n".into()));
}

#[test]
fn too_many_connections_are_refused_and_later_ones_served() {
    let bench = listening();
    let idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&bench.path).unwrap()).collect();
    let before = Limit::ControlConnections.count();
    // Accepted in order, so the next one finds all of them open, and too young to be late.
    assert!(abuse(&bench.path, b"").contains("more than 64 control connections"));
    assert!(Limit::ControlConnections.count() > before);
    drop(idle);
    let deadline = Instant::now() + PATIENCE;
    while bench.server.state.connections.count() != 0 {
        assert!(Instant::now() < deadline, "connections linger");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ask(&bench.path, "echo", &["again"]), Ok("again\n".into()));
}

/// A client that has connected and says nothing, or takes its time to say it, keeps nobody out; a command that runs goes
/// on.
#[test]
fn clients_that_say_nothing_give_their_places_to_others() {
    let bench = listening();
    let idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| UnixStream::connect(&bench.path).unwrap()).collect();
    for mut stream in &idle {
        stream.write_all(b"{").unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    // The first answer comes when the idle ones have been there for a second.
    while client::transact(&bench.path, Some(PATIENCE), "echo", &["on".into()]).ok() != Some(Ok("on\n".into())) {
        assert!(Instant::now() < deadline, "nobody else is served");
        std::thread::sleep(Duration::from_millis(50));
    }
    for _ in 0..3 * CONNECTIONS_MAX {
        assert_eq!(ask(&bench.path, "echo", &["on"]), Ok("on\n".into()));
    }
    assert!(bench.server.state.connections.count() <= CONNECTIONS_MAX);
    // As soon as others had left, there was room, and nobody else had to go.
    let closed = idle.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        matches!((&mut &**stream).read(&mut [0]), Ok(0))
    });
    assert!((1..CONNECTIONS_MAX).contains(&closed.count()));
}

#[test]
fn the_socket_is_private_and_goes_with_the_server() {
    let bench = listening();
    assert_eq!(std::fs::metadata(&bench.path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(bench.server);
    assert!(!bench.path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_respected() {
    let bench = listening();
    let error = listen(&bench.path).err().unwrap().to_string();
    assert!(error.contains("another switch listens on it"), "{error}");

    let stale = bench.path.with_extension("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let server = listen(&stale).unwrap();
    assert_eq!(ask(&stale, "echo", &["new"]), Ok("new\n".into()));
    drop(server);

    std::fs::write(&stale, "a file").unwrap();
    let error = listen(&stale).err().unwrap().to_string();
    assert!(error.contains("something else of that name"), "{error}");
}
