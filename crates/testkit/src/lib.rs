//! Packet builders and the scenario runner.
#![forbid(unsafe_code)]
