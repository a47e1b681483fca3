#!/usr/bin/env python3
"""Asks a private Open vSwitch which rule wins and which bits it looked at, for random tables and flows.

Usage: generate.py SEED CASES > ovs-masks.txt

Starts its own ovsdb-server and ovs-vswitchd (--enable-dummy) in a temporary directory; needs no privileges and
touches no other daemon. The output is replayed by tests/against_ovs.rs, which explains the format.
"""

import ipaddress
import os
import random
import re
import subprocess
import sys
import tempfile
import time

IP, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
WIDTH = {
    "in_port": 32, "dl_src": 48, "dl_dst": 48, "vlan_tci": 16, "dl_type": 16, "nw_src": 32, "nw_dst": 32,
    "nw_proto": 8, "nw_ttl": 8, "ipv6_src": 128, "ipv6_dst": 128, "tcp_flags": 12, "tp_src": 16, "tp_dst": 16,
    "arp_sha": 48, "arp_tha": 48, "nd_target": 128, "ipv6_label": 20, "nw_tos": 8, "pkt_mark": 32, "ct_zone": 16,
    "ct_mark": 32, "reg0": 32, "metadata": 64, "conj_id": 32,
}
PROTOCOLS = {
    "ip": (IP, None), "tcp": (IP, 6), "udp": (IP, 17), "icmp": (IP, 1), "ipv6": (IPV6, None), "tcp6": (IPV6, 6),
    "udp6": (IPV6, 17), "icmp6": (IPV6, 58), "arp": (ARP, None), "sctp": (IP, 132), "sctp6": (IPV6, 132),
}
TCP_FLAGS = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"]


class Switch:
    """One bridge br0 with ports 1 to 3."""

    def __init__(self, directory):
        self.dir = directory
        self.env = dict(os.environ, OVS_RUNDIR=directory, OVS_LOGDIR=directory, OVS_DBDIR=directory)
        db = f"{directory}/conf.db"
        self.run("ovsdb-tool", "create", db, "/usr/share/openvswitch/vswitch.ovsschema")
        socket = f"unix:{directory}/db.sock"
        quiet = dict(env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.daemons = [subprocess.Popen(["ovsdb-server", f"--remote=p{socket}", f"--unixctl={directory}/db.ctl", db], **quiet)]
        self.wait_for(f"{directory}/db.sock")
        self.run("ovs-vsctl", f"--db={socket}", "--no-wait", "init")
        self.ctl = f"{directory}/switch.ctl"
        self.daemons.append(subprocess.Popen(
            ["ovs-vswitchd", "--enable-dummy=override", "--disable-system", f"--unixctl={self.ctl}", socket], **quiet))
        self.wait_for(self.ctl)
        self.run("ovs-vsctl", f"--db={socket}", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy",
                 "fail-mode=secure", "protocols=[OpenFlow10,OpenFlow13,OpenFlow15]",
                 *(a for i in (1, 2, 3) for a in
                   ("--", "add-port", "br0", f"p{i}", "--", "set", "interface", f"p{i}", "type=dummy", f"ofport_request={i}")))
        self.run("ovs-ofctl", "del-flows", "br0")

    def wait_for(self, path):
        while not os.path.exists(path):
            time.sleep(0.02)

    def run(self, *argv, text=None):
        done = subprocess.run(argv, env=self.env, input=text, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}: {done.stderr}\n{text or ''}")
        return done.stdout

    def change(self, lines):
        # OpenFlow 1.0 with Nicira matches: later versions cannot say "no tag, whatever the rest of vlan_tci".
        self.run("ovs-ofctl", "add-flows", "br0", "-", text="\n".join(lines) + "\n")
        time.sleep(0.05)  # rules leave the classifier a grace period after they are deleted

    def trace(self, flow):
        return self.run("ovs-appctl", "-t", self.ctl, "ofproto/trace", "br0", flow)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()


def text_of(field, value, mask, dl_type, nw_proto):
    """A field as ovs-ofctl and ofproto/trace want it."""
    all_ones = (1 << WIDTH[field]) - 1
    name = field.replace("tp_", "udp_") if nw_proto == 17 else field
    if nw_proto == 58:
        name = {"tp_src": "icmpv6_type", "tp_dst": "icmpv6_code"}.get(field, field)
    if dl_type == ARP:
        name = {"nw_src": "arp_spa", "nw_dst": "arp_tpa", "nw_proto": "arp_op"}.get(field, field)
    if field in ("dl_src", "dl_dst", "arp_sha", "arp_tha"):
        show = lambda n: ":".join(f"{n >> s & 255:02x}" for s in range(40, -8, -8))
    elif field in ("nw_src", "nw_dst"):
        show = lambda n: str(ipaddress.IPv4Address(n))
    elif field in ("ipv6_src", "ipv6_dst", "nd_target"):
        show = lambda n: str(ipaddress.IPv6Address(n))
    elif field in ("in_port", "nw_proto", "nw_ttl", "nw_tos", "ct_zone") or name.startswith("icmpv6_"):
        show = str
    else:
        show = hex
    # Six bits of the type of service are a whole field; so is one of ICMP's, which has eight of a port's bits.
    whole = mask == all_ones or field == "nw_tos"
    return f"{name}={show(value)}" if whole else f"{name}={show(value)}/{show(mask)}"


def address_mask(text, width):
    """The mask of ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK."""
    all_ones = (1 << width) - 1
    if "/" not in text:
        return all_ones
    mask = text.split("/")[1]
    if mask.isdigit():
        return all_ones & ~(all_ones >> int(mask))
    return int(ipaddress.ip_address(mask))


def mac_mask(text):
    return int(text.split("/")[1].replace(":", ""), 16) if "/" in text else (1 << 48) - 1


def masks_of(megaflow):
    """The bits a printed megaflow matches, by field."""
    masks = {}

    def add(field, mask):
        masks[field] = masks.get(field, 0) | mask

    for token in megaflow.strip().split(","):
        name, _, value = token.partition("=")
        name = {"arp_spa": "nw_src", "arp_tpa": "nw_dst", "arp_op": "nw_proto", "tcp_src": "tp_src", "tcp_dst": "tp_dst",
                "udp_src": "tp_src", "udp_dst": "tp_dst"}.get(name, name)
        if name in ("icmp_type", "icmp_code"):
            add({"icmp_type": "tp_src", "icmp_code": "tp_dst"}[name], int(value.split("/")[1], 0) if "/" in value else 0xFF)
            continue
        if name in PROTOCOLS:
            add("dl_type", 0xFFFF)
            if PROTOCOLS[name][1] is not None:
                add("nw_proto", 0xFF)
        elif name in ("recirc_id", "eth", "nw_frag"):
            pass
        elif name == "nw_tos":
            add(name, 0xFC)
        elif name in ("dl_src", "dl_dst", "arp_sha", "arp_tha"):
            add(name, mac_mask(value))
        elif name in ("nw_src", "nw_dst", "ipv6_src", "ipv6_dst", "nd_target"):
            add(name, address_mask(value, WIDTH[name]))
        elif name == "dl_vlan":
            add("vlan_tci", 0x1FFF)
        elif name == "dl_vlan_pcp":
            add("vlan_tci", 0xF000)
        elif name == "tcp_flags" and value[0] in "+-":
            add(name, sum(1 << TCP_FLAGS.index(flag) for flag in re.findall(r"[+-]([a-z]+)", value)))
        elif name in WIDTH:
            add(name, int(value.split("/")[1], 0) if "/" in value else (1 << WIDTH[name]) - 1)
        else:
            raise SystemExit(f"unknown field in megaflow: {token}")
    return masks


def prefix(rng, width, usual):
    length = rng.choice(usual) if rng.random() < 0.8 else rng.randint(1, width)
    all_ones = (1 << width) - 1
    return all_ones & ~(all_ones >> length)


def random_mask(rng, field):
    width = WIDTH[field]
    all_ones = (1 << width) - 1
    if field in ("nw_src", "nw_dst"):
        return rng.randrange(1, 1 << 32) if rng.random() < 0.07 else prefix(rng, 32, [8, 16, 24, 32, 32])
    if field in ("ipv6_src", "ipv6_dst"):
        return prefix(rng, 128, [10, 48, 64, 128, 128])
    if field in ("tp_src", "tp_dst"):
        return all_ones if rng.random() < 0.6 else prefix(rng, 16, [1, 8, 12, 15])
    if field == "tcp_flags":
        return rng.choice([0x002, 0x010, 0x012, 0xFFF])
    if field in ("dl_src", "dl_dst"):
        return all_ones if rng.random() < 0.8 else prefix(rng, 48, [8, 24])
    if field == "vlan_tci":
        return rng.choice([0x1FFF, 0x1000, 0xF000, 0xFFFF])
    if field == "nw_tos":
        return 0xFC
    if field == "nd_target":
        return prefix(rng, 128, [64, 128, 128])
    if field == "ipv6_label":
        return rng.choice([0xFFFFF, 0x0FF00])
    if field in ("ct_mark", "pkt_mark", "reg0", "metadata"):
        return all_ones if rng.random() < 0.6 else rng.choice([1, 0xF0, 0xFF])
    return all_ones


def random_flow(rng, dl_type):
    """A packet: few values each, so that rules taken from other packets often match it."""
    ip4 = lambda: rng.choice([0x0A010000, 0x0A010200, 0xC0A80000, 0x0B000000]) + rng.choice([1, 2, 3, 15, 0x80])
    ip6 = lambda: (rng.choice([0x1000, 0x2001, 0xFE80]) << 112) + rng.choice([1, 2, 3, 4, 1 << 64, 1 << 79])
    flow = {
        "in_port": rng.choice([1, 1, 2, 3]), "dl_src": rng.choice([0x505400000001, 0x505400000002, 0x025400000003]),
        "dl_dst": rng.choice([0x505400000007, 0x505400000008]), "vlan_tci": rng.choice([0, 0, 0, 0x1005, 0x1006, 0x3005]),
        "dl_type": dl_type, "ct_mark": rng.choice([0, 1, 0xF1]), "ct_zone": rng.choice([0, 5]),
        "pkt_mark": rng.choice([0, 0x11]),
    }
    if dl_type == IPV6:
        flow |= {"ipv6_src": ip6(), "ipv6_dst": ip6(), "ipv6_label": rng.choice([0, 0x12345])}
    else:
        flow |= {"nw_src": ip4(), "nw_dst": ip4()}
    if dl_type == ARP:
        flow |= {"nw_proto": rng.choice([1, 2]), "arp_sha": rng.choice([0x505400000001, 0x505400000002]),
                 "arp_tha": rng.choice([0, 0x505400000003])}
    elif dl_type == IPV6 and rng.random() < 0.4:
        flow |= {"nw_proto": 58, "nw_ttl": 255, "nw_tos": 0, "tp_src": rng.choice([135, 135, 136, 128]), "tp_dst": 0}
        if flow["tp_src"] in (135, 136):
            flow["nd_target"] = ip6()
    else:
        flow |= {"nw_proto": rng.choice([6, 6, 17]), "nw_ttl": rng.choice([64, 128]), "nw_tos": rng.choice([0, 32]),
                 "tp_src": rng.choice([8, 79, 80, 0x8000]), "tp_dst": rng.choice([79, 80, 81, 192, 443, 8080])}
        if flow["nw_proto"] == 6:
            flow["tcp_flags"] = rng.choice([0x002, 0x010, 0x012, 0x018])
    return flow


def flow_near(rng, rules):
    """A packet that one of the rules, or all but a field of it, matches."""
    rule = rng.choice(rules)
    flow = random_flow(rng, rule["dl_type"] or rng.choice([IP] * 6 + [IPV6, IPV6, ARP]))
    for field, (value, mask) in rule["fields"].items():
        if field in flow and rng.random() < 0.93:
            flow[field] = flow[field] & ~mask | value
    if flow["nw_proto"] != 6:
        flow.pop("tcp_flags", None)
    if flow["dl_type"] == IPV6 and flow["nw_proto"] == 58:
        flow["tp_src"], flow["tp_dst"] = flow["tp_src"] & 0xFF, flow["tp_dst"] & 0xFF
    if flow["nw_proto"] != 58 or flow["tp_src"] not in (135, 136) or flow["tp_dst"] != 0:
        flow.pop("nd_target", None)
    return flow


def finish_shape(rng, shape, optional):
    for field, chance in optional:
        if rng.random() < chance:
            shape[field] = random_mask(rng, field)
    return shape


def random_shape(rng):
    """The fields a rule matches and their masks, prerequisites included, and what the rule is about: an Ethernet type,
    58 for neighbour discovery, None for no protocol at all."""
    dl_type = rng.choice([IP] * 6 + [IPV6] * 2 + [ARP, None])
    shape = {}
    for field in ("in_port", "dl_src", "dl_dst", "vlan_tci", "ct_mark", "ct_zone", "pkt_mark", "reg0", "metadata"):
        if rng.random() < 0.1:
            shape[field] = random_mask(rng, field)
    if dl_type is not None:
        shape["dl_type"] = 0xFFFF
        for field in ("ipv6_src", "ipv6_dst") if dl_type == IPV6 else ("nw_src", "nw_dst"):
            if rng.random() < 0.5:
                shape[field] = random_mask(rng, field)
        if dl_type == ARP:
            optional = [("nw_proto", 0.3), ("arp_sha", 0.3), ("arp_tha", 0.2)]
        elif dl_type == IPV6 and rng.random() < 0.4:
            # Neighbour discovery: the target needs the type, the type the protocol.
            optional = [("nw_ttl", 0.2), ("tp_dst", 0.3), ("nd_target", 0.6)]
            shape |= {"nw_proto": 0xFF, "tp_src": 0xFFFF}
            finish_shape(rng, shape, optional)
            if "tp_dst" in shape:
                shape["tp_dst"] = 0xFFFF  # ICMP's code takes no mask
            return 58, shape
        else:
            optional = [("nw_proto", 0.4), ("nw_ttl", 0.1), ("nw_tos", 0.1), ("tp_src", 0.25), ("tp_dst", 0.4), ("tcp_flags", 0.12)]
        if dl_type == IPV6 and rng.random() < 0.15:
            shape["ipv6_label"] = random_mask(rng, "ipv6_label")
        finish_shape(rng, shape, optional)
        if shape.keys() & {"tp_src", "tp_dst", "tcp_flags"}:
            shape["nw_proto"] = 0xFF
    return dl_type, shape


def random_rule(rng, shapes, number, conjunctive):
    dl_type, shape = rng.choice(shapes)
    discovery = dl_type == 58
    dl_type = IPV6 if discovery else dl_type
    flow = random_flow(rng, dl_type or IP)
    while dl_type == IPV6 and (discovery != (flow["nw_proto"] == 58) or "nd_target" in shape and "nd_target" not in flow):
        flow = random_flow(rng, dl_type)
    if "tcp_flags" in shape:
        flow["nw_proto"], flow["tcp_flags"] = 6, rng.choice([0x002, 0x010, 0x012])
    fields = {f: (flow.get(f, 0) & mask, mask) for f, mask in shape.items()}
    rule = {"number": number, "priority": rng.choice([10, 10, 20, 30, rng.randint(1, 60000)]), "fields": fields,
            "dl_type": dl_type, "conj": []}
    if len(fields) < 2 and rng.random() < 0.8:
        rule["priority"] = rng.choice([0, 1, 10])  # catch-alls mostly at the bottom, as tables have them
    if conjunctive and fields and rng.random() < 0.6:
        rule["priority"] = rng.choice([20, 20, 30])
        rule["conj"] = [(c, rng.randint(1, 2), 2) for c in rng.sample([1, 2], rng.choice([1, 1, 2]))]
    elif conjunctive and rng.random() < 0.3:
        rule["fields"] = {"conj_id": (rng.choice([1, 2]), 0xFFFFFFFF)}
        rule["dl_type"] = None
    return rule


def rule_text(rule, with_actions):
    nw_proto = rule["fields"].get("nw_proto", (None, None))[0]
    parts = [text_of(f, v, m, rule["dl_type"], nw_proto) for f, (v, m) in sorted(rule["fields"].items(), key=order)]
    parts.append(f"priority={rule['priority']}")
    if not with_actions:
        return ",".join(parts)
    actions = ",".join(f"conjunction({c},{k}/{n})" for c, k, n in rule["conj"]) or "drop"
    return f"cookie={rule['number']:#x}," + ",".join(parts) + f",actions={actions}"


def order(item):
    """Prerequisites first."""
    return (item[0] != "dl_type", item[0] != "nw_proto", not item[0].startswith("tp_"), item[0])


def line_of(rule):
    fields = " ".join(f"{f}={v:x}/{m:x}" for f, (v, m) in sorted(rule["fields"].items()))
    conj = " ".join(f"conj={c}:{k - 1}/{n}" for c, k, n in rule["conj"])
    return " ".join(filter(None, [f"add {rule['number']} priority={rule['priority']}", fields, conj]))


def check_trace(switch, rng, flow):
    fields = sorted(flow.items(), key=order)
    spec = ",".join(text_of(f, v, (1 << WIDTH[f]) - 1, flow["dl_type"], flow["nw_proto"])
                    for f, v in fields if v or f != "vlan_tci")
    out = switch.trace(spec)
    # The last rule resubmitted to or matched: there is one table, and conjunctions print only what they lead to.
    cookies = re.findall(r"^ 0\. .*, cookie (0x[0-9a-f]+)", out, re.M) or re.findall(r"^ 0\. .*priority", out, re.M)
    megaflow = re.findall(r"^Megaflow: (.*)$", out, re.M)
    if not megaflow:
        raise SystemExit(f"no megaflow for {spec}:\n{out}")
    winner = int(cookies[-1], 16) if cookies else "none"
    masks = masks_of(megaflow[-1])
    fields = " ".join(f"{f}={v:x}" for f, v in sorted(flow.items()))
    looked_at = " ".join(f"{f}={m:x}" for f, m in sorted(masks.items()))
    print(f"trace {fields} -> {winner} {looked_at}")


def make_case(switch, rng, case):
    conjunctive = case % 5 == 4
    shapes = [random_shape(rng) for _ in range(rng.randint(1, 9))]
    print(f"\ncase {case}")
    switch.run("ovs-ofctl", "del-flows", "br0")
    time.sleep(0.05)
    rules, number = [], 1
    for _ in range(rng.choice([1, 1, 2, 3])):
        gone = [rule for rule in rules if rng.random() < 0.4] if rng.random() < 0.6 else []
        if gone:
            for rule in gone:
                switch.run("ovs-ofctl", "--strict", "del-flows", "br0", rule_text(rule, False))
                time.sleep(0.02)
                print(f"del {rule['number']}")
            rules = [rule for rule in rules if rule not in gone]
        added = []
        for _ in range(rng.choice([2, 5, 10, 20])):
            rule = random_rule(rng, shapes, number, conjunctive)
            same = lambda r: r["fields"] == rule["fields"] and r["priority"] == rule["priority"]
            if not any(map(same, rules + added)):
                added.append(rule)
                number += 1
        if added:
            switch.change([rule_text(rule, True) for rule in added])
            print(*map(line_of, added), sep="\n")
        rules += added
        for _ in range(10):
            check_trace(switch, rng, flow_near(rng, rules))


def main():
    seed, cases = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix=f"sluice-masks-{os.getpid()}-") as directory:
        switch = Switch(directory)
        try:
            version = switch.run("ovs-vswitchd", "--version").splitlines()[0]
            print(f"# {version}; generate.py {seed} {cases}")
            for case in range(cases):
                make_case(switch, rng, case)
        finally:
            switch.stop()


if __name__ == "__main__":
    main()
