//! The client's end of the `ovs-appctl` protocol: one JSON-RPC request at a time over a Unix socket.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long to wait for an answer of a switch that may have got stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection that is kept, so that a command costs one round trip and no process.
pub struct Unixctl {
    stream: UnixStream,
    next_id: u64,
}

impl Unixctl {
    pub fn connect(path: &Path) -> Result<Self> {
        // The path appears before the process listens.
        for _ in 0..1000 {
            if let Ok(stream) = UnixStream::connect(path) {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(Unixctl { stream, next_id: 0 });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("no process listens on {}", path.display())
    }

    /// Runs a command and returns what it printed.
    pub fn command(&mut self, method: &str, arguments: &[&str]) -> Result<String> {
        self.next_id += 1;
        let request = json!({ "id": self.next_id, "method": method, "params": arguments });
        self.stream.write_all(request.to_string().as_bytes())?;
        let mut text = Vec::new();
        let mut chunk = [0; 1 << 16];
        let reply: Value = loop {
            let n = self.stream.read(&mut chunk).with_context(|| format!("{method} {arguments:?}"))?;
            if n == 0 {
                bail!("{method}: the switch closed the connection");
            }
            text.extend(&chunk[..n]);
            // Replies come one at a time, so a whole value is the whole reply.
            match serde_json::from_slice(&text) {
                Ok(value) => break value,
                Err(e) if e.is_eof() => {}
                Err(e) => return Err(e).context(format!("{method}: the reply is not JSON")),
            }
        };
        if !reply["error"].is_null() {
            bail!("{method} {arguments:?}: {}", reply["error"]);
        }
        Ok(reply["result"].as_str().unwrap_or_default().to_owned())
    }
}
