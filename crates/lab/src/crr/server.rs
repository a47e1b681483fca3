//! The server of TCP transactions: it answers a byte with a byte, and closes when the client does.

use super::answer_to;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Connections that may wait to be accepted. Source: `ovs-benchmark listen`.
const BACKLOG: i32 = 10_000;

/// Serve TCP transactions until ended
#[derive(clap::Args, Debug)]
pub struct ServeArgs {
    /// Where to listen
    address: SocketAddr,
    /// Connections served at the same time
    #[arg(long, default_value_t = 128)]
    at_once: usize,
}

impl ServeArgs {
    /// Serves until the process is ended.
    ///
    /// # Errors
    /// If it cannot listen or accept.
    pub fn run(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address).with_context(|| self.address.to_string())?;
        // The library's 128 are too few where connections are closed before they are accepted: one would wait a second.
        rustix::net::listen(&listener, BACKLOG)?;
        std::thread::scope(|scope| {
            let serve = || -> Result<()> {
                loop {
                    let (connection, _) = listener.accept().context("accept")?;
                    // A client that goes away early tells so itself.
                    let _ = answer(connection);
                }
            };
            let threads: Vec<_> = (0..self.at_once).map(|_| scope.spawn(serve)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("invariant: a server's thread does not panic"))
        })
    }
}

/// Answers each byte until the client closes.
fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    while connection.read(&mut byte)? != 0 {
        connection.write_all(&[answer_to(byte[0])])?;
    }
    Ok(())
}
