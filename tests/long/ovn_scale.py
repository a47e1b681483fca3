"""A flow table at scale: many logical switches, of each one port on this chassis and the others on one that only the database knows.

ovn_scale.py DIRECTORY PREFIX SWITCH [SWITCHES [PORTS]]     what it took, a line each; fails if a port is not installed

Files go to DIRECTORY, names of namespaces begin with PREFIX, SWITCH is the program in ovs-vswitchd's place.
"""
import pathlib, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "privileged/common/ovn"))
from fleet import Central, Chassis, Daemons
from hosts import Namespace, eventually, run

# Seconds that the last port may take.
PATIENCE = 600
# Ports that one transaction adds.
AT_A_TIME = 50

def network(switches, ports):
    """The logical network, as a script of ovn-nbctl."""
    for s in range(switches):
        yield f"ls-add ls{s}"
        for p in range(ports):
            yield f"lsp-add ls{s} ls{s}p{p}"
            yield f"lsp-set-addresses ls{s}p{p} 02:00:{s >> 8:02x}:{s & 255:02x}:00:{p + 1:02x}\\ 10.{s >> 8}.{s & 255}.{p + 1}"

def far_ports(switches, ports): return [f"ls{s}p{p}" for s in range(switches) for p in range(1, ports)]

def memory_mib(process):
    """What a process has in memory, and the most that it had."""
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
    return kib["VmRSS"] // 1024, kib["VmHWM"] // 1024

def cpu_s(process):
    words = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / 100

def many(command, items, words):
    """Runs a command for items, some at a time."""
    for at in range(0, len(items), AT_A_TIME):
        command(*[word for item in items[at:at + AT_A_TIME] for word in ["--", *words(item)]][1:])

def plug(name):
    return ["add-port", "br-int", name, "--", "set", "interface", name, "type=internal", f"external_ids:iface-id={name}"]

def measure(directory, prefix, switch, daemons, switches, ports):
    fabric = Namespace(f"{prefix}-fabric")
    fabric.ip("link", "add", "br0", "type", "bridge")
    central = Central(f"{directory}/central", daemons)
    chassis = Chassis(directory, prefix, 1, fabric)
    chassis.start(daemons, central, switch)
    print(f"logical switches: {switches}\nports of each: {ports}")
    central.nbctl("\n".join(network(switches, ports)), wait=False)
    central.sbctl("chassis-add", "far", "geneve", "192.168.0.99")
    # Northd has made them once the last one is there.
    last = f"ls{switches - 1}p{ports - 1}"
    there = lambda: last in central.sbctl("--bare", "--columns=logical_port", "find", "port_binding", f"logical_port={last}")
    if not eventually(there, True, PATIENCE): raise RuntimeError(f"ovn-northd has not made {last}")
    many(central.sbctl, far_ports(switches, ports), lambda port: ["lsp-bind", port, "far"])
    own = [f"ls{s}p0" for s in range(switches)]
    begin, before = time.monotonic(), cpu_s(chassis.switch)
    many(chassis.vsctl, own, plug)
    installed = lambda: chassis.vsctl("--bare", "--columns=name", "find", "interface", "external_ids:ovn-installed=true").split()
    missing = lambda: len(set(own) - set(installed()))
    left = eventually(missing, 0, PATIENCE)
    took = time.monotonic() - begin
    if left: raise RuntimeError(f"{left} of {len(own)} ports are not installed after {took:.0f} s")
    # What comes after that, comes before the controller says that it is up to date.
    run("ovn-nbctl", f"--db={central.at('nb')}", "--timeout=60", "--wait=sb", "sync")
    wanted = central.sbctl("--bare", "--columns=nb_cfg", "list", "sb_global").strip()
    current = lambda: central.sbctl("--bare", "--columns=nb_cfg", "list", "chassis_private", chassis.name).strip()
    if eventually(current, wanted, PATIENCE) != wanted: raise RuntimeError("ovn-controller does not get up to date")
    flows = sum("table=" in line for line in chassis.flows())
    print(f"ports installed: {len(own)}\nflows: {flows}")
    print(f"seconds until the last port was installed: {took:.1f}", file=sys.stderr)
    print(f"CPU seconds of the switch meanwhile: {cpu_s(chassis.switch) - before:.1f}", file=sys.stderr)
    print("memory of the switch, MiB, now and at most: {} {}".format(*memory_mib(chassis.switch)), file=sys.stderr)
    refused = chassis.log_has("OpenFlow error")
    print(f"the switch has refused something: {refused}")
    return refused

def main(directory, prefix, switch, switches="200", ports="20"):
    daemons = Daemons()
    try: return measure(directory, prefix, switch, daemons, int(switches), int(ports))
    finally:
        daemons.end()
        for namespace in Namespace.made: namespace.remove()

sys.exit(main(*sys.argv[1:]))
