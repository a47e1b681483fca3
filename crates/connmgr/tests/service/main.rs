//! The OpenFlow service with tables of its own and a switch that only notes what it is asked for: no child process, no
//! datapath. The tests are clients and controllers that talk OpenFlow to it.

mod async_messages;
mod bench;
mod client;
mod controllers;
mod requests;
mod roles;
mod serving;
