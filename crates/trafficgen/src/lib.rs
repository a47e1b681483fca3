//! Measuring a switch with traffic: the search for the highest rate it carries.
//!
//! The engine is told what a trial gave and says which trial comes next; who sends the packets, and how, is behind
//! [`search::Trial`] and [`search::Outcome`]. No clock, no sockets, no threads here.
#![forbid(unsafe_code)]

pub mod search;
