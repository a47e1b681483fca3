//! The process's packet pools, by frame length.

use sluice_mem::{FramePool, HeapPool, PoolConfig, PoolError};
use std::sync::Arc;

/// The pools from which ports take their frames: one for the ordinary MTU, and one for each larger MTU.
///
/// Ports share a pool where they can, so that packets cross between them without a copy.
#[derive(Debug)]
pub struct Pools {
    frames: usize,
    pools: Vec<Arc<HeapPool>>,
    /// The AF_XDP sockets whose buffers are frames of these pools.
    pub(crate) xdp_sockets: crate::af_xdp::Sockets,
    #[cfg(feature = "dpdk")]
    dpdk: Option<crate::dpdk::Dpdk>,
    #[cfg(feature = "dpdk")]
    dpdk_config: DpdkConfig,
}

/// How DPDK is started if a port needs it (`[switch.dpdk]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkConfig {
    /// Arguments of its environment abstraction layer.
    pub eal_args: Vec<String>,
    /// Packet buffers of ordinary length that its ports share.
    pub mbufs: u32,
    /// If there is no memory for `mbufs` buffers, half as many are tried, and so on, down to this number.
    pub least_mbufs: u32,
    /// Whether the thread that starts DPDK keeps its cores; else it is bound to the first that the arguments name.
    pub keeps_cores: bool,
}

/// Packet buffers of DPDK's ports, unless it is said. Source: OVS lib/netdev-dpdk.c, MAX_NB_MBUF.
const MBUFS: u32 = 262_144;

impl Default for DpdkConfig {
    fn default() -> Self {
        let eal_args = ["--no-pci", "--in-memory"].map(String::from).to_vec();
        DpdkConfig { eal_args, mbufs: MBUFS, least_mbufs: MBUFS, keeps_cores: false }
    }
}

/// Frames longer than this are for tests: of them a pool has but a part of the usual number.
const LONG: usize = 16 << 10;

/// That part.
const LONG_SHARE: usize = 8;

/// The part of a pool that is reserved for receiving, and not used for copies.
const RESERVE_SHARE: usize = 16;

impl Pools {
    /// No pools yet; each will have `frames` frames.
    pub fn new(frames: usize) -> Self {
        Pools {
            frames,
            pools: Vec::new(),
            xdp_sockets: crate::af_xdp::Sockets::default(),
            #[cfg(feature = "dpdk")]
            dpdk: None,
            #[cfg(feature = "dpdk")]
            dpdk_config: DpdkConfig::default(),
        }
    }

    /// Sets how DPDK is started. It starts with the first port that needs it.
    #[cfg(feature = "dpdk")]
    pub fn set_dpdk_config(&mut self, config: DpdkConfig) {
        self.dpdk_config = config;
    }

    /// DPDK, started now if necessary.
    #[cfg(feature = "dpdk")]
    pub(crate) fn dpdk(&mut self) -> Result<&mut crate::dpdk::Dpdk, crate::dpdk::DpdkError> {
        match &mut self.dpdk {
            Some(started) => Ok(started),
            none => Ok(none.insert(crate::dpdk::Dpdk::start(&self.dpdk_config)?)),
        }
    }

    /// The pool for packets of up to `size` bytes, made if there is none: at least for the ordinary MTU.
    pub fn of_size(&mut self, size: usize) -> Result<Arc<HeapPool>, PoolError> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.frame_size() >= size) {
            return Ok(Arc::clone(pool));
        }
        let frames = if size > LONG { self.frames / LONG_SHARE } else { self.frames };
        let (frame_size, reserve) = (size.max(PoolConfig::default().frame_size), frames / RESERVE_SHARE);
        let pool = Arc::new(HeapPool::new(PoolConfig { frames, frame_size, reserve })?);
        self.pools.push(Arc::clone(&pool));
        self.pools.sort_by_key(|pool| pool.frame_size());
        Ok(pool)
    }

    /// The pool for packets of up to `size` bytes that a port copies anyway: DPDK's if DPDK runs, because its devices
    /// send from no other pool.
    pub(crate) fn for_copies(&mut self, size: usize) -> Result<Arc<dyn FramePool>, PoolError> {
        #[cfg(feature = "dpdk")]
        if let Some(Ok(pool)) = self.dpdk.as_mut().map(|dpdk| dpdk.pool_of_size(size)) {
            return Ok(pool);
        }
        Ok(self.of_size(size)?)
    }

    /// All pools, shortest frames first: for the log, and for packets that the switch itself originates.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HeapPool>> {
        self.pools.iter()
    }
}

impl Default for Pools {
    fn default() -> Self {
        Pools::new(PoolConfig::default().frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_the_shortest_pool_that_fits() {
        let mut pools = Pools::new(32);
        let jumbo = pools.of_size(9022).unwrap();
        let ordinary = pools.of_size(1522).unwrap();
        assert_eq!(ordinary.id(), jumbo.id(), "a pool that fits is not doubled");
        let mut pools = Pools::new(32);
        let ordinary = pools.of_size(1522).unwrap();
        let jumbo = pools.of_size(9022).unwrap();
        assert_ne!(ordinary.id(), jumbo.id());
        assert_eq!(pools.of_size(100).unwrap().id(), ordinary.id());
        assert_eq!(pools.iter().count(), 2);
    }
}
