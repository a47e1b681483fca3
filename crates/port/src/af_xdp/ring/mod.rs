//! A ring that is shared with the kernel.

pub(super) mod sys;
