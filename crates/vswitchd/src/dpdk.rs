//! DPDK as `Open_vSwitch.other_config` asks for it: started once, when `dpdk-init` first says so. What it is started with
//! changes at the next start of the daemon. Source: Open vSwitch lib/dpdk.c.

use crate::plan::{Level, Note};
use crate::records::Smap;
use rustix::thread::{CpuSet, sched_getaffinity};
use sluice_port::{DpdkConfig, dpdk_environment};
use sluice_vswitch::Switch;
use std::collections::BTreeMap;

/// Whether DPDK is to be started, and with what.
const KEYS: [&str; 7] = [
    "dpdk-alloc-mem",
    "dpdk-extra",
    "dpdk-hugepage-dir",
    "dpdk-init",
    "dpdk-lcore-mask",
    "dpdk-socket-limit",
    "dpdk-socket-mem",
];

/// Settings and the arguments that they stand for. Source: lib/dpdk.c, `construct_dpdk_options`.
const ARGUMENTS: [(&str, &str); 3] =
    [("dpdk-lcore-mask", "-c"), ("dpdk-hugepage-dir", "--huge-dir"), ("dpdk-socket-limit", "--socket-limit")];

/// The same for memory, of which one counts: the last. Source: lib/dpdk.c, `construct_dpdk_mutex_options`.
const MEMORY_ARGUMENTS: [(&str, &str); 2] = [("dpdk-alloc-mem", "-m"), ("dpdk-socket-mem", "--socket-mem")];

/// The least packet buffers that ports are opened with. Source: lib/netdev-dpdk.c, MIN_NB_MBUF.
const LEAST_MBUFS: u32 = 16_384;

/// DPDK's state in this process.
#[derive(Debug, Default)]
pub enum Dpdk {
    /// It was not asked for.
    #[default]
    Off,
    /// It runs, started with these settings.
    Running(BTreeMap<&'static str, String>),
    /// It could not be started.
    Failed,
}

/// A start that the settings require has failed: the daemon ends.
#[derive(Debug, thiserror::Error)]
#[error("Cannot init EAL ({0})")]
pub struct CannotInit(String);

impl Dpdk {
    /// Whether ports can be opened.
    pub fn is_running(&self) -> bool {
        matches!(self, Dpdk::Running(_))
    }

    /// Starts DPDK if the settings ask for it and it was not tried yet. `log` gets what there is to say.
    ///
    /// # Errors
    /// If it does not start and the settings say that it must.
    pub fn follow(&mut self, config: &Smap, switch: &Switch, log: &mut impl FnMut(Note)) -> Result<(), CannotInit> {
        let is_required = config.flag("dpdk-init", false);
        let is_asked_for = is_required || config.text("dpdk-init").is_some_and(|text| text.eq_ignore_ascii_case("try"));
        match self {
            Dpdk::Running(before) => note_changes(before, &settings(config), log),
            Dpdk::Failed => log(Note::once(Level::Error, "DPDK Initialization Failed.").of_dpdk()),
            Dpdk::Off if !is_asked_for && dpdk_environment::version().is_none() => {}
            Dpdk::Off if !is_asked_for => {
                log(Note::once(Level::Info, "DPDK Disabled - Use other_config:dpdk-init to enable").of_dpdk());
            }
            Dpdk::Off => return self.start(config, switch, is_required, log),
        }
        Ok(())
    }

    fn start(
        &mut self,
        config: &Smap,
        switch: &Switch,
        is_required: bool,
        log: &mut impl FnMut(Note),
    ) -> Result<(), CannotInit> {
        let Some(version) = dpdk_environment::version() else {
            log(Note::once(Level::Error, "DPDK not supported in this copy of Sluice: it was built without.").of_dpdk());
            return Ok(());
        };
        log(Note::new(Level::Info, format!("Using {version}")).of_dpdk());
        log(Note::new(Level::Info, "DPDK Enabled - initializing...").of_dpdk());
        let (config_of_dpdk, notes) = dpdk_config(config, first_core());
        notes.into_iter().for_each(&mut *log);
        let args = config_of_dpdk.eal_args.join(" ");
        log(Note::new(Level::Info, format!("EAL ARGS: ovs-vswitchd {args}")).of_dpdk());
        match switch.start_dpdk(&config_of_dpdk) {
            Ok(()) => {
                *self = Dpdk::Running(settings(config));
                log(Note::new(Level::Info, "DPDK Enabled - initialized").of_dpdk());
                Ok(())
            }
            Err(reason) => {
                *self = Dpdk::Failed;
                log(Note::new(Level::Error, format!("Unable to initialize DPDK: {reason}")).of_dpdk());
                if is_required { Err(CannotInit(reason)) } else { Ok(()) }
            }
        }
    }
}

/// The settings that are there.
fn settings(config: &Smap) -> BTreeMap<&'static str, String> {
    KEYS.into_iter().filter_map(|key| Some((key, config.text(key)?.to_owned()))).collect()
}

/// Says which settings have changed since DPDK was started.
fn note_changes(
    before: &BTreeMap<&'static str, String>,
    now: &BTreeMap<&'static str, String>,
    log: &mut impl FnMut(Note),
) {
    for key in KEYS.into_iter().filter(|key| before.get(key) != now.get(key)) {
        let text = match now.get(key) {
            Some(value) => format!("other_config:{key}=\"{value}\" takes effect when the daemon is started again"),
            None => format!("other_config:{key} was removed, which takes effect when the daemon is started again"),
        };
        log(Note::once(Level::Warn, text).of_dpdk());
    }
}

/// The first core that the calling thread may run on.
fn first_core() -> usize {
    let cores = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).find(|core| cores.is_set(*core)).unwrap_or(0)
}

/// How the settings want DPDK started, and what is wrong with them. DPDK gets `core` unless the settings name cores.
fn dpdk_config(config: &Smap, core: usize) -> (DpdkConfig, Vec<Note>) {
    let mut args = words(config.text("dpdk-extra").unwrap_or_default());
    let mut notes = Vec::new();
    let mut add = |argument: &str, value: &str, args: &mut Vec<String>| {
        if has(args, argument) {
            let text = format!("Ignoring database defined option '{argument}' due to dpdk-extra config");
            notes.push(Note::new(Level::Warn, text).of_dpdk());
        } else {
            args.extend([argument, value].map(str::to_owned));
        }
    };
    for (key, argument) in ARGUMENTS {
        config.text(key).into_iter().for_each(|value| add(argument, value, &mut args));
    }
    let memory = MEMORY_ARGUMENTS.iter().filter_map(|(key, argument)| Some((argument, config.text(key)?)));
    let memory: Vec<_> = memory.filter(|(_, value)| !value.is_empty()).collect();
    if let Some((argument, value)) = memory.last() {
        add(argument, value, &mut args);
    }
    if memory.len() > 1 {
        let text = "Multiple defined options for memory type. Please check your database settings and reconfigure if \
                    necessary.";
        notes.push(Note::new(Level::Error, text).of_dpdk());
    }
    if !has(&args, "--in-memory") && !has(&args, "--legacy-mem") {
        args.push("--in-memory".to_owned());
    }
    let names_cores = ["-c", "-l", "--lcores"].into_iter().any(|argument| has(&args, argument));
    if !names_cores {
        args.extend(["-l".to_owned(), core.to_string()]);
    }
    let config =
        DpdkConfig { eal_args: args, keeps_cores: !names_cores, least_mbufs: LEAST_MBUFS, ..DpdkConfig::default() };
    (config, notes)
}

/// Whether an argument is there, with its value behind it or behind `=`.
fn has(args: &[String], argument: &str) -> bool {
    args.iter().any(|arg| arg.strip_prefix(argument).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

/// The words of a text: white space is between them, except in double quotes and behind a backslash. Source: lib/svec.c,
/// `svec_parse_words`.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(settings: &[(&str, &str)]) -> (String, bool, Vec<String>) {
        let config = Smap(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        let (config, notes) = dpdk_config(&config, 3);
        (config.eal_args.join(" "), config.keeps_cores, notes.into_iter().map(|note| note.text).collect())
    }

    #[test]
    fn settings_become_arguments() {
        assert_eq!(started(&[]), ("--in-memory -l 3".to_owned(), true, Vec::new()));
        let settings =
            [("dpdk-extra", "--no-pci --legacy-mem"), ("dpdk-lcore-mask", "0x3"), ("dpdk-socket-mem", "1024,0")];
        let args = "--no-pci --legacy-mem -c 0x3 --socket-mem 1024,0";
        assert_eq!(started(&settings), (args.to_owned(), false, Vec::new()));
        let settings = [("dpdk-hugepage-dir", "/huge"), ("dpdk-socket-limit", "2048"), ("dpdk-extra", "--lcores=0@1")];
        let args = "--lcores=0@1 --huge-dir /huge --socket-limit 2048 --in-memory";
        assert_eq!(started(&settings), (args.to_owned(), false, Vec::new()));
    }

    #[test]
    fn what_dpdk_extra_says_counts_and_of_two_kinds_of_memory_the_last() {
        let (args, _, notes) = started(&[("dpdk-extra", "-c 1 -m 64"), ("dpdk-lcore-mask", "2")]);
        assert_eq!(args, "-c 1 -m 64 --in-memory");
        assert_eq!(notes, ["Ignoring database defined option '-c' due to dpdk-extra config"]);
        let (args, _, notes) = started(&[("dpdk-alloc-mem", "64"), ("dpdk-socket-mem", "128")]);
        assert_eq!(args, "--socket-mem 128 --in-memory -l 3");
        assert!(notes[0].starts_with("Multiple defined options for memory type."));
    }

    #[test]
    fn words_are_quoted_as_in_open_vswitch() {
        assert_eq!(
            words(r#" --vdev "net pcap0,iface=a\ b"  -m\ 1 "" "#),
            ["--vdev", "net pcap0,iface=a b", "-m 1", ""]
        );
        assert!(words("  ").is_empty());
    }

    #[test]
    fn changes_after_the_start_are_told() {
        let (before, mut notes) = (BTreeMap::from([("dpdk-extra", "-m 1".to_owned())]), Vec::new());
        let mut log = |note: Note| notes.push((note.level, note.text));
        note_changes(&before, &before, &mut log);
        note_changes(&before, &BTreeMap::from([("dpdk-socket-mem", "64".to_owned())]), &mut log);
        let texts: Vec<_> = notes.iter().map(|(_, text)| text.split(' ').next().unwrap()).collect();
        assert_eq!(texts, ["other_config:dpdk-extra", "other_config:dpdk-socket-mem=\"64\""]);
        assert!(notes.iter().all(|(level, _)| *level == Level::Warn));
    }
}
