//! What every pool of packet buffers can do.

use crate::Frame;
use arrayvec::ArrayVec;

/// The most frames a pool takes or gives in one call: one batch.
pub const FRAMES_MAX: usize = 32;

/// Frames on their way from or to a pool.
pub type Frames = ArrayVec<Frame, FRAMES_MAX>;

/// Which pool a frame belongs to; an index into the process's list of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u16);

/// A source of packet buffers that several PMDs share. Called once a batch, never once a packet.
pub trait FramePool: Send + Sync {
    /// This pool's place in the process's list.
    fn id(&self) -> PoolId;

    /// The longest packet one of its frames can hold, behind the default headroom.
    fn frame_size(&self) -> usize;

    /// Frames free now.
    fn available(&self) -> usize;

    /// Takes up to `n` frames, empty, into `out` (which has room for them). Returns how many there were.
    ///
    /// Each is `frame_size` long with unspecified bytes, behind the default headroom; truncate it to the packet.
    fn take(&self, n: usize, out: &mut Frames) -> usize;

    /// Takes back every frame of `frames`, all of which came from this pool.
    fn give(&self, frames: &mut Frames);
}
