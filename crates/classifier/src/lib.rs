//! OpenFlow tuple space: priorities, staged lookup, tries, un-wildcarding.
#![forbid(unsafe_code)]
