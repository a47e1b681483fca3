#!/usr/bin/env bash
# What Linux's own connection tracker says of every segment of TCP conversations, Sluice says too: of random ones, and of those that
# real stacks (smoltcp) have over a network that loses, repeats and reorders.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
command -v nft > /dev/null || { echo "SKIPPED: nft is not installed (ci/install-packages)"; exit 77; }

# Namespace s is the router, a has both ends of the network.
make_namespaces
for end in "1 $a" "2 $a"; do
    read -r n ns <<< "$end"
    ip -n "$s" link add "r$n" type veth peer name "h$n" netns "$ns"
    ip -n "$s" link set "r$n" address 02:00:00:00:00:09 up
    ip -n "$ns" link set "h$n" up
    ip -n "$s" addr add "10.0.$n.1/24" dev "r$n"
    ip -n "$s" neigh add "10.0.$n.2" lladdr "02:00:00:00:00:0$n" dev "r$n"
    ip netns exec "$a" sysctl -qw "net.ipv6.conf.h$n.disable_ipv6=1"
done
ip netns exec "$s" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
# The verdict is left in the DSCP: 1 invalid, 2 new, 3 established, 4 established and in the reply direction.
ip netns exec "$s" nft -f - <<'NFT' || { echo "SKIPPED: this kernel has no nf_tables with ct: $(uname -r)"; exit 77; }
table ip verdicts {
    chain forward {
        type filter hook forward priority 0;
        ct state invalid ip dscp set 1 accept
        ct state new ip dscp set 2 accept
        ct direction reply ip dscp set 4 accept
        ct state established ip dscp set 3 accept
    }
}
NFT
cat > "$dir/rules" <<'RULES'
table=0,priority=10,ip,actions=ct(table=1)
table=1,priority=30,ip,ct_state=+trk+inv,actions=mod_nw_tos:4,resubmit(,2)
table=1,priority=20,ip,ct_state=+trk+new,actions=ct(commit),mod_nw_tos:8,resubmit(,2)
table=1,priority=20,ip,ct_state=+trk+est+rpl,actions=mod_nw_tos:16,resubmit(,2)
table=1,priority=10,ip,ct_state=+trk+est-rpl,actions=mod_nw_tos:12,resubmit(,2)
table=2,in_port=1,actions=output:2
table=2,in_port=2,actions=output:1
RULES
segments() { python3 tests/privileged/common/segments.py "$@"; }
# Segments of $1, made by the rest of the words in folder `$dir/$1`.
judged() {
    local folder=$dir/$1
    mkdir -p "$folder/out"
    "${@:2}" "$folder"
    ip netns exec "$a" python3 tests/privileged/common/segments.py linux "$folder" h1 h2
    "$sluice" replay --flows "$dir/rules" --in 1="$folder/1.pcap" --in 2="$folder/2.pcap" --out-dir "$folder/out" > "$folder/summary"
    echo "$1:"
    segments compare "$folder"
}
judged random segments make "${SEED:-1}" "${CONVERSATIONS:-60}"
cargo build -q -p sluice-conntrack --example conversations
judged stacks target/debug/examples/conversations "${SEED:-1}" "${CONVERSATIONS:-60}"
