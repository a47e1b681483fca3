#!/usr/bin/env bash
# A generator for `sluice lab search -- examples/trafgen.sh SEND RECEIVE {rate} {seconds}`: netsniff-ng's trafgen sends through one
# device, the kernel counts what comes back at another. Needs root; both devices carry nothing else meanwhile
# (turn IPv6 off on them, or the kernel's own solicitations are counted too). trafgen keeps its rate by the second, each
# second's packets in a burst; tcpreplay.sh sends evenly.
set -euo pipefail
[ $# = 4 ] || { echo "usage: $0 SEND-DEVICE RECEIVE-DEVICE PACKETS-PER-SECOND SECONDS" >&2; exit 2; }
send=$1 receive=$2 rate=$3 seconds=$4
count() { cat "/sys/class/net/$1/statistics/$2"; }
packets=$(awk -v r="$rate" -v s="$seconds" 'BEGIN { printf "%d", r * s }')
rules=$(mktemp)
trap 'rm -f "$rules"' EXIT
# UDP from 10.0.0.1 to 8.0.0.1, 60 bytes.
cat >"$rules" <<'FRAME'
{ eth(da=02:00:00:00:00:02, sa=02:00:00:00:00:01), ipv4(id=0, ttl=64, da=8.0.0.1, sa=10.0.0.1),
  udp(sp=1000, dp=2000), fill(0x00, 18) }
FRAME
sent=$(count "$send" tx_packets) received=$(count "$receive" rx_packets)
said=$(trafgen --dev "$send" --conf "$rules" --cpus 1 --num "$packets" --rate "${rate}pps" --no-sock-mem 2>&1) || { echo "$said" >&2; exit 1; }
# "3 sec, 390 usec on CPU0 (3000 packets)"
took=$(sed -n 's/^[^0-9]*\([0-9]*\) sec, \([0-9]*\) usec on CPU0.*/\1 \2/p' <<<"$said" | awk '{ printf "%.6f", $1 + $2 / 1e6 }')
[ -n "$took" ] || { echo "trafgen does not say how long it took: $said" >&2; exit 1; }
sleep 0.3
echo "{\"sent\": $(($(count "$send" tx_packets) - sent)), \"received\": $(($(count "$receive" rx_packets) - received)), \"seconds\": $took}"
