//! A switch that runs: its tables and PMDs, the connections of its controllers, and the state it was told to be in.
//!
//! Locks, in the order in which they are taken: `setup` (bridges, ports, desired state: held while they change), then
//! those of the parts. No connection of a controller ever needs `setup`, since bridges that go wait for theirs to end.

mod bfd;
mod bundles;
mod datapaths;
mod limits;
mod openflow;
mod ports;
mod reconfigure;
mod sflow;
mod tables;
mod tunnels;

pub use datapaths::{DatapathRef, DpifError, LoosePort, MadeDatapath};
pub use limits::LimitUsage;
pub use ports::PortStatus;
pub use reconfigure::Outcome;

use crate::assembly::Assembly;
use crate::bfd::Bfd;
use crate::bundles::Bundles;
use crate::desired::{Bridge, DesiredState, Source};
use crate::error::Error;
use crate::kernel_routes::KernelRoutes;
use crate::qos::QosTable;
use crate::revalidator::{Revalidator, RevalidatorFigures};
use crate::sources;
use openflow::AroundOpenFlow;
use parking_lot::{Mutex, MutexGuard};
use sluice_connmgr::{ControllerStatus, OpenFlowService, SocketMode};
use sluice_datapath::{Datapath, Unpinned};
use sluice_fate::{Counter, Snapshot};
use sluice_ofproto::Ofproto;
use sluice_port::Pools;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a command waits until packets are handed to controllers.
const PACKET_INS_WITHIN: Duration = Duration::from_secs(1);

/// Megaflows up to which a command credits the rules with what they carried: a millisecond of work. What more of them
/// carried is credited by the revalidator in its time.
const CREDITED_AT_ONCE: usize = 4096;

/// A switch.
pub struct Switch {
    ofproto: Ofproto,
    datapath: Arc<Datapath>,
    openflow: OpenFlowService,
    revalidator: Arc<Revalidator>,
    pools: Arc<Mutex<Pools>>,
    bfd: Bfd,
    bundles: Bundles,
    kernel_routes: Mutex<KernelRoutes>,
    qos: Arc<QosTable>,
    sflow: Mutex<sflow::Agents>,
    datapaths: datapaths::Datapaths,
    setup: Mutex<Setup>,
}

/// What changes only by a reconfiguration or a command.
struct Setup {
    assembly: Assembly,
    /// What the front end asked for last, as far as it has been carried out.
    state: DesiredState,
}

/// What the lookups came to, over all PMDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Passes that a cache answered.
    pub hit: u64,
    /// Passes that went to the tables.
    pub missed: u64,
    /// Of those, the ones the tables did not answer.
    pub lost: u64,
    /// Live megaflows.
    pub flows: usize,
}

/// How many there are of what a switch keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bridges.
    pub bridges: usize,
    /// Live megaflows.
    pub megaflows: usize,
    /// Packet buffers.
    pub packet_buffers: usize,
    /// PMDs.
    pub pmds: usize,
    /// Ports, LOCAL ports without a device not counted.
    pub ports: usize,
    /// Rules of all tables.
    pub rules: usize,
}

impl Switch {
    /// Opens ports and loads rules. No thread runs yet, so that root can be left in between. A port that cannot be
    /// opened is logged and tried again, unless its options are wrong.
    ///
    /// # Errors
    /// If the state cannot be, rules are wrong or refused, or memory is short.
    pub fn prepare(desired: &DesiredState) -> Result<Arc<Switch>, Error> {
        desired.check()?;
        let assembly = Assembly::of_state(desired)?;
        let (ofproto, datapath) = (assembly.ofproto().clone(), Arc::clone(assembly.datapath()));
        ofproto.rule_memory().set_limit(desired.rule_memory);
        let limit = desired.datapath.max_megaflows() as usize;
        let revalidator = Revalidator::new(ofproto.clone(), datapath.store(), desired.datapath.max_idle, limit);
        let revalidator = Arc::new(revalidator);
        let around = AroundOpenFlow::new(&assembly, Arc::clone(&revalidator));
        let openflow = OpenFlowService::new(ofproto.clone(), Arc::new(around));
        // Now: the switch may not be allowed to read the files later.
        openflow.set_tls(desired.tls.as_ref())?;
        openflow.set_bundle_idle_timeout(desired.bundle_idle_timeout);
        openflow.bundle_memory().set_limit(desired.bundle_memory);
        let setup = Setup { assembly, state: DesiredState { bridges: Vec::new(), ..desired.clone() } };
        let (pools, bfd, bundles) = (setup.assembly.pools(), Bfd::default(), Bundles::default());
        let qos = Arc::clone(setup.assembly.qos());
        let (kernel_routes, sflow, setup) = (Mutex::default(), Mutex::default(), Mutex::new(setup));
        let datapaths = datapaths::Datapaths::default();
        let switch = Switch {
            ofproto,
            datapath,
            openflow,
            revalidator,
            pools,
            bfd,
            bundles,
            kernel_routes,
            qos,
            sflow,
            datapaths,
            setup,
        };
        desired.bridges.iter().try_for_each(|bridge| switch.prepare_bridge(bridge))?;
        Ok(Arc::new(switch))
    }

    fn prepare_bridge(&self, bridge: &Bridge) -> Result<(), Error> {
        let mut setup = self.setup();
        let Setup { assembly, state } = &mut *setup;
        let sources = assembly.parse_sources(bridge)?;
        assembly.create_bridge(bridge, self.now_ms())?;
        for failure in assembly.add_ports(bridge) {
            // Only another configuration would help: as fatal as an option that is not known.
            if failure.error.is_of_configuration() {
                return Err(failure.error);
            }
            tracing::error!("{}", failure.error);
        }
        assembly.load(&bridge.name, &sources, self.now_ms())?;
        state.bridges.push(bridge.clone());
        Ok(())
    }

    /// Runs the threads.
    ///
    /// # Errors
    /// If there can be none.
    pub fn start(&self) -> Result<(), Error> {
        self.revalidator.make_room();
        self.datapath.start()?.iter().for_each(log_unpinned);
        self.revalidator.start().map_err(|error| Error::Thread { thread: "revalidator", error })
    }

    /// Serves every bridge, with sockets of that mode in `rundir`, and hands packets to controllers.
    ///
    /// # Errors
    /// If a socket or a thread cannot be had.
    pub fn start_openflow(self: &Arc<Self>, rundir: &Path, mode: SocketMode) -> Result<(), Error> {
        self.openflow.start(rundir, mode);
        let mut setup = self.setup();
        setup.assembly.watch_links();
        let bridges = setup.state.bridges.clone();
        drop(setup);
        bridges.iter().try_for_each(|bridge| self.openflow.serve_bridge(&bridge.name, &bridge.openflow()))?;
        self.sync_bfd();
        self.sync_sflow();
        bfd::start(self).map_err(|error| Error::Thread { thread: "bfd", error })?;
        self.sync_bundles();
        bundles::start(self).map_err(|error| Error::Thread { thread: "bond", error })?;
        sflow::start(self).map_err(|error| Error::Thread { thread: "sflow", error })?;
        openflow::start_packet_ins(self).map_err(|error| Error::Thread { thread: "packet-in", error })
    }

    /// Waits until all that the ports have received is processed, and its side effects are done: addresses are learned,
    /// rules credited, packets handed to the connections of their controllers.
    ///
    /// A command calls it before it replies, so that what came before the command shows.
    pub fn quiesce(&self) {
        self.datapath.quiesce();
        self.datapaths.quiesce();
        if self.send_neighbour_requests() {
            self.datapath.quiesce();
        }
        self.wait_for_bfd();
        self.wait_for_bundles();
        self.wait_for_sflow();
        self.tick();
        self.datapath.wait_for_packet_ins(PACKET_INS_WITHIN);
        if self.datapath.store().len() <= CREDITED_AT_ONCE {
            self.revalidator.credit(self.now_ms());
        }
    }

    /// Ends connections and threads. [`Switch::settle`] then credits rules with the rest of what megaflows carried.
    pub fn stop(&self) {
        self.openflow.stop();
        self.datapath.stop();
        self.datapaths.stop();
        self.revalidator.stop();
        self.ofproto.tick(self.now_ms());
    }

    /// Credits rules with all that megaflows carried, once the threads have ended.
    pub fn settle(&self) {
        self.revalidator.settle();
    }

    /// Puts devices back as they were, and deletes those of ports that would outlast the process. Otherwise the next process goes on with them.
    pub fn delete_devices(&self) {
        self.qos.remove_all();
        self.datapath.delete_devices();
        self.datapaths.delete_devices();
    }

    /// Closes the ports, once the threads have ended and nobody asks for their counters any more.
    pub fn close_ports(&self) {
        self.datapath.close_ports();
        self.datapaths.close_ports();
    }

    /// What has to be done several times a second while there is traffic: side effects of packets, timeouts of rules and
    /// connections. Whether there was something to do.
    pub fn tick(&self) -> bool {
        let all_expired = self.datapath.service(self.now_ms());
        let epoch = self.ofproto.epoch();
        let ticked = self.ofproto.tick(self.now_ms());
        self.openflow.publish_removed();
        if self.ofproto.epoch() != epoch {
            self.revalidator.request_revalidation();
        }
        let has_asked = self.send_neighbour_requests();
        !all_expired || has_asked || ticked.effects + ticked.expired_rules != 0
    }

    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock()
    }

    /// The tables. After a change of what megaflows depend on, [`Switch::request_revalidation`].
    pub fn ofproto(&self) -> &Ofproto {
        &self.ofproto
    }

    /// The OpenFlow service.
    pub fn openflow(&self) -> &OpenFlowService {
        &self.openflow
    }

    /// The PMDs.
    pub fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// The switch's time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        sluice_clock::now_ms()
    }

    /// The state that the front end asked for last, as far as it has been carried out.
    pub fn state(&self) -> DesiredState {
        self.setup().state.clone()
    }

    /// Sets a bridge's OpenFlow datapath id. Its controllers are connected to anew. Source: OVS ofproto/ofproto.c,
    /// `ofproto_set_datapath_id`.
    ///
    /// # Errors
    /// If there is no such bridge, or it cannot be served any more.
    pub fn set_datapath_id(&self, bridge: &str, datapath_id: u64) -> Result<(), Error> {
        self.ofproto.set_datapath_id(bridge, datapath_id)?;
        Ok(self.openflow.reconnect(bridge)?)
    }

    /// What is known of the controllers that a bridge connects to.
    pub fn controllers(&self, bridge: &str) -> Vec<ControllerStatus> {
        self.openflow.controllers(bridge)
    }

    /// Whether there is a bridge of that name.
    pub fn has_bridge(&self, name: &str) -> bool {
        self.ofproto.bridges().iter().any(|bridge| bridge.name == name)
    }

    /// Everything counted since the start, over all PMDs.
    pub fn totals(&self) -> Snapshot {
        self.datapath.totals()
    }

    /// What the lookups came to since the start.
    pub fn lookups(&self) -> Lookups {
        self.lookups_of(&DatapathRef::Own)
    }

    /// The same for a datapath.
    pub fn lookups_of(&self, at: &DatapathRef) -> Lookups {
        let datapath = self.datapath_of(at);
        let totals = datapath.totals();
        Lookups {
            hit: totals[Counter::EmcHits] + totals[Counter::SmcHits] + totals[Counter::MegaflowHits],
            missed: totals[Counter::Upcalls] + totals[Counter::UpcallsLost],
            lost: totals[Counter::UpcallsLost],
            flows: datapath.store().len(),
        }
    }

    /// How many there are of what the switch keeps.
    pub fn usage(&self) -> Usage {
        let bridges = self.ofproto.bridges();
        let tables = bridges.iter().filter_map(|bridge| self.ofproto.table_stats(&bridge.name).ok());
        let rules = tables.flatten().map(|table| table.rules).sum();
        let setup = self.setup();
        Usage {
            bridges: bridges.len(),
            megaflows: self.datapath.store().len(),
            packet_buffers: setup.assembly.packet_buffers(),
            pmds: self.datapath.pmds().iter().filter(|worker| worker.core.is_some()).count(),
            ports: setup.assembly.ports().len(),
            rules,
        }
    }

    /// Waits until every megaflow has been looked at after now.
    pub fn revalidate(&self) {
        self.revalidator.wait();
    }

    /// Asks for a look at every megaflow soon: something that they depend on has changed.
    pub fn request_revalidation(&self) {
        self.revalidator.request_revalidation();
    }

    /// Deletes every megaflow.
    pub fn purge(&self) {
        self.revalidator.purge();
    }

    /// Whether megaflows leave open what did not decide; those there are go, so that the next packet of each is asked
    /// about.
    pub fn enable_megaflows(&self, enabled: bool) {
        self.ofproto.enable_megaflows(enabled);
        self.purge();
    }

    /// Whether the tables are being filled after a restart: until that is done, packets that no megaflow matches are
    /// dropped.
    pub fn set_flow_restore_wait(&self, wait: bool) {
        self.ofproto.set_flow_restore_wait(wait);
    }

    /// Makes a bridge's rules those of a text.
    ///
    /// # Errors
    /// If the text is wrong or the tables refuse it: nothing has changed then.
    pub fn replace_rules(&self, bridge: &str, rules: &Source) -> Result<(), Error> {
        sources::replace_rules(&self.ofproto, bridge, rules, self.now_ms())?;
        self.request_revalidation();
        Ok(())
    }

    /// Stops the revalidator between two rounds, or lets it go on.
    pub fn pause_revalidator(&self, is_paused: bool) {
        if is_paused { self.revalidator.pause() } else { self.revalidator.resume() }
    }

    /// Changes how many megaflows may live; no more than the switch was made for.
    pub fn set_flow_limit(&self, limit: usize) {
        self.datapath.set_flow_limit(limit);
        self.revalidator.set_limit(limit);
        self.request_revalidation();
    }

    /// Whether dumps name megaflows by their identity alone.
    pub fn use_ufid(&self, uses_ufid: bool) {
        self.ofproto.use_ufid(uses_ufid);
        self.revalidator.use_ufid(uses_ufid);
    }

    /// What the revalidator knows of the megaflows.
    pub fn revalidator_figures(&self) -> RevalidatorFigures {
        self.revalidator.figures()
    }
}

/// Says that a PMD has no core of its own.
fn log_unpinned(unpinned: &Unpinned) {
    tracing::warn!("PMD {} is not bound to its core: {}", unpinned.pmd, unpinned.source);
}
