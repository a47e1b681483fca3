//! Replies in Open vSwitch's text, byte for byte where it has one; figures in, text out.

pub mod autopilot;
pub mod coverage;
pub mod datapath;
pub mod live;
pub mod pages;
pub mod pmd;
pub mod port;
