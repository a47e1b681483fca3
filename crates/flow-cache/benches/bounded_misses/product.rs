//! The switch's own subtables, with pruning and without, with real records, looked up in batches.

use crate::search::{Flow, Search, Words};
use sluice_action::{FlowId, MegaflowStore, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::{Line, PacketKey, layout};
use sluice_flow_cache::{Hits, Installed, LookupBatch, MegaflowTable, PmdSide, Subtables};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, Isa};
use std::collections::HashMap;
use std::sync::Arc;

pub struct Product {
    name: &'static str,
    table: MegaflowTable,
    side: PmdSide,
    subtables: Subtables,
    /// The workload's number for a megaflow id, and vice versa.
    number_of: HashMap<u32, u32>,
    id_of: HashMap<u32, FlowId>,
}

/// Lines 0 and 1 as a packet's key.
fn packet_key(words: &Words) -> PacketKey {
    let line = |at: usize| Line::from_words(std::array::from_fn(|i| words[at + i]));
    let mut key = PacketKey::ZERO;
    key.lines[0] = line(0);
    key.lines[0].0[layout::PRESENCE.offset] = 0;
    if words[8..].iter().any(|word| *word != 0) {
        *key.make_present(1) = line(8);
    }
    key
}

impl Product {
    pub fn new(prunes: bool) -> Self {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(1 << 20, &secret).expect("address space for the records");
        let side = table.attach(0).expect("address space for the counters");
        let (name, subtables) = match prunes {
            true => ("pruned", Subtables::new(&secret)),
            false => ("plain", Subtables::without_pruning(&secret)),
        };
        Product { name, table, side, subtables, number_of: HashMap::new(), id_of: HashMap::new() }
    }
}

/// Keys in batches.
type Batches = Vec<Box<[PacketKey; BATCH_MAX]>>;

impl Search for Product {
    fn name(&self) -> &'static str {
        self.name
    }

    fn insert(&mut self, flows: &[Flow], id: u32) {
        let flow = &flows[id as usize];
        let key = packet_key(&flow.key);
        let translation = Translation {
            mask: packet_key(&flow.mask),
            actions: Arc::new([]),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        };
        let Installed::New(FlowId(record)) = self.table.install(0, &key, &translation, 0, |_| true, |_, _, _| ())
        else {
            panic!("megaflow {id} is new and there is room")
        };
        let guard = self.side.reader.pin();
        let flow = self.table.read(&guard).get(record).expect("it was installed");
        self.subtables.insert(&key, flow);
        self.number_of.insert(record, id);
        self.id_of.insert(id, FlowId(record));
    }

    fn remove(&mut self, _flows: &[Flow], id: u32) {
        let record = self.id_of.remove(&id).expect("it is in");
        self.number_of.remove(&record.0);
        self.table.remove(record);
        let mut notices = Vec::new();
        self.side.notices.take(usize::MAX, &mut notices);
        notices.iter().for_each(|deleted| self.subtables.remove(deleted));
        self.table.settle(&mut |_, _| ());
    }

    fn find_all(&mut self, _flows: &[Flow], keys: &[Words]) -> Box<dyn FnMut() -> Vec<Option<u32>> + '_> {
        let batches: Batches = keys
            .chunks(BATCH_MAX)
            .map(|chunk| {
                let mut keys = Box::new([PacketKey::ZERO; BATCH_MAX]);
                keys.iter_mut().zip(chunk).for_each(|(to, words)| *to = packet_key(words));
                keys
            })
            .collect();
        let n = keys.len();
        Box::new(move || {
            let guard = self.side.reader.pin();
            let flows = self.table.read(&guard);
            let mut found = Vec::with_capacity(n);
            for keys in &batches {
                let mut hits: Hits<'_> = [None; BATCH_MAX];
                let batch = LookupBatch::new(keys, &[0; BATCH_MAX], flows, &self.side.counters, Isa::best());
                let all = BatchMask::first(BATCH_MAX.min(n - found.len()));
                self.subtables.lookup(&batch, all, &mut hits);
                found.extend(hits.iter().take(all.len()).map(|hit| hit.map(|flow| flow.id().0)));
            }
            found
        })
    }

    fn tidy(&mut self) {
        self.subtables.maintain(u64::MAX / 2);
    }

    fn number(&self, found: u32) -> u32 {
        self.number_of[&found]
    }

    fn take_probes(&mut self) -> Option<u64> {
        Some(self.subtables.take_probes())
    }
}
