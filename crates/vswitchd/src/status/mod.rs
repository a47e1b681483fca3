//! What is written back to the database.
//!
//! Each function sets the columns as they are to be; the transaction leaves out those that are so already.

mod applied;
pub mod controller;
pub mod interface;
pub mod mac;
pub mod statistics;
mod types;

pub use applied::{Applied, AppliedBridge, AppliedInterface, LiveInterface};
