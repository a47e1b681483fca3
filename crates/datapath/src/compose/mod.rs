//! Composed entries: one lookup for all passes of a packet of a known connection.
//!
//! A packet that is tracked meets the lookup twice or more: for the megaflow that says `ct(…)`, `recirc(…)`, and for
//! the megaflow behind it. Both lookups, and the search for its connection in between, have the same result for the
//! next packet of the connection. So the result is recorded under the packet's addresses and ports, and replayed:
//!
//! ```text
//!  key ─► entry (addresses, ports) ─► path: key under all masks, megaflows, metadata    shared by connections
//!               └──────────────────► the connection of each ct                          of this one
//! ```
//!
//! An entry is a hint, like those of other indexes. What makes it a hit is checked for every packet: its whole key
//! under the masks of all megaflows of the path; that these megaflows, and the connections, are live; and, after `ct`
//! has updated the connection, that the packet gets the recorded state, and the recorded mark and label if a megaflow
//! matches on them. So no change of rules, connections or NAT has to be announced here. If `ct` returns another state,
//! the packet diverges: normal processing resumes with its next pass.
//!
//! A packet that comes by a tunnel may begin a path once its header is off; what takes headers off is remembered, so that
//! outer headers take no lookup either: see module `pops`. A path may end at a megaflow that pushes a header and
//! outputs.
//!
//! Packets of a connection are tracked in order of arrival, with a composed entry or without, and every megaflow counts
//! every packet. Packets of other connections may be tracked before one that takes the passes one by one, and what NAT may
//! change in that is told in module `ahead`. What is sent stays in order.
//!
//! While too few packets have an entry, only a sample of flows is searched for and recorded; the sample tells when searching
//! for all pays again: module `sample`.
//!
//! IPv6 addresses have no room in an entry, which has their hash. A replay compares them with those of the connection.
//!
//! A packet of a connection with NAT is translated as it is replayed. What its addresses and ports are then follows from
//! the connection, and so, by the entry, from what they were; a path that translates does not compare them again.
//!
//! Not recorded are paths with other actions than `ct` and `recirc` before the last megaflow, and packets that are not TCP
//! or UDP: see [`Conntrack::conn_ref`](sluice_conntrack::Conntrack::conn_ref).
//!
//! For each pass the walk calls [`Composer::find`] before the lookup, [`Composer::record`] after it, and
//! [`Composer::replay`] before the stage `act`. That stage tells which megaflow took a header off
//! ([`Composer::remember_pop`]), and `first_index` asks what is to be prefetched.

mod ahead;
mod composer;
mod path;
mod pops;
mod recorder;
mod sample;
mod table;

pub(crate) use composer::Composer;
pub(crate) use path::HOPS_MAX;
