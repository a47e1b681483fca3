//! Loading and attaching the XDP program.

#[allow(unsafe_code)]
pub(super) mod sys;
