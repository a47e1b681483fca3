//! Many peers that send a byte at a time, or read one at a time, and never end: others are served at once, memory stays
//! bounded, and SIGTERM ends the process.

mod common;

use common::{Daemon, SLUICE};
use sluice_openflow::message::stats::StatsRequest;
use sluice_openflow::{Message, Version};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine; it only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// What another client waits at most for its answer. A slow peer's own time limits are 5 s and more.
const AT_ONCE: Duration = Duration::from_secs(4);

/// The end takes 1.7 s at most, and a busy machine's delays.
const END_WITHIN: Duration = Duration::from_secs(4);

/// How long the crowd goes on: longer than clients of the control socket may be silent.
const CROWD_TIME: Duration = Duration::from_secs(5);

/// What a crowd may add to the switch's memory, KiB: of 100 OpenFlow sessions half may have a mebibyte of replies and one
/// more reply, in buffers that grow by doubling.
const CROWD_MEMORY_MAX: u64 = 512 << 10;

/// A socket that does not block.
trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

/// One that takes its time.
struct SlowPeer {
    socket: Box<dyn Socket>,
    /// What it sends, over and over; one that has nothing to send reads.
    says: Vec<u8>,
    said: usize,
    is_closed: bool,
}

impl SlowPeer {
    /// One that sends these bytes, over and over.
    fn sender(socket: impl Socket + 'static, says: &[u8]) -> Self {
        SlowPeer { socket: Box::new(socket), says: says.to_vec(), said: 0, is_closed: false }
    }

    /// One that has asked this, as often as the socket took it, and reads the answers.
    fn reader(mut socket: impl Socket + 'static, asks: &[u8]) -> Self {
        while socket.write_all(asks).is_ok() {}
        Self::sender(socket, &[])
    }

    /// One byte.
    fn go_on(&mut self) {
        let mut byte = [0];
        let result = match self.says.get(self.said % self.says.len().max(1)) {
            Some(byte) => self.socket.write(&[*byte]),
            None => self.socket.read(&mut byte),
        };
        match result {
            Ok(n) => (self.said, self.is_closed) = (self.said + n, n == 0),
            Err(e) => self.is_closed = e.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Slow peers, each of which goes on every 20 ms until this is dropped.
struct Crowd {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    bytes: Arc<AtomicUsize>,
}

impl Crowd {
    fn start(mut peers: Vec<SlowPeer>) -> Self {
        let (ends, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (told, counted) = (Arc::clone(&ends), Arc::clone(&bytes));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                peers.iter_mut().filter(|peer| !peer.is_closed).for_each(SlowPeer::go_on);
                counted.store(peers.iter().map(|peer| peer.said).sum(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Crowd { ends, thread: Some(thread), bytes }
    }

    /// What all have sent and read.
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

fn tcp(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// The first connection.
fn accept(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            return stream;
        }
        assert!(Instant::now() < deadline, "nobody connects");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port of the loopback device that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asserts that what is done is done at once.
fn at_once<T>(what: &str, done: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = done();
    assert!(began.elapsed() < AT_ONCE, "{what} took {:?}", began.elapsed());
    result
}

/// Whether a new OpenFlow client is greeted, and has the answer to an echo.
fn speaks_openflow(mut stream: impl Read + Write) -> bool {
    let hello = Message::Hello(Some(Version::V13.bit())).write(Version::V13, 1);
    let echo = Message::EchoRequest(b"are you there".to_vec()).write(Version::V13, 2);
    stream.write_all(&[hello, echo].concat()).unwrap();
    let (mut heard, mut part) = (Vec::new(), [0; 512]);
    while !heard.ends_with(b"are you there") {
        match stream.read(&mut part) {
            Ok(n) if n != 0 => heard.extend_from_slice(&part[..n]),
            _ => return false,
        }
    }
    true
}

/// What a slow OpenFlow client says: a hello that is good, then requests.
fn openflow_words() -> Vec<u8> {
    let hello = Message::Hello(Some(Version::V13.bit())).write(Version::V13, 1);
    [hello, Message::EchoRequest(vec![1; 40]).write(Version::V13, 2)].concat()
}

/// A request whose answer is long, for one who has said hello.
fn openflow_question() -> Vec<u8> {
    let question = Message::StatsRequest(StatsRequest::TableFeatures(Vec::new()), false);
    question.write(Version::V13, 3)
}

/// A client that says hello, asks for much, and then reads.
fn openflow_reader(mut socket: impl Socket + 'static) -> SlowPeer {
    socket.write_all(&Message::Hello(Some(Version::V13.bit())).write(Version::V13, 1)).unwrap();
    SlowPeer::reader(socket, &openflow_question())
}

#[test]
fn peers_of_a_byte_at_a_time_hurt_nobody() {
    let port = free_port();
    let config = format!(
        "[switch]\nmetrics = \"127.0.0.1:0\"\n[[bridge]]\nname = \"br0\"\nlisten = [\"ptcp:{port}:127.0.0.1\"]\n\
         [[bridge.port]]\nname = \"p1\"\nofport = 1\ntype = \"null\"\n"
    );
    let daemon = Daemon::start(&config);
    daemon.wait_for_log("metrics at http://");
    let log = daemon.log();
    let metrics = log.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let (controllers, management) = (format!("127.0.0.1:{port}"), daemon.dir.path().join("run/br0.mgmt"));
    let (before, control) = (daemon.resident_kib(), daemon.socket());

    let mut peers = Vec::new();
    // A listener takes 64 of an address.
    for _ in 0..25 {
        peers.push(SlowPeer::sender(unix(&management), &openflow_words()));
        peers.push(SlowPeer::sender(tcp(&controllers), &openflow_words()));
        peers.push(openflow_reader(unix(&management)));
        peers.push(openflow_reader(tcp(&controllers)));
        peers.push(SlowPeer::sender(tcp(&metrics), b"GET /metrics HTTP/1.1\r\n"));
        peers.push(SlowPeer::reader(tcp(&metrics), b"GET /metrics HTTP/1.1\r\n\r\n"));
    }
    // As many as there are places, and more. What begins a request takes ten seconds to be given up.
    for _ in 0..50 {
        peers.push(SlowPeer::sender(unix(&control), br#"{"id":0,"method":"list-commands","params":[]}"#));
        peers.push(SlowPeer::reader(unix(&control), br#"{"id":0,"method":"list-commands","params":[]}"#));
    }
    let crowd = Crowd::start(peers);
    // The control socket has no place until those that came first are late.
    let deadline = Instant::now() + PATIENCE;
    while !daemon.ctl_output(&["version"]).status.success() {
        assert!(Instant::now() < deadline, "the control socket serves nobody else");
        std::thread::sleep(Duration::from_millis(100));
    }
    let until = Instant::now() + CROWD_TIME;
    while Instant::now() < until {
        at_once("a command", || daemon.ctl(&["version"]));
        for what in ["the management socket", "a listener"] {
            let speaks = at_once(what, || match what {
                "a listener" => speaks_openflow(TcpStream::connect(&controllers).unwrap()),
                _ => speaks_openflow(UnixStream::connect(&management).unwrap()),
            });
            assert!(speaks, "{what}");
        }
        let answer = at_once("the metrics", || {
            let (mut stream, mut answer) = (TcpStream::connect(&metrics).unwrap(), String::new());
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let more = daemon.resident_kib().saturating_sub(before);
        assert!(more < CROWD_MEMORY_MAX, "{more} KiB more");
    }
    assert!(crowd.bytes() > 1000, "the crowd has sent and read {} bytes", crowd.bytes());
    let began = Instant::now();
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(began.elapsed() < END_WITHIN, "the end took {:?}", began.elapsed());
}

/// A database server that takes a request and answers a byte at a time.
#[test]
fn a_database_of_a_byte_at_a_time_holds_neither_commands_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let [database, control] = ["db.sock", "x.ctl"].map(|name| dir.path().join(name));
    let listener = UnixListener::bind(&database).unwrap();
    let mut vswitchd = Command::new(SLUICE)
        .args(["vswitchd", &format!("unix:{}", database.display()), &format!("--unixctl={}", control.display())])
        .current_dir(dir.path())
        .envs(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].map(|name| (name, dir.path())))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stream = accept(&listener);
    let reading = stream.try_clone().unwrap();
    // It asks the same all the time, in between what it never ends to say.
    let says =
        [br#"{"id":0,"method":"echo","params":[]}"#.repeat(9), br#"{"id":0,"result":["#.to_vec(), b"7,".repeat(9000)];
    let crowd = Crowd::start(vec![SlowPeer::sender(stream, &says.concat()), SlowPeer::sender(reading, &[])]);
    let until = Instant::now() + CROWD_TIME;
    let mut answers = 0;
    while Instant::now() < until {
        let output = at_once("a command", || {
            Command::new(SLUICE).args(["ctl", "-T", "60", "-t"]).arg(&control).arg("version").output().unwrap()
        });
        answers += usize::from(output.status.success());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(answers > 1 && crowd.bytes() > 50, "{answers} answers, {} bytes", crowd.bytes());
    assert!(Command::new("kill").arg(vswitchd.id().to_string()).status().unwrap().success());
    let began = Instant::now();
    while vswitchd.try_wait().unwrap().is_none() {
        if began.elapsed() > END_WITHIN {
            let _ = vswitchd.kill();
            panic!("SIGTERM does not end it");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
