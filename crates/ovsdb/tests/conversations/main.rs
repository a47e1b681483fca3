//! Sessions against a server that the test plays message by message, in virtual time.

mod differences;
mod elision;
mod golden;
mod messages;
mod monitoring;
mod peer;
mod transactions;
mod upkeep;
