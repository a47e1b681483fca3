//! Loading and attaching the program.

pub(super) mod sys;
