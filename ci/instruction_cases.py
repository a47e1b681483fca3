"""The cases of the benchmark `instructions`: for `stage-instructions` and `locked-instructions`."""

import collections

# Packets of a round, by scenario: `packets` in crates/datapath/benches/instructions/scenario.rs.
PACKETS = collections.defaultdict(lambda: 1 << 14, {"flow-setup": 1 << 11, "connection-setup": 1 << 11})
