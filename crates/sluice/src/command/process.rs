//! Commands about the process: its end, its log, its counters, its configuration.

use super::Reply;
use crate::process::Process;
use crate::text::coverage;
use sluice_fate::DropReason;
use sluice_vswitch::{Switch, Usage};
use std::fmt::Write as _;

pub fn version(process: &Process, _: &[&str]) -> Reply {
    Ok(process.version().to_owned())
}

/// Answers at once; the switch ends afterwards.
pub fn exit(process: &Process, args: &[&str]) -> Reply {
    match args {
        [] => {
            process.end("exit was asked for");
            Ok(String::new())
        }
        ["--cleanup"] => {
            process.end_and_clean_up("exit with cleanup was asked for");
            Ok(String::new())
        }
        [other, ..] => Err(format!("\"{other}\": expected --cleanup or nothing")),
    }
}

pub fn vlog_set(process: &Process, args: &[&str]) -> Reply {
    // Without a specification, everything is logged.
    let specs = if args.is_empty() { &["dbg"] } else { args };
    specs.iter().try_for_each(|spec| process.log().set(spec))?;
    Ok(String::new())
}

pub fn vlog_list(process: &Process, _: &[&str]) -> Reply {
    Ok(process.log().list())
}

pub fn vlog_list_pattern(process: &Process, _: &[&str]) -> Reply {
    Ok(process.log().list_pattern())
}

pub fn vlog_close(process: &Process, _: &[&str]) -> Reply {
    process.log().close_file();
    Ok(String::new())
}

pub fn vlog_reopen(process: &Process, _: &[&str]) -> Reply {
    process.log().reopen_file().map(|()| String::new()).map_err(|error| error.to_string())
}

pub fn vlog_enable_rate_limit(process: &Process, modules: &[&str]) -> Reply {
    process.log().honour_rate_limits(modules, true).map(|()| String::new())
}

pub fn vlog_disable_rate_limit(process: &Process, modules: &[&str]) -> Reply {
    process.log().honour_rate_limits(modules, false).map(|()| String::new())
}

pub fn coverage_show(process: &Process, _: &[&str]) -> Reply {
    Ok(process.coverage().show(&coverage::Totals::of(process.switch())))
}

pub fn coverage_read_counter(switch: &Switch, args: &[&str]) -> Reply {
    let read = coverage::read_counter(&coverage::Totals::of(switch), args[0]);
    read.map(|n| n.to_string()).ok_or_else(|| "No such counter".into())
}

/// Every drop reason that has been counted, with its meaning, then the sum.
pub fn drops(switch: &Switch, _: &[&str]) -> Reply {
    let totals = switch.totals();
    let mut out = String::new();
    for reason in DropReason::ALL.iter().filter(|r| totals.dropped(**r) != 0) {
        let _ = writeln!(out, "{:<18} {:>12}  {}", reason.name(), totals.dropped(*reason), reason.explanation());
    }
    let _ = writeln!(out, "{:<18} {:>12}", "dropped in all", totals.dropped_in_all());
    Ok(out)
}

pub fn memory_show(switch: &Switch, _: &[&str]) -> Reply {
    let Usage { bridges, megaflows, packet_buffers, pmds, ports, rules } = switch.usage();
    Ok(format!(
        "bridges:{bridges} megaflows:{megaflows} packet-buffers:{packet_buffers} pmds:{pmds} ports:{ports} rules:{rules}"
    ))
}

pub fn reload(process: &Process, _: &[&str]) -> Reply {
    let file = process.config_file().ok_or("this switch has no configuration file: a database describes it")?;
    file.reload(process.switch())
}

/// The switch at a glance, as JSON: what `sluice top` shows.
pub fn overview(switch: &Switch, _: &[&str]) -> Reply {
    serde_json::to_string(&crate::overview::overview(switch)).map_err(|error| error.to_string())
}
