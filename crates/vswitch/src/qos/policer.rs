//! QoS of a port that is no device of the kernel: a policer of what is sent to it.
//! Source: Open vSwitch lib/netdev-dpdk.c, `egress_policer_*`, `trtcm_policer_*`.

use super::{DEFAULT_QUEUE, QosStatus, QueueCounters, QueueStatus};
use crate::desired::Qos;
use sluice_policer::{EgressPolicer, QueuePolicer, Rate, TrTcmRates};
use sluice_tc::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The types.
pub const EGRESS_POLICER: &str = "egress-policer";
pub const TRTCM_POLICER: &str = "trtcm-policer";

/// A policer that is in force.
#[derive(Debug)]
pub(super) struct PolicerQos {
    wanted: Qos,
    settings: Settings,
    policer: Arc<EgressPolicer>,
    /// When each queue was made.
    created_ms: BTreeMap<u32, u64>,
}

impl PolicerQos {
    /// The policer that a port is to have, with full buckets unless nothing has changed; `None` if there can be none.
    pub fn make(name: &str, had: Option<&PolicerQos>, wanted: &Qos, now_ms: u64) -> Option<Self> {
        let same = had.filter(|had| {
            let rates = |qos: &Qos| -> BTreeMap<u32, Settings> {
                qos.queues.iter().map(|(number, queue)| (*number, queue.settings.clone())).collect()
            };
            (&had.wanted.kind, &had.wanted.settings) == (&wanted.kind, &wanted.settings)
                && rates(&had.wanted) == rates(wanted)
        });
        let (settings, policer) = match same {
            Some(same) => (same.settings.clone(), Arc::clone(&same.policer)),
            None => {
                let (settings, policer) = if wanted.kind == EGRESS_POLICER {
                    single(name, &wanted.settings)?
                } else {
                    by_queue(name, wanted)?
                };
                (settings, Arc::new(policer))
            }
        };
        let before = had.map(|had| &had.created_ms);
        let created = |number| before.and_then(|before| before.get(&number)).copied().unwrap_or(now_ms);
        let numbers = policer.queues().into_iter().flatten().map(|(number, _)| *number);
        let created_ms = numbers.map(|number| (number, created(number))).collect();
        Some(PolicerQos { wanted: wanted.clone(), settings, policer, created_ms })
    }

    pub fn policer(&self) -> Arc<EgressPolicer> {
        Arc::clone(&self.policer)
    }

    /// Whether it is the policer of the other.
    pub fn has_policer_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policer, &other.policer)
    }

    /// What it is, and what it has counted.
    pub fn status(&self) -> QosStatus {
        let queues = self.policer.queues().into_iter().flatten().map(|(number, queue)| {
            let counts = queue.counts();
            let counters = QueueCounters {
                tx_packets: counts.packets,
                tx_bytes: counts.bytes,
                tx_errors: counts.errors,
                created_ms: self.created_ms.get(number).copied().unwrap_or(0),
            };
            (*number, QueueStatus { settings: shown(queue.rates()), counters: Ok(counters) })
        });
        QosStatus { kind: self.wanted.kind.clone(), settings: self.settings.clone(), queues: queues.collect() }
    }
}

/// `egress-policer`: bytes a second and of a burst.
fn single(name: &str, settings: &Settings) -> Option<(Settings, EgressPolicer)> {
    let TrTcmRates { cir, cbs, .. } = rates(settings);
    if cir == 0 || cbs == 0 {
        tracing::error!(target: "netdev_dpdk", "Could not create rte meter for egress policer");
        log_failure(name, EGRESS_POLICER, "Invalid argument");
        return None;
    }
    let shown = [("cir", cir), ("cbs", cbs)].map(|(key, value)| (key.to_owned(), value.to_string()));
    Some((shown.into(), EgressPolicer::single(Rate { per_second: cir, burst: cbs })))
}

/// `trtcm-policer`: a marker for the port, and one for each queue.
fn by_queue(name: &str, wanted: &Qos) -> Option<(Settings, EgressPolicer)> {
    let port = rates(&wanted.settings);
    if !port.is_valid() {
        log_failure(name, TRTCM_POLICER, "Invalid argument");
        return None;
    }
    let mut queues = BTreeMap::new();
    for (number, queue) in &wanted.queues {
        // A default queue that says nothing has the port's rates.
        let is_as_port = *number == DEFAULT_QUEUE && queue.settings.is_empty();
        let rates = if is_as_port { port } else { rates(&queue.settings) };
        if rates.is_valid() {
            queues.insert(*number, QueuePolicer::new(rates));
        } else {
            tracing::error!(
                target: "netdev_dpdk", "Failed to set QoS queue {number} on port {name}: Invalid argument"
            );
        }
    }
    if !wanted.queues.contains_key(&DEFAULT_QUEUE) {
        queues.insert(DEFAULT_QUEUE, QueuePolicer::new(port));
    }
    Some((shown(port), EgressPolicer::by_queue(port, queues)))
}

fn rates(settings: &Settings) -> TrTcmRates {
    let number = |key| settings.get(key).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    TrTcmRates { cir: number("cir"), cbs: number("cbs"), eir: number("eir"), ebs: number("ebs") }
}

fn shown(rates: TrTcmRates) -> Settings {
    let TrTcmRates { cir, cbs, eir, ebs } = rates;
    let pairs = [("cir", cir), ("cbs", cbs), ("eir", eir), ("ebs", ebs)];
    pairs.map(|(key, value)| (key.to_owned(), value.to_string())).into()
}

pub(super) fn log_failure(name: &str, kind: &str, why: &str) {
    tracing::error!(target: "netdev_dpdk", "Failed to set QoS type {kind} on port {name}: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::Queue;
    use sluice_policer::{Color, Marked};

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn qos(kind: &str, pairs: &[(&str, &str)], queues: &[(u32, &[(&str, &str)])]) -> Qos {
        let queue = |pairs| Queue { settings: settings(pairs), ..Queue::default() };
        let queues = queues.iter().map(|(number, pairs)| (*number, queue(pairs))).collect();
        Qos { kind: kind.to_owned(), settings: settings(pairs), queues }
    }

    #[test]
    fn rates_that_a_meter_refuses_make_no_policer() {
        let make = |qos: Qos| PolicerQos::make("p1", None, &qos, 5).is_some();
        for (pairs, is_made) in [
            (&[("cir", "46000000"), ("cbs", "2048")][..], true),
            (&[("cir", "46000000")], false),
            (&[("cbs", "2048")], false),
            (&[("cir", "x"), ("cbs", "1")], false),
        ] {
            assert_eq!(make(qos(EGRESS_POLICER, pairs, &[])), is_made, "{pairs:?}");
        }
        assert!(make(qos(TRTCM_POLICER, &[], &[])) && !make(qos(TRTCM_POLICER, &[("eir", "1")], &[])));
    }

    #[test]
    fn a_default_queue_has_the_ports_rates() {
        let port = [("cir", "1000"), ("cbs", "100"), ("eir", "10"), ("ebs", "50")];
        let wanted = qos(TRTCM_POLICER, &port, &[(1, &[("cir", "7"), ("cbs", "8")]), (2, &[("cir", "7")])]);
        let status = PolicerQos::make("p1", None, &wanted, 5).unwrap().status();
        assert_eq!(status.settings, settings(&port));
        // Queue 2 has no burst for its rate.
        assert_eq!(status.queues.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(status.queues[&0].settings, settings(&port));
        assert_eq!(status.queues[&1].settings["ebs"], "0");
        assert_eq!(status.queues[&1].counters.as_ref().unwrap().created_ms, 5);
    }

    #[test]
    fn buckets_stay_as_they_are_unless_their_rates_change() {
        let wanted = qos(TRTCM_POLICER, &[("cir", "1"), ("cbs", "100")], &[(1, &[("cir", "1"), ("cbs", "60")])]);
        let before = PolicerQos::make("p1", None, &wanted, 5).unwrap();
        let mut packet = [Marked { tokens: 60, queue: 1, color: Color::Green }];
        before.policer().admit(&mut packet, 0);
        let mut marked = wanted.clone();
        marked.queues.get_mut(&1).unwrap().dscp = Some(46);
        let after = PolicerQos::make("p1", Some(&before), &marked, 9).unwrap();
        assert!(before.has_policer_of(&after));
        let faster = qos(TRTCM_POLICER, &[("cir", "2"), ("cbs", "100")], &[(1, &[("cir", "1"), ("cbs", "60")])]);
        let after = PolicerQos::make("p1", Some(&before), &faster, 9).unwrap();
        assert!(!before.has_policer_of(&after));
        assert_eq!(after.status().queues[&1].counters.as_ref().unwrap().created_ms, 5);
    }
}
