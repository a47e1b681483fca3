//! What differs between two outcomes, in words that name the place.

use crate::canonical::without_tags;
use crate::trace::Tail;
use crate::values::hex;
use crate::{Outcome, Sent};
use std::collections::{BTreeMap, BTreeSet};

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `output`, `flow`, `final`, `mask`, `trace`, `megaflow`, `actions`, `counter`; `uncounted` and `wider`, of which
    /// `known` tells; `run` if a side could not be asked, `ended` if OVS was gone.
    pub kind: &'static str,
    /// What it is about: a packet, a megaflow, a rule.
    pub what: String,
    /// What Open vSwitch has; empty if nothing.
    pub peer: String,
    /// What Sluice has; empty if nothing.
    pub ours: String,
    /// The packet that came in, if one packet made the difference.
    pub input: Option<usize>,
    /// What `ofproto/trace` said in Sluice of that packet.
    pub trace: String,
}

impl Difference {
    pub fn new(kind: &'static str, what: &str, peer: &str, ours: &str) -> Self {
        Difference { kind, what: what.into(), peer: peer.into(), ours: ours.into(), input: None, trace: String::new() }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}\n    ovs    {}\n    sluice {}", self.kind, self.what, self.peer, self.ours)
    }
}

/// Everything that differs.
pub fn differences(peer: &Outcome, ours: &Outcome) -> Vec<Difference> {
    let mut out = Vec::new();
    outputs(&peer.sent, &ours.sent, &mut out);
    for difference in &mut out {
        difference.trace = difference.input.and_then(|i| ours.traces.get(i)).cloned().unwrap_or_default();
    }
    traces(&peer.traces, &ours.traces, &mut out);
    if peer.megaflows.is_empty() {
        // Open vSwitch was made to forget them: rules learned from packets.
        counters(peer, ours, &mut out);
        return out;
    }
    megaflows(peer, ours, &mut out);
    for (key, actions) in &peer.megaflows {
        match ours.megaflows.get(key) {
            Some(other) if other != actions => {
                out.push(Difference::new("actions", key, actions, other));
            }
            _ => {}
        }
    }
    counters(peer, ours, &mut out);
    out
}

/// What `ofproto/trace` says of each packet: the flow as it came, as it ended, the megaflow and its actions.
fn traces(peer: &[String], ours: &[String], out: &mut Vec<Difference>) {
    if peer.len() != ours.len() {
        let count = |traces: &[String]| format!("{} traces", traces.len());
        out.push(Difference::new("trace", "how many", &count(peer), &count(ours)));
    }
    for (i, (peer, ours)) in peer.iter().zip(ours).enumerate() {
        let (left, right) = (Tail::all(peer), Tail::all(ours));
        if left.len() != right.len() {
            out.push(Difference::new("trace", &format!("packet {i}: passes"), peer, ours));
        }
        for (left, right) in left.iter().zip(&right) {
            // What is set follows what is matched; the packets show whether it is set right.
            let (left, right) = if left.has_mask_of(right) {
                (left.clone(), right.clone())
            } else {
                (left.without_values(), right.without_values())
            };
            for ((kind, left), (_, right)) in left.parts().into_iter().zip(right.parts()) {
                if left != right {
                    let difference = Difference::new(kind, &format!("trace of packet {i}"), left, right);
                    out.push(Difference { trace: ours.clone(), ..difference });
                }
            }
        }
    }
}

/// Megaflows that one side lacks; each beside the one of the other side most like it, to be read together.
fn megaflows(peer: &Outcome, ours: &Outcome, out: &mut Vec<Difference>) {
    let mut theirs: Vec<&String> = peer.megaflows.keys().filter(|k| !ours.megaflows.contains_key(*k)).collect();
    let mut spare: Vec<&String> = ours.megaflows.keys().filter(|k| !peer.megaflows.contains_key(*k)).collect();
    // The most alike first, so that none takes another's partner.
    while !theirs.is_empty() && !spare.is_empty() {
        let pairs = (0..theirs.len()).flat_map(|i| (0..spare.len()).map(move |j| (i, j)));
        let (i, j) = pairs.max_by_key(|(i, j)| likeness(theirs[*i], spare[*j])).expect("invariant: neither is empty");
        let (peer, ours) = (theirs.swap_remove(i).clone(), spare.swap_remove(j).clone());
        out.push(Difference::new("megaflow", "the two most alike", &peer, &ours));
    }
    for key in theirs {
        out.push(Difference::new("megaflow", "only OVS has", key, ""));
    }
    for key in spare {
        // One that differs in the number of its tags only tells most.
        let rank = |other: &&String| (without_tags(key) == without_tags(other), likeness(key, other));
        let other = peer.megaflows.keys().max_by_key(rank).cloned().unwrap_or_default();
        out.push(Difference::new("megaflow", BESIDES, &other, key));
    }
}

/// What is said of a megaflow that Sluice has in addition to all that Open vSwitch has.
pub const BESIDES: &str = "Sluice has it besides";

/// How many fields two megaflows share, less those they do not.
fn likeness(a: &str, b: &str) -> isize {
    let fields = |text: &str| text.split([',', '(', ')']).map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (fields(a), fields(b));
    let shared = a.iter().filter(|field| b.contains(field)).count();
    3 * shared as isize - a.len() as isize - b.len() as isize
}

/// Port for port, packet for packet, in order.
fn outputs(peer: &[Sent], ours: &[Sent], out: &mut Vec<Difference>) {
    let by_port = |sent: &[Sent]| {
        let mut ports: BTreeMap<u16, Vec<Sent>> = BTreeMap::new();
        sent.iter().for_each(|s| ports.entry(s.port).or_default().push(s.clone()));
        ports
    };
    let (peer, ours) = (by_port(peer), by_port(ours));
    for port in peer.keys().chain(ours.keys().filter(|p| !peer.contains_key(p))) {
        let (left, right) = (peer.get(port).map_or(&[][..], |v| v), ours.get(port).map_or(&[][..], |v| v));
        // The packets of one input stand together, so a difference stays with the input that made it.
        let mut times: Vec<u64> = left.iter().chain(right).map(|s| s.time_us).collect();
        times.sort_unstable();
        times.dedup();
        for time in times {
            let of =
                |side: &[Sent]| side.iter().filter(|s| s.time_us == time).map(|s| hex(&s.bytes)).collect::<Vec<_>>();
            let (left, right) = (of(left), of(right));
            if left != right {
                let what = format!("port {port}, because of the packet at {time} us");
                let difference = Difference::new("output", &what, &left.join(" "), &right.join(" "));
                out.push(Difference { input: Some(crate::input_at(time)), ..difference });
            }
        }
        if !left.is_sorted_by_key(|s| s.time_us) || !right.is_sorted_by_key(|s| s.time_us) {
            let what = format!("port {port}: packets are not in the order of their inputs");
            out.push(Difference::new("output", &what, "", ""));
        }
    }
}

fn counters(peer: &Outcome, ours: &Outcome, out: &mut Vec<Difference>) {
    for rule in peer.counters.keys().chain(ours.counters.keys().filter(|r| !peer.counters.contains_key(*r))) {
        let (left, right) = (peer.counters.get(rule), ours.counters.get(rule));
        if left != right {
            let text = |c: Option<&(u64, u64)>| c.map_or(String::new(), |(p, b)| format!("{p} packets, {b} bytes"));
            let is_uncounted = left.zip(right).is_some_and(|(left, right)| lacks_some_of(left, right, &peer.uncounted));
            let kind = if is_uncounted { "uncounted" } else { "counter" };
            out.push(Difference::new(kind, rule, &text(left), &text(right)));
        }
    }
}

/// Whether what `left` lacks of `right` is the sum of some of these.
fn lacks_some_of(left: &(u64, u64), right: &(u64, u64), parts: &[(u64, u64)]) -> bool {
    let (Some(packets), Some(bytes)) = (right.0.checked_sub(left.0), right.1.checked_sub(left.1)) else { return false };
    let mut sums = BTreeSet::from([(0, 0)]);
    for part in parts {
        let more: Vec<_> = sums.iter().map(|sum| (sum.0 + part.0, sum.1 + part.1)).collect();
        sums.extend(more.into_iter().filter(|sum| sum.0 <= packets && sum.1 <= bytes));
    }
    sums.contains(&(packets, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let sent = |port, time_us, byte| Sent { port, time_us, bytes: vec![byte; 2] };
        Outcome {
            sent: vec![sent(1, 10, 1), sent(1, 10, 2), sent(1, 20, 3), sent(2, 20, 3)],
            traces: vec!["Flow: in_port=1\n\nFinal flow: unchanged\nMegaflow: ip\nDatapath actions: 2\n".to_owned()],
            megaflows: [("a".to_owned(), "p1".to_owned())].into(),
            counters: [("ip".to_owned(), (1, 60))].into(),
            uncounted: Vec::new(),
        }
    }

    #[test]
    fn what_a_megaflow_lost_may_lack() {
        let kinds = |packets: u64, bytes: u64| {
            let mut ours = outcome();
            ours.counters = [("ip".into(), (1 + packets, 60 + bytes))].into();
            let peer = Outcome { uncounted: vec![(1, 50), (2, 80)], ..outcome() };
            differences(&peer, &ours).iter().map(|d| d.kind).collect::<Vec<_>>()
        };
        assert_eq!([kinds(1, 50), kinds(2, 80), kinds(3, 130)], [["uncounted"]; 3]);
        assert_eq!([kinds(1, 51), kinds(2, 50), kinds(3, 80)], [["counter"]; 3]);
    }

    #[test]
    fn equal_outcomes_have_no_difference() {
        assert_eq!(differences(&outcome(), &outcome()), []);
    }

    #[test]
    fn every_kind_of_difference_is_seen() {
        let kinds = |change: fn(&mut Outcome)| {
            let mut other = outcome();
            change(&mut other);
            differences(&outcome(), &other).iter().map(|d| d.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(|o| o.sent[0].bytes[1] = 9), ["output"]);
        assert_eq!(kinds(|o| o.sent.swap(0, 1)), ["output"], "order for one input");
        assert_eq!(kinds(|o| o.sent.swap(1, 2)), ["output"], "order of inputs");
        assert_eq!(kinds(|o| drop(o.sent.pop())), ["output"]);
        assert_eq!(kinds(|o| drop(o.megaflows.insert("b".into(), "p1".into()))), ["megaflow"]);
        assert_eq!(kinds(|o| o.megaflows.clear()), ["megaflow"]);
        assert_eq!(kinds(|o| drop(o.megaflows.insert("a".into(), "p2".into()))), ["actions"]);
        assert_eq!(kinds(|o| o.counters = [("ip".into(), (1, 61))].into()), ["counter"]);
        assert_eq!(kinds(|o| o.counters.clear()), ["counter"]);
        assert_eq!(kinds(|o| o.traces.clear()), ["trace"]);
        assert_eq!(kinds(|o| o.traces[0] = o.traces[0].replace("Megaflow: ip", "Megaflow: tcp")), ["mask"]);
        assert_eq!(kinds(|o| o.traces[0] = o.traces[0].replace("actions: 2", "actions: 3")), ["actions"]);
    }
}
