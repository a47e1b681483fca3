"""Bytes from one guest to another that last as long as something else takes, and are compared at their end."""

import hashlib

from guest import Guest, until

PORT = 7
# Numbers that one run of `seq` writes.
RUN = 10_000
# The source: numbers, one a line, until it is told to stop; it notes how many there were, and how `nc` ended.
SOURCE = ("rm -f /tmp/stop /tmp/sent /tmp/ended; "
          "(cd /tmp; (i=0; while [ ! -e stop ]; do seq $i $((i + {last})); i=$((i + {run})); done; echo $i > sent) "
          "| nc {address} {port}; echo $? > ended) > /dev/null 2>&1 &")
# The sink. Its `nc` has an input that never ends: it would end the stream with it.
SINK = "rm -f /tmp/sum; (sleep 100000 | nc -l -p {port} | sha256sum > /tmp/sum) > /dev/null 2>&1 &"


class Stream:
    """A stream of numbers over one TCP connection. `sink` may become another guest when it has migrated there."""

    def __init__(self, source: Guest, sink: Guest, address: str):
        self.source, self.sink = source, sink
        sink.run(SINK.format(port=PORT))
        until("nc listens", lambda: sink.succeeds(f"netstat -ltn | grep -q ':{PORT} '"))
        source.run(SOURCE.format(last=RUN - 1, run=RUN, address=address, port=PORT))

    def go_on(self, mib: int) -> None:
        """Waits until the sink has received so much more."""
        begin = self._received()
        until(f"{mib} MiB more in {self.sink.sock.stem}", lambda: self._received() - begin >= mib << 20)

    def finish(self) -> int:
        """Ends it. How many bytes arrived, which are those that were sent."""
        self.source.run("touch /tmp/stop")
        until("the source has ended", lambda: self.source.succeeds("test -s /tmp/ended"))
        ended = self.source.run("cat /tmp/ended").strip()
        if ended != "0":
            raise SystemExit(f"guests: nc in {self.source.sock.stem} ended with {ended}: the stream broke off")
        until("the sum of what came", lambda: self.sink.succeeds("test -s /tmp/sum"))
        count, found = int(self.source.run("cat /tmp/sent")), self.sink.run("cat /tmp/sum").split()[0]
        sent, size = hashlib.sha256(), 0
        for first in range(0, count, RUN):
            lines = "".join(f"{number}\n" for number in range(first, first + RUN)).encode()
            sent.update(lines)
            size += len(lines)
        if found != sent.hexdigest():
            raise SystemExit(f"guests: {size} bytes were sent, and others came: {found} instead of {sent.hexdigest()}")
        return size

    def _received(self) -> int:
        return int(self.sink.run("cat /sys/class/net/eth0/statistics/rx_bytes"))
