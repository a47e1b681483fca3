"""TCP between two hosts on two nodes, through a Geneve tunnel between their switches, measured by iperf3.

tunnel_tcp.py DIRECTORY PREFIX SWITCH PORT_TYPE SECONDS [--no-offloads]     a line for what was shown; the measurement on standard error

Each node is a network namespace with a database server, a switch, a host behind `br-int` and the wire to the other node in `br-ex`. Ports are of
PORT_TYPE: system or afxdp. Hosts leave checksums and segments to the switch; with --no-offloads they do not: Open vSwitch's userspace
datapath drops what has no checksum yet.
"""
import json, os, pathlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "privileged/common/ovn"))
from fleet import Daemons, wait_for_socket
from hosts import Host, Namespace, eventually, run

# Bytes that go to the other host and come back, and are compared.
COMPARED = 8 << 20
IPERF_PORT = 5201

class Node:
    """A namespace with a switch, whose tunnel ends at 192.168.0.NUMBER."""

    def __init__(self, directory, prefix, number, daemons, switch):
        self.number, self.directory = number, f"{directory}/n{number}"
        os.mkdir(self.directory)
        self.namespace, self.host = Namespace(f"{prefix}-n{number}"), Host(prefix, f"h{number}", f"02:00:00:00:00:0{number}")
        file, self.socket = f"{self.directory}/conf.db", f"{self.directory}/db.sock"
        run("ovsdb-tool", "create", file, "/usr/share/openvswitch/vswitch.ovsschema")
        server = daemons.start(self.directory, self.namespace, "ovsdb-server", file, f"--remote=punix:{self.socket}", "--pidfile", "-vconsole:off")
        wait_for_socket(self.socket, server)
        self.vsctl("--no-wait", "init")
        self.switch = daemons.start(self.directory, self.namespace, switch, f"unix:{self.socket}", "--pidfile", "-vconsole:off", "--log-file")

    def vsctl(self, *command): return run("ovs-vsctl", f"--db=unix:{self.socket}", "--timeout=60", *command)

    def connect(self, kind, offloads):
        port = lambda bridge, name, *more: ["--", "add-port", bridge, name, "--", "set", "interface", name, *more]
        bridge = lambda name: ["--", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"]
        self.namespace.connect("host", self.host, "eth0")
        self.host.configure(f"10.0.0.{self.number}/24")
        if not offloads: self.host.run("ethtool", "-K", "eth0", "tx", "off")
        remote = f"options:remote_ip=192.168.0.{3 - self.number}"
        self.vsctl(*bridge("br-ex")[1:], *port("br-ex", "wire", f"type={kind}"), *bridge("br-int"), *port("br-int", "host", f"type={kind}"),
                   *port("br-int", "geneve0", "type=geneve", remote, "options:key=7"))
        self.namespace.ip("addr", "add", f"192.168.0.{self.number}/24", "dev", "br-ex")
        self.namespace.ip("link", "set", "br-ex", "up")

    def cpu_s(self):
        words = pathlib.Path(f"/proc/{self.switch.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

def measure(nodes, seconds, daemons, directory):
    """What iperf3 says after some seconds, with the CPU time of both switches."""
    a, b = (node.host for node in nodes)
    daemons.start(directory, b, "iperf3", "-s", "-1")
    listens = lambda: f":{IPERF_PORT} " in b.run("ss", "-Hltn")
    if not eventually(listens, True): raise RuntimeError("iperf3 does not listen")
    before = [node.cpu_s() for node in nodes]
    said = json.loads(a.run("iperf3", "-c", "10.0.0.2", "-t", str(seconds), "-J"))
    spent = sum(node.cpu_s() - was for node, was in zip(nodes, before))
    sent, received = said["end"]["sum_sent"], said["end"]["sum_received"]
    return f"{received['bits_per_second'] / 1e6:.0f} Mbit/s, {sent['retransmits']} segments sent again, {spent / received['bytes'] * 1e9:.2f} CPU s of both switches a GB"

def main(directory, prefix, switch, kind, seconds, *options):
    daemons = Daemons()
    try:
        nodes = [Node(directory, prefix, number, daemons, switch) for number in (1, 2)]
        nodes[0].namespace.connect("wire", nodes[1].namespace, "wire")
        for node in nodes: node.connect(kind, "--no-offloads" not in options)
        a, b = (node.host for node in nodes)
        if eventually(lambda: a.ping("10.0.0.2"), "answered with ttl 64") != "answered with ttl 64": raise RuntimeError("no ping gets through")
        b.serve(7)
        print(f"{COMPARED} bytes there and back: {a.tcp('10.0.0.2', 7, COMPARED)}")
        print(measure(nodes, int(seconds), daemons, directory), file=sys.stderr)
    finally:
        daemons.end()
        for namespace in Namespace.made: namespace.remove()

main(*sys.argv[1:])
