//! Commands of `dpctl` that put, change and delete megaflows by hand. Texts and errors: OVS 3.1 lib/dpctl.c,
//! lib/dpif-netdev.c.

use super::Reply;
use super::dpctl::{Names, Options, open, parse_ufid};
use crate::program;
use sluice_action::{
    Actions, DatapathFlow, FlowId, FlowStats, MegaflowStore, Translation, XcacheHandle, agree_under, parse_actions,
    show_stats,
};
use sluice_datapath::PutError;
use sluice_fate::{DropReason, Limit};
use sluice_flow::{PacketKey, layout};
use sluice_ofproto::{packet_of, xcache_of_put};
use sluice_vswitch::{DatapathRef, Switch};
use std::fmt::Write as _;
use std::io::Read as _;

/// The longest file of flows, bytes.
const FILE_MAX: u64 = 16 << 20;

/// A tag's id and the bit that says that it is there.
const TAG: u16 = 0x1fff;

/// What is to become of a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Modify,
    Delete,
}

/// The datapath, and how flows are put there.
struct Table<'a> {
    switch: &'a Switch,
    at: DatapathRef,
    names: Names,
    options: &'a Options<'a>,
}

/// A megaflow's key and mask, as they were written.
struct Written {
    ufid: Option<u128>,
    key: PacketKey,
    mask: PacketKey,
}

pub fn add_flow(switch: &Switch, args: &[&str]) -> Reply {
    put_flow(switch, args, Change::Add)
}

pub fn mod_flow(switch: &Switch, args: &[&str]) -> Reply {
    put_flow(switch, args, Change::Modify)
}

fn put_flow(switch: &Switch, args: &[&str], change: Change) -> Reply {
    let options = Options::parse(args);
    let [datapath @ .., flow, actions] = &options.words[..] else { return Err(program::error("flow and actions")) };
    let table = Table::open(switch, datapath, &options)?;
    table.put(flow, actions, change)
}

pub fn del_flow(switch: &Switch, args: &[&str]) -> Reply {
    let options = Options::parse(args);
    let [datapath @ .., flow] = &options.words[..] else { return Err(program::error("flow")) };
    Table::open(switch, datapath, &options)?.delete(flow)
}

pub fn add_flows(switch: &Switch, args: &[&str]) -> Reply {
    change_flows(switch, &Options::parse(args), Change::Add)
}

pub fn mod_flows(switch: &Switch, args: &[&str]) -> Reply {
    change_flows(switch, &Options::parse(args), Change::Modify)
}

/// `dpctl/del-flows [DP] [FILE]`: those of the file, or all.
pub fn del_flows(switch: &Switch, args: &[&str]) -> Reply {
    let options = Options::parse(args);
    let names_file = match &options.words[..] {
        [] => false,
        [word] => open(switch, &[word]).is_err(),
        _ => true,
    };
    if names_file {
        return change_flows(switch, &options, Change::Delete);
    }
    Table::open(switch, &options.words, &options)?.delete_all();
    Ok(String::new())
}

/// The changes of a file, a line each. Lines that fail are told of, and the others are carried out.
fn change_flows(switch: &Switch, options: &Options<'_>, change: Change) -> Reply {
    let [datapath @ .., file] = &options.words[..] else { return Err(program::error("file")) };
    let table = Table::open(switch, datapath, options)?;
    let text = read(file).map_err(|error| {
        let error = system_text(&error);
        program::error(format_args!("Opening file \"{file}\" failed ({error})"))
    })?;
    let mut out = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let told = table
            .change(line, change)
            .unwrap_or_else(|| Err(program::error(format_args!("Failed parsing line number {number}, skipped!"))));
        let (Ok(told) | Err(told)) = told;
        if !told.is_empty() {
            let _ = writeln!(out, "{}", told.trim_end());
        }
    }
    Ok(out)
}

fn read(file: &str) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        Limit::DpctlFile.hit();
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// What the system says, without the number of the error.
fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl<'a> Table<'a> {
    fn open(switch: &'a Switch, datapath: &[&str], options: &'a Options<'a>) -> Result<Self, String> {
        let at = open(switch, datapath)?;
        Ok(Table { switch, names: Names::of(switch, &at), at, options })
    }

    /// Carries out a line of a file; `None` if it is no such line.
    fn change(&self, line: &str, otherwise: Change) -> Option<Reply> {
        let (first, rest) = line.split_once([' ', '\t', ',']).unwrap_or((line, ""));
        let (change, line) = match first {
            "add" => (Change::Add, rest.trim_start()),
            "modify" => (Change::Modify, rest.trim_start()),
            "delete" => (Change::Delete, rest.trim_start()),
            _ => (otherwise, line),
        };
        let (flow, actions) = line.split_once([' ', '\t']).map_or((line, ""), |(flow, actions)| (flow, actions.trim()));
        match (change, actions) {
            _ if flow.is_empty() => None,
            (Change::Delete, "") => Some(self.delete(flow)),
            (Change::Delete, _) | (_, "") => None,
            _ => Some(self.put(flow, actions, change)),
        }
    }

    fn put(&self, flow: &str, actions: &str, change: Change) -> Reply {
        let Written { ufid, key, mask } = self.read_flow(flow, "parsing flow key ")?;
        let actions = self.read_actions(actions)?;
        let failed = |why: &str| program::error(format_args!("updating flow table ({why})"));
        let known = match ufid {
            Some(ufid) => self.find(|flow| flow.ufid == ufid),
            None => self.switch.datapath_of(&self.at).flow_of(&key).map(|(id, xcache)| (id, xcache, None)),
        };
        let in_port = mask.number(layout::IN_PORT);
        if ufid.is_none() && in_port != u64::from(u32::MAX) {
            let what = if change == Change::Add { "[create]" } else { "[modify]" };
            tracing::error!(
                target: "dpif_netdev", rate_limit = 1,
                "failed to put{what} flow: in_port is not an exact match"
            );
            return Err(failed("Invalid argument"));
        }
        let stats = match (change, known) {
            (Change::Add, Some(_)) => return Err(failed("File exists")),
            (Change::Modify, None) if !self.options.may_create => return Err(failed("No such file or directory")),
            // The identifier of a megaflow is a hash of what it matches.
            (_, None) if ufid.is_some() => return Err(failed("Operation not supported")),
            (_, Some((id, xcache, stats))) => {
                let stats = stats.or_else(|| self.find(|flow| flow.flow.id == id)?.2);
                self.modify((id, &xcache), &key, mask, actions)
                    .then_some(())
                    .ok_or_else(|| failed("No such file or directory"))?;
                if self.options.zero_statistics {
                    // As in Open vSwitch: the actions are those now, the counters go on.
                    return Err(failed("Operation not supported"));
                }
                stats
            }
            (_, None) => {
                let put = self.put_new(&key, mask, actions);
                put.map_err(|error| {
                    failed(if error == PutError::Exists { "File exists" } else { "No space left on device" })
                })?;
                None
            }
        };
        Ok(self.show(stats))
    }

    fn put_new(&self, key: &PacketKey, mask: PacketKey, actions: Actions) -> Result<(), PutError> {
        let translation = self.translation(key, exact_where_it_must_be(mask), actions);
        self.switch.datapath_of(&self.at).put_flow(key, &translation, self.switch.now_ms())
    }

    fn modify(
        &self,
        (id, xcache): (FlowId, &XcacheHandle),
        key: &PacketKey,
        mask: PacketKey,
        actions: Actions,
    ) -> bool {
        let key = packet_of(xcache).unwrap_or(*key);
        let translation = self.translation(&key, mask, actions);
        let (store, datapath) = (self.store(), self.switch.datapath_of(&self.at));
        let is_modified = match self.at {
            DatapathRef::Own => self.switch.ofproto().modify_megaflow(&*store, (id, xcache), &translation),
            DatapathRef::Made(_) => {
                let mut modification =
                    sluice_action::FlowModification { translation: &translation, is_current: &mut || true };
                store.modify(id, xcache, &mut modification).is_some()
            }
        };
        if let Some((id, _)) = datapath.flow_of(&key).filter(|_| is_modified) {
            datapath.index_flow(id);
        }
        is_modified
    }

    fn translation(&self, key: &PacketKey, mask: PacketKey, actions: Actions) -> Translation {
        let xcache = xcache_of_put(key, self.store().memory());
        Translation { mask, actions, no_output: DropReason::Rules, version: 0, cacheable: true, xcache }
    }

    fn delete(&self, flow: &str) -> Reply {
        let Written { ufid, key, .. } = self.read_flow(flow, "")?;
        let found = match ufid {
            Some(ufid) => self.find(|flow| flow.ufid == ufid),
            None => self.find(|flow| {
                packet_of(&flow.flow.translation.xcache).is_some_and(|own| agree_under(&PacketKey::ONES, &own, &key))
            }),
        };
        let Some((id, xcache, stats)) = found else {
            let hint = if ufid.is_none() { "\nPerhaps you need to specify a UFID?" } else { "" };
            return Err(program::error("deleting flow (No such file or directory)") + hint);
        };
        self.remove(id, xcache);
        Ok(self.show(stats))
    }

    fn remove(&self, id: FlowId, xcache: XcacheHandle) {
        let store = self.store();
        match self.at {
            DatapathRef::Own => self.switch.ofproto().delete_megaflow(&*store, id, xcache),
            DatapathRef::Made(_) => _ = store.remove_same(id, &xcache),
        }
    }

    fn delete_all(&self) {
        match &self.at {
            DatapathRef::Own => self.switch.purge(),
            DatapathRef::Made(made) => {
                made.datapath()
                    .flows()
                    .into_iter()
                    .for_each(|flow| self.remove(flow.flow.id, flow.flow.translation.xcache));
            }
        }
    }

    fn store(&self) -> std::sync::Arc<dyn MegaflowStore> {
        self.switch.datapath_of(&self.at).store()
    }

    fn find(
        &self,
        is_it: impl Fn(&sluice_datapath::FlowReport) -> bool,
    ) -> Option<(FlowId, XcacheHandle, Option<FlowStats>)> {
        let flow = self.switch.datapath_of(&self.at).flows().into_iter().find(is_it)?.flow;
        Some((flow.id, flow.translation.xcache, Some(flow.stats)))
    }

    /// What a megaflow had carried, if that is asked for.
    fn show(&self, stats: Option<FlowStats>) -> String {
        if !self.options.statistics {
            return String::new();
        }
        show_stats(stats.unwrap_or_default(), self.switch.now_ms()).to_string() + "\n"
    }

    /// Reads a key and its mask, with an identifier before it if there is one. An error begins with `what`.
    fn read_flow(&self, text: &str, what: &str) -> Result<Written, String> {
        let (ufid, text) = match text.strip_prefix("ufid:") {
            Some(_) => {
                let end = text.find([',', ' ']).unwrap_or(text.len());
                let ufid =
                    parse_ufid(&text[..end]).ok_or_else(|| program::error("parsing flow ufid (Invalid argument)"))?;
                (Some(ufid), text[end..].trim_start_matches([',', ' ']))
            }
            None => (None, text),
        };
        let read = DatapathFlow::parse(text, &|name| self.names.number(name));
        let flow = read.map_err(|error| match DatapathFlow::too_long(&error) {
            true => program::error(format_args!("{what}(syntax error at {text}) (Argument list too long)")),
            false => program::error(format_args!("{what}({error}) (Invalid argument)")),
        })?;
        if flow.has_more || flow.skb_priority != 0 {
            // What megaflows cannot match must not be left out of one.
            return Err(program::error(format_args!(
                "{what}(a field that megaflows do not match) (Operation not supported)"
            )));
        }
        Ok(Written { ufid, key: flow.key, mask: flow.mask })
    }

    fn read_actions(&self, text: &str) -> Result<Actions, String> {
        let text = text.strip_prefix("actions:").unwrap_or(text);
        let read = parse_actions(text, &|name| self.names.number(name));
        read.map_err(|error| program::error(format_args!("parsing actions ({error}) (Invalid argument)")))
    }
}

/// A mask with what every megaflow matches: the recirculation id, and that there is no tag where none is named.
fn exact_where_it_must_be(mut mask: PacketKey) -> PacketKey {
    mask.set(layout::RECIRC_ID, &[0xff; 4]);
    if mask.number(layout::VLAN0_TCI) == 0 {
        mask.set(layout::VLAN0_TCI, &TAG.to_be_bytes());
    }
    mask
}
