//! A controller that says anything: the bytes of a connection, in pieces.

use sluice_openflow::{Event, Message, Peer, Session, Version, bundled};

/// A whole message's worth of output that was never read is thrown away.
const OUTPUT_MAX: usize = 1 << 20;

/// The first byte chooses the version and the size of the pieces; what follows is what the controller says after its
/// hello. What is read must be writable, and readable again.
pub fn openflow(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let version = Version::SPOKEN[usize::from(choice) % Version::SPOKEN.len()];
    let piece = 1 + usize::from(choice) * 16;
    let mut session = Session::new(Peer::Controller, Version::all());
    session.push(&Message::Hello(Some(version.bit())).write(version, 1));
    assert_eq!(session.next_event(), Some(Event::Ready(version)));
    for bytes in data.chunks(piece) {
        if session.free_space() < bytes.len() {
            break;
        }
        session.push(bytes);
        while let Some(event) = session.next_event() {
            match event {
                Event::Request(request, message) => {
                    let written = message.write(version, request.xid);
                    let _ = Message::read(&written, session.table_in_command());
                    session.reply(&request, &message);
                }
                Event::Commit(_, commit) => drop(bundled(&commit.messages, session.table_in_command()).count()),
                Event::Ready(_) | Event::Role(..) | Event::Refused(_) | Event::BadVersion(_) => {}
            }
            if session.output().len() > OUTPUT_MAX {
                session.output().clear();
            }
        }
    }
}
