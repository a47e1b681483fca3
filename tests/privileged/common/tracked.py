"""Frames that begin connections of every kind, fed to Open vSwitch's dummy ports and to Sluice's taps.

tracked.py GROUP VSWITCHD_CTL DEVICE1 DEVICE2     lets p1 and p2 of the one, and the devices of the other, receive the group's frames
"""
import socket, struct, subprocess, sys

FIN, SYN, RST, ACK = 1, 2, 4, 16
ICMP, IGMP, TCP, UDP, GRE, ICMP6, SCTP = 1, 2, 6, 17, 47, 58, 132

def checksum(data):
    if len(data) % 2: data += b"\0"
    s = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while s >> 16: s = (s & 0xffff) + (s >> 16)
    return 0xffff - s

def address(v6, host): return bytes([0xfc] + [0] * 14 + [host]) if v6 else bytes([10, 0, 0, host])

def frame(src, dst, proto, body, v6=False, at=None, ident=0, offset=0, more=False):
    """`at`: where in the body its checksum goes, over a pseudo-header but for ICMP."""
    a, b = address(v6, src), address(v6, dst)
    if at is not None:
        pseudo = b"" if proto == ICMP else a + b + struct.pack(">IBBH", len(body), 0, 0, proto)
        body = body[:at] + struct.pack(">H", checksum(pseudo + body)) + body[at + 2:]
    macs = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01"
    if v6: return macs + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(body), proto, 64) + a + b + body
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), ident, offset // 8 | more << 13, 64, proto, 0) + a + b
    return macs + b"\x08\0" + ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:] + body

def udp(src, dst, sport, dport, v6=False): return frame(src, dst, UDP, struct.pack(">HHHH", sport, dport, 12, 0) + b"data", v6, at=6)
def tcp(src, dst, sport, dport, seq, ack, flags, v6=False, data=b"", options=b""):
    body = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, (5 + len(options) // 4) << 4, flags, 8192, 0, 0) + options + data
    return frame(src, dst, TCP, body, v6, at=16)
def ping(src, dst, ident, reply=False, v6=False):
    kinds = (128, 129) if v6 else (8, 0)
    return frame(src, dst, ICMP6 if v6 else ICMP, struct.pack(">BBHHH", kinds[reply], 0, 0, ident, 1) + b"ping", v6, at=2)

def handshake(client, server, sport, dport, v6=False, scale=()):
    option = [bytes([1, 3, 3, s]) for s in scale] or [b"", b""]
    return [(1, tcp(client, server, sport, dport, 1000, 0, SYN, v6, options=option[0])),
            (2, tcp(server, client, dport, sport, 5000, 1001, SYN | ACK, v6, options=option[1])),
            (1, tcp(client, server, sport, dport, 1001, 5001, ACK, v6))]

def connections():
    both = lambda make, a, b, *more: [(1, make(a, b, *more)), (2, make(b, a, *more[1::-1], *more[2:]))]
    out = both(udp, 1, 2, 4000, 2000) + both(udp, 1, 2, 4000, 2000, True) + [(1, udp(1, 3, 4000, 2000)), (1, udp(1, 2, 4001, 1001))]
    out += [(1, udp(4, 2, 4002, 1002)), (2, udp(2, 200, 1002, 4002))]
    for v6 in (False, True):
        out += [(1, ping(1, 2, 77, False, v6)), (2, ping(2, 1, 77, True, v6)), (1, ping(1, 3, 78, False, v6))]
        out += handshake(1, 2, 5000, 80, v6) + [(1, tcp(1, 2, 5001, 80, 7, 0, SYN, v6))]
    out += handshake(1, 2, 5002, 80, scale=(3, 7)) + handshake(1, 2, 5003, 21)
    # The passive FTP server names a port, and the client goes there.
    line = b"227 Entering Passive Mode (10,0,0,2,100,1).\r\n"
    out += [(2, tcp(2, 1, 21, 5003, 5001, 1001, ACK, data=line)), (1, tcp(1, 2, 5004, 25601, 9, 0, SYN))]
    # On its way to an end: one side has closed, both have, one has reset.
    for port, ends in ((5010, [(1, FIN)]), (5011, [(1, FIN), (2, FIN)]), (5012, [(1, RST)])):
        out += handshake(1, 2, port, 80)
        for who, flag in ends:
            numbers = (port, 80, 1001, 5001) if who == 1 else (80, port, 5001, 1002)
            out.append((who, tcp(*((1, 2) if who == 1 else (2, 1)), *numbers, flag | ACK)))
    # In the middle of one, and protocols without states.
    out += [(1, tcp(1, 2, 5020, 80, 1, 1, ACK)), (1, frame(1, 2, GRE, b"\0\0\x08\0data")), (1, frame(1, 2, IGMP, b"\x11\0\xee\xff\0\0\0\0"))]
    return out + [(1, frame(1, 2, SCTP, struct.pack(">HHII", 6000, 7000, 0, 0) + b"\x01\0\0\x04"))]

def fragments():
    body = struct.pack(">HHHH", 4100, 2000, 3008, 0) + b"f" * 3000
    def piece(ident, i, host): return frame(host, 2, UDP, body[i * 1480:(i + 1) * 1480], ident=ident, offset=i * 1480, more=i < 2)
    whole = [(1, piece(7, i, 1)) for i in range(3)]
    waiting = [(1, piece(8, 0, 1)), (1, piece(9, 1, 3)), (1, piece(9, 0, 3))]
    overlapping = [(1, piece(10, 0, 4)), (1, piece(10, 1, 4)), (1, piece(10, 1, 4))]
    small = [(1, frame(1, 2, UDP, body[:80], ident=11, more=True))]
    return whole + waiting + overlapping + small

def limited(): return [(1, udp(1, 2, 4200 + i, 2000)) for i in range(8)] + [(1, udp(1, 2, 4300 + i, 1001)) for i in range(8)]

def main():
    group, control, *devices = sys.argv[1:]
    sockets = []
    for device in devices:
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((device, 0)); sockets.append(s)
    for port, data in globals()[group]():
        subprocess.run(["ovs-appctl", "-t", control, "netdev-dummy/receive", f"p{port}", data.hex()], check=True)
        sockets[port - 1].send(data)

if __name__ == "__main__": main()
