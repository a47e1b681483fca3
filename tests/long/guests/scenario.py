#!/usr/bin/env python3
"""Real guests behind vhost-user ports: what `guests.sh` runs. Each step prints a line; the first that fails ends the run.

    scenario.py IMAGE DIRECTORY SLUICE [--compare TURNS]
"""

import argparse
import json
import pathlib
import sys

from guest import Guest, until
from stream import Stream
from switch import OVS_DPDK, Switch

FIRST, SECOND = "10.0.0.1", "10.0.0.2"
# What arrives before and after a step at least.
MIB = 4
MACS = {FIRST: "02:00:00:00:00:01", SECOND: "02:00:00:00:00:02"}


def tell(text: str) -> None:
    print(f"guests: {text}", flush=True)


class Pair:
    """A switch and two guests behind it."""

    def __init__(self, image: pathlib.Path, directory: pathlib.Path, switch: Switch):
        self.image, self.dir, self.switch = image, directory, switch
        self.guests: list[Guest] = []

    def __enter__(self) -> "Pair":
        try:
            self.first = self.add("vm1", FIRST)
            self.second = self.add("vm2", SECOND)
            # What a guest says before somebody listens is lost.
            self.first.open()
            self.second.open()
            self.first.boot(FIRST)
            self.second.boot(SECOND)
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, name: str, address: str, incoming: pathlib.Path | None = None) -> Guest:
        guest = Guest(self.image, self.dir / f"{name}.{self.switch.name}", MACS[address], incoming)
        self.guests.append(guest)
        until(f"the socket of {name}", guest.sock.exists, 60)
        self.switch.add_port(name, guest.sock)
        return guest

    def reaches(self, guest: Guest, address: str) -> None:
        until(f"{guest.sock.stem} reaches {address}", lambda: guest.succeeds(f"ping -q -c 1 -W 2 {address} > /dev/null"))

    def __exit__(self, *failure) -> None:
        for guest in self.guests:
            guest.end()
        self.switch.end()


def loses_nothing(pair: Pair) -> None:
    pair.reaches(pair.first, SECOND)
    output = pair.first.run(f"ping -q -i 0.05 -c 100 -W 2 {SECOND}")
    if " 0% packet loss" not in output:
        raise SystemExit(f"guests: pings were lost: {output}")
    tell("100 pings between two guests, none lost")


def rate(pair: Pair, reverse: bool, seconds: int) -> float:
    """What iperf3 over TCP shows from the first guest to the second, or back; Mbit/s."""
    pair.second.run("iperf3 -s -D -1 > /dev/null")
    until("iperf3's server", lambda: pair.second.succeeds("netstat -ltn | grep -q :5201"))
    way = " -R" if reverse else ""
    result = json.loads(pair.first.run(f"iperf3 -J -t {seconds}{way} -c {SECOND}"))
    return result["end"]["sum_received"]["bits_per_second"] / 1e6


def segments_are_left_to_the_switch(pair: Pair) -> None:
    features = pair.first.run("cat /sys/class/net/eth0/device/features").strip()
    # VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4: the characters are bits, the first is bit 0.
    if features[0] != "1" or features[11] != "1":
        raise SystemExit(f"guests: neither checksums nor segmentation are left to the switch: {features}")
    for reverse in (False, True):
        tell(f"iperf3 {'back' if reverse else 'there'}: {rate(pair, reverse, 5):.0f} Mbit/s")


def arrives_whole(source: Guest, sink: Guest, address: str, during=lambda stream: None) -> int:
    """Bytes that arrive, before, while and after something is done, as they were sent."""
    stream = Stream(source, sink, address)
    stream.go_on(MIB)
    during(stream)
    stream.go_on(MIB)
    return stream.finish()


def guest_reboots(pair: Pair) -> None:
    pair.second.say("reboot -f")
    pair.second.boot(SECOND)
    pair.reaches(pair.first, SECOND)
    size = arrives_whole(pair.first, pair.second, SECOND)
    tell(f"a guest that boots again is reached again, and gets {size} bytes as they were sent")


def switch_restarts(pair: Pair) -> None:
    def restart(_: Stream) -> None:
        pair.switch.stop()
        pair.switch.start()

    size = arrives_whole(pair.first, pair.second, SECOND, restart)
    pair.reaches(pair.second, FIRST)
    tell(f"the switch is started again while {size} bytes arrive as they were sent")


def guest_dies_and_another_comes(pair: Pair) -> None:
    pair.second.process.kill()
    pair.second.process.wait()
    until("its link is down", lambda: not pair.switch.link_is_up("vm2"))
    pair.second = Guest(pair.image, pair.second.sock, MACS[SECOND])
    pair.guests.append(pair.second)
    pair.second.open()
    pair.second.boot(SECOND)
    pair.reaches(pair.first, SECOND)
    size = arrives_whole(pair.first, pair.second, SECOND)
    tell(f"a guest that is killed and started again is reached again, and gets {size} bytes as they were sent")


def migrate(pair: Pair, name: str) -> Guest:
    """Moves the second guest to another QEMU, behind another port, while it runs. Without a dirty log QEMU refuses."""
    way = pair.dir / f"{name}.migration"
    here, there = pair.second, pair.add(name, SECOND, way)
    there.open()
    here.qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 30, "downtime-limit": 1000})
    here.qmp("migrate", uri=f"unix:{way}")

    def is_complete() -> bool:
        migration = here.qmp("query-migrate")
        if migration.get("status") == "failed":
            raise SystemExit(f"guests: the migration failed: {migration}")
        return migration.get("status") == "completed"

    until("the migration is complete", is_complete)
    here.end()
    pair.second = there
    return there


def migrates_without_a_byte_lost(pair: Pair) -> None:
    """The second guest moves while it receives a stream, and moves again while it sends one."""
    def move_sink(stream: Stream) -> None:
        stream.sink = migrate(pair, "vm3")

    def move_source(stream: Stream) -> None:
        stream.source = migrate(pair, "vm4")

    size = arrives_whole(pair.first, pair.second, SECOND, move_sink)
    tell(f"a live migration of the guest that receives {size} bytes as they were sent")
    size = arrives_whole(pair.second, pair.first, FIRST, move_source)
    tell(f"a live migration of the guest that sends {size} bytes as they arrive")
    pair.reaches(pair.first, SECOND)


STEPS = [loses_nothing, segments_are_left_to_the_switch, guest_reboots, switch_restarts, guest_dies_and_another_comes,
         migrates_without_a_byte_lost]


def compare(image: pathlib.Path, directory: pathlib.Path, sluice: str, turns: int) -> None:
    """iperf3 in turn through Sluice and Open vSwitch with userspace-tso-enable; medians, Mbit/s."""
    rates: dict[tuple[str, bool], list[float]] = {}
    for turn in range(turns):
        for name, command, with_dpdk in (("sluice", [sluice, "vswitchd"], False), ("ovs", [OVS_DPDK], True)):
            switch = Switch(directory / f"{name}-{turn}", f"{name}{turn}", command, with_dpdk)
            with Pair(image, directory, switch) as pair:
                pair.reaches(pair.first, SECOND)
                for reverse in (False, True):
                    rates.setdefault((name, reverse), []).append(rate(pair, reverse, 10))
    for (name, reverse), values in sorted(rates.items()):
        values.sort()
        tell(f"{name}, {'back' if reverse else 'there'}: median {values[len(values) // 2]:.0f} Mbit/s of {[round(v) for v in values]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("sluice")
    parser.add_argument("--compare", type=int, metavar="TURNS", help="measure rates beside Open vSwitch with DPDK instead")
    args = parser.parse_args()
    if args.compare:
        compare(args.image, args.directory, args.sluice, args.compare)
        return
    switch = Switch(args.directory / "sluice", "sluice", [args.sluice, "vswitchd"], False)
    with Pair(args.image, args.directory, switch) as pair:
        for step in STEPS:
            step(pair)
    print(f"guests: {len(STEPS)} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(main())
