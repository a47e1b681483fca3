//! Random tables and packets through Open vSwitch's userspace datapath and through `sluice replay`.
#![forbid(unsafe_code)]

mod actions;
mod capture;
mod flows;
mod matches;
mod ovs;
mod packets;
mod rng;
mod table;
mod unixctl;
mod values;

use anyhow::Result;
use rng::Rng;

fn main() -> Result<()> {
    let mut ovs = ovs::Ovs::start()?;
    let n: u64 = std::env::args().nth(1).map_or(5, |s| s.parse().unwrap());
    let start = std::time::Instant::now();
    let mut hits = 0;
    let mut rules = 0;
    let mut flows = 0;
    let mut outs = 0;
    for seed in 0..n {
        let mut rng = Rng::new(seed);
        let values = values::Values::new(&mut rng);
        let lines = table::random(&mut rng, &values);
        if let Err(e) = ovs.load(&lines) { println!("seed {seed} {:?}: {e:#}", lines.version); for l in &lines.lines { println!("{l}") } continue }
        for _ in 0..100 {
            let packet = packets::random(&mut rng, &values);
            let port = 1 + rng.below(values::PORTS.into()) as u16;
            outs += ovs.receive(port, &packet)?.len();
        }
        let m = ovs.megaflows()?;
        let c = ovs.counters()?;
        rules += c.len(); hits += c.values().filter(|c| c.0 > 0).count();
        flows += m.len();
        if seed == 3000 { for l in &lines.lines {println!("{l}")}  for (k, a) in m.iter().take(20) { println!("{k} -> {a}") } for (k, a) in c.iter().take(20) { println!("{k} -> {a:?}") } }
    }
    println!("{rules} rules {hits} hit, {flows} megaflows {outs} outputs {:?}", start.elapsed());
    Ok(())
}
