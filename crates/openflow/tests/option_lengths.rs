//! Tunnel options are written as long as a bridge maps them.

use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::{Format, Message, OptionLengths, Version};

/// The field that begins with this header in the message of a rule: its value and mask, in hexadecimal.
fn field(rule: &str, lengths: &OptionLengths, number: u8, is_masked: bool) -> Option<String> {
    let flow = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
    let message =
        FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
    let bytes = Message::FlowMod(message).write_with(lengths, Version::V15, 1);
    let header = [0, 1, number << 1 | u8::from(is_masked)];
    let at = bytes.windows(3).position(|window| window == header)? + 4;
    let value = &bytes[at..at + usize::from(bytes[at - 1])];
    Some(value.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
fn matches_and_actions_say_the_length_of_the_mapping() {
    let (mapped, unknown) = (OptionLengths::of_bridge(), OptionLengths::default());
    mapped.set([(0, 8), (1, 0)]);
    // (rule, number of the field, whether with a mask, what is written for 8 bytes, what without a mapping)
    let cases = [
        ("tun_metadata0=5,actions=drop", 40, false, "0000000000000005", "00000005"),
        ("tun_metadata0=5/7,actions=drop", 40, true, "00000000000000050000000000000007", "0000000500000007"),
        ("tun_metadata0,actions=drop", 40, true, "00000000000000000000000000000000", "0000000000000000"),
        // A mask of all bits that there are is none.
        ("tun_metadata0=5/0xffffffffffffffff,actions=drop", 40, false, "0000000000000005", ""),
        ("actions=set_field:0x5->tun_metadata0", 40, false, "0000000000000005", "00000005"),
        ("actions=move:tun_metadata0[0..31]->reg0", 40, false, "", ""),
        ("actions=set_field:0x5/0xffffffffffffffff->tun_metadata0", 40, false, "0000000000000005", ""),
        // A value that does not fit is not cut.
        ("tun_metadata0=0x500000000000000000,actions=drop", 40, false, "000000500000000000000000", ""),
        ("tun_metadata1,actions=drop", 41, true, "", "0000000000000000"),
        ("tun_metadata1=0,actions=drop", 41, false, "", "00000000"),
        ("tun_metadata2=5,actions=drop", 42, false, "00000005", "00000005"),
    ];
    for (rule, number, is_masked, with, without) in cases {
        for (lengths, expected) in [(&mapped, with), (&unknown, without)] {
            let written = field(rule, lengths, number, is_masked);
            assert!(expected.is_empty() || written.as_deref() == Some(expected), "{rule}: {written:?}");
        }
    }
    let moved = FlowMod::parse("actions=move:tun_metadata0[0..31]->reg0", FlowCommand::Add, &PortNames::NONE).unwrap();
    let message =
        FlowModMessage { flow: Box::new(moved), buffer_id: None, format: Format::Standard, table_in_command: false };
    let bytes = Message::FlowMod(message).write_with(&mapped, Version::V15, 1);
    assert!(bytes.windows(4).any(|window| window == [0, 1, 40 << 1, 8]), "the header of a moved field says the length");
}
