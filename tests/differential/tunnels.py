#!/usr/bin/env python3
"""Random packets of tunnels through Open vSwitch and through Sluice: what leaves each port is the same.

tunnels.py SLUICE [--packets N] [--seed N]     a line for what differs, then a line that ci.sh counts

Both run as daemons with dummy devices. Packets that come to the bridge under the tunnels are of VXLAN, Geneve with options, GRE and
ERSPAN, over IPv4 and IPv6, and of GRE and VXLAN-GPE that carry packets without Ethernet headers, whole or broken in one place. What comes out of a tunnel leaves by a port with the
tunnel's fields written into its Ethernet header, and goes back into a tunnel as well, which encapsulates it. UDP source ports are left out: each
switch hashes for itself; the checksums over them are checked instead.
"""
import argparse, ipaddress, json, os, pathlib, random, signal, socket, struct, subprocess, sys, tempfile, time

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
OWN_MAC, PEER_MAC = "aa:55:aa:55:00:00", "f8:bc:12:44:34:b6"
OWN4, PEER4, OWN6, PEER6 = "1.1.2.88", "1.1.2.92", "2001:cafe::88", "2001:cafe::92"
PATIENCE = 60
# Worlds: families of the outer packets, share of the packets, and ports: type, number, further options. A packet of key 7 belongs to a port that says
# so, others to those with key=flow. Open vSwitch serves one type of GRE at a time, and has no group policy in VXLAN's headers.
ERSPAN = "key=flow erspan_ver=flow erspan_idx=flow erspan_dir=flow erspan_hwid=flow"
WORLDS = {
    "udp": ("46", 6, [("vxlan", 11, "key=flow"), ("vxlan", 12, "key=7 csum=true"), ("geneve", 14, "key=flow"), ("geneve", 18, "key=7 tos=inherit ttl=inherit csum=true")]),
    "gre": ("4", 2, [("gre", 15, "key=flow"), ("gre", 16, "key=7 csum=true")]),
    "ip6gre": ("6", 1, [("ip6gre", 15, "key=flow"), ("ip6gre", 16, "key=7 csum=true")]),
    "erspan": ("4", 1, [("erspan", 17, ERSPAN)]),
    "ip6erspan": ("6", 1, [("ip6erspan", 17, ERSPAN)]),
    "bare": ("4", 3, [("gre", 19, "key=flow packet_type=legacy_l3"), ("gre", 15, "key=flow"), ("vxlan", 21, "key=flow exts=gpe packet_type=legacy_l3")]),
}
# What becomes of a packet that a tunnel has given: its tunnel's fields go into its addresses, then it leaves by p2; and it goes back.
ID = "move:NXM_NX_TUN_ID[0..23]->NXM_OF_ETH_SRC[0..23],"
SHOWN = {
    "vxlan": [("", ID)],
    # Of an option that is not there Open vSwitch moves what happens to be in its memory.
    "geneve": [("tun_metadata0,tun_metadata1,", ID + "move:NXM_NX_TUN_METADATA0[0..31]->NXM_OF_ETH_DST[0..31],move:NXM_NX_TUN_METADATA1[0..15]->NXM_OF_ETH_DST[32..47],"),
               ("tun_metadata0,", ID + "move:NXM_NX_TUN_METADATA0[0..31]->NXM_OF_ETH_DST[0..31],"), ("", ID)],
    "gre": [("", "move:NXM_NX_TUN_ID[0..31]->NXM_OF_ETH_SRC[0..31],")],
    "erspan": [("", "move:NXM_NX_TUN_ID[0..9]->NXM_OF_ETH_SRC[0..9],move:tun_erspan_idx[0..19]->NXM_OF_ETH_DST[0..19],move:tun_erspan_hwid[0..5]->NXM_OF_ETH_DST[20..25],")],
}
OPTIONS = ((0x102, 0x80, 4), (0x102, 1, 8))

# Ports whose tunnels carry packets without Ethernet headers, and what their frames are before: of GRE not tagged, else IPv4 and IPv6.
BARE = {19: (0, 2, 3), 21: (2, 3)}

def kinds(number): return BARE.get(number, range(4))
def port_number(number, family): return number if family == "4" else number + 20
def mac(text): return bytes.fromhex(text.replace(":", ""))
def address(text): return ipaddress.ip_address(text).packed

def total(data):
    if len(data) % 2: data += b"\0"
    n = sum(struct.unpack(f">{len(data) // 2}H", data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return n

def checksum(data): return ~total(data) & 0xffff

class Switch:
    """A daemon with its database."""

    def __init__(self, directory, program, world):
        self.families, _, self.tunnels = WORLDS[world]
        self.directory, self.daemons, self.read, self.received = directory, [], {}, 0
        os.mkdir(directory)
        self.environment = os.environ | {f"OVS_{kind}": directory for kind in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")}
        self.run("ovsdb-tool", "create", f"{directory}/conf.db", SCHEMA)
        self.start("ovsdb-server", f"{directory}/conf.db", f"--remote=punix:{directory}/db.sock", f"--unixctl={directory}/db.ctl")
        self.await_(f"{directory}/db.sock")
        self.vsctl("--no-wait", "init")
        os.symlink(program, f"{directory}/ovs-vswitchd")
        self.start(f"{directory}/ovs-vswitchd", f"unix:{directory}/db.sock", "--enable-dummy", "--disable-system", "--disable-system-route",
                   f"--unixctl={directory}/ctl")
        self.await_(f"{directory}/ctl")
        self.ctl = socket.socket(socket.AF_UNIX)
        self.ctl.settimeout(PATIENCE)
        self.ctl.connect(f"{directory}/ctl")
        self.configure()

    def run(self, *command): return subprocess.run(command, check=True, env=self.environment, stdout=subprocess.PIPE, text=True).stdout

    def start(self, *command):
        with open(f"{self.directory}/out", "ab") as out: self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=out))

    def await_(self, path):
        end = time.monotonic() + PATIENCE
        while not os.path.exists(path):
            if time.monotonic() > end or self.daemons[-1].poll() is not None: raise RuntimeError(f"{path} did not appear: {open(f'{self.directory}/out').read()[-500:]}")
            time.sleep(0.02)

    def vsctl(self, *command): return self.run("ovs-vsctl", "-t60", f"--db=unix:{self.directory}/db.sock", *command)
    def ofctl(self, command, bridge, *more): return self.run("ovs-ofctl", command, f"unix:{self.directory}/{bridge}.mgmt", *more)

    def command(self, name, *arguments):
        self.ctl.sendall(json.dumps({"method": name, "params": arguments, "id": 0}).encode())
        text, decoder = "", json.JSONDecoder()
        while True:
            part = self.ctl.recv(65536)
            if not part: raise RuntimeError(f"{name}: the daemon has gone")
            text += part.decode()
            try: answer, _ = decoder.raw_decode(text)
            except ValueError: continue
            if answer.get("error"): raise RuntimeError(f"{name}: {answer['error']}")
            return answer["result"]

    def configure(self):
        def dummy(name, number): return ["--", "set", "interface", name, "type=dummy", f"ofport_request={number}", f"options:tx_pcap={self.directory}/{name}.pcap"]
        words = ["add-br", "under", "--", "set", "bridge", "under", "datapath_type=dummy", "fail-mode=secure", f'other-config:hwaddr="{OWN_MAC}"',
                 "--", "add-port", "under", "p1", *dummy("p1", 1),
                 "--", "add-br", "int", "--", "set", "bridge", "int", "datapath_type=dummy", "fail-mode=secure", "--", "add-port", "int", "p2", *dummy("p2", 2)]
        for kind, number, options in self.tunnels:
            for family in self.families:
                name, of = f"t{number}v{family}", port_number(number, family)
                words += ["--", "add-port", "int", name, "--", "set", "interface", name, f"type={kind}", f"ofport_request={of}",
                          f'options:remote_ip="{PEER4 if family == "4" else PEER6}"', *(f"options:{option}" for option in options.split())]
        self.vsctl(*words)
        mapped = ",".join(f"{{class={c:#x},type={t:#x},len={l}}}->tun_metadata{i}" for i, (c, t, l) in enumerate(OPTIONS))
        self.ofctl("add-tlv-map", "int", mapped)
        rules = []
        for kind, number, _ in self.tunnels:
            base = kind.removeprefix("ip6")
            # What comes by p2 enters the tunnel that its source address names.
            more = {"geneve": "set_field:0x11223344->tun_metadata0,", "erspan": "set_field:1->tun_erspan_ver,set_field:5->tun_erspan_idx,"}.get(base, "")
            for of in (port_number(number, family) for family in self.families):
                rules += [f"priority={100 - n},in_port={of},{match}actions={shown}output:2,IN_PORT" for n, (match, shown) in enumerate(SHOWN[base])]
                rules.append(f"in_port=2,dl_src=02:00:00:00:00:{of:02x},actions={more}move:NXM_OF_ETH_DST[0..9]->NXM_NX_TUN_ID[0..9],output:{of}")
        self.rules("int", rules)
        self.rules("under", ["in_port=1,actions=LOCAL", "in_port=LOCAL,actions=output:1"])
        self.command("netdev-dummy/ip4addr", "under", f"{OWN4}/24")
        self.command("netdev-dummy/ip6addr", "under", f"{OWN6}/64")
        self.command("ovs/route/add", f"{PEER4}/24", "under")
        self.command("ovs/route/add", f"{PEER6}/64", "under")
        for peer in (PEER4, PEER6): self.command("tnl/neigh/set", "under", peer, PEER_MAC)

    def rules(self, bridge, rules, *more):
        path = f"{self.directory}/{bridge}.rules"
        pathlib.Path(path).write_text("\n".join(rules) + "\n")
        self.ofctl("add-flows", bridge, path, *more)

    def receive(self, port, frame):
        """Gives a port a frame; what has left since."""
        self.command("netdev-dummy/receive", port, frame.hex())
        self.received += 1
        end = time.monotonic() + PATIENCE
        while self.count() < self.received:
            if time.monotonic() > end: raise RuntimeError(f"{self.directory}: a packet is not received")
        return {name: [normal(frame) for frame in self.sent(name)] for name in ("p1", "p2")}

    def count(self):
        return sum(int(line.split(":")[1]) for line in self.command("dpif-netdev/pmd-stats-show").splitlines() if "packets received:" in line)

    def sent(self, name):
        data, at = pathlib.Path(f"{self.directory}/{name}.pcap").read_bytes(), self.read.get(name, 24)
        while at + 16 <= len(data):
            size = struct.unpack_from("<I", data, at + 8)[0]
            if at + 16 + size > len(data): break
            yield data[at + 16:at + 16 + size]
            at += 16 + size
        self.read[name] = at

    def end(self):
        for daemon in reversed(self.daemons): daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try: daemon.wait(10)
            except subprocess.TimeoutExpired: daemon.kill()

def normal(frame):
    """A frame without the UDP source port of a tunnel, whose checksum over it is right or 0, and without ERSPAN's time and GRE's number."""
    frame = bytearray(frame)
    is6 = frame[12:14] == b"\x86\xdd"
    if frame[:6] != mac(PEER_MAC) or not (is6 or frame[12:14] == b"\x08\0"): return bytes(frame)
    l4, proto, ends = (54, frame[20], frame[22:54]) if is6 else (34, frame[23], frame[26:34])
    if proto == 17:
        if frame[l4 + 6:l4 + 8] != b"\0\0":
            pseudo = bytes(ends) + struct.pack(">IHH", len(frame) - l4, 0, 17)
            if total(pseudo + bytes(frame[l4:])) != 0xffff: return b"wrong checksum: " + bytes(frame)
            frame[l4 + 6:l4 + 8] = b"\xff\xff"
        frame[l4:l4 + 2] = b"\0\0"
    elif proto == 47 and frame[l4 + 2:l4 + 4] in (b"\x88\xbe", b"\x22\xeb"):
        frame[l4 + 4:l4 + 8] = b"\0" * 4
        if frame[l4 + 8] >> 4 == 2: frame[l4 + 12:l4 + 16] = b"\0" * 4
    return bytes(frame)

class Packets:
    """A generator of packets as the peer sends them."""

    def __init__(self, seed, world):
        self.random, (self.families, _, self.tunnels) = random.Random(f"{seed} {world}"), WORLDS[world]

    def inner(self, dst=None, src=None, kinds=range(4)):
        """A frame, as long as it says."""
        r = self.random
        head = (dst or r.randbytes(6)) + (src or r.randbytes(6))
        payload = r.randbytes(r.choice((0, 1, 7, 64, 300)))
        kind = r.choice(kinds)
        if kind == 0: return head + b"\x90\0" + payload + bytes(20)
        udp = struct.pack(">HHHH", r.randrange(65536), r.randrange(65536), 8 + len(payload), 0) + payload
        if kind == 1: return head + b"\x81\0" + struct.pack(">H", r.randrange(1, 4095)) + self.ip4(udp, 17, bytes(4), bytes(4))
        if kind == 2: return head + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28 | r.randrange(256) << 20, len(udp), 17, r.randrange(2, 256)) + r.randbytes(32) + udp
        return head + b"\x08\0" + self.ip4(udp, 17, r.randbytes(4), r.randbytes(4))[2:]

    def ip4(self, payload, proto, src, dst):
        r = self.random
        head = bytearray(struct.pack(">BBHHHBBH", 0x45, r.randrange(256), 20 + len(payload), r.randrange(65536), r.choice((0, 0x4000)), r.randrange(2, 256), proto, 0) + src + dst)
        head[10:12] = struct.pack(">H", checksum(bytes(head)))
        return b"\x08\0" + bytes(head) + payload

    def options(self):
        """Options of Geneve: known ones, unknown ones, the same twice."""
        r, out = self.random, b""
        for _ in range(r.randrange(5)):
            klass, kind, length = r.choice((*OPTIONS, (0x102, 0x80, 8), (0xffff, r.randrange(256), 4 * r.randrange(32))))
            if len(out) + 4 + length > 252: break
            out += struct.pack(">HBB", klass, kind, length // 4) + r.randbytes(length)
        return out

    def outer(self, is6):
        """A packet of a tunnel: its bytes, and where its tunnel's header begins."""
        r = self.random
        kind, number, options = r.choice(self.tunnels)
        kind, key, ethertype = kind.removeprefix("ip6"), r.choice((0, 7, r.randrange(1 << 24))), 0x6558
        inner = self.inner(kinds=kinds(number))
        if number in BARE: ethertype, inner = struct.unpack_from(">H", inner, 12)[0], inner[14:]
        if kind in ("vxlan", "geneve"):
            if number in BARE: header = struct.pack(">II", 0x0c000000 | {0x0800: 1, 0x86dd: 2}[ethertype], key << 8)
            elif kind == "geneve":
                options = self.options()
                header = struct.pack(">BBHI", len(options) // 4, r.choice((0, 0, 0x40, 0x80)), 0x6558, key << 8) + options
            else: header = struct.pack(">II", 0x08000000, key << 8)
            port, body = {"vxlan": 4789, "geneve": 6081}[kind], header + inner
            l4, proto = struct.pack(">HHHH", r.randrange(1024, 65536), port, 8 + len(body), 0) + body, 17
        else:
            proto = 47
            if kind == "gre":
                flags, words = r.choice((0, 0x2000, 0x2000, 0x3000, 0x8000, 0xa000, 0xb000)), b""
                for flag, word in ((0x8000, 0), (0x2000, key), (0x1000, r.randrange(1 << 32))):
                    if flags & flag: words += struct.pack(">I", word)
                l4 = bytearray(struct.pack(">HH", flags, ethertype) + words + inner)
                if flags & 0x8000: l4[4:6] = struct.pack(">H", checksum(bytes(l4)))
            else:
                version = r.choice((1, 1, 2))
                head = struct.pack(">HHI", 0x1000, 0x88be if version == 1 else 0x22eb, r.randrange(1 << 32)) + struct.pack(">HH", version << 12, key & 0x3ff)
                head += struct.pack(">I", r.randrange(1 << 20)) if version == 1 else struct.pack(">IHH", r.randrange(1 << 32), 0, r.randrange(64) << 4 | r.randrange(2) << 3)
                l4 = head + inner
        l4 = bytearray(l4)
        ends = (address(PEER6), address(OWN6)) if is6 else (address(PEER4), address(OWN4))
        if proto == 17 and r.randrange(2):
            l4[6:8] = struct.pack(">H", checksum(b"".join(ends) + struct.pack(">IHH", len(l4), 0, 17) + bytes(l4)) or 0xffff)
        link = mac(OWN_MAC) + mac(PEER_MAC)
        if is6: return link + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28 | r.choice((0, 0, 3, 0xb8)) << 20, len(l4), proto, r.randrange(2, 256)) + b"".join(ends) + bytes(l4), 54
        return link + self.ip4(bytes(l4), proto, *ends), 34

    def broken(self, packet, l4):
        """A packet with a flaw in its tunnel's headers: a bit, a byte, or its end."""
        r, packet = self.random, bytearray(packet)
        how, is_udp = r.randrange(3), (packet[20] if l4 == 54 else packet[23]) == 17
        # Open vSwitch reads no length of UDP and no group policy of VXLAN, but bits of ERSPAN's index that are reserved.
        skipped = (12, 13) if not is_udp else (4, 5, 8) if packet[l4 + 2:l4 + 4] == b"\x12\xb5" else (4, 5)
        places = [at for at in range(min(24, len(packet) - l4)) if at not in skipped]
        if how == 0: packet[l4 + r.choice(places)] ^= 1 << r.randrange(8)
        elif how == 1: packet[l4 + r.choice(places)] = r.randrange(256)
        else: del packet[r.randrange(14, len(packet)):]
        return bytes(packet)

    def next(self):
        r = self.random
        if r.randrange(4) == 0:
            of, family = r.choice(self.tunnels)[1], r.choice(self.families)
            ends = {"dst": b"\x02\0\0\0" + struct.pack(">H", r.randrange(1024)), "src": bytes((2, 0, 0, 0, 0, port_number(of, family)))}
            return "p2", self.inner(**ends, kinds=kinds(of))
        packet, l4 = self.outer(r.choice(self.families) == "6")
        return "p1", self.broken(packet, l4) if r.randrange(3) == 0 else packet

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice", type=os.path.abspath)
    parser.add_argument("--packets", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    differs = left = sent = 0
    for world, (_, share, _) in WORLDS.items():
        switches = []
        with tempfile.TemporaryDirectory(prefix="sluice-tunnels-") as directory:
            try:
                for name, program in (("ovs", "/usr/sbin/ovs-vswitchd"), ("sluice", options.sluice)): switches.append(Switch(f"{directory}/{name}", program, world))
                packets = Packets(options.seed, world)
                for n in range(options.packets * share // sum(share for _, share, _ in WORLDS.values())):
                    port, frame = packets.next()
                    theirs, ours = (switch.receive(port, frame) for switch in switches)
                    if theirs != ours:
                        # Open vSwitch's megaflow of a packet with wrong options drops those with right ones, too: without megaflows it must agree.
                        for switch in switches: switch.command("revalidator/purge")
                        theirs, ours = (switch.receive(port, frame) for switch in switches)
                    sent, left, differs = sent + 1, left + bool(theirs["p1"] or theirs["p2"]), differs + (theirs != ours)
                    if theirs != ours:
                        print(f"{world}, packet {n} by {port}: {frame.hex()}")
                        for who, all_ in (("ovs", theirs), ("sluice", ours)):
                            for name, frames in all_.items(): print(f"  {who} {name}:", *(frame.hex() for frame in frames))
            finally:
                for switch in switches: switch.end()
    # A run in which nothing leaves shows nothing.
    failed = differs + (left * 4 < sent)
    print(f"tunnels: of {sent} packets {left} left Open vSwitch, {differs} differ")
    print(f"lane differential-tunnels: {sent - differs} passed, {failed} failed, 0 skipped")
    return failed > 0

if __name__ == "__main__": sys.exit(main())
