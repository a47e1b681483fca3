//! The connections that are open, and which of them gives its place to the next.
//!
//! A client may send a byte now and then, or read one, forever. Such a client keeps its place while nobody else needs
//! it. When all places are taken, the next client gets that of the one which has kept the switch waiting for longest: first
//! of those whose requests do not come, then of those that do not take their replies. While a command runs, its client
//! keeps its place. What counts is the time since the client connected, over all its requests: who sends each of them just
//! in time holds a place as much as who sends none.

use sluice_fate::{Held, Limit};
use std::cmp::Reverse;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections served at the same time.
pub const CONNECTIONS_MAX: usize = 64;

/// A client sends its request when it has connected. One whose requests kept the switch waiting for this time may lose its
/// place.
const REQUEST_DUE: Duration = Duration::from_secs(1);

/// A client whose replies took this time to send may lose its place.
const REPLY_DUE: Duration = Duration::from_secs(10);

/// The connections that are open.
#[derive(Default)]
pub struct Connections(Mutex<Vec<Arc<Connection>>>);

/// A connection.
pub struct Connection {
    /// Its socket.
    pub stream: UnixStream,
    times: Mutex<Times>,
    _held: Held,
}

/// How long a connection was in each phase.
struct Times {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// Behind it, by phase: the time until then.
    before: [Duration; 3],
}

/// What goes on on a connection; those that give way first stand first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The next request has not come, or a part of it.
    Receiving,
    /// A reply is sent.
    Sending,
    /// A command runs.
    Running,
}

impl Connections {
    /// A place for a client that has just connected; the client itself if there is none.
    ///
    /// # Errors
    /// If all places are taken by clients that have done what is due from them.
    pub fn admit(&self, stream: UnixStream) -> Result<Arc<Connection>, UnixStream> {
        let mut open = self.open();
        let now = Instant::now();
        if open.len() >= CONNECTIONS_MAX {
            Limit::ControlConnections.hit();
            let late = open.iter().enumerate().filter_map(|(at, connection)| Some((connection.lateness(now)?, at)));
            let Some((_, at)) = late.max() else { return Err(stream) };
            // Its thread reads the end of the connection, or cannot write, and ends. The socket may be closed already.
            let _ = open.swap_remove(at).stream.shutdown(Shutdown::Both);
        }
        let times = Times { phase: Phase::Receiving, since: now, before: [Duration::ZERO; 3] };
        let times = Mutex::new(times);
        let connection = Arc::new(Connection { stream, times, _held: Limit::ControlConnections.hold() });
        open.push(Arc::clone(&connection));
        Ok(connection)
    }

    /// Frees the place of a connection that has ended, if it still has one.
    pub fn remove(&self, connection: &Arc<Connection>) {
        self.open().retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open().len()
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Notes that a phase begins.
    pub fn begin(&self, phase: Phase) {
        let (mut times, now) = (self.times(), Instant::now());
        let ended = times.phase as usize;
        times.before[ended] = times.total(now);
        (times.phase, times.since) = (phase, now);
    }

    /// How long the client has kept the switch waiting in the phase it is in, behind the phase, if that is long. The
    /// greatest gives way first.
    fn lateness(&self, now: Instant) -> Option<(Reverse<Phase>, Duration)> {
        let times = self.times();
        let due = match times.phase {
            Phase::Receiving => REQUEST_DUE,
            Phase::Sending => REPLY_DUE,
            Phase::Running => return None,
        };
        let waited = times.total(now);
        (waited >= due).then_some((Reverse(times.phase), waited))
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    /// How long the connection was in the phase it is in, all times together.
    fn total(&self, now: Instant) -> Duration {
        self.before[self.phase as usize].saturating_add(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A client, and its connection if it got a place.
    fn connect(connections: &Connections) -> (UnixStream, Option<Arc<Connection>>) {
        let (client, server) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        (client, connections.admit(server).ok())
    }

    fn is_closed(client: &UnixStream) -> bool {
        matches!((&*client).read(&mut [0]), Ok(0))
    }

    /// Moves the beginning of its phase into the past.
    fn age(connection: &Option<Arc<Connection>>, seconds: u64) {
        let connection = connection.as_ref().unwrap();
        connection.times().since -= Duration::from_secs(seconds);
    }

    #[test]
    fn the_place_is_that_of_the_client_which_is_late_for_longest() {
        let connections = Connections::default();
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&connections)).collect();
        assert!(connect(&connections).1.is_none(), "all have just come");
        let [running, sending, receiving, late] = [&all[3], &all[4], &all[5], &all[6]];
        running.1.as_ref().unwrap().begin(Phase::Running);
        sending.1.as_ref().unwrap().begin(Phase::Sending);
        [running, sending].iter().for_each(|client| age(&client.1, 1000));
        age(&receiving.1, 2);
        age(&late.1, 3);
        for (loses, name) in [(late, "later"), (receiving, "late"), (sending, "does not read")] {
            assert!(!is_closed(&loses.0));
            assert!(connect(&connections).1.is_some(), "{name}");
            assert!(is_closed(&loses.0), "{name}");
            assert_eq!(connections.count(), CONNECTIONS_MAX);
        }
        assert!(connect(&connections).1.is_none(), "a command that runs gives no place away");
        assert!(!is_closed(&running.0));
        let ended = running.1.as_ref().unwrap();
        connections.remove(ended);
        // It has lost its place already.
        connections.remove(late.1.as_ref().unwrap());
        assert_eq!(connections.count(), CONNECTIONS_MAX - 1);
        assert!(connect(&connections).1.is_some());
    }

    #[test]
    fn a_reply_under_way_has_its_time() {
        let connections = Connections::default();
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&connections)).collect();
        all.iter().for_each(|(_, connection)| connection.as_ref().unwrap().begin(Phase::Sending));
        all.iter().for_each(|(_, connection)| age(connection, REPLY_DUE.as_secs() - 2));
        assert!(connect(&connections).1.is_none());
        age(&all[9].1, 2);
        assert!(connect(&connections).1.is_some() && is_closed(&all[9].0));
    }

    #[test]
    fn requests_that_come_just_in_time_each_are_late_together() {
        let connections = Connections::default();
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&connections)).collect();
        let connection = all[9].1.as_ref().unwrap();
        let just_in_time = REQUEST_DUE * 9 / 10;
        connection.times().since -= just_in_time;
        for phase in [Phase::Running, Phase::Sending, Phase::Receiving] {
            connection.begin(phase);
        }
        assert!(connect(&connections).1.is_none());
        connection.times().since -= just_in_time;
        assert!(connect(&connections).1.is_some() && is_closed(&all[9].0));
    }
}
