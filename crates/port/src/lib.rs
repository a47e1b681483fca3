//! Ports: where packets come from and go to.
//!
//! A [`Port`] is the control side: what it is, whether it is up, what it has counted. It gives out [`RxQueue`]s, each
//! polled by exactly one PMD, and [`TxQueue`]s, one for each PMD. Queues are called once a batch.
#![deny(unsafe_code)]

mod queue;

pub use queue::{Port, PortInfo, PortStats, RxQueue, TxQueue};
