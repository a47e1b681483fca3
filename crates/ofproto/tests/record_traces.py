#!/usr/bin/env python3
"""Asks Open vSwitch what it makes of the cases in traces/*.txt, and writes its answers to traces/*.out.

Needs the packages openvswitch-switch and openvswitch-common (3.1), no privileges: the daemons run with dummy devices in
a directory of their own. The tests only read the answers.

A case file has sections, each begun by "== title", with lines
  bridge NAME [fragments=drop|nx-match]      a secure bridge; a LOCAL port comes with it
              [prefixes=FIELD,...|none]      which fields have tries, if not the usual ones
  port BRIDGE NAME OFPORT [KEY=VALUE ...]    tag=, trunks=, vlan_mode=, peer= (a patch port), flags (no-flood, ...)
  meter BRIDGE METER                         a meter to add
  group BRIDGE GROUP                         a group to add
  flow BRIDGE FLOW                           a flow to add
  trace BRIDGE FLOW [-generate]              what to ask
An answer file has, for each trace, the line "== title", what was asked, and what ofproto/trace printed.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces")
PROTOCOLS = ",".join(f"OpenFlow1{i}" for i in range(6))


class Switch:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="record-traces-")
        self.env = dict(os.environ, OVS_RUNDIR=self.dir, OVS_LOGDIR=self.dir, OVS_DBDIR=self.dir, OVS_SYSCONFDIR=self.dir)
        schema = "/usr/share/openvswitch/vswitch.ovsschema"
        self.run("ovsdb-tool", "create", f"{self.dir}/conf.db", schema)
        self.daemons = [
            subprocess.Popen(["ovsdb-server", f"{self.dir}/conf.db", f"--remote=punix:{self.dir}/db.sock",
                              f"--unixctl={self.dir}/db.ctl"], env=self.env, stderr=subprocess.DEVNULL)]
        self.vsctl("--retry", "--no-wait", "init")
        self.daemons.append(
            subprocess.Popen(["ovs-vswitchd", f"unix:{self.dir}/db.sock", "--enable-dummy=override", "--disable-system",
                              "--disable-system-route", f"--unixctl={self.dir}/switch.ctl"],
                             env=self.env, stderr=subprocess.DEVNULL))
        self.vsctl("set", "Open_vSwitch", ".", "other_config:vlan-limit=2")

    def run(self, *args, check=True):
        done = subprocess.run(args, env=self.env, capture_output=True, text=True)
        if check and done.returncode:
            sys.exit(f"{' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def vsctl(self, *args):
        return self.run("ovs-vsctl", f"--db=unix:{self.dir}/db.sock", *args)

    def ofctl(self, *args):
        command, bridge, *rest = args
        # Each protocol turns some actions into others. These keep them as they are written.
        words = " ".join(rest)
        first = "10"
        if re.search(r"set_field:[^,]*/", words):
            first = "15"
        elif re.search("set_field|goto_table|mod_nw_ttl|write_|clear_actions|push_|group:|meter:", words):
            first = "13"
        for version in [first, "10", "13", "15"] if command == "add-flow" else ["10"]:
            done = self.run("ovs-ofctl", "-O", f"OpenFlow{version}", command, f"unix:{self.dir}/{bridge}.mgmt", *rest,
                            check=False)
            if done.returncode == 0:
                return
        sys.exit(f"{' '.join(args)}: {done.stderr.strip()}")

    def appctl(self, *args):
        return self.run("ovs-appctl", "-t", f"{self.dir}/switch.ctl", *args, check=False)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(self.dir)


def run_case(switch, title, lines):
    out = []
    bridges = []
    for line in lines:
        word, rest = line.split(" ", 1)
        if word == "bridge":
            name, *options = rest.split()
            bridges.append(name)
            number = len(bridges)
            switch.vsctl("add-br", name, "--", "set", "Bridge", name, "datapath-type=dummy", "fail-mode=secure",
                         f"other-config:hwaddr=aa:55:aa:55:00:0{number}", f"protocols=[{PROTOCOLS}]")
            for key, value in (option.split("=") for option in options):
                if key == "prefixes":
                    tables = [f"flow_tables:{table}=@t" for table in range(255)]
                    switch.vsctl("set", "Bridge", name, *tables, "--", "--id=@t", "create", "Flow_Table", "name=t",
                                 f"prefixes={value}")
                else:
                    switch.ofctl("set-frags", name, value)
        elif word == "port":
            bridge, name, number, *options = rest.split()
            settings = dict(o.split("=", 1) for o in options if "=" in o)
            iface = ["--", "set", "Interface", name, f"ofport_request={number}"]
            if "peer" in settings:
                iface += ["type=patch", f"options:peer={settings.pop('peer')}"]
            else:
                iface += ["type=dummy"]
            columns = [f"{key}={value}" for key, value in settings.items()]
            switch.vsctl("add-port", bridge, name, *columns, *iface)
            for flag in (o for o in options if "=" not in o):
                switch.ofctl("mod-port", bridge, name, flag)
        elif word == "flow":
            bridge, flow = rest.split(" ", 1)
            switch.ofctl("add-flow", bridge, flow)
        elif word == "group":
            bridge, group = rest.split(" ", 1)
            switch.run("ovs-ofctl", "-O", "OpenFlow15", "add-group", f"unix:{switch.dir}/{bridge}.mgmt", group)
        elif word == "meter":
            bridge, meter = rest.split(" ", 1)
            switch.run("ovs-ofctl", "-O", "OpenFlow15", "add-meter", f"unix:{switch.dir}/{bridge}.mgmt", meter)
        elif word == "trace":
            parts = rest.split(" ")
            answer = switch.appctl("ofproto/trace", *parts)
            out += [f"== {title}", line, (answer.stdout + answer.stderr).rstrip("\n")]
        else:
            sys.exit(f"{title}: {word}: what is that?")
    for bridge in bridges:
        switch.vsctl("del-br", bridge)
    return out


def main():
    switch = Switch()
    try:
        for path in sys.argv[1:] or sorted(glob.glob(f"{HERE}/*.txt")):
            out, title, lines = [], None, []
            for line in [*open(path).read().splitlines(), "== "]:
                if line.startswith("== "):
                    if title:
                        out += run_case(switch, title, lines)
                    title, lines = line[3:], []
                elif line and not line.startswith("#"):
                    lines.append(line)
            with open(path.removesuffix(".txt") + ".out", "w") as file:
                file.write("\n".join(out) + "\n")
    finally:
        switch.stop()


main()
