//! The client of TCP transactions. It opens, uses and closes a fixed number of connections, of which a fixed number are open
//! at a time.

use super::answer_to;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Make TCP transactions with a server of them, and print how long they took
#[derive(clap::Args, Debug)]
pub struct ConnectArgs {
    /// The server
    server: SocketAddr,
    /// Connections in all
    #[arg(long)]
    connections: u64,
    /// Connections at the same time
    #[arg(long)]
    at_once: usize,
    /// Whether each carries a request and its response, of a byte each
    #[arg(long)]
    request: bool,
}

/// What they took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Took {
    /// Connections that came to their end.
    pub connections: u64,
    /// From the first to the last, seconds.
    pub seconds: f64,
    /// The middle one, microseconds.
    pub p50_us: f64,
    /// The one that 1 % exceed, microseconds.
    pub p99_us: f64,
}

/// How long the network may take until a first connection comes about, and any step of a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between attempts at the first one.
const RETRY: Duration = Duration::from_millis(20);

impl ConnectArgs {
    /// Makes the transactions and prints what they took, as JSON.
    ///
    /// # Errors
    /// If one fails.
    pub fn run(&self) -> Result<()> {
        println!("{}", serde_json::to_string(&self.transact()?)?);
        Ok(())
    }

    fn transact(&self) -> Result<Took> {
        ensure!(self.connections != 0 && self.at_once != 0, "no connections");
        self.wait_for_server()?;
        let next = AtomicU64::new(0);
        let began = Instant::now();
        let times = std::thread::scope(|scope| {
            let work = || -> Result<Vec<Duration>> {
                let mut times = Vec::new();
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= self.connections {
                        return Ok(times);
                    }
                    let began = Instant::now();
                    self.transaction(number as u8).with_context(|| format!("connection {number}"))?;
                    times.push(began.elapsed());
                }
            };
            let threads: Vec<_> = (0..self.at_once).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("invariant: no transaction panics"));
            joined.collect::<Result<Vec<_>>>()
        })?;
        Ok(Took::of(times.into_iter().flatten().collect(), began.elapsed()))
    }

    /// Makes one connection, which is not counted: links come up, and neighbours are asked for.
    fn wait_for_server(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect_timeout(&self.server, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > until => return Err(error).context(self.server.to_string()),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn transaction(&self, request: u8) -> Result<()> {
        let mut connection = TcpStream::connect_timeout(&self.server, PATIENCE)?;
        if self.request {
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.write_all(&[request])?;
            let mut answer = [0];
            connection.read_exact(&mut answer)?;
            ensure!(answer[0] == answer_to(request), "{request} was answered by {}", answer[0]);
        }
        Ok(connection.shutdown(Shutdown::Both)?)
    }
}

impl Took {
    /// Of at least one transaction.
    fn of(mut times: Vec<Duration>, whole: Duration) -> Took {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        Took { connections: times.len() as u64, seconds: whole.as_secs_f64(), p50_us: at(0.5), p99_us: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_middle_and_the_late_ones() {
        let took = Took::of((1..=101).rev().map(Duration::from_micros).collect(), Duration::from_secs(2));
        assert_eq!((took.connections, took.seconds), (101, 2.0));
        assert_eq!((took.p50_us.round(), took.p99_us.round()), (51.0, 100.0));
    }

    /// A server that answers with what it was asked.
    #[test]
    fn every_transaction_is_made_and_a_wrong_answer_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let mut byte = [0];
                if connection.read(&mut byte).unwrap_or(0) == 1 {
                    // As the server does, but for the request 7.
                    let answer = if byte[0] == 7 { 7 } else { answer_to(byte[0]) };
                    let _ = connection.write_all(&[answer]);
                }
            }
        });
        let args = |connections, request| ConnectArgs { server, connections, at_once: 2, request };
        assert_eq!(args(20, false).transact().unwrap().connections, 20);
        assert_eq!(args(7, true).transact().unwrap().connections, 7);
        let error = format!("{:#}", args(8, true).transact().unwrap_err());
        assert_eq!(error, "connection 7: 7 was answered by 7");
    }
}
