"""A controller that says the same to every switch, while somebody snoops: controller.py SOCKET VERSION SNOOPED.

It waits for the switch on SOCKET, speaks OpenFlow VERSION (1, 4, 5 or 6), asks for echoes until they stand in SNOOPED, where the
snooper writes what it hears, then says everything else once, and ends when the last answer stands there too.
"""

import os
import socket
import struct
import sys
import time

path, version, snooped = sys.argv[1], int(sys.argv[2]), sys.argv[3]
HELLO, ECHO, ECHO_REPLY, LAST = 0, 2, 3, 0x63


def message(kind, xid, body=b""):
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def receive(length):
    data = b""
    while len(data) < length:
        data += switch.recv(length - len(data)) or sys.exit("the switch has gone")
    return data


def hear():
    _, kind, length, xid = struct.unpack("!BBHI", receive(8))
    return kind, xid, receive(length - 8)


def ask(request):
    """Says something and hears everything up to the answer to it; what the switch asks is answered."""
    switch.sendall(request)
    while True:
        kind, xid, body = hear()
        if kind == ECHO:
            switch.sendall(message(ECHO_REPLY, xid, body))
        elif xid == struct.unpack_from("!I", request, 4)[0] and kind != HELLO:
            return


def is_written(text):
    with open(snooped) as file:
        return text in file.read()


if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
# The switch may be another user.
os.chmod(path, 0o777)
listener.listen()
listener.settimeout(60)
switch, _ = listener.accept()
switch.settimeout(60)
switch.sendall(message(HELLO, 1))
while not is_written("OFPT_ECHO_REPLY"):
    ask(message(ECHO, 2, b"?"))
    time.sleep(0.05)

of10 = version == 1
barrier = 18 if of10 else 20
ask(message(5, 0x10))  # features
ask(message(7, 0x11))  # configuration
switch.sendall(message(9, 0x12, struct.pack("!HH", 0, 99)))  # set it
ask(message(7, 0x13))
ask(message(77, 0x14))  # nothing of the kind exists
ask(message(barrier + 1, 0x15))  # only switches say so
ask(message(16 if of10 else 18, 0x16, struct.pack("!HH", 3, 0) + (b"" if of10 else bytes(4))))  # tables
if not of10:
    ask(message(24, 0x17, struct.pack("!IIQ", 2, 0, 5)))  # to be the primary one
switch.sendall(message(barrier, LAST))
deadline = time.monotonic() + 60
while not is_written(f"(xid={LAST:#x}):\nOFPT_BARRIER_REPLY"):
    if time.monotonic() > deadline:
        sys.exit("the last answer was not heard")
    time.sleep(0.05)
