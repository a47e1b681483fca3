//! Queueing disciplines: what settings ask for, and how the kernel is asked for it.

use crate::message::{Request, Subject, TC_H_ROOT, TCA_KIND, TCA_OPTIONS, Verb, flag, words};
use crate::psched::Ticks;
use crate::settings::{Settings, number, number_or, shown};
use crate::{Class, ROOT};

/// The rate of a device that does not tell its own, bits a second. Source: Open vSwitch lib/netdev.h,
/// `NETDEV_DEFAULT_BPS`.
const USUAL_BPS: u64 = 100_000_000;

/// A device, as far as disciplines depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Its speed, bits a second, if it knows.
    pub speed_bps: Option<u64>,
}

/// A queueing discipline of Open vSwitch's. Rates are bytes a second.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the settings of Open vSwitch's database, which documents them")]
pub enum Discipline {
    Htb {
        max_rate: u64,
    },
    Hfsc {
        max_rate: u32,
    },
    Sfq {
        quantum: u32,
        perturb: u32,
    },
    Codel {
        target: u32,
        limit: u32,
        interval: u32,
    },
    FqCodel {
        target: u32,
        limit: u32,
        interval: u32,
        flows: u32,
        quantum: u32,
    },
    Netem {
        latency: u32,
        limit: u32,
        loss: u32,
    },
    /// The device's discipline is left to its user.
    Noop,
}

/// Settings that no discipline has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// There is no such type.
    #[error("unknown QoS type {0}")]
    Type(String),
    /// More packets would be lost than there are.
    #[error("loss should be a percentage value between 0 to 100, loss was {0}")]
    Loss(u32),
}

impl Discipline {
    /// The types, by the names that Open vSwitch has for them.
    pub const TYPES: [&str; 7] =
        ["linux-codel", "linux-fq_codel", "linux-hfsc", "linux-htb", "linux-netem", "linux-noop", "linux-sfq"];

    /// The discipline of a type with these settings. Source: Open vSwitch, `*_parse_qdisc_details__`.
    ///
    /// # Errors
    /// If there is none.
    pub fn read(kind: &str, settings: &Settings, device: &Device) -> Result<Self, InvalidSettings> {
        let or = |key, usual| number_or(settings, key, usual);
        let max_rate = match number(settings, "max-rate") / 8 {
            0 => device.speed_bps.unwrap_or(USUAL_BPS) / 8,
            rate => rate,
        };
        let (target, limit, interval) = (or("target", 5000), or("limit", 10_240), or("interval", 100_000));
        Ok(match kind {
            "linux-htb" => Discipline::Htb { max_rate },
            "linux-hfsc" => Discipline::Hfsc { max_rate: u32::try_from(max_rate).unwrap_or(u32::MAX) },
            "linux-sfq" => Discipline::Sfq { quantum: or("quantum", device.mtu), perturb: or("perturb", 10) },
            "linux-codel" => Discipline::Codel { target, limit, interval },
            "linux-fq_codel" => {
                let (flows, quantum) = (or("flows", 1024), or("quantum", 1514));
                Discipline::FqCodel { target, limit, interval, flows, quantum }
            }
            "linux-netem" => match or("loss", 0) {
                loss if loss > 100 => return Err(InvalidSettings::Loss(loss)),
                loss => Discipline::Netem { latency: or("latency", 0), limit: or("limit", 1000), loss },
            },
            "linux-noop" => Discipline::Noop,
            other => return Err(InvalidSettings::Type(other.to_owned())),
        })
    }

    /// Its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Discipline::Htb { .. } => "linux-htb",
            Discipline::Hfsc { .. } => "linux-hfsc",
            Discipline::Sfq { .. } => "linux-sfq",
            Discipline::Codel { .. } => "linux-codel",
            Discipline::FqCodel { .. } => "linux-fq_codel",
            Discipline::Netem { .. } => "linux-netem",
            Discipline::Noop => "linux-noop",
        }
    }

    /// The kernel's name for it.
    fn kernel_kind(&self) -> &'static str {
        self.kind().trim_start_matches("linux-")
    }

    /// Whether it has classes for queues.
    pub fn has_classes(&self) -> bool {
        matches!(self, Discipline::Htb { .. } | Discipline::Hfsc { .. })
    }

    /// Its settings, as they are in force.
    pub fn settings(&self) -> Settings {
        let n = u64::from;
        match *self {
            Discipline::Htb { max_rate } => shown([("max-rate", 8 * max_rate)]),
            Discipline::Hfsc { max_rate } => shown([("max-rate", 8 * n(max_rate))]),
            Discipline::Sfq { quantum, perturb } => shown([("quantum", n(quantum)), ("perturb", n(perturb))]),
            Discipline::Codel { target, limit, interval } => {
                shown([("target", n(target)), ("limit", n(limit)), ("interval", n(interval))])
            }
            Discipline::FqCodel { target, limit, interval, flows, quantum } => {
                let delays = [("target", n(target)), ("limit", n(limit)), ("interval", n(interval))];
                let [a, b, c] = delays;
                shown([a, b, c, ("flows", n(flows)), ("quantum", n(quantum))])
            }
            Discipline::Netem { latency, limit, loss } => {
                shown([("latency", n(latency)), ("limit", n(limit)), ("loss", n(loss))])
            }
            Discipline::Noop => Settings::new(),
        }
    }

    /// The class with the port's rate, of a discipline that has classes.
    pub(crate) fn port_class(&self) -> Option<Class> {
        match *self {
            Discipline::Htb { max_rate } => Some(Class::Htb { min_rate: max_rate, max_rate, burst: 0, priority: 0 }),
            Discipline::Hfsc { max_rate } => Some(Class::Hfsc { min_rate: max_rate, max_rate }),
            _ => None,
        }
    }

    /// The message that makes it the root discipline of a device that has the usual one.
    pub(crate) fn request(&self, device: &Device, ticks: Ticks) -> Request {
        let subject = Subject { device: device.index, handle: ROOT, parent: TC_H_ROOT };
        let mut request = Request::new(Verb::NewQdisc, flag::ACK | flag::EXCLUSIVE | flag::CREATE, subject);
        request.put_text(TCA_KIND, self.kernel_kind());
        match *self {
            Discipline::Htb { .. } => {
                request.nest(TCA_OPTIONS, |options| {
                    options.put(htb::TCA_HTB_INIT, &htb::glob());
                });
            }
            // `struct tc_hfsc_qopt`: the class of packets that name none.
            Discipline::Hfsc { .. } => {
                request.put(TCA_OPTIONS, &1_u16.to_ne_bytes());
            }
            // `struct tc_sfq_qopt`: quantum, perturb_period, limit, divisor, flows.
            Discipline::Sfq { quantum, perturb } => {
                request.put(TCA_OPTIONS, &words([quantum, perturb, 0, 0, 0]));
            }
            Discipline::Codel { target, limit, interval } => {
                request.nest(TCA_OPTIONS, |options| {
                    options.put_u32(1, target).put_u32(2, limit).put_u32(3, interval);
                });
            }
            Discipline::FqCodel { target, limit, interval, flows, quantum } => {
                request.nest(TCA_OPTIONS, |options| {
                    options.put_u32(1, target).put_u32(2, limit).put_u32(3, interval);
                    options.put_u32(5, flows).put_u32(6, quantum);
                });
            }
            // `struct tc_netem_qopt`: latency, limit, loss, gap, duplicate, jitter.
            Discipline::Netem { latency, limit, loss } => {
                let loss = (u64::from(u32::MAX) * u64::from(loss) / 100) as u32;
                request.put(TCA_OPTIONS, &words([ticks.of_us(latency.into()), limit, loss, 0, 0, 0]));
            }
            Discipline::Noop => {}
        }
        request
    }
}

/// What classes and disciplines of linux-htb have in common.
pub(crate) mod htb {
    use crate::message::words;

    pub const TCA_HTB_INIT: u16 = 2;
    /// Bytes a second of a class's rate for each byte of its quantum.
    pub const RATE_TO_QUANTUM: u32 = 10;
    const VERSION: u32 = 3;
    const DEFAULT_CLASS: u32 = 1;

    /// `struct tc_htb_glob`: version, rate2quantum, defcls, debug, direct_pkts.
    pub fn glob() -> Vec<u8> {
        words([VERSION, RATE_TO_QUANTUM, DEFAULT_CLASS, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device { index: 3, mtu: 1500, speed_bps: None };

    fn read(kind: &str, settings: &[(&str, &str)]) -> Result<Discipline, InvalidSettings> {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Discipline::read(kind, &settings, &DEVICE)
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let shown = |kind: &str| {
            let settings = read(kind, &[]).unwrap().settings();
            settings.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("linux-htb"), "max-rate=100000000");
        assert_eq!(shown("linux-hfsc"), "max-rate=100000000");
        assert_eq!(shown("linux-sfq"), "perturb=10 quantum=1500");
        assert_eq!(shown("linux-codel"), "interval=100000 limit=10240 target=5000");
        assert_eq!(shown("linux-fq_codel"), "flows=1024 interval=100000 limit=10240 quantum=1514 target=5000");
        assert_eq!(shown("linux-netem"), "latency=0 limit=1000 loss=0");
        assert_eq!(shown("linux-noop"), "");
        let fast = Device { speed_bps: Some(25_000_000_000), ..DEVICE };
        let fast = Discipline::read("linux-htb", &Settings::new(), &fast).unwrap();
        assert_eq!(fast, Discipline::Htb { max_rate: 3_125_000_000 });
    }

    #[test]
    fn every_type_is_known_and_others_are_refused() {
        for kind in Discipline::TYPES {
            assert_eq!(read(kind, &[]).unwrap().kind(), kind);
        }
        assert_eq!(read("egress-policer", &[]), Err(InvalidSettings::Type("egress-policer".into())));
        assert_eq!(read("linux-netem", &[("loss", "101")]), Err(InvalidSettings::Loss(101)));
        assert_eq!(read("linux-sfq", &[("quantum", "x")]), Ok(Discipline::Sfq { quantum: 1500, perturb: 10 }));
    }
}
