//! A control connection on which many requests may be under way, so that a thousand a second are no strain.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to `sluice.ctl`.
pub struct Control {
    stream: UnixStream,
    replies: serde_json::StreamDeserializer<'static, serde_json::de::IoRead<BufReader<UnixStream>>, Value>,
    next_id: u64,
}

impl Control {
    /// Connects; `None` if no process listens yet.
    pub fn connect(path: &Path) -> Result<Option<Self>> {
        let Ok(stream) = UnixStream::connect(path) else { return Ok(None) };
        let reader = BufReader::new(stream.try_clone()?);
        let replies = serde_json::Deserializer::from_reader(reader).into_iter();
        Ok(Some(Control { stream, replies, next_id: 0 }))
    }

    /// Sends the commands, then takes all the answers. One that is refused is an error.
    pub fn commands(&mut self, commands: &[(&str, Vec<&str>)]) -> Result<Vec<String>> {
        let mut text = String::new();
        for (method, arguments) in commands {
            self.next_id += 1;
            text += &json!({ "id": self.next_id, "method": method, "params": arguments }).to_string();
        }
        self.stream.write_all(text.as_bytes()).context("writing to the switch")?;
        commands.iter().map(|(method, arguments)| self.reply(method, arguments)).collect()
    }

    /// Sends one command.
    pub fn command(&mut self, method: &str, arguments: &[&str]) -> Result<String> {
        let mut answers = self.commands(&[(method, arguments.to_vec())])?;
        Ok(answers.remove(0))
    }

    fn reply(&mut self, method: &str, arguments: &[&str]) -> Result<String> {
        let reply = self.replies.next().with_context(|| format!("{method}: the switch closed the connection"))??;
        if !reply["error"].is_null() {
            bail!("{method} {arguments:?}: {}", reply["error"]);
        }
        Ok(reply["result"].as_str().unwrap_or_default().to_owned())
    }
}
