//! The lab: every claim as a command, with a picture.
//!
//! An [`experiment::Experiment`] measures points of a grid, each with every forced setting in turn (`grid.rs`), on a
//! switch in the process (`rig.rs`), whose answers are checked before anything is timed. What comes of it is a
//! [`record::Record`]: plain data, one JSON file an experiment, from which `report` makes a page, and which a later run
//! can go on from.
#![forbid(unsafe_code)]

mod attack;
mod command;
mod core_distance;
mod core_share;
mod core_speed;
mod cores;
mod crr;
mod emc_model;
mod experiment;
mod experiment_list;
mod experiments;
mod files;
mod front_page;
mod grid;
mod lab;
mod lookup_parts;
mod loss;
mod losses;
mod markdown;
mod noise;
mod peer;
mod phases;
mod probe;
mod progress;
mod record;
mod report;
mod rig;
mod rules;
mod search;
mod setting;
mod setups;
mod sheet;
mod stat;
mod svg;
mod switch;
mod text;
mod verdict;
mod verdicts;

pub use command::{LabArgs, run};
