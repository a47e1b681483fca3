"""Network namespaces, and hosts in them that ask each other by the kernel's stack."""
import ctypes, os, select, socket, subprocess, threading, time

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNET = 0x40000000
OWN = os.open("/proc/self/ns/net", os.O_RDONLY)
# A packet that is to be lost is waited for so long; one that is to come back, and is not awaited any more then, longer.
PATIENCE = 0.7

def run(*command, **more):
    """What a program prints; its failure is an error that has its words."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout.strip()}")
    return done.stdout

def eventually(check, wanted, seconds=30):
    """Asks until the answer is the wanted one; the last answer."""
    end = time.monotonic() + seconds
    while True:
        got = check()
        if got == wanted or time.monotonic() > end: return got
        time.sleep(0.1)

class Namespace:
    """A network namespace. Sockets made in `with namespace:` are sockets of it."""
    made = []

    def __init__(self, name):
        self.name = name
        run("ip", "netns", "add", name)
        Namespace.made.append(self)
        self.descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
        self.ip("link", "set", "lo", "up")

    def __enter__(self):
        if LIBC.setns(self.descriptor, NEWNET): raise OSError(ctypes.get_errno(), f"setns {self.name}")
        return self

    def __exit__(self, *_):
        if LIBC.setns(OWN, NEWNET): raise OSError(ctypes.get_errno(), "setns back")

    def ip(self, *command): return run("ip", "-n", self.name, *command)
    def run(self, *command, **more): return run("ip", "netns", "exec", self.name, *command, **more)

    def set(self, setting, value):
        """Changes a setting of the kernel, as sysctl names it, in this namespace."""
        with self, open("/proc/sys/" + setting.replace(".", "/"), "w") as file: file.write(value)

    def connect(self, device, other, peer):
        """A pair of devices, one here, one in the other namespace, both up."""
        self.ip("link", "add", device, "type", "veth", "peer", "name", peer, "netns", other.name)
        self.ip("link", "set", device, "up")
        other.ip("link", "set", peer, "up")

    def remove(self):
        os.close(self.descriptor)
        subprocess.run(["ip", "netns", "del", self.name])

class Host(Namespace):
    """A namespace with one device, `eth0`, that serves and asks."""

    def __init__(self, prefix, name, mac):
        super().__init__(f"{prefix}-{name}")
        self.short, self.mac, self.listening = name, mac, {}

    def configure(self, *addresses, router=None):
        self.ip("link", "set", "eth0", "address", self.mac, "mtu", "1400")
        for address in addresses: self.ip("addr", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
        for route in router or []: self.ip("route", "add", "default", "via", route)

    def serve(self, *ports):
        """Answers who it is, and whom it sees, at these ports of TCP and UDP."""
        for port in ports:
            with self:
                tcp, udp = (socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            for s in (tcp, udp): s.bind(("0.0.0.0", port))
            tcp.listen(64)
            self.listening[port] = (tcp, udp)
            for target, s in ((self.answer_tcp, tcp), (self.answer_udp, udp)):
                threading.Thread(target=target, args=(s,), daemon=True).start()

    def stop_serving(self, port):
        for s in self.listening.pop(port):
            try: s.shutdown(socket.SHUT_RDWR)
            except OSError: pass
            s.close()

    def answer_tcp(self, listener):
        while True:
            try: s, peer = listener.accept()
            except OSError: return
            threading.Thread(target=self.answer_connection, args=(s, peer), daemon=True).start()

    def answer_connection(self, s, peer):
        """All that comes goes back, behind a line that tells who is who."""
        try:
            s.sendall(f"{self.short} sees {peer[0]}\n".encode())
            while data := s.recv(65536): s.sendall(data)
        except OSError: pass
        finally: s.close()

    def answer_udp(self, s):
        while True:
            try: data, more, _, peer = s.recvmsg(2000, 100)
            except OSError: return
            if not peer: return
            tos = next((d[0] for level, kind, d in more if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS)), 0)
            s.sendto(f"{self.short} sees {peer[0]}{f' tos {tos}' if tos else ''}".encode(), peer)

    def tcp(self, address, port, send=0):
        """Who answers, or how the connection fails; and, if bytes are to be sent, whether they come back."""
        with self: s = socket.socket()
        s.settimeout(PATIENCE if not send else 20)
        try:
            s.connect((address, port))
            lines = s.makefile("rb")
            said = lines.readline().decode().strip()
            if not send: return said
            sent = os.urandom(send)
            threading.Thread(target=s.sendall, args=(sent,), daemon=True).start()
            return said + (", all came back" if lines.read(send) == sent else ", other bytes came back")
        except ConnectionRefusedError: return "refused"
        except TimeoutError: return "no answer"
        except OSError as error: return error.strerror
        finally: s.close()

    def udp(self, address, port):
        with self: s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(PATIENCE)
        try:
            s.connect((address, port))
            s.send(b"who are you")
            return s.recv(2000).decode()
        except ConnectionRefusedError: return "refused"
        except TimeoutError: return "no answer"
        except OSError as error: return error.strerror
        finally: s.close()

    def ping(self, address, *options):
        """`answered with ttl N`, what a router says of it, or `no answer`."""
        command = ["ip", "netns", "exec", self.name, "ping", "-n", "-c", "1", "-W", "1", *options, address]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        for line in said.splitlines():
            if "bytes from" in line: return "answered with ttl " + line.split("ttl=")[1].split()[0]
            if line.startswith("From "):
                address, _, what = line.removeprefix("From ").partition(" icmp_seq=1 ")
                return f"{address} says: {what}"
        return "no answer"

    def sniff(self, protocol):
        """A socket that has the IP packets of a protocol that come to this host."""
        with self: return socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)

def frames_at(namespace, device):
    """A socket that has all frames that pass a device."""
    with namespace: s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((device, 0))
    return s

def pending(s):
    """The packets that a socket has by now."""
    packets = []
    while select.select([s], [], [], 0)[0]: packets.append(s.recv(65536))
    return packets
