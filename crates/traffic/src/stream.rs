//! A queue's packets: the choice of flows, and their frames.

use crate::flow_space::Numbering;
use crate::frame_template::FrameTemplate;
use crate::profile::SHORT_AT_ONCE;
use crate::rng::Wyrand;
use crate::zipf::{self, AliasTable};
use crate::{Choice, Flow, FlowSpace, Pacer, Profile, Rate, SplitMix64, rng};
use std::sync::Arc;

/// The packets of one receive queue.
#[derive(Clone, Debug)]
pub struct FlowStream {
    shared: Arc<Shared>,
    /// The flows of this queue; `None` for all.
    own: Option<Vec<u32>>,
    picker: Picker,
    rate: Rate,
    catch_up_ns: u64,
    /// Packets yet to come; `None` for no end.
    left: Option<u64>,
}

/// The common part of a profile's streams.
#[derive(Debug)]
struct Shared {
    space: FlowSpace,
    /// By class.
    templates: Vec<FrameTemplate>,
    frame_size: usize,
}

/// Chooses a number below the stream's number of flows.
#[derive(Clone, Debug)]
enum Picker {
    Uniform {
        flows: u32,
        rng: Wyrand,
    },
    Sequential {
        flows: u32,
        next: u32,
    },
    /// [`SHORT_AT_ONCE`] flows from `first` on take turns, with `packets` packets each.
    Short {
        flows: u32,
        packets: u32,
        first: u32,
        /// The next packet is number `round` of flow `first + turn`.
        turn: u32,
        round: u32,
    },
    /// By weights, after the first `in_turn` flows in turn.
    Weighted {
        in_turn: u32,
        next: u32,
        table: Arc<AliasTable>,
        rng: Wyrand,
    },
    /// This queue has no flows.
    Nothing,
}

/// The hash that assigns a flow to a queue, and that its packets carry as the NIC's hash. Never 0.
#[inline]
pub const fn flow_hash(flow: u32) -> u32 {
    // Fibonacci hashing: 2^32 divided by the golden ratio. Source: Knuth, The Art of Computer Programming, 6.4.
    flow.wrapping_mul(0x9e37_79b1) | 1
}

impl FlowStream {
    /// The streams of `queues` queues.
    pub(crate) fn split(profile: &Profile, space: &FlowSpace, queues: usize) -> Vec<FlowStream> {
        let template = |first| FrameTemplate::new(first, profile);
        let shared = Arc::new(Shared {
            space: space.clone(),
            templates: space.first_flows().map(template).collect(),
            frame_size: profile.frame_size,
        });
        let mut lists: Vec<Option<Vec<u32>>> = vec![None; queues];
        if queues > 1 {
            lists.fill(Some(Vec::new()));
            for flow in 0..space.len() {
                let queue = rng::below(queues as u32, u64::from(flow_hash(flow)) << 32) as usize;
                lists[queue].as_mut().expect("invariant: just filled").push(flow);
            }
        }
        let weight = |flow: u32| match profile.choice {
            Choice::Zipf(exponent) => zipf::weight(flow + 1, exponent),
            Choice::Hot(percent) => {
                let (classes, share) = (space.classes(), percent / 100.0);
                let others = f64::from((classes - 1).max(1));
                if (flow + 1).is_multiple_of(classes) { share * others } else { 1.0 - share }
            }
            _ => 1.0,
        };
        let weights: Vec<f64> = lists
            .iter()
            .map(|own| own.as_ref().map_or(1.0, |own| own.iter().map(|flow| weight(*flow)).sum()))
            .collect();
        let all: f64 = weights.iter().sum();
        let mut before = 0.0;
        lists
            .into_iter()
            .zip(weights)
            .zip(0u64..)
            .map(|((own, share), queue)| {
                // Rounded at the boundaries between queues, so that the parts add up to the whole.
                let border = |part: f64| profile.count.map(|count| (part / all * count as f64).round() as u64);
                let (from, to) = (border(before), border(before + share));
                before += share;
                FlowStream {
                    picker: Picker::new(profile, space, own.as_deref(), queue, weight),
                    shared: Arc::clone(&shared),
                    own,
                    rate: match profile.rate {
                        Rate::Max => Rate::Max,
                        Rate::Pps(rate) => Rate::Pps(rate * share / all),
                    },
                    catch_up_ns: profile.catch_up_ns,
                    left: from.zip(to).map(|(from, to)| to - from),
                }
            })
            .collect()
    }

    /// Chooses the flows of the next packets, as many as `flows` has room for. Returns how many there are.
    #[inline]
    pub fn pick(&mut self, flows: &mut [u32]) -> usize {
        let n = match &mut self.left {
            None => flows.len(),
            Some(left) => {
                let n = (*left).min(flows.len() as u64);
                *left -= n;
                n as usize
            }
        };
        let n = self.picker.pick(&mut flows[..n]);
        if let Some(own) = &self.own {
            flows[..n].iter_mut().for_each(|flow| *flow = own[*flow as usize]);
        }
        n
    }

    /// Writes frames. Made once a batch, so that the stores of a frame do not cause reloads.
    #[inline]
    pub fn writer(&self) -> FrameWriter<'_> {
        FrameWriter { space: self.shared.space.numbering(), templates: &self.shared.templates }
    }

    /// Flow number `flow`.
    pub fn flow(&self, flow: u32) -> Flow {
        self.shared.space.flow(flow)
    }

    /// Bytes of a frame.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.shared.frame_size
    }

    /// This queue's part of the rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The pacer for that rate from time 0 on; `None` without a rate.
    pub fn pacer(&self) -> Option<Pacer> {
        match self.rate {
            Rate::Max => None,
            Rate::Pps(rate) => Some(Pacer::new(rate, 0).catching_up(self.catch_up_ns)),
        }
    }

    /// Whether the last packet has been picked.
    pub fn exhausted(&self) -> bool {
        self.left == Some(0) || matches!(self.picker, Picker::Nothing)
    }
}

/// Writes frames of a stream's flows.
#[derive(Clone, Copy, Debug)]
pub struct FrameWriter<'a> {
    space: Numbering,
    templates: &'a [FrameTemplate],
}

impl FrameWriter<'_> {
    /// Writes the frame of flow number `flow`; `frame` is as long as the stream's `frame_size`.
    #[inline]
    pub fn write(&self, flow: u32, frame: &mut [u8]) {
        let (class, dst, rest) = self.space.split(flow);
        let template = &self.templates[class as usize];
        match rest {
            0 => template.write(dst, frame),
            _ => template.stepped(self.space.step(rest)).write(dst, frame),
        }
    }
}

impl Picker {
    fn new(profile: &Profile, space: &FlowSpace, own: Option<&[u32]>, queue: u64, weight: impl Fn(u32) -> f64) -> Self {
        let flows = own.map_or(space.len(), |own| own.len() as u32);
        // Each queue has its own seed, by its position in the seed's sequence.
        let mut seeds = SplitMix64::new(profile.seed);
        let seed = (0..=queue).fold(0, |_, _| seeds.next_u64());
        let rng = Wyrand::new(seed);
        match profile.choice {
            _ if flows == 0 => Picker::Nothing,
            Choice::Uniform => Picker::Uniform { flows, rng },
            Choice::Sequential => Picker::Sequential { flows, next: 0 },
            Choice::Short(packets) => Picker::Short { flows, packets, first: 0, turn: 0, round: 0 },
            Choice::Zipf(_) | Choice::Hot(_) => {
                let weights: Vec<f64> = match own {
                    None => (0..flows).map(weight).collect(),
                    Some(own) => own.iter().map(|flow| weight(*flow)).collect(),
                };
                // In the tail of a steep law all weights of a queue may be zero; then it has no flows.
                if weights.iter().all(|w| *w == 0.0) {
                    return Picker::Nothing;
                }
                // Subtables then come in the order of their numbers, the hot one last.
                let in_turn = if matches!(profile.choice, Choice::Hot(_)) { space.classes().min(flows) } else { 0 };
                Picker::Weighted { in_turn, next: 0, table: Arc::new(AliasTable::new(&weights)), rng }
            }
        }
    }

    #[inline]
    fn pick(&mut self, out: &mut [u32]) -> usize {
        match self {
            Picker::Uniform { flows, rng } => {
                out.iter_mut().for_each(|flow| *flow = rng::below(*flows, rng.next_u64()))
            }
            Picker::Sequential { flows, next } => {
                for flow in &mut *out {
                    *flow = *next;
                    *next = if *next + 1 == *flows { 0 } else { *next + 1 };
                }
            }
            Picker::Short { flows, packets, first, turn, round } => {
                for flow in &mut *out {
                    *flow = *first + *turn;
                    *turn += 1;
                    if *turn == SHORT_AT_ONCE || *first + *turn == *flows {
                        (*turn, *round) = (0, *round + 1);
                    }
                    if *round == *packets {
                        *round = 0;
                        *first = if *flows - *first <= SHORT_AT_ONCE { 0 } else { *first + SHORT_AT_ONCE };
                    }
                }
            }
            Picker::Weighted { in_turn, next, table, rng } => {
                for flow in &mut *out {
                    *flow = if next < in_turn { *next } else { table.draw(rng.next_u64()) };
                    *next += u32::from(next < in_turn);
                }
            }
            Picker::Nothing => return 0,
        }
        out.len()
    }
}
