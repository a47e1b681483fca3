//! Classes of disciplines: one for the port, and one for each queue below it.

use crate::discipline::{Device, Discipline, htb};
use crate::message::{Request, Subject, TCA_KIND, TCA_OPTIONS, Verb, flag, words};
use crate::psched::Ticks;
use crate::settings::{Settings, number, shown};

/// A class. Rates are bytes a second, bursts bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the settings of Open vSwitch's database, which documents them")]
pub enum Class {
    Htb { min_rate: u64, max_rate: u64, burst: u64, priority: u32 },
    Hfsc { min_rate: u32, max_rate: u32 },
}

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

/// Real-time, fair-share and upper-limit service curves.
const TCA_HFSC_CURVES: [u16; 3] = [1, 2, 3];

/// The smallest frame with its checksum, as which a shorter one counts.
const FRAME_MIN: u16 = 64;
const LINKLAYER_ETHERNET: u8 = 1;

/// What a burst is larger than the MTU at least: room for headers. Source: Open vSwitch, `htb_parse_class_details__`.
const HEADROOM: u64 = 64;

impl Class {
    /// The class of a queue with these settings; `None`: the discipline has no classes.
    /// Source: Open vSwitch, `*_parse_class_details__`.
    pub fn read(discipline: &Discipline, settings: &Settings, device: &Device) -> Option<Self> {
        let number = |key| number(settings, key);
        let mtu = u64::from(device.mtu);
        match *discipline {
            Discipline::Htb { max_rate: of_port } => {
                // A class with less than a packet a second would send nothing even on an idle link.
                let min_rate = (number("min-rate") / 8).max(mtu).min(of_port);
                let max_rate = if number("max-rate") == 0 { of_port } else { number("max-rate") / 8 };
                Some(Class::Htb {
                    min_rate,
                    max_rate: max_rate.max(min_rate).min(of_port),
                    burst: (number("burst") / 8).max(mtu + HEADROOM),
                    priority: u32::try_from(number("priority")).unwrap_or(u32::MAX),
                })
            }
            Discipline::Hfsc { max_rate: of_port } => {
                let rate = |rate: u64| u32::try_from(rate).unwrap_or(u32::MAX);
                let min_rate = rate(number("min-rate") / 8).max(1).min(of_port);
                let max_rate = if number("max-rate") == 0 { of_port } else { rate(number("max-rate") / 8) };
                Some(Class::Hfsc { min_rate, max_rate: max_rate.max(min_rate).min(of_port) })
            }
            _ => None,
        }
    }

    /// Its settings, as they are in force.
    pub fn settings(&self) -> Settings {
        let (min_rate, max_rate, others) = match *self {
            Class::Htb { min_rate, max_rate, burst, priority } => {
                let mut others = shown([("burst", 8 * burst)]);
                others.extend((priority != 0).then(|| ("priority".to_owned(), priority.to_string())));
                (min_rate, max_rate, others)
            }
            Class::Hfsc { min_rate, max_rate } => (min_rate.into(), max_rate.into(), Settings::new()),
        };
        let mut settings = shown([("min-rate", 8 * min_rate)]);
        settings.extend((min_rate != max_rate).then(|| ("max-rate".to_owned(), (8 * max_rate).to_string())));
        settings.extend(others);
        settings
    }

    /// The message that makes it, or changes the one that there is, below `parent`.
    pub(crate) fn request(&self, device: &Device, handle: u32, parent: u32, ticks: Ticks) -> Request {
        let subject = Subject { device: device.index, handle, parent };
        let mut request = Request::new(Verb::NewClass, flag::ACK | flag::CREATE, subject);
        match *self {
            Class::Htb { min_rate, max_rate, .. } => {
                request.put_text(TCA_KIND, "htb").nest(TCA_OPTIONS, |options| {
                    options.put(TCA_HTB_PARMS, &self.htb_options(device.mtu, ticks));
                    for (kind, rate) in [(TCA_HTB_RATE64, min_rate), (TCA_HTB_CEIL64, max_rate)] {
                        if rate > u64::from(u32::MAX) {
                            options.put(kind, &rate.to_ne_bytes());
                        }
                    }
                });
            }
            Class::Hfsc { min_rate, max_rate } => {
                request.put_text(TCA_KIND, "hfsc").nest(TCA_OPTIONS, |options| {
                    for (kind, rate) in TCA_HFSC_CURVES.into_iter().zip([min_rate, min_rate, max_rate]) {
                        // `struct tc_service_curve`: m1, d, m2.
                        options.put(kind, &words([0, 0, rate]));
                    }
                });
            }
        }
        request
    }

    /// `struct tc_htb_opt`: rate, ceil, buffer, cbuffer, quantum, level, prio.
    fn htb_options(&self, mtu: u32, ticks: Ticks) -> Vec<u8> {
        let Class::Htb { min_rate, max_rate, burst, priority } = *self else { return Vec::new() };
        let buffer = |rate: u64| {
            let least = ticks.bytes_of_timer(rate) + u64::from(mtu);
            ticks.of_bytes(burst.max(least), rate)
        };
        // A quantum below the MTU would be warned of; 0: as the rate says.
        let quantum = if min_rate / u64::from(htb::RATE_TO_QUANTUM) < u64::from(mtu) { mtu } else { 0 };
        let rest = words([buffer(min_rate), buffer(max_rate), quantum, 0, priority]);
        [rate_spec(min_rate, mtu), rate_spec(max_rate, mtu), rest].concat()
    }
}

/// `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate.
///
/// The link layer is named, which spares the table of rates that kernels before 3.8 asked for.
fn rate_spec(rate: u64, mtu: u32) -> Vec<u8> {
    let mut spec = vec![cell_log(mtu), LINKLAYER_ETHERNET, 0, 0, 0, 0];
    spec.extend(FRAME_MIN.to_ne_bytes());
    spec.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// The binary logarithm of a cell, of which 256 hold the longest frame.
fn cell_log(mtu: u32) -> u8 {
    const HEADERS: u32 = 18;
    let longest = mtu.saturating_add(HEADERS);
    (0..24).find(|log| longest >> log < 256).unwrap_or(24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{attribute, messages, read_tc, u32_at, u64_at};

    const DEVICE: Device = Device { index: 3, mtu: 1500, speed_bps: None };

    fn class(discipline: &Discipline, settings: &[(&str, &str)]) -> Class {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Class::read(discipline, &settings, &DEVICE).unwrap()
    }

    /// The numbers that Open vSwitch's test "QoS - basic configuration" finds in the kernel.
    #[test]
    fn a_queue_gets_its_rates_and_its_burst() {
        let settings = [("min-rate", "2000000"), ("max-rate", "3000000"), ("burst", "3000000")];
        let htb = class(&Discipline::Htb { max_rate: 375_000 }, &settings);
        assert_eq!(htb, Class::Htb { min_rate: 250_000, max_rate: 375_000, burst: 375_000, priority: 0 });
        let bytes = htb.request(&DEVICE, 0x1_0001, 0x1_fffe, Ticks::default()).finish(1);
        let message = messages(&bytes).next().unwrap();
        let (_, attributes) = read_tc(message.body).unwrap();
        let parms = attribute(attribute(attributes, TCA_OPTIONS).unwrap(), TCA_HTB_PARMS).unwrap();
        assert_eq!((parms.len(), u32_at(parms, 8), u32_at(parms, 20)), (44, Some(250_000), Some(375_000)));
        assert_eq!((u32_at(parms, 24), u32_at(parms, 28)), (Some(23_437_500), Some(15_625_000)));
    }

    #[test]
    fn rates_stay_within_the_ports_and_the_mtu() {
        let htb = Discipline::Htb { max_rate: 1_000_000 };
        let usual = Class::Htb { min_rate: 1500, max_rate: 1_000_000, burst: 1564, priority: 0 };
        assert_eq!(class(&htb, &[]), usual);
        let greedy = class(&htb, &[("min-rate", "90000000"), ("max-rate", "8"), ("priority", "3")]);
        assert_eq!(greedy, Class::Htb { min_rate: 1_000_000, max_rate: 1_000_000, burst: 1564, priority: 3 });
        let hfsc = Discipline::Hfsc { max_rate: 1000 };
        assert_eq!(class(&hfsc, &[("max-rate", "800")]), Class::Hfsc { min_rate: 1, max_rate: 100 });
        assert_eq!(Class::read(&Discipline::Noop, &Settings::new(), &DEVICE), None);
    }

    #[test]
    fn rates_beyond_32_bits_have_attributes_of_their_own() {
        let fast = class(&Discipline::Htb { max_rate: 12_500_000_000 }, &[]);
        let bytes = fast.request(&DEVICE, 1, 2, Ticks::default()).finish(1);
        let (_, attributes) = read_tc(messages(&bytes).next().unwrap().body).unwrap();
        let options = attribute(attributes, TCA_OPTIONS).unwrap();
        assert_eq!(attribute(options, TCA_HTB_CEIL64).and_then(|rate| u64_at(rate, 0)), Some(12_500_000_000));
        assert_eq!(attribute(options, TCA_HTB_RATE64), None);
    }

    #[test]
    fn settings_in_force_are_shown() {
        let shown = |class: Class| {
            let pairs = class.settings().into_iter().map(|(key, value)| format!("{key}={value}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        let htb = Class::Htb { min_rate: 1, max_rate: 2, burst: 3, priority: 4 };
        assert_eq!(shown(htb), "burst=24 max-rate=16 min-rate=8 priority=4");
        assert_eq!(shown(Class::Hfsc { min_rate: 2, max_rate: 2 }), "min-rate=16");
    }

    #[test]
    fn cells_hold_the_longest_frame() {
        assert_eq!([0, 237, 238, 1500, 65_535, u32::MAX].map(cell_log), [0, 0, 1, 3, 9, 24]);
    }
}
