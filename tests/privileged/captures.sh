#!/usr/bin/env bash
# Makes the captures anew and checks that they hold what the committed ones do, so that the script keeps working.
set -euo pipefail
cd "$(dirname "$0")/../.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tests/captures/make "$fresh"
expect() { # what, filter, least number
    local n
    n=$(cat <(tcpdump -nr "$fresh/a.pcap" "$2" 2>/dev/null) <(tcpdump -nr "$fresh/b.pcap" "$2" 2>/dev/null) | wc -l)
    echo "$1: $n packets"
    [ "$n" -ge "$3" ] || { echo "captures: expected at least $3 packets of $1" >&2; exit 1; }
}
expect ARP arp 3
expect 'ICMP echo' 'icmp[0] == 8 or icmp[0] == 0' 8
expect 'IPv4 fragments' 'ip[6:2] & 0x1fff != 0' 2
expect 'neighbour discovery' 'icmp6 and (ip6[40] == 135 or ip6[40] == 136)' 3
expect DNS 'udp port 53' 6
expect HTTP 'tcp port 8000' 20
