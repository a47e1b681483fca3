#!/usr/bin/env bash
# Stateful rules between two hosts with the kernel's own stacks: a firewall, fragments, related errors, path MTU, SNAT, DNAT, a hairpin,
# FTP active and passive.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

make_namespaces
printf '%s\n' "t1 tap" "t2 tap" | configure
start
ip -n "$s" link set t1 netns "$a"
ip -n "$s" link set t2 netns "$b"
for host in "$a t1 1" "$b t2 2"; do
    read -r ns device n <<< "$host"
    ip -n "$ns" link set lo up
    ip -n "$ns" link set "$device" address "02:00:00:00:00:0$n" up
    ip -n "$ns" addr add "10.9.0.$n/24" dev "$device"
    ip -n "$ns" -6 addr add "fd09::$n/64" dev "$device" nodad
done
# The addresses that NAT gives; no host answers for them.
ip -n "$b" neigh add 10.9.0.200 lladdr 02:00:00:00:00:01 dev t2
ip -n "$a" neigh add 10.9.0.99 lladdr 02:00:00:00:00:02 dev t1
ip -n "$a" neigh add 10.9.0.98 lladdr 02:00:00:00:00:98 dev t1

in_a() { ip netns exec "$a" timeout 20 "$@"; }
in_b() { ip netns exec "$b" timeout 20 "$@"; }
rules() {
    cat > "$dir/rules"
    chmod 644 "$dir/rules"
    ctl bridge/replace-flows br0 "$dir/rules"
    ctl revalidator/wait
    ctl dpctl/flush-conntrack
}
connections() { ctl dpctl/dump-conntrack "$@"; }
# A server in namespace $1 that tells every client its address as the server sees it: TCP and UDP, port $2.
tell_addresses() {
    ip netns exec "$1" python3 -u - "$2" <<'PY' &
import socket, sys, threading
port = int(sys.argv[1])
def tcp():
    s = socket.create_server(("", port))
    while True:
        c, who = s.accept(); c.sendall(who[0].encode()); c.close()
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", port))
    while True:
        _, who = s.recvfrom(99); s.sendto(who[0].encode(), who)
threading.Thread(target=tcp, daemon=True).start()
udp()
PY
    until_true sh -c "ip netns exec $1 ss -luntH 'sport = :$2' | grep -c . | grep -q 2" || fail "no server on port $2"
}
# What a server at $3, port $4, tells a client in namespace $1 over $2.
asked() {
    ip netns exec "$1" timeout 10 python3 - "$2" "$3" "$4" <<'PY'
import socket, sys
kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.settimeout(3)
try:
    s.connect((host, port))
    if kind == "udp": s.send(b"who am I")
    print(s.recv(99).decode())
except (socket.timeout, ConnectionRefusedError) as error:
    print(type(error).__name__)
PY
}

# A server in namespace $1 that sends each datagram to port $2 back, of either family.
echo_datagrams() {
    ip netns exec "$1" python3 -u - "$2" <<'PY' &
import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(("::", int(sys.argv[1])))
while True: s.sendto(*s.recvfrom(65535))
PY
    until_true sh -c "ip netns exec $1 ss -lunH 'sport = :$2' | grep -q ." || fail "no echo on port $2"
}
# Whether $2 bytes that a client in namespace $1 sends to $3, port $4, in fragments, come back unchanged.
echoed() {
    ip netns exec "$1" timeout 10 python3 - "$2" "$3" "$4" <<'PY'
import os, socket, sys
size, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3); s.connect((host, port)); sent = os.urandom(size); s.send(sent)
sys.exit(s.recv(65535) != sent)
PY
}
fragments_accepted() { ctl dpctl/ipf-get-status | awk -v line="$1 frags completed:" 'index($0, line) { print $NF }'; }

# A firewall: host a may begin, host b may only answer.
rules <<'RULES'
table=0,priority=50,arp,actions=NORMAL
table=0,priority=50,icmp6,icmp_type=135,actions=NORMAL
table=0,priority=50,icmp6,icmp_type=136,actions=NORMAL
table=0,priority=10,ip,actions=ct(table=1)
table=0,priority=10,ipv6,actions=ct(table=1)
table=1,priority=30,ct_state=+trk+inv,actions=drop
table=1,priority=20,ct_state=+trk+est,actions=NORMAL
table=1,priority=20,ct_state=+trk+rel,actions=NORMAL
table=1,priority=10,in_port=1,ip,ct_state=+trk+new,actions=ct(commit),NORMAL
table=1,priority=10,in_port=1,ipv6,ct_state=+trk+new,actions=ct(commit),NORMAL
RULES
in_a ping -q -c 3 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping out: $(cat "$dir/ping")"
in_a ping -q -c 3 -i 0.2 -W 5 fd09::2 > "$dir/ping" || fail "no IPv6 ping out: $(cat "$dir/ping")"
in_b ping -q -c 2 -i 0.2 -W 1 10.9.0.1 > "$dir/ping" && fail "a ping came in"
tell_addresses "$b" 7000
tell_addresses "$a" 7001
[ "$(asked "$a" tcp 10.9.0.2 7000)" = 10.9.0.1 ] || fail "no TCP out"
[ "$(asked "$a" udp 10.9.0.2 7000)" = 10.9.0.1 ] || fail "no UDP out"
[ "$(asked "$b" tcp 10.9.0.1 7001)" = TimeoutError ] || fail "TCP came in"
[ "$(asked "$b" udp 10.9.0.1 7001)" = TimeoutError ] || fail "UDP came in"
# An error about a packet is related to its connection.
[ "$(asked "$a" udp 10.9.0.2 7999)" = ConnectionRefusedError ] || fail "the error did not come back"
serve "$b"
in_a iperf3 -c 10.9.0.2 -n 8M > "$dir/iperf" || fail "no bulk TCP: $(cat "$dir/iperf")"
served
# In fragments.
in_a ping -q -c 2 -i 0.2 -W 5 -s 3000 10.9.0.2 > "$dir/ping" || fail "no large ping out: $(cat "$dir/ping")"
in_a ping -q -c 2 -i 0.2 -W 5 -s 3000 fd09::2 > "$dir/ping" || fail "no large IPv6 ping out: $(cat "$dir/ping")"
in_b ping -q -c 1 -W 1 -s 3000 10.9.0.1 > "$dir/ping" && fail "a large ping came in"
echo_datagrams "$b" 7100
for host in 10.9.0.2 fd09::2; do
    for size in 8000 60000; do
        echoed "$a" $size $host 7100 || fail "$size bytes to $host did not come back: $(ctl dpctl/ipf-get-status -m)"
    done
done
[ "$(fragments_accepted v4)" -ge 100 ] || fail "$(ctl dpctl/ipf-get-status -m)"
[ "$(fragments_accepted v6)" -ge 100 ] || fail "$(ctl dpctl/ipf-get-status -m)"
ctl dpctl/ipf-get-status | grep -q ' num frag: 0$' || fail "some are held: $(ctl dpctl/ipf-get-status -m)"
# Not held, they are invalid.
ctl dpctl/ipf-set-disabled v4
echoed "$a" 8000 10.9.0.2 7100 2> /dev/null && fail "untracked fragments pass"
ctl dpctl/ipf-set-enabled v4
connections > "$dir/dump"
grep -q '^tcp,orig=(src=10.9.0.1,dst=10.9.0.2,.*dport=5201),.*protoinfo=(state=' "$dir/dump" || fail "$(cat "$dir/dump")"
grep -q '^icmpv6,orig=(src=fd09::1,dst=fd09::2,id=' "$dir/dump" || fail "$(cat "$dir/dump")"

# Behind b is a link of a smaller MTU: the error that says so is let through, and a believes it.
ip -n "$b" tuntap add dev behind mode tap
ip -n "$b" link set behind mtu 1000
ip -n "$b" addr add 10.10.0.1/24 dev behind
ip -n "$b" link set behind up
ip netns exec "$b" sysctl -qw net.ipv4.ip_forward=1
ip -n "$a" route add 10.10.0.0/24 via 10.9.0.2
in_a ping -q -c 2 -i 0.2 -W 1 -M do -s 1400 10.10.0.5 > /dev/null || true
ip -n "$a" route get 10.10.0.5 | grep -q 'mtu 1000' || fail "the path's MTU was not learned: $(ip -n "$a" route get 10.10.0.5)"

# Source NAT, with the errors translated back, and destination NAT to another port.
rules <<'RULES'
table=0,priority=50,arp,actions=NORMAL
table=0,priority=20,in_port=1,ip,nw_dst=10.9.0.99,actions=ct(commit,zone=3,nat(dst=10.9.0.2:7000),table=2)
table=0,priority=10,in_port=1,ip,actions=ct(commit,zone=4,nat(src=10.9.0.200),table=2)
table=0,priority=20,in_port=2,ip,nw_dst=10.9.0.200,actions=ct(zone=4,nat,table=3)
table=0,priority=10,in_port=2,ip,actions=ct(zone=3,nat,table=3)
table=2,priority=10,ct_state=+trk-inv,actions=output:2
table=3,priority=10,ct_state=+trk+est,actions=output:1
table=3,priority=10,ct_state=+trk+rel,actions=output:1
RULES
[ "$(asked "$a" tcp 10.9.0.2 7000)" = 10.9.0.200 ] || fail "no TCP through source NAT"
[ "$(asked "$a" udp 10.9.0.2 7000)" = 10.9.0.200 ] || fail "no UDP through source NAT"
in_a ping -q -c 2 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping through source NAT"
[ "$(asked "$a" udp 10.9.0.2 7999)" = ConnectionRefusedError ] || fail "the error was not translated back"
in_a ping -q -c 2 -i 0.2 -W 5 -s 3000 10.9.0.2 > "$dir/ping" || fail "no large ping through source NAT"
echoed "$a" 8000 10.9.0.2 7100 || fail "8000 bytes through source NAT did not come back: $(connections; ctl dpctl/ipf-get-status -m)"
connections | grep -q '^udp,orig=(src=10.9.0.1,dst=10.9.0.2,.*dport=7100),reply=(src=10.9.0.2,dst=10.9.0.200,' || fail "$(connections)"
[ "$(asked "$a" tcp 10.9.0.99 80)" = 10.9.0.1 ] || fail "no TCP through destination NAT"
[ "$(asked "$a" udp 10.9.0.99 80)" = 10.9.0.1 ] || fail "no UDP through destination NAT"
connections zone=3 > "$dir/dump"
grep -q '^udp,orig=(src=10.9.0.1,dst=10.9.0.99,.*dport=80),reply=(src=10.9.0.2,dst=10.9.0.1,sport=7000,' "$dir/dump" ||
    fail "$(cat "$dir/dump")"

# The same in IPv6, both ways at once: a reaches b by another address, and b sees another.
ip -n "$a" -6 neigh add fd09::99 lladdr 02:00:00:00:00:02 dev t1
ip -n "$b" -6 neigh add fd09::200 lladdr 02:00:00:00:00:01 dev t2
rules <<'RULES'
table=0,priority=50,icmp6,icmp_type=135,actions=NORMAL
table=0,priority=50,icmp6,icmp_type=136,actions=NORMAL
table=0,priority=20,in_port=1,ipv6,ipv6_dst=fd09::99,actions=ct(commit,zone=3,nat(dst=[fd09::2]:7100),table=1)
table=0,priority=10,in_port=2,ipv6,actions=ct(zone=4,nat,table=2)
table=1,priority=10,ipv6,ct_state=+trk-inv,actions=ct(commit,zone=4,nat(src=fd09::200),table=3)
table=2,priority=10,ipv6,ct_state=+trk-inv,actions=ct(zone=3,nat,table=4)
table=3,priority=10,ipv6,ct_state=+trk-inv,actions=output:2
table=4,priority=10,ipv6,ct_state=+trk+est,actions=output:1
RULES
echoed "$a" 100 fd09::99 80 || fail "no UDP over IPv6 through both NATs: $(connections)"
echoed "$a" 8000 fd09::99 80 || fail "no fragments over IPv6 through both NATs: $(connections; ctl dpctl/ipf-get-status -m)"

# A hairpin: host a reaches itself by an address outside, in two zones, one for each translation.
rules <<'RULES'
table=0,priority=50,arp,actions=NORMAL
table=0,priority=10,in_port=1,tcp,nw_dst=10.9.0.98,actions=ct(zone=6,nat,table=1)
table=1,priority=20,tcp,ct_state=+trk+est+rpl,actions=ct(zone=5,nat,table=4)
table=1,priority=10,tcp,ct_state=+trk-inv,actions=ct(commit,zone=5,nat(dst=10.9.0.1:7001),table=2)
table=2,priority=10,tcp,ct_state=+trk-inv,actions=ct(commit,zone=6,nat(src=10.9.0.98),table=4)
table=4,priority=10,tcp,ct_state=+trk-inv,actions=mod_dl_src:02:00:00:00:00:98,mod_dl_dst:02:00:00:00:00:01,in_port
RULES
[ "$(asked "$a" tcp 10.9.0.98 7001)" = 10.9.0.98 ] || fail "no way round: $(connections; ctl dpctl/dump-flows)"

# FTP: the data connections are related to the control connection, from either side, and translated with it.
ip netns exec "$b" python3 -u - <<'PY' &
import socket, threading
DATA = b"0123456789" * 1000
def talk(c):
    f, data = c.makefile("rw", newline="\r\n"), None
    def say(line): f.write(line + "\n"); f.flush()
    say("220 ready")
    for line in f:
        word, _, rest = line.strip().partition(" ")
        word = word.upper()
        if word == "USER": say("331 password")
        elif word == "PASS": say("230 in")
        elif word == "PASV":
            s = socket.create_server((c.getsockname()[0], 0)); data = lambda: s.accept()[0]
            p = s.getsockname()[1]
            say("227 Entering Passive Mode (%s,%d,%d)." % (c.getsockname()[0].replace(".", ","), p >> 8, p & 255))
        elif word == "PORT":
            n = rest.split(","); to = (".".join(n[:4]), int(n[4]) * 256 + int(n[5]))
            data = lambda: socket.create_connection(to, 10); say("200 so be it")
        elif word == "RETR":
            say("150 here it comes"); d = data(); d.sendall(DATA); d.close(); say("226 done")
        elif word == "QUIT": say("221 bye"); return
        elif word in ("TYPE", "CWD"): say("200 ok")
        elif word == "PWD": say('257 "/"')
        else: say("502 no")
s = socket.create_server(("", 21))
while True: threading.Thread(target=talk, args=(s.accept()[0],), daemon=True).start()
PY
until_true sh -c "ip netns exec $b ss -ltnH 'sport = :21' | grep -q ." || fail "no FTP server"
fetch() { in_a curl -sS --max-time 15 "$@" -o "$dir/file" ftp://u:p@10.9.0.2/file 2> "$dir/curl"; }
for nat in '' ',nat(src=10.9.0.200)'; do
    rules <<RULES
table=0,priority=50,arp,actions=NORMAL
table=0,priority=10,ip,actions=ct(zone=8${nat:+,nat},table=1)
table=1,priority=30,ct_state=+trk+est,actions=NORMAL
table=1,priority=20,ip,ct_state=+trk+new+rel,actions=ct(commit,zone=8${nat:+,nat}),NORMAL
table=1,priority=10,in_port=1,tcp,tp_dst=21,ct_state=+trk+new,actions=ct(commit,zone=8,alg=ftp$nat),NORMAL
RULES
    for mode in --disable-epsv '--ftp-port - --disable-eprt'; do
        # shellcheck disable=SC2086 # words
        fetch $mode || fail "FTP $mode, $nat: $(cat "$dir/curl"; connections -m; ctl dpctl/dump-flows)"
        [ "$(wc -c < "$dir/file")" = 10000 ] || fail "FTP $mode, $nat: the file is not whole"
    done
done
connections -m | grep -q 'parent=' || fail "no data connection is related: $(connections -m)"
stop
echo "firewall, fragments, related errors, path MTU, SNAT, DNAT, hairpin, FTP active and passive, with and without NAT"
