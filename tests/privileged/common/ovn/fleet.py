"""OVN's central parts and chassis, each with its own database server, switch and controller, from Debian's packages."""
import os, shlex, signal, subprocess
from hosts import Namespace, eventually, run

class Daemons:
    """Processes that end with the run, the last one first."""

    def __init__(self): self.running = []

    def start(self, directory, namespace, *command):
        name = os.path.basename(command[0])
        inside = ["ip", "netns", "exec", namespace.name] if namespace else []
        known = {f"{program}_{kind}": directory for program in ("OVS", "OVN") for kind in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")}
        with open(f"{directory}/{name}.out", "ab") as out:
            process = subprocess.Popen([*inside, *command], stdout=out, stderr=out, env=os.environ | known)
        self.running.append(process)
        return process

    def end(self):
        for process in reversed(self.running):
            if process.poll() is None: process.send_signal(signal.SIGTERM)
        for process in reversed(self.running):
            try: process.wait(5)
            except subprocess.TimeoutExpired: process.kill()

def wait_for_socket(path, process):
    def state(): return "there" if os.path.exists(path) else "ended" if process.poll() is not None else "not there"
    got = eventually(state, "there", 20)
    if got != "there": raise RuntimeError(f"{path}: {got} after 20 seconds")

class Central:
    """Both databases and ovn-northd."""

    def __init__(self, directory, daemons):
        self.directory = directory
        os.mkdir(directory)
        for database in ("nb", "sb"):
            file, socket = f"{directory}/{database}.db", f"{directory}/{database}.sock"
            run("ovsdb-tool", "create", file, f"/usr/share/ovn/ovn-{database}.ovsschema")
            server = daemons.start(directory, None, "ovsdb-server", file, f"--remote=punix:{socket}", f"--pidfile={directory}/{database}.pid",
                                   f"--unixctl={directory}/{database}.ctl", "-vconsole:off", f"--log-file={directory}/{database}.log")
            wait_for_socket(socket, server)
        daemons.start(directory, None, "ovn-northd", f"--ovnnb-db={self.at('nb')}", f"--ovnsb-db={self.at('sb')}", "--pidfile", "--log-file", "-vconsole:off")

    def at(self, database): return f"unix:{self.directory}/{database}.sock"

    def nbctl(self, script, wait=True):
        """Carries out ovn-nbctl's commands, a line each, in one transaction; returns when every chassis has what follows from it."""
        lines = [shlex.split(line) for line in script.splitlines() if line.strip()]
        words = [word for line in lines for word in ["--", *line]]
        return run("ovn-nbctl", f"--db={self.at('nb')}", "--timeout=60", *(["--wait=hv"] if wait else []), *words[1:])

    def sbctl(self, *command): return run("ovn-sbctl", f"--db={self.at('sb')}", "--timeout=120", *command)

class Chassis:
    """A namespace with a switch, which has the fabric's wire in bridge br-ex, and a controller, which fills bridge br-int."""

    def __init__(self, directory, prefix, number, fabric):
        self.name, self.number = f"hv{number}", number
        self.directory = f"{directory}/{self.name}"
        os.mkdir(self.directory)
        self.namespace = Namespace(f"{prefix}-{self.name}")
        # The kernel has the frames of eth0, too: it would answer ARP for br-ex's address with eth0's.
        self.namespace.set("net.ipv4.conf.all.arp_ignore", "1")
        fabric.connect(self.name, self.namespace, "eth0")
        fabric.ip("link", "set", self.name, "master", "br0")

    def start(self, daemons, central, switch):
        file, socket = f"{self.directory}/conf.db", f"{self.directory}/db.sock"
        run("ovsdb-tool", "create", file, "/usr/share/openvswitch/vswitch.ovsschema")
        server = daemons.start(self.directory, self.namespace, "ovsdb-server", file, f"--remote=punix:{socket}", "--pidfile", "-vconsole:off", "--log-file")
        wait_for_socket(socket, server)
        run("ovs-vsctl", f"--db=unix:{socket}", "--no-wait", "init")
        self.switch = daemons.start(self.directory, self.namespace, switch, f"unix:{socket}", "--pidfile", "-vconsole:off", "--log-file")
        known = {"system-id": self.name, "hostname": self.name, "ovn-remote": central.at("sb"), "ovn-encap-type": "geneve",
                 "ovn-encap-ip": f"192.168.0.{self.number}", "ovn-bridge-datapath-type": "netdev", "ovn-bridge-mappings": "public:br-ex",
                 "ovn-monitor-all": "true"}
        self.vsctl("set", "open", ".", *(f'external-ids:{key}="{value}"' for key, value in known.items()),
                   "--", "add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type=netdev", "--", "add-port", "br-ex", "eth0",
                   "--", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail-mode=secure")
        self.namespace.ip("addr", "add", f"192.168.0.{self.number}/24", "dev", "br-ex")
        self.namespace.ip("link", "set", "br-ex", "up")
        self.controller = daemons.start(self.directory, self.namespace, "ovn-controller", f"unix:{socket}", "--pidfile", "--log-file", "-vconsole:off")

    def vsctl(self, *command): return run("ovs-vsctl", f"--db=unix:{self.directory}/db.sock", "--timeout=120", *command)
    def appctl(self, *command):
        return run("ovs-appctl", "-T", "10", "-t", f"{self.directory}/ovs-vswitchd.{self.switch.pid}.ctl", *command)
    def flows(self): return run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", f"unix:{self.directory}/br-int.mgmt").splitlines()[1:]

    def plug(self, host):
        """Connects a host's eth0 to the logical port of its name."""
        self.namespace.connect(f"v-{host.short}", host, "eth0")
        self.vsctl("add-port", "br-int", f"v-{host.short}", "--", "set", "interface", f"v-{host.short}", f"external_ids:iface-id={host.short}")

    def installed(self, port): return self.vsctl("get", "interface", f"v-{port}", "external_ids:ovn-installed").strip()

    def log_has(self, words):
        with open(f"{self.directory}/ovn-controller.log") as log: return words in log.read()

    def kill(self):
        """As if its power went."""
        for process in (self.controller, self.switch): process.kill(); process.wait()
