//! The device's state as the frontend (a hypervisor, or DPDK's virtio-user) sets it up: memory, features, rings.
//!
//! The `vhost` crate implements the protocol; this is the state that it acts on. Each ring is behind a lock that its
//! PMD takes once a batch, and that is contended only while the frontend changes something.

use super::ring::{Ring, RingLayout, SIZE_MAX};
use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::sync::Arc;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

/// Virtio feature bits. Source: VIRTIO 1.2, sections 5.1.3 and 6.
mod feature {
    pub const CHECKSUM: u64 = 1 << 0;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MERGEABLE: u64 = 1 << 15;
    pub const MULTIQUEUE: u64 = 1 << 22;
    pub const VERSION_1: u64 = 1 << 32;
}

/// The features offered: guests may leave checksums and TCP segmentation to us; what we send them is complete.
const OFFERED: u64 = feature::CHECKSUM
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::MERGEABLE
    | feature::MULTIQUEUE
    | feature::VERSION_1
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// The most memory regions of a frontend. Source: vhost-user protocol, VHOST_MEMORY_BASELINE_NREGIONS.
const REGIONS_MAX: usize = 8;

/// A ring, shared by a PMD and the protocol's thread.
#[derive(Debug, Default)]
pub struct RingSlot(Mutex<RingState>);

/// A ring, and its configuration before it runs.
#[derive(Debug, Default)]
pub struct RingState {
    size: u16,
    layout: Option<RingLayout>,
    base: u16,
    call: Option<File>,
    kicked: bool,
    enabled: bool,
    /// Whether a packet may use several chains.
    pub mergeable: bool,
    /// `Some` while the guest uses it; `None` before, after, and when the guest broke it.
    pub ring: Option<Ring>,
}

impl RingSlot {
    /// Locks the ring; waits while the frontend changes it.
    pub fn lock(&self) -> MutexGuard<'_, RingState> {
        self.0.lock()
    }

    /// Locks the ring unless it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, RingState>> {
        self.0.try_lock()
    }
}

impl RingState {
    /// Starts or stops the ring according to its configuration.
    fn settle(&mut self, memory: Option<&Arc<GuestMemoryMmap>>) {
        let wanted = self.kicked && self.enabled && self.size.is_power_of_two();
        match (wanted, self.layout, memory) {
            (true, Some(layout), Some(memory)) => {
                if self.ring.is_none() {
                    let call = self.call.as_ref().and_then(|f| f.try_clone().ok());
                    self.ring = Some(Ring::new(memory.clone(), self.size, layout, self.base, call));
                }
            }
            _ => self.stop(),
        }
    }

    fn stop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.base = ring.position();
        }
    }
}

/// A region of the frontend's memory, for translating the frontend's own addresses.
#[derive(Clone, Copy, Debug)]
struct Region {
    user: u64,
    guest: u64,
    size: u64,
}

/// The device, as the frontend has set it up.
#[derive(Debug)]
pub struct Device {
    rings: Arc<[RingSlot]>,
    features: u64,
    regions: Vec<Region>,
    memory: Option<Arc<GuestMemoryMmap>>,
}

impl Device {
    /// A device with those rings, alternately for guest receive and transmit. Nothing is set up yet.
    pub fn new(rings: Arc<[RingSlot]>) -> Self {
        Device { rings, features: 0, regions: Vec::new(), memory: None }
    }

    fn slot(&self, index: u32) -> Result<MutexGuard<'_, RingState>> {
        Ok(self.rings.get(index as usize).ok_or(Error::InvalidParam)?.lock())
    }

    /// Changes a ring, then starts or stops it.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut RingState)) -> Result<()> {
        let memory = self.memory.clone();
        let mut slot = self.slot(index)?;
        change(&mut slot);
        slot.settle(memory.as_ref());
        Ok(())
    }

    /// Translates a frontend's address to a guest address.
    fn guest_address(&self, user: u64) -> Result<u64> {
        let region = self.regions.iter().find(|r| user.checked_sub(r.user).is_some_and(|at| at < r.size));
        region.map(|r| user - r.user + r.guest).ok_or(Error::InvalidParam)
    }

    /// Resets everything, since the frontend is gone.
    pub fn reset(&mut self) {
        for slot in self.rings.iter() {
            *slot.lock() = RingState::default();
        }
        self.features = 0;
        self.regions.clear();
        self.memory = None;
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

    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !OFFERED != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        // Without protocol features, rings are always enabled.
        let enabled = features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0;
        for index in 0..self.rings.len() as u32 {
            self.change(index, |ring| {
                ring.enabled |= enabled;
                ring.mergeable = features & feature::MERGEABLE != 0;
            })?;
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
        let (mut maps, mut regions) = (Vec::new(), Vec::new());
        for (region, file) in table.iter().zip(files) {
            // An access behind the file's end would kill this process.
            let end = region.mmap_offset.checked_add(region.memory_size).ok_or(Error::InvalidParam)?;
            if file.metadata().map_err(Error::ReqHandlerError)?.len() < end {
                return Err(Error::InvalidParam);
            }
            let map = GuestRegionMmap::new(region.mmap_region(file)?, GuestAddress(region.guest_phys_addr));
            maps.push(map.ok_or(Error::InvalidParam)?);
            regions.push(Region { user: region.user_addr, guest: region.guest_phys_addr, size: region.memory_size });
        }
        maps.sort_by_key(GuestRegionMmap::start_addr);
        let memory = GuestMemoryMmap::from_regions(maps).map_err(|_| Error::InvalidParam)?;
        self.regions = regions;
        self.memory = Some(Arc::new(memory));
        // A running ring continues in the new memory map.
        for index in 0..self.rings.len() as u32 {
            self.change(index, RingState::stop)?;
        }
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|n| n.is_power_of_two() && *n <= SIZE_MAX);
        let size = size.ok_or(Error::InvalidParam)?;
        self.change(index, |ring| {
            ring.stop();
            ring.size = size;
        })
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let layout = RingLayout {
            descriptors: self.guest_address(descriptor)?,
            available: self.guest_address(available)?,
            used: self.guest_address(used)?,
        };
        self.change(index, |ring| {
            ring.stop();
            ring.layout = Some(layout);
        })
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index, |ring| {
            ring.stop();
            ring.base = base as u16;
        })
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let mut slot = self.slot(index)?;
        slot.stop();
        slot.kicked = false;
        Ok(VhostUserVringState::new(index, u32::from(slot.base)))
    }

    fn set_vring_kick(&mut self, index: u8, _kick: Option<File>) -> Result<()> {
        // We poll, so the descriptor itself is not needed; its arrival means that the ring may start.
        self.change(u32::from(index), |ring| ring.kicked = true)
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        self.change(u32::from(index), |ring| {
            if let Some(running) = &mut ring.ring {
                running.set_call(call.as_ref().and_then(|f| f.try_clone().ok()));
            }
            ring.call = call;
        })
    }

    fn set_vring_err(&mut self, _index: u8, _err: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK)
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

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered()
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        not_offered()
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

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        not_offered()
    }
}
