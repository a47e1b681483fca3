//! Datapaths that a user makes beside the switch's own, and ports that belong to no bridge; `dpctl` in Open vSwitch.
//!
//! Such a datapath has PMDs, ports and megaflows of its own, and no tables: its megaflows are those that the user puts, and
//! packets that meet none are dropped. Ports that are added to the switch's own datapath by hand are of no bridge either:
//! megaflows that a user puts can send to them, and what they receive meets no other.

use super::Switch;
use crate::assembly::Assembly;
use crate::desired::Port;
use crate::error::Error;
use crate::numbers::DatapathNumbers;
use crate::ports::{dummy_number, polling};
use parking_lot::Mutex;
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::Datapath;
use sluice_fate::Limit;
use sluice_port::PortInfo;
use sluice_port::dummy::DummyDevice;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Datapaths that a user may make: each has threads and caches of its own.
pub(super) const DATAPATHS_MAX: usize = 16;

/// Megaflows of such a datapath, which a user has put one by one.
const MEGAFLOWS_MAX: u32 = 1 << 16;

/// The number of a datapath's own port. Source: Open vSwitch, `ODPP_LOCAL`.
const LOCAL: PortNo = PortNo(0);

/// Why a command about datapaths and their ports failed; in the C library's words, as Open vSwitch tells it.
#[derive(Debug, thiserror::Error)]
pub enum DpifError {
    /// There is a datapath or port of that name.
    #[error("File exists")]
    Exists,
    /// There is no datapath of that name.
    #[error("No such device")]
    NoDatapath,
    /// There is no such port.
    #[error("No such file or directory")]
    NoPort,
    /// Another port has the number, or the switch needs the port or datapath.
    #[error("Device or resource busy")]
    Busy,
    /// The datapath's own port cannot go.
    #[error("Invalid argument")]
    Invalid,
    /// There are as many as there may be.
    #[error("No space left on device")]
    Full,
    /// The device could not be opened or changed.
    #[error("{0}")]
    Device(Error),
}

/// A datapath, by which commands name it.
#[derive(Clone)]
pub enum DatapathRef {
    /// The one of the switch's bridges.
    Own,
    /// One that a user has made.
    Made(Arc<MadeDatapath>),
}

/// A datapath that a user has made.
pub struct MadeDatapath {
    name: String,
    datapath: Datapath,
    ports: Mutex<(LoosePorts, DatapathNumbers)>,
}

impl MadeDatapath {
    /// Its type and name: `netdev@dp0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its PMDs, ports and megaflows.
    pub fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    fn short_name(&self) -> &str {
        self.name.split_once('@').map_or(&self.name, |(_, short)| short)
    }
}

/// The datapaths that a user has made, by name without type, and the ports of the switch's own that belong to no bridge.
#[derive(Default)]
pub(super) struct Datapaths {
    made: Mutex<BTreeMap<String, Arc<MadeDatapath>>>,
    loose: Mutex<LoosePorts>,
}

/// Ports of a datapath that belong to no bridge.
type LoosePorts = BTreeMap<PortNo, Port>;

/// A port of a datapath that belongs to no bridge.
#[derive(Clone, Debug)]
pub struct LoosePort {
    /// Its number.
    pub number: PortNo,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// What it is.
    pub info: Option<PortInfo>,
}

impl Switch {
    /// The datapath that a user has made under that name, with or without its type.
    pub fn made_datapath(&self, name: &str) -> Option<Arc<MadeDatapath>> {
        let short = name.split_once('@').map_or(name, |(_, short)| short);
        let made = self.datapaths.made.lock();
        made.get(short).filter(|datapath| name == short || name == datapath.name).cloned()
    }

    /// All datapaths that users have made, by name.
    pub fn made_datapaths(&self) -> Vec<Arc<MadeDatapath>> {
        self.datapaths.made.lock().values().cloned().collect()
    }

    /// The PMDs, ports and megaflows of a datapath.
    pub fn datapath_of<'a>(&'a self, at: &'a DatapathRef) -> &'a Datapath {
        match at {
            DatapathRef::Own => &self.datapath,
            DatapathRef::Made(made) => &made.datapath,
        }
    }

    /// Makes a datapath of that name, `netdev@NAME`, whose own port is of that type.
    ///
    /// # Errors
    /// If there is one of that name, or its memory, threads or port cannot be had.
    pub fn add_datapath(&self, name: &str, local_kind: &str) -> Result<(), DpifError> {
        let short = name.split_once('@').map_or(name, |(_, short)| short).to_owned();
        let mut setup = self.setup();
        let config = setup.state.datapath_config();
        let mut made = self.datapaths.made.lock();
        if made.contains_key(&short) {
            return Err(DpifError::Exists);
        }
        if made.len() >= DATAPATHS_MAX {
            Limit::Datapaths.hit();
            return Err(DpifError::Full);
        }
        let max_megaflows = config.max_megaflows.min(MEGAFLOWS_MAX);
        let config = sluice_datapath::Config { max_megaflows, main_worker: true, ..config };
        let failed = |error| DpifError::Device(Error::Datapath(error));
        let datapath = Datapath::new(config).map_err(failed)?;
        let local = Port { mtu: None, ..Port::new(&short, local_kind) };
        open_loose(&mut setup.assembly, &datapath, LOCAL, &local)?;
        datapath.start().map_err(failed)?;
        let ports = Mutex::new(([(LOCAL, local)].into(), DatapathNumbers::default()));
        made.insert(short, Arc::new(MadeDatapath { name: name.to_owned(), datapath, ports }));
        Ok(())
    }

    /// Ends a datapath that a user has made, with its ports.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn del_datapath(&self, name: &str) -> Result<(), DpifError> {
        let datapath = self.made_datapath(name).ok_or(DpifError::NoDatapath)?;
        self.datapaths.made.lock().remove(datapath.short_name());
        datapath.datapath.stop();
        datapath.datapath.delete_devices();
        datapath.datapath.close_ports();
        Ok(())
    }

    /// Adds a port that belongs to no bridge, under that number or any; its number.
    ///
    /// # Errors
    /// If name or number is taken, or its device cannot be opened.
    pub fn add_loose_port(&self, at: &DatapathRef, port: &Port, number: Option<PortNo>) -> Result<PortNo, DpifError> {
        // Held until the number is taken: others choose theirs meanwhile.
        let mut setup = self.setup();
        match at {
            DatapathRef::Own => {
                if setup.assembly.ports().contains_key(&port.name) {
                    return Err(DpifError::Exists);
                }
                let mut ports = self.datapaths.loose.lock();
                let number = choose_number(&ports, port, number, &mut setup.assembly.datapath_numbers)?;
                open_loose(&mut setup.assembly, &self.datapath, number, port)?;
                setup.assembly.datapath_numbers.take(number);
                ports.insert(number, port.clone());
                Ok(number)
            }
            DatapathRef::Made(made) => {
                let (ports, numbers) = &mut *made.ports.lock();
                let number = choose_number(ports, port, number, numbers)?;
                open_loose(&mut setup.assembly, &made.datapath, number, port)?;
                numbers.take(number);
                ports.insert(number, port.clone());
                Ok(number)
            }
        }
    }

    /// Takes a port away from a datapath; one of a bridge comes back when its bridge is configured again.
    ///
    /// # Errors
    /// If there is no such port, or it is the datapath's own or serves tunnels.
    pub fn del_datapath_port(&self, at: &DatapathRef, number: PortNo) -> Result<(), DpifError> {
        if number == LOCAL {
            return Err(DpifError::Invalid);
        }
        match at {
            DatapathRef::Made(made) => {
                let (ports, numbers) = &mut *made.ports.lock();
                ports.remove(&number).ok_or(DpifError::NoPort)?;
                numbers.release(number);
                close(&made.datapath, number)
            }
            DatapathRef::Own => {
                if self.datapaths.loose.lock().remove(&number).is_some() {
                    self.setup().assembly.datapath_numbers.release(number);
                    return close(&self.datapath, number);
                }
                if self.backends().iter().any(|(_, backend)| backend.number == number) {
                    return Err(DpifError::Busy);
                }
                let (bridge, name) = self.owner_of(number).ok_or(DpifError::NoPort)?;
                self.remove_port(&bridge, &name).map_err(DpifError::Device)
            }
        }
    }

    /// The bridge and the name of a bridge's port.
    fn owner_of(&self, number: PortNo) -> Option<(String, String)> {
        let setup = self.setup();
        let mut ports = setup.assembly.ports().iter();
        let found = ports.find(|(_, entry)| entry.number == Some(number) && entry.tunnel().is_none());
        found.map(|(name, entry)| (entry.bridge.clone(), name.clone()))
    }

    /// Changes options of a port, which keeps the others; an empty value takes an option away.
    ///
    /// # Errors
    /// If there is no such port, or its device cannot do that.
    pub fn set_datapath_port(
        &self,
        at: &DatapathRef,
        number: PortNo,
        options: &BTreeMap<String, String>,
    ) -> Result<(), DpifError> {
        if options.is_empty() {
            return Ok(());
        }
        let change = |port: &Port| {
            let mut port = port.clone();
            port.options.extend(options.clone());
            port.options.retain(|_, value| !value.is_empty());
            port
        };
        if let (DatapathRef::Own, Some((bridge, name))) = (at, self.owner_of(number)) {
            let mut setup = self.setup();
            let port = setup.assembly.ports().get(&name).map(|entry| change(&entry.desired));
            let failed = setup.assembly.change_port(&bridge, &port.ok_or(DpifError::NoPort)?);
            drop(setup);
            self.request_revalidation();
            return match failed.map_err(DpifError::Device)? {
                None => Ok(()),
                Some(error) => Err(DpifError::Device(error)),
            };
        }
        let setup = self.setup();
        self.with_loose(at, |ports| {
            let port = ports.get_mut(&number).ok_or(DpifError::NoPort)?;
            let changed = change(port);
            let config = setup.assembly.device_config(&changed);
            let done = self.datapath_of(at).reconfigure_port(number, &config, &polling(&changed));
            done.map_err(|_| DpifError::Invalid)?;
            *port = changed;
            Ok(())
        })
    }

    fn with_loose<T>(&self, at: &DatapathRef, run: impl FnOnce(&mut LoosePorts) -> T) -> T {
        match at {
            DatapathRef::Own => run(&mut self.datapaths.loose.lock()),
            DatapathRef::Made(made) => run(&mut made.ports.lock().0),
        }
    }

    /// The ports of a datapath that belong to no bridge.
    pub fn loose_ports(&self, at: &DatapathRef) -> Vec<LoosePort> {
        let infos = self.datapath_of(at).port_infos();
        let port = |(number, port): (&PortNo, &Port)| LoosePort {
            number: *number,
            name: port.name.clone(),
            kind: port.kind.clone(),
            info: infos.get(number).cloned(),
        };
        self.with_loose(at, |ports| ports.iter().map(port).collect())
    }

    /// The names of a datapath's ports, for megaflows.
    pub fn names_of(&self, at: &DatapathRef) -> DatapathPortNames {
        match at {
            DatapathRef::Own => self.datapath_names(),
            DatapathRef::Made(_) => {
                let mut names = self.option_names();
                self.loose_ports(at).iter().for_each(|port| names.insert(port.number, &port.name));
                names
            }
        }
    }

    /// The dummy devices of all datapaths.
    pub fn dummies(&self) -> Vec<Arc<DummyDevice>> {
        let made = self.made_datapaths();
        let of_made = made.iter().flat_map(|made| made.datapath.dummies());
        self.datapath.dummies().into_iter().chain(of_made).collect()
    }
}

impl Datapaths {
    /// What has to be done about once a second.
    pub fn service(&self, now_ms: u64) {
        for made in self.made.lock().values() {
            made.datapath.service_ports();
            made.datapath.service(now_ms);
            made.datapath.store().settle(&mut |_, _| {});
        }
    }

    /// Waits until all that the ports have received is processed.
    pub fn quiesce(&self) {
        let made: Vec<_> = self.made.lock().values().cloned().collect();
        made.iter().for_each(|made| made.datapath.quiesce());
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.made.lock().values().for_each(|made| made.datapath.stop());
    }

    /// Deletes the devices that were made for ports and would outlast the process.
    pub fn delete_devices(&self) {
        self.made.lock().values().for_each(|made| made.datapath.delete_devices());
    }

    /// Closes all ports, once the threads have ended.
    pub fn close_ports(&self) {
        self.made.lock().values().for_each(|made| made.datapath.close_ports());
    }

    /// Adds the names of the ports of the switch's own datapath that belong to no bridge.
    pub fn name_loose(&self, names: &mut DatapathPortNames) {
        self.loose.lock().iter().for_each(|(number, port)| names.insert(*number, &port.name));
    }
}

fn close(datapath: &Datapath, number: PortNo) -> Result<(), DpifError> {
    let closed = datapath.stop_receiving(number).and_then(|()| datapath.del_port(number));
    closed.map_err(|error| DpifError::Device(error.into()))?.delete_device();
    Ok(())
}

/// The number of a port to come.
fn choose_number(
    ports: &LoosePorts,
    port: &Port,
    wanted: Option<PortNo>,
    numbers: &mut DatapathNumbers,
) -> Result<PortNo, DpifError> {
    if ports.values().any(|other| other.name == port.name) {
        return Err(DpifError::Exists);
    }
    match wanted {
        Some(number) if numbers.is_taken(number) || number == LOCAL => Err(DpifError::Busy),
        Some(number) if number.0 >= sluice_datapath::PORTS_MAX => Err(DpifError::Invalid),
        Some(number) => Ok(number),
        None => {
            let of_name = dummy_number(&port.name).filter(|_| port.kind.starts_with("dummy"));
            numbers.free(of_name).ok_or(DpifError::Full)
        }
    }
}

fn open_loose(assembly: &mut Assembly, datapath: &Datapath, number: PortNo, port: &Port) -> Result<(), DpifError> {
    let opened = assembly.open_device(port).map_err(DpifError::Device)?;
    let added = datapath.add_port_polled(number, opened, &polling(port));
    added.map_err(|error| DpifError::Device(Error::Port { port: port.name.clone(), error }))
}
