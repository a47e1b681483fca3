//! `sluice/set` and `sluice/autopilot-show`: how packets are looked up, shown and changed.

use super::Reply;
use crate::text::autopilot;
use sluice_datapath::{AutopilotReport, Settings};
use sluice_vswitch::Switch;

/// Changes the settings given, all or none, and shows what they all are now.
pub fn set(switch: &Switch, args: &[&str]) -> Reply {
    let mut settings = switch.datapath().settings();
    for arg in args {
        let (key, value) =
            arg.split_once('=').ok_or_else(|| format!("\"{arg}\"; expected SETTING=VALUE, as in emc=off"))?;
        settings.set(key, value).map_err(|error| error.to_string())?;
    }
    if !args.is_empty() {
        switch.datapath().set_settings(settings).map_err(|error| error.to_string())?;
        tracing::info!("settings of the lookup: {}", args.join(" "));
    }
    Ok(show(&settings))
}

/// What the autopilots have chosen for what the settings leave open.
pub fn autopilot_show(switch: &Switch, _: &[&str]) -> Reply {
    let names = switch.datapath_names();
    let show = |(core, reports): (Option<usize>, Vec<AutopilotReport>)| {
        autopilot::show(super::datapath::thread(core), &reports, |report| names.display(report.port).to_string())
    };
    Ok(switch.datapath().autopilots().into_iter().map(show).collect())
}

/// A line a setting: name, value, and what that means.
fn show(settings: &Settings) -> String {
    settings.values().iter().map(|(key, value)| format!("{key:<20} {value:<10} {}\n", meaning(key, value))).collect()
}

fn meaning(key: &str, value: &str) -> String {
    let level = |name: &str| match value {
        "on" => format!("{name}: always asked"),
        "off" => format!("{name}: never asked, and without memory"),
        _ => format!("{name}: asked where it pays, by measurement"),
    };
    match (key, value) {
        ("emc", _) => level("exact match cache"),
        ("smc", _) => level("signature match cache"),
        ("distributor", _) => level("cuckoo distributor"),
        ("distributor-table", "auto") => "in what it keeps its hints is chosen by measurement".into(),
        ("distributor-table", "own") => "it keeps its hints in a table of its own".into(),
        ("distributor-table", "ht") => "it keeps its hints in the membership library's hash table".into(),
        ("distributor-table", _) => "it keeps its hints in a vector of Bloom filters, for 64 subtables at most".into(),
        ("distributor-entries", "auto") => "its own table grows with the flows".into(),
        ("distributor-entries", n) => format!("it holds at most {n} flows"),
        ("distributor-vector", "auto") => "it uses the vector instructions of everything else".into(),
        ("distributor-vector" | "vector", "scalar") => "plain code".into(),
        ("distributor-vector", _) => "vector instructions that it uses".into(),
        ("subtable-pruning", "on") => "subtables that cannot match are skipped, where there are many".into(),
        ("subtable-pruning", _) => "every subtable is asked in turn".into(),
        ("subtable-ranking", "on") => "those with the most recent hits are asked first".into(),
        ("subtable-ranking", _) => "they are asked in the order in which they came".into(),
        ("vector", _) => "vector instructions in use".into(),
        ("emc-entries", _) => "entries of each PMD's exact match cache".into(),
        ("emc-insert-inv-prob", "auto") => "how many candidates it takes is chosen by measurement".into(),
        ("emc-insert-inv-prob", "adaptive") => "it takes fewer candidates while it is crowded and seldom hit".into(),
        ("emc-insert-inv-prob", "0") => "it takes no candidate, so it is off".into(),
        ("emc-insert-inv-prob", "1") => "it takes every candidate".into(),
        ("emc-insert-inv-prob", n) => format!("it takes one candidate in {n}"),
        ("emc-recirc", "auto") => "which recirculated packets use it is chosen by measurement".into(),
        ("emc-recirc", "always") => "recirculated packets use it like others".into(),
        ("emc-recirc", "threshold") => "recirculated packets use it up to the threshold below".into(),
        ("emc-recirc", "penalty") => "recirculated packets are inserted the less, the fuller it is".into(),
        ("emc-recirc", "random") => "recirculated packets use it by chance, with a probability that adapts".into(),
        ("emc-recirc", "rss") => "recirculated packets of some flows use it, by their hash; how many adapts".into(),
        ("emc-recirc", "random-all") => "packets of every pass use it by chance, with a probability that adapts".into(),
        ("emc-recirc", "rss-all") => {
            "packets of some flows use it in every pass, by their hash; how many adapts".into()
        }
        ("emc-recirc-threshold", n) => format!("these policies keep packets away while it is over {n} % full"),
        ("smc-entries", n) => format!("each PMD's signature match cache grows to {n} flows"),
        ("composed", "auto") => "one lookup for all passes of a tracked packet: asked where it helps".into(),
        ("composed", "on") => "one lookup for all passes of a tracked packet: always asked".into(),
        ("composed", _) => "a lookup for each pass of a tracked packet".into(),
        _ => unreachable!("no setting {key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_shown_with_words() {
        let mut settings = Settings::default();
        settings.set("emc-insert-inv-prob", "7").unwrap();
        settings.set("smc", "off").unwrap();
        settings.set("distributor-table", "vbf").unwrap();
        settings.set("vector", "scalar").unwrap();
        let expected = "\
emc                  auto       exact match cache: asked where it pays, by measurement
smc                  off        signature match cache: never asked, and without memory
distributor          auto       cuckoo distributor: asked where it pays, by measurement
distributor-table    vbf        it keeps its hints in a vector of Bloom filters, for 64 subtables at most
distributor-entries  auto       its own table grows with the flows
distributor-vector   auto       it uses the vector instructions of everything else
subtable-pruning     on         subtables that cannot match are skipped, where there are many
subtable-ranking     on         those with the most recent hits are asked first
vector               scalar     plain code
emc-entries          8192       entries of each PMD's exact match cache
emc-insert-inv-prob  7          it takes one candidate in 7
emc-recirc           auto       which recirculated packets use it is chosen by measurement
emc-recirc-threshold 50         these policies keep packets away while it is over 50 % full
smc-entries          16777216   each PMD's signature match cache grows to 16777216 flows
composed             auto       one lookup for all passes of a tracked packet: asked where it helps
";
        assert_eq!(show(&settings), expected);
    }
}
