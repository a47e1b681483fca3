#!/usr/bin/env python3
"""neutron-openvswitch-agent as Debian has it, with a server in the same process instead of one behind a message broker.

    agent.py TOLD --config-file FILE

TOLD is the file for what the agent tells the server of its ports.
"""

import sys

# This import makes threads those of eventlet; it has to be the first.
from neutron.cmd.eventlet.plugins import ovs_neutron_agent

import server
from neutron.plugins.ml2.drivers.openvswitch.agent.openflow.native import main as openflow
from oslo_config import cfg


def main() -> None:
    told = open(sys.argv.pop(1), "a", buffering=1)
    begin = openflow.main

    def begin_with_server() -> None:
        # By now the agent has read its configuration and has opened the transport.
        connection = server.serve(cfg.CONF.host, lambda text: print(text, file=told))
        try:
            begin()
        finally:
            connection.close()

    openflow.main = begin_with_server
    ovs_neutron_agent.main()


if __name__ == "__main__":
    main()
