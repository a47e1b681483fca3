//! What a service manager is told, by the protocol of sd_notify(3): one datagram for each change of state.
//!
//! The protocol is a few lines of text to a socket that the environment names, so that no library is needed for it. Without a
//! service manager nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What happens to the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It works: all commands are answered.
    Ready,
    /// It reads its configuration again; [`Notice::Ready`] follows.
    Reloading,
    /// It ends.
    Stopping,
    /// Its main loop goes on.
    Alive,
}

impl Notice {
    /// Source: sd_notify(3). A reload names the time at which it began.
    fn text(&self) -> String {
        match self {
            Notice::Ready => "READY=1\nSTATUS=running".to_owned(),
            Notice::Reloading => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading the configuration again")
            }
            Notice::Stopping => "STOPPING=1\nSTATUS=ending".to_owned(),
            Notice::Alive => "WATCHDOG=1".to_owned(),
        }
    }
}

/// Tells the service manager, if there is one. It is never waited for.
pub fn tell(notice: &Notice) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET").and_then(|name| name.into_string().ok()) {
        // A service manager that does not listen is none of the switch's business.
        let _ = send(&name, &notice.text());
    }
}

/// Sends to the socket of this path; a name that begins with `@` is abstract. Source: sd_notify(3).
fn send(name: &str, text: &str) -> std::io::Result<usize> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(text.as_bytes(), &address)
}

/// How often the service manager wants to be told that the switch is alive: twice within what it allows
/// (`WatchdogSec=`). Source: sd_watchdog_enabled(3).
pub fn alive_every() -> Option<Duration> {
    let is_meant = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    half_of(&std::env::var("WATCHDOG_USEC").ok()?).filter(|_| is_meant)
}

fn half_of(micros: &str) -> Option<Duration> {
    micros.parse().ok().filter(|micros| *micros > 1).map(|micros: u64| Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_by_path_and_an_abstract_one_get_the_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("sluice-notify-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mut bytes = [0; 128];
        for (name, socket) in [(path.to_str().unwrap(), by_path), (&format!("@{name}"), by_name)] {
            send(name, &Notice::Ready.text()).unwrap();
            let size = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..size], b"READY=1\nSTATUS=running");
        }
        assert!(send(dir.path().join("none").to_str().unwrap(), "READY=1").is_err());
    }

    #[test]
    fn a_reload_names_its_beginning() {
        let text = Notice::Reloading.text();
        let micros = text.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(text.starts_with("RELOADING=1\n") && micros.parse::<u64>().unwrap() > 0, "{text}");
    }

    #[test]
    fn the_watchdog_is_told_twice_in_its_time() {
        assert_eq!(half_of("30000000"), Some(Duration::from_secs(15)));
        assert_eq!([half_of("0"), half_of("1"), half_of("x")], [None; 3]);
    }
}
