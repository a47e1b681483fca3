//! Loading the programs that ports need in the kernel.

#[allow(unsafe_code)]
pub(crate) mod sys;
