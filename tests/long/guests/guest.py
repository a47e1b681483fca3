"""A virtual machine of QEMU behind a vhost-user socket, driven over its serial line and QMP."""

import json
import pathlib
import socket
import subprocess
import time

# A guest without KVM on a busy machine takes its time.
PATIENCE = 600


def until(what: str, condition, seconds: float = PATIENCE):
    """Waits until `condition` returns something true, and returns that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise SystemExit(f"guests: after {seconds:.0f} s still not: {what}")


def connect(path: pathlib.Path) -> socket.socket:
    def attempt():
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(str(path))
            return link
        except OSError:
            link.close()
            return None

    return until(f"a connection to {path.name}", attempt, 60)


def host_tsc_khz() -> int:
    """The rate of the time stamp counter, which a guest without an interval timer cannot find out."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    return int(float(cpuinfo.partition("cpu MHz")[2].partition(":")[2].split()[0]) * 1000)


class Guest:
    """One virtual machine. `sock` is the vhost-user socket at which it waits for the switch. With `incoming`, a socket, it waits
    there for the state of another one."""

    def __init__(self, image: pathlib.Path, sock: pathlib.Path, mac: str, incoming: pathlib.Path | None = None):
        self.sock = sock
        self.serial_path = sock.with_suffix(".serial")
        self.qmp_path = sock.with_suffix(".qmp")
        for path in (sock, self.serial_path, self.qmp_path):
            path.unlink(missing_ok=True)
        # No machine with PCI: without KVM, QEMU 7.2 ends with a segmentation fault when the guest's driver enables MSI-X for a
        # vhost-user device. The devices of `microvm` have one interrupt each.
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
            "-machine", "microvm,accel=tcg,memory-backend=ram", "-cpu", "max", "-smp", "1", "-m", "256",
            "-object", "memory-backend-memfd,id=ram,size=256M,share=on",
            "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"),
            "-append", f"console=ttyS0 quiet panic=1 reboot=t tsc_early_khz={host_tsc_khz()}",
            "-chardev", f"socket,id=line,path={self.serial_path},server=on,wait=off", "-serial", "chardev:line",
            "-qmp", f"unix:{self.qmp_path},server=on,wait=off",
            "-chardev", f"socket,id=switch,path={sock},server=on",
            "-netdev", "vhost-user,id=net,chardev=switch",
            "-global", "virtio-mmio.force-legacy=false",
            "-device", f"virtio-net-device,netdev=net,mac={mac},mrg_rxbuf=on",
        ]
        if incoming:
            command += ["-incoming", f"unix:{incoming}"]
        self.log = open(sock.with_suffix(".log"), "w")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.line = None
        self.heard = ""

    def open(self) -> None:
        """Connects to its serial line and QMP. QEMU waits for the switch first."""
        self.line = connect(self.serial_path)
        self.qmp_link = connect(self.qmp_path)
        self.qmp_file = self.qmp_link.makefile("rw")
        json.loads(self.qmp_file.readline())
        self.qmp("qmp_capabilities")

    def boot(self, address: str) -> None:
        """Waits until it has booted, and gives its device an address."""
        self.answer()
        self.run(f"ip link set eth0 up && ip addr add {address}/24 dev eth0")

    def say(self, command: str) -> None:
        """Begins a command; `answer` waits for its end."""
        self.line.sendall(command.encode() + b"\n")

    def answer(self, seconds: float = PATIENCE) -> tuple[str, str]:
        """Waits for the line `= CODE` that ends a command, or `= ready` after the boot; the code, and what came before."""
        end = time.monotonic() + seconds
        output = []
        while True:
            line, newline, rest = self.heard.partition("\n")
            if newline:
                self.heard = rest
                if line.startswith("= "):
                    return line[2:], "\n".join(output)
                output.append(line)
                continue
            self.line.settimeout(max(0.1, end - time.monotonic()))
            try:
                more = self.line.recv(65536)
            except TimeoutError:
                more = b""
            if not more:
                raise SystemExit(f"guests: {self.sock.stem} says no more than {output[-9:]}; ended: {self.process.poll()}")
            self.heard += more.decode(errors="replace").replace("\r", "")

    def run(self, command: str, seconds: float = PATIENCE) -> str:
        """Runs a command that must succeed; its output."""
        self.say(command)
        code, output = self.answer(seconds)
        if code != "0":
            raise SystemExit(f"guests: `{command}` in {self.sock.stem} ended with {code}: {output}")
        return output

    def succeeds(self, command: str) -> bool:
        self.say(command)
        return self.answer()[0] == "0"

    def qmp(self, command: str, **arguments):
        request = {"execute": command} | ({"arguments": arguments} if arguments else {})
        self.qmp_file.write(json.dumps(request) + "\n")
        self.qmp_file.flush()
        while True:
            answer = json.loads(self.qmp_file.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise SystemExit(f"guests: {command}: {answer['error']}")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
