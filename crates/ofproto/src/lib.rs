//! OpenFlow tables and translation: an upcall becomes a megaflow; the revalidator keeps it true.
#![forbid(unsafe_code)]
