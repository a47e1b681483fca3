"""The stages of a packet's way through the switch, by source files: for `stage-instructions` and `stage-cycles`."""

# The stages in the order in which a packet meets them, and the files of each. The longest beginning of a path decides.
STAGES = {
    "ports": ["crates/port/", "crates/dpdk-sys/", "crates/datapath/benches/"],
    "buffers": ["crates/mem/", "crates/packet/src/buffers", "crates/packet/src/packet."],
    "extraction": ["crates/datapath/src/parse", "crates/flow/src/", "crates/packet/src/layers", "crates/packet/src/headers"],
    "composed entries": ["crates/datapath/src/compose"],
    "hash and lookup": ["crates/datapath/src/lookup", "crates/datapath/src/caches", "crates/datapath/src/first_index", "crates/flow-cache/", "crates/membership/", "crates/sync/src/arena"],
    "tracking": ["crates/datapath/src/tracking", "crates/conntrack/"],
    "checksums and edits": ["crates/packet/src/checksum", "crates/packet/src/edit"],
    "tunnels": ["crates/datapath/src/tunnel", "crates/tunnel/"],
    "upcalls": ["crates/datapath/src/upcall", "crates/datapath/src/misses", "crates/ofproto/", "crates/classifier/"],
    "counting": ["crates/fate/", "crates/flow-cache/src/counters", "crates/datapath/src/usage", "crates/datapath/src/answers", "crates/datapath/src/perf_metrics", "crates/datapath/src/stage_cycles"],
    "walk and actions": ["crates/datapath/src/act", "crates/datapath/src/walk", "crates/datapath/src/batch", "crates/action/", "crates/packet/src/batch", "crates/datapath/src/context"],
    "transmit": ["crates/datapath/src/tx"],
    "the loop and the rest": ["crates/"],
}
# What has no line of the switch's own.
OTHER = "library"
# Whose lines belong to the stage that uses them.
SHARED = "crates/simd/"


def own_file(path):
    """A source file of the switch, from `crates` on; None if it belongs to its user."""
    if "crates/" not in path or "/registry/" in path or "crates/core_arch/" in path:
        return None
    own = path[path.index("crates/"):]
    return None if own.startswith(SHARED) else own


def stage_of(own):
    """The stage of a source file."""
    lengths = [(len(file), stage) for stage, files in STAGES.items() for file in files if own.startswith(file)]
    return max(lengths)[1] if lengths else OTHER
