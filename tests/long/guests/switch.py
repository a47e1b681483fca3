"""A switch daemon with a database of its own, in a directory of its own: Sluice's or Open vSwitch's with DPDK."""

import os
import pathlib
import subprocess
import time

from guest import until

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
OVS_DPDK = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"


class Switch:
    """Bridge br0, which learns addresses. Its ports connect to the sockets at which guests wait."""

    def __init__(self, directory: pathlib.Path, name: str, command: list[str], with_dpdk: bool):
        self.dir, self.name, self.command = directory, name, command
        directory.mkdir()
        self.env = os.environ | {key: str(directory) for key in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")}
        self.database = f"unix:{directory}/db.sock"
        self._run("ovsdb-tool", "create", str(directory / "conf.db"), SCHEMA)
        self.server = self._begin("ovsdb-server", "ovsdb-server", str(directory / "conf.db"), f"--remote=punix:{directory}/db.sock")
        until("the database", (directory / "db.sock").exists, 60)
        self.vsctl("--no-wait", "init")
        # Idle PMDs sleep: the option is pmd-maxsleep in Open vSwitch 3.1, pmd-sleep-max since 3.2.
        settings = ["vhost-sock-dir=.", "pmd-maxsleep=500", "pmd-sleep-max=500"]
        if with_dpdk:
            settings += ["dpdk-init=true", "dpdk-extra=--no-huge --legacy-mem --no-shconf --no-pci -m 4096", "userspace-tso-enable=true"]
        for setting in settings:
            key, _, value = setting.partition("=")
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".", f'other_config:{key}="{value}"')
        self.start()
        self.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")

    def start(self) -> None:
        self.daemon = self._begin("vswitchd", *self.command, self.database, "--pidfile", "--log-file")
        self.vsctl("show")

    def stop(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(60)

    def add_port(self, name: str, sock: pathlib.Path) -> None:
        self.vsctl("--no-wait", "add-port", "br0", name, "--", "set", "interface", name, "type=dpdkvhostuserclient",
                   f"options:vhost-server-path={sock}")

    def link_is_up(self, name: str) -> bool:
        return self.vsctl("get", "interface", name, "link_state").strip() == "up"

    def vsctl(self, *words: str) -> str:
        return self._run("ovs-vsctl", f"--db={self.database}", "--timeout=60", *words)

    def appctl(self, *words: str) -> str:
        return self._run("ovs-appctl", "-t", "ovs-vswitchd", *words)

    def end(self) -> None:
        for process in (self.daemon, self.server):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.env, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(f"guests: {self.name}: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _begin(self, name: str, *command: str) -> subprocess.Popen:
        with open(self.dir / f"{name}.out", "a") as out:
            return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
