"""Messages that are wrong, sent as raw bytes to Open vSwitch and to Sluice: the errors must be the same, byte for byte.

    refusals.py THEIR_SOCKET OUR_SOCKET [MESSAGES]

Of answers that are no errors only the kind is compared. MESSAGES is os-ken's `tests/packet_data`: all of its messages are sent, too.
"""

import os
import socket
import struct
import sys

V10, V13, V14, V15 = 1, 4, 5, 6
VERSIONS = [V10, V13, V14, V15]
LATER = VERSIONS[1:]
XID = 0x1234
NO_BUFFER, ANY = 0xFFFFFFFF, 0xFFFFFFFF
NICIRA, ONF = 0x2320, 0x4F4E4600
FLOW_MOD, PACKET_OUT, GROUP_MOD, TABLE_MOD, METER_MOD, SET_CONFIG = 14, 13, 15, 17, 29, 9
ROLE_REQUEST, SET_ASYNC, BUNDLE_CONTROL, BUNDLE_ADD = 24, 28, 33, 34
ADD, MODIFY, DELETE, DELETE_STRICT = 0, 1, 3, 4

# What is meant to be answered otherwise, and why. A name holds for all versions.
KNOWN = {
    "controller with a bad reason": "Open vSwitch passes on numbers that name no reason",
    "set_field of no field": "Open vSwitch's error depends on the buckets of a hash table",
    "goto table 255": "Open vSwitch takes a flow that leads nowhere",
    "bundle control of no kind": "Open vSwitch answers with a number that it has not set",
}
SHIPPED = {
    "its error depends on the buckets of a hash table": ["of13/4-2-ofp_flow_mod", "of14/5-2-ofp_flow_mod"],
    "it reads by what to evict as whether to evict": ["of15/libofproto-OFP15-table_mod"],
    "it reads what only switches send before it refuses it": [
        "of13/4-36-ofp_queue_get_config_reply", "of13/4-62-ofp_experimenter_reply", "of14/5-60-ofp_experimenter_reply",
        "of15/libofproto-OFP15-bundle_features_reply", "of15/libofproto-OFP15-controller_status_reply",
        "of15/libofproto-OFP15-experimenter_reply", "of15/libofproto-OFP15-flow_stats_reply"],
    "it waits for the rest of a request in pieces": [
        "of13/4-55-ofp_table_features_request", "of14/5-53-ofp_table_features_request"],
    "two things are wrong, and it finds the other one first": [
        "of13/4-63-onf_flow_monitor_request", "of15/libofproto-OFP15-table_features_request"],
}
KNOWN |= {f"os-ken's {name}": f"Open vSwitch: {why}" for why, names in SHIPPED.items() for name in names}


def kind(version, name):
    early = {"port_mod": 15, "stats": 16, "barrier": 18, "queue_config": 20}
    late = {"port_mod": 16, "stats": 18, "barrier": 20, "queue_config": 22}
    return (early if version == V10 else late)[name]


def message(version, number, body=b"", length=None, xid=XID):
    return struct.pack("!BBHI", version, number, 8 + len(body) if length is None else length, xid) + body


def padded(data, to=8):
    return data + bytes(-len(data) % to)


def oxm(field, value, mask=b"", cls=0x8000, length=None):
    size = len(value) + len(mask) if length is None else length
    return struct.pack("!HBB", cls, field << 1 | bool(mask), size) + value + mask


def match(*fields, kind=1, length=None):
    body = b"".join(fields)
    return padded(struct.pack("!HH", kind, 4 + len(body) if length is None else length) + body)


def action(number, body=b"", length=None):
    body = padded(struct.pack("!HH", number, 0) + body)
    return struct.pack("!HH", number, len(body) if length is None else length) + body[4:]


def nicira(subtype, body=b"", vendor=NICIRA):
    return action(0xFFFF, struct.pack("!IH", vendor, subtype) + body)


def output(version, port, max_len=0):
    return action(0, struct.pack("!HH" if version == V10 else "!IH6x", port, max_len))


def set_field(field):
    return action(25, field)


def instruction(number, body=b"", length=None):
    body = struct.pack("!HH", number, 4 + len(body) if length is None else length) + body
    return body


def apply(*actions):
    return instruction(4, bytes(4) + b"".join(actions))


def write(*actions):
    return instruction(3, bytes(4) + b"".join(actions))


def flow_mod(version, does=b"", matches=None, command=ADD, table=0, flags=0, buffer=NO_BUFFER, out_port=None, idle=0, hard=0, out_group=ANY, rest=b"", importance=0):
    """`does` is actions in OpenFlow 1.0 and instructions later."""
    if version == V10:
        wildcards = struct.pack("!I36x", 0x3FFFFF) if matches is None else matches
        body = wildcards + struct.pack("!QHHHHIHH", 0, command, idle, hard, 5, buffer, 0xFFFF if out_port is None else out_port, flags)
    else:
        port = ANY if out_port is None else out_port
        body = struct.pack("!QQBBHHHIIIHH", 0, 0, table, command, idle, hard, 5, buffer, port, out_group, flags, importance)
        body += match() if matches is None else matches
    return message(version, FLOW_MOD, body + does + rest)


def flow(version, *actions, matches=None, **more):
    """A flow with these actions, of any version."""
    return flow_mod(version, b"".join(actions) if version == V10 else apply(*actions), matches, **more)


def match10(**fields):
    """OpenFlow 1.0's match; what is given is matched exactly."""
    bits = {"in_port": 1, "dl_vlan": 2, "dl_src": 4, "dl_dst": 8, "dl_type": 16, "nw_proto": 32, "tp_src": 64, "tp_dst": 128, "nw_src": 0x3F00, "nw_dst": 0xFC000, "dl_vlan_pcp": 1 << 20, "nw_tos": 1 << 21}
    wildcards = 0x3FFFFF
    for name in fields:
        wildcards &= ~bits[name]
    get = lambda name: fields.get(name, 0)
    return struct.pack("!IH6s6sHBxHBB2xIIHH", wildcards, get("in_port"), bytes(6), bytes(6), get("dl_vlan"), get("dl_vlan_pcp"), get("dl_type"), get("nw_tos"), get("nw_proto"), get("nw_src"), get("nw_dst"), get("tp_src"), get("tp_dst"))


def packet_out(version, *actions, port=None, data=b"\xff" * 12 + b"\x12\x34" + bytes(50), buffer=NO_BUFFER, length=None):
    listed = b"".join(actions)
    size = len(listed) if length is None else length
    port = (0xFFFF if version == V10 else 0xFFFFFFFD) if port is None else port
    if version == V10:
        head = struct.pack("!IHH", buffer, port, size)
    elif version == V15:
        head = struct.pack("!IHxx", buffer, size) + match(oxm(0, struct.pack("!I", port)))
    else:
        head = struct.pack("!IIH6x", buffer, port, size)
    return message(version, PACKET_OUT, head + listed + data)


def bucket(version, *actions, weight=0, port=ANY, group=ANY, number=0):
    listed = b"".join(actions)
    if version == V15:
        properties = struct.pack("!HHHxx", 0, 8, weight) + struct.pack("!HHI", 1, 8, port) + struct.pack("!HHI", 2, 8, group)
        return struct.pack("!HHI", 8 + len(listed) + len(properties), len(listed), number) + listed + properties
    return struct.pack("!HHII4x", 16 + len(listed), weight, port, group) + listed


def group_mod(version, command, group, *buckets, type=0, command_bucket=0xFFFFFFFF, rest=b""):
    listed = b"".join(buckets)
    body = struct.pack("!HBxI", command, type, group)
    if version == V15:
        body += struct.pack("!HxxI", len(listed), command_bucket)
    return message(version, GROUP_MOD, body + listed + rest)


def stats(version, number, body=b"", flags=0):
    return message(version, kind(version, "stats"), struct.pack("!HH", number, flags) + (b"" if version == V10 else bytes(4)) + body)


def flow_request(version, table=255, matches=None, out_port=None):
    if version == V10:
        return struct.pack("!I36x", 0x3FFFFF) + struct.pack("!BxH", table, 0xFFFF if out_port is None else out_port)
    port = ANY if out_port is None else out_port
    return struct.pack("!B3xII4xQQ", table, port, ANY, 0, 0) + (match() if matches is None else matches)


ETH_IP = oxm(5, b"\x08\x00")
ETH_IPV6 = oxm(5, b"\x86\xdd")
ETH_ARP = oxm(5, b"\x08\x06")
ETH_MPLS = oxm(5, b"\x88\x47")
TCP = oxm(10, b"\x06")
VLAN = oxm(6, b"\x10\x05")
TCP_DST = oxm(14, b"\x00\x50")
IPV4_SRC = oxm(11, b"\x0a\x00\x00\x01")


def malformed(version):
    """Messages that are wrong whatever they are."""
    yield "no such type", message(version, 200)
    yield "a reply", message(version, 6, bytes(24))
    yield "an experimenter nobody knows", message(version, 4, struct.pack("!II", 0x123456, 1))
    yield "Nicira's unknown message", message(version, 4, struct.pack("!II", NICIRA, 9999))
    yield "ONF's unknown message", message(version, 4, struct.pack("!II", ONF, 9999))
    yield "an experimenter cut short", message(version, 4, b"\x00\x00")
    yield "features request with a body", message(version, 5, bytes(8))
    yield "barrier request with a body", message(version, kind(version, "barrier"), bytes(8))
    yield "set-config too short", message(version, SET_CONFIG, bytes(2))
    yield "set-config with all flags", message(version, SET_CONFIG, b"\xff\xff\x00\x80")
    yield "flow-mod too short", message(version, FLOW_MOD, bytes(10))
    yield "packet-out too short", message(version, PACKET_OUT, bytes(3))
    yield "an error", message(version, 1, struct.pack("!HH", 1, 1))
    yield "echo", message(version, 2, b"abc")
    yield "a stranger among statistics", stats(version, 99)
    yield "an experimenter's statistics", stats(version, 0xFFFF, struct.pack("!II", 0x123456, 1))
    yield "Nicira's unknown statistics", stats(version, 0xFFFF, struct.pack("!II", NICIRA, 99))
    yield "statistics too short", message(version, kind(version, "stats"), bytes(2))
    yield "flows too short", stats(version, 1, bytes(4))
    yield "ports of a port that is not", stats(version, 4, struct.pack("!H6x", 77) if version == V10 else struct.pack("!I4x", 77))
    yield "queues of a port that is not", stats(version, 5, struct.pack("!HxxI", 77, ANY) if version == V10 else struct.pack("!II", 77, ANY))
    yield "a queue that is not", stats(version, 5, struct.pack("!HxxI", 1, 5) if version == V10 else struct.pack("!II", 1, 5))
    yield "queue configuration of a port that is not", message(version, kind(version, "queue_config"), struct.pack("!Hxx", 77) if version == V10 else struct.pack("!I4x", 77))
    yield "flows of a table that is not", stats(version, 1, flow_request(version, table=254))
    yield "description with a body", stats(version, 0, bytes(8))


def flow_mods(version):
    one = output(version, 1)
    yield "a flow", flow(version, one)
    yield "no such command", flow_mod(version, command=9)
    yield "no such flag", flow(version, one, flags=0x8000)
    yield "overlap", flow(version, one, flags=2)
    yield "a buffer that is not", flow(version, one, buffer=77)
    for name, port in [("none", 0xFFFF), ("beyond the last", 0xFF00), ("unset", 0xFFF7), ("table", 0xFFF9), ("controller", 0xFFFD), ("high", 0xFEFF), ("local", 0xFFFE)]:
        wide = port if version == V10 or port < 0xFF00 else 0xFFFF0000 | port
        yield f"output to port {name}", flow(version, output(version, wide))
    yield "action of no type", flow(version, action(200))
    yield "action of an unknown experimenter", flow(version, nicira(1, vendor=0x123456))
    yield "Nicira's unknown action", flow(version, nicira(999))
    yield "ONF's unknown action", flow(version, nicira(999, vendor=ONF))
    yield "action of length 4", flow(version, struct.pack("!HH", 0, 4))
    yield "action of length 0", flow(version, struct.pack("!HHI", 0, 0, 0))
    yield "action longer than the message", flow(version, struct.pack("!HHI", 0, 64, 0))
    yield "action of length 12", flow(version, struct.pack("!HHII", 0, 12, 0, 0) + bytes(4))
    yield "output too long", flow(version, output(version, 1)[:2] + b"\x00\x20" + output(version, 1)[4:] + bytes(24))[:-8]
    yield "emergency flag", flow(version, one, flags=4)
    yield "emergency flag and a timeout", flow(version, one, flags=4, idle=5)
    yield "send_flow_rem", flow(version, one, flags=1)
    yield "delete", flow_mod(version, command=DELETE)
    yield "delete with a bad action", flow(version, action(200), command=DELETE)
    yield "delete with an out-port that cannot be", flow_mod(version, command=DELETE, out_port=0xFF00 if version == V10 else 0x10000)
    yield "resubmit", flow(version, nicira(14, struct.pack("!HB3x", 1, 2)))
    yield "resubmit with gaps filled", flow(version, nicira(14, struct.pack("!HB3s", 1, 2, b"abc")))
    yield "note", flow(version, nicira(8, b"abcdef"))
    yield "dec_ttl with no ids", flow(version, nicira(21, struct.pack("!H4xxx", 0)))
    yield "reg_move of too many bits", flow(version, nicira(6, struct.pack("!HHHII", 33, 0, 0, 0x00010004, 0x00010204)))
    yield "reg_move beyond the end", flow(version, nicira(6, struct.pack("!HHHII", 16, 20, 0, 0x00010004, 0x00010204)))
    yield "reg_move of no field", flow(version, nicira(6, struct.pack("!HHHII", 16, 0, 0, 0x0001FC04, 0x00010204)))
    yield "reg_move to a field that cannot be written", flow(version, nicira(6, struct.pack("!HHHII", 16, 0, 0, 0x00010004, 0x00000602)))
    yield "reg_load too large", flow(version, nicira(7, struct.pack("!HIQ", 3, 0x00010004, 0xFF)))
    yield "reg_load of a field it lacks", flow(version, nicira(7, struct.pack("!HIQ", 15, 0x00001402, 5)))
    yield "output_reg", flow(version, nicira(15, struct.pack("!HIH6x", 15, 0x00010004, 0)))
    yield "output_reg beyond the end", flow(version, nicira(15, struct.pack("!HIH6x", 31 << 6 | 15, 0x00010004, 0)))
    yield "conjunction beside output", flow(version, nicira(34, struct.pack("!BBI", 0, 2, 1)), one)
    yield "conjunction of one clause", flow(version, nicira(34, struct.pack("!BBI", 0, 1, 1)))
    yield "conjunction of a clause that is not", flow(version, nicira(34, struct.pack("!BBI", 2, 2, 1)))
    yield "ct of no protocol", flow(version, nicira(35, struct.pack("!HIHB3xH", 1, 0, 0, 255, 0)))
    yield "nat on its own", flow(version, nicira(36, struct.pack("!xxHH", 0, 0)))
    yield "learn into table 255", flow(version, nicira(16, struct.pack("!HHHQHBxHH", 0, 0, 0, 0, 0, 255, 0, 0)))
    yield "learn with bad flags", flow(version, nicira(16, struct.pack("!HHHQHBxHH", 0, 0, 0, 0, 0xFF, 1, 0, 0)))
    yield "sample of nothing", flow(version, nicira(29, struct.pack("!HIII", 0, 1, 1, 1)))
    yield "multipath of too few bits", flow(version, nicira(10, struct.pack("!HHxxHHIxxHI", 0, 0, 0, 9, 0, 1, 0x00010004)))
    yield "bundle to the controller", flow(version, nicira(12, struct.pack("!HHHIHHI4xHxxxxxx", 0, 0, 0, 2, 1, 0, 0, 0xFFFD)))
    yield "fin_timeout of no TCP", flow(version, nicira(19, struct.pack("!HHxx", 1, 1)))
    yield "stack push of no field", flow(version, nicira(27, struct.pack("!HIH4x", 0, 0x0001FC04, 8)))
    yield "truncated output to none", flow(version, nicira(39, struct.pack("!HI", 0xFFFF, 100)))
    yield "truncated output of 10 bytes", flow(version, nicira(39, struct.pack("!HI", 1, 10)))
    yield "write_metadata, then output", flow(version, nicira(22, struct.pack("!6xQQ", 1, 1)), one)
    yield "set_tunnel", flow(version, nicira(2, struct.pack("!xxI", 5)))
    yield "dec_ttl of no IP", flow(version, action(24) if version > V10 else nicira(18))
    yield "set_mpls_label too large", flow(version, nicira(30, struct.pack("!xxI", 1 << 20)) if version == V10 else action(13, struct.pack("!I", 1 << 20)))
    yield "pop_mpls of no label", flow(version, nicira(24, struct.pack("!H", 0x800)) if version == V10 else action(20, struct.pack("!H", 0x800)))
    yield "push_mpls of an odd type", flow(version, nicira(23, struct.pack("!H", 0x800)) if version == V10 else action(19, struct.pack("!H", 0x800)))
    yield "set_vlan_vid too large", flow(version, action(1, struct.pack("!H", 0x1FFF)))
    yield "set_vlan_pcp too large", flow(version, action(2, b"\x09"))
    yield "set_nw_tos with ECN bits", flow(version, action(8 if version == V10 else 7, b"\x03"))
    yield "set_tp_src of no transport", flow(version, action(9, struct.pack("!H", 5)))
    yield "controller with a bad reason", flow(version, nicira(20, struct.pack("!HHBx", 0, 0, 99)))


def flow_mods10(version):
    yield "exact match", flow(version, matches=match10(dl_type=0x800, nw_proto=6, tp_dst=80))
    yield "a port without a protocol", flow(version, matches=match10(tp_dst=80))
    yield "command beyond the byte", flow_mod(version, command=0x100)
    yield "enqueue to none", flow(version, action(11, struct.pack("!H6xI", 0xFFFF, 1)))
    yield "set_nw_src of no IP", flow(version, action(6, bytes(4)))
    nx = lambda fields, cookie=0: message(version, 4, struct.pack("!IIQHHHHIHHH6x", NICIRA, 13, cookie, 0, 0, 0, 5, NO_BUFFER, 0xFFFF, 0, len(fields)) + padded(fields))
    yield "NXM with no prerequisite", nx(oxm(9, b"\x00\x50", cls=0))
    yield "NXM of no field", nx(oxm(126, b"\x00\x50", cls=1))
    yield "NXM cookie in an add", nx(oxm(30, bytes(8), bytes(8), cls=1) + oxm(30, bytes(7) + b"\x01", b"\xff" * 8, cls=1))
    yield "NXM twice", nx(oxm(0, b"\x00\x01", cls=0) * 2)
    yield "flow format nobody knows", message(version, 4, struct.pack("!III", NICIRA, 12, 9))
    yield "packet-in format nobody knows", message(version, 4, struct.pack("!III", NICIRA, 16, 9))
    yield "role nobody knows", message(version, 4, struct.pack("!III", NICIRA, 10, 9))


def flow_mods_later(version):
    one = apply(output(version, 1))
    yield "table 255", flow_mod(version, one, table=255)
    yield "table 254", flow_mod(version, one, table=254)
    yield "delete in table 254", flow_mod(version, command=DELETE, table=254)
    yield "out-port beyond the last", flow_mod(version, one, command=DELETE, out_port=0x10000)
    yield "output beyond 16 bits", flow(version, output(version, 0x10001))
    yield "match of the standard's first kind", flow_mod(version, one, match(kind=0))
    yield "match of length 2", flow_mod(version, one, match(length=2))
    yield "match longer than the message", flow_mod(version, b"", match(length=200))
    yield "field nobody knows", flow_mod(version, one, match(oxm(60, b"\x01")))
    yield "class nobody knows", flow_mod(version, one, match(oxm(1, b"\x01", cls=0x7777)))
    yield "field of a wrong length", flow_mod(version, one, match(oxm(5, b"\x08\x00\x00")))
    yield "field cut short", flow_mod(version, one, match(oxm(5, b"\x08", length=2)))
    yield "field twice", flow_mod(version, one, match(ETH_IP, ETH_IP))
    yield "field without its prerequisite", flow_mod(version, one, match(IPV4_SRC))
    yield "field before its prerequisite", flow_mod(version, one, match(IPV4_SRC, ETH_IP))
    yield "transport of another protocol", flow_mod(version, one, match(ETH_IP, oxm(10, b"\x11"), TCP_DST))
    yield "value outside the mask", flow_mod(version, one, match(ETH_IP, oxm(11, b"\x0a\x00\x00\x01", b"\xff\x00\x00\x00")))
    yield "mask of a field that takes none", flow_mod(version, one, match(oxm(0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x0f")))
    yield "VLAN beyond its bits", flow_mod(version, one, match(oxm(6, b"\x20\x00")))
    yield "VLAN priority without a tag", flow_mod(version, one, match(oxm(7, b"\x01")))
    yield "in-port beyond the last", flow_mod(version, one, match(oxm(0, b"\x00\x01\x00\x00")))
    yield "DSCP beyond its bits", flow_mod(version, one, match(ETH_IP, oxm(8, b"\x40")))
    yield "ECN beyond its bits", flow_mod(version, one, match(ETH_IP, oxm(9, b"\x04")))
    yield "ARP operation of 16 bits", flow_mod(version, one, match(ETH_ARP, oxm(21, b"\x01\x00")))
    yield "label beyond its bits", flow_mod(version, one, match(ETH_MPLS, oxm(34, b"\x00\x10\x00\x00")))
    yield "flow label beyond its bits", flow_mod(version, one, match(ETH_IPV6, oxm(28, b"\x00\x10\x00\x00")))
    yield "ct_state of no state", flow_mod(version, one, match(oxm(105, struct.pack("!I", 0x200), cls=1)))
    yield "instruction nobody knows", flow_mod(version, instruction(50, bytes(4)))
    yield "instruction of an experimenter", flow_mod(version, instruction(0xFFFF, struct.pack("!I", 0x123456)))
    yield "instruction of length 4", flow_mod(version, instruction(1))
    yield "instruction of length 0", flow_mod(version, struct.pack("!HHI", 1, 0, 0))
    yield "instruction longer than the message", flow_mod(version, instruction(1, bytes(4), length=64))
    yield "instruction twice", flow_mod(version, one + one)
    yield "goto an earlier table", flow_mod(version, instruction(1, b"\x05\x00\x00\x00"), table=6)
    yield "goto the same table", flow_mod(version, instruction(1, b"\x05\x00\x00\x00"), table=5)
    yield "goto table 254", flow_mod(version, instruction(1, b"\xfe\x00\x00\x00"))
    yield "goto table 255", flow_mod(version, instruction(1, b"\xff\x00\x00\x00"))
    yield "meter that is not", flow_mod(version, instruction(6, struct.pack("!I", 77)) + one)
    yield "group that is not", flow(version, action(22, struct.pack("!I", 77)))
    yield "group that is not, written", flow_mod(version, write(action(22, struct.pack("!I", 77))))
    yield "clear_actions with a body", flow_mod(version, instruction(5, bytes(12)))
    yield "write_actions of resubmit", flow_mod(version, write(nicira(14, struct.pack("!HB3x", 1, 2))))
    yield "write_actions of dec_ttl", flow_mod(version, write(action(24)))
    yield "write_actions of note", flow_mod(version, write(nicira(8, b"abcdef")))
    yield "apply_actions of write_metadata", flow(version, nicira(22, struct.pack("!6xQQ", 1, 1)))
    yield "set_field without its prerequisite", flow(version, set_field(TCP_DST))
    yield "set_field with its prerequisite", flow(version, set_field(TCP_DST), matches=match(ETH_IP, TCP))
    yield "set_field of a tag that is not", flow(version, set_field(VLAN))
    yield "set_field of a tag that is", flow(version, set_field(VLAN), matches=match(VLAN))
    yield "set_field of a tag just pushed", flow(version, action(17, b"\x81\x00"), set_field(VLAN))
    yield "set_field of no tag", flow(version, action(17, b"\x81\x00"), set_field(oxm(6, b"\x00\x05")))
    yield "set_field after the tag has gone", flow(version, action(18), set_field(VLAN), matches=match(VLAN))
    yield "set_field of in_port", flow(version, set_field(oxm(0, b"\x00\x00\x00\x01")))
    yield "set_field of a field that cannot be written", flow(version, set_field(ETH_IP))
    yield "set_field of no field", flow(version, set_field(oxm(60, b"\x01")))
    yield "set_field with a mask", flow(version, set_field(oxm(3, bytes(6), b"\x00" * 5 + b"\xff")))
    yield "set_field outside its mask", flow(version, set_field(oxm(3, b"\xff" * 6, b"\x00" * 5 + b"\xff")))
    yield "set_field cut short", flow(version, set_field(oxm(3, bytes(4), length=60)))
    yield "set_field beyond its bits", flow(version, set_field(oxm(8, b"\x40")), matches=match(ETH_IP))
    yield "set_field of ct_mark", flow(version, nicira(33, oxm(107, bytes(4), cls=1)))
    yield "push_vlan of an odd type", flow(version, action(17, b"\x12\x34"))
    yield "push_vlan three times", flow(version, *[action(17, b"\x81\x00")] * 3)
    yield "pop_vlan of no tag", flow(version, action(18))
    yield "pop_vlan of a tag", flow(version, action(18), matches=match(VLAN))
    yield "pop_mpls of a label", flow(version, action(20, b"\x08\x00"), matches=match(ETH_MPLS))
    yield "dec_ttl of IP", flow(version, action(24), matches=match(ETH_IP))
    yield "dec_ttl behind pop_mpls", flow(version, action(20, b"\x08\x00"), action(24), matches=match(ETH_MPLS))
    yield "dec_ttl behind push_mpls", flow(version, action(19, b"\x88\x47"), action(24), matches=match(ETH_IP))
    yield "dec_mpls_ttl of no label", flow(version, action(16))
    yield "set_nw_ttl of no IP", flow(version, action(23, b"\x05"))
    yield "copy_ttl_out", flow(version, action(11))
    yield "pop_pbb", flow(version, action(27))
    yield "set_queue", flow(version, action(21, struct.pack("!I", 5)))
    yield "ct of IP", flow(version, nicira(35, struct.pack("!HIHB3xH", 1, 0, 0, 255, 0)), matches=match(ETH_IP))
    yield "ct for FTP of no TCP", flow(version, nicira(35, struct.pack("!HIHB3xH", 1, 0, 0, 255, 21)), matches=match(ETH_IP))
    yield "ct by force alone", flow(version, nicira(35, struct.pack("!HIHB3xH", 2, 0, 0, 255, 0)), matches=match(ETH_IP))
    yield "ct with output within", flow(version, nicira(35, struct.pack("!HIHB3xH", 1, 0, 0, 255, 0) + output(version, 1)), matches=match(ETH_IP))
    yield "clone of a bad port", flow(version, nicira(42, bytes(6) + output(version, 0xFFFFFFFF)))
    yield "clone of what its match lacks", flow(version, nicira(42, bytes(6) + action(24)))
    yield "flow's trailing bytes", flow_mod(version, one + b"\x00\x00\x00\x00")
    yield "eviction by importance", flow_mod(version, one, importance=5)
    yield "meter as an action", flow(version, action(29, struct.pack("!I", 77)))
    yield "copy_field", flow(version, action(28, struct.pack("!HHHxxII", 16, 0, 0, 0x80000006, 0x80000806)) if version == V15 else nicira(3200, struct.pack("!xxHHHxxII", 16, 0, 0, 0x80000606, 0x80000806), vendor=ONF))


def packets_out(version):
    one = output(version, 1)
    yield "packet-out", packet_out(version, one)
    yield "packet-out of a buffer", packet_out(version, one, buffer=5)
    yield "packet-out of nothing", packet_out(version, one, data=b"")
    yield "packet-out of three bytes", packet_out(version, one, data=b"abc")
    yield "packet-out with more actions than bytes", packet_out(version, one, length=2000)
    yield "packet-out with half an action", packet_out(version, one, length=4)
    yield "packet-out to a port that is not", packet_out(version, output(version, 77))
    yield "packet-out to no port", packet_out(version, output(version, 0xFFFF if version == V10 else ANY))
    yield "packet-out with a bad action", packet_out(version, action(200))
    yield "packet-out of dec_ttl, no IP", packet_out(version, nicira(18) if version == V10 else action(24))
    for name, port in [("flood", 0xFFFB), ("table", 0xFFF9), ("beyond the last", 0xFF00), ("none", 0xFFFF), ("local", 0xFFFE), ("nobody's", 99)]:
        wide = port if version == V10 or port < 0xFF00 else 0xFFFF0000 | port
        yield f"packet-out from port {name}", packet_out(version, one, port=wide)
    if version > V10:
        yield "packet-out to a group that is not", packet_out(version, action(22, struct.pack("!I", 77)))
        yield "packet-out with a third tag", packet_out(version, *[action(17, b"\x81\x00")] * 3)
        yield "packet-out of set_field, no TCP", packet_out(version, set_field(TCP_DST))


def group_mods(version):
    one = bucket(version, output(version, 1))
    yield "a group", group_mod(version, 0, 1, one)
    yield "the same group again", (group_mod(version, 0, 1, one), group_mod(version, 0, 1, one))
    yield "modify a group that is not", group_mod(version, 1, 9, one)
    yield "delete a group that is not", group_mod(version, 2, 9)
    yield "delete all groups", group_mod(version, 2, 0xFFFFFFFC)
    yield "group command nobody knows", group_mod(version, 9, 1, one)
    yield "group type nobody knows", group_mod(version, 0, 1, one, type=9)
    yield "group of a reserved number", group_mod(version, 0, 0xFFFFFFFC, one)
    yield "group of any number", group_mod(version, 0, 0xFFFFFFFF, one)
    yield "indirect group of no bucket", group_mod(version, 0, 1, type=2)
    yield "indirect group of two buckets", group_mod(version, 0, 1, one, one, type=2)
    yield "fast failover that watches nothing", group_mod(version, 0, 1, one, type=3)
    yield "fast failover", group_mod(version, 0, 1, bucket(version, output(version, 1), port=1), type=3)
    yield "group all with weights", group_mod(version, 0, 1, bucket(version, output(version, 1), weight=5))
    yield "group all that watches", group_mod(version, 0, 1, bucket(version, output(version, 1), port=1))
    yield "bucket with a bad action", group_mod(version, 0, 1, bucket(version, action(200)))
    yield "bucket to no port", group_mod(version, 0, 1, bucket(version, output(version, ANY)))
    yield "bucket with resubmit", group_mod(version, 0, 1, bucket(version, nicira(14, struct.pack("!HB3x", 1, 2))))
    yield "bucket of write_metadata", group_mod(version, 0, 1, bucket(version, nicira(22, struct.pack("!6xQQ", 1, 1))))
    yield "bucket of another group", group_mod(version, 0, 1, bucket(version, action(22, struct.pack("!I", 2))))
    yield "group of itself", group_mod(version, 0, 1, bucket(version, action(22, struct.pack("!I", 1))))
    yield "bucket longer than the message", group_mod(version, 0, 1, b"\x01\x00" + one[2:])
    yield "bucket of length 0", group_mod(version, 0, 1, b"\x00\x00" + one[2:])
    yield "group too short", message(version, GROUP_MOD, bytes(4))
    yield "buckets in a delete", group_mod(version, 2, 1, one)
    yield "groups that are not", stats(version, 6, struct.pack("!I4x", 99))
    yield "group descriptions with a body", stats(version, 7, bytes(4))
    if version == V15:
        named = lambda number: bucket(version, output(version, 1), number=number)
        made = group_mod(version, 0, 1, named(1), named(2))
        yield "two buckets of one number", group_mod(version, 0, 1, named(1), named(1))
        yield "bucket of a reserved number", group_mod(version, 0, 1, named(0xFFFFFF01))
        yield "insert a bucket that is there", (made, group_mod(version, 3, 1, named(2), command_bucket=0xFFFFFFFE))
        yield "insert behind a bucket that is not", (made, group_mod(version, 3, 1, named(7), command_bucket=9))
        yield "insert into a group that is not", group_mod(version, 3, 9, named(7), command_bucket=0xFFFFFFFE)
        yield "remove a bucket that is not", (made, group_mod(version, 5, 1, command_bucket=9))
        yield "remove with buckets", (made, group_mod(version, 5, 1, named(7), command_bucket=1))
        yield "group property nobody knows", group_mod(version, 0, 1, one, rest=struct.pack("!HHI", 7, 8, 0))
        yield "group property of an experimenter", group_mod(version, 0, 1, one, rest=struct.pack("!HHII4x", 0xFFFF, 12, 0x123456, 1))


def others(version):
    port_mod = lambda number, mac, rest=bytes(8): message(version, kind(version, "port_mod"), struct.pack("!I4x6sxxII", number, mac, 0, 0) + rest)
    yield "port-mod of a port that is not", port_mod(77, bytes(6), bytes(8) if version == V13 else b"")
    yield "port-mod of another address", port_mod(1, b"\x02" * 6, bytes(8) if version == V13 else b"")
    yield "port-mod too short", message(version, kind(version, "port_mod"), bytes(7))
    yield "role nobody knows", message(version, ROLE_REQUEST, struct.pack("!I4xQ", 9, 0))
    yield "role of no change", message(version, ROLE_REQUEST, struct.pack("!I4xQ", 0, 0))
    yield "a stale role", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 2, 100)), message(version, ROLE_REQUEST, struct.pack("!I4xQ", 2, 99)))
    yield "a secondary's flow", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 3, 200)), flow(version, output(version, 1)))
    yield "a secondary's packet", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 3, 200)), packet_out(version, output(version, 1)))
    yield "a secondary's group", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 3, 200)), group_mod(version, 0, 1))
    yield "a secondary's question", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 3, 200)), stats(version, 0))
    yield "a secondary's configuration", (message(version, ROLE_REQUEST, struct.pack("!I4xQ", 3, 200)), message(version, SET_CONFIG, b"\x00\x00\x00\x80"))
    yield "role too short", message(version, ROLE_REQUEST, bytes(8))
    yield "role too long", message(version, ROLE_REQUEST, struct.pack("!I4xQ", 1, 0) + bytes(8))
    if version == V13:
        yield "set-async too short", message(version, SET_ASYNC, bytes(8))
        yield "set-async of every reason", message(version, SET_ASYNC, b"\xff" * 24)
    else:
        prop = lambda number, body, length=None: message(version, SET_ASYNC, padded(struct.pack("!HH", number, 4 + len(body) if length is None else length) + body))
        yield "set-async of no kind", prop(77, bytes(4))
        yield "set-async of every reason", prop(1, b"\xff" * 4)
        yield "set-async of an experimenter", prop(0xFFFF, struct.pack("!II", 0x123456, 1))
        yield "set-async of length 3", prop(1, bytes(4), length=3)
        yield "set-async longer than the message", prop(1, bytes(4), length=40)
        control = lambda number, step, flags=0: message(version, BUNDLE_CONTROL, struct.pack("!IHH", number, step, flags))
        add = lambda number, inner, flags=0, xid=XID: message(version, BUNDLE_ADD, struct.pack("!IHH", number, 0, flags) + inner)
        good = flow(version, output(version, 1))
        yield "bundle control of no kind", control(1, 77)
        yield "commit of a bundle that is not", control(1, 4)
        yield "close of a bundle that is not", control(1, 2)
        yield "discard of a bundle that is not", control(1, 6)
        yield "bundle opened twice", (control(1, 0), control(1, 0))
        yield "bundle with other flags", (control(1, 0, 1), add(1, good, 2))
        yield "bundle closed twice", (control(1, 0), control(1, 2), control(1, 2))
        yield "bundle closed, then added to", (control(1, 0), control(1, 2), add(1, good))
        yield "bundle committed with other flags", (control(1, 0, 1), control(1, 4, 2))
        yield "bundle of an echo", (control(1, 0), add(1, message(version, 2)))
        yield "bundle of another transaction", (control(1, 0), add(1, message(version, FLOW_MOD, good[8:], xid=9)))
        yield "bundle of another version", (control(1, 0), add(1, message(V13 if version != V13 else V14, FLOW_MOD, good[8:])))
        yield "bundle of a bad flow", (control(1, 0), add(1, flow(version, action(200))))
        yield "bundle of half a message", (control(1, 0), add(1, good[:20]))
        yield "bundle that fails", (control(1, 0), add(1, flow(version, action(22, struct.pack("!I", 77)))), control(1, 4))
        yield "bundle added to unopened", (add(5, good), control(5, 4))
        yield "bundle control too short", message(version, BUNDLE_CONTROL, bytes(4))


def cases(version):
    yield from malformed(version)
    yield from flow_mods(version)
    yield from packets_out(version)
    if version == V10:
        yield from flow_mods10(version)
    else:
        yield from flow_mods_later(version)
        yield from group_mods(version)
        yield from others(version)


class Peer:
    """One connection to one of the switches."""

    def __init__(self, path, version):
        self.version, self.rest = version, b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.socket.sendall(message(version, 0, xid=1))
        assert self.read()[1] == 0, "no hello"

    def read(self):
        while len(self.rest) < 8 or len(self.rest) < struct.unpack_from("!H", self.rest, 2)[0]:
            more = self.socket.recv(65536)
            if not more:
                return b""
            self.rest += more
        length = struct.unpack_from("!H", self.rest, 2)[0]
        first, self.rest = self.rest[:length], self.rest[length:]
        return first

    def ask(self, *messages):
        """The answers to messages, as far as a barrier or the end of the connection."""
        answers = []
        try:
            for one in messages:
                self.socket.sendall(one)
            self.socket.sendall(message(self.version, kind(self.version, "barrier"), xid=0xBA44))
            # The barrier is part of what is not whole, and nobody answers: nothing more comes, and the connection ends.
            if not ends_whole(b"".join(messages)):
                self.socket.shutdown(socket.SHUT_WR)
            while True:
                answer = self.read()
                if not answer:
                    return answers + ["the connection ended"]
                if struct.unpack_from("!I", answer, 4)[0] == 0xBA44:
                    return answers
                answers.append(answer)
        except ConnectionError:
            return answers + ["the connection ended"]

    def close(self):
        self.socket.close()


def ends_whole(data):
    """Whether bytes end where a message does."""
    while len(data) >= 8:
        data = data[max(8, struct.unpack_from("!H", data, 2)[0]):] if len(data) >= struct.unpack_from("!H", data, 2)[0] else b"?"
    return not data


def clear(path, version):
    peer = Peer(path, version)
    peer.ask(flow_mod(version, command=DELETE, table=255), *([] if version == V10 else [group_mod(version, 2, 0xFFFFFFFC)]))
    peer.close()


def comparable(answer):
    """Errors whole, other answers by their kind, without the replies to echoes of the switch's own."""
    if isinstance(answer, str):
        return answer
    if answer[1] == 1:
        return "error " + answer[8:12].hex() + " " + answer[12:].hex()
    return f"message of type {answer[1]}"


def answers(path, version, messages):
    clear(path, version)
    peer = Peer(path, version)
    got = [comparable(answer) for answer in peer.ask(*messages)]
    peer.close()
    return got


def golden(directory):
    for folder, version in [("of10", V10), ("of13", V13), ("of14", V14), ("of15", V15)]:
        for name in sorted(os.listdir(os.path.join(directory, folder))):
            if name.endswith(".packet"):
                with open(os.path.join(directory, folder, name), "rb") as file:
                    data = bytearray(file.read())
                # Which version a hello is of is another matter.
                if data[1] != 0 and len(data) == struct.unpack_from("!H", data, 2)[0]:
                    data[4:8] = struct.pack("!I", XID)
                    yield version, f"os-ken's {folder}/{name.removesuffix('.packet')}", bytes(data)


def main():
    theirs, ours, *directory = sys.argv[1:]
    wrong = 0
    every = [(version, name, messages) for version in VERSIONS for name, messages in cases(version)]
    every += [case for where in directory for case in golden(where)]
    for version, name, messages in every:
        messages = messages if isinstance(messages, tuple) else (messages,)
        label = f"{'1.' + str(version - 1)}: {name}"
        if os.environ.get("VERBOSE"):
            print(label, file=sys.stderr, flush=True)
        both = [answers(path, version, messages) for path in (theirs, ours)]
        known = KNOWN.get(name)
        if (both[0] == both[1]) == bool(known):
            wrong += 1
            print(flush=True, end=f"{label}{': the same, though it is listed' if known else ''}\n  Open vSwitch: {[a[:60] for a in both[0]]}\n  Sluice:       {[a[:60] for a in both[1]]}\n")
    print(f"{len(every)} messages, {wrong} answered otherwise, {len(KNOWN)} listed")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
