#!/usr/bin/env bash
# A generator for `sluice lab search PROFILE -- examples/tcpreplay.sh SEND RECEIVE CAPTURE {rate} {seconds}`: tcpreplay sends a
# capture, again and again, through one device; the kernel counts what comes back at another. Needs root; both devices carry
# nothing else meanwhile (turn IPv6 off on them, or the kernel's own solicitations are counted too).
set -euo pipefail
[ $# = 5 ] || { echo "usage: $0 SEND-DEVICE RECEIVE-DEVICE CAPTURE PACKETS-PER-SECOND SECONDS" >&2; exit 2; }
send=$1 receive=$2 capture=$3 rate=$4 seconds=$5
count() { cat "/sys/class/net/$1/statistics/$2"; }
packets=$(awk -v r="$rate" -v s="$seconds" 'BEGIN { printf "%d", r * s }')
sent=$(count "$send" tx_packets) received=$(count "$receive" rx_packets)
said=$(tcpreplay --intf1="$send" --preload-pcap --loop=0 --limit="$packets" --pps="$rate" "$capture" 2>&1) || { echo "$said" >&2; exit 1; }
# "Actual: 1000 packets (60000 bytes) sent in 0.998315 seconds"
took=$(sed -n 's/^Actual: .* sent in \([0-9.]*\) seconds.*/\1/p' <<<"$said")
[ -n "$took" ] || { echo "tcpreplay does not say how long it took: $said" >&2; exit 1; }
sleep 0.3
echo "{\"sent\": $(($(count "$send" tx_packets) - sent)), \"received\": $(($(count "$receive" rx_packets) - received)), \"seconds\": $took}"
