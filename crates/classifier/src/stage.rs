//! The four stages of a lookup, as constant masks over the key's words.
//!
//! | stage | fields |
//! |---|---|
//! | 0 | metadata: port, recirculation, tunnel, connection, marks, registers, OpenFlow metadata, conjunction id |
//! | 1 | L2: Ethernet, VLAN tags, MPLS labels |
//! | 2 | L3: IPv4, IPv6, the original tuple's addresses, protocol, TOS, TTL, fragment |
//! | 3 | L4: ports, TCP flags, ARP and neighbour-discovery addresses, the original tuple's ports, NSH |
//!
//! Source: OVS include/openvswitch/flow.h, `FLOW_SEGMENT_*_ENDS_AT`. A word of our layout may hold fields of two stages
//! (TCP flags beside the Ethernet type), so a stage is a set of bits, not a range.
//!
//! The options of a tunnel belong to stage 0. Their words have the indices behind those of the lines; few keys have any.

use sluice_flow::layout::{self, FLOW_KEY_SIZE, SPANS, Span};
use sluice_flow::{FlowKey, TunMetadata};

/// The number of stages.
pub(crate) const STAGES: usize = 4;
/// The stage of the fields that can have a prefix trie.
pub(crate) const TRIE_STAGE: usize = 2;
/// The stage of a tunnel's options: the first.
pub(crate) const OPTIONS_STAGE: u8 = 0;
/// Words in the lines of a key. The words of its options have the indices from here on.
pub(crate) const WORDS: usize = FLOW_KEY_SIZE / 8;
/// The lines of a key as little-endian words.
pub(crate) type LineWords = [u64; WORDS];

/// A key as words.
#[derive(Clone, Copy)]
pub(crate) struct KeyWords<'k> {
    /// Those of its lines.
    pub lines: LineWords,
    /// What has the others.
    pub options: &'k TunMetadata,
}

impl KeyWords<'_> {
    /// A word by its index.
    #[inline]
    pub fn at(&self, index: usize) -> u64 {
        self.lines.get(index).copied().unwrap_or_else(|| self.option(index))
    }

    #[cold]
    fn option(&self, index: usize) -> u64 {
        self.options.word(index - WORDS)
    }
}

/// The words of a key.
#[inline]
pub(crate) fn words_of(key: &FlowKey) -> KeyWords<'_> {
    let mut lines = [0; WORDS];
    for (i, line) in key.lines.iter().enumerate() {
        lines[i * 8..i * 8 + 8].copy_from_slice(&line.words());
    }
    KeyWords { lines, options: &key.tun_metadata }
}

/// Adds bits to one word of a key.
#[inline]
pub(crate) fn or_word(key: &mut FlowKey, index: usize, bits: u64) {
    if index >= WORDS {
        return key.tun_metadata.or_word(index - WORDS, bits);
    }
    let (chunks, _) = key.lines[index / 8].0.as_chunks_mut::<8>();
    let word = &mut chunks[index % 8];
    *word = (u64::from_le_bytes(*word) | bits).to_le_bytes();
}

const METADATA: &[Span] = &[
    layout::IN_PORT,
    layout::RECIRC_ID,
    layout::DP_HASH,
    layout::PKT_MARK,
    layout::CT_MARK,
    layout::CT_ZONE,
    layout::CT_STATE,
    layout::CT_LABEL,
    layout::CT_NW_PROTO,
    layout::TUN_ID,
    layout::TUN_IPV4_SRC,
    layout::TUN_IPV4_DST,
    layout::TUN_IPV6_SRC,
    layout::TUN_IPV6_DST,
    layout::TUN_FLAGS,
    layout::TUN_TOS,
    layout::TUN_TTL,
    layout::TUN_TP_DST,
    layout::TUN_GBP_ID,
    layout::TUN_GBP_FLAGS,
    layout::TUN_PAYLOAD,
    layout::TUN_ERSPAN_IDX,
    layout::TUN_ERSPAN_VER,
    layout::TUN_ERSPAN_DIR,
    layout::TUN_ERSPAN_HWID,
    layout::TUN_GTPU_FLAGS,
    layout::TUN_GTPU_MSGTYPE,
    layout::REGS,
    layout::METADATA,
    layout::CONJ_ID,
    layout::ACTSET_OUTPUT,
    layout::SKB_PRIORITY,
    layout::PACKET_TYPE,
];
const L2: &[Span] = &[
    layout::DL_DST,
    layout::DL_SRC,
    layout::VLAN0_TPID,
    layout::VLAN0_TCI,
    layout::VLAN1_TPID,
    layout::VLAN1_TCI,
    layout::DL_TYPE,
    layout::MPLS0,
    layout::MPLS1,
    layout::MPLS2,
];
const L3: &[Span] = &[
    layout::NW_SRC,
    layout::NW_DST,
    layout::NW_PROTO,
    layout::NW_TOS,
    layout::NW_TTL,
    layout::NW_FRAG,
    layout::IPV6_SRC,
    layout::IPV6_DST,
    layout::IPV6_LABEL,
    layout::CT_SRC,
    layout::CT_DST,
    layout::CT_IS_IPV6,
];
const L4: &[Span] = &[
    layout::TCP_FLAGS,
    layout::TP_SRC,
    layout::TP_DST,
    layout::ND_TARGET,
    layout::ARP_SHA,
    layout::ARP_THA,
    layout::CT_TP_SRC,
    layout::CT_TP_DST,
    layout::ND_RESERVED,
    layout::NSH_FLAGS,
    layout::NSH_TTL,
    layout::NSH_MDTYPE,
    layout::NSH_NP,
    layout::NSH_PATH,
    layout::NSH_CONTEXT,
];

/// The bits of each stage, by word.
pub(crate) const STAGE_BITS: [LineWords; STAGES] = [bits_of(METADATA), bits_of(L2), bits_of(L3), bits_of(L4)];

const fn bits_of(spans: &[Span]) -> LineWords {
    let mut words = [0u64; WORDS];
    let mut i = 0;
    while i < spans.len() {
        let mut at = spans[i].offset;
        while at < spans[i].offset + spans[i].size {
            words[at / 8] |= 0xff << (at % 8 * 8);
            at += 1;
        }
        i += 1;
    }
    words
}

/// A word of a stage: its index in the key, and the stage's bits in it.
#[derive(Clone, Copy)]
pub(crate) struct StageWord {
    pub stage: u8,
    pub index: u16,
    pub bits: u64,
}

/// The number of words of all stages; a word that two stages share counts twice.
pub(crate) const STAGE_WORD_COUNT: usize = {
    let mut n = 0;
    let mut i = 0;
    while i < STAGES * WORDS {
        n += (STAGE_BITS[i / WORDS][i % WORDS] != 0) as usize;
        i += 1;
    }
    n
};

/// The words of all stages, stage by stage.
pub(crate) static STAGE_WORDS: [StageWord; STAGE_WORD_COUNT] = {
    let mut out = [StageWord { stage: 0, index: 0, bits: 0 }; STAGE_WORD_COUNT];
    let mut n = 0;
    let mut i = 0;
    while i < STAGES * WORDS {
        let bits = STAGE_BITS[i / WORDS][i % WORDS];
        if bits != 0 {
            out[n] = StageWord { stage: (i / WORDS) as u8, index: (i % WORDS) as u16, bits };
            n += 1;
        }
        i += 1;
    }
    out
};

// Every field of the layout is in exactly one stage, except the presence byte. A new field needs a stage here.
const _: () = {
    let mut i = 0;
    while i < SPANS.len() {
        let span = SPANS[i].1;
        let mut at = span.offset;
        while at < span.offset + span.size {
            let mut found = 0;
            let mut stage = 0;
            while stage < STAGES {
                found += STAGE_BITS[stage][at / 8] >> (at % 8 * 8) & 1;
                stage += 1;
            }
            let wanted = (span.offset != layout::PRESENCE.offset) as u64;
            assert!(
                found == wanted,
                "a field of flow::layout is in no stage of the classifier, or in two: see stage.rs"
            );
            at += 1;
        }
        i += 1;
    }
};
