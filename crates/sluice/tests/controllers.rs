//! A controller that the switch connects to: how many packets it gets, and who listens to it.

mod common;

use common::Daemon;
use sluice_openflow::{Framer, Message, Version};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longer than anything here takes on a busy machine; it only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// One end of an OpenFlow connection.
struct End<S> {
    stream: S,
    framer: Framer,
}

impl<S: Read + Write> End<S> {
    fn say(&mut self, message: &Message, xid: u32) {
        self.stream.write_all(&message.write(Version::V13, xid)).unwrap();
    }

    fn hear(&mut self) -> (u32, Message) {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.framer.next_message().unwrap() {
                let (_, xid, message) = Message::read(message, false).unwrap();
                return (xid, message);
            }
            let n = self.stream.read(&mut buffer).unwrap();
            assert!(n != 0, "the switch closed the connection");
            self.framer.push(&buffer[..n]);
        }
    }

    /// Says hello and hears the other's.
    fn greet(stream: S) -> Self {
        let mut end = End { stream, framer: Framer::default() };
        end.say(&Message::Hello(Some(Version::V13.bit())), 1);
        assert!(matches!(end.hear(), (_, Message::Hello(_))));
        end
    }

    /// Asks something; the answer and how many packets came before it.
    fn ask(&mut self, message: &Message) -> (Message, usize) {
        self.say(message, 77);
        let mut packets = 0;
        loop {
            match self.hear() {
                (77, answer) => return (answer, packets),
                (_, Message::PacketIn(_)) => packets += 1,
                _ => {}
            }
        }
    }
}

/// A switch whose bridge has a controller, and the controller's end.
fn switch(more: &str, ports: &str) -> (Daemon, End<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let bridge = format!("[[bridge]]\nname = \"br0\"\ncontrollers = [\"tcp:{target}\"]\n{more}");
    let daemon = Daemon::start(&format!("{bridge}{ports}"));
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (daemon, End::greet(stream))
}

#[test]
fn a_controller_gets_no_more_packets_than_its_limit() {
    let limit = "controller-rate-limit = 1\ncontroller-burst-limit = 7\n";
    let (daemon, mut controller) = switch(limit, &common::port("p1", 1, "null", ""));
    assert!(matches!(controller.ask(&Message::BarrierRequest), (Message::BarrierReply, 0)));
    daemon.ctl(&["bridge/add-flow", "br0", "in_port=2,actions=controller"]);
    daemon.ctl(&["bridge/add-port", "br0", "gen", "ofport=2", "type=generator", "count=1000"]);
    // Every one of them has met the rule.
    daemon.wait_for(&["bridge/dump-flows", "br0"], |flows| flows.contains("n_packets=1000,"));
    let mut packets = 0;
    while packets < 7 {
        let (answer, more) = controller.ask(&Message::BarrierRequest);
        assert_eq!(answer, Message::BarrierReply);
        packets += more;
    }
    // One a second since then: a thousand would take a quarter of an hour.
    assert!(packets < 1000, "{packets} packets came");
}

#[test]
fn who_snoops_hears_both_sides_in_order() {
    let (daemon, mut controller) = switch("", &common::port("p1", 1, "null", ""));
    let path = daemon.dir.path().join("run/br0.snoop");
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut snooper = End::greet(stream);
    // What was said before it came it does not hear; it has come when it hears something.
    snooper.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 4096];
    let heard = std::iter::repeat_with(|| {
        assert_eq!(controller.ask(&Message::EchoRequest(vec![1])).0, Message::EchoReply(vec![1]));
        snooper.stream.read(&mut buffer).unwrap_or(0)
    });
    let n = heard.take(600).find(|n| *n != 0).expect("it hears nothing");
    snooper.framer.push(&buffer[..n]);
    snooper.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    controller.say(&Message::FeaturesRequest, 5);
    controller.say(&Message::BarrierReply, 6);
    controller.say(&Message::BarrierRequest, 7);
    let said: Vec<_> = std::iter::repeat_with(|| snooper.hear())
        .filter(|(_, m)| !matches!(m, Message::EchoRequest(_) | Message::EchoReply(_)))
        .take(6)
        .collect();
    use Message::{BarrierReply, BarrierRequest, Error, FeaturesReply, FeaturesRequest};
    assert!(
        matches!(
            &said[..],
            [
                (5, FeaturesRequest),
                (5, FeaturesReply(_)),
                (6, BarrierReply),
                (6, Error(..)),
                (7, BarrierRequest),
                (7, BarrierReply)
            ]
        ),
        "{said:?}"
    );
    assert_eq!(daemon.signal("TERM").code, Some(0));
    assert!(!path.exists(), "the socket was left behind");
}
