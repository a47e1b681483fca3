//! What a received control packet does to a session, RFC 5880 section 6.8.6.

use crate::packet::{ControlPacket, Diagnostic, Flags, State};
use crate::session::{LOG_RATE, Session};
use tracing::Level;

/// The time to live of a packet from a neighbour, RFC 5881 section 5. Any other came from further away.
pub const MAX_TTL: u8 = 255;

/// A control packet has to come within this multiple of `min_rx`; otherwise traffic does not show that the port forwards.
const CONTROL_WITHIN: u64 = 100;

impl Session {
    /// Takes the UDP payload of a packet with that time to live. `rx_packets` is what the port has received.
    pub fn receive(&mut self, ttl: u8, payload: &[u8], rx_packets: u64, now_ms: u64) {
        self.decay.control_packets += 1;
        self.update_forwarding(now_ms);
        if ttl == MAX_TTL {
            match ControlPacket::decode(payload) {
                Ok(packet) => self.take(&packet, payload.len(), rx_packets, now_ms),
                Err(error) => tracing::info!(target: "bfd", rate_limit = LOG_RATE, "{}: {error}", self.name),
            }
        }
        self.update_forwarding(now_ms);
    }

    fn take(&mut self, packet: &ControlPacket, payload_len: usize, rx_packets: u64, now_ms: u64) {
        self.log_packet(Level::DEBUG, packet, "Received BFD control message", now_ms);
        if let Some(fault) = packet.fault(payload_len, self.local.discriminator) {
            return self.log_packet(Level::WARN, packet, &fault.to_string(), now_ms);
        }
        self.status_changed |= self.remote.state != packet.state;
        self.remote.discriminator = packet.my_discriminator;
        (self.remote.state, self.remote.flags, self.remote.diagnostic) =
            (packet.state, packet.flags, packet.diagnostic);
        self.take_flags(packet, now_ms);
        self.take_timers(packet, now_ms);
        self.follow(packet, rx_packets, now_ms);
    }

    /// Ends a poll sequence of this end, or answers one of the other.
    fn take_flags(&mut self, packet: &ControlPacket, now_ms: u64) {
        if packet.flags.has(Flags::FINAL) && self.is_polling() {
            self.local.min = self.polled;
            self.local.flags.clear(Flags::POLL);
            self.log_packet(Level::INFO, packet, "Poll sequence terminated", now_ms);
        }
        if packet.flags.has(Flags::POLL) {
            // Never both, RFC 5880 section 6.5.
            self.local.flags.clear(Flags::POLL);
            self.local.flags.set(Flags::FINAL);
        }
    }

    fn take_timers(&mut self, packet: &ControlPacket, now_ms: u64) {
        if self.remote.mult != packet.mult {
            let (name, old, new) = (&self.name, self.remote.mult, packet.mult);
            tracing::info!(target: "bfd", rate_limit = LOG_RATE, "Interface {name} remote mult value {old} changed to {new}");
            self.remote.mult = packet.mult;
        }
        let rx_ms = milliseconds(packet.min_rx_us);
        if self.remote.min.rx_ms != rx_ms {
            self.remote.min.rx_ms = rx_ms;
            if self.timers.next_tx_ms != 0 {
                self.plan_tx();
            }
            self.log_packet(Level::INFO, packet, "New remote min_rx", now_ms);
        }
        self.remote.min.tx_ms = milliseconds(packet.min_tx_us);
        self.timers.detect_ms = now_ms + self.rx_interval_ms() * u64::from(self.remote.mult);
    }

    /// The state machine of RFC 5880 section 6.2.
    fn follow(&mut self, packet: &ControlPacket, rx_packets: u64, now_ms: u64) {
        let next = match (self.local.state, packet.state) {
            (State::AdminDown, _) => return,
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => Some(State::Down),
            (State::Down, State::Down) => Some(State::Init),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => Some(State::Up),
            _ => None,
        };
        let was_up = self.local.state == State::Up;
        match next {
            Some(State::Down) => self.set_state(State::Down, Diagnostic::NEIGHBOUR_DOWN, rx_packets, now_ms),
            Some(state) => self.set_state(state, self.local.diagnostic, rx_packets, now_ms),
            None => {}
        }
        if was_up && packet.state == State::Down {
            self.log_packet(Level::INFO, packet, "Remote signaled STATE_DOWN", now_ms);
        }
        if self.config.forwarding_if_rx {
            self.forwarding.control_until_ms = now_ms + CONTROL_WITHIN * u64::from(self.config.min_rx_ms);
        }
    }
}

/// A packet's time; 0 would be none at all.
fn milliseconds(us: u32) -> u64 {
    u64::from(us / 1000).max(1)
}
