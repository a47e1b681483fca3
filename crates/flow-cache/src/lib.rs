//! EMC and megaflow subtables with ranking.
#![forbid(unsafe_code)]
