//! Replies in Open vSwitch's text, byte for byte where it has one; figures in, text out.

pub mod autopilot;
pub mod change;
pub mod coverage;
pub mod datapath;
pub mod groups;
pub mod limits;
pub mod live;
pub mod megaflows;
pub mod meters;
pub mod pmd;
pub mod port;
pub mod rules;
