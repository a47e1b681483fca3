//! Commands about connections. Arguments, answers and errors are those of `ovs-appctl dpctl/…` (OVS lib/dpctl.c).

use super::Reply;
use super::options::names_datapath;
use crate::process::Process;
use crate::program;
use sluice_conntrack::{Conntrack, Filter, Timeout, TimeoutPolicy, text};
use sluice_unixctl::Pieces;
use sluice_vswitch::Switch;
use std::fmt::Write;
use std::sync::Arc;

/// An error as dpctl words it.
pub(super) fn invalid<T>(what: impl std::fmt::Display) -> Result<T, String> {
    Err(program::error(format_args!("{what} (Invalid argument)")))
}

/// The leading options of a dpctl command, then its words without a datapath's name in front.
pub(super) struct Words<'a> {
    pub more: bool,
    statistics: bool,
    pub rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub fn parse(args: &[&'a str]) -> Result<Self, String> {
        let mut words = Words { more: false, statistics: false, rest: Vec::new() };
        let options = args.iter().take_while(|arg| arg.starts_with('-') && arg.len() > 1).count();
        for option in &args[..options] {
            match *option {
                "--more" => words.more = true,
                "--statistics" => words.statistics = true,
                "--names" | "--no-names" => {}
                _ if option.starts_with("--") => return Err(format!("Unrecognized option {option}")),
                _ => {
                    for letter in option.chars().skip(1) {
                        match letter {
                            'm' => words.more = true,
                            's' => words.statistics = true,
                            _ => return Err(format!("Unrecognized option -{letter}")),
                        }
                    }
                }
            }
        }
        let rest = &args[options..];
        words.rest = match rest {
            [name, rest @ ..] if names_datapath(name) => rest.to_vec(),
            _ => rest.to_vec(),
        };
        Ok(words)
    }

    /// Refuses what is left over.
    pub fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { invalid("datapath not found") }
    }
}

fn tracker(switch: &Switch) -> &Conntrack {
    switch.datapath().conntrack()
}

/// Takes `zone=N` off the end, if it is there.
fn zone_at_end(words: &mut Vec<&str>) -> Option<u16> {
    let zone = words.last()?.strip_prefix("zone=")?.parse().ok()?;
    words.pop();
    Some(zone)
}

pub fn dump(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    let mut words = Words::parse(args)?;
    let filter = Filter::zone(zone_at_end(&mut words.rest));
    words.end()?;
    let (process, now_ms) = (Arc::clone(process), process.switch().now_ms());
    let (more, statistics) = (words.more, words.statistics);
    let parts = 0..tracker(process.switch()).parts();
    Ok(Box::new(parts.map(move |part| {
        let entries = tracker(process.switch()).dump_part(part, &filter, now_ms);
        entries.iter().map(|entry| text::entry(entry, more, statistics) + "\n").collect()
    })))
}

pub fn flush(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let filter = text::filter(&words.rest).or_else(invalid)?;
    let removed = tracker(switch).flush(&filter);
    match filter.names_one() && removed == 0 {
        false => Ok(String::new()),
        true => Err(program::error("failed to flush conntrack (No such file or directory)")),
    }
}

pub fn stats_show(switch: &Switch, args: &[&str]) -> Reply {
    let mut words = Words::parse(args)?;
    let mut zone = None;
    loop {
        match words.rest.last() {
            Some(last) if last.starts_with("verbose") => {
                words.more = true;
                words.rest.pop();
            }
            _ => match zone_at_end(&mut words.rest) {
                Some(given) => zone = Some(given),
                None => break,
            },
        }
    }
    words.end()?;
    let mut stats = text::Stats::default();
    tracker(switch).dump(&Filter::zone(zone), switch.now_ms(), |entry| stats.count(entry));
    Ok(stats.show(words.more))
}

/// Shards in place of OVS's buckets.
pub fn buckets(switch: &Switch, args: &[&str]) -> Reply {
    const ROW: usize = 8;
    let mut words = Words::parse(args)?;
    let threshold = words.rest.last().and_then(|last| last.strip_prefix("gt=")?.parse::<u16>().ok());
    if threshold.is_some() {
        words.rest.pop();
    }
    words.end()?;
    let counts = tracker(switch).connections_by_shard(switch.now_ms());
    let total: usize = counts.iter().sum();
    let mut out = format!("Total Buckets: {}\nCurrent Connections: {total}\n\n", counts.len());
    if total == 0 {
        return Ok(out);
    }
    let line = format!("+-----------+{}+\n", "-".repeat(41));
    out += &format!("{line}|  Buckets  |         Connections per Buckets         |\n{}", line.trim_end());
    for (i, count) in counts.iter().enumerate() {
        if i % ROW == 0 {
            let _ = write!(out, "\n {i:3}..{:3}   | ", i + ROW - 1);
        }
        let _ = match *count > threshold.unwrap_or(0).into() {
            true => write!(out, "{count:5}"),
            false => write!(out, "{:>5}", "."),
        };
    }
    Ok(out + "\n\n")
}

pub fn get_maxconns(switch: &Switch, args: &[&str]) -> Reply {
    Words::parse(args)?.end()?;
    Ok(format!("{}\n", tracker(switch).connections_max()))
}

pub fn set_maxconns(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    match words.rest[..] {
        [max] => match max.parse() {
            Ok(max) => tracker(switch).set_connections_max(max),
            Err(_) => return invalid("maxconns missing or malformed"),
        },
        _ => return invalid("datapath not found"),
    }
    Ok("setting maxconns successful".to_owned())
}

pub fn get_nconns(switch: &Switch, args: &[&str]) -> Reply {
    Words::parse(args)?.end()?;
    Ok(format!("{}\n", tracker(switch).connections()))
}

pub fn get_tcp_seq_chk(switch: &Switch, args: &[&str]) -> Reply {
    Words::parse(args)?.end()?;
    let state = if tracker(switch).checks_tcp_seq() { "enabled" } else { "disabled" };
    Ok(format!("TCP sequence checking: {state}\n"))
}

pub fn enable_tcp_seq_chk(switch: &Switch, args: &[&str]) -> Reply {
    Words::parse(args)?.end()?;
    tracker(switch).set_check_tcp_seq(true);
    Ok("enabling TCP sequence checking successful".to_owned())
}

pub fn disable_tcp_seq_chk(switch: &Switch, args: &[&str]) -> Reply {
    Words::parse(args)?.end()?;
    tracker(switch).set_check_tcp_seq(false);
    Ok("disabling TCP sequence checking successful".to_owned())
}

/// `zone=N,limit=L`
fn zone_limit(word: &str) -> Result<(u16, u32), String> {
    let (mut zone, mut limit) = (None, None);
    for pair in word.split([',', ' ']).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let failed = |_| format!("failed to parse field {key}");
        match key {
            _ if value.is_empty() => return Err(format!("field {key} missing value")),
            "zone" => zone = Some(value.parse().map_err(failed)?),
            "limit" => limit = Some(value.parse().map_err(failed)?),
            _ => return Err(format!("invalid zone limit field: {key}")),
        }
    }
    zone.zip(limit).ok_or_else(|| "failed to parse zone limit".to_owned())
}

/// `zone=N1,N2…`
fn zones(word: &str) -> Result<Vec<u16>, String> {
    let Some(list) = word.strip_prefix("zone=") else { return invalid(format!("invalid argument {word}")) };
    list.split(',').map(|zone| zone.parse().or_else(|_| invalid("invalid zone"))).collect()
}

pub fn set_limits(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let (default, of_zones) = match &words.rest[..] {
        [first, rest @ ..] if first.starts_with("default=") => match first["default=".len()..].parse::<u32>() {
            Ok(limit) => (Some(limit), rest),
            Err(_) => return invalid("invalid default limit"),
        },
        rest => (None, rest),
    };
    let limits: Vec<_> = of_zones.iter().map(|word| zone_limit(word)).collect::<Result<_, _>>().or_else(invalid)?;
    let conntrack = tracker(switch);
    default.into_iter().for_each(|limit| conntrack.set_zone_limit(None, limit));
    limits.into_iter().for_each(|(zone, limit)| conntrack.set_zone_limit(Some(zone), limit));
    Ok(String::new())
}

pub fn del_limits(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let [word] = words.rest[..] else { return invalid("datapath not found") };
    for zone in zones(word)? {
        tracker(switch).delete_zone_limit(zone);
    }
    Ok(String::new())
}

pub fn get_limits(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let mut limits = tracker(switch).zone_limits();
    match words.rest[..] {
        [] => {}
        [word] => {
            let wanted = zones(word)?;
            let default = limits.iter().copied().find(|limit| limit.zone.is_none());
            limits = default.into_iter().collect();
            limits.extend(wanted.into_iter().filter_map(|zone| tracker(switch).zone_limit(zone)));
        }
        _ => return invalid("datapath not found"),
    }
    Ok(text::limits(&limits) + "\n")
}

/// `sluice/ct-set-timeouts ZONE NAME=SECONDS…`: what OVS takes from its `CT_Timeout_Policy` table, by its names.
pub fn set_timeouts(switch: &Switch, args: &[&str]) -> Reply {
    let zone = zone(args[0])?;
    let seconds = args[1..].iter().map(|word| {
        let (name, seconds) = word.split_once('=').ok_or_else(|| format!("{word}: expected NAME=SECONDS"))?;
        let timeout = Timeout::named(name).ok_or_else(|| format!("{name}: expected one of {}", names()))?;
        let seconds = seconds.parse().map_err(|_| format!("{word}: expected a number of seconds"))?;
        Ok::<_, String>((timeout, seconds))
    });
    let policy = TimeoutPolicy { seconds: seconds.collect::<Result<_, _>>()? };
    tracker(switch).set_timeouts(zone, &policy);
    Ok(String::new())
}

fn zone(word: &str) -> Result<u16, String> {
    word.parse().map_err(|_| format!("{word}: expected a zone, 0 to 65535"))
}

fn names() -> String {
    Timeout::ALL.iter().map(|timeout| timeout.name()).collect::<Vec<_>>().join(", ")
}

pub fn del_timeouts(switch: &Switch, args: &[&str]) -> Reply {
    let zone = zone(args[0])?;
    if tracker(switch).delete_timeouts(zone) { Ok(String::new()) } else { Err(format!("zone {zone} has no timeouts")) }
}

/// The defaults, then the zones that have some of their own, with those.
pub fn get_timeouts(switch: &Switch, _: &[&str]) -> Reply {
    let list = |seconds: &[(Timeout, u32)]| -> String {
        seconds.iter().map(|(timeout, seconds)| format!(" {}={seconds}", timeout.name())).collect()
    };
    let defaults: Vec<_> = Timeout::ALL.iter().map(|timeout| (*timeout, timeout.default_s())).collect();
    let mut out = format!("default:{}\n", list(&defaults));
    for (zone, policy) in tracker(switch).timeouts() {
        let _ = writeln!(out, "zone {zone}:{}", list(&policy.seconds));
    }
    Ok(out)
}
