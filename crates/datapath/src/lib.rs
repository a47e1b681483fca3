//! PMD threads, the walk, actions, recirculation.
#![forbid(unsafe_code)]
