//! Epochs, arenas and mailboxes between control threads and PMDs.
#![deny(unsafe_code)]
