//! The same packets through the same tables: whatever is cached, however packets are batched, on one PMD or two, the
//! same packets leave in the same order, with the same counters.
//!
//! The reference takes packets one at a time with the exact match cache off, so each has left before the next arrives.

mod harness;

use harness::*;
use proptest::prelude::*;
use sluice_action::{Action, Header, MaskedField, PortNo, Translation, UpcallResult, XcacheHandle};
use sluice_datapath::{
    Arm, Config, Datapath, DistributorTable, EmcInsert, EmcRecirc, InsertInvProb, Isa, Level, Settings, SubtableSearch,
};
use sluice_fate::{Counter, DropReason, Snapshot};
use sluice_flow::{PacketKey, layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Ports 1 to 4 exist; rules may also send to port 5.
const PORTS: u32 = 4;
/// Source ports, and so flows.
const FLOWS: u16 = 12;
/// Recirculation ids that rules use, 0 included.
const RECIRCS: u32 = 3;

/// What the tables say about one (recirculation id, source port).
#[derive(Clone, Debug)]
struct Class {
    actions: Vec<Action>,
    /// Bits of the destination address that the megaflow matches on, though nothing depends on them.
    dst_bits: u8,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Cacheable,
    /// Each packet asks for itself.
    NotCacheable,
    /// The tables have always just changed.
    Stale,
    Fails,
}

fn leaf() -> impl Strategy<Value = Action> {
    let port = MaskedField { span: layout::TP_DST, value: [9; 16], mask: [0xff; 16] };
    let mark = MaskedField { span: layout::PKT_MARK, value: [5; 16], mask: [0x0f; 16] };
    prop_oneof![
        6 => (1..=PORTS + 1).prop_map(|port| Action::Output(PortNo(port))),
        2 => (1..RECIRCS).prop_map(Action::Recirc),
        1 => Just(Action::PushVlan { tpid: 0x8100, tci: 0x1003 }),
        1 => Just(Action::PopVlan),
        1 => Just(Action::Set { header: Header::Udp, fields: Box::new([port]) }),
        1 => Just(Action::Set { header: Header::PktMark, fields: Box::new([mark]) }),
        1 => Just(Action::Trunc(40)),
        1 => any::<bool>().prop_map(|continuation| {
            Action::Controller { reason: 1, controller_id: 0, max_len: 60, cookie: 7, recirc_id: 0, continuation }
        }),
    ]
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let nested = leaf().prop_recursive(2, 8, 3, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            list().prop_map(|list| Action::Clone(list.into())),
            (any::<bool>(), list()).prop_map(|(always, list)| Action::Sample {
                probability: if always { u32::MAX } else { 0 },
                actions: list.into()
            }),
            (list(), list()).prop_map(|(greater, less)| Action::CheckPktLen {
                len: 50,
                greater: greater.into(),
                less_or_equal: less.into()
            }),
        ]
    });
    prop_oneof![
        3 => (1..=PORTS).prop_map(|port| vec![Action::Output(PortNo(port))]),
        1 => Just(vec![]),
        4 => prop::collection::vec(nested, 1..4),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    let kind = prop_oneof![
        6 => Just(Kind::Cacheable),
        1 => Just(Kind::NotCacheable),
        1 => Just(Kind::Stale),
        1 => Just(Kind::Fails),
    ];
    (actions(), any::<u8>(), kind).prop_map(|(actions, dst_bits, kind)| Class { actions, dst_bits, kind })
}

type Tables = HashMap<(u32, u64), Class>;

fn tables(classes: Vec<Class>) -> Tables {
    let places = (0..RECIRCS).flat_map(|recirc| (0..u64::from(FLOWS)).map(move |flow| (recirc, flow)));
    let bounded = |((recirc, flow), class): ((u32, u64), Class)| {
        // A packet may loop, but only once: if it multiplied with each pass, the number of copies that find a buffer
        // would depend on the number of packets under way.
        let mut left = if recirc == 0 { 2 } else { 1 };
        ((recirc, flow), Class { actions: with_few_recircs(&class.actions, &mut left), ..class })
    };
    places.zip(classes).map(bounded).collect()
}

/// The actions with the first `left` recirculations only.
fn with_few_recircs(actions: &[Action], left: &mut usize) -> Vec<Action> {
    let mut nested = |list: &[Action]| with_few_recircs(list, left).into();
    let mut out = Vec::new();
    for action in actions {
        out.push(match action {
            Action::Clone(list) => Action::Clone(nested(list)),
            Action::Sample { probability, actions } => {
                Action::Sample { probability: *probability, actions: nested(actions) }
            }
            Action::CheckPktLen { len, greater, less_or_equal } => {
                Action::CheckPktLen { len: *len, greater: nested(greater), less_or_equal: nested(less_or_equal) }
            }
            other => other.clone(),
        });
    }
    out.retain(|action| !matches!(action, Action::Recirc(_)) || std::mem::replace(left, left.saturating_sub(1)) > 0);
    out
}

fn translate(tables: &Tables, key: &PacketKey) -> UpcallResult {
    let place = (key.recirc_id(), key.number(layout::TP_SRC));
    // Truncated packets have no ports: they are flow 0.
    let class = &tables[&place];
    let mut mask = PacketKey::ZERO;
    for span in [layout::IN_PORT, layout::RECIRC_ID, layout::TP_SRC] {
        mask.set(span, &[0xff; 4][..span.size]);
    }
    mask.set(layout::NW_DST, &[0, 0, 0, class.dst_bits]);
    match class.kind {
        Kind::Fails => UpcallResult::Failed(DropReason::TranslationLimit),
        kind => UpcallResult::Translated(Translation {
            mask,
            actions: class.actions.clone().into(),
            no_output: DropReason::Rules,
            version: if kind == Kind::Stale { 0 } else { 1 },
            cacheable: kind != Kind::NotCacheable,
            xcache: XcacheHandle(Arc::new(())),
        }),
    }
}

/// A packet of the input. With two queues, a flow stays on one.
#[derive(Clone, Debug)]
struct Offered {
    port: u32,
    flow: u16,
    dst: u8,
    len: usize,
}

impl Offered {
    fn bytes(&self, tag: u32) -> Vec<u8> {
        let mut bytes = udp([1, 1, 1, self.port as u8], [2, 2, 2, self.dst], self.flow, 5, tag);
        bytes.resize(self.len, 0);
        bytes
    }
}

fn offered() -> impl Strategy<Value = Offered> {
    // One in seven is too short for a key.
    let len = prop_oneof![3 => Just(46), 3 => Just(64), 1 => 1..14usize];
    (1..=2u32, 0..FLOWS, 0..3u8, len).prop_map(|(port, flow, dst, len)| Offered { port, flow, dst, len })
}

/// How the datapath is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    emc: u32,
    emc_entries: usize,
    smc: bool,
    distributor: Option<DistributorTable>,
    isa: Isa,
    batch: usize,
    pmds: usize,
    queues: usize,
    burst: usize,
}

impl Setup {
    fn arm(self) -> Arm {
        let emc = Some(self.emc).filter(|n| *n != 0).map(EmcInsert::OneIn);
        Arm { emc, smc: self.smc, distributor: self.distributor, ..Arm::BARE }
    }

    fn config(self) -> Config {
        Config {
            cores: vec![0; self.pmds],
            batch: self.batch,
            settings: Settings { emc_entries: self.emc_entries, vector: self.isa, ..self.arm().into() },
            max_megaflows: 4096,
            seed: Some(3),
            packet_in_queue: 1 << 16,
            ..Config::default()
        }
    }
}

const REFERENCE: Setup = Setup {
    emc: 0,
    emc_entries: 8,
    smc: false,
    distributor: None,
    isa: Isa::SCALAR,
    batch: 1,
    pmds: 1,
    queues: 1,
    burst: 1,
};

/// What came out.
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    totals: Snapshot,
    told: usize,
    /// Packets and bytes counted by megaflows and credited to translations.
    counted: (u64, u64),
}

/// Runs packets through the tables. All megaflows are removed from time to time, so that their ids are reused while
/// caches still name them, and in the middle between two removals the settings change to the next of `settings`.
fn run(setup: Setup, settings: &[Settings], tables: &Tables, packets: &[Offered], remove_every: usize) -> Outcome {
    let pool = pool(8192);
    let datapath = Datapath::new(setup.config()).unwrap();
    let fakes = FakeTables::new({
        let tables = tables.clone();
        move |key, _| translate(&tables, key)
    });
    let upcalls = fakes.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let packet_ins = datapath.take_packet_ins().unwrap();
    let mut ports = Vec::new();
    for number in 1..=PORTS {
        let port = TestPort::new(setup.queues, setup.burst, &pool);
        ports.push((port.feeds.clone(), port.sent.clone()));
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    let store = datapath.store();
    let (mut removed, mut turn) = ((0, 0), 0);
    let mut remove_all = |datapath: &Datapath| {
        let mut ids = Vec::new();
        store.for_each(&mut |flow| ids.push(flow.id));
        for id in ids {
            let stats = store.remove(id).unwrap();
            removed = (removed.0 + stats.packets, removed.1 + stats.bytes);
        }
        store.settle(&mut |_, _| panic!("no PMD is under way"));
        assert!(datapath.flows().is_empty());
    };
    for (n, chunk) in packets.chunks(remove_every).enumerate() {
        for (i, packet) in chunk.iter().enumerate() {
            if i == chunk.len() / 2 && !settings.is_empty() {
                datapath.set_settings(settings[n % settings.len()]).unwrap();
            }
            let bytes = packet.bytes((n * remove_every + i) as u32);
            let queue = usize::from(packet.flow) % setup.queues;
            ports[packet.port as usize - 1].0[queue].lock().unwrap().push_back(bytes);
            // One at a time across ports: the total order is that of the input.
            if setup.queues == 1 {
                let last = chunk.get(i + 1).is_none_or(|next| next.port != packet.port);
                while last && !datapath.run_once(turn).exhausted {
                    turn += 1;
                }
            }
        }
        while !datapath.run_once(turn).exhausted {
            turn += 1;
        }
        remove_all(&datapath);
    }
    let credited = *fakes.credited.lock().unwrap();
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    Outcome {
        sent: ports.iter().map(|(_, sent)| std::mem::take(&mut *sent.lock().unwrap())).collect(),
        totals,
        told: packet_ins.try_iter().count(),
        counted: (removed.0 + credited.0, removed.1 + credited.1),
    }
}

/// The counters that must not depend on the setup.
fn counters(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    let totals = &outcome.totals;
    let mut all = vec![("told", outcome.told as u64), ("counted", outcome.counted.0), ("bytes", outcome.counted.1)];
    for counter in [Counter::Received, Counter::Sent, Counter::Cloned, Counter::Delivered, Counter::Passes] {
        all.push((counter.name(), totals[counter]));
    }
    all.extend(DropReason::ALL.iter().map(|reason| (reason.name(), totals.dropped(*reason))));
    all
}

/// Packets of each (output port, input port, flow) in the order they left.
fn by_flow(outcome: &Outcome) -> BTreeMap<(usize, Vec<u8>), Vec<Vec<u8>>> {
    let mut flows = BTreeMap::new();
    for (port, sent) in outcome.sent.iter().enumerate() {
        for packet in sent {
            let mut ip = 14;
            while packet[ip - 2..ip] == [0x81, 0] {
                ip += 4;
            }
            // The last byte of the source address names the input port, the source port the flow.
            let from = packet.get(ip + 15).into_iter().chain(packet.get(ip + 20..ip + 22).unwrap_or(&[]));
            flows.entry((port, from.copied().collect())).or_insert_with(Vec::new).push(packet.clone());
        }
    }
    flows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_setup_does_not_matter(
        classes in prop::collection::vec(class(), usize::from(FLOWS) * RECIRCS as usize),
        packets in prop::collection::vec(offered(), 1..150),
        remove_every in 20..200usize,
    ) {
        let tables = tables(classes);
        let reference = run(REFERENCE, &[], &tables, &packets, remove_every);
        let passes = &reference.totals;
        let answered = passes[Counter::MegaflowHits] + passes[Counter::Upcalls] + passes[Counter::UpcallsLost];
        prop_assert_eq!(passes[Counter::Passes], answered);
        let isas = Isa::available();
        for (round, (emc, emc_entries, smc, distributor, batch, burst)) in [
            (0, 8, false, None, 32, 32),
            (1, 8, false, None, 32, 32),
            (1, 8192, false, None, 32, 32),
            // So large that its lines are fetched while headers are read.
            (1, 1 << 16, false, None, 32, 13),
            (3, 1 << 16, true, None, 7, 32),
            (3, 64, true, None, 7, 32),
            (1, 8, true, None, 1, 32),
            (0, 8, true, None, 32, 5),
            (0, 8, false, Some(DistributorTable::Own), 1, 32),
            (0, 8, false, Some(DistributorTable::Own), 32, 32),
            (0, 8, false, Some(DistributorTable::Own), 32, 5),
            (0, 8, false, Some(DistributorTable::Ht), 32, 32),
            (0, 8, false, Some(DistributorTable::Vbf), 32, 7),
            (3, 8, false, Some(DistributorTable::Own), 7, 32),
            (3, 8, true, Some(DistributorTable::Ht), 32, 32),
        ].into_iter().enumerate() {
            let isa = isas[round % isas.len()];
            let setup = Setup { emc, emc_entries, smc, distributor, isa, batch, burst, ..REFERENCE };
            let outcome = run(setup, &[], &tables, &packets, remove_every);
            prop_assert_eq!(counters(&outcome), counters(&reference), "{:?}", setup);
            prop_assert_eq!(&outcome.sent, &reference.sent, "{:?}", setup);
            let t = &outcome.totals;
            let levels = [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits, Counter::Upcalls, Counter::UpcallsLost];
            let answered = levels.iter().map(|level| t[*level]).sum::<u64>();
            prop_assert_eq!(t[Counter::Passes], answered);
            prop_assert!(t[Counter::DistributorHits] <= t[Counter::MegaflowHits]);
            let told = [Counter::DistributorHits, Counter::DistributorMisses, Counter::DistributorWrong];
            let asked = t[Counter::Passes] - t[Counter::EmcHits] - t[Counter::SmcHits];
            let told = told.iter().map(|counter| t[*counter]).sum::<u64>();
            prop_assert_eq!(told, if distributor.is_some() { asked } else { 0 });
        }
        for (pmds, queues, batch) in [(2, 3, 32), (2, 1, 32), (3, 2, 1)] {
            let levels = Setup { emc: 1, emc_entries: 64, smc: true, distributor: Some(DistributorTable::Own), ..REFERENCE };
            let setup = Setup { pmds, queues, batch, burst: 32, isa: Isa::best(), ..levels };
            let outcome = run(setup, &[], &tables, &packets, remove_every);
            prop_assert_eq!(counters(&outcome), counters(&reference), "{:?}", setup);
            prop_assert_eq!(by_flow(&outcome), by_flow(&reference), "{:?}", setup);
        }
    }

    #[test]
    fn settings_may_change_while_it_runs(
        classes in prop::collection::vec(class(), usize::from(FLOWS) * RECIRCS as usize),
        packets in prop::collection::vec(offered(), 100..300),
        remove_every in 10..50usize,
        settings in prop::collection::vec(settings(), 1..12),
    ) {
        let tables = tables(classes);
        let reference = run(REFERENCE, &[], &tables, &packets, remove_every);
        for (batch, burst) in [(32, 32), (7, 32), (1, 1)] {
            let setup = Setup { batch, burst, ..REFERENCE };
            let outcome = run(setup, &settings, &tables, &packets, remove_every);
            prop_assert_eq!(counters(&outcome), counters(&reference), "{:?}", settings);
            prop_assert_eq!(&outcome.sent, &reference.sent, "{:?}", settings);
        }
    }
}

/// Any settings, with caches so small that flows evict each other.
fn settings() -> impl Strategy<Value = Settings> {
    let level = || prop::sample::select(vec![Level::Auto, Level::On, Level::Off]);
    let inv_prob =
        prop_oneof![Just(InsertInvProb::Auto), Just(InsertInvProb::Adaptive), (0..4u32).prop_map(InsertInvProb::OneIn)];
    let recirc = prop::option::of(prop::sample::select(EmcRecirc::ALL.to_vec()));
    let table = prop::option::of(prop::sample::select(DistributorTable::ALL.to_vec()));
    let vector = prop::sample::select(Isa::available().to_vec());
    let entries = prop::sample::select(vec![1usize, 8, 64]);
    let distributor_entries = prop::option::of(Just(16usize));
    let search = any::<(bool, bool)>().prop_map(|(prunes, ranks)| SubtableSearch { prunes, ranks });
    let further = (entries, level(), distributor_entries, search, 0..=100u8);
    (level(), level(), level(), table, vector, inv_prob, recirc, further).prop_map(
        |(
            emc,
            smc,
            distributor,
            distributor_table,
            vector,
            emc_insert_inv_prob,
            emc_recirc,
            (emc_entries, composed, distributor_entries, search, emc_recirc_threshold),
        )| Settings {
            emc,
            smc,
            distributor,
            distributor_table,
            // Both are small, or as usual.
            smc_entries: distributor_entries.unwrap_or(Settings::default().smc_entries),
            distributor_entries,
            distributor_vector: Some(vector),
            search,
            vector,
            emc_insert_inv_prob,
            emc_recirc,
            emc_recirc_threshold,
            emc_entries,
            composed,
        },
    )
}
