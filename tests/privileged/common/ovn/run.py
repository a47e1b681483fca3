"""OVN over a fleet of switches: what packets between real stacks show of each of its features.

run.py DIRECTORY PREFIX SWITCH [--no-checksums]     one line for each thing shown; fails if one is not as it has to be

Files go to DIRECTORY, names of namespaces begin with PREFIX, SWITCH is the program in ovs-vswitchd's place. With
--no-checksums hosts complete their checksums themselves: Open vSwitch's userspace datapath does not.
"""
import struct, sys, time, traceback
sys.dont_write_bytecode = True
from fleet import Daemons
from hosts import Namespace, eventually, frames_at, pending, run
from network import HOSTS, Network

class Shown:
    """What has been shown."""
    failed = 0

    def is_(self, what, got, wanted):
        Shown.failed += got != wanted
        print(f"{what}: {got}" if got == wanted else f"FAILED: {what}: {got}, not: {wanted}", flush=True)

    def becomes(self, what, check, wanted, seconds=20):
        """The same of something that may take a while."""
        self.is_(what, eventually(check, wanted, seconds), wanted)

shown = Shown()

def geneve(frames):
    """Of frames, those of Geneve but BFD's: (source, destination, network, options)."""
    found = set()
    for f in frames:
        if f[12:14] != b"\x08\0" or f[23] != 17 or f[36:38] != b"\x17\xc1": continue
        words, network = f[42] & 0x3f, int.from_bytes(f[46:49], "big")
        inner = f[50 + 4 * words:]
        # Hosts watch each other from the moment on that the gateway is known, in network 0 and without options.
        if inner[23] == 17 and inner[36:38] == b"\x0e\xc8": continue
        found.add((f[29], f[33], network, f[50:50 + 4 * words].hex()))
    return found

def switching(n):
    """Within a logical switch, between chassis: Geneve with OVN's option on the wire."""
    wire = frames_at(n.fabric, "hv1")
    for other in ("a2", "a3"):
        shown.becomes(f"a1 pings {other}", lambda: n.hosts["a1"].ping(n.hosts[other].address), "answered with ttl 64")
    pings = [p for p in geneve(pending(wire)) if p[:2] in ((1, 2), (2, 1))]
    kinds = {(len(options), options[:8]) for *_, options in pings}
    shown.is_("Geneve options between hv1 and hv2 (class, type, words)", sorted(kinds), [(16, "01028001")])
    shown.is_("a1 pings a2 by IPv6", n.hosts["a1"].ping(n.hosts["a2"].address6), "answered with ttl 64")
    wire.close()

def routing(n):
    """Between logical switches."""
    for one, other in (("a1", "b1"), ("a1", "b2"), ("a3", "b2"), ("b3", "a2")):
        shown.becomes(f"{one} pings {other}", lambda: n.hosts[one].ping(n.hosts[other].address), "answered with ttl 63")
    shown.becomes("a1 pings b2 by IPv6", lambda: n.hosts["a1"].ping(n.hosts["b2"].address6), "answered with ttl 63")
    shown.is_("a1 pings its router", n.hosts["a1"].ping("10.0.0.1"), "answered with ttl 254")
    shown.is_("a1 pings b2 with ttl 1", n.hosts["a1"].ping("10.0.1.12", "-t", "1"), "10.0.0.1 says: Time to live exceeded")
    shown.is_("a1 pings an address that is not there", n.hosts["a1"].ping("10.9.9.9"), "no answer")

def streams(n):
    """TCP and UDP through tunnels, and every byte of a megabyte there and back."""
    for name in HOSTS: n.hosts[name].serve(8080, 9000)
    shown.is_("a1 to b2, a megabyte", n.hosts["a1"].tcp("10.0.1.12", 8080, send=1 << 20), "b2 sees 10.0.0.11, all came back")
    shown.is_("a1 to a1's neighbour b1, a megabyte", n.hosts["a1"].tcp("10.0.1.11", 8080, send=1 << 20), "b1 sees 10.0.0.11, all came back")
    shown.is_("b3 to a2 by UDP", n.hosts["b3"].udp("10.0.0.12", 9000), "a2 sees 10.0.1.13")

def acls(n):
    """Stateful rules on b2: 8080 is allowed, 8081 dropped and logged, 8082 rejected, all else of TCP and UDP dropped."""
    n.hosts["b2"].serve(8081, 8082, 8083)
    n.nbctl("""
        acl-add ls1 to-lport 2000 'outport == "b2" && tcp.dst == 8080' allow-related
        --log --severity=info --name=no-8081 acl-add ls1 to-lport 2000 'outport == "b2" && tcp.dst == 8081' drop
        acl-add ls1 to-lport 2000 'outport == "b2" && (tcp.dst == 8082 || udp.dst == 8082)' reject
        acl-add ls1 to-lport 1000 'outport == "b2" && ip4 && (tcp || udp)' drop
        acl-add ls1 from-lport 1000 'inport == "b2" && ip' allow-related""")
    for source in ("a1", "a2", "b3"):
        host = n.hosts[source]
        shown.is_(f"{source} to b2, allowed", host.tcp("10.0.1.12", 8080), f"b2 sees {host.address}")
        shown.is_(f"{source} to b2, dropped and logged", host.tcp("10.0.1.12", 8081), "no answer")
        shown.is_(f"{source} to b2, rejected", host.tcp("10.0.1.12", 8082), "refused")
        shown.is_(f"{source} to b2, dropped", host.tcp("10.0.1.12", 8083), "no answer")
    shown.is_("a1 to b2 by UDP, rejected", n.hosts["a1"].udp("10.0.1.12", 8082), "refused")
    shown.is_("b2 to a1, and the answer, which no rule but the connection allows", n.hosts["b2"].tcp("10.0.0.11", 8080), "a1 sees 10.0.1.12")
    logged = 'name="no-8081", verdict=drop, severity=info'
    shown.becomes("the drop is in the log of hv2", lambda: n.chassis[2].log_has(logged), True)
    n.nbctl("acl-del ls1")
    shown.is_("a1 to b2, without rules", n.hosts["a1"].tcp("10.0.1.12", 8083), "b2 sees 10.0.0.11")

def port_security(n):
    """Addresses that are not a port's."""
    n.hosts["a2"].ip("addr", "add", "10.0.0.99/24", "dev", "eth0")
    spoofed = lambda: n.hosts["a2"].ping("10.0.0.13", "-I", "10.0.0.99")
    shown.becomes("a2 pings from a second address", spoofed, "answered with ttl 64")
    n.nbctl('lsp-set-port-security a2 "02:00:00:00:00:0c 10.0.0.12"')
    shown.is_("the same with port security", spoofed(), "no answer")
    shown.is_("a2 pings from its own", n.hosts["a2"].ping("10.0.0.13"), "answered with ttl 64")
    n.hosts["a2"].ip("addr", "del", "10.0.0.99/24", "dev", "eth0")
    n.nbctl('lsp-set-port-security a2 ""')

def nat(n):
    """The way out by the gateway's chassis, and floating addresses: one at the gateway, one where its host is."""
    n.outside.serve(8080, 9000)
    n.nbctl("""
        lr-nat-add lr snat 172.16.0.1 10.0.0.0/16
        lr-nat-add lr dnat_and_snat 172.16.0.11 10.0.0.11
        lr-nat-add lr dnat_and_snat 172.16.0.12 10.0.1.12 b2 02:00:00:00:fd:12""")
    shown.becomes("a2 pings the outside", lambda: n.hosts["a2"].ping("172.16.0.100"), "answered with ttl 63")
    shown.becomes("a2 to the outside", lambda: n.hosts["a2"].tcp("172.16.0.100", 8080), "out sees 172.16.0.1")
    shown.becomes("b1 to the outside by UDP", lambda: n.hosts["b1"].udp("172.16.0.100", 9000), "out sees 172.16.0.1")
    shown.becomes("a1 to the outside", lambda: n.hosts["a1"].tcp("172.16.0.100", 8080), "out sees 172.16.0.11")
    shown.becomes("b2 to the outside", lambda: n.hosts["b2"].tcp("172.16.0.100", 8080), "out sees 172.16.0.12")
    shown.becomes("the outside to a1's floating address", lambda: n.outside.tcp("172.16.0.11", 8080), "a1 sees 172.16.0.100")
    shown.becomes("the outside to b2's floating address", lambda: n.outside.tcp("172.16.0.12", 8080), "b2 sees 172.16.0.100")
    shown.becomes("a3 to b2's floating address", lambda: n.hosts["a3"].tcp("172.16.0.12", 8080), "b2 sees 172.16.0.1")
    known = {line.split()[0]: line.split()[line.split().index("lladdr") + 1] for line in n.outside.ip("neigh").splitlines() if "lladdr" in line}
    shown.is_("whose address the outside knows for a1's", known.get("172.16.0.11"), "02:00:00:00:fe:02")
    shown.is_("whose address the outside knows for b2's", known.get("172.16.0.12"), "02:00:00:00:fd:12")

def load_balancers(n):
    """On a switch and on the router: both backends, one with affinity, the living one with health checks."""
    def backends(source, address, times=16):
        answers = {source.tcp(address, 80) for _ in range(times)}
        return sorted(answer.split()[0] if " sees " in answer else answer for answer in answers)
    n.nbctl("""
        lb-add lb0 10.0.9.100:80 10.0.0.12:8080,10.0.1.13:8080 tcp
        lb-add lb1 172.16.0.50:80 10.0.0.12:8080,10.0.1.13:8080 tcp
        lb-add lb2 10.0.9.100:53 10.0.0.13:9000 udp
        ls-lb-add ls0 lb0
        ls-lb-add ls0 lb2
        lr-lb-add lr lb1""")
    a1 = n.hosts["a1"]
    shown.is_("a1 to a balanced address", backends(a1, "10.0.9.100", 24), ["a2", "b3"])
    shown.is_("a1 to a balanced address by UDP", a1.udp("10.0.9.100", 53), "a3 sees 10.0.0.11")
    shown.is_("the outside to a balanced address", backends(n.outside, "172.16.0.50", 24), ["a2", "b3"])
    n.nbctl("set load_balancer lb0 options:affinity_timeout=60")
    # OVN 23.03 has the packet that teaches the affinity go nowhere: the first connection waits for its second SYN.
    a1.tcp("10.0.9.100", 80)
    shown.is_("the number of backends with affinity", len(backends(a1, "10.0.9.100")), 1)
    n.nbctl("""
        remove load_balancer lb0 options affinity_timeout
        --id=@hc create load_balancer_health_check vip='"10.0.9.100:80"' options:interval=1 options:timeout=1 options:success_count=1 options:failure_count=1
        set load_balancer lb0 health_check=@hc ip_port_mappings:10.0.0.12=a2:10.0.0.254 ip_port_mappings:10.0.1.13=b3:10.0.1.254""")
    shown.becomes("a1 to a balanced address whose backends are watched", lambda: backends(a1, "10.0.9.100", 12), ["a2", "b3"])
    n.hosts["a2"].stop_serving(8080)
    shown.becomes("the same when a2 has stopped", lambda: backends(a1, "10.0.9.100", 12), ["b3"])
    n.hosts["a2"].serve(8080)
    shown.becomes("the same when a2 is back", lambda: backends(a1, "10.0.9.100", 12), ["a2", "b3"])
    n.nbctl("lb-del lb0\nlb-del lb1\nlb-del lb2")

def services(n):
    """What controllers answer themselves: DNS, DHCP, router advertisements."""
    zone = run("ovn-nbctl", f"--db={n.central.at('nb')}", "create", "dns", "records:a2.example=10.0.0.12").strip()
    n.nbctl(f"set logical_switch ls0 dns_records={zone}")
    def asked(name):
        try: return n.hosts["a1"].run("dig", "+short", "+noedns", "+time=1", "+tries=1", "@10.0.0.1", name).strip()
        except RuntimeError: return "no answer"
    shown.becomes("a1 asks for a name", lambda: asked("a2.example"), "10.0.0.12")
    options = run("ovn-nbctl", f"--db={n.central.at('nb')}", "create", "dhcp_options", "cidr=10.0.0.0/24", "options:server_id=10.0.0.1",
                  "options:server_mac=02:00:00:00:fe:00", "options:lease_time=3600", "options:router=10.0.0.1", "options:mtu=1400",
                  "options:dns_server=10.0.0.1").strip()
    n.nbctl(f"""
        lsp-add ls0 d2
        lsp-set-addresses d2 "02:00:00:00:00:32 10.0.0.50"
        lsp-set-dhcpv4-options d2 {options}
        set logical_router_port lr-ls0 ipv6_ra_configs:address_mode=slaac ipv6_ra_configs:mtu=1400""")
    host = n.make_host("d2", "02:00:00:00:00:32")
    n.chassis[2].plug(host)
    host.configure()
    n.without_offload(host)
    def lease():
        try: return host.run("udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "3", "-T", "1", "-s", f"{sys.path[0]}/lease.sh").splitlines()[-1]
        except RuntimeError as error: return str(error).splitlines()[-1]
    shown.becomes("d2 gets a lease", lease, "10.0.0.50/24 by 10.0.0.1, 3600 s, dns 10.0.0.1")
    shown.becomes("d2 pings a1 with it", lambda: host.ping("10.0.0.11"), "answered with ttl 64")
    prefix = lambda: any("inet6 fd00:a::" in line for line in host.ip("-6", "addr", "show", "dev", "eth0").splitlines())
    shown.becomes("d2 has an address by router advertisement", prefix, True)

def marks(n):
    """QoS rules mark packets; too long ones are told so at the way out."""
    n.nbctl("""qos-add ls1 from-lport 100 'inport == "b1" && udp.dst == 9000' dscp=46
        lrp-set-options lr-public gateway_mtu=1000""")
    shown.becomes("b1 to a3 by UDP, marked", lambda: n.hosts["b1"].udp("10.0.0.13", 9000), "a3 sees 10.0.1.11 tos 184")
    shown.is_("b2 to a3 by UDP, not marked", n.hosts["b2"].udp("10.0.0.13", 9000), "a3 sees 10.0.1.12")
    shown.becomes("a2 pings the outside with 1200 bytes", lambda: n.hosts["a2"].ping("172.16.0.100", "-M", "do", "-s", "1200"),
                  "10.0.0.1 says: Frag needed and DF set (mtu = 1000)")
    n.nbctl("qos-del ls1\nremove logical_router_port lr-public options gateway_mtu")

def mirrors(n):
    """What a port gets, as copies in GRE and in ERSPAN to a collector."""
    collector = n.outside.sniff(47)
    # Behind IPv4: GRE with a key; GRE with a number and version 1 of ERSPAN.
    for kind, protocol, headers in (("gre", b"\x65\x58", 8), ("erspan", b"\x88\xbe", 16)):
        n.nbctl(f"mirror-add m0 {kind} 7 to-lport 192.168.0.100\nlsp-attach-mirror a1 m0")
        def copies():
            pending(collector)
            n.hosts["a1"].ping("10.0.0.13")
            time.sleep(0.1)
            # Ethernet with IPv4, ICMP.
            inner = [p[20 + headers:] for p in pending(collector) if p[22:24] == protocol]
            return sorted({i[34] for i in inner if i[12:14] == b"\x08\0" and i[23] == 1})
        shown.becomes(f"kinds of ICMP that the collector gets of a1's ping by {kind}", copies, [0])
        n.nbctl("lsp-detach-mirror a1 m0\nmirror-del m0")
    collector.close()

def refusals(n):
    """Of all that the controllers asked of the switches."""
    for number, chassis in n.chassis.items(): shown.is_(f"hv{number} has refused something", chassis.log_has("OpenFlow error"), False)

def failover(n):
    """The gateway's chassis loses its power: the other one takes over by BFD."""
    def state():
        words = n.chassis[2].appctl("bfd/show").splitlines()
        return any("Remote Session State: up" in line for line in words)
    shown.becomes("hv2 has a BFD session that is up", state, True)
    shown.is_("a1 pings the outside", n.hosts["a1"].ping("172.16.0.100"), "answered with ttl 63")
    n.chassis[3].kill()
    begin, answers = time.monotonic(), []
    def ping():
        answers.append(n.hosts["a1"].ping("172.16.0.100"))
        return answers[-1]
    back = eventually(ping, "answered with ttl 63", 30)
    lost = time.monotonic() - begin
    shown.is_("a1 pings the outside when hv3 is dead", back, "answered with ttl 63")
    shown.is_("after less than 10 s", lost < 10, True)
    print(f"({len(answers) - 1} pings lost in {lost:.1f} s)", file=sys.stderr)

FEATURES = (switching, routing, streams, acls, port_security, nat, load_balancers, services, marks, mirrors, refusals, failover)

def show(feature, network):
    begin = time.monotonic()
    print(f"-- {feature.__name__}: {' '.join(feature.__doc__.split())}", flush=True)
    try: feature(network)
    except Exception as error:
        Shown.failed += 1
        print(f"FAILED: {feature.__name__}: {error}", flush=True)
        traceback.print_exc()
    print(f"({feature.__name__}: {time.monotonic() - begin:.1f} s)", file=sys.stderr)

def main(directory, prefix, switch, *options):
    wanted = [option for option in options if not option.startswith("--")]
    daemons = Daemons()
    try:
        begin = time.monotonic()
        network = Network(daemons, directory, prefix, switch, "--no-checksums" not in options)
        print(f"(up after {time.monotonic() - begin:.1f} s)", file=sys.stderr)
        for feature in FEATURES:
            if not wanted or feature.__name__ in wanted: show(feature, network)
    finally:
        daemons.end()
        for namespace in Namespace.made: namespace.remove()
    return Shown.failed > 0

sys.exit(main(*sys.argv[1:]))
