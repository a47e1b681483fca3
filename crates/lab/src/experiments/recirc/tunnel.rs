//! What the thread names against a choice by pass: one flow of a tunnel in pass one and 100,000 tenants' flows behind it, and
//! the reverse.
//!
//! A label of MPLS stands for the tunnel's header, since a packet passes the lookup again when it is popped: before, the key
//! is the same for every packet, and afterwards that of the tenant's flow. Pushed, it is the other way round.

use super::{SETTINGS, names};
use crate::experiments::table_of;
use crate::grid::{Place, Ready, Subject, place};
use crate::peer::{Directory, write_capture};
use crate::record::{Point, Table};
use crate::rig::{self, EMC_BYPASSED, EMC_SHARE, MPPS, Sample, TURNS};
use anyhow::{Context, Result, anyhow, ensure};
use sluice_datapath::Settings;
use sluice_fate::Counter;
use sluice_traffic::{Profile, SplitMix64};
use sluice_vswitch::Assembly;
use std::time::Duration;

/// Flows in each of the two passes: one of them has a single one.
const IN_PASS_ONE: &str = "flows in pass one";
const IN_PASS_TWO: &str = "flows in pass two";
/// Where these points are, beside others.
pub const AT: [&str; 2] = [IN_PASS_ONE, IN_PASS_TWO];

/// The tenants' flows. Source: the thread.
const TENANTS: f64 = 100e3;
/// Packets of each tenant in the capture, which is played for ever; they come in random order.
const PACKETS_A_TENANT: usize = 4;
/// Packets that warm the caches: at one in a hundred misses inserted, more than twice the entries of the exact match cache.
const WARM_PACKETS: u64 = 2_000_000;

/// The label is popped, and the packet looked up again.
const POP: &str = "table=0,in_port=1,mpls,actions=pop_mpls:0x0800,resubmit(,1)\ntable=1,ip,actions=output:2\n";
/// It is pushed, and the packet looked up again.
const PUSH: &str = "table=0,in_port=1,ip,actions=push_mpls:0x8847,set_field:7->mpls_label,debug_recirc,resubmit(,1)\n\
                    table=1,mpls,actions=output:2\n";
/// The label 7, the last of its stack, with a TTL of 64.
const LABEL: [u8; 4] = ((7 << 12) | (1 << 8) | 64_u32).to_be_bytes();
const ETHERTYPE_MPLS: [u8; 2] = [0x88, 0x47];
/// Where the type of a frame is, and what it carries.
const ETHERTYPE_AT: usize = 12;
const PAYLOAD_AT: usize = 14;

/// The tunnel's end and its way in.
pub fn places() -> [Place; 2] {
    [[1.0, TENANTS], [TENANTS, 1.0]].map(|[one, two]| place([(IN_PASS_ONE, one), (IN_PASS_TWO, two)]))
}

/// Whether a point is one of these.
pub fn is_here(at: &Place) -> bool {
    at.contains_key(IN_PASS_ONE)
}

/// Makes a setting ready.
///
/// # Errors
/// If an answer is wrong.
pub fn set_up(at: &Place, arm: usize, settle: Duration) -> Result<Ready> {
    let (one, two) = (at[IN_PASS_ONE], at[IN_PASS_TWO]);
    let tunnel = Tunnel::new(one.max(two) as u32, one == 1.0, SETTINGS[arm].settings()?)?;
    tunnel.check(WARM_PACKETS)?;
    rig::time(tunnel.assembly.datapath(), false, settle);
    Ok(Ready::Subject(Box::new(tunnel)))
}

/// Its tables.
pub fn tables(points: &[Point]) -> Vec<Table> {
    let table = |title: &str, figure: &str| table_of(title, points, &AT, &names(), figure);
    vec![
        table("One flow of a tunnel and the tenants' flows: Mpps, median (least–most)", MPPS),
        table("The same: passes that the exact match cache answers, percent", EMC_SHARE),
        table("The same: passes kept away from it, percent", EMC_BYPASSED),
    ]
}

/// A switch with its traffic.
struct Tunnel {
    assembly: Assembly,
}

impl Tunnel {
    /// `tenants` flows; their packets come with the label, which is popped, or without, and it is pushed.
    fn new(tenants: u32, pops: bool, settings: Settings) -> Result<Tunnel> {
        let directory = Directory::make()?;
        let capture = directory.path().join("in.pcap");
        write_capture(&capture, frames(tenants, pops)?.iter())?;
        let options = [("rx", capture.display().to_string()), ("loop", "true".to_owned())];
        // The capture is in memory as soon as the port is open.
        let rules = if pops { POP } else { PUSH };
        let assembly = rig::switch(settings, false, rules, &[("pcap", &options), ("null", &[])])?;
        Ok(Tunnel { assembly })
    }

    /// Warms the caches with `packets` packets and checks that each was sent after two passes, by one rule in each.
    fn check(&self, packets: u64) -> Result<()> {
        for _ in 0..packets.div_ceil(TURNS as u64 * 32) {
            self.assembly.datapath().run_iterations(TURNS, 0);
            self.assembly.datapath().service(0);
        }
        let all = self.assembly.datapath().totals();
        all.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        let (received, sent, passes) = (all[Counter::Received], all[Counter::Sent], all[Counter::Passes]);
        ensure!(
            received == sent && passes == 2 * received,
            "of {received} packets {sent} were sent, in {passes} passes"
        );
        let carried = rig::carried(&self.assembly)?;
        ensure!(carried == [received, received], "two rules have carried {carried:?} packets of {received}");
        Ok(())
    }
}

impl Subject for Tunnel {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        Ok(rig::time(self.assembly.datapath(), false, span))
    }
}

/// The tenants' packets, with the label or without.
fn frames(tenants: u32, has_label: bool) -> Result<Vec<Vec<u8>>> {
    let profile = Profile { flows: Some(tenants), ..Profile::default() };
    let stream = profile.streams(1)?.pop().context("a profile without a stream")?;
    let mut flows: Vec<u32> = (0..tenants).cycle().take(tenants as usize * PACKETS_A_TENANT).collect();
    let mut random = SplitMix64::new(1);
    (1..flows.len()).rev().for_each(|i| flows.swap(i, (random.next_u64() % (i as u64 + 1)) as usize));
    let frame = |flow: &u32| {
        let mut frame = vec![0; stream.frame_size()];
        stream.writer().write(*flow, &mut frame);
        if has_label {
            frame[ETHERTYPE_AT..PAYLOAD_AT].copy_from_slice(&ETHERTYPE_MPLS);
            frame.splice(PAYLOAD_AT..PAYLOAD_AT, LABEL);
        }
        frame
    };
    Ok(flows.iter().map(frame).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[test]
    fn every_setting_gives_the_right_answers() {
        for setting in SETTINGS {
            for pops in [true, false] {
                Tunnel::new(200, pops, setting.settings().unwrap()).unwrap().check(20_000).unwrap();
            }
        }
    }

    #[test]
    fn one_pass_has_one_flow_and_the_other_the_tenants() {
        let keys = &[("emc", "on"), ("emc-insert-inv-prob", "1"), ("emc-recirc", "always")];
        let all = Setting { name: "all inserted", keys };
        for pops in [true, false] {
            let tunnel = Tunnel::new(300, pops, all.settings().unwrap()).unwrap();
            tunnel.check(50_000).unwrap();
            let used = tunnel.assembly.datapath().pmds().first().map_or(0, |pmd| pmd.emc.used);
            assert_eq!(used, 301, "an entry for the tunnel and for each tenant");
        }
    }
}
