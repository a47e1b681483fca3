//! DPDK's libraries, and the C functions through which DPDK ports use them (`shim.c`).
//!
//! Much of DPDK's fast path is inline functions in headers, so C calls it, once a burst. The safe interface is that of
//! crate port, `dpdk/sys.rs`. That this crate is one of its own keeps the libraries in a program once: a test of crate
//! port has that crate twice, itself and the one that the testkit uses.
//!
//! Where a function returns a `c_int` and nothing else is said, that is 0, or an errno.
#![deny(unsafe_code)]

#[cfg(feature = "dpdk")]
#[allow(unsafe_code)]
mod shim;

#[cfg(feature = "dpdk")]
pub use shim::*;
