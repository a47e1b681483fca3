"""Collects sFlow datagrams until enough samples have come, and writes each sample as a datagram of its own.

sflow_samples.py FILE PORT N_FLOW_SAMPLES IFINDEX:IN:OUT…

How samples are packed into datagrams depends on time, and so does how often counters are sampled. So FILE has every flow sample in
order, then of the counters of each interface the first with so many packets in and out, all as hexadecimal dumps that text2pcap
reads, each with a head of its own. What depends on time is zero: uptime, and sequence numbers of counters. Of a packet that came by
a tunnel the outer source port is zero, which Sluice does not tell, and so are the bytes behind headers, which Open vSwitch leaves
as they were."""

import socket
import struct
import sys
import time

HEADER = 1
TUNNEL_INGRESS = 1024


def samples_of(datagram):
    version, address_type = struct.unpack_from("!II", datagram)
    assert (version, address_type) == (5, 1), "sFlow version 5, IPv4"
    head, n = datagram[:16], struct.unpack_from("!I", datagram, 24)[0]
    at = 28
    for _ in range(n):
        kind, size = struct.unpack_from("!II", datagram, at)
        yield head, kind, datagram[at : at + 8 + size]
        at += 8 + size
    assert at == len(datagram), "bytes behind the last sample"


def records_of(sample, at):
    n = struct.unpack_from("!I", sample, at)[0]
    at += 4
    for _ in range(n):
        kind, size = struct.unpack_from("!II", sample, at)
        yield kind, at + 8
        at += 8 + size


def main():
    path, port, n_flows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    wanted = {}
    for arg in sys.argv[4:]:
        index, received, sent = map(int, arg.split(":"))
        wanted[index] = (received, sent)
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", port))
    receiver.settimeout(60)
    print("listening", flush=True)
    flows, counters, last = [], {}, {}
    end = time.monotonic() + 60
    while len(flows) < n_flows or set(counters) != set(wanted):
        if time.monotonic() > end:
            sys.exit(f"{len(flows)} samples of packets; of counters those of {sorted(counters)}, last {last}")
        for head, kind, sample in samples_of(receiver.recv(65536)):
            sample = bytearray(sample)
            if kind == 1:
                for record, at in records_of(sample, 36):
                    if record == HEADER:
                        size = struct.unpack_from("!I", sample, at + 12)[0]
                        pad = -size % 4
                        sample[at + 16 + size : at + 16 + size + pad] = bytes(pad)
                    if record == TUNNEL_INGRESS:
                        struct.pack_into("!I", sample, at + 16, 0)
                flows.append((head, sample))
            else:
                struct.pack_into("!I", sample, 8, 0)
                for record, at in records_of(sample, 16):
                    if record == 1:
                        index = struct.unpack_from("!I", sample, at)[0]
                        seen = struct.unpack_from("!I", sample, at + 32)[0], struct.unpack_from("!I", sample, at + 64)[0]
                        last[index] = seen
                        if wanted.get(index) == seen:
                            counters.setdefault(index, (head, sample))
    with open(path, "w") as out:
        for i, (head, sample) in enumerate(flows + [counters[index] for index in sorted(counters)]):
            datagram = bytes(head) + struct.pack("!III", i, 0, 1) + bytes(sample)
            print("000000 " + datagram.hex(" "), file=out)


main()
