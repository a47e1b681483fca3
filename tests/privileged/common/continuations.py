"""A controller that is handed paused packets by Open vSwitch and by Sluice, and sends them back changed.

    continuations.py THEIR_DIRECTORY OUR_DIRECTORY PACKET

In either directory `br0.mgmt` is the switch. The packets must come as the same bytes, but for the bridge's number and the
datapath's port; a changed packet and changed registers must be what the flows see; and whatever byte is changed, the answer must be
the same.
"""

import re
import struct
import subprocess
import sys

from refusals import NICIRA, V10, V13, V15, Peer, message

PACKET_IN2, RESUME, SET_FORMAT, SET_CONFIG, ERROR = 30, 28, 16, 9, 1
PAUSED = "icmp,in_port=1,actions=set_field:0x1234->reg1,push:NXM_NX_REG1[],output:2,controller(pause,userdata=0a.0b),dec_ttl,resubmit(,1)"
AFTER = ["table=1,cookie=0x77,reg1=0x1234,actions=output:3", "table=1,reg1=0x4321,dl_dst=50:54:00:00:00:09,actions=output:4"]
BRIDGE, DATAPATH_PORT = 0x8000, 0x8008
# Actions that only Open vSwitch's own tests use: debug_slow, debug_recirc.
DEBUG = [struct.pack("!HHIH", 0xffff, 16, NICIRA, number) for number in (254, 255)]
# Which of the two Open vSwitch says of a field that there is not depends on the buckets of a hash table.
NO_FIELD = {"0002000d", "0002000e"}


def ofctl(directory, command, *arguments):
    run = ["ovs-ofctl", "-O", "OpenFlow13", command, f"unix:{directory}/br0.mgmt", *arguments]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def properties(data):
    """Where each property begins and ends, with its type."""
    at = 0
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        yield kind, at, at + length
        at += max(8, (length + 7) // 8 * 8)


def part(data, kind, offset=0):
    begin, end = next((begin, end) for k, begin, end in properties(data[offset:]) if k == kind)
    return offset + begin, offset + end


class Controller(Peer):
    def __init__(self, directory, version):
        super().__init__(f"{directory}/br0.mgmt", version)
        self.directory = directory
        self.socket.sendall(message(version, SET_CONFIG, struct.pack("!HH", 0, 65535)))
        self.socket.sendall(self.nicira(SET_FORMAT, struct.pack("!I", 2)))

    def nicira(self, subtype, body):
        return message(self.version, 4, struct.pack("!II", NICIRA, subtype) + body)

    def packet_in(self, packet):
        """The properties of the next paused packet."""
        # Answers tell that what came before was done.
        self.ask(message(self.version, 2))
        ofctl(self.directory, "packet-out", f"in_port=1,packet={packet},actions=resubmit(,0)")
        while True:
            kind, body = self.receive()
            if kind == 4 and struct.unpack_from("!II", body) == (NICIRA, PACKET_IN2):
                return bytearray(body[8:])

    def receive(self):
        data = self.read()
        return data[1], data[8:]

    def resume(self, body):
        """What is said of a packet that goes on: the numbers of an error, or nothing."""
        answers = self.ask(self.nicira(RESUME, bytes(body)))
        errors = [data[8:] for data in answers if data[1] == ERROR]
        return [error[:12 if error[:2] in (b"\xff\xff", b"\xb0\xc2") else 4].hex() for error in errors]


def comparable(body):
    """The packet-in without what only its own switch knows."""
    body = bytearray(body)
    begin, end = part(body, 8)
    inside = begin + 8
    for kind, first, last in properties(bytes(body[inside:end])):
        if kind in (BRIDGE, DATAPATH_PORT):
            body[inside + first + 4:inside + last] = bytes(last - first - 4)
    return bytes(body)


def packets(directory, text):
    found = re.search(rf"n_packets=(\d+), [^\n]*{text}", ofctl(directory, "dump-flows"))
    return int(found[1]) if found else 0


def changed(both, packet):
    """A controller that changes what a packet is and what is known of it."""
    said = []
    for switch in both:
        body = switch.packet_in(packet)
        metadata, _ = part(body, 6)
        at = body.index(struct.pack("!I", 0x1234), metadata)
        body[at:at + 4] = struct.pack("!I", 0x4321)
        frame, _ = part(body, 0)
        body[frame + 4 + 5] = 9
        said.append((switch.resume(body), packets(switch.directory, "reg1=0x4321")))
    assert said[0] == said[1] == ([], said[0][1]) and said[0][1] > 0, f"a changed packet: {said}"


def is_runt(body):
    """Whether the packet is too short to be one: Open vSwitch lets flows count it."""
    return any(kind == 0 and end - begin < 4 + 14 for kind, begin, end in properties(body))


def mutations(bodies):
    """Both packet-ins with a byte changed, every one in turn, or cut every four bytes."""
    alike = comparable(bodies[0])
    for at in range(len(alike)):
        for value in {0, 0xff, alike[at] ^ 1} - {body[at] for body in bodies}:
            copies = [bytearray(body) for body in bodies]
            for copy in copies:
                copy[at] = value
            if any(action in copies[0] for action in DEBUG) or is_runt(bytes(copies[0])):
                continue
            yield f"byte {at} = {value}", copies
    for at in range(0, len(alike), 4):
        yield f"cut at {at}", [body[:at] for body in bodies]


def main():
    theirs, ours, packet = sys.argv[1:]
    tried = 0
    for directory in (theirs, ours):
        ofctl(directory, "del-flows")
        for flow in [PAUSED, *AFTER]:
            ofctl(directory, "add-flow", flow)
    for version in (V10, V13, V15):
        both = [Controller(directory, version) for directory in (theirs, ours)]
        bodies = [switch.packet_in(packet) for switch in both]
        assert comparable(bodies[0]) == comparable(bodies[1]), \
            f"version {version}:\n{comparable(bodies[0]).hex()}\n{comparable(bodies[1]).hex()}"
        changed(both, packet)
        kept = [packets(directory, "reg1=0x1234") for directory in (theirs, ours)]
        wrong = []
        for what, changed_bodies in mutations(bodies):
            said = [switch.resume(body) for switch, body in zip(both, changed_bodies)]
            tried += 1
            if said[0] != said[1] and {*said[0], *said[1]} != NO_FIELD:
                wrong.append(f"version {version}, {what}: {said[0]} and {said[1]}")
        now = [packets(directory, "reg1=0x1234") for directory in (theirs, ours)]
        if now[0] - kept[0] != now[1] - kept[1]:
            wrong.append(f"version {version}: {now[0] - kept[0]} and {now[1] - kept[1]} packets went on")
        assert not wrong, "\n".join(wrong)
        for switch in both:
            switch.close()
    print(f"continuations: {tried} changed ones are answered alike")


main()
