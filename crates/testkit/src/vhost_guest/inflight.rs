//! The buffer for records of chains in flight, which the frontend keeps for the next back end.

use super::guest::{Guest, protocol_feature, request};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// Bytes of a message's header.
const HEADER: usize = 12;

/// A buffer for records.
pub struct Inflight {
    /// The memory.
    pub file: File,
    /// Its size, its offset, and the shape of the queues, as the protocol says them.
    pub described: [u8; 24],
}

impl Inflight {
    /// How the protocol describes a buffer.
    pub fn describe((size, offset): (u64, u64), queues: u16, queue_size: u16) -> [u8; 24] {
        let shape = u64::from(queues) | u64::from(queue_size) << 16;
        let mut described = [0; 24];
        described.copy_from_slice(&[size, offset, shape].map(u64::to_le_bytes).concat());
        described
    }
}

impl Guest {
    /// Asks the switch for a buffer for both rings.
    pub fn ask_inflight(&self) -> Inflight {
        self.say(request::SET_PROTOCOL_FEATURES, &protocol_feature::INFLIGHT_SHMFD.to_le_bytes(), &[]);
        self.say(request::GET_INFLIGHT_FD, &Inflight::describe((0, 0), 2, self.size), &[]);
        let mut reply = [0; HEADER + 24];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = &mut [IoSliceMut::new(&mut reply)];
        let received = recvmsg(&self.socket, message, &mut ancillary, RecvFlags::WAITALL).unwrap();
        assert_eq!(received.bytes, HEADER + 24);
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let described = *reply.last_chunk().expect("the reply is longer");
        Inflight { file: File::from(file.expect("the switch sends a file")), described }
    }

    /// Hands the switch a buffer.
    pub fn hand_inflight(&self, inflight: &Inflight) {
        self.say(request::SET_PROTOCOL_FEATURES, &protocol_feature::INFLIGHT_SHMFD.to_le_bytes(), &[]);
        self.say(request::SET_INFLIGHT_FD, &inflight.described, &[inflight.file.as_fd()]);
    }
}
