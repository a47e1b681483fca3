"""Tells when a core is not to be had: stalls.py CORE prints `0`, and then the milliseconds of each time that it was woken 5 ms late."""

import os
import sys
import time

os.sched_setaffinity(0, {int(sys.argv[1])})
print(0, flush=True)
last = time.monotonic()
while True:
    time.sleep(0.002)
    now = time.monotonic()
    late = (now - last - 0.002) * 1000
    if late > 5:
        print(round(late), flush=True)
    last = now
