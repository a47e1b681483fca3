//! A switch at full rate while its rules change a thousand times a second.
//!
//! The generator sends as fast as it can; rules that drop, rewrite or copy some of its flows come and go. In the end
//! the traffic is stopped and the books must balance: every packet received or copied was sent or dropped by name, the
//! rule that all packets meet has counted each of them once, and the memory is what it was when the soak had warmed up.
#![forbid(unsafe_code)]

mod control;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use control::Control;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a switch at full rate while its rules change.
#[derive(Parser)]
struct Options {
    /// For how long.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rules added or deleted each second.
    #[arg(long, default_value_t = 1000)]
    changes: u64,
    /// Flows of the generator.
    #[arg(long, default_value = "100k")]
    flows: String,
    /// The core the PMD runs on.
    #[arg(long, default_value_t = 1)]
    core: usize,
    /// The binary; by default the one beside this program.
    #[arg(long)]
    sluice: Option<PathBuf>,
}

/// Rules that come and go at once, at most.
const RULES_MAX: u64 = 500;
/// Memory may grow by this after the first quarter: what the allocator keeps of a burst, not a leak of one rule in ten.
const GROWTH_MAX_KIB: u64 = 4096;

fn main() -> Result<()> {
    let options = Options::parse();
    let folder = tempfile::Builder::new().prefix("sluice-soak-").tempdir()?;
    let mut switch = Switch::start(&options, folder.path())?;
    let done = soak(&mut switch, &options);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    drop(switch);
    match done {
        Ok(()) => println!("lane soak: 1 passed, 0 failed, 0 skipped"),
        Err(e) => {
            println!("{}\nsoak: {e:#}\nlane soak: 0 passed, 1 failed, 0 skipped", log.trim_end());
            std::process::exit(1);
        }
    }
    Ok(())
}

/// A running switch; it ends when this is dropped.
struct Switch {
    child: Child,
    control: Control,
}

impl Switch {
    fn start(options: &Options, folder: &Path) -> Result<Self> {
        let at = |name: &str| folder.join(name);
        std::fs::write(at("soak.toml"), configuration(options, folder))?;
        std::fs::write(at("flows.txt"), flows())?;
        let beside = std::env::current_exe()?.with_file_name("sluice");
        let log = std::fs::File::create(at("log"))?;
        let mut child = Command::new(options.sluice.clone().unwrap_or(beside))
            .arg("run")
            .arg(at("soak.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting the switch")?;
        loop {
            if let Some(control) = Control::connect(&at("run/sluice.ctl"))? {
                return Ok(Switch { child, control });
            }
            if let Some(status) = child.try_wait()? {
                bail!("the switch ended: {status}\n{}", std::fs::read_to_string(at("log"))?);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory, KiB.
    fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).context("no VmRSS")?;
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).context("VmRSS is a number")
    }

    fn counter(&mut self, name: &str) -> Result<u64> {
        let text = self.control.command("coverage/read-counter", &[name])?;
        text.trim().parse().with_context(|| format!("counter {name}: {text}"))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Gone already is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(options: &Options, folder: &Path) -> String {
    let Options { flows, core, .. } = options;
    format!(
        r#"[switch]
rundir = "{}"
pmd-cores = [{core}]
[[bridge]]
name = "br0"
flows = "flows.txt"
[[bridge.port]]
name = "gen"
ofport = 1
type = "generator"
options = {{ flows = "{flows}", subtables = "20", frame-size = "60", seed = "1" }}
[[bridge.port]]
name = "sink"
ofport = 2
type = "null"
[[bridge.port]]
name = "other"
ofport = 3
type = "null"
"#,
        folder.join("run").display()
    )
}

/// Every packet meets the one rule of table 0; the twenty of the generator's traffic are in table 1.
fn flows() -> String {
    let mut text = "table=0,priority=1 actions=resubmit(,1)\n".to_owned();
    for i in 1..=20 {
        text += &format!("table=1,priority=10,ip,nw_src={i}.0.0.0/{} actions=output:2\n", 7 + i);
    }
    text
}

/// The rule that comes as number `i`.
fn rule(i: u64) -> (String, String) {
    let matched = format!("table=1,priority={},ip,nw_src={}.0.{}.0/24", 20 + i % 3, 1 + i % 8, i / 8 % 64);
    let actions = ["drop", "output:3", "mod_nw_tos:32,output:2", "output:2,mod_nw_ttl:9,output:3"][i as usize % 4];
    (format!("{matched} actions={actions}"), matched.replacen(&format!("priority={},", 20 + i % 3), "", 1))
}

fn soak(switch: &mut Switch, options: &Options) -> Result<()> {
    let began = Instant::now();
    let whole = Duration::from_secs(options.seconds);
    let (mut added, mut deleted, mut warm, mut most) = (0, 0, None, 0);
    let mut next_sample = Duration::ZERO;
    while began.elapsed() < whole {
        let due = (began.elapsed().as_secs_f64() * options.changes as f64) as u64;
        change(switch, due.saturating_sub(added + deleted).min(200), &mut added, &mut deleted)?;
        if began.elapsed() >= next_sample {
            next_sample += Duration::from_secs(1);
            let memory = switch.memory()?;
            most = most.max(memory);
            if began.elapsed() * 4 >= whole && warm.is_none() {
                (warm, most) = (Some(memory), memory);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let changes = (added + deleted) as f64 / began.elapsed().as_secs_f64();
    switch.control.command("bridge/del-port", &["br0", "gen"])?;
    switch.control.command("revalidator/wait", &[])?;
    let received = balance(switch)?;
    let rate = received as f64 / began.elapsed().as_secs_f64() / 1e6;
    let warm = warm.unwrap_or(most);
    println!("{received} packets, {rate:.2} Mpps; {added} rules added, {deleted} deleted, {changes:.0} a second");
    println!("memory: {warm} KiB after a quarter, {most} KiB at most after that");
    ensure!(most <= warm + GROWTH_MAX_KIB, "memory grew from {warm} to {most} KiB");
    ensure!(changes >= 0.9 * options.changes as f64, "{changes:.0} rules changed a second, {} wanted", options.changes);
    Ok(())
}

/// Adds rules until there are enough, then deletes the oldest for each that is added.
fn change(switch: &mut Switch, n: u64, added: &mut u64, deleted: &mut u64) -> Result<()> {
    let mut commands = Vec::new();
    for _ in 0..n {
        if *added - *deleted < RULES_MAX {
            commands.push(("bridge/add-flow", rule(*added).0));
            *added += 1;
        } else {
            commands.push(("bridge/del-flows", rule(*deleted).1));
            *deleted += 1;
        }
    }
    let requests: Vec<_> = commands.iter().map(|(method, text)| (*method, vec!["br0", &text[..]])).collect();
    switch.control.commands(&requests)?;
    Ok(())
}

/// With the traffic stopped: one fate for every packet, one answer for every lookup, one count in the rule that all
/// packets meet. Returns how many were received.
fn balance(switch: &mut Switch) -> Result<u64> {
    let mut sum = |names: &[&str]| -> Result<u64> { names.iter().map(|name| switch.counter(name)).sum() };
    let came = sum(&["received", "originated", "cloned", "released"])?;
    let went = sum(&["sent", "delivered", "held"])?;
    let (passes, answers) =
        (sum(&["passes"])?, sum(&["emc_hits", "smc_hits", "megaflow_hits", "upcalls", "upcalls_lost"])?);
    let received = sum(&["received"])?;
    let drops = switch.control.command("sluice/drops", &[])?;
    let dropped: u64 = drops
        .lines()
        .find_map(|l| l.strip_prefix("dropped in all"))
        .and_then(|n| n.trim().parse().ok())
        .with_context(|| format!("sluice/drops has no sum:\n{drops}"))?;
    ensure!(came == went + dropped, "{came} packets came, {went} went and {dropped} were dropped:\n{drops}");
    ensure!(passes == answers, "{passes} lookups, {answers} answers");
    let rules = switch.control.command("bridge/dump-flows", &["br0"])?;
    let first =
        rules.lines().find(|l| l.contains("priority=1,")).with_context(|| format!("the first rule in:\n{rules}"))?;
    let counted: u64 = first
        .split("n_packets=")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .and_then(|n| n.parse().ok())
        .with_context(|| format!("no n_packets in: {first}"))?;
    ensure!(
        counted == received,
        "{received} packets were received, the rule that all meet counted {counted}:\n{drops}"
    );
    println!("{}", drops.trim_end());
    Ok(received)
}
