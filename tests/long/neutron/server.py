"""What neutron's server tells its agent on the message bus: one VXLAN network with three ports and their security groups.

The agent asks by remote procedure calls; these are answered here, on the transport of oslo.messaging that stays in the process.
"""

import netaddr
import oslo_messaging
from neutron.objects import network, ports, securitygroup
from neutron.objects.port.extensions import port_security
from neutron_lib import constants, rpc
from neutron_lib.agent import topics

NETWORK = "6e656e65-7477-4f72-8b00-000000000001"
SUBNET = "6e656e65-7477-4f72-8b00-000000000002"
SEGMENT = "6e656e65-7477-4f72-8b00-000000000003"
GROUPS = {"web": "6e656e65-7477-4f72-8b00-0000000000a1", "closed": "6e656e65-7477-4f72-8b00-0000000000a2"}
VNI = 77
# The other host of the network.
REMOTE = "10.9.0.2"


def port_id(n: int) -> str:
    return f"6e656e65-7477-4f72-8b00-0000000000b{n}"


def mac(n: int) -> str:
    return f"fa:16:3e:00:00:0{n}"


def address(n: int) -> str:
    return f"10.0.0.{n}"


# By port: its security group.
PORTS = {1: "web", 2: "web", 3: "closed"}


def rule(n: int, group: str, direction: str, **what) -> securitygroup.SecurityGroupRule:
    every = dict(protocol=None, port_range_min=None, port_range_max=None, remote_ip_prefix=None, remote_group_id=None,
                 remote_address_group_id=None, normalized_cidr=None)
    return securitygroup.SecurityGroupRule(
        id=f"6e656e65-7477-4f72-8b00-0000000000c{n}", project_id="p", security_group_id=GROUPS[group], direction=direction,
        ethertype="IPv4", revision_number=1, **(every | what))


RULES = {
    # Members of `web` may ping each other; everybody may open connections to ports 80 and 8000 to 8003 of theirs.
    "web": lambda: [
        rule(1, "web", "egress"),
        rule(2, "web", "ingress", protocol="icmp", remote_group_id=GROUPS["web"]),
        rule(3, "web", "ingress", protocol="tcp", port_range_min=80, port_range_max=80),
        rule(4, "web", "ingress", protocol="tcp", port_range_min=8000, port_range_max=8003, remote_ip_prefix=netaddr.IPNetwork("10.0.0.0/24")),
    ],
    # Nothing but answers comes in.
    "closed": lambda: [rule(5, "closed", "egress")],
}


def group(name: str) -> securitygroup.SecurityGroup:
    return securitygroup.SecurityGroup(id=GROUPS[name], name=name, project_id="p", shared=False, stateful=True, rules=RULES[name](),
                                       revision_number=1)


def the_network() -> network.Network:
    segment = network.NetworkSegment(id=SEGMENT, network_id=NETWORK, network_type="vxlan", segmentation_id=VNI)
    return network.Network(id=NETWORK, project_id="p", name="net", status="ACTIVE", admin_state_up=True, mtu=1450, segments=[segment],
                           qos_policy_id=None, revision_number=1)


def port(n: int, host: str) -> ports.Port:
    segment = network.NetworkSegment(id=SEGMENT, network_id=NETWORK, network_type="vxlan", segmentation_id=VNI, physical_network=None)
    return ports.Port(
        id=port_id(n), project_id="p", name=f"vm{n}", network_id=NETWORK, mac_address=netaddr.EUI(mac(n)), admin_state_up=True,
        device_id=f"vm{n}", device_owner="compute:nova", status="DOWN", allowed_address_pairs=[], dhcp_options=[],
        bindings=[ports.PortBinding(port_id=port_id(n), host=host, profile={}, vif_type="ovs", vif_details={}, vnic_type="normal",
                                    status="ACTIVE")],
        binding_levels=[ports.PortBindingLevel(port_id=port_id(n), host=host, level=0, driver="openvswitch", segment=segment,
                                               segment_id=SEGMENT)],
        distributed_bindings=[], dns=None, data_plane_status=None, qos_policy_id=None, qos_network_policy_id=None,
        fixed_ips=[ports.IPAllocation(port_id=port_id(n), subnet_id=SUBNET, network_id=NETWORK, ip_address=netaddr.IPAddress(address(n)))],
        security=port_security.PortSecurity(id=port_id(n), port_security_enabled=True),
        security_group_ids={GROUPS[PORTS[n]]}, revision_number=1)


class Reports:
    """What agents report."""

    target = oslo_messaging.Target(version="1.2")

    def has_alive_neutron_server(self, context, **what):
        return True

    def report_state(self, context, **what):
        return "new"


class Plugin:
    """What the agent of layer two asks, and what it says of its ports. `told` gets a line for each port that comes up."""

    target = oslo_messaging.Target(version="1.9")

    def __init__(self, told):
        self.told = told

    def update_device_list(self, context, devices_up=(), devices_down=(), **what):
        for device in devices_up:
            self.told(f"up {device}")
        for device in devices_down:
            self.told(f"down {device}")
        return {"devices_up": list(devices_up), "failed_devices_up": [], "devices_down": list(devices_down), "failed_devices_down": []}

    def update_device_down(self, context, device, **what):
        self.told(f"down {device}")
        return {"device": device, "exists": True}

    def get_network_details(self, context, network, **what):
        return {"id": network, "mtu": 1450, "provider:network_type": "vxlan", "provider:physical_network": None,
                "provider:segmentation_id": VNI}

    def tunnel_sync(self, context, tunnel_ip, **what):
        return {"tunnels": [{"ip_address": tunnel_ip}, {"ip_address": REMOTE}]}


class Resources:
    """The objects of the database, as the agent's cache asks for them."""

    target = oslo_messaging.Target(version="1.1", namespace=constants.RPC_NAMESPACE_RESOURCES)

    def __init__(self, host: str):
        every = [group(name) for name in GROUPS]
        self.objects = {
            "Network": [the_network()],
            "Port": [port(n, host) for n in PORTS],
            "SecurityGroup": every,
            "SecurityGroupRule": [each for found in every for each in found.rules],
        }

    def bulk_pull(self, context, resource_type, version, filter_kwargs=None):
        def matches(item) -> bool:
            for key, wanted in (filter_kwargs or {}).items():
                has = getattr(item, key)
                if not (set(has) & set(wanted) if isinstance(has, (set, list)) else has in wanted):
                    return False
            return True

        found = filter(matches, self.objects.get(resource_type, []))
        return [item.obj_to_primitive(target_version=version) for item in found]


def serve(host: str, told):
    """Answers from now on."""
    connection = rpc.Connection()
    connection.create_consumer(topics.PLUGIN, [Plugin(told), Resources(host)], fanout=False)
    connection.create_consumer(topics.REPORTS, [Reports()], fanout=False)
    connection.consume_in_threads()
    return connection
