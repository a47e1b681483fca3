//! Writing flows: the lines of `dump-flows`.

use crate::{FlowFlags, FlowMod, OfAction};
use sluice_flow::{Match, PortNames};
use std::fmt;

/// A flow in a table, as `dump-flows` shows it.
#[derive(Clone, Copy, Debug)]
pub struct FlowLine<'a> {
    /// Its table.
    pub table: u8,
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u32,
    /// Its idle timeout, 0 for none.
    pub idle_timeout: u16,
    /// Its hard timeout, 0 for none.
    pub hard_timeout: u16,
    /// Its importance.
    pub importance: u16,
    /// How it is treated.
    pub flags: FlowFlags,
    /// What it matches.
    pub matches: &'a Match,
    /// What it does.
    pub actions: &'a [OfAction],
    /// What it has carried; `None` leaves out everything that changes with time (`--no-stats`).
    pub stats: Option<FlowLineStats>,
}

/// What changes of a flow as time goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLineStats {
    /// Milliseconds since it was added.
    pub duration_ms: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was last used; `None` leaves it out.
    pub idle_age: Option<u64>,
    /// Seconds since it was last changed; `None` leaves it out.
    pub hard_age: Option<u64>,
}

impl FlowMod {
    /// The flow as `ovs-ofctl --no-stats dump-flows` shows it once it is in its table.
    pub fn line(&self) -> FlowLine<'_> {
        FlowLine {
            table: self.table.unwrap_or(0),
            cookie: self.new_cookie.unwrap_or(0),
            priority: self.priority.into(),
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            importance: self.importance,
            flags: self.flags,
            matches: &self.matches,
            actions: &self.actions,
            stats: None,
        }
    }
}

impl FlowLine<'_> {
    /// The line as `ovs-ofctl dump-flows` shows it (which puts a space before it), ports by the names they have.
    pub fn display(&self, ports: &PortNames) -> impl fmt::Display {
        fmt::from_fn(|f| {
            let FlowLine { table, cookie, idle_timeout, hard_timeout, importance, .. } = self;
            if self.stats.is_some() || *cookie != 0 {
                write!(f, "cookie=0x{cookie:x}, ")?;
            }
            if let Some(stats) = &self.stats {
                write!(f, "duration={}, ", show_duration(stats.duration_ms))?;
            }
            if self.stats.is_some() || *table != 0 {
                write!(f, "table={table}, ")?;
            }
            if let Some(stats) = &self.stats {
                write!(f, "n_packets={}, n_bytes={}, ", stats.packets, stats.bytes)?;
            }
            for (name, value) in [("idle_timeout", idle_timeout), ("hard_timeout", hard_timeout)] {
                if *value != 0 {
                    write!(f, "{name}={value}, ")?;
                }
            }
            write!(f, "{}", self.flags)?;
            if *importance != 0 {
                write!(f, "importance={importance}, ")?;
            }
            if let Some(stats) = &self.stats {
                let duration = stats.duration_ms / 1000;
                let ages = [("idle_age", stats.idle_age), ("hard_age", stats.hard_age.filter(|age| *age != duration))];
                ages.into_iter()
                    .filter_map(|(name, age)| Some((name, age?)))
                    .try_for_each(|(name, age)| write!(f, "{name}={age}, "))?;
            }
            self.write_match(f, ports)?;
            write!(f, "actions={}", OfAction::display_list(self.actions, ports))
        })
    }

    /// The line as `ovs-appctl bridge/dump-flows` shows it.
    pub fn display_in_bridge(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            let stats = self.stats.unwrap_or_default();
            if self.table != 0 {
                write!(f, "table_id={}, ", self.table)?;
            }
            write!(f, "duration={}s, ", stats.duration_ms / 1000)?;
            write!(f, "n_packets={}, n_bytes={}, ", stats.packets, stats.bytes)?;
            // Unlike dump-flows, the comma stands even behind an empty match.
            write!(f, "{}", self.matches.display(&PortNames::NONE, self.priority))?;
            write!(f, ",actions={}", OfAction::display_list(self.actions, &PortNames::NONE))
        })
    }

    fn write_match(&self, f: &mut fmt::Formatter<'_>, ports: &PortNames) -> fmt::Result {
        let matches = self.matches.display(ports, self.priority).to_string();
        if matches.is_empty() { Ok(()) } else { write!(f, "{matches} ") }
    }
}

/// Seconds with up to three decimals, as many as are needed.
fn show_duration(ms: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let text = format!("{}.{:03}", ms / 1000, ms % 1000);
        write!(f, "{}s", text.trim_end_matches('0').trim_end_matches('.'))
    })
}

/// The flags that are set, a space behind each.
impl fmt::Display for FlowFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.send_flow_rem, "send_flow_rem "),
            (self.check_overlap, "check_overlap "),
            (self.reset_counts, "reset_counts "),
            (self.no_packet_counts, "no_packet_counts "),
            (self.no_byte_counts, "no_byte_counts "),
        ];
        names.into_iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))
    }
}

/// As [`FlowMod::line`] shows it, ports by number.
impl fmt::Display for FlowMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line();
        fmt::Display::fmt(&line.display(&PortNames::NONE), f)
    }
}
