//! A ring shared with the kernel.

#[allow(unsafe_code)]
pub(super) mod sys;
