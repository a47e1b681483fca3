#!/usr/bin/env python3
"""Random options of Geneve, of 0 to 124 bytes, through random rules of Open vSwitch and of Sluice: what leaves each port is the same.

geneve_options.py SLUICE [--rounds N] [--packets N] [--seed N]     a line for what differs, then a line that ci.sh counts

Each round maps other options to fields and adds other rules: they match options whole, in part, or that they are there; they set, move and
delete options, and move them to and from registers. Then packets with options of few values come. A packet that a rule sends back into its
tunnel shows the options that it has; one that leaves by p2 shows bits of them in its addresses. At a round's end both tell the same rules,
with the same counters.
"""
import argparse, os, random, re, struct, subprocess, sys, tempfile, time
from tunnels import PATIENCE, Packets, Switch, WORLDS

WORLD = "options"
WORLDS[WORLD] = ("46", 0, [("geneve", 14, "key=flow"), ("geneve", 18, "key=7 csum=true")])
PORTS = (14, 34, 18, 38)
# What all options of a packet have room for, in bytes: Open vSwitch aborts where rules give a packet more.
SPACE = 252

class Round:
    """The options, values and rules of a round."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        lengths, left = [], SPACE
        for _ in range(r.randrange(2, 7)):
            length = 4 * r.choice((r.randrange(32), r.randrange(3), r.randrange(24, 32)))
            if 4 + length <= left: lengths.append(length); left -= 4 + length
        fields = sorted(r.sample(range(64), len(lengths)))
        kinds = r.sample([(c, t) for c in (0x102, 0x103, 0xffff) for t in (0, 1, 0x7f, 0x80, 0xff)], len(lengths))
        self.options = [(field, *kind, length) for field, kind, length in zip(fields, kinds, lengths)]
        # Few values, which differ in few places, so that rules meet packets.
        self.values = {}
        for field, _, _, length in self.options:
            base = r.choice((bytes(length), r.randbytes(length), b"\xff" * length))
            self.values[field] = [base, self.changed(base), self.changed(base)]

    def changed(self, value):
        value = bytearray(value)
        for _ in range(self.random.randrange(1, 4) if value else 0): value[self.random.randrange(len(value))] ^= 1 << self.random.randrange(8)
        return bytes(value)

    def mapped(self): return ",".join(f"{{class={c:#x},type={t:#x},len={l}}}->tun_metadata{i}" for i, c, t, l in self.options)

    def value(self, field): return self.random.choice(self.values[field])

    def mask(self, length):
        """Some bytes, some bits, the beginning, the end."""
        r = self.random
        mask = bytearray(length)
        how = r.randrange(4)
        if how == 0: mask[r.randrange(length)] = r.randrange(1, 256)
        elif how == 1: mask[:r.randrange(1, length + 1)] = b"\xff" * length
        elif how == 2: mask[r.randrange(length):] = b"\xff" * length
        else: mask = bytearray(r.choice((0, 0xff, r.randrange(256))) for _ in range(length))
        del mask[length:]
        return bytes(mask)

    def bits(self, *lengths):
        """A number of bits, and where they begin in values of such lengths."""
        r, most = self.random, min(lengths) * 8
        n = r.choice((1, r.randrange(1, min(most, 64) + 1), r.randrange(1, most + 1), most))
        return n, [r.randrange(length * 8 - n + 1) for length in lengths]

    def match(self):
        """A condition for each of some options, and the options that a packet then has."""
        r, texts, there = self.random, [], set()
        for field, _, _, length in r.sample(self.options, r.randrange(min(3, len(self.options)) + 1)):
            name, value = f"tun_metadata{field}", self.value(field)
            there.add(field)
            how = r.randrange(3) if length else 0
            if how == 0: texts.append(name)
            elif how == 1: texts.append(f"{name}=0x{value.hex()}")
            else:
                mask = self.mask(length)
                texts.append(f"{name}=0x{bytes(v & m for v, m in zip(value, mask)).hex()}/0x{mask.hex()}")
        return texts, there

    def actions(self, there):
        """Changes of options, of those that are there or are set whole: of others Open vSwitch shows what is in its memory."""
        r, out, there = self.random, [], set(there)
        lengths = {field: length for field, _, _, length in self.options}
        for _ in range(r.randrange(5)):
            field = r.choice(list(lengths))
            known = sorted(i for i in there if lengths[i])
            how = r.randrange(6)
            if how == 0 and field in there:
                out.append(f"delete_field:tun_metadata{field}")
                there.discard(field)
            elif how <= 2 and lengths[field]:
                value = f"0x{self.value(field).hex()}"
                if field in there and r.randrange(2):
                    mask = self.mask(lengths[field])
                    if not any(mask): continue
                    value = f"0x{bytes(v & m for v, m in zip(bytes.fromhex(value[2:]), mask)).hex()}/0x{mask.hex()}"
                out.append(f"set_field:{value}->tun_metadata{field}")
                there.add(field)
            elif how == 3 and known:
                source, target = r.choice(known), r.choice(known)
                n, (at, to) = self.bits(lengths[source], lengths[target])
                if source != target: out.append(f"move:tun_metadata{source}[{at}..{at + n - 1}]->tun_metadata{target}[{to}..{to + n - 1}]")
            elif how == 4 and known:
                source, register = r.choice(known), r.choice(("xxreg0", "xxreg1"))
                n, (at, to) = self.bits(lengths[source], 16)
                out.append(f"move:tun_metadata{source}[{at}..{at + n - 1}]->{register}[{to}..{to + n - 1}]")
            elif how == 5 and known:
                target, register = r.choice(known), r.choice(("xxreg0", "xxreg1"))
                n, (to, at) = self.bits(lengths[target], 16)
                out.append(f"move:{register}[{at}..{at + n - 1}]->tun_metadata{target}[{to}..{to + n - 1}]")
        for address in ("eth_src", "eth_dst"):
            known = sorted(i for i in there if lengths[i])
            if known:
                source = r.choice(known)
                n, (at, to) = self.bits(lengths[source], 6)
                out.append(f"move:tun_metadata{source}[{at}..{at + n - 1}]->{address}[{to}..{to + n - 1}]")
        return [*out, "output:2", r.choice(("IN_PORT", "output:14", "output:38"))]

    def rules(self):
        out = [f"priority=1,in_port={port},actions=output:2,IN_PORT" for port in PORTS]
        for priority in range(2, self.random.randrange(8, 40)):
            texts, there = self.match()
            port = self.random.choice((*PORTS, None))
            head = [f"priority={priority}", *([f"in_port={port}"] if port else []), *texts]
            out.append(",".join(head) + ",actions=" + ",".join(self.actions(there if texts else set())))
        return out

    def header(self):
        """The options of a packet: mapped ones, seldom unknown ones, one twice, or of a wrong length."""
        r, out = self.random, b""
        for _ in range(r.randrange(6)):
            field, klass, kind, length = r.choice(self.options)
            value = self.value(field)
            if r.randrange(40) == 0: klass, kind, value = 0x104, r.choice((1, 1, 0x81)), bytes(4 * r.randrange(8))
            elif r.randrange(60) == 0: value = bytes(r.choice((4, 8, 124)))
            if len(out) + 4 + len(value) <= 252: out += struct.pack(">HBB", klass, kind, len(value) // 4) + value
        return out

class OptionPackets(Packets):
    """Packets with the options of a round."""

    def __init__(self, round_):
        super().__init__(round_.random.random(), WORLD)
        self.round = round_

    def options(self): return self.round.header()
    def next(self): return "p1", self.outer(self.random.choice(self.families) == "6")[0]

def tables(switch, is_counted):
    """The rules as they are told, with their counters if those count."""
    # One round may have begun before the last packet.
    for _ in range(2): switch.command("revalidator/wait")
    text = switch.ofctl("dump-flows", "int", "-OOpenFlow15", "--no-names")
    names = "duration|idle_age|hard_age" + ("" if is_counted else "|n_packets|n_bytes")
    return sorted(re.sub(rf"({names})=[^,]*, ?|^ ", "", line) for line in text.splitlines() if "actions" in line)

def unmap(switch):
    """Open vSwitch refuses it until it has forgotten the rules that were deleted."""
    end = time.monotonic() + PATIENCE
    while True:
        try: return switch.ofctl("del-tlv-map", "int")
        except subprocess.CalledProcessError:
            if time.monotonic() > end: raise
            time.sleep(0.1)

def play(round_, switches, packets):
    """What differs in a round, and how many packets left Open vSwitch."""
    for switch in switches:
        switch.ofctl("del-flows", "int")
        unmap(switch)
        switch.ofctl("add-tlv-map", "int", round_.mapped())
    rules = round_.rules()
    for switch in switches: switch.rules("int", rules, "-OOpenFlow15")
    differs, left, is_counted, source = [], 0, True, OptionPackets(round_)
    for n in range(packets):
        port, frame = source.next()
        theirs, ours = (switch.receive(port, frame) for switch in switches)
        if theirs != ours:
            # Open vSwitch's megaflow of a packet with wrong options drops those with right ones, too: without megaflows it must agree.
            is_counted = False
            for switch in switches: switch.command("revalidator/purge")
            theirs, ours = (switch.receive(port, frame) for switch in switches)
        left += bool(theirs["p1"] or theirs["p2"])
        if theirs != ours: differs.append(f"packet {n}: {frame.hex()}\n" + "\n".join(f"  {who} {name}: " + " ".join(f.hex() for f in frames) for who, all_ in (("ovs", theirs), ("sluice", ours)) for name, frames in all_.items()))
    # Of packets that were sent twice the counters differ by what megaflows did to the first.
    for theirs, ours in zip(*(tables(switch, is_counted) for switch in switches)):
        if theirs != ours: differs.append(f"rule:\n  ovs    {theirs}\n  sluice {ours}")
    return differs, left

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--packets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = left = 0
    with tempfile.TemporaryDirectory(prefix="sluice-options-") as directory:
        switches = []
        try:
            for name, program in (("ovs", "/usr/sbin/ovs-vswitchd"), ("sluice", options.sluice)): switches.append(Switch(f"{directory}/{name}", program, WORLD))
            for n in range(options.rounds):
                differs, some = play(Round(f"{options.seed} {n}"), switches, options.packets)
                for text in differs[:3]: print(f"round {n}, {text}")
                failed, left = failed + bool(differs), left + some
        finally:
            for switch in switches: switch.end()
    # A run in which nothing leaves shows nothing.
    failed += left * 4 < options.rounds * options.packets
    print(f"geneve options: in {options.rounds} rounds of {options.packets} packets {left} left Open vSwitch")
    print(f"lane differential-geneve-options: {options.rounds - min(failed, options.rounds)} passed, {failed} failed, 0 skipped")
    return failed > 0

if __name__ == "__main__": sys.exit(main())
