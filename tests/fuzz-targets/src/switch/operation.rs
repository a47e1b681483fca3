//! One thing that happens to the switch.

use super::{frames, phrases};
use crate::input::Input;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterMod};

/// Packets that come without anything between them: two batches at most.
const BURST_MAX: usize = 40;

/// Milliseconds that pass at once: from less than a tick to longer than any timeout that rules here have.
const WAITS_MS: [u64; 8] = [1, 30, 500, 1_000, 3_000, 30_000, 300_000, 7_200_000];

#[derive(Debug)]
pub enum Operation {
    /// Rules come, change, or go.
    Flow(Box<FlowMod>),
    Group(GroupMod),
    Meter(MeterMod),
    /// Frames, each with the port it comes in at.
    Packets(Vec<(u16, Vec<u8>)>),
    /// Time passes, milliseconds.
    Wait(u64),
    /// All connections are forgotten.
    FlushConnections,
    /// A port goes away, and comes back under its number.
    Replug(u16),
    /// Phrases that make no rule together: nothing happens.
    Nothing,
}

impl Operation {
    /// Takes one from the front of the input.
    pub fn read(input: &mut Input) -> Self {
        match input.byte() % 16 {
            0..=3 => Self::flow(phrases::rule(input), FlowCommand::Add),
            4 => Self::flow(phrases::rule(input), FlowCommand::Modify),
            5 => Self::flow(phrases::selection(input), FlowCommand::Delete),
            6 => Self::flow(phrases::selection(input), FlowCommand::DeleteStrict),
            7 => {
                let command = match input.byte() % 3 {
                    0 => GroupCommand::Add,
                    1 => GroupCommand::AddOrModify,
                    _ => GroupCommand::Delete,
                };
                let text = phrases::group(input, command);
                let parsed = GroupMod::parse(&text, command, &PortNames::NONE);
                parsed.map_or(Self::Nothing, Self::Group)
            }
            8 => {
                let delete = input.byte().is_multiple_of(4);
                let command = if delete { MeterCommand::Delete } else { MeterCommand::Add };
                let text = phrases::meter(input, delete);
                let parsed = MeterMod::parse(&text, command);
                parsed.map_or(Self::Nothing, Self::Meter)
            }
            9 | 10 => Self::Wait(WAITS_MS[usize::from(input.byte()) % WAITS_MS.len()]),
            11 => match input.byte() % 4 {
                0 => Self::FlushConnections,
                byte => Self::Replug(byte.into()),
            },
            _ => {
                let (n, places) = (1 + usize::from(input.byte()) % BURST_MAX, input.byte());
                Self::Packets((0..n).map(|_| frames::frame(input, places)).collect())
            }
        }
    }

    fn flow(text: String, command: FlowCommand) -> Self {
        let parsed = FlowMod::parse(&text, command, &PortNames::NONE);
        parsed.map_or(Self::Nothing, |flow_mod| Self::Flow(Box::new(flow_mod)))
    }
}
