//! A session as `bfd/show` and the log show it. The texts are Open vSwitch's.

use crate::packet::{ControlPacket, Diagnostic, State};
use crate::session::{LOG_RATE, Session};
use std::fmt::Write as _;
use tracing::Level;

impl Session {
    /// All that is known of it.
    pub fn details(&mut self, now_ms: u64) -> String {
        let forwarding = self.update_forwarding(now_ms);
        self.details_with(forwarding, now_ms)
    }

    fn details_with(&self, forwarding: bool, now_ms: u64) -> String {
        let (local, remote, timers) = (&self.local, &self.remote, &self.timers);
        let from_now = |at_ms: u64| at_ms.wrapping_sub(now_ms).cast_signed();
        let mut out = String::new();
        let _ = write!(
            out,
            "  Forwarding: {forwarding}\n  Detect Multiplier: {}\n  Concatenated Path Down: {}\n\
             \x20 TX Interval: Approx {}ms\n  RX Interval: Approx {}ms\n\
             \x20 Detect Time: now {:+}ms\n  Next TX Time: now {:+}ms\n  Last TX Time: now {:+}ms\n\n",
            self.config.mult,
            self.config.cpath_down,
            self.tx_interval_ms(),
            self.rx_interval_ms(),
            from_now(timers.detect_ms),
            from_now(timers.next_tx_ms),
            from_now(timers.last_tx_ms),
        );
        let _ = write!(
            out,
            "  Local Flags: {}\n  Local Session State: {}\n  Local Diagnostic: {}\n  Local Discriminator: {:#x}\n\
             \x20 Local Minimum TX Interval: {}ms\n  Local Minimum RX Interval: {}ms\n\n",
            local.flags,
            local.state.name(),
            local.diagnostic.name(),
            local.discriminator,
            self.min_tx_ms(),
            local.min.rx_ms,
        );
        let _ = writeln!(
            out,
            "  Remote Flags: {}\n  Remote Session State: {}\n  Remote Diagnostic: {}\n  Remote Discriminator: {:#x}\n\
             \x20 Remote Minimum TX Interval: {}ms\n  Remote Minimum RX Interval: {}ms\n  Remote Detect Multiplier: {}",
            remote.flags,
            remote.state.name(),
            remote.diagnostic.name(),
            remote.discriminator,
            remote.min.tx_ms,
            remote.min.rx_ms,
            remote.mult,
        );
        out
    }

    pub(crate) fn log_change(&self, state: State, diagnostic: Diagnostic, now_ms: u64) {
        let show = |state: State, why: Diagnostic| {
            format!("(bfd.SessionState: {}, bfd.LocalDiag: \"{}\")", state.name(), why.name())
        };
        let (name, old, new) = (&self.name, show(self.local.state, self.local.diagnostic), show(state, diagnostic));
        let details = self.details_with(self.forwarding.last, now_ms);
        tracing::info!(target: "bfd", rate_limit = LOG_RATE, "{name}: BFD state change: {old} -> {new}\n{details}");
    }

    /// Logs a packet. Only a peer that is new or wrong makes lines above DEBUG, and those are limited.
    pub(crate) fn log_packet(&self, level: Level, packet: &ControlPacket, what: &str, now_ms: u64) {
        if level == Level::DEBUG && !tracing::enabled!(target: "bfd", Level::DEBUG) {
            return;
        }
        let text = self.packet_text(packet, what, now_ms);
        match level {
            Level::DEBUG => tracing::debug!(target: "bfd", rate_limit = LOG_RATE, "{text}"),
            Level::WARN => tracing::warn!(target: "bfd", rate_limit = LOG_RATE, "{text}"),
            _ => tracing::info!(target: "bfd", rate_limit = LOG_RATE, "{text}"),
        }
    }

    fn packet_text(&self, packet: &ControlPacket, what: &str, now_ms: u64) -> String {
        let time = |us: u32| format!("{us}us ({}ms)", us / 1000);
        format!(
            "{}: {what}.\n  vers:{} diag:\"{}\" state:{} mult:{} length:{}\n  flags: {}\n  my_disc:{:#x} your_disc:{:#x}\n\
             \x20 min_tx:{}\n  min_rx:{}\n  min_rx_echo:{}{}",
            self.name,
            packet.version,
            packet.diagnostic.name(),
            packet.state.name(),
            packet.mult,
            packet.length,
            packet.flags,
            packet.my_discriminator,
            packet.your_discriminator,
            time(packet.min_tx_us),
            time(packet.min_rx_us),
            time(packet.min_echo_rx_us),
            self.details_with(self.forwarding.last, now_ms),
        )
    }
}
