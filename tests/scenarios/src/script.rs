//! The scenario language: a statement a line, `#` begins a comment.
//!
//! | statement | meaning |
//! |---|---|
//! | `ports 1 2 3` | the bridge's OpenFlow ports; the first statement |
//! | `flow TEXT` | `ovs-ofctl add-flow` |
//! | `mod-flows TEXT`, `del-flows [TEXT]` | likewise |
//! | `wait MS` | time passes; the revalidator looks |
//! | `1 < FRAME` | a packet comes in on port 1 ([`frame_text`](crate::frame_text) says how frames are written) |
//! | `2 > FRAME` | because of it, this one leaves port 2; without any, nothing leaves |
//! | `2 > same` | the packet leaves as it came |
//! | `rule PACKETS TEXT` | so far, the rule of this table, priority and match has counted PACKETS packets |
//! | `drop N REASON` | so far, N packets were dropped for that reason |
//! | `delivered N` | so far, N packets went to a controller |
//! | `megaflows N` | now, there are N megaflows (checked where the setting has one PMD that caches) |

use crate::frame_text;

/// A frame that must leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The port.
    pub port: u16,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes rules: `add-flow`, `mod-flows` or `del-flows`, and the text.
    Change(&'static str, String),
    /// Lets time pass, milliseconds.
    Wait(u64),
    /// A packet comes in.
    Packet {
        /// The port.
        port: u16,
        /// The frame.
        bytes: Vec<u8>,
        /// What leaves because of it, in order.
        out: Vec<Expected>,
    },
    /// A rule has counted this many packets.
    Rule(u64, String),
    /// This many packets were dropped for a reason.
    Drop(u64, String),
    /// This many packets went to a controller.
    Delivered(u64),
    /// There are this many megaflows.
    Megaflows(usize),
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// OpenFlow ports.
    pub ports: Vec<u16>,
    /// What happens, each with its line number.
    pub steps: Vec<(usize, Step)>,
}

impl Script {
    /// Reads a scenario. The error names the line.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script { ports: Vec::new(), steps: Vec::new() };
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                script.statement(i + 1, line).map_err(|e| format!("line {}: {e}", i + 1))?;
            }
        }
        if script.ports.is_empty() { Err("the scenario has no `ports`".into()) } else { Ok(script) }
    }

    fn statement(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let step = match word {
            "ports" => {
                self.ports = rest.split_whitespace().map(port).collect::<Result<_, _>>()?;
                return Ok(());
            }
            "flow" => Step::Change("add-flow", rest.into()),
            "mod-flows" => Step::Change("mod-flows", rest.into()),
            "del-flows" => Step::Change("del-flows", rest.into()),
            "wait" => Step::Wait(count(rest)?),
            "delivered" => Step::Delivered(count(rest)?),
            "megaflows" => Step::Megaflows(count(rest)? as usize),
            "rule" | "drop" => {
                let (n, what) = rest.split_once(' ').ok_or("expected a number and what it counts")?;
                let (n, what) = (count(n)?, what.trim().to_owned());
                if word == "rule" { Step::Rule(n, what) } else { Step::Drop(n, what) }
            }
            _ => match rest.split_once(' ').unwrap_or((rest, "")) {
                ("<", frame) => Step::Packet { port: port(word)?, bytes: frame_text::parse(frame)?, out: Vec::new() },
                (">", frame) => return self.expect(port(word)?, frame),
                _ => return Err(format!("expected a statement, found `{line}`")),
            },
        };
        self.steps.push((number, step));
        Ok(())
    }

    fn expect(&mut self, port: u16, frame: &str) -> Result<(), String> {
        let Some((_, Step::Packet { bytes, out, .. })) = self.steps.last_mut() else {
            return Err("no packet came in that this one could leave because of".into());
        };
        let bytes = if frame.trim() == "same" { bytes.clone() } else { frame_text::parse(frame)? };
        out.push(Expected { port, bytes });
        Ok(())
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("expected a port number, found `{text}`"))
}

fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a number, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_steps() {
        let script = Script::parse(
            "ports 1 2 # two\n\nflow in_port=1 actions=output:2\n1 < ip=10.0.0.1>10.0.0.2\n2 > same\nrule 1 in_port=1\ndrop 0 rules\n",
        )
        .unwrap();
        assert_eq!(script.ports, [1, 2]);
        assert_eq!(script.steps.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 4, 6, 7]);
        let Step::Packet { port: 1, bytes, out } = &script.steps[1].1 else { panic!("{script:?}") };
        assert_eq!(out[..], [Expected { port: 2, bytes: bytes.clone() }]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, error) in [
            ("ports 1\nnonsense\n", "line 2: expected a statement, found `nonsense`"),
            ("ports x\n", "line 1: expected a port number, found `x`"),
            ("ports 1\n1 > same\n", "line 2: no packet came in"),
            ("flow actions=drop\n", "the scenario has no `ports`"),
        ] {
            let found = Script::parse(text).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
