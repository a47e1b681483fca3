#!/usr/bin/env python3
"""Sends datagrams to ports of 10.9.0.2, or tells how many came to each with which type of service.

send LENGTH PORT=COUNT...   in turn by port, so that a burst is mixed; LENGTH counts the IP header
receive PORT...             prints `ready`, and at the end of its input what came
"""
import collections
import select
import socket
import sys

HEADERS = 28


def send(length, counts):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    counts = {int(port): int(count) for port, count in (pair.split("=") for pair in counts)}
    for i in range(max(counts.values())):
        for port, count in counts.items():
            if i < count:
                out.sendto(bytes(length - HEADERS), ("10.9.0.2", port))


def receive(ports):
    sockets = []
    for port in ports:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        s.bind(("10.9.0.2", int(port)))
        sockets.append(s)
    print("ready", flush=True)
    sys.stdin.read()
    came = collections.Counter()
    while ready := select.select(sockets, [], [], 0)[0]:
        for s in ready:
            _, [(_, _, tos)], _, _ = s.recvmsg(2048, 64)
            came[s.getsockname()[1], tos[0]] += 1
    for (port, tos), count in sorted(came.items()):
        print(f"port {port} tos {tos}: {count}")


if sys.argv[1] == "send":
    send(int(sys.argv[2]), sys.argv[3:])
else:
    receive(sys.argv[2:])
