//! Loading and attaching the program.

#[allow(unsafe_code)]
pub(super) mod sys;
