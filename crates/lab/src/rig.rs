//! A switch in the process: generator → rules → null port, taking turns in the caller's thread. No privileges.

use crate::core_share::{self, Lasting, Slices};
use anyhow::{Result, anyhow, ensure};
use sluice_datapath::{Config, Datapath, Level, Settings, Stage, StageCycles};
use sluice_fate::{Counter, Snapshot};
use sluice_flow_cache::FlowView;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_port::Pools;
use sluice_traffic::{Flow, FlowStream, Profile};
use sluice_vswitch::{Assembly, Bridge, Port, Source, Sources};
use std::collections::BTreeMap;
use std::iter::Sum;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// What a switch is given to do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Keys and values of the generator's profile.
    pub profile: Vec<(&'static str, String)>,
    /// The rules.
    pub rules: String,
    /// The megaflow subtables that they come to.
    pub subtables: usize,
    /// The field that tells which rule a flow belongs to.
    pub rule_of: fn(&Flow) -> u32,
}

impl Workload {
    /// The cuckoo distributor's test: `flows` flows, evenly over `subtables` rules with a mask each.
    pub fn subtables(flows: u64, subtables: u16) -> Workload {
        Workload {
            profile: vec![
                ("flows", flows.max(subtables.into()).to_string()),
                ("subtables", subtables.to_string()),
                ("seed", "0".to_owned()),
            ],
            rules: crate::rules::subtables(subtables),
            subtables: usize::from(subtables),
            rule_of: |flow| flow.src,
        }
    }

    /// Membership's test: `subtables` subtables of `rules` rules each, and a flow for each rule.
    pub fn rules_a_subtable(subtables: u16, rules: u32) -> Workload {
        Workload {
            rules: crate::rules::many_a_subtable(subtables, rules),
            rule_of: |flow| flow.src ^ flow.dst,
            ..Workload::subtables(u64::from(subtables) * u64::from(rules), subtables)
        }
    }

    /// The same packets of other flows: which comes next, as a profile's key `choice` says.
    pub fn chosen(mut self, choice: &str) -> Workload {
        self.profile.push(("choice", choice.to_owned()));
        self
    }

    /// One rule for all.
    pub fn one_rule(flows: u64, rule: &str) -> Workload {
        Workload {
            profile: vec![("flows", flows.to_string()), ("seed", "0".to_owned())],
            rules: rule.to_owned(),
            subtables: 1,
            rule_of: |_| 0,
        }
    }

    /// A rule for each of `flows` flows, by its destination.
    ///
    /// # Errors
    /// None but what a profile may be wrong about.
    pub fn rule_a_flow(flows: u64) -> Result<Workload> {
        let workload = Workload { rule_of: |flow| flow.dst, ..Workload::one_rule(flows, "") };
        let stream = workload.stream()?;
        let rule = |n| format!("ip,nw_dst={},actions=output:2\n", Ipv4Addr::from(stream.flow(n as u32).dst));
        Ok(Workload { rules: (0..flows).map(rule).collect(), ..workload })
    }

    /// The generator's packets.
    pub(crate) fn stream(&self) -> Result<FlowStream> {
        let mut profile = Profile::default();
        for (key, value) in &self.profile {
            profile.set(key, value).ok_or_else(|| anyhow!("{key}: no key of a profile"))??;
        }
        profile.streams(1)?.pop().ok_or_else(|| anyhow!("a profile without a stream"))
    }
}

/// A switch with its traffic.
pub struct Rig {
    assembly: Assembly,
    /// The generator's packets once more, to know what each rule should have carried.
    twin: FlowStream,
    subtables: usize,
    rule_of: fn(&Flow) -> u32,
    is_profiled: bool,
}

/// Turns of the loop in a slice: 2048 packets, about 0.1 ms.
pub const TURNS: usize = 64;
/// Milliseconds of the clock that pass with a slice while caches warm.
const MS_A_SLICE: u64 = 20;
/// Between two looks at the core a switch that waits for it runs this long: two of the autopilot's chunks.
const PIECE: Duration = Duration::from_millis(1);
/// Packets in a turn.
const BATCH: u64 = 32;
/// Part of a measurement that only warms the processor's caches, after other switches have had them.
const WARM_PART: f64 = 0.2;

const BRIDGE: &str = "br0";

impl Rig {
    /// A switch that does `workload` with `settings`; cycles are counted by stage if `is_profiled`.
    ///
    /// # Errors
    /// If rules or profile are wrong, or memory is short.
    pub fn new(workload: &Workload, settings: Settings, is_profiled: bool) -> Result<Rig> {
        let ports = [("generator", &workload.profile[..]), ("null", &[])];
        let assembly = switch(settings, is_profiled, &workload.rules, &ports)?;
        let (twin, Workload { subtables, rule_of, .. }) = (workload.stream()?, workload);
        Ok(Rig { assembly, twin, subtables: *subtables, rule_of: *rule_of, is_profiled })
    }

    /// Warms the caches with `packets` packets and checks the answers: every packet is sent, every rule has carried
    /// exactly the packets that are its, there are as many subtables as there should be, the level that is off answers
    /// nothing.
    ///
    /// # Errors
    /// If an answer is wrong.
    pub fn check(&mut self, packets: u64, settings: &Settings) -> Result<()> {
        for turn in 0..packets.div_ceil(TURNS as u64 * BATCH) {
            // Subtables are ranked by the clock.
            self.assembly.datapath().run_iterations(TURNS, turn * MS_A_SLICE);
            self.assembly.datapath().service(turn * MS_A_SLICE);
        }
        let all = self.assembly.datapath().totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        ensure!(
            all[Counter::Received] == all[Counter::Sent],
            "of {} packets {} were sent",
            all[Counter::Received],
            all[Counter::Sent]
        );
        let pmd = self.assembly.datapath().pmds().pop().ok_or_else(|| anyhow!("no PMD"))?;
        ensure!(pmd.subtables == self.subtables, "{} subtables instead of {}", pmd.subtables, self.subtables);
        let Settings { emc, smc, distributor, .. } = *settings;
        for (level, hits) in [(emc, Counter::EmcHits), (smc, Counter::SmcHits), (distributor, Counter::DistributorHits)]
        {
            ensure!(level != Level::Off || all[hits] == 0, "{} {} of a cache that is off", all[hits], hits.name());
        }
        self.check_rules(all[Counter::Received])
    }

    /// Compares the rules' counters with the generator's twin, which has sent as many packets.
    fn check_rules(&mut self, sent: u64) -> Result<()> {
        let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
        let mut flows = [0; BATCH as usize];
        let mut left = sent;
        while left != 0 {
            let n = self.twin.pick(&mut flows[..left.min(BATCH) as usize]);
            ensure!(n != 0, "the generator's twin ends early");
            for flow in &flows[..n] {
                *expected.entry((self.rule_of)(&self.twin.flow(*flow))).or_default() += 1;
            }
            left -= n as u64;
        }
        let mut carried = carried(&self.assembly)?;
        let mut expected: Vec<u64> = expected.into_values().collect();
        carried.sort_unstable();
        expected.sort_unstable();
        ensure!(carried == expected, "the rules have carried {carried:?} packets instead of {expected:?}");
        Ok(())
    }

    /// Runs for `span` as a switch does, whose control threads make memory for caches meanwhile.
    pub fn run(&self, span: Duration) {
        let began = Instant::now();
        while began.elapsed() < span {
            self.assembly.datapath().run_iterations(TURNS, 0);
            self.assembly.datapath().service(0);
        }
    }

    /// The same until the switch has had the core for itself for `span`: while another machine computes on it the autopilot waits.
    pub fn run_alone(&self, span: Duration) {
        core_share::run_alone(span, || self.run(PIECE));
    }

    /// Its megaflows now.
    pub fn megaflows(&self) -> Vec<FlowView> {
        self.assembly.datapath().flows().into_iter().map(|report| report.flow).collect()
    }

    /// Measures for about `span`: the median of slices of 2048 packets that had the core for themselves, and what answered.
    pub fn time(&self, span: Duration) -> Sample {
        time(self.assembly.datapath(), self.is_profiled, span)
    }

    /// Measures for about `span`: all cycles of such slices divided by all their packets. As in `time`,
    /// the first part only warms.
    pub fn mean(&self, span: Duration) -> Sample {
        let time = Lasting::new(span);
        self.run(span.mul_f64(WARM_PART));
        let before = self.assembly.datapath().totals();
        let mut slices = Slices::of_mean();
        let mut last = Cost::of(&before);
        while time.lasts(&slices) {
            slices.run(|| {
                self.assembly.datapath().run_iterations(TURNS, 0);
                last.replaced_by(Cost::of(&self.assembly.datapath().totals()))
            });
        }
        let counted = self.assembly.datapath().totals().since(&before);
        let cycles = slices.counting().into_iter().sum::<Cost>().cycles_a_packet();
        let emc_used = self.assembly.datapath().pmds().first().map_or(0, |pmd| pmd.emc.used);
        Sample::of(cycles, &counted, emc_used, slices.shared_percent())
    }
}

/// A port of a switch: its type, and the options it has.
pub type PortOptions<'a> = (&'static str, &'a [(&'static str, String)]);

/// As [`switch`], with ports that are open already.
///
/// # Errors
/// As [`switch`].
pub fn switch_between(settings: Settings, rules: &str, ports: Vec<Box<dyn sluice_port::Port>>) -> Result<Assembly> {
    let mut assembly = with_bridge(Config { settings, ..Config::default() })?;
    for (number, port) in (1..).zip(ports) {
        let desired = Port::new(&format!("p{number}"), port.info().kind).numbered(number);
        assembly.attach_port(BRIDGE, &desired, port)?;
    }
    assembly.load_sources(BRIDGE, &rules_from(rules), 0)?;
    Ok(assembly)
}

/// A switch in the caller's thread with rules and with ports numbered from 1.
///
/// # Errors
/// If rules or options are wrong, or memory is short.
pub fn switch(settings: Settings, is_profiled: bool, rules: &str, ports: &[PortOptions<'_>]) -> Result<Assembly> {
    switch_of(Config { settings, profile: is_profiled, ..Config::default() }, rules, ports)
}

/// As [`switch`], with several PMDs, which take turns.
///
/// # Errors
/// As [`switch`].
pub fn switch_with_pmds(settings: Settings, pmds: usize, rules: &str, ports: &[PortOptions<'_>]) -> Result<Assembly> {
    switch_of(Config { settings, cores: vec![0; pmds], ..Config::default() }, rules, ports)
}

fn with_bridge(config: Config) -> Result<Assembly> {
    // Always the same seed, so that runs repeat.
    let mut assembly = Assembly::new(Config { seed: Some(1), ..config }, Pools::default())?;
    assembly.create_bridge(&Bridge::new(BRIDGE), 0)?;
    Ok(assembly)
}

fn switch_of(config: Config, rules: &str, ports: &[PortOptions<'_>]) -> Result<Assembly> {
    let mut assembly = with_bridge(config)?;
    for (number, (kind, options)) in (1..).zip(ports) {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        assembly.add_port(BRIDGE, &Port { options, ..Port::new(&format!("p{number}"), kind).numbered(number) })?;
    }
    assembly.load_sources(BRIDGE, &rules_from(rules), 0)?;
    Ok(assembly)
}

/// Rules that a table is to hold.
pub fn rules_from(text: &str) -> Sources {
    Sources { rules: Some(Source::new("rules", text)), ..Sources::default() }
}

/// The packets that each rule has carried, in no order; rules without are left out.
///
/// # Errors
/// If there is no such bridge.
pub fn carried(assembly: &Assembly) -> Result<Vec<u64>> {
    assembly.ofproto().revalidate(&*assembly.datapath().store(), 0, u64::MAX);
    let rules = assembly.ofproto().rules(BRIDGE, &FlowMod::new(FlowCommand::Delete))?;
    Ok(rules.iter().map(|entry| entry.rule.stats().packets).filter(|n| *n != 0).collect())
}

/// Measures a switch for about `span`: the median of slices of [`TURNS`] turns, and what answered.
pub fn time(datapath: &Datapath, is_profiled: bool, span: Duration) -> Sample {
    let (began, time) = (Instant::now(), Lasting::new(span));
    while began.elapsed() < span.mul_f64(WARM_PART) {
        datapath.run_iterations(TURNS, 0);
    }
    let before = datapath.totals();
    let mut slices = Slices::of_median();
    while time.lasts(&slices) {
        slices.run(|| slice(datapath));
    }
    let counted = datapath.totals().since(&before);
    let emc_used = datapath.pmds().first().map_or(0, |pmd| pmd.emc.used);
    let counting = slices.counting();
    let cycles = middle(counting.iter().map(|(cycles, _)| *cycles).collect());
    let mut sample = Sample::of(cycles, &counted, emc_used, slices.shared_percent());
    if is_profiled {
        let of_stage = |(n, stage)| (stage_figure(stage), middle(counting.iter().map(|(_, by)| by[n]).collect()));
        sample.0.extend(Stage::ALL.into_iter().enumerate().map(of_stage));
    }
    sample
}

/// Cycles, and the packets that they were for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    cycles: u64,
    packets: u64,
}

impl Cost {
    pub fn of(counted: &Snapshot) -> Cost {
        Cost {
            cycles: counted[Counter::BusyCycles] + counted[Counter::IdleCycles],
            packets: counted[Counter::Received],
        }
    }

    /// What has come since, up to `now`, from which the next begins.
    pub fn replaced_by(&mut self, now: Cost) -> Cost {
        let before = std::mem::replace(self, now);
        Cost { cycles: now.cycles - before.cycles, packets: now.packets - before.packets }
    }

    pub fn cycles_a_packet(self) -> f64 {
        self.cycles as f64 / self.packets.max(1) as f64
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(all: I) -> Cost {
        all.fold(Cost::default(), |sum, one| Cost {
            cycles: sum.cycles + one.cycles,
            packets: sum.packets + one.packets,
        })
    }
}

/// Cycles a packet of one slice, and by stage.
fn slice(datapath: &Datapath) -> (f64, [f64; Stage::ALL.len()]) {
    let stages = || datapath.pmds().first().map_or(StageCycles::default(), |pmd| pmd.stage_cycles);
    let (before, before_by_stage) = (datapath.totals(), stages());
    datapath.run_iterations(TURNS, 0);
    let (counted, stages) = (datapath.totals().since(&before), stages());
    let packets = counted[Counter::Received].max(1) as f64;
    let by_stage = std::array::from_fn(|i| (stages[i] - before_by_stage[i]) as f64 / packets);
    (Cost::of(&counted).cycles_a_packet(), by_stage)
}

/// The middle one; there is at least one.
pub(crate) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What one measurement gave, by name.
#[derive(Clone, Debug, Default)]
pub struct Sample(pub BTreeMap<String, f64>);

impl Sample {
    fn of(cycles: f64, counted: &Snapshot, emc_used: usize, shared_percent: f64) -> Sample {
        let share = |counter| 100.0 * counted[counter] as f64 / counted[Counter::Passes].max(1) as f64;
        let hits = counted[Counter::MegaflowHits];
        let figures = [
            (CYCLES, cycles),
            (MPPS, sluice_datapath::tsc_hz() as f64 / cycles / 1e6),
            (EMC_SHARE, share(Counter::EmcHits)),
            (SMC_SHARE, share(Counter::SmcHits)),
            (MEGAFLOW_SHARE, share(Counter::MegaflowHits)),
            (DISTRIBUTOR_SHARE, share(Counter::DistributorHits)),
            (DISTRIBUTOR_WRONG, share(Counter::DistributorWrong)),
            (EMC_BYPASSED, share(Counter::EmcBypassed)),
            (PROBES, if hits == 0 { 0.0 } else { counted[Counter::SubtableProbes] as f64 / hits as f64 }),
            (EMC_USED, emc_used as f64),
            (COMPOSED_SHARE, share(Counter::ComposedHits)),
            (CORE_SHARED, shared_percent),
        ];
        Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// The figure of a stage's cycles a packet.
pub fn stage_figure(stage: Stage) -> String {
    format!("cycles_{}", stage.name())
}

/// Cycles a packet, generator and null port included.
pub const CYCLES: &str = "cycles";
/// Million packets a second, by the same cycles.
pub const MPPS: &str = "mpps";
/// Passes that the exact match cache answers, percent.
pub const EMC_SHARE: &str = "emc_percent";
/// Passes that the signature match cache answers, percent.
pub const SMC_SHARE: &str = "smc_percent";
/// Passes that the subtables answer, percent.
pub const MEGAFLOW_SHARE: &str = "megaflow_percent";
/// Passes that the distributor leads to their subtable at once, percent; they count among the subtables' too.
pub const DISTRIBUTOR_SHARE: &str = "distributor_percent";
/// Passes that the distributor leads to a subtable that is not theirs, percent.
pub const DISTRIBUTOR_WRONG: &str = "distributor_wrong_percent";
/// Passes that a policy kept away from the exact match cache, percent.
pub const EMC_BYPASSED: &str = "emc_bypassed_percent";
/// Passes that a composed entry answers, percent; they count among the subtables' too.
pub const COMPOSED_SHARE: &str = "composed_percent";
/// Slices left out because another machine computed on the same core, percent.
pub const CORE_SHARED: &str = "core_shared_percent";
/// Subtables probed a megaflow hit.
pub const PROBES: &str = "probes";
/// Entries of the exact match cache in use.
pub const EMC_USED: &str = "emc_used";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting;

    /// Twenty subtables by the seed's rules and two hundred by ours come to as many, with every level alone.
    #[test]
    fn every_setting_gives_the_right_answers() {
        for subtables in [20, 200] {
            for setting in [setting::SEARCH, setting::EMC, setting::SMC, setting::BOTH, setting::AUTO] {
                let settings = setting.settings().unwrap();
                let mut rig = Rig::new(&Workload::subtables(1000, subtables), settings, false).unwrap();
                rig.check(20_000, &settings).unwrap();
                let sample = rig.time(Duration::ZERO);
                assert!(sample.0[CYCLES] > 0.0, "{}", setting.name);
            }
        }
    }

    #[test]
    fn a_wrong_rule_does_not_pass() {
        let mut workload = Workload::subtables(1000, 3);
        workload.rules = workload.rules.replace("nw_src=2.0.0.0/9", "nw_src=2.0.0.0/32");
        let settings = setting::SEARCH.settings().unwrap();
        // Sources are first addresses, so the rule still matches, by another mask.
        assert!(Rig::new(&workload, settings, false).unwrap().check(20_000, &settings).is_ok());
        workload.rules = workload.rules.replace("nw_src=2.0.0.0/32,actions=output:2", "nw_src=2.0.0.0/9,actions=drop");
        let error = Rig::new(&workload, settings, false).unwrap().check(20_000, &settings).unwrap_err();
        assert!(error.to_string().contains("were sent"), "{error}");
        workload.rules =
            workload.rules.replace("udp,nw_src=2.0.0.0/9,actions=drop", "udp,nw_src=0.0.0.0/1,actions=output:2");
        let error = Rig::new(&workload, settings, false).unwrap().check(20_000, &settings).unwrap_err();
        assert!(
            error.to_string().contains("subtables instead of") || error.to_string().contains("have carried"),
            "{error}"
        );
    }
}
