"""The logical network: two switches and a router over three chassis, a way out, and hosts on all of them."""
from hosts import Host, Namespace, eventually
from fleet import Central, Chassis

# name: (logical switch, chassis, address behind the network's)
HOSTS = {"a1": ("ls0", 1, 11), "a2": ("ls0", 2, 12), "a3": ("ls0", 3, 13), "b1": ("ls1", 1, 11), "b2": ("ls1", 2, 12), "b3": ("ls1", 3, 13)}
NETWORKS = {"ls0": ("10.0.0", "fd00:a"), "ls1": ("10.0.1", "fd00:b")}
CHASSIS = (1, 2, 3)

ROUTER = """
ls-add ls0
ls-add ls1
ls-add public
lr-add lr
lrp-add lr lr-ls0 02:00:00:00:fe:00 10.0.0.1/24 fd00:a::1/64
lrp-add lr lr-ls1 02:00:00:00:fe:01 10.0.1.1/24 fd00:b::1/64
lrp-add lr lr-public 02:00:00:00:fe:02 172.16.0.1/24
lsp-add public ln-public
lsp-set-type ln-public localnet
lsp-set-addresses ln-public unknown
lsp-set-options ln-public network_name=public
lrp-set-gateway-chassis lr-public hv3 20
lrp-set-gateway-chassis lr-public hv2 10
"""

class Network:
    """All of it, running."""

    def __init__(self, daemons, directory, prefix, switch, checksums):
        self.daemons = daemons
        self.fabric = Namespace(f"{prefix}-fabric")
        self.fabric.ip("link", "add", "br0", "type", "bridge")
        self.fabric.ip("link", "set", "br0", "up")
        self.checksums = checksums
        self.prefix = prefix
        self.chassis = {n: Chassis(directory, prefix, n, self.fabric) for n in CHASSIS}
        self.hosts = {}
        self.outside = self.make_outside()
        self.central = Central(f"{directory}/central", self.daemons)
        for chassis in self.chassis.values(): chassis.start(self.daemons, self.central, switch)
        self.configure()

    def make_host(self, name, mac):
        host = self.hosts[name] = Host(self.prefix, name, mac)
        return host

    def without_offload(self, host):
        if not self.checksums: host.run("ethtool", "-K", "eth0", "tx", "off")

    def make_outside(self):
        """A host of the provider's network, on the fabric's wire."""
        host = self.make_host("out", "02:00:00:00:00:64")
        self.fabric.connect("out", host, "eth0")
        self.fabric.ip("link", "set", "out", "master", "br0")
        host.configure("172.16.0.100/24", "192.168.0.100/24")
        self.without_offload(host)
        return host

    def configure(self):
        lines = [ROUTER]
        for switch in NETWORKS:
            lines += [f"lsp-add {switch} {switch}-lr", f"lsp-set-type {switch}-lr router", f"lsp-set-addresses {switch}-lr router",
                      f"lsp-set-options {switch}-lr router-port=lr-{switch}"]
        lines += ["lsp-add public public-lr", "lsp-set-type public-lr router", "lsp-set-addresses public-lr router",
                  "lsp-set-options public-lr router-port=lr-public nat-addresses=router"]
        for name, (switch, chassis, last) in HOSTS.items():
            v4, v6 = NETWORKS[switch]
            mac = f"02:00:00:00:{switch[-1:]:0>2}:{last:02x}"
            host = self.make_host(name, mac)
            self.chassis[chassis].plug(host)
            host.configure(f"{v4}.{last}/24", f"{v6}::{last}/64", router=[f"{v4}.1", f"{v6}::1"])
            self.without_offload(host)
            host.address, host.address6, host.chassis = f"{v4}.{last}", f"{v6}::{last}", self.chassis[chassis]
            lines += [f"lsp-add {switch} {name}", f"lsp-set-addresses {name} {mac}\\ {v4}.{last}\\ {v6}::{last}"]
        self.nbctl("\n".join(lines))
        for name, host in self.hosts.items():
            if name == "out": continue
            if eventually(lambda: host.chassis.installed(name), '"true"', 60) != '"true"':
                raise RuntimeError(f"{name}: {host.chassis.name} has not installed it after a minute")

    def nbctl(self, script, wait=True): return self.central.nbctl(script, wait)
