//! A lookup taken apart: what of it is hashing, probing and comparing with the record.
//!
//! In the switch the parts of a lookup cannot be timed: they take turns every few nanoseconds, and are one function to
//! a profiler that samples (all is inlined; `perf` shows the symbol of the batch's lookup and nothing below it). So the
//! switch's megaflows are put into a table beside it, and the packets of its generator are looked up there: nothing at all,
//! the hash alone, hash and buckets, the whole. Each is timed over the same batches, whose keys are extracted just
//! before, as in the switch. What one costs more than the one before it is the cost of a part, so the parts add up to the
//! whole. A part that hides behind another's latency costs nothing by this measure.

use crate::core_share::{Lasting, Slices};
use crate::grid::Subject;
use crate::rig::{CYCLES, Rig, Sample, TURNS, Workload, middle};
use anyhow::{Result, anyhow, bail, ensure};
use sluice_action::FlowId;
use sluice_flow::{Metadata, PacketKey, extract};
use sluice_flow_cache::{
    FlowCounters, Hits, Installed, LookupBatch, LookupStage, Megaflow, MegaflowTable, PmdSide, SearchPart,
    SearchRecord, Smc, SubtableSearch, Subtables, key_hashes,
};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::isa::Kernel;
use sluice_simd::{HashKey, Isa, VectorOps, tsc};
use sluice_sync::Slots;
use sluice_traffic::FlowStream;
use std::hint::black_box;
use std::time::Duration;

/// A lookup that can be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// All subtables in turn, ranked.
    PlainSearch,
    /// The signature match cache.
    Smc,
}

/// A part of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Hashing: of the key under each mask, or of the whole key for the cache.
    Hash,
    /// Reading the buckets and comparing tags or signatures.
    Probe,
    /// Comparing the key with the megaflow's record, and all that waits for the result.
    Match,
}

impl Part {
    /// All, in order.
    pub const ALL: [Part; 3] = [Part::Hash, Part::Probe, Part::Match];

    /// Its figure, cycles a packet.
    pub const fn figure(self) -> &'static str {
        match self {
            Part::Hash => "part_hash",
            Part::Probe => "part_probe",
            Part::Match => "part_match",
        }
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Hash => "hash",
            Part::Probe => "probe",
            Part::Match => "match",
        }
    }
}

/// Where a timed lookup ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Before it begins: what reading the clock costs.
    Nothing,
    Hash,
    Probe,
    Whole,
}

const ENDS: [End; 4] = [End::Nothing, End::Hash, End::Probe, End::Whole];

/// A time by which the subtables are ranked.
const RANKED_MS: u64 = 10_000;
/// The port by which the generator's packets come.
const IN_PORT: u32 = 1;
/// What the megaflow table may hold, and the cache.
const FLOWS_MAX: u32 = 1 << 16;

/// The megaflows of a switch and the packets of its generator, beside the switch.
pub struct LookupParts {
    table: MegaflowTable,
    side: PmdSide,
    caches: Caches,
    packets: Packets,
    /// What the search asked about each batch.
    records: Vec<SearchRecord>,
}

impl LookupParts {
    /// Takes the megaflows of `rig`, which does `workload`, and warms up with `packets` packets.
    ///
    /// # Errors
    /// If a packet is not found.
    pub fn new(lookup: Lookup, rig: &Rig, workload: &Workload, isa: Isa, packets: u64) -> Result<LookupParts> {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(FLOWS_MAX, &secret)?;
        let side = table.attach(0)?;
        let packets_of = Packets::new(workload.stream()?);
        let caches = Caches::new(lookup, secret, isa);
        let mut parts = LookupParts { table, side, caches, packets: packets_of, records: Vec::new() };
        parts.install(rig)?;
        for _ in 0..packets.div_ceil(Packets::IN_A_SLICE) {
            parts.next_slice()?;
        }
        parts.caches.subtables.maintain(RANKED_MS);
        let missed = parts.next_slice()?;
        ensure!(missed == 0, "the cache does not know {missed} packets");
        Ok(parts)
    }

    fn install(&mut self, rig: &Rig) -> Result<()> {
        for flow in rig.megaflows() {
            let key = flow.matched.key;
            let installed = self.table.install(0, &key, &flow.translation, 0, |_| true, |_, _, _| ());
            let Installed::New(FlowId(id)) = installed else { bail!("a megaflow was not installed: {installed:?}") };
            let guard = self.side.reader.pin();
            let flow = self.table.read(&guard).get(id).ok_or_else(|| anyhow!("a megaflow has gone"))?;
            self.caches.subtables.insert(&key, flow);
        }
        Ok(())
    }

    /// Has the generator write the next slice, and looks all its packets up without timing: each must have a megaflow.
    /// Returns how many the cache did not know.
    fn next_slice(&mut self) -> Result<usize> {
        self.packets.write()?;
        self.records.clear();
        let guard = self.side.reader.pin();
        let flows = self.table.read(&guard);
        let mut missed = 0;
        for at in 0..BATCHES {
            self.packets.extract(at, &mut self.caches.keys)?;
            let (record, unknown) = self.caches.find(flows, &self.side.counters)?;
            self.records.push(record);
            missed += unknown;
        }
        Ok(missed)
    }

    /// Cycles a packet of a slice's lookups up to each of [`ENDS`], of which number `first` is the first.
    fn time_all(&mut self, first: usize) -> Result<[f64; ENDS.len()]> {
        let mut cycles = [0.0; ENDS.len()];
        for i in (0..ENDS.len()).map(|i| (first + i) % ENDS.len()) {
            cycles[i] = self.time(ENDS[i])?;
        }
        Ok(cycles)
    }

    /// Cycles a packet of a slice's lookups up to `end`.
    fn time(&mut self, end: End) -> Result<f64> {
        let guard = self.side.reader.pin();
        let flows = self.table.read(&guard);
        let mut cycles = 0;
        for (at, record) in self.records.iter().enumerate() {
            self.packets.extract(at, &mut self.caches.keys)?;
            cycles += self.caches.time(flows, &self.side.counters, record, end);
        }
        Ok(cycles as f64 / Packets::IN_A_SLICE as f64)
    }
}

impl Subject for LookupParts {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let time = Lasting::new(span);
        let mut slices = Slices::of_median();
        while time.lasts(&slices) {
            self.next_slice()?;
            // None of them is always the first after the packets were written.
            let first = slices.len();
            let mut failed = None;
            slices.run(|| {
                let by_end = self.time_all(first);
                by_end.map_err(|error| failed = Some(error)).unwrap_or_default()
            });
            if let Some(error) = failed {
                return Err(error);
            }
        }
        let slices = slices.counting();
        Ok(sample(std::array::from_fn(|i| middle(slices.iter().map(|by_end| by_end[i]).collect()))))
    }
}

/// The parts from the cycles up to each of [`ENDS`].
fn sample([nothing, hash, probe, whole]: [f64; 4]) -> Sample {
    let figures = [
        (Part::Hash.figure(), hash - nothing),
        (Part::Probe.figure(), probe - hash),
        (Part::Match.figure(), whole - probe),
        (CYCLES, whole - nothing),
    ];
    Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The generator's packets, a slice at a time.
struct Packets {
    stream: FlowStream,
    frames: Vec<u8>,
}

/// Batches of a slice.
const BATCHES: usize = TURNS;

impl Packets {
    const IN_A_SLICE: u64 = (BATCHES * BATCH_MAX) as u64;

    fn new(stream: FlowStream) -> Packets {
        Packets { frames: vec![0; stream.frame_size() * BATCHES * BATCH_MAX], stream }
    }

    /// Writes the next slice.
    fn write(&mut self) -> Result<()> {
        let mut flows = [0; BATCHES * BATCH_MAX];
        ensure!(self.stream.pick(&mut flows) == flows.len(), "the generator ends early");
        let writer = self.stream.writer();
        let frames = self.frames.chunks_mut(self.stream.frame_size());
        flows.iter().zip(frames).for_each(|(flow, frame)| writer.write(*flow, frame));
        Ok(())
    }

    /// Extracts the keys of a batch, as the stage before the lookup does.
    fn extract(&self, at: usize, keys: &mut [PacketKey; BATCH_MAX]) -> Result<()> {
        let size = self.stream.frame_size();
        let port = Metadata::of_port(IN_PORT);
        let frames = self.frames.chunks(size).skip(at * BATCH_MAX);
        for (frame, key) in frames.zip(keys) {
            extract(frame, &port, key).map_err(|error| anyhow!("a frame cannot be parsed: {error:?}"))?;
        }
        Ok(())
    }
}

/// What is searched, and the batch that it is searched for.
struct Caches {
    lookup: Lookup,
    isa: Isa,
    secret: HashKey,
    subtables: Subtables,
    smc: Smc,
    keys: Box<[PacketKey; BATCH_MAX]>,
    hashes: [u64; BATCH_MAX],
}

/// The packets of a batch.
const ALL: BatchMask = BatchMask::first(BATCH_MAX);

impl Caches {
    fn new(lookup: Lookup, secret: HashKey, isa: Isa) -> Caches {
        let (mut subtables, mut smc) = (Subtables::new(&secret), Smc::new(FLOWS_MAX as usize));
        subtables.set_search(SubtableSearch { prunes: false, ranks: true });
        smc.set_on(lookup == Lookup::Smc);
        let keys = Box::new([PacketKey::ZERO; BATCH_MAX]);
        Caches { lookup, isa, secret, subtables, smc, keys, hashes: [0; BATCH_MAX] }
    }

    /// Looks the batch up in the cache, and what that does not know in the subtables. Returns which subtables a search for
    /// the whole batch asks, and how many packets the cache does not know.
    fn find(&mut self, flows: Slots<'_, Megaflow>, counters: &FlowCounters) -> Result<(SearchRecord, usize)> {
        let Caches { lookup, isa, secret, subtables, smc, keys, hashes } = self;
        let (mut cached, mut hits): (Hits<'_>, Hits<'_>) = ([None; BATCH_MAX], [None; BATCH_MAX]);
        let missed = isa.run(AskCache {
            smc,
            secret,
            keys,
            hashes,
            flows,
            counters,
            hits: &mut cached,
            isa: *isa,
            end: End::Whole,
        });
        let pass = LookupBatch::new(keys, hashes, flows, counters, *isa);
        let (left, record) = subtables.search_and_record(&pass, ALL, &mut hits);
        ensure!(left.is_empty(), "{} packets have no megaflow", left.len());
        let unknown = if *lookup == Lookup::Smc { missed } else { BatchMask::NONE };
        for i in unknown {
            hits[i].iter().for_each(|flow| smc.insert(hashes[i], flow.id()));
        }
        let is_same = |i: usize| cached[i].map(Megaflow::id) == hits[i].map(Megaflow::id);
        ensure!(BatchMask(ALL.0 & !missed.0).into_iter().all(is_same), "the cache and the search differ");
        Ok((record, unknown.len()))
    }

    /// Cycles of a lookup of the batch up to `end`.
    fn time(&mut self, flows: Slots<'_, Megaflow>, counters: &FlowCounters, record: &SearchRecord, end: End) -> u64 {
        let Caches { lookup, isa, secret, subtables, smc, keys, hashes } = self;
        let mut hits: Hits<'_> = [None; BATCH_MAX];
        let pass = LookupBatch::new(keys, hashes, flows, counters, *isa);
        let began = tsc::now();
        match (end, *lookup) {
            (End::Nothing, _) => {}
            (_, Lookup::Smc) => {
                isa.run(AskCache { smc, secret, keys, hashes, flows, counters, hits: &mut hits, isa: *isa, end });
            }
            (End::Hash, Lookup::PlainSearch) => subtables.repeat(&pass, ALL, record, SearchPart::Hash),
            (End::Probe, Lookup::PlainSearch) => subtables.repeat(&pass, ALL, record, SearchPart::Probe),
            (End::Whole, Lookup::PlainSearch) => {
                subtables.lookup(&pass, ALL, &mut hits);
            }
        }
        let ended = tsc::now();
        black_box(&hits);
        ended.saturating_sub(began)
    }
}

/// A lookup in the signature match cache up to `end`. Returns the packets that it does not know.
struct AskCache<'a, 'g> {
    smc: &'a mut Smc,
    secret: &'a HashKey,
    keys: &'a [PacketKey; BATCH_MAX],
    hashes: &'a mut [u64; BATCH_MAX],
    flows: Slots<'g, Megaflow>,
    counters: &'a FlowCounters,
    hits: &'a mut Hits<'g>,
    isa: Isa,
    end: End,
}

impl Kernel for AskCache<'_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        let AskCache { smc, secret, keys, hashes, flows, counters, hits, isa, end } = self;
        key_hashes(ops, secret, keys, BATCH_MAX, hashes);
        let pass = LookupBatch::new(keys, black_box(&*hashes), flows, counters, isa);
        match end {
            End::Nothing | End::Hash => ALL,
            End::Probe => {
                let mut ids = [0; BATCH_MAX];
                let named = smc.probe(ops, &pass, ALL, &mut ids);
                black_box(&ids);
                BatchMask(ALL.0 & !named.0)
            }
            End::Whole => smc.lookup(ops, &pass, ALL, hits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting;

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let sample = sample([2.0, 42.0, 52.0, 82.0]).0;
        assert_eq!(Part::ALL.map(|part| sample[part.figure()]), [40.0, 10.0, 30.0]);
        assert_eq!(sample[CYCLES], 80.0);
    }

    /// Every packet is found by the cache, by the search and by the recorded search, which agree; and each end is reached.
    #[test]
    fn every_lookup_can_be_taken_apart() {
        let workloads = [
            (Lookup::PlainSearch, Workload::rules_a_subtable(20, 100)),
            (Lookup::Smc, Workload::one_rule(100, "ip,nw_dst=10.0.0.0/8,actions=output:2\n")),
        ];
        for (lookup, workload) in workloads {
            let settings = setting::PLAIN.settings().unwrap();
            let mut rig = Rig::new(&workload, settings, false).unwrap();
            rig.check(20_000, &settings).unwrap();
            for isa in Isa::available() {
                let mut parts = LookupParts::new(lookup, &rig, &workload, isa, 10_000).unwrap();
                assert_eq!(parts.caches.subtables.subtables(), workload.subtables);
                let sample = parts.measure(Duration::ZERO).unwrap().0;
                let sum: f64 = Part::ALL.iter().map(|part| sample[part.figure()]).sum();
                assert!((sum - sample[CYCLES]).abs() < 1e-6 && sum > 0.0, "{sample:?}");
            }
        }
    }
}
