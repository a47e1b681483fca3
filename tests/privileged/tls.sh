#!/usr/bin/env bash
# OpenFlow over TLS with the certificates of ovs-pki: ovs-ofctl to `pssl:`, `ssl:` to ovs-testcontroller, both versions of the
# protocol, much in both directions, and peers that are refused.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
for program in ovs-pki ovs-ofctl ovs-testcontroller openssl; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program"; exit 77; }
done
pki="ovs-pki --dir=$dir/pki --log=$dir/pki.log"
$pki init >/dev/null 2>&1
(cd "$dir" && $pki req+sign sc switch && $pki req+sign ctl controller) >/dev/null 2>&1
chmod 0644 "$dir"/*.pem

ip netns add "$s"
ip -n "$s" link set lo up
echo 'p1 null' | configure
sed -i "s/^fail-mode = .*/fail-mode = \"secure\"\ncontrollers = [\"ssl:127.0.0.1:6654\"]\nlisten = [\"pssl:6653:127.0.0.1\"]/" "$dir/switch.toml"
cat >> "$dir/switch.toml" <<TOML
[switch.tls]
private-key = "sc-privkey.pem"
certificate = "sc-cert.pem"
ca-cert = "pki/controllerca/cacert.pem"
TOML
start

inside() { ip netns exec "$s" "$@"; }
tls() { inside timeout 60 ovs-ofctl -O OpenFlow14 -p "$dir/$1-privkey.pem" -c "$dir/$1-cert.pem" -C "$dir/pki/$2/cacert.pem" "${@:3}"; }
unix() { timeout 60 ovs-ofctl -O OpenFlow14 "${@}"; }
without_times() { sed -nE 's/duration=[0-9.]+s/T/p' | sort; }

# Much in both directions.
for i in $(seq 20000); do echo "priority=$((i % 60000 + 1)),tcp,nw_dst=10.1.$((i / 256)).$((i % 256)),actions=output:1"; done > "$dir/flows"
tls ctl switchca add-flows ssl:127.0.0.1:6653 "$dir/flows"
tls ctl switchca dump-flows ssl:127.0.0.1:6653 | without_times > "$dir/by-tls"
unix dump-flows "unix:$dir/run/br0.mgmt" | without_times > "$dir/by-unix"
[ "$(wc -l < "$dir/by-tls")" = 20000 ] || fail "$(wc -l < "$dir/by-tls") flows of 20000"
cmp "$dir/by-tls" "$dir/by-unix" || fail "the flows differ by transport"

# Either version; the certificate is the switch's.
for version in tls1_2 tls1_3; do
    inside timeout 60 openssl s_client -"$version" -connect 127.0.0.1:6653 -key "$dir/ctl-privkey.pem" -cert "$dir/ctl-cert.pem" \
        -CAfile "$dir/pki/switchca/cacert.pem" </dev/null > "$dir/client" 2>&1 || true
    grep -q 'Verify return code: 0' "$dir/client" || fail "$version: $(cat "$dir/client")"
done

# A peer without a certificate, with one of another authority, or without TLS learns nothing.
! tls sc switchca show ssl:127.0.0.1:6653 > "$dir/refused" 2>&1 || fail "another authority's certificate was taken: $(cat "$dir/refused")"
! inside timeout 60 ovs-ofctl show tcp:127.0.0.1:6653 > "$dir/refused" 2>&1 || fail "no TLS, and served: $(cat "$dir/refused")"
tls ctl switchca probe ssl:127.0.0.1:6653 || fail "no peer is served after a bad one"

# A controller with a certificate of the wrong authority, then one with the right.
controller() {
    OVS_RUNDIR=$dir ip netns exec "$s" ovs-testcontroller -p "$dir/$1-privkey.pem" -c "$dir/$1-cert.pem" -C "$dir/pki/switchca/cacert.pem" pssl:6654:127.0.0.1 > "$dir/controller" 2>&1 &
    controller=$!
}
controller sc
logged 'TLS: invalid peer certificate'
kill "$controller" && wait "$controller" || true
controller ctl
logged ':6654: connected'

# Another key that does not fit the certificate: said, and the old one stays.
sed -i 's/sc-privkey/ctl-privkey/' "$dir/switch.toml"
! ctl sluice/reload > "$dir/reload" 2>&1 || fail "a key that does not fit was taken"
tls ctl switchca probe ssl:127.0.0.1:6653 || fail "the old key is gone"
stop
echo "20000 flows over TLS, refusals, a controller"
