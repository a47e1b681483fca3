//! Pools, PMDs, tables, bridges and ports, joined to a switch.

use crate::backends::Backends;
use crate::desired::{Bridge, DesiredState, Port, Sources};
use crate::error::{Error, PortFailure};
use crate::numbers::{self, DatapathNumbers, Numbers};
use crate::pages;
use crate::ports::PortEntry;
use crate::qos::QosTable;
use crate::sources::{Loaded, ParsedSources, SourceKind};
use parking_lot::Mutex;
use sluice_datapath::{Config, Datapath};
use sluice_flow::{OfPort, PortNames, VlanLimit};
use sluice_mem::{FramePool, HeapPool};
use sluice_ofproto::{Attach, Ofproto, PortConfig};
use sluice_port::Pools;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// A switch, put together step by step. Its PMDs rest: see [`Datapath::start`] and [`Datapath::run_iterations`].
pub struct Assembly {
    datapath: Arc<Datapath>,
    ofproto: Ofproto,
    /// Where ports take their packet buffers from.
    pools: Arc<Mutex<Pools>>,
    /// Where relative paths in options of ports start.
    pub(crate) base_dir: PathBuf,
    /// Every port but the bridges' own that have no device, by name.
    pub(crate) ports: BTreeMap<String, PortEntry>,
    /// The datapath numbers that these have.
    pub(crate) datapath_numbers: DatapathNumbers,
    /// The datapath ports that serve tunnels.
    pub(crate) backends: Backends,
    /// What ports may send, as far as it is limited.
    qos: Arc<QosTable>,
    /// The numbers that each bridge's ports have got or are to get.
    numbers: BTreeMap<String, Numbers>,
    /// What each bridge's tables were loaded with.
    loaded: BTreeMap<String, Loaded>,
}

impl Assembly {
    /// A datapath whose misses go to tables, without bridges. Ports will take their packet buffers from `pools`.
    ///
    /// # Errors
    /// If there can be no such datapath, or memory is short.
    pub fn new(config: Config, pools: Pools) -> Result<Self, Error> {
        let vlan_limit = config.vlan_limit;
        let datapath = Arc::new(Datapath::new(config)?);
        let ofproto = Ofproto::new();
        ofproto.set_vlan_limit(vlan_limit);
        ofproto.set_meters(datapath.meters());
        let tables = ofproto.clone();
        datapath.set_upcalls(move |_| Box::new(tables.upcall()));
        ofproto.set_store(datapath.store());
        Ok(Assembly {
            datapath,
            ofproto,
            pools: Arc::new(Mutex::new(pools)),
            base_dir: PathBuf::new(),
            ports: BTreeMap::new(),
            datapath_numbers: DatapathNumbers::default(),
            backends: Backends::default(),
            qos: Arc::default(),
            numbers: BTreeMap::new(),
            loaded: BTreeMap::new(),
        })
    }

    /// The datapath that a state asks for, without the state's bridges.
    ///
    /// # Errors
    /// As [`Assembly::new`].
    pub fn of_state(state: &DesiredState) -> Result<Self, Error> {
        #[cfg_attr(not(feature = "dpdk"), expect(unused_mut, reason = "DPDK's start is configured here"))]
        let mut pools = Pools::default();
        #[cfg(feature = "dpdk")]
        if let Some(dpdk) = &state.dpdk {
            pools.set_dpdk_config(dpdk.clone());
        }
        let assembly = Assembly::new(state.datapath_config(), pools)?;
        if let Some(caches) = pages::of_caches(&assembly.datapath.cache_pages()) {
            tracing::info!("{caches}");
        }
        Ok(Assembly { base_dir: state.base_dir.clone(), ..assembly })
    }

    /// Changes how many VLAN tags are read of a packet.
    pub fn set_vlan_limit(&self, vlan_limit: VlanLimit) {
        self.ofproto.set_vlan_limit(vlan_limit);
        self.datapath.set_vlan_limit(vlan_limit);
        self.ofproto.revalidate_all();
    }

    /// The PMDs.
    pub fn datapath(&self) -> &Arc<Datapath> {
        &self.datapath
    }

    /// The tables.
    pub fn ofproto(&self) -> &Ofproto {
        &self.ofproto
    }

    /// The datapath ports that serve tunnels.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// What ports may send, as far as it is limited.
    pub(crate) fn qos(&self) -> &Arc<QosTable> {
        &self.qos
    }

    /// Where relative paths in options of ports start from now on.
    pub fn set_base_dir(&mut self, base_dir: PathBuf) {
        self.base_dir = base_dir;
    }

    /// Where ports take their packet buffers from.
    pub fn pools(&self) -> Arc<Mutex<Pools>> {
        Arc::clone(&self.pools)
    }

    /// A pool of buffers for packets of up to `size` bytes.
    ///
    /// # Errors
    /// If there is no memory for one.
    pub fn pool(&self, size: usize) -> Result<Arc<HeapPool>, Error> {
        Ok(self.pools.lock().of_size(size)?)
    }

    /// Packet buffers of all pools.
    pub fn packet_buffers(&self) -> usize {
        self.pools.lock().iter().map(|pool| FramePool::capacity(&**pool)).sum()
    }

    /// Adds a bridge without ports, LOCAL included, whose tables are empty.
    ///
    /// # Errors
    /// If there is one of that name.
    pub fn create_bridge(&mut self, bridge: &Bridge, now_ms: u64) -> Result<(), Error> {
        Ok(self.ofproto.add_bridge(bridge.tables_config(), now_ms)?)
    }

    /// Adds a LOCAL port without a device: what is sent to it is dropped.
    ///
    /// # Errors
    /// If the bridge has one already.
    pub fn add_bare_local_port(&mut self, bridge: &str) -> Result<(), Error> {
        let nothing = PortConfig { attach: Attach::Nothing, ..PortConfig::patch(bridge, OfPort::LOCAL.0, "") };
        Ok(self.ofproto.add_port(bridge, nothing)?)
    }

    /// Adds all ports of a bridge; it has a LOCAL port in any case. One that cannot be opened is there and down. The
    /// result lists all ports that could not be opened or added.
    pub fn add_ports(&mut self, bridge: &Bridge) -> Vec<PortFailure> {
        let mut failures = Vec::new();
        let mut note = |port: &str, added: Result<Option<Error>, Error>| {
            failures.extend(added.unwrap_or_else(Some).map(|error| PortFailure { port: port.to_owned(), error }));
        };
        note(&bridge.name, self.add_bare_local_port(&bridge.name).map(|()| None));
        bridge.ports.iter().for_each(|port| note(&port.name, self.add_port_open_or_not(&bridge.name, port)));
        failures
    }

    /// Takes a bridge away, its ports first.
    ///
    /// # Errors
    /// If there is no such bridge, or a port does not go.
    pub fn remove_bridge(&mut self, bridge: &str) -> Result<(), Error> {
        let ports = self.ports.iter().filter(|(_, entry)| entry.bridge == *bridge);
        let ports: Vec<String> = ports.map(|(name, _)| name.clone()).collect();
        for port in ports {
            self.remove_port(bridge, &port)?;
        }
        self.loaded.remove(bridge);
        self.numbers.remove(bridge);
        Ok(self.ofproto.remove_bridge(bridge)?)
    }

    /// Reads what the tables of a bridge are to hold. Its ports may be named, those included that are yet to come:
    /// their numbers are settled with this.
    ///
    /// # Errors
    /// If something is written wrongly: with its place.
    pub fn parse_sources(&mut self, bridge: &Bridge) -> Result<ParsedSources, Error> {
        self.settle_numbers(bridge);
        let numbers = self.numbers.get(&bridge.name);
        let ports = numbers.into_iter().flatten().map(|(name, number)| (name.as_str(), *number));
        let names: PortNames = ports.chain([(bridge.name.as_str(), OfPort::LOCAL)]).collect();
        ParsedSources::parse(&bridge.sources, &names)
    }

    /// Settles the numbers of a bridge's ports. Those that the bridge has already keep theirs.
    fn settle_numbers(&mut self, bridge: &Bridge) {
        let own: HashSet<&str> = bridge.ports.iter().map(|port| port.name.as_str()).collect();
        let there = self.ofproto.ports(&bridge.name).unwrap_or_default();
        let others = there.iter().filter(|port| !own.contains(port.name.as_str()));
        let taken: BTreeSet<OfPort> = others.map(|port| port.number).collect();
        let kept = self.numbers.remove(&bridge.name).unwrap_or_default();
        let numbers = numbers::assign(bridge.ports.iter(), &kept, &taken);
        self.numbers.insert(bridge.name.clone(), numbers);
    }

    /// The number of a port that is about to be added.
    pub(crate) fn number_of(&mut self, bridge: &str, port: &Port) -> Result<OfPort, Error> {
        let kept = self.numbers.entry(bridge.to_owned()).or_default();
        // A reconfiguration has settled the numbers of all ports before it adds them.
        if let Some(settled) = kept.get(&port.name)
            && port.ofport_request.is_none_or(|requested| requested == *settled)
        {
            return Ok(*settled);
        }
        let there = self.ofproto.ports(bridge).unwrap_or_default();
        let taken =
            there.iter().map(|port| port.number).chain(kept.iter().filter(|(n, _)| **n != port.name).map(|(_, n)| *n));
        let mut assigned = numbers::assign(std::iter::once(port), kept, &taken.collect());
        let full = || Error::NoPortNumber { port: port.name.clone(), bridge: bridge.to_owned() };
        let number = assigned.remove(&port.name).ok_or_else(full)?;
        kept.insert(port.name.clone(), number);
        Ok(number)
    }

    /// Lets other ports have the number of a port that was taken away.
    pub fn release_number(&mut self, bridge: &str, port: &str) {
        if let Some(numbers) = self.numbers.get_mut(bridge) {
            numbers.remove(port);
        }
    }

    /// Makes the tables of a bridge hold what these sources say, as text that names the bridge's ports.
    ///
    /// # Errors
    /// If something is written wrongly, or the tables refuse it: with its place.
    pub fn load_sources(&mut self, bridge: &str, sources: &Sources, now_ms: u64) -> Result<(), Error> {
        let ports = self.ofproto.ports(bridge)?;
        let names = ports.iter().map(|port| (port.name.as_str(), port.number)).collect();
        self.load(bridge, &ParsedSources::parse(sources, &names)?, now_ms)?;
        Ok(())
    }

    /// Makes the tables of a bridge hold what `tables` say and nothing else. What they were loaded with before is what
    /// [`Assembly::load`] compares with later.
    ///
    /// # Errors
    /// As [`Assembly::load_sources`].
    pub fn restore(&mut self, bridge: &str, tables: &Sources, now_ms: u64) -> Result<(), Error> {
        let last = self.loaded.get(bridge).cloned().unwrap_or_default();
        ParsedSources::parse(tables, &PortNames::NONE)?.load(&self.ofproto, bridge, Some(&last), now_ms)?;
        Ok(())
    }

    /// Makes the tables of a bridge hold what `sources` say, each kind if its text is another than the one loaded last;
    /// which kinds those were. What commands and controllers have added stays, save that rules are replaced as a whole.
    /// A meter or group that is no longer listed is deleted with the rules that use it.
    ///
    /// # Errors
    /// If the tables refuse something: with its place.
    pub fn load(&mut self, bridge: &str, sources: &ParsedSources, now_ms: u64) -> Result<Vec<SourceKind>, Error> {
        let last = self.loaded.get(bridge);
        let (loaded, kinds) = sources.load(&self.ofproto, bridge, last, now_ms)?;
        self.loaded.insert(bridge.to_owned(), loaded);
        Ok(kinds)
    }
}
