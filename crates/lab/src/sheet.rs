//! The machine's sheet: what a result depends on.

use crate::{core_distance, cores};
use serde::{Deserialize, Serialize};
use std::process::Command;

/// What a result depends on, name by name. What a machine does not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sheet(pub Vec<(String, String)>);

impl Sheet {
    /// The sheet of this machine; the host took `stolen_percent` of its time during the run.
    pub fn of_this_machine(stolen_percent: f64) -> Sheet {
        let facts = [
            (
                "version",
                Some(concat!("sluice ", env!("CARGO_PKG_VERSION"), ", built by ", env!("LAB_RUSTC")).to_owned()),
            ),
            // Of the sources when this was built, not when it ran.
            ("commit", option_env!("LAB_COMMIT").map(str::to_owned)),
            ("cpu", cpu_info("model name")),
            ("cores", Some(format!("{} to be used", cores::count()))),
            (
                "core distance",
                core_distance::measure().map(|cycles| format!("{cycles} cycles one way when this was written")),
            ),
            ("mhz", cpu_info("cpu MHz")),
            ("tsc", Some(format!("{:.3} GHz", sluice_datapath::tsc_hz() as f64 / 1e9))),
            ("vectors", vectors()),
            ("caches", caches()),
            ("memory", meminfo("MemTotal").map(|kib| format!("{:.1} GiB", kib / 1_048_576.0))),
            ("huge pages", huge_pages()),
            ("kernel", output("uname", &["-sr"])),
            ("system", system()),
            ("hypervisor", is_virtual().then(|| "yes, by the processor's flags".to_owned())),
            ("steal time", Some(format!("{stolen_percent:.2} % of the processor time during the run"))),
            ("load", read("/proc/loadavg").map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))),
        ];
        Sheet(facts.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), fact?))).collect())
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok().filter(|out| out.status.success())?;
    String::from_utf8(out.stdout).ok().map(|text| text.trim().to_owned())
}

/// The first processor's line of that name.
fn cpu_info(name: &str) -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn vectors() -> Option<String> {
    let flags = cpu_info("flags")?;
    let wanted = ["sse4_2", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512vbmi"];
    Some(flags.split(' ').filter(|flag| wanted.contains(flag)).collect::<Vec<_>>().join(" "))
}

fn is_virtual() -> bool {
    cpu_info("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn caches() -> Option<String> {
    let index = |i: u32| {
        let part = |name: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{i}/{name}"));
        let letter = match part("type")?.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        Some(format!("L{}{letter} {}", part("level")?, part("size")?))
    };
    let all: Vec<String> = (0..8).filter_map(index).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// KiB, or a bare number.
fn meminfo(name: &str) -> Option<f64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn huge_pages() -> Option<String> {
    let total = meminfo("HugePages_Total")?;
    let size = meminfo("Hugepagesize")?;
    let transparent = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let transparent = transparent.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    Some(format!("{total} of {size} KiB reserved; transparent ones: {transparent}"))
}

fn system() -> Option<String> {
    let text = read("/etc/os-release")?;
    text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"').to_owned())
}
