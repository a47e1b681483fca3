//! The few vector verbs, each with a scalar twin.
#![deny(unsafe_code)]
