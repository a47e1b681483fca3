//! Tables and datapath, put together as the switch does it, and a scenario's run through them.

use crate::script::{Expected, Script, Step};
use crate::verdict::{self, Sent};
use crate::wire::{Wire, flow_of};
use sluice_action::PortNo;
use sluice_datapath::{Arm, Config, Datapath, DistributorTable, EmcInsert, EmcRecirc, Settings};
use sluice_fate::{Counter, DropReason};
use sluice_flow::PortNames;
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const BRIDGE: &str = "br0";
const MAX_IDLE_MS: u64 = 10_000;

/// How a scenario is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What it is called in failures.
    pub name: &'static str,
    /// PMDs.
    pub pmds: usize,
    /// Receive queues of each port.
    pub queues: usize,
    /// Packets in a batch.
    pub batch: usize,
    /// Entries of the exact match cache.
    pub emc_entries: usize,
    /// Inverse probability that a flow enters it; 0 turns it off.
    pub emc_insert_inv_prob: u32,
    /// Which recirculated packets use it.
    pub emc_recirc: EmcRecirc,
    /// Whether the signature match cache is on.
    pub smc: bool,
    /// What the distributor keeps its hints in, if it is on.
    pub distributor: Option<DistributorTable>,
    /// Whether the autopilot decides instead.
    pub autopilot: bool,
    /// How many megaflows there may be.
    pub max_megaflows: u32,
    /// Whether PMDs run as threads.
    pub threads: bool,
    /// How often each packet comes in a row.
    pub times: u64,
}

impl Setting {
    const PLAIN: Setting = Setting {
        name: "one PMD, every flow in the EMC",
        pmds: 1,
        queues: 1,
        batch: 32,
        emc_entries: 8192,
        emc_insert_inv_prob: 1,
        emc_recirc: EmcRecirc::Always,
        smc: false,
        distributor: None,
        autopilot: false,
        max_megaflows: 1 << 16,
        threads: false,
        times: 1,
    };

    /// Every setting a scenario must come out the same in.
    pub const ALL: &[Setting] = &[
        Setting::PLAIN,
        Setting { name: "each packet three times", times: 3, ..Setting::PLAIN },
        Setting { name: "batches of 1", batch: 1, times: 2, ..Setting::PLAIN },
        Setting { name: "no EMC", emc_insert_inv_prob: 0, times: 3, ..Setting::PLAIN },
        Setting { name: "an EMC of two entries", emc_entries: 2, times: 3, ..Setting::PLAIN },
        Setting { name: "no EMC, one megaflow", emc_insert_inv_prob: 0, max_megaflows: 1, times: 3, ..Setting::PLAIN },
        Setting { name: "SMC alone", emc_insert_inv_prob: 0, smc: true, times: 3, ..Setting::PLAIN },
        Setting::distributor("distributor on its own table", DistributorTable::Own),
        Setting::distributor("distributor on HT", DistributorTable::Ht),
        Setting::distributor("distributor on vBF", DistributorTable::Vbf),
        Setting {
            emc_insert_inv_prob: 1,
            emc_entries: 2,
            smc: true,
            ..Setting::distributor("every level, an EMC of two entries", DistributorTable::Own)
        },
        Setting {
            name: "recirculated packets in an EMC of two entries by chance",
            emc_entries: 2,
            emc_recirc: EmcRecirc::Random,
            times: 3,
            ..Setting::PLAIN
        },
        Setting { name: "the autopilot decides", autopilot: true, times: 3, ..Setting::PLAIN },
        Setting { name: "two PMDs, three queues", pmds: 2, queues: 3, times: 3, ..Setting::PLAIN },
        Setting { name: "two threads, three queues", pmds: 2, queues: 3, times: 5, threads: true, ..Setting::PLAIN },
        Setting {
            name: "two threads, no EMC, batches of 1",
            pmds: 2,
            queues: 3,
            batch: 1,
            emc_insert_inv_prob: 0,
            times: 5,
            threads: true,
            ..Setting::PLAIN
        },
    ];

    /// The distributor alone, asked twice about what it has seen once.
    const fn distributor(name: &'static str, table: DistributorTable) -> Setting {
        Setting { name, emc_insert_inv_prob: 0, distributor: Some(table), times: 3, ..Setting::PLAIN }
    }

    /// Whether packets of different flows keep their order too.
    fn keeps_order(&self) -> bool {
        self.pmds == 1 && self.queues == 1 && self.batch == 1
    }
}

impl Setting {
    /// Whether a scenario can be run so: threads have a clock of their own, which does not jump.
    pub fn suits(&self, script: &Script) -> bool {
        !(self.threads && script.steps.iter().any(|(_, step)| matches!(step, Step::Wait(_))))
    }
}

/// Runs a scenario. The error says where and how it went another way.
pub fn run(script: &Script, setting: &Setting) -> Result<(), String> {
    let mut switch = Switch::new(script, setting)?;
    let mut at = 0;
    while at < script.steps.len() {
        let packets = script.steps[at..].iter().take_while(|(_, s)| matches!(s, Step::Packet { .. })).count();
        let (line, step) = &script.steps[at];
        if packets > 0 {
            switch.packets(&script.steps[at..at + packets]).map_err(|e| format!("from line {line}: {e}"))?;
        } else {
            switch.step(step).map_err(|e| format!("line {line}: {e}"))?;
        }
        at += packets.max(1);
    }
    switch.conserved()
}

struct Switch {
    setting: Setting,
    datapath: Datapath,
    ofproto: Ofproto,
    wires: BTreeMap<u16, Wire>,
    /// Packets that came in.
    received: u64,
    /// How far the clock is ahead of the system's, milliseconds.
    skew_ms: u64,
}

impl Switch {
    fn new(script: &Script, setting: &Setting) -> Result<Self, String> {
        let emc = Some(setting.emc_insert_inv_prob).filter(|n| *n != 0).map(EmcInsert::OneIn);
        let emc_recirc = setting.emc_recirc;
        let arm = Arm { emc, emc_recirc, smc: setting.smc, distributor: setting.distributor };
        let settings = if setting.autopilot { Settings::default() } else { arm.into() };
        let config = Config {
            cores: (0..setting.pmds).collect(),
            batch: setting.batch,
            settings: Settings { emc_entries: setting.emc_entries, ..settings },
            max_megaflows: setting.max_megaflows,
            seed: Some(1),
            sleep_max_us: 50,
            ..Config::default()
        };
        let datapath = Datapath::new(config).map_err(|e| e.to_string())?;
        let ofproto = Ofproto::new();
        ofproto.add_bridge(BridgeConfig::new(BRIDGE), 0).map_err(|e| e.to_string())?;
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        let pool = HeapPool::new(PoolConfig { frames: 4096, frame_size: 2048, reserve: 64 });
        let pool: Arc<dyn FramePool> = Arc::new(pool.map_err(|e| format!("{e:?}"))?);
        let mut wires = BTreeMap::new();
        for &port in &script.ports {
            let wire = Wire::new(&pool, setting.queues);
            let number = PortNo(u32::from(port));
            datapath.add_port(number, wire.port()).map_err(|e| e.to_string())?;
            let config = PortConfig::new(&format!("p{port}"), port, number);
            ofproto.add_port(BRIDGE, config).map_err(|e| e.to_string())?;
            wires.insert(port, wire);
        }
        if setting.threads {
            datapath.start().map_err(|e| e.to_string())?;
        }
        Ok(Switch { setting: *setting, datapath, ofproto, wires, received: 0, skew_ms: 0 })
    }

    fn now_ms(&self) -> u64 {
        sluice_clock::now_ms() + self.skew_ms
    }

    /// Lets packets in that come without anything between them, and checks what leaves.
    fn packets(&mut self, steps: &[(usize, Step)]) -> Result<(), String> {
        let mut expected: BTreeMap<u16, Vec<Sent>> = BTreeMap::new();
        for (_, step) in steps {
            let Step::Packet { port, bytes, out } = step else { continue };
            for _ in 0..self.setting.times {
                self.wires.get(port).ok_or_else(|| format!("there is no port {port}"))?.send(bytes);
                self.received += 1;
                if self.setting.keeps_order() {
                    // Ports are polled in turn: only packets that come one by one are received in the order of their lines.
                    self.datapath.run_once(self.now_ms());
                }
                for Expected { port, bytes: sent } in out {
                    let sent = Sent { flow: flow_of(bytes), bytes: sent.clone() };
                    expected.entry(*port).or_default().push(sent);
                }
            }
        }
        self.settle()?;
        for (port, wire) in &self.wires {
            let (want, got) = (expected.remove(port).unwrap_or_default(), wire.take_sent());
            verdict::same(&want, &got, self.setting.keeps_order()).map_err(|e| format!("port {port}: {e}"))?;
        }
        match expected.first_key_value() {
            Some((port, _)) => Err(format!("there is no port {port}")),
            None => Ok(()),
        }
    }

    /// Waits until every packet that came in has met its fate.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            if !self.setting.threads {
                self.datapath.run_once(self.now_ms());
            }
            self.ofproto.tick(self.now_ms());
            let totals = self.datapath.totals();
            let is_done = totals[Counter::Received] >= self.received && totals.conserved().is_ok();
            if is_done && self.wires.values().all(Wire::is_empty) {
                return Ok(());
            }
            if totals[Counter::Received] > self.received {
                return Err(format!(
                    "{} packets came in, {} were sent there",
                    totals[Counter::Received],
                    self.received
                ));
            }
            if self.setting.threads {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Change(command, text) => self.change(command, text),
            Step::Wait(ms) => {
                self.skew_ms += ms;
                self.revalidate();
                Ok(())
            }
            Step::Rule(packets, text) => self.rule(packets * self.setting.times, text),
            Step::Drop(n, reason) => {
                let known = DropReason::ALL.iter().find(|r| r.name() == reason);
                let known = known.ok_or_else(|| format!("there is no drop reason `{reason}`"))?;
                same_number("dropped", n * self.setting.times, self.datapath.totals().dropped(*known))
            }
            Step::Delivered(n) => {
                same_number("delivered", n * self.setting.times, self.datapath.totals()[Counter::Delivered])
            }
            Step::Megaflows(n) if self.setting.max_megaflows > 1 => self.megaflows(*n as u64),
            Step::Megaflows(_) | Step::Packet { .. } => Ok(()),
        }
    }

    /// A PMD that cannot lock the table in time installs nothing: its thread or another has lost its core. Then there may be
    /// as many megaflows fewer.
    fn megaflows(&self, want: u64) -> Result<(), String> {
        let skipped = self.datapath.totals()[Counter::InstallsSkipped];
        let found = self.datapath.flows().len() as u64;
        let is_right = found <= want && found + skipped >= want;
        if is_right { Ok(()) } else { same_number(&format!("megaflows ({skipped} installs skipped)"), want, found) }
    }

    fn change(&mut self, command: &str, text: &str) -> Result<(), String> {
        let command = match command {
            "add-flow" => FlowCommand::Add,
            "mod-flows" => FlowCommand::Modify,
            _ => FlowCommand::Delete,
        };
        let flow_mod = FlowMod::parse(text, command, &PortNames::default()).map_err(|e| e.to_string())?;
        self.ofproto.flow_mod(BRIDGE, &flow_mod, self.now_ms()).map_err(|e| e.to_string())?;
        self.revalidate();
        Ok(())
    }

    fn revalidate(&self) {
        self.datapath.service(self.now_ms());
        self.ofproto.tick(self.now_ms());
        self.ofproto.revalidate(&*self.datapath.store(), self.now_ms(), MAX_IDLE_MS);
    }

    fn rule(&self, packets: u64, text: &str) -> Result<(), String> {
        self.revalidate();
        let wanted = FlowMod::parse(text, FlowCommand::DeleteStrict, &PortNames::default());
        let wanted = wanted.map_err(|e| e.to_string())?;
        let rules = self.ofproto.rules(BRIDGE, &wanted).map_err(|e| e.to_string())?;
        let found = rules
            .iter()
            .find(|entry| entry.matches == wanted.matches && entry.rule.openflow_priority() == Some(wanted.priority));
        let found = found.ok_or_else(|| format!("there is no rule `{text}`"))?;
        same_number("packets of the rule", packets, found.rule.stats().packets)
    }

    /// Every packet has one fate, and every lookup one answer.
    fn conserved(&self) -> Result<(), String> {
        let totals = self.datapath.totals();
        totals.conserved().map_err(|e| e.to_string())?;
        let answers =
            [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits, Counter::Upcalls, Counter::UpcallsLost];
        let answered = answers.iter().map(|c| totals[*c]).sum();
        same_number("lookups answered", totals[Counter::Passes], answered)?;
        same_number("packets received", self.received, totals[Counter::Received])
    }
}

fn same_number(what: &str, want: u64, got: u64) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("{what}: expected {want}, found {got}")) }
}
