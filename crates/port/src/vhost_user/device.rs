//! The device's state as the frontend (a hypervisor, or DPDK's virtio-user) sets it up: memory, features, rings.
//!
//! The `vhost` crate implements the protocol; this is the state that it acts on. It belongs to the protocol's thread.
//! Each change that a ring depends on stops it, and starts another one in its place when its configuration is whole.

use super::feature::Features;
use super::inflight_buffer::{InflightBuffer, InflightShape};
use super::memory::{DirtyLog, GuestMemory, RegionInfo};
use super::request::Request;
use super::ring::{Call, Ring, RingLayout, RingSetup, SIZE_MAX};
use super::send_rarp::GuestMac;
use super::slot::RingSlot;
use std::fs::File;
use std::sync::Arc;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

/// The most memory regions of a frontend. Source: vhost-user protocol, VHOST_MEMORY_BASELINE_NREGIONS.
const REGIONS_MAX: usize = 8;

/// What a port has for its frontend.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Alternately for guest receive and transmit.
    pub rings: Vec<Arc<RingSlot>>,
    /// The features of which the guest takes some.
    pub features: Features,
}

/// The device, as the frontend has set it up.
#[derive(Debug)]
pub struct Device {
    rings: Vec<RingConfig>,
    offered: Features,
    features: Features,
    memory: Option<Arc<GuestMemory>>,
    log: Option<Arc<DirtyLog>>,
    /// Where chains in flight are recorded.
    inflight: Option<InflightBuffer>,
}

/// A ring's configuration, and the place where it runs.
#[derive(Debug)]
struct RingConfig {
    slot: Arc<RingSlot>,
    size: u16,
    addresses: Option<RingAddresses>,
    /// Where it was stopped, as the protocol says it. A split ring continues where its used ring says: entries are used
    /// in order.
    base: u32,
    call: Option<Arc<Call>>,
    kicked: bool,
    enabled: bool,
}

/// A ring's addresses as the frontend names them: its own, but for the log's.
#[derive(Clone, Copy, Debug)]
struct RingAddresses {
    descriptors: u64,
    available: u64,
    used: u64,
    log: Option<u64>,
}

/// What a frontend has negotiated, for the port's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    pub features: u64,
    /// Entries of each ring that was set up.
    pub ring_sizes: Vec<u16>,
}

impl RingConfig {
    fn new(slot: Arc<RingSlot>) -> Self {
        RingConfig { slot, size: 0, addresses: None, base: 0, call: None, kicked: false, enabled: false }
    }

    /// Stops the ring, if it runs. Its position is where it will continue.
    fn stop(&mut self) {
        if let Some(ring) = self.slot.replace(None) {
            self.base = ring.position();
        }
    }

    /// What the ring starts with, if its configuration is whole.
    fn setup(&self, features: Features, memory: Option<&Arc<GuestMemory>>) -> Option<RingSetup> {
        let is_wanted = self.kicked && self.enabled && self.size.is_power_of_two();
        let (addresses, memory) = (self.addresses.filter(|_| is_wanted)?, memory?);
        let of = |user| memory.guest_address(user).ok();
        let layout = RingLayout {
            descriptors: of(addresses.descriptors)?,
            available: of(addresses.available)?,
            used: of(addresses.used)?,
            log: addresses.log,
        };
        let (memory, call) = (memory.clone(), self.call.clone());
        Some(RingSetup { memory, features, size: self.size, layout, base: self.base, call, log: None, inflight: None })
    }
}

impl Device {
    /// A device with those rings, alternately for guest receive and transmit. Nothing is set up yet.
    pub fn new(offer: &Offer) -> Self {
        let rings = offer.rings.iter().cloned().map(RingConfig::new).collect();
        let (offered, features) = (offer.features, Features::default());
        Device { rings, offered, features, memory: None, log: None, inflight: None }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingConfig> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Stops a ring, changes its configuration, and starts it if that is whole.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut RingConfig)) -> Result<()> {
        let ring = self.ring(index)?;
        ring.stop();
        change(ring);
        self.start(index)
    }

    /// Starts a ring that is stopped, if its configuration is whole.
    fn start(&mut self, index: u32) -> Result<()> {
        let (features, memory) = (self.features, self.memory.clone());
        let log = self.log.clone().filter(|_| features.logs());
        let inflight = self.inflight.as_ref().and_then(|buffer| buffer.of_queue(index as usize));
        let ring = self.ring(index)?;
        let Some(setup) = ring.setup(features, memory.as_ref()) else { return Ok(()) };
        match Ring::new(RingSetup { log, inflight, ..setup }) {
            Ok(running) => {
                ring.slot.replace(Some(running));
                Ok(())
            }
            Err(why) => {
                ring.slot.refuse(why);
                Err(Error::InvalidParam)
            }
        }
    }

    /// Changes all rings, which stop and start again.
    fn change_all(&mut self, change: impl Fn(&mut RingConfig)) {
        for index in 0..self.rings.len() as u32 {
            // A ring that the new state has no place for stays stopped.
            let _ = self.change(index, &change);
        }
    }

    /// Hands the rings that run the log that applies now.
    fn set_logs(&self) {
        let log = self.log.clone().filter(|_| self.features.logs());
        self.rings.iter().for_each(|ring| ring.slot.change(|ring| ring.set_log(log.clone())));
    }

    /// What a request about chains in flight is for. The reply to one that asks has no place for an error, so a shape
    /// that no frontend of this device has ends the connection.
    fn inflight_shape(&self, inflight: &VhostUserInflight) -> Result<InflightShape> {
        let shape = InflightShape { queues: inflight.num_queues, queue_size: inflight.queue_size };
        shape.is_for(self.rings.len(), SIZE_MAX).then_some(shape).ok_or(Error::InvalidMessage)
    }

    /// Carries out a request that is not the crate's; whether that was possible.
    pub fn serve(&mut self, request: Request) -> bool {
        match request {
            Request::SendRarp(guest) => self.announce(guest),
            Request::SetVringEnable { ring, enable } => {
                return enable.is_some_and(|enable| self.set_vring_enable(ring, enable).is_ok());
            }
        }
        true
    }

    /// Announces the guest in its place, by its first queue.
    fn announce(&self, guest: GuestMac) {
        if let Some(ring) = self.rings.get(1) {
            ring.slot.announce(guest);
        }
    }

    /// What the frontend has negotiated.
    pub fn report(&self) -> DeviceReport {
        let ring_sizes = self.rings.iter().map(|ring| ring.size).take_while(|size| *size != 0).collect();
        DeviceReport { features: self.features.0, ring_sizes }
    }

    /// Resets everything, since the frontend is gone.
    pub fn reset(&mut self) {
        for ring in &mut self.rings {
            ring.stop();
            ring.slot.set_call(None);
            *ring = RingConfig::new(ring.slot.clone());
        }
        (self.features, self.memory, self.log, self.inflight) = (Features::default(), None, None, None);
    }
}

/// The error for a request that was not offered.
fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("not offered by this device"))
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// Disables the rings and keeps all else, as the protocol recommends.
    fn reset_owner(&mut self) -> Result<()> {
        self.change_all(|ring| ring.enabled = false);
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered.0)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let features = Features(features);
        if !features.are_among(self.offered) {
            return Err(Error::FeatureMismatch);
        }
        let old = std::mem::replace(&mut self.features, features);
        if old.of_rings() != features.of_rings() || !features.enables_rings() {
            self.change_all(|ring| ring.enabled |= !features.enables_rings());
        } else {
            // A migration begins or ends while rings run.
            self.set_logs();
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if table.len() != files.len() || table.len() > REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let regions = table.iter().map(|region| RegionInfo {
            guest: region.guest_phys_addr,
            user: region.user_addr,
            size: region.memory_size,
            offset: region.mmap_offset,
        });
        let memory = GuestMemory::map(regions.zip(files)).map_err(Error::ReqHandlerError)?;
        // The old one is unmapped here, by this thread: after the last ring that uses it.
        let _old = self.memory.replace(Arc::new(memory));
        // A running ring continues in the new memory map.
        self.change_all(|_| ());
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|n| n.is_power_of_two() && *n <= SIZE_MAX);
        let size = size.ok_or(Error::InvalidParam)?;
        self.change(index, |ring| ring.size = size)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let log = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG).then_some(log);
        self.change(index, |ring| ring.addresses = Some(RingAddresses { descriptors, available, used, log }))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index, |ring| ring.base = base)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index)?;
        ring.stop();
        ring.kicked = false;
        Ok(VhostUserVringState::new(index, ring.base))
    }

    fn set_vring_kick(&mut self, index: u8, _kick: Option<File>) -> Result<()> {
        // We poll, so the descriptor itself is not needed; its arrival means that the ring may start.
        self.change(u32::from(index), |ring| ring.kicked = true)
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        let ring = self.ring(u32::from(index))?;
        ring.call = call.map(Call::new).transpose().map_err(Error::ReqHandlerError)?.map(Arc::new);
        ring.slot.set_call(ring.call.clone());
        Ok(())
    }

    fn set_vring_err(&mut self, _index: u8, _err: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64 / 2)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |ring| ring.enabled = enable)
    }

    fn get_config(&mut self, _offset: u32, _size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        not_offered()
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let shape = self.inflight_shape(inflight)?;
        let file = shape.create().map_err(|_| Error::BackendInternalError)?;
        Ok((VhostUserInflight::new(shape.bytes(), 0, shape.queues, shape.queue_size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let shape = self.inflight_shape(inflight)?;
        let place = (inflight.mmap_size, inflight.mmap_offset);
        let buffer = InflightBuffer::map(file, shape, place).map_err(Error::ReqHandlerError)?;
        // The old one is unmapped here, by this thread: after the last ring that uses it.
        let _old = self.inflight.replace(buffer);
        self.change_all(|_| ());
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered()
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        not_offered()
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered()
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let mapped = DirtyLog::map(file, log.mmap_size, log.mmap_offset).map_err(Error::ReqHandlerError)?;
        let _old = self.log.replace(Arc::new(mapped));
        self.set_logs();
        Ok(())
    }
}
