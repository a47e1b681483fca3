//! A session: its timers, its poll sequences, its decay, and whether its port forwards. Source: RFC 5880 section 6.8 and
//! Open vSwitch lib/bfd.c.

use crate::config::Config;
use crate::frame::{self, FRAME_LEN, Sender};
use crate::packet::{ControlPacket, Diagnostic, Flags, State};

/// While a session is not up, packets are no more frequent than that, ms. Source: RFC 5880 section 6.8.3.
const SLOW_TX_MS: u64 = 1000;

/// Decay and `forwarding_if_rx` look over that time at least, ms. Source: Open vSwitch.
const LOOK_OVER_MS: u64 = 2000;

/// Log lines of a kind a minute. Source: Open vSwitch lib/bfd.c, `rl`.
pub(crate) const LOG_RATE: u32 = 20;

/// A session of one port.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) local: Local,
    pub(crate) remote: Remote,
    pub(crate) timers: Timers,
    /// The values that a poll sequence is about.
    pub(crate) polled: Intervals,
    pub(crate) decay: Decay,
    pub(crate) forwarding: Forwarding,
    /// Whether what [`Session::status`] says may have changed.
    pub(crate) status_changed: bool,
    udp_src: u16,
    /// The state of the generator of jitter.
    random: u32,
}

/// Both directions' shortest times between packets, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub tx_ms: u64,
    pub rx_ms: u64,
}

/// This end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub state: State,
    pub diagnostic: Diagnostic,
    pub flags: Flags,
    pub discriminator: u32,
    /// `bfd.DesiredMinTxInterval` and `bfd.RequiredMinRxInterval`.
    pub min: Intervals,
}

/// What the other end said last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remote {
    pub state: State,
    pub diagnostic: Diagnostic,
    pub flags: Flags,
    pub discriminator: u32,
    pub min: Intervals,
    pub mult: u8,
}

/// Times of the clock, ms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    pub last_tx_ms: u64,
    /// 0: at once.
    pub next_tx_ms: u64,
    pub detect_ms: u64,
}

/// Whether the port carries traffic: if not, fewer control packets are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decay {
    pub is_on: bool,
    /// Control packets since the last look.
    pub control_packets: u64,
    /// What the port had received then.
    pub rx_packets: u64,
    pub next_look_ms: u64,
}

/// Whether the port forwards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forwarding {
    pub last: bool,
    pub flaps: u64,
    /// What a command said.
    pub forced: Option<bool>,
    /// With `forwarding_if_rx`: traffic of late counts until then.
    pub traffic_until_ms: u64,
    /// And until then there must be a control packet again.
    pub control_until_ms: u64,
}

/// What the database tells of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the port may be used.
    pub forwarding: bool,
    /// The state of this end.
    pub state: State,
    /// Why.
    pub diagnostic: Diagnostic,
    /// How often `forwarding` changed.
    pub flap_count: u64,
    /// What the other end said of itself.
    pub remote_state: State,
    /// Why.
    pub remote_diagnostic: Diagnostic,
}

impl Session {
    /// A session that is down. `discriminator` is random and unique, `number` counts sessions.
    pub fn new(name: &str, config: Config, discriminator: u32, number: u16, now_ms: u64) -> Self {
        let initial = Intervals { tx_ms: SLOW_TX_MS, rx_ms: 0 };
        let (state, diagnostic, flags) = (State::Down, Diagnostic::NONE, Flags::default());
        let rest = Config { min_tx_ms: 0, min_rx_ms: 0, decay_min_rx_ms: 0, cpath_down: false, ..config.clone() };
        let mut session = Session {
            name: name.to_owned(),
            config: rest,
            local: Local { state, diagnostic, flags, discriminator, min: initial },
            remote: Remote { min: Intervals { tx_ms: 0, rx_ms: 1 }, ..Remote::default() },
            timers: Timers::default(),
            polled: Intervals::default(),
            decay: Decay::default(),
            forwarding: Forwarding::default(),
            status_changed: true,
            // RFC 5881 section 4: one of these, the same for the session's life.
            udp_src: 49152 + number % 16384,
            random: discriminator | 1,
        };
        session.configure(config, 0, now_ms);
        session
    }

    /// Changes the configuration. `rx_packets` is what the port has received.
    pub fn configure(&mut self, config: Config, rx_packets: u64, now_ms: u64) {
        let old = std::mem::replace(&mut self.config, config);
        let may_change_now = self.local.state != State::Up;
        let may_lessen = !self.is_polling();
        let (tx_ms, rx_ms) = (self.config.min_tx_ms.into(), self.config.min_rx_ms.into());
        let mut poll = false;
        if old.min_tx_ms != self.config.min_tx_ms {
            if may_change_now || may_lessen && tx_ms < self.local.min.tx_ms {
                self.local.min.tx_ms = tx_ms;
            }
            poll = true;
        }
        let rx_changed = old.min_rx_ms != self.config.min_rx_ms;
        if rx_changed {
            if may_change_now || may_lessen && rx_ms > self.local.min.rx_ms {
                self.local.min.rx_ms = rx_ms;
            }
            poll = true;
        }
        if old.decay_min_rx_ms != self.config.decay_min_rx_ms || rx_changed {
            if self.config.decay_min_rx_ms > 0 && self.config.decay_ms() == 0 {
                let (name, least) = (&self.name, self.config.min_rx_ms);
                tracing::warn!(target: "bfd", "{name}: decay_min_rx cannot be less than {least} ms");
            }
            self.decay.is_on = false;
            self.look_at_decay_later(rx_packets, now_ms);
            poll = true;
        }
        if old.cpath_down != self.config.cpath_down {
            self.set_state(self.local.state, Diagnostic::NONE, rx_packets, now_ms);
            poll = true;
        }
        let traffic_changed = old.forwarding_if_rx != self.config.forwarding_if_rx;
        if self.config.forwarding_if_rx && self.local.state == State::Up {
            if traffic_changed || old.mult != self.config.mult {
                self.note_traffic(now_ms);
            }
        } else if traffic_changed {
            self.forwarding.traffic_until_ms = 0;
        }
        if poll {
            self.poll();
        }
    }

    /// Does what is due but sending.
    pub fn run(&mut self, rx_packets: u64, now_ms: u64) {
        let was_decaying = self.decay.is_on;
        if self.local.state > State::Down && now_ms >= self.timers.detect_ms {
            self.set_state(State::Down, Diagnostic::EXPIRED, rx_packets, now_ms);
        }
        self.update_forwarding(now_ms);
        let decay_ms = self.config.decay_ms();
        if self.local.state == State::Up && decay_ms > 0 && now_ms >= self.decay.next_look_ms {
            // What the port received besides control packets; twice their number, because both are not counted at once.
            let received = rx_packets.saturating_sub(self.decay.rx_packets);
            self.decay.is_on = received <= 2 * self.decay.control_packets.max(1);
            self.look_at_decay_later(rx_packets, now_ms);
        }
        let (min, config) = (self.local.min, &self.config);
        let rx_differs = min.rx_ms != u64::from(config.min_rx_ms) && min.rx_ms != decay_ms;
        if min.tx_ms != u64::from(config.min_tx_ms) || rx_differs || self.decay.is_on != was_decaying {
            self.poll();
        }
    }

    /// When [`Session::run`] and [`Session::send`] have something to do next, ms; 0: now.
    pub fn wake_ms(&self) -> u64 {
        if self.local.flags.has(Flags::FINAL) {
            return 0;
        }
        let detect_ms = if self.local.state > State::Down { self.timers.detect_ms } else { u64::MAX };
        self.timers.next_tx_ms.min(detect_ms)
    }

    /// The frame to be sent now from a port of that address, if one is due.
    pub fn send(&mut self, mac: [u8; 6], now_ms: u64) -> Option<[u8; FRAME_LEN]> {
        let is_final = self.local.flags.has(Flags::FINAL);
        if !is_final && now_ms < self.timers.next_tx_ms {
            return None;
        }
        if self.timers.next_tx_ms != 0 {
            let (delay, interval) = (now_ms.saturating_sub(self.timers.next_tx_ms), self.tx_interval_ms());
            if delay > interval * 3 / 2 {
                let name = &self.name;
                tracing::info!(
                    target: "bfd",
                    "{name}: long delay of {delay}ms (expected {interval}ms) sending BFD control message"
                );
            }
        }
        let min = if self.is_polling() { self.polled } else { Intervals { tx_ms: self.min_tx_ms(), ..self.local.min } };
        let packet = ControlPacket {
            diagnostic: self.local.diagnostic,
            state: self.local.state,
            flags: self.local.flags,
            mult: self.config.mult,
            my_discriminator: self.local.discriminator,
            your_discriminator: self.remote.discriminator,
            min_tx_us: microseconds(min.tx_ms),
            min_rx_us: microseconds(min.rx_ms),
            ..ControlPacket::outgoing()
        };
        self.local.flags.clear(Flags::FINAL);
        self.log_packet(tracing::Level::DEBUG, &packet, "Sending BFD Message", now_ms);
        self.timers.last_tx_ms = now_ms;
        self.plan_tx();
        Some(frame::compose(&packet, &self.config, Sender { mac, udp_src: self.udp_src }))
    }

    /// The port has received traffic.
    pub fn account_rx(&mut self, now_ms: u64) {
        if self.config.forwarding_if_rx {
            self.update_forwarding(now_ms);
            self.note_traffic(now_ms);
            self.update_forwarding(now_ms);
        }
    }

    /// Whether the port may be used for traffic.
    pub fn is_forwarding(&mut self, now_ms: u64) -> bool {
        self.update_forwarding(now_ms)
    }

    /// A command says whether the port may be used, or `None`: the session does.
    pub fn force_forwarding(&mut self, forced: Option<bool>) {
        self.forwarding.forced = forced;
        self.status_changed = true;
    }

    /// What the database tells.
    pub fn status(&mut self, now_ms: u64) -> Status {
        Status {
            forwarding: self.update_forwarding(now_ms),
            state: self.local.state,
            diagnostic: self.local.diagnostic,
            flap_count: self.forwarding.flaps,
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
        }
    }

    /// Whether [`Session::status`] may say something else than before; asks once.
    pub fn take_status_change(&mut self) -> bool {
        std::mem::take(&mut self.status_changed)
    }

    /// Whether it needs to know what its port receives.
    pub fn needs_rx_packets(&self) -> bool {
        self.config.decay_min_rx_ms > 0 || self.config.forwarding_if_rx
    }

    /// This end's number for it, `bfd.LocalDiscr`.
    pub fn discriminator(&self) -> u32 {
        self.local.discriminator
    }

    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is asked for.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts a flap each time that the outcome changes, so it is called before and behind each change.
    pub(crate) fn update_forwarding(&mut self, now_ms: u64) -> bool {
        let Forwarding { last, forced, traffic_until_ms, control_until_ms, .. } = self.forwarding;
        if let Some(forced) = forced {
            return forced;
        }
        let by_traffic = self.config.forwarding_if_rx && traffic_until_ms > now_ms && control_until_ms > now_ms;
        let is_up = self.local.state == State::Up || by_traffic;
        let now = is_up && !self.remote.diagnostic.is_path_down();
        if now != last {
            self.forwarding.last = now;
            self.forwarding.flaps += 1;
            self.status_changed = true;
        }
        now
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.local.flags.has(Flags::POLL)
    }

    /// Begins a poll sequence about the configured values, if the session is not in one.
    fn poll(&mut self) {
        let flags = &mut self.local.flags;
        if self.local.state <= State::Down || flags.has(Flags::POLL) || flags.has(Flags::FINAL) {
            return;
        }
        flags.set(Flags::POLL);
        let rx_ms = if self.decay.is_on { self.config.decay_ms() } else { self.config.min_rx_ms.into() };
        self.polled = Intervals { tx_ms: self.config.min_tx_ms.into(), rx_ms };
        self.timers.next_tx_ms = 0;
        tracing::info!(target: "bfd", rate_limit = LOG_RATE, "{}: Initiating poll sequence", self.name);
    }

    /// What is sent as the least time between packets.
    pub(crate) fn min_tx_ms(&self) -> u64 {
        let tx_ms = self.local.min.tx_ms;
        if self.local.state == State::Up { tx_ms } else { tx_ms.max(SLOW_TX_MS) }
    }

    pub(crate) fn tx_interval_ms(&self) -> u64 {
        self.min_tx_ms().max(self.remote.min.rx_ms)
    }

    pub(crate) fn rx_interval_ms(&self) -> u64 {
        self.local.min.rx_ms.max(self.remote.min.tx_ms)
    }

    /// Plans the next packet, sooner than the interval by up to a quarter, RFC 5880 section 6.8.7.
    pub(crate) fn plan_tx(&mut self) {
        let interval = self.tx_interval_ms();
        let percent = if self.config.mult == 1 { 10 + self.random(16) } else { self.random(26) };
        self.timers.next_tx_ms = self.timers.last_tx_ms + interval - interval * percent / 100;
    }

    /// A number below the limit. Source: Marsaglia, "Xorshift RNGs".
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        u64::from(self.random) % below
    }

    pub(crate) fn set_state(&mut self, state: State, diagnostic: Diagnostic, rx_packets: u64, now_ms: u64) {
        let diagnostic = if self.config.cpath_down { Diagnostic::CONCATENATED_PATH_DOWN } else { diagnostic };
        if (self.local.state, self.local.diagnostic) == (state, diagnostic) {
            return;
        }
        self.log_change(state, diagnostic, now_ms);
        (self.local.state, self.local.diagnostic) = (state, diagnostic);
        if state <= State::Down {
            let min = Intervals { tx_ms: 0, rx_ms: 1 };
            self.remote = Remote { min, mult: self.remote.mult, ..Remote::default() };
            if std::mem::take(&mut self.decay.is_on) {
                self.local.min.rx_ms = self.config.min_rx_ms.into();
            }
        }
        if state == State::Up && self.config.decay_ms() > 0 {
            self.look_at_decay_later(rx_packets, now_ms);
        }
        self.status_changed = true;
    }

    fn look_at_decay_later(&mut self, rx_packets: u64, now_ms: u64) {
        let next_look_ms = now_ms + self.config.decay_ms().max(LOOK_OVER_MS);
        self.decay = Decay { control_packets: 0, rx_packets, next_look_ms, ..self.decay };
    }

    fn note_traffic(&mut self, now_ms: u64) {
        let lasts_ms = self.rx_interval_ms() * u64::from(self.config.mult);
        self.forwarding.traffic_until_ms = now_ms + lasts_ms.max(LOOK_OVER_MS);
    }
}

/// As packets carry it.
fn microseconds(ms: u64) -> u32 {
    u32::try_from(ms * 1000).unwrap_or(u32::MAX)
}
